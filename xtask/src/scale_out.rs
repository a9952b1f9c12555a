//! The recipes of docs/scale-out.md: each engine runs the shards of the example plan, and the merge must be one run. Beside
//! them what needs the same tools: the example of docs/optimisers.md, a `DaemonSet`, and alert rules.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::ci::Tally;
use crate::workspace::{Workspace, find_on_path};

/// Python packages that the arms need.
const TOOLS: [&str; 3] = ["snakemake>=8,<10", "kubernetes-validate>=1.29", "optuna>=4,<5"];

/// Debian's programs of a Slurm of one node.
const SLURM: [&str; 4] = ["slurmctld", "slurmd", "sbatch", "sinfo"];
/// Starts one, and runs the example on it.
const START_SLURM: &str = include_str!("scale_out/slurm.sh");

/// Runs each recipe in a folder of its own.
pub fn check_recipes(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    let arms = RecipeRunner::new(workspace)?;
    arms.run_latput(&arms.folder, "run plan.toml --on sim:server-10g -o one.db")?;
    let one = arms.export_csv(&arms.folder.join("one.db"))?;
    if find_on_path("parallel").is_some() {
        let folder = arms.prepare_folder("parallel")?;
        let shard = "latput run plan.toml --on sim:server-10g --shard {}/16 -o part{}.db";
        let words = ["--jobs", "2", shard, ":::"].map(str::to_owned);
        arms.run(&folder, "parallel", words.into_iter().chain((1..=16).map(|it| it.to_string())))?;
        arms.run_latput(&folder, &format!("merge {} -o all.db", join_part_names(1..=16)))?;
        ensure!(
            arms.export_csv(&folder.join("all.db"))? == one,
            "parallel: not the bytes of one run"
        );
        tally.passed += 1;
    } else {
        tally.record_line("skipped: needs parallel");
    }
    if let Some(missing) = SLURM.iter().find(|name| find_on_path(name).is_none()) {
        tally.record_line(&format!("skipped: needs {missing}"));
    } else {
        arms.check_slurm(&one)?;
        tally.passed += 1;
    }
    arms.check_snakemake(&one)?;
    tally.passed += 1;
    arms.check_kubernetes(&one)?;
    tally.passed += 1;
    if rustix::process::geteuid().is_root() {
        arms.daemon_set(&workspace.root.join("examples/kubernetes"))?;
        tally.passed += 1;
    } else {
        tally.record_line("skipped: needs root");
    }
    if find_on_path("promtool").is_some() {
        arms.check_alerts(&workspace.root.join("examples/grafana"))?;
        tally.passed += 1;
    } else {
        tally.record_line("skipped: needs promtool");
    }
    arms.check_optuna(&workspace.root.join("examples/search"))?;
    tally.passed += 1;
    Ok(())
}

fn join_part_names(numbers: impl Iterator<Item = u32>) -> String {
    numbers.map(|number| format!("part{number}.db")).collect::<Vec<_>>().join(" ")
}

struct RecipeRunner {
    /// Where each recipe has its folder.
    folder: PathBuf,
    /// `examples/scale-out`.
    examples: PathBuf,
    /// Programs of those packages.
    python: PathBuf,
    /// `PATH` with latput and those programs first.
    path: std::ffi::OsString,
}

impl RecipeRunner {
    fn new(workspace: &Workspace) -> Result<Self> {
        let folder = workspace.target.join("xtask-scale-out");
        if folder.exists() {
            fs::remove_dir_all(&folder)
                .with_context(|| format!("cannot empty {}", folder.display()))?;
        }
        let bin = folder.join("bin");
        fs::create_dir_all(&bin).with_context(|| format!("cannot make {}", bin.display()))?;
        let latput = workspace.built_latput()?;
        std::os::unix::fs::symlink(&latput, bin.join("latput"))?;
        let python = folder.join("environment").join("bin");
        let others = std::env::var_os("PATH").unwrap_or_default();
        let folders = [bin, python.clone()].into_iter().chain(std::env::split_paths(&others));
        let path = std::env::join_paths(folders).context("a folder of PATH has a colon")?;
        let examples = workspace.root.join("examples/scale-out");
        let arms = Self { folder, examples, python, path };
        let program = |name: &str| arms.python.join(name).display().to_string();
        let venv = ["-m", "venv", "environment"].map(str::to_owned);
        arms.run(&arms.folder, "python3", venv)
            .context("python3 makes no environment; Debian has it in python3-venv")?;
        let install = ["install", "--quiet"].into_iter().chain(TOOLS).map(str::to_owned);
        arms.run(&arms.folder, &program("pip"), install)?;
        fs::copy(arms.examples.join("plan.toml"), arms.folder.join("plan.toml"))?;
        Ok(arms)
    }

