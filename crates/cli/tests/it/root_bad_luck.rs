//! Bad luck between two real hosts: no ssh, a password, a link that goes down, a reboot, another user.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use latput_testkit::needs;

use crate::two_hosts::{
    CLIENT, PLAN, SERVER, SshHosts, leftover_files, queue_lengths, run_ip, write_script,
};
use crate::{CommandOutput, interrupt_pid, print_note, wait_until};

/// The saved testbed of the two, with a lease that ends soon.
const LEASE: &str = "lease = \"1s\"\n";

#[needs("root", "/usr/sbin/sshd", "ip", "script", "timeout")]
#[test]
fn ssh_failure_names_remedy_without_prompt() {
    let Some(hosts) = SshHosts::set_up() else { return };
    let mut without = hosts.latput_command(&["hosts", SERVER, CLIENT]);
    without.env("PATH", hosts.place.path("nothing"));
    CommandOutput::from(without.output().unwrap()).expect(1, &["install OpenSSH's client here"]);
    hosts.place.write("authorized_keys", "");
    let config = std::fs::read_to_string(hosts.place.path("sshd_config")).unwrap();
    let config = config
        .replace("PasswordAuthentication no", "PasswordAuthentication yes")
        .replace("prohibit-password", "yes");
    hosts.place.write("sshd_config", &config);
    let hosts = hosts.with_sshds_again();
    // A terminal is there to be asked on. ssh itself asks on it:
    let on_terminal = |words: &str| {
        let mut command = Command::new("timeout");
        command.args(["20", "script", "-qec", words, "/dev/null"]).env("PATH", &hosts.path);
        let ran = command.stdin(Stdio::null()).current_dir(hosts.place.path("")).output();
        String::from_utf8_lossy(&ran.unwrap().stdout).into_owned()
    };
    assert!(on_terminal("ssh root@198.18.9.1 true").contains("password:"));
    let said = on_terminal(&format!("{} hosts {SERVER} {CLIENT}", crate::latput_path()));
    assert!(said.contains("ssh-copy-id root@198.18.9.1"), "{said}");
    assert!(!said.contains("password:"), "{said}");
}

#[needs("root", "/usr/sbin/sshd", "ip")]
#[test]
fn link_down_in_run_restores_host() {
    let Some(hosts) = SshHosts::set_up() else { return };
    let before = queue_lengths();
    let mut child = start_long(&hosts);
    wait_until("a trial and a change", || {
        hosts.place.count_trials("kept.db") > 0 && queue_lengths() != before
    });
    run_ip(&["-n", "server", "link", "set", "eth0", "down"]);
    wait_until("both hosts to put themselves back", || queue_lengths() == before);
    run_ip(&["-n", "server", "link", "set", "eth0", "up"]);
    let code = child.wait().unwrap().code();
    let said = hosts.read_stderr();
    assert_eq!(code, Some(6), "{said}");
    assert!(said.contains("error: host `198.18.9."), "{said}");
    assert_eq!(leftover_files(), Vec::<PathBuf>::new());
}

