//! The hosts of `bench-fleet`: a namespace each with an interface `eth0`, and what foreign tools say of them.
//!
//! Namespaces, names and mounts are those of one process, and end with it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::Options;
use crate::namespace::Namespace;
use crate::processes::{kill_process, processes_of};
use crate::workspace::{capture_output, make_empty_folder, make_folder, remove_folder};

/// Txqueuelen that is wanted; a veth begins with 1000.
pub const WANTED_LENGTH: &str = "700";
/// The hosts' own mounts.
const MOUNTS: &str = "mount -t tmpfs tmpfs /run && mount -t sysfs sysfs /sys";
/// Everything that the bench's setting could have moved, and more, as others than latput see it.
const LOOK: &str = "ip -o link show eth0; tc qdisc show dev eth0; ethtool -k eth0\n\
    cd /sys/class/net/eth0 && grep '' threaded gro_flush_timeout napi_defer_hard_irqs tx_queue_len mtu";
/// The values of before.
const RESET: &str = "ip link set eth0 txqueuelen 1000; ethtool -K eth0 gro off";
/// How a host answers that says it is another: for an interface that nobody asked for.
const LIE: &str = r#"{"schema":1,"version":"VERSION","boot_id":"b","network_namespace":1,"others":[],"interface":{"name":"eth9","index":2,"driver":"veth","is_up":true,"has_carrier":true,"faults":0,"knobs":[],"waiting":null}}"#;
/// The first line of a host that has latput.
const THERE: &str = "latput-there host Linux x86_64 latput VERSION";

/// One of so many well hosts is reached by `netns://`, with the state folder of this machine.
const NAMESPACES_EVERY: usize = 8;

/// Kind of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKind {
    /// It refuses at once.
    Refusing,
    /// It says nothing.
    Silent,
    /// It answers after a while.
    Slow,
    /// Its `eth0` is of another driver.
    OtherDriver,
    /// It answers for another interface.
    OtherAnswer,
    /// The way to it leads to the last of the well ones.
    OtherHost,
    /// As it is to be.
    Well,
}

impl HostKind {
    /// State that `latput fleet verify` must give it before the wanted values are there.
    pub const fn expected_state(self) -> &'static str {
        match self {
            Self::Refusing => "unreachable",
            Self::Silent => "timed-out",
            Self::OtherDriver | Self::OtherHost => "other",
            Self::OtherAnswer => "failed",
            Self::Slow | Self::Well => "drifted",
        }
    }

    /// Outcome that `latput fleet apply` must give it; `changed` is that of a host that it changes.
    pub fn expected_outcome(self, changed: &'static str) -> &'static str {
        match self.expected_state() {
            "drifted" => changed,
            "other" => "left-out",
            silent => silent,
        }
    }

    /// Whether `latput fleet apply` is to change it.
    pub const fn is_changed(self) -> bool {
        matches!(self, Self::Slow | Self::Well)
    }
}

/// The hosts, by name: `h1` and so on.
#[derive(Debug)]
pub struct Rack {
    namespace: Namespace,
    /// Kind of each host, in the order of the inventory: the dead, the slow, the well, those that lie.
    pub hosts: Vec<(String, HostKind)>,
    /// Where the inventories are.
    pub folder: PathBuf,
    latput: PathBuf,
}

impl Rack {
    /// Makes the hosts and the inventories `all.toml` and, without the dead and the slow, `well.toml`.
    pub fn up(latput: &Path, folder: &Path, options: &Options) -> Result<Self> {
        remove_folder(folder)?;
        for inner in ["bin", "state", "done"] {
            make_folder(&folder.join(inner))?;
        }
        std::os::unix::fs::symlink(latput, folder.join("bin/latput"))?;
        let (folder, latput) = (folder.to_owned(), latput.to_owned());
        let namespace = Namespace::new(MOUNTS)?;
        let rack = Self { namespace, hosts: list_hosts(options), folder, latput };
        rack.create_namespaces()?;
        rack.write_inventories(options.slow_answer_s)?;
        Ok(rack)
    }

