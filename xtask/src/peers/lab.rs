//! The lab as the released binary makes it, and processes in it that are ended by their id.

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use crate::processes::to_pid;

/// The host that sends.
pub const CLIENT: &str = "a";
/// The host that answers.
pub const SERVER: &str = "b";
/// The server's address in the lab.
pub const SERVER_ADDRESS: &str = "198.18.0.2";
const CLIENT_ADDRESS: &str = "198.18.0.1";
/// The interface of both hosts.
pub const INTERFACE: &str = "lat0";
const POLL: Duration = Duration::from_millis(10);

/// A lab that is up; dropping it takes it down.
#[derive(Debug)]
pub struct Lab {
    binary: PathBuf,
    /// The lab's hosts, as a testbed file for latput.
    pub testbed: PathBuf,
    /// The CPUs that the sending host is held to, as a list.
    pub client_cpus: String,
    /// The CPUs that the answering host is held to.
    pub server_cpus: String,
    /// A folder for files of the programs.
    pub scratch: PathBuf,
    /// Set by Ctrl-C.
    pub stop: Arc<AtomicBool>,
    /// Idles in the sending host, so that its counters can be read from outside.
    guest: Option<RunningProcess>,
}

impl Lab {
    /// Makes the lab, and from then on takes note of Ctrl-C. A lab that was there before is not ours: it is
    /// neither used nor removed.
    pub fn up(binary: &Path, scratch: &Path) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stop))
                .context("cannot catch signals")?;
        }
        let status = Command::new(binary).args(["lab", "up"]).stdin(Stdio::null()).status();
        let status = status.context("cannot start latput")?;
        ensure!(status.success(), "`latput lab up` ended with {status}");
        let mut lab = Self {
            binary: binary.to_owned(),
            testbed: scratch.join("bench-peers.toml"),
            client_cpus: String::new(),
            server_cpus: String::new(),
            scratch: scratch.to_owned(),
            stop,
            guest: None,
        };
        lab.guest = Some(lab.start_in(CLIENT, ["sleep", "infinity"])?);
        lab.client_cpus = lab.cpus_of(CLIENT)?;
        lab.server_cpus = lab.cpus_of(SERVER)?;
        std::fs::write(&lab.testbed, lab.testbed_text())
            .with_context(|| format!("cannot write {}", lab.testbed.display()))?;
        Ok(lab)
    }

    /// Starts a command as one of the hosts, in a process group of its own.
    pub fn start_in(
        &self,
        host: &str,
        command: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<RunningProcess> {
        let mut inside = Command::new(&self.binary);
        inside.args(["lab", "exec", host, "--"]).args(command);
        RunningProcess::start(inside)
    }

    /// Whether Linux may hold small sends back and put several into one segment, `TCP_NODELAY` or not
    /// (`net.ipv4.tcp_autocorking`, on by default since Linux 3.14); for both hosts.
    pub fn set_autocorking(&self, on: bool) -> Result<()> {
        let script = format!("echo {} > /proc/sys/net/ipv4/tcp_autocorking", u8::from(on));
        for host in [CLIENT, SERVER] {
            self.output_of(host, ["sh", "-c", &script])?;
        }
        Ok(())
    }

    /// Packets that the sending host has sent.
    pub fn packets_sent(&self) -> Result<u64> {
        let guest = self.guest.as_ref().context("the lab is not up")?;
        let table = std::fs::read_to_string(format!("/proc/{}/net/dev", guest.child.id()))
            .context("the sending host has no /proc/net/dev")?;
        packets_sent(&table).with_context(|| format!("no {INTERFACE} in /proc/net/dev"))
    }

    /// The path of latput, for commands that run it as one of the hosts.
    pub fn latput_path(&self) -> String {
        self.binary.display().to_string()
    }

    /// Starts latput itself on the testbed that the lab is.
    pub fn start_latput(
        &self,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<RunningProcess> {
        let mut command = Command::new(&self.binary);
        command.args(arguments);
        RunningProcess::start(command)
    }

    /// Sleeps unless asked to stop.
    pub fn sleep_interruptible(&self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            ensure!(!self.is_stopped(), "stopped");
            thread::sleep(POLL.min(end.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }

    /// Whether Ctrl-C was pressed.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The CPUs that `latput lab exec` holds a host to: all programs are bound by it alike.
    fn cpus_of(&self, host: &str) -> Result<String> {
        let status = self.output_of(host, ["cat", "/proc/self/status"])?;
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        Ok(list.context("/proc/self/status names no CPUs")?.trim().to_owned())
    }

    /// Output of a short command as one of the hosts.
    fn output_of<const N: usize>(&self, host: &str, command: [&str; N]) -> Result<String> {
        let deadline = Instant::now() + Duration::from_secs(10);
        self.start_in(host, command)?.wait_for_output(&self.stop, deadline)
    }

    fn testbed_text(&self) -> String {
        let host = |name: &str, role: &str, address: &str, cpus: &str| {
            let binary = self.binary.display().to_string();
            let via = [&binary, "lab", "exec", name, "--"];
            format!(
                "[host.{name}]\nrole = {role:?}\nvia = {via:?}\nlatput = {binary:?}\n\
                 interface = {INTERFACE:?}\naddress = {address:?}\ncpus = {cpus:?}\n\n"
            )
        };
        let client = host(CLIENT, "generator", CLIENT_ADDRESS, &self.client_cpus);
        let server = host(SERVER, "sut", SERVER_ADDRESS, &self.server_cpus);
        format!("schema = 1\n\n{client}{server}")
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.guest = None;
        let down = Command::new(&self.binary).args(["lab", "down"]).stdin(Stdio::null()).status();
        if !down.as_ref().is_ok_and(ExitStatus::success) {
            eprintln!("error: `latput lab down` failed: {down:?}; run it by hand");
        }
    }
}

/// A process of ours; dropping it ends it and whatever it started.
#[derive(Debug)]
pub struct RunningProcess {
    child: Child,
    name: String,
}

impl RunningProcess {
    /// Starts a command in a process group of its own.
    pub fn start(mut command: Command) -> Result<Self> {
        use std::os::unix::process::CommandExt as _;
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words = words.map(|one| one.to_string_lossy().into_owned());
        let name = words.collect::<Vec<_>>().join(" ");
        // Its own group: it can be ended with its children, and Ctrl-C reaches it through us only.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Self { child, name })
    }

    /// Waits until the process, seen from its own namespace, listens on a TCP port.
    pub fn wait_until_listening(&self, port: u16) -> Result<()> {
        let table = format!("/proc/{}/net/tcp", self.child.id());
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let text = std::fs::read_to_string(&table)
                .with_context(|| format!("`{}` has ended already", self.name))?;
            if has_listener(&text, port) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "`{}` does not listen on {port}", self.name);
            thread::sleep(POLL);
        }
    }

    /// Waits for the end and gives what the process printed.
    pub fn wait_for_output(mut self, stop: &AtomicBool, deadline: Instant) -> Result<String> {
        let output = read_beside(self.child.stdout.take());
        let errors = read_beside(self.child.stderr.take());
        let status = loop {
            if let Some(status) = self.child.try_wait().context("cannot wait")? {
                break status;
            }
            ensure!(!stop.load(Ordering::Relaxed), "stopped");
            ensure!(Instant::now() < deadline, "`{}` does not end", self.name);
            thread::sleep(POLL);
        };
        let [output, errors] = [output, errors].map(|it| it.join().unwrap_or_default());
        if !status.success() {
            bail!("`{}` ended with {status}: {} {}", self.name, errors.trim(), output.trim());
        }
        Ok(output)
    }

    /// Signals the process and what it started.
    fn send_signal(&self, signal: Signal) {
        // Gone already is what is wanted.
        let _ = to_pid(self.child.id()).map(|id| rustix::process::kill_process_group(id, signal));
    }
}

impl Drop for RunningProcess {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        // latput puts its hosts back when asked to end; five seconds are ample.
        self.send_signal(Signal::TERM);
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            thread::sleep(POLL);
        }
        self.send_signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Reads on a thread, so that a full pipe holds nobody up.
fn read_beside(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // The bytes before an error are still worth showing.
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// The tenth column of the lab's interface in a `/proc/net/dev`.
fn packets_sent(table: &str) -> Option<u64> {
    let row =
        table.lines().find_map(|line| line.trim().strip_prefix(INTERFACE)?.strip_prefix(':'))?;
    row.split_whitespace().nth(9)?.parse().ok()
}

/// Whether a `/proc/net/tcp` has a listener (state 0A) on `port`.
fn has_listener(table: &str, port: u16) -> bool {
    let wanted = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut columns = line.split_whitespace().skip(1);
        let local = columns.next().unwrap_or_default();
        local.ends_with(&wanted) && columns.nth(1) == Some("0A")
    })
}