#[needs("root", "/usr/sbin/sshd", "ip")]
#[test]
#[ignore = "long: `cargo xtask ci --full` runs it"]
fn link_down_before_confirm_reverts_apply() {
    let Some(hosts) = SshHosts::set_up() else { return };
    let before = queue_lengths();
    hosts.run(&["run", "plan.toml", "--on", &both_hosts(), "-o", "r.db"]).expect(0, &["6 trials"]);
    let apply = ["apply", "r.db", "--setting", "501"];
    let dry = hosts.run(&[&apply[..], &["--dry-run"]].concat());
    dry.expect(0, &["198.18.9.1: would change eth0 txqueuelen", "198.18.9.2: would"]);
    assert_eq!(queue_lengths(), before);
    // On a busy machine the first host goes back before the second is changed.
    let times = ["3s", "12s", "48s"].into_iter();
    let in_time = times.filter(|time| {
        let ran = hosts.run(&[&apply[..], &["--confirm-within", time]].concat());
        ran.expect(0, &[&format!("goes back in {time} unless `latput apply r.db --confirm`")]);
        let is_in_time = queue_lengths() == ["501", "501"];
        wait_until("a late one to go back", || is_in_time || queue_lengths() == before);
        is_in_time
    });
    assert_eq!(in_time.take(1).count(), 1);
    run_ip(&["-n", "server", "link", "set", "eth0", "down"]);
    wait_until("both hosts to go back", || queue_lengths() == before);
    run_ip(&["-n", "server", "link", "set", "eth0", "up"]);
    hosts.run(&[&apply[..], &["--confirm"]].concat()).expect(4, &["too late"]);
    // In time it stays, and the lines that it prints take it back on hosts that have no latput.
    hosts.run(&[&apply[..], &["--confirm-within", "10min"]].concat()).expect(0, &[]);
    let kept = hosts.run(&[&apply[..], &["--confirm"]].concat());
    kept.expect(0, &["confirmed: eth0 of 198.18.9.2"]);
    assert_eq!(queue_lengths(), ["501", "501"]);
    let undo = kept.out.lines().filter_map(|line| line.strip_prefix("undo:  latput "));
    for undo in undo {
        let args: Vec<&str> = undo.split(' ').collect();
        hosts.run(&args).expect(0, &["undid eth0 txqueuelen"]);
    }
    assert_eq!(queue_lengths(), before);
    let keep = kept.out.lines().find_map(|line| line.strip_prefix("keep:  latput ")).unwrap();
    assert_eq!(keep, format!("lab exec {SERVER} -- latput keep eth0 txqueuelen=501"));
    let args: Vec<&str> = keep.split(' ').chain(["--dry-run"]).collect();
    // This test's hosts are namespaces of one machine.
    hosts.run(&args).expect(2, &["network namespace without files of its own"]);
    assert_eq!(leftover_files(), Vec::<PathBuf>::new());
}

#[needs("root", "/usr/sbin/sshd", "ip")]
#[test]
fn reboot_in_run_is_told_and_recovered() {
    let Some(hosts) = SshHosts::set_up() else { return };
    let mut hosts = hosts.with_own_boots();
    let before = queue_lengths();
    let mut child = start_long(&hosts);
    wait_until("trials", || hosts.place.count_trials("kept.db") > 1);
    hosts.reboot_server();
    let code = child.wait().unwrap().code();
    let said = hosts.read_stderr();
    assert_eq!(code, Some(6), "{said}");
    assert!(said.contains("198.18.9.1"), "{said}");
    assert_eq!(queue_lengths(), before);
    // The same command does not go on with figures of another boot.
    let mut again = hosts.start(&["run", "long.toml", "--on", "saved.toml", "-o", "kept.db"]);
    let trials = hosts.place.count_trials("kept.db");
    wait_until("a trial", || {
        assert_eq!(again.try_wait().unwrap(), None, "{}", hosts.read_stderr());
        hosts.place.count_trials("kept.db") > trials
    });
    interrupt_pid(again.id());
    assert_eq!(again.wait().unwrap().code(), Some(6));
    let said = hosts.read_stderr();
    assert!(!said.contains("resuming"), "{said}");
    let listed = hosts.run(&["report", "kept.db", "--list"]);
    assert_eq!(listed.expect(0, &[]).out.lines().count(), 2, "two runs: {listed:#?}");
    assert_eq!(queue_lengths(), before);
}

#[needs("root", "/usr/sbin/sshd", "ip")]
#[test]
fn second_user_is_refused_without_disturbance() {
    let Some(hosts) = SshHosts::set_up() else { return };
    let before = queue_lengths();
    let mut first = start_long(&hosts);
    wait_until("trials", || hosts.place.count_trials("kept.db") > 0);
    let second = hosts.run(&["run", "plan.toml", "--on", &both_hosts(), "-o", "other.db"]);
    second.expect(1, &["another latput (pid"]);
    assert_eq!(hosts.place.count_trials("other.db"), 0);
    let trials = hosts.place.count_trials("kept.db");
    wait_until("the first to go on", || hosts.place.count_trials("kept.db") > trials);
    interrupt_pid(first.id());
    assert_eq!(first.wait().unwrap().code(), Some(6), "{}", hosts.read_stderr());
    assert_eq!(queue_lengths(), before);
    assert_eq!(leftover_files(), Vec::<PathBuf>::new());
}

