//! Two network namespaces with one pair of interfaces, and what foreign tools say of them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::namespace::Namespace;
use crate::processes::{has_state, kill_process, processes_of, words_of};
use crate::workspace::{capture_output, make_folder};

const NAPI: &str = include_str!("napi.py");
/// Everything that a knob of a veth could have moved, as others than latput see it.
const LOOK: &str = "ip -d -o link show v0; tc -d qdisc show dev v0; tc -d class show dev v0; \
    tc -d filter show dev v0; ethtool -k v0; ethtool -l v0; \
    cd /sys/class/net/v0; grep '' threaded gro_flush_timeout napi_defer_hard_irqs tx_queue_len mtu \
    queues/*/rps_cpus queues/*/rps_flow_cnt queues/*/xps_cpus queues/*/xps_rxqs 2>&1; \"$PYTHON\" -IS \"$NAPI\" v0; \
    cat /proc/sys/net/ipv6/conf/v0/mtu 2>&1; true";
/// The interface on top of `v0`, where a case has one, and what the interfaces of the namespace share; no part of the neighbour.
const LOOK_ABOVE: &str = "; cat /sys/class/net/m0/mtu 2>&1; cd /proc/sys/net/ipv4; grep '' tcp_rmem tcp_wmem \
    tcp_notsent_lowat tcp_limit_output_bytes tcp_autocorking tcp_congestion_control 2>&1; true";
/// The number of the interface of another owner, beside `v0`.
const NEIGHBOUR: &str = "7777";
/// How long anything of ours may take to end by itself.
const END: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The two namespaces; they end with this.
#[derive(Debug)]
pub struct VethPair {
    namespaces: [Namespace; 2],
    /// Where latput keeps its state.
    state: PathBuf,
    napi: PathBuf,
    /// The interpreter itself: what PATH names may be a script that looks for it, ten times as slow.
    python: String,
    latput: PathBuf,
}

impl VethPair {
    /// Makes them, with state in `folder`.
    pub fn open(latput: &Path, folder: &Path) -> Result<Self> {
        make_folder(folder)?;
        let napi = folder.join("napi.py");
        std::fs::write(&napi, NAPI).context("cannot write the script")?;
        let python = capture_output(
            Command::new("python3").args(["-c", "import sys; print(sys.executable)"]),
        )?;
        let hold = || Namespace::new("mount -t sysfs sysfs /sys");
        Ok(Self {
            namespaces: [hold()?, hold()?],
            state: folder.join("state"),
            napi,
            python: python.trim().to_owned(),
            latput: latput.to_owned(),
        })
    }

    /// A testbed file of the two: what each is, and whether it has a CPU of its own.
    pub fn render_testbed(&self, roles: [&str; 2], has_own_cpu: bool) -> String {
        let host = |(role, number): (&str, usize)| {
            let cpus = if has_own_cpu { format!("cpus = \"{number}\"\n") } else { String::new() };
            format!(
                "[host.{role}]\nrole = \"{role}\"\ninterface = \"v0\"\naddress = \"10.77.0.{}\"\n\
                 latput = \"{}\"\nvia = {:?}\n{cpus}",
                number + 1,
                self.latput.display(),
                self.namespaces[number].enter_words()
            )
        };
        format!("schema = 1\n{}", roles.into_iter().zip(0..).map(host).collect::<String>())
    }

    /// A program in the first or the second namespace, with our state folder and without output.
    pub fn namespace_command(&self, host: usize, program: &Path) -> Command {
        let mut command = self.namespaces[host].command(program);
        self.configure_command(&mut command);
        command
    }