    fn create_namespaces(&self) -> Result<()> {
        let lines = self.hosts.iter().map(|(host, kind)| {
            let link = if *kind == HostKind::OtherDriver {
                format!("link add eth0 netns {host} type bridge")
            } else {
                format!(
                    "link add p-{host} type veth peer name eth0 netns {host}\nlink set p-{host} up"
                )
            };
            format!("netns add {host}\n{link}\n")
        });
        let batch: String = lines.collect();
        let mut ip = self.namespace_command("ip");
        let mut ip = ip.args(["-batch", "-"]).stdin(Stdio::piped()).spawn()?;
        ip.stdin.take().context("no input")?.write_all(batch.as_bytes())?;
        ensure!(ip.wait()?.success(), "the namespaces cannot be made");
        self.in_all(&format!("ip link set eth0 up; {RESET}"))?;
        Ok(())
    }

    /// A program beside the hosts, with our state folder.
    pub fn namespace_command(&self, program: &str) -> Command {
        let mut command = self.namespace.command(program);
        let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", self.folder.join("bin").display());
        command.env("LATPUT_STATE_DIR", self.folder.join("state")).env("PATH", path);
        command
    }

    /// A file of the bench, for a command line.
    pub fn file_path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Runs a shell script on every host; what it printed, by host.
    fn in_all(&self, script: &str) -> Result<BTreeMap<String, String>> {
        let mut ip = self.namespace_command("ip");
        let said = capture_output(ip.args(["-all", "netns", "exec", "sh", "-c", script]))?;
        let parts = said.split("\nnetns: ").skip(1).filter_map(|part| part.split_once('\n'));
        let said: BTreeMap<String, String> =
            parts.map(|(host, said)| (host.to_owned(), said.trim().to_owned())).collect();
        ensure!(said.len() == self.hosts.len(), "ip told of {} hosts only", said.len());
        Ok(said)
    }

    /// Every host's interface as foreign tools show it.
    pub fn read_interfaces(&self) -> Result<BTreeMap<String, String>> {
        self.in_all(LOOK)
    }

    /// The hosts whose interface is another than before, by foreign tools.
    pub fn find_changed_hosts(&self, before: &BTreeMap<String, String>) -> Result<Vec<String>> {
        let now = self.read_interfaces()?;
        let differ = before.iter().filter(|(host, said)| now.get(*host) != Some(said));
        Ok(differ.map(|(host, _)| host.clone()).collect())
    }

    /// Puts the values of before on all hosts, by foreign tools.
    pub fn reset(&self) -> Result<()> {
        self.in_all(RESET).map(drop)
    }

    /// Sets a value on one host, by a foreign tool.
    pub fn set_length(&self, host: &str, length: &str) -> Result<()> {
        let words = ["-n", host, "link", "set", "eth0", "txqueuelen", length];
        capture_output(self.namespace_command("ip").args(words)).map(drop)
    }

    /// The names of the hosts that are meant.
    pub fn host_names(&self, is_meant: impl Fn(HostKind) -> bool) -> BTreeSet<String> {
        let meant = self.hosts.iter().filter(|(_, kind)| is_meant(*kind));
        meant.map(|(host, _)| host.clone()).collect()
    }

    /// The last of the well hosts: in the last stage.
    pub fn last_well(&self) -> Result<&str> {
        let mut well = self.hosts.iter().filter(|(_, kind)| *kind == HostKind::Well);
        well.next_back().map(|(host, _)| host.as_str()).context("no host is well")
    }