#[cfg(test)]
mod tests {
    use rustix::process::Pid;

    use super::*;

    const TABLE: &str = "  sl  local_address rem_address   st tx_queue rx_queue\n\
        0: 020012C6:3249 00000000:0000 0A 00000000:00000000\n\
        1: 020012C6:1451 010012C6:9999 01 00000000:00000000\n";

    #[test]
    fn listener_is_found_by_port() {
        assert!(has_listener(TABLE, 0x3249));
        assert!(!has_listener(TABLE, 0x1451));
        assert!(!has_listener("", 1));
    }

    #[test]
    fn sent_packets_are_second_figure() {
        let table = "Inter-|   Receive\n face |bytes\n    lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n\
            \x20 lat0: 11 12 0 0 0 0 0 0 13 14 0 0 0 0 0 0\n";
        assert_eq!(packets_sent(table), Some(14));
        assert_eq!(packets_sent("  lat0: 1 2\n"), None);
    }

    #[test]
    fn process_is_ended_with_what_it_started() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & echo $!; wait"]);
        let mut running = RunningProcess::start(command).unwrap();
        let mut line = [0; 16];
        let length = running.child.stdout.as_mut().unwrap().read(&mut line).unwrap();
        let sleep: i32 = String::from_utf8_lossy(&line[..length]).trim().parse().unwrap();
        drop(running);
        let sleep = Pid::from_raw(sleep).unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        while rustix::process::test_kill_process(sleep).is_ok() && !is_zombie(sleep) {
            assert!(Instant::now() < deadline, "still there");
            thread::sleep(POLL);
        }
    }

    #[test]
    fn failed_process_tells_its_words() {
        let stop = AtomicBool::new(false);
        let run = |script: &str, limit| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            RunningProcess::start(command).unwrap().wait_for_output(&stop, Instant::now() + limit)
        };
        let long = Duration::from_secs(20);
        assert_eq!(run("echo fine", long).unwrap(), "fine\n");
        let error = run("echo no such host >&2; exit 2", long).unwrap_err().to_string();
        assert!(error.contains("no such host"), "{error}");
        let error = run("sleep 60", Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains("does not end"), "{error}");
    }

    /// Ended, but not yet waited for by whoever adopted it.
    fn is_zombie(id: Pid) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", id.as_raw_nonzero()));
        stat.is_ok_and(|stat| stat.contains(") Z "))
    }
}