    /// Gives a command our state folder, and no input and output.
    pub fn configure_command<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.env("LATPUT_STATE_DIR", &self.state).env_remove("SUDO_USER");
        command.env("NAPI", &self.napi).env("PYTHON", &self.python);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())
    }

    /// The program.
    pub fn latput_path(&self) -> &Path {
        &self.latput
    }

    /// The folder of the bench.
    pub fn folder(&self) -> &Path {
        self.state.parent().unwrap_or(&self.state)
    }

    /// latput in the first namespace.
    pub fn latput_command(&self, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = self.namespace_command(0, &self.latput);
        command.args(words);
        command
    }

    /// A shell script in one of them; its output. Fails where the script does.
    pub fn run_script(&self, host: usize, script: &str) -> Result<String> {
        let mut command = self.namespace_command(host, Path::new("sh"));
        let ran = command.args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let ran = ran.output().context("cannot start nsenter")?;
        let error = String::from_utf8_lossy(&ran.stderr);
        ensure!(ran.status.success(), "`{script}` failed: {error}");
        Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
    }

    /// A new pair, `v0` in each namespace, with addresses, after `before` in the first.
    pub fn new_pair(&self, before: &str) -> Result<()> {
        let _none_yet = self.run_script(0, "ip link del v0");
        let _none_yet = std::fs::remove_dir_all(&self.state);
        let other = self.namespaces[1].id();
        self.run_script(
            0,
            &format!(
                "ip link add v0 numtxqueues 2 numrxqueues 2 type veth \
                 peer name v0 netns {other} numtxqueues 2 numrxqueues 2; \
                 ip addr add 10.77.0.1/24 dev v0; ip link set v0 up; ethtool -K v0 gro on"
            ),
        )?;
        self.run_script(1, "ip addr add 10.77.0.2/24 dev v0; ip link set v0 up")?;
        self.run_script(0, before)?;
        Ok(())
    }

    /// Adds `w0` to the first namespace, beside `v0`.
    pub fn add_neighbour(&self) -> Result<()> {
        let _none_yet = self.run_script(0, "ip link del w0");
        self.run_script(
            0,
            &format!(
                "ip link add w0 index {NEIGHBOUR} numtxqueues 2 numrxqueues 2 type veth peer name w1; \
                 ip link set w0 up mtu 9000; ip link set w1 up; ethtool -K w0 gro on"
            ),
        )?;
        Ok(())
    }

    /// State of `v0` by foreign tools, in both namespaces.
    pub fn read_interfaces(&self) -> Result<String> {
        let script = format!("{LOOK}{LOOK_ABOVE}");
        Ok(format!("{}{}", self.run_script(0, &script)?, self.run_script(1, &script)?))
    }

    /// State of `w0` by foreign tools.
    pub fn look_at_neighbour(&self) -> Result<String> {
        self.run_script(0, &LOOK.replace("v0", "w0"))
    }

    /// Whether latput has a checkpoint of another interface than `w0`.
    pub fn has_checkpoint(&self) -> bool {
        self.list_checkpoints().iter().any(|name| !is_of_neighbour(name))
    }

    /// Whether latput has a checkpoint of `w0`.
    pub fn has_neighbour_checkpoint(&self) -> bool {
        self.list_checkpoints().iter().any(|name| is_of_neighbour(name))
    }

    fn list_checkpoints(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.state.join("checkpoints")).into_iter().flatten();
        let names = files.flatten().filter_map(|file| file.file_name().into_string().ok());
        names.filter_map(|name| Some(name.strip_suffix(".json")?.to_owned())).collect()
    }

    /// Our processes that run latput with this as a word of their command.
    pub fn find_latput_processes(&self, word: &str) -> Vec<u32> {
        let runs = |pid: &u32| {
            let words = words_of(*pid);
            words.first().is_some_and(|program| !program.ends_with("nsenter"))
                && words.iter().skip(1).any(|one| one == word)
        };
        processes_of(&self.state).into_iter().filter(runs).collect()
    }

    /// Waits until none of our processes is left but the watchers of `w0`.
    pub fn settle(&self) -> Result<()> {
        self.settle_but(|pid| words_of(pid).contains(&format!("--index={NEIGHBOUR}")))
    }

    /// Waits until none of our processes is left.
    pub fn settle_all(&self) -> Result<()> {
        self.settle_but(|_| false)
    }

    fn settle_but(&self, may_stay: impl Fn(u32) -> bool) -> Result<()> {
        let deadline = Instant::now() + END;
        loop {
            let mut left = processes_of(&self.state);
            left.retain(|pid| !may_stay(*pid));
            if left.is_empty() {
                return Ok(());
            }
            // To look through all processes of the machine costs too much to do it often. When these have ended, others may be
            // there that they have started.
            while !left.is_empty() {
                if Instant::now() > deadline {
                    bail!("processes {left:?} have not ended in {} s", END.as_secs());
                }
                std::thread::sleep(LOOK_EVERY);
                left.retain(|pid| has_state(*pid, &self.state));
            }
        }
    }
}

impl Drop for VethPair {
    fn drop(&mut self) {
        processes_of(&self.state).into_iter().for_each(kill_process);
        let _gone = std::fs::remove_dir_all(&self.state);
    }
}

/// Whether this is the name of a checkpoint of `w0`.
fn is_of_neighbour(name: &str) -> bool {
    name.rsplit_once('-').is_some_and(|(_, index)| index == NEIGHBOUR)
}