    /// How many hosts have a change that is not confirmed.
    pub fn count_checkpoints(&self) -> usize {
        let state = self.folder.join("state");
        let own = self.hosts.iter().map(|(host, _)| state.join(host).join("checkpoints"));
        let folders = std::iter::once(state.join("checkpoints")).chain(own);
        let files = folders.flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten());
        files
            .flatten()
            .filter(|file| file.path().extension().is_some_and(|it| it == "json"))
            .count()
    }

    /// Waits until none of our processes is left.
    pub fn settle(&self, within: Duration) -> Result<()> {
        let deadline = Instant::now() + within;
        while !processes_of(&self.folder.join("state")).is_empty() {
            if Instant::now() > deadline {
                bail!("processes have not ended in {} s", within.as_secs());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    /// Forgets when hosts were done.
    pub fn forget_times(&self) -> Result<()> {
        make_empty_folder(&self.folder.join("done"))
    }

    /// When the last of the well hosts that keep their times had answered, seconds since the machine began.
    pub fn last_done_s(&self) -> Result<f64> {
        let mut last = 0.0_f64;
        for entry in std::fs::read_dir(self.folder.join("done"))? {
            for line in std::fs::read_to_string(entry?.path())?.lines() {
                last = last.max(line.trim().parse().context("no time")?);
            }
        }
        ensure!(last > 0.0, "no host has answered");
        Ok(last)
    }

    fn write_inventories(&self, slow_s: u32) -> Result<()> {
        let version = capture_output(Command::new(&self.latput).arg("-V"))?;
        let version = version.split_whitespace().last().unwrap_or_default();
        let (there, lie) = (THERE.replace("VERSION", version), LIE.replace("VERSION", version));
        let end = "code=$?; cut -d ' ' -f 1 /proc/uptime >>done/$host; exit $code";
        self.write_script("refusing", "echo 'connection refused' >&2; exit 255")?;
        self.write_script("silent", "exec sleep 1000")?;
        // Each host has a state folder of its own, as on a machine of its own.
        let own = "LATPUT_STATE_DIR=$LATPUT_STATE_DIR/$1; export LATPUT_STATE_DIR";
        self.write_script("slow", &format!("{own}; sleep {slow_s}; exec ip netns exec \"$@\""))?;
        self.write_script("lying", &format!("echo {there}; cat >/dev/null; echo '{lie}'"))?;
        self.write_script("way", &format!("{own}; host=$1; ip netns exec \"$@\"; {end}"))?;
        let last = self.last_well()?;
        let word = |(at, (host, kind)): (usize, &(String, HostKind))| {
            let path = self.folder.display();
            let target = match kind {
                HostKind::Refusing => format!("exec:{path}/refusing {host}"),
                HostKind::Silent => format!("exec:{path}/silent {host}"),
                HostKind::Slow => format!("exec:{path}/slow {host}"),
                HostKind::OtherAnswer => format!("exec:{path}/lying {host}"),
                HostKind::OtherHost => format!("exec:ip netns exec {last}"),
                HostKind::Well if at % NAMESPACES_EVERY == 0 => format!("netns://{host}"),
                HostKind::Well => format!("exec:{path}/way {host}"),
                HostKind::OtherDriver => format!("netns://{host}"),
            };
            format!("    {{ name = \"{host}\", target = \"{target}\" }},\n")
        };
        for name in ["all", "well"] {
            let is_meant = |kind: HostKind| {
                name == "all"
                    || !matches!(kind, HostKind::Refusing | HostKind::Silent | HostKind::Slow)
            };
            let hosts = self.hosts.iter().enumerate().filter(|(_, (_, kind))| is_meant(*kind));
            let text = format!(
                "schema = 1\n[group.rack]\ninterface = \"eth0\"\n\
                 settings = {{ txqueuelen = {WANTED_LENGTH}, gro = \"on\" }}\nhosts = [\n{}]\n",
                hosts.map(word).collect::<String>()
            );
            std::fs::write(self.folder.join(format!("{name}.toml")), text)?;
        }
        Ok(())
    }

    /// A program in the bench's folder.
    pub fn write_script(&self, name: &str, body: &str) -> Result<()> {
        let path = self.folder.join(name);
        std::fs::write(&path, format!("#!/bin/sh\ncd {}\n{body}\n", self.folder.display()))?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
        Ok(())
    }
}

impl Drop for Rack {
    fn drop(&mut self) {
        processes_of(&self.folder.join("state")).into_iter().for_each(kill_process);
    }
}

fn list_hosts(options: &Options) -> Vec<(String, HostKind)> {
    let dead =
        (0..options.dead).map(|at| if at % 2 == 0 { HostKind::Silent } else { HostKind::Refusing });
    let slow = (0..options.slow).map(|_| HostKind::Slow);
    let lies = [HostKind::OtherHost, HostKind::OtherDriver, HostKind::OtherAnswer];
    let lying = (0..options.lying).map(|at| lies[at % lies.len()]);
    let well = options.hosts.saturating_sub(options.dead + options.slow + options.lying);
    let kinds = dead.chain(slow).chain((0..well).map(|_| HostKind::Well)).chain(lying);
    kinds.enumerate().map(|(at, kind)| (format!("h{}", at + 1), kind)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rack_has_as_many_as_asked() {
        let hosts = list_hosts(&Options::sample());
        let count = |kinds: &[HostKind]| hosts.iter().filter(|(_, it)| kinds.contains(it)).count();
        assert_eq!(hosts.len(), 24);
        assert_eq!(count(&[HostKind::Silent, HostKind::Refusing]), 3);
        assert_eq!(count(&[HostKind::Slow]), 2);
        assert_eq!(count(&[HostKind::Well]), 18);
        assert_eq!(hosts[23], ("h24".to_owned(), HostKind::OtherHost));
    }
}