    /// A folder with the example's files in it.
    fn prepare_folder(&self, name: &str) -> Result<PathBuf> {
        let place = self.folder.join(name);
        fs::create_dir(&place)?;
        for entry in fs::read_dir(&self.examples)? {
            let entry = entry?;
            fs::copy(entry.path(), place.join(entry.file_name()))?;
        }
        Ok(place)
    }

    /// The array of tasks, on a Slurm in namespaces of its own. Its daemons end with them.
    fn check_slurm(&self, one: &[u8]) -> Result<()> {
        let folder = self.prepare_folder("slurm")?;
        let own = ["--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
        let words = own.into_iter().chain(["timeout", "120", "sh", "-c", START_SLURM]);
        self.run(&folder, "unshare", words.map(str::to_owned))?;
        self.run_latput(&folder, &format!("merge {} -o all.db", join_part_names(1..=16)))?;
        ensure!(self.export_csv(&folder.join("all.db"))? == one, "slurm: not the bytes of one run");
        Ok(())
    }

    /// The Snakefile; a second start must find nothing to do.
    fn check_snakemake(&self, one: &[u8]) -> Result<()> {
        let folder = self.prepare_folder("snakemake")?;
        let words = ["--cores", "2", "--quiet", "all"].map(str::to_owned);
        self.run(&folder, "snakemake", words.clone())?;
        ensure!(
            self.export_csv(&folder.join("all.db"))? == one,
            "snakemake: not the bytes of one run"
        );
        let made = fs::metadata(folder.join("all.db"))?.modified()?;
        self.run(&folder, "snakemake", words)?;
        let made_again = fs::metadata(folder.join("all.db"))?.modified()? != made;
        ensure!(!made_again, "snakemake: a finished sweep was merged again");
        Ok(())
    }

    /// The manifest by the schema of Kubernetes, and the arguments of each of its pods by latput.
    fn check_kubernetes(&self, one: &[u8]) -> Result<()> {
        let folder = self.prepare_folder("kubernetes")?;
        let manifest = "kubernetes-job.yaml";
        self.run(&folder, "kubernetes-validate", ["--strict", manifest].map(str::to_owned))?;
        let script = "import json, sys, yaml\n\
                      job = yaml.safe_load(open(sys.argv[1]))['spec']\n\
                      [pod] = job['template']['spec']['containers']\n\
                      print(json.dumps([job['completions'], pod['args']]))";
        let words = ["-c", script, manifest].map(str::to_owned);
        let printed = self.capture_output(&folder, "python3", words)?;
        let (pods, words): (u32, Vec<String>) = serde_json::from_slice(&printed)?;
        for index in 0..pods {
            let of_pod =
                |word: &String| word.replace("$(JOB_COMPLETION_INDEX)", &index.to_string());
            self.run(&folder, "latput", words.iter().map(of_pod))?;
        }
        self.run_latput(&folder, &format!("merge {} -o all.db", join_part_names(0..pods)))?;
        ensure!(
            self.export_csv(&folder.join("all.db"))? == one,
            "kubernetes: not the bytes of one run"
        );
        Ok(())
    }

    /// The manifest by the schema of Kubernetes. Its arguments start the daemon, with the capability that it has and no
    /// other, on an interface of that name in namespaces of its own.
    fn daemon_set(&self, examples: &Path) -> Result<()> {
        let manifest = examples.join("moderate-daemonset.yaml").display().to_string();
        self.run(&self.folder, "kubernetes-validate", ["--strict".to_owned(), manifest.clone()])?;
        let script = "import json, sys, yaml\n\
                      [pod] = yaml.safe_load(open(sys.argv[1]))['spec']['template']['spec']['containers']\n\
                      print(json.dumps([pod['env'][0]['value'], pod['securityContext']['capabilities']['add'], pod['args']]))";
        let printed = self.capture_output(
            &self.folder,
            "python3",
            ["-c".to_owned(), script.to_owned(), manifest],
        )?;
        let (interface, rights, words): (String, Vec<String>, Vec<String>) =
            serde_json::from_slice(&printed)?;
        ensure!(words.contains(&"$(INTERFACE)".to_owned()), "daemon set: {words:?}");
        let words: Vec<String> =
            words.iter().map(|word| word.replace("$(INTERFACE)", &interface)).collect();
        let rights = rights.iter().map(|right| format!(",+{}", right.to_lowercase()));
        let rights = rights.collect::<String>();
        let script = format!(
            "mount -t tmpfs tmpfs /run && ip link set lo up && ip link add {interface} type veth peer name p0 && \
             ip link set p0 up && ip link set {interface} up && \
             ethtool -K {interface} gro on && exec setpriv --bounding-set=-all{rights} \
             --inh-caps=-all{rights} latput {} --for 2s",
            words.join(" ")
        );
        let words = ["--net", "--mount", "sh", "-c", &script].map(str::to_owned);
        self.run(&self.folder, "unshare", words)
    }

    /// The alert rules by Prometheus' own program, with when each comes. That every metric is one of ours, tests of `fleet`
    /// and `moderate` ask.
    fn check_alerts(&self, examples: &Path) -> Result<()> {
        self.run(examples, "promtool", ["check", "rules", "rules.yml"].map(str::to_owned))?;
        self.run(examples, "promtool", ["test", "rules", "rules-test.yml"].map(str::to_owned))
    }

    /// A search by Optuna, whose winner must be confirmed as better than today's setting.
    fn check_optuna(&self, example: &Path) -> Result<()> {
        let program = example.join("optuna_search.py").display().to_string();
        let plan = example.join("plan.toml").display().to_string();
        let words =
            [program.as_str(), "12", plan.as_str(), "--on", "sim:server-10g", "-o", "found.db"];
        self.run(&self.folder, "python3", words.map(str::to_owned))?;
        let report =
            self.capture_output(&self.folder, "latput", ["report", "found.db"].map(str::to_owned))?;
        let report = String::from_utf8_lossy(&report);
        ensure!(report.contains("is proven better"), "optuna: no winner is confirmed:\n{report}");
        Ok(())
    }

    fn run_latput(&self, folder: &Path, words: &str) -> Result<()> {
        self.run(folder, "latput", words.split(' ').map(str::to_owned))
    }

    fn export_csv(&self, results: &Path) -> Result<Vec<u8>> {
        let results = results.display().to_string();
        let words = ["report".to_owned(), results, "--format".to_owned(), "csv".to_owned()];
        self.capture_output(&self.folder, "latput", words)
    }

    fn run(
        &self,
        folder: &Path,
        program: &str,
        words: impl IntoIterator<Item = String>,
    ) -> Result<()> {
        self.capture_output(folder, program, words).map(drop)
    }

    /// Runs a program and returns its stdout; its stderr is shown where it fails.
    fn capture_output(
        &self,
        folder: &Path,
        program: &str,
        words: impl IntoIterator<Item = String>,
    ) -> Result<Vec<u8>> {
        let words: Vec<String> = words.into_iter().collect();
        // The folders of PATH are searched by env(1), after it has the new PATH.
        let mut command = Command::new("env");
        command.arg(program).args(&words).current_dir(folder).env("PATH", &self.path);
        let ended = command.output().with_context(|| format!("cannot start {program}"))?;
        let said = String::from_utf8_lossy(&ended.stderr);
        let status = ended.status;
        ensure!(status.success(), "{program} {} ended with {status}:\n{said}", words.join(" "));
        Ok(ended.stdout)
    }
}
