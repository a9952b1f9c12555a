//! The recipes of docs/scale-out.md: each engine runs the shards of the example plan, and the merge must be one run. Beside
//! them what needs the same tools: the example of docs/optimisers.md, a `DaemonSet`, and alert rules.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::ci::Tally;
use crate::workspace::{Workspace, find_on_path, make_folder, remove_folder};

/// Python packages that the arms need.
const TOOLS: [&str; 3] = ["snakemake>=8,<10", "kubernetes-validate>=1.29", "optuna>=4,<5"];

/// Debian's programs of a Slurm of one node.
const SLURM: [&str; 4] = ["slurmctld", "slurmd", "sbatch", "sinfo"];
/// Starts one, and runs the example on it.
const START_SLURM: &str = include_str!("scale_out/slurm.sh");

/// An arm, and what it needs: programs of Debian, or root.
type Arm = (&'static [&'static str], fn(&RecipeRunner) -> Result<()>);
const ARMS: &[Arm] = &[
    (&["parallel"], RecipeRunner::check_parallel),
    (&SLURM, RecipeRunner::check_slurm),
    (&[], RecipeRunner::check_snakemake),
    (&[], RecipeRunner::check_kubernetes),
    (&["root"], RecipeRunner::check_daemon_set),
    (&["promtool"], RecipeRunner::check_alerts),
    (&[], RecipeRunner::check_optuna),
];

/// Runs each recipe in a folder of its own.
pub fn check_recipes(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    let mut arms = RecipeRunner::new(workspace)?;
    arms.run_latput(&arms.folder, "run plan.toml --on sim:server-10g -o one.db")?;
    arms.one = arms.export_csv(&arms.folder.join("one.db"))?;
    let is_root = rustix::process::geteuid().is_root();
    for (needs, check) in ARMS {
        let lacks = |name: &&&str| match **name {
            "root" => !is_root,
            name => find_on_path(name).is_none(),
        };
        if let Some(missing) = needs.iter().find(lacks) {
            tally.skip(missing);
        } else {
            check(&arms)?;
            tally.passed += 1;
        }
    }
    Ok(())
}

struct RecipeRunner {
    /// Where each recipe has its folder.
    folder: PathBuf,
    /// `examples`.
    examples: PathBuf,
    /// `PATH` with latput and the programs of those packages first.
    path: std::ffi::OsString,
    /// The rows of one run of the whole plan.
    one: Vec<u8>,
}

impl RecipeRunner {
    fn new(workspace: &Workspace) -> Result<Self> {
        let folder = workspace.target.join("xtask-scale-out");
        remove_folder(&folder)?;
        let bin = folder.join("bin");
        make_folder(&bin)?;
        std::os::unix::fs::symlink(workspace.built_latput()?, bin.join("latput"))?;
        let python = folder.join("environment").join("bin");
        let others = std::env::var_os("PATH").unwrap_or_default();
        let folders = [bin, python.clone()].into_iter().chain(std::env::split_paths(&others));
        let path = std::env::join_paths(folders).context("a folder of PATH has a colon")?;
        let examples = workspace.root.join("examples");
        let arms = Self { folder, examples, path, one: Vec::new() };
        arms.run(&arms.folder, "python3", ["-m", "venv", "environment"])
            .context("python3 makes no environment; Debian has it in python3-venv")?;
        let install = ["install", "--quiet"].into_iter().chain(TOOLS);
        arms.run(&arms.folder, python.join("pip"), install)?;
        fs::copy(arms.examples.join("scale-out/plan.toml"), arms.folder.join("plan.toml"))?;
        Ok(arms)
    }

    /// A folder with the example's files in it.
    fn prepare_folder(&self, name: &str) -> Result<PathBuf> {
        let place = self.folder.join(name);
        fs::create_dir(&place)?;
        for entry in fs::read_dir(self.examples.join("scale-out"))? {
            let entry = entry?;
            fs::copy(entry.path(), place.join(entry.file_name()))?;
        }
        Ok(place)
    }

    /// Merges the results of the shards, which must be one run.
    fn check_parts(&self, folder: &Path, numbers: impl Iterator<Item = u32>) -> Result<()> {
        let parts: Vec<String> = numbers.map(|number| format!("part{number}.db")).collect();
        self.run_latput(folder, &format!("merge {} -o all.db", parts.join(" ")))?;
        self.check_whole(folder)
    }

    fn check_whole(&self, folder: &Path) -> Result<()> {
        let is_same = self.export_csv(&folder.join("all.db"))? == self.one;
        ensure!(is_same, "{}: not the bytes of one run", folder.display());
        Ok(())
    }

    fn check_parallel(&self) -> Result<()> {
        let folder = self.prepare_folder("parallel")?;
        let shard = "latput run plan.toml --on sim:server-10g --shard {}/16 -o part{}.db";
        let words = ["--jobs", "2", shard, ":::"].map(str::to_owned);
        let numbers = (1..=16).map(|it| it.to_string());
        self.run(&folder, "parallel", words.into_iter().chain(numbers))?;
        self.check_parts(&folder, 1..=16)
    }

