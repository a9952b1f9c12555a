//! For tests: two namespaces with an sshd each and without latput, reached from a third.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use latput_testkit::isolate;

use crate::{CommandOutput, Place, run_program, wait_until};

pub(crate) const PLAN: &str = r#"
schema = 1
name = "short"
[factors]
txqueuelen = [500, 501]
[[workload]]
kind = "tcp_rr"
[method]
design = "blocks"
repetitions = { min = 2, max = 2 }
warmup = "50ms"
duration = "200ms"
"#;
pub(crate) const SERVER: &str = "ssh://root@198.18.9.1";
pub(crate) const CLIENT: &str = "ssh://root@198.18.9.2";

/// Two hosts on a bridge, an sshd in each, and what the controller needs to reach them.
pub(crate) struct SshHosts {
    pub(crate) place: Place,
    sshds: Vec<Child>,
    /// Where its commands find programs.
    pub(crate) path: String,
}

impl SshHosts {
    /// `None` where there is no static latput to bring, which is said.
    pub(crate) fn set_up() -> Option<Self> {
        if needs_static() { None } else { Some(Self::with_sshds()) }
    }

    /// The same where no latput needs to be brought.
    pub(crate) fn with_sshds() -> Self {
        isolate();
        let place = Place::new();
        place.write("plan.toml", PLAN);
        std::fs::create_dir("/run/sshd").unwrap();
        // The brought files lie in a folder of this test's own.
        run_program(&["mount", "-t", "tmpfs", "none", "/dev/shm"]);
        run_ip(&["link", "add", "hub0", "type", "bridge"]);
        run_ip(&["address", "add", "198.18.9.254/24", "dev", "hub0"]);
        run_ip(&["link", "set", "hub0", "up"]);
        for (host, number) in [("server", 1), ("client", 2)] {
            run_ip(&["netns", "add", host]);
            join_bridge(host, number);
            run_ip(&["-n", host, "link", "set", "lo", "up"]);
        }
        make_keys(&place, &["198.18.9.1", "198.18.9.2"]);
        let folder = place.path("bin");
        std::fs::create_dir(&folder).unwrap();
        let config = place.path("ssh_config");
        write_script(
            &folder.join("ssh"),
            &format!("exec /usr/bin/ssh -F {} \"$@\"", config.display()),
        );
        let path = format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", folder.display());
        Self { place, sshds: Vec::new(), path }.with_sshds_again()
    }