#[needs("root", "/usr/sbin/sshd", "ip")]
#[test]
fn file_of_other_interface_names_both() {
    let Some(hosts) = SshHosts::set_up() else { return };
    let latput = crate::latput_path();
    let there = ["lab", "exec", "netns://server", "--", latput];
    let made = ["bridge", "bond", "vlan"].into_iter().filter(|kind| {
        if !add_upper(kind) {
            print_note(&format!("this kernel makes no {kind}"));
            return false;
        }
        let lies = format!(
            "up0 is a {kind} on eth0: queues, rings, coalescing and interrupts belong to eth0"
        );
        let ran = hosts.run(&["hosts", "netns://server", "netns://client"]);
        ran.expect(0, &["server: up0 198.18.", &format!("server: {lies}")]);
        hosts.run(&[&there[..], &["show", "up0"]].concat()).expect(0, &[&lies]);
        let set = hosts.run(&[&there[..], &["set", "up0", "rx-usecs=50"]].concat());
        set.expect(1, &["rx-usecs cannot be set here", &lies]);
        remove_upper(kind);
        true
    });
    assert!(made.count() > 0, "a bridge is everywhere");
    // No card here has virtual functions: what sysfs says of one lies over the interface's folder.
    let function = hosts.place.path("function");
    write_script(
        &function,
        "exec ip netns exec server sh -c 'mount -t tmpfs none /sys/class/net/eth0 && \
         mkdir -p /sys/class/net/eth0/device/physfn/net/pf0 && exec \"$@\"' sh \"$@\"",
    );
    let ran = hosts.run(&["hosts", &format!("exec:{}", function.display()), "netns://client"]);
    ran.expect(0, &["eth0 is a virtual function", "belong to whoever has the physical function"]);
}

/// Puts `up0` on the server's `eth0`, with an address that the client reaches; false where the kernel has none.
fn add_upper(kind: &str) -> bool {
    let add = |host: &str| {
        let lower: &[&str] = if kind == "vlan" { &["link", "eth0"] } else { &[] };
        let id: &[&str] = if kind == "vlan" { &["id", "7"] } else { &[] };
        let words = [&["-n", host, "link", "add"], lower, &["name", "up0", "type", kind], id];
        Command::new("ip").args(words.concat()).output().unwrap().status.success()
    };
    if !add("server") {
        return false;
    }
    run_ip(&["-n", "server", "address", "flush", "dev", "eth0"]);
    if kind == "vlan" {
        assert!(add("client"));
        run_ip(&["-n", "client", "address", "add", "198.18.11.2/24", "dev", "up0"]);
        run_ip(&["-n", "client", "link", "set", "up0", "up"]);
        run_ip(&["-n", "server", "address", "add", "198.18.11.1/24", "dev", "up0"]);
    } else {
        run_ip(&["-n", "server", "link", "set", "eth0", "down"]);
        run_ip(&["-n", "server", "link", "set", "eth0", "master", "up0"]);
        run_ip(&["-n", "server", "link", "set", "eth0", "up"]);
        run_ip(&["-n", "server", "address", "add", "198.18.9.1/24", "dev", "up0"]);
    }
    run_ip(&["-n", "server", "link", "set", "up0", "up"]);
    true
}

fn remove_upper(kind: &str) {
    run_ip(&["-n", "server", "link", "del", "up0"]);
    if kind == "vlan" {
        run_ip(&["-n", "client", "link", "del", "up0"]);
    }
    run_ip(&["-n", "server", "address", "replace", "198.18.9.1/24", "dev", "eth0"]);
    run_ip(&["-n", "server", "link", "set", "eth0", "up"]);
}

fn both_hosts() -> String {
    format!("{SERVER},{CLIENT}")
}

/// Starts a run of the two that would take minutes, on hosts whose agents soon miss their controller. The
/// results go to `kept.db`, what it says to where [`SshHosts::read_stderr`] reads it.
fn start_long(hosts: &SshHosts) -> std::process::Child {
    hosts.run(&["hosts", SERVER, CLIENT, "--save", "saved.toml"]).expect(0, &[]);
    let saved = std::fs::read_to_string(hosts.place.path("saved.toml")).unwrap();
    hosts
        .place
        .write("saved.toml", &saved.replace("schema = 1\n", &format!("schema = 1\n{LEASE}")));
    hosts.place.write("long.toml", &PLAN.replace("min = 2, max = 2", "min = 200, max = 200"));
    hosts.start(&["run", "long.toml", "--on", "saved.toml", "-o", "kept.db"])
}