    /// The array of tasks, on a Slurm in namespaces of its own. Its daemons end with them.
    fn check_slurm(&self) -> Result<()> {
        let folder = self.prepare_folder("slurm")?;
        let own = ["--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
        let words = own.into_iter().chain(["timeout", "120", "sh", "-c", START_SLURM]);
        self.run(&folder, "unshare", words)?;
        self.check_parts(&folder, 1..=16)
    }

    /// The Snakefile; a second start must find nothing to do.
    fn check_snakemake(&self) -> Result<()> {
        let folder = self.prepare_folder("snakemake")?;
        let words = ["--cores", "2", "--quiet", "all"];
        self.run(&folder, "snakemake", words)?;
        self.check_whole(&folder)?;
        let made = fs::metadata(folder.join("all.db"))?.modified()?;
        self.run(&folder, "snakemake", words)?;
        let made_again = fs::metadata(folder.join("all.db"))?.modified()? != made;
        ensure!(!made_again, "snakemake: a finished sweep was merged again");
        Ok(())
    }

    /// The manifest by the schema of Kubernetes, and the arguments of each of its pods by latput.
    fn check_kubernetes(&self) -> Result<()> {
        let folder = self.prepare_folder("kubernetes")?;
        let script = "job = yaml.safe_load(open(sys.argv[1]))['spec']\n\
                      [pod] = job['template']['spec']['containers']\n\
                      print(json.dumps([job['completions'], pod['args']]))";
        let manifest = folder.join("kubernetes-job.yaml");
        let (pods, words): (u32, Vec<String>) = self.read_manifest(&manifest, script)?;
        for index in 0..pods {
            let of_pod =
                |word: &String| word.replace("$(JOB_COMPLETION_INDEX)", &index.to_string());
            self.run(&folder, "latput", words.iter().map(of_pod))?;
        }
        self.check_parts(&folder, 0..pods)
    }

    /// The manifest by the schema of Kubernetes. Its arguments start the daemon, with the capability that it has and no
    /// other, on an interface of that name in namespaces of its own.
    fn check_daemon_set(&self) -> Result<()> {
        let script = "[pod] = yaml.safe_load(open(sys.argv[1]))['spec']['template']['spec']['containers']\n\
                      print(json.dumps([pod['env'][0]['value'], pod['securityContext']['capabilities']['add'], pod['args']]))";
        let manifest = self.examples.join("kubernetes/moderate-daemonset.yaml");
        let (interface, rights, words): (String, Vec<String>, Vec<String>) =
            self.read_manifest(&manifest, script)?;
        ensure!(words.contains(&"$(INTERFACE)".to_owned()), "daemon set: {words:?}");
        let words = words.join(" ").replace("$(INTERFACE)", &interface);
        let rights = rights.iter().map(|right| format!(",+{}", right.to_lowercase()));
        let rights = rights.collect::<String>();
        let script = format!(
            "mount -t tmpfs tmpfs /run && ip link set lo up && ip link add {interface} type veth peer name p0 && \
             ip link set p0 up && ip link set {interface} up && \
             ethtool -K {interface} gro on && exec setpriv --bounding-set=-all{rights} \
             --inh-caps=-all{rights} latput {words} --for 2s"
        );
        self.run(&self.folder, "unshare", ["--net", "--mount", "sh", "-c", &script])
    }

    /// Checks a manifest by the schema of Kubernetes; what a script of Python prints of it as JSON.
    fn read_manifest<T: serde::de::DeserializeOwned>(
        &self,
        manifest: &Path,
        script: &str,
    ) -> Result<T> {
        let strict = [OsStr::new("--strict"), manifest.as_os_str()];
        self.run(&self.folder, "kubernetes-validate", strict)?;
        let script = format!("import json, sys, yaml\n{script}");
        let words = [OsStr::new("-c"), script.as_ref(), manifest.as_os_str()];
        Ok(serde_json::from_slice(&self.capture_output(&self.folder, "python3", words)?)?)
    }

    /// The alert rules by Prometheus' own program, with when each comes. That every metric is one of ours, tests of `fleet`
    /// and `moderate` ask.
    fn check_alerts(&self) -> Result<()> {
        let examples = self.examples.join("grafana");
        self.run(&examples, "promtool", ["check", "rules", "rules.yml"])?;
        self.run(&examples, "promtool", ["test", "rules", "rules-test.yml"])
    }

    /// A search by Optuna, whose winner must be confirmed as better than today's setting.
    fn check_optuna(&self) -> Result<()> {
        let example = self.examples.join("search");
        let (program, plan) = (example.join("optuna_search.py"), example.join("plan.toml"));
        let words = [program.as_os_str(), OsStr::new("12"), plan.as_os_str()];
        let more = ["--on", "sim:server-10g", "-o", "found.db"].map(OsStr::new);
        self.run(&self.folder, "python3", words.into_iter().chain(more))?;
        let report = self.capture_output(&self.folder, "latput", ["report", "found.db"])?;
        let report = String::from_utf8_lossy(&report);
        ensure!(report.contains("is proven better"), "optuna: no winner is confirmed:\n{report}");
        Ok(())
    }

    fn run_latput(&self, folder: &Path, words: &str) -> Result<()> {
        self.run(folder, "latput", words.split(' '))
    }

    fn export_csv(&self, results: &Path) -> Result<Vec<u8>> {
        let format = ["--format", "csv"].map(OsStr::new);
        let words = [OsStr::new("report"), results.as_os_str()].into_iter().chain(format);
        self.capture_output(&self.folder, "latput", words)
    }

    fn run(
        &self,
        folder: &Path,
        program: impl AsRef<OsStr>,
        words: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<()> {
        self.capture_output(folder, program, words).map(drop)
    }

    /// Runs a program and returns its stdout; its stderr is shown where it fails.
    fn capture_output(
        &self,
        folder: &Path,
        program: impl AsRef<OsStr>,
        words: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<Vec<u8>> {
        // The folders of PATH are searched by env(1), after it has the new PATH.
        let mut command = Command::new("env");
        command.arg(program).args(words).current_dir(folder).env("PATH", &self.path);
        let ended = command.output().context("cannot start env")?;
        let said = String::from_utf8_lossy(&ended.stderr);
        ensure!(ended.status.success(), "{command:?} ended with {}:\n{said}", ended.status);
        Ok(ended.stdout)
    }
}