    pub(crate) fn latput_command(&self, args: &[&str]) -> Command {
        let mut command = self.place.latput_command(args);
        command.env("PATH", &self.path);
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> CommandOutput {
        CommandOutput::from(self.latput_command(args).output().unwrap())
    }

    /// Runs a command on the server, by ssh.
    pub(crate) fn run_ssh(&self, words: &[&str]) -> CommandOutput {
        let mut command = Command::new("ssh");
        command.arg("root@198.18.9.1").args(words).env("PATH", &self.path);
        CommandOutput::from(command.stdin(Stdio::null()).output().unwrap())
    }

    pub(crate) fn start(&self, args: &[&str]) -> Child {
        let said = std::fs::File::create(self.place.path("stderr")).unwrap();
        self.latput_command(args).stdout(Stdio::null()).stderr(said).spawn().unwrap()
    }

    /// Output of the process that was started last.
    pub(crate) fn read_stderr(&self) -> String {
        std::fs::read_to_string(self.place.path("stderr")).unwrap()
    }

    /// The same with the configuration of sshd as it is now.
    pub(crate) fn with_sshds_again(mut self) -> Self {
        self.end_sshds();
        self.sshds = ["server", "client"].map(|host| start_sshd(&self.place, host, "")).into();
        Self::wait_for_sshds();
        self
    }

    /// The same with a boot id and a `/run` of its own for each host, and a latput that is there already.
    pub(crate) fn with_own_boots(mut self) -> Self {
        let folder = self.place.path("installed");
        std::fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink(crate::latput_path(), folder.join("latput")).unwrap();
        let config = std::fs::read_to_string(self.place.path("sshd_config")).unwrap();
        let path = format!("SetEnv PATH={}:/usr/sbin:/usr/bin:/sbin:/bin\n", folder.display());
        self.place.write("sshd_config", &(config + &path));
        self.end_sshds();
        self.sshds = ["server", "client"].map(|host| self.boot_host(host)).into();
        Self::wait_for_sshds();
        self
    }

    /// The server's link is gone, then all that runs there; then it is up again with an interface and a boot id that
    /// are new.
    pub(crate) fn reboot_server(&mut self) {
        run_ip(&["-n", "server", "link", "set", "eth0", "down"]);
        let pids = Command::new("ip").args(["netns", "pids", "server"]).output().unwrap();
        for pid in String::from_utf8(pids.stdout).unwrap().split_whitespace() {
            crate::kill_pid(pid.parse().unwrap());
        }
        let _ended = self.sshds[0].wait();
        run_ip(&["-n", "server", "link", "del", "eth0"]);
        join_bridge("server", 1);
        self.sshds[0] = self.boot_host("server");
        Self::wait_for_sshds();
    }

    /// An sshd in a host that has just been switched on.
    fn boot_host(&self, host: &str) -> Child {
        static BOOTS: AtomicU32 = AtomicU32::new(0);
        let number = BOOTS.fetch_add(1, Ordering::Relaxed);
        let id = format!("00000000-0000-4000-8000-{number:012}\n");
        let file = format!("boot-{host}-{number}");
        self.place.write(&file, &id);
        let file = self.place.path(&file).display().to_string();
        let mounts = format!(
            "mount -t tmpfs none /run && mkdir /run/sshd && mount --bind {file} /proc/sys/kernel/random/boot_id && "
        );
        start_sshd(&self.place, host, &mounts)
    }

    fn wait_for_sshds() {
        wait_until("both sshd", || {
            ["198.18.9.1:22", "198.18.9.2:22"]
                .iter()
                .all(|at| std::net::TcpStream::connect(at).is_ok())
        });
    }

    fn end_sshds(&mut self) {
        for sshd in &mut self.sshds {
            let _ = sshd.kill();
            let _ = sshd.wait();
        }
    }
}

/// Files that were brought to the hosts of this test and are still there.
pub(crate) fn leftover_files() -> Vec<PathBuf> {
    let folder = std::fs::read_dir("/proc/thread-self/root/dev/shm").unwrap();
    folder.map(|entry| entry.unwrap().path()).collect()
}

pub(crate) fn queue_lengths() -> Vec<String> {
    let of = |host: &&str| {
        let shown = Command::new("ip").args(["-n", host, "link", "show", "eth0"]).output().unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        shown.split("qlen ").nth(1).unwrap().split_whitespace().next().unwrap().to_owned()
    };
    ["server", "client"].iter().map(of).collect()
}

impl Drop for SshHosts {
    fn drop(&mut self) {
        self.end_sshds();
    }
}

/// Joins a host to the bridge by a new `eth0`.
fn join_bridge(host: &str, number: u8) {
    run_ip(&["link", "add", host, "type", "veth", "peer", "eth0", "netns", host]);
    run_ip(&["link", "set", host, "master", "hub0", "up"]);
    // As a card keeps it over a reboot.
    let card = format!("02:00:00:00:09:{number:02}");
    run_ip(&["-n", host, "link", "set", "eth0", "address", &card]);
    run_ip(&["-n", host, "address", "add", &format!("198.18.9.{number}/24"), "dev", "eth0"]);
    run_ip(&["-n", host, "link", "set", "eth0", "up"]);
}

/// An sshd in a namespace, after the shell's `before`, with the configuration of [`make_keys`].
pub(crate) fn start_sshd(place: &Place, namespace: &str, before: &str) -> Child {
    let config = place.path("sshd_config").display().to_string();
    let command = format!("{before}exec /usr/sbin/sshd -D -e -f {config}");
    Command::new("ip")
        .args(["netns", "exec", namespace, "sh", "-c", &command])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Keys that live as long as the test, and the configurations of ssh and sshd that name them, for hosts at `addresses`.
pub(crate) fn make_keys(place: &Place, addresses: &[&str]) {
    let path = |name: &str| place.path(name).display().to_string();
    for key in ["host_key", "user_key"] {
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f", &path(key)])
            .status();
        assert!(made.unwrap().success());
    }
    std::fs::copy(path("user_key.pub"), path("authorized_keys")).unwrap();
    let key = std::fs::read_to_string(path("host_key.pub")).unwrap();
    let known: Vec<String> = addresses.iter().map(|address| format!("{address} {key}")).collect();
    place.write("known_hosts", &known.concat());
    place.write(
        "sshd_config",
        &format!(
            "HostKey {}\nAuthorizedKeysFile {}\nPidFile none\nPermitRootLogin prohibit-password\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nUsePAM no\nStrictModes no\n",
            path("host_key"),
            path("authorized_keys")
        ),
    );
    place.write(
        "ssh_config",
        &format!(
            "Host *\nIdentityFile {}\nIdentitiesOnly yes\nUserKnownHostsFile {}\n\
             StrictHostKeyChecking yes\n",
            path("user_key"),
            path("known_hosts")
        ),
    );
}

/// Whether the calling test must end because there is no static latput; says so.
fn needs_static() -> bool {
    let is_missing = latput_vm::beside_program("latput").is_none();
    if is_missing {
        crate::print_note("skipped: needs a static latput (`cargo xtask vm`)");
    }
    is_missing
}

/// An executable script.
pub(crate) fn write_script(path: &Path, text: &str) {
    std::fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(path, mode).unwrap();
}

#[track_caller]
pub(crate) fn run_ip(args: &[&str]) {
    run_program(&[&["ip"], args].concat());
}
