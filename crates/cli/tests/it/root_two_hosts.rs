//! Two hosts in one line: two namespaces with an sshd each and without latput, reached from a third.
//!
//! The static latput that is brought is the one of `cargo xtask vm`.

use std::path::PathBuf;
use std::process::Stdio;

use latput_testkit::{isolate, needs};

use crate::two_hosts::{
    CLIENT, PLAN, SERVER, SshHosts, leftover_files, queue_lengths, run_ip, write_script,
};
use crate::{Place, interrupt_pid, kill_pid, wait_until};

const MEASURE: [&str; 6] = ["--workload", "tcp_rr", "--duration", "50ms", "--repetitions", "1..1"];

#[needs("root", "/usr/sbin/sshd", "ip")]
#[test]
fn one_line_tunes_hosts_without_latput() {
    let Some(hosts) = SshHosts::set_up() else { return };
    let ran = hosts.run(&["tune", "plan.toml", SERVER, CLIENT, "--save", "saved.toml"]);
    let brought = "198.18.9.2: it has no latput 0.1.0; this run copies one";
    ran.expect(0, &["eth0 198.18.9.1 (veth", "leaves by it", brought, "6 trials"]);
    assert_eq!(leftover_files(), Vec::<PathBuf>::new());
    assert_eq!(hosts.place.count_trials("latput-results.db"), 6);
    let again = hosts.run(&["run", "plan.toml", "--on", "saved.toml", "-o", "again.db"]);
    again.expect(0, &["6 trials"]);
    let checked = hosts.run(&["hosts", "saved.toml", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&checked.expect(0, &[]).out).unwrap();
    for host in document["hosts"].as_array().unwrap() {
        assert_eq!((&host["interface"], &host["mtu"]), (&"eth0".into(), &1500.into()), "{host}");
        assert_eq!((&host["is_brought"], &host["driver"]), (&true.into(), &"veth".into()));
        assert!(host["settable"].as_array().unwrap().contains(&"txqueuelen".into()), "{host}");
    }
    assert_eq!(leftover_files(), Vec::<PathBuf>::new());
}

#[needs("root", "/usr/sbin/sshd", "ip")]
#[test]
#[ignore = "long: `cargo xtask ci --full` runs it"]
fn interrupted_run_leaves_no_file_or_change() {
    let Some(hosts) = SshHosts::set_up() else { return };
    let long = PLAN.replace("min = 2, max = 2", "min = 200, max = 200");
    hosts.place.write("plan.toml", &long);
    let before = queue_lengths();
    for (end, code) in [(interrupt_pid as fn(u32), Some(6)), (kill_pid, None)] {
        let mut child = hosts.start(&["tune", "plan.toml", SERVER, CLIENT, "-o", "kept.db"]);
        let trials = hosts.place.count_trials("kept.db");
        wait_until("a trial", || hosts.place.count_trials("kept.db") > trials);
        end(child.id());
        assert_eq!(child.wait().unwrap().code(), code);
        wait_until("the hosts to be as they were", || queue_lengths() == before);
        wait_until("nothing to be left", || leftover_files().is_empty());
    }
}

#[needs("root", "/usr/sbin/sshd", "ip")]
#[test]
fn controller_killed_while_copying_leaves_nothing() {
    let Some(hosts) = SshHosts::set_up() else { return };
    for _ in 0..3 {
        let mut child = hosts.start(&["hosts", SERVER, CLIENT]);
        wait_until("a folder", || !leftover_files().is_empty());
        kill_pid(child.id());
        child.wait().unwrap();
        wait_until("the folders to go", || leftover_files().is_empty());
    }
}

#[needs("root", "/usr/sbin/sshd", "ip")]
#[test]
#[ignore = "long: `cargo xtask ci --full` runs it"]
fn hosts_may_be_namespaces_or_commands() {
    let Some(hosts) = SshHosts::set_up() else { return };
    let commands = "exec:ip netns exec server,exec:ip netns exec client";
    let peer = [&["hub0", "--peer", CLIENT][..], &MEASURE].concat();
    for (args, words) in [
        ([&["netns://server,netns://client"][..], &MEASURE].concat(), &["server: eth0"][..]),
        ([&[commands][..], &MEASURE].concat(), &["sut: eth0", "this run copies one"]),
        (peer, &["this-host: hub0 198.18.9.254", "198.18.9.2: eth0"]),
        ([&[SERVER][..], &MEASURE].concat(), &["198.18.9.1: eth0", "this-host: hub0"]),
    ] {
        let args = [&["measure"][..], &args].concat();
        hosts.run(&args).expect(0, words);
    }
    // A latput of this version that is there is used.
    let folder = hosts.place.path("installed");
    std::fs::create_dir(&folder).unwrap();
    std::os::unix::fs::symlink(crate::latput_path(), folder.join("latput")).unwrap();
    let has = format!("exec:ip netns exec server env PATH={}:/usr/bin:/bin", folder.display());
    let ran = hosts.run(&["hosts", &has, "netns://client"]);
    assert!(!ran.expect(0, &["sut: eth0"]).err.contains("brought"), "{ran:#?}");
    assert_eq!(leftover_files(), Vec::<PathBuf>::new());
}

#[needs("root", "/usr/sbin/sshd", "ip")]
#[test]
fn unreachable_host_is_told_with_remedy() {
    let Some(hosts) = SshHosts::set_up() else { return };
    let fake = hosts.place.path("fake");
    std::fs::create_dir(&fake).unwrap();
    write_script(
        &fake.join("uname"),
        "[ \"$1\" = -m ] && echo aarch64 || exec /usr/bin/uname \"$@\"",
    );
    let other_cpu =
        format!("exec:ip netns exec server env PATH={}:/usr/bin:/bin:/usr/sbin", fake.display());
    for (args, code, word) in [
        (&["ssh://root@198.18.9.1:2222", CLIENT][..], 1, "no sshd answers there"),
        (&["ssh://root@no-such-host.invalid", CLIENT], 1, "ssh/config"),
        (&[SERVER, SERVER], 2, "the same host and network namespace"),
        (&[&other_cpu, CLIENT], 1, "the CPUs there are aarch64"),
        (&[SERVER, CLIENT, "--bring", "plan.toml"], 1, "it is not a program"),
        (&["exec:false", CLIENT], 1, "before `sh` ran there"),
        (&["exec:no-such-program", CLIENT], 1, "not installed here"),
        (&["netns://nowhere", CLIENT], 1, "nowhere"),
        (&["hub0"], 2, "--peer"),
    ] {
        hosts.run(&[&["hosts"], args].concat()).expect(code, &[word]);
    }
    let key = |name: &str| std::fs::read_to_string(hosts.place.path(name)).unwrap();
    let known = key("known_hosts");
    for (known, remedy) in [
        (String::new(), "run `ssh root@198.18.9.1` once and compare the fingerprint"),
        (format!("198.18.9.1 {}", key("user_key.pub")), "ssh-keygen -R 198.18.9.1"),
    ] {
        hosts.place.write("known_hosts", &known);
        hosts.run(&["hosts", SERVER, CLIENT]).expect(1, &[remedy]);
    }
    hosts.place.write("known_hosts", &known);
    hosts.place.write("authorized_keys", "");
    hosts.run(&["hosts", SERVER, CLIENT]).expect(1, &["ssh-copy-id root@198.18.9.1"]);
    assert_eq!(leftover_files(), Vec::<PathBuf>::new());
}

#[needs("root", "/usr/sbin/sshd", "ip")]
#[test]
fn unusable_folder_is_skipped_and_named() {
    let Some(hosts) = SshHosts::set_up() else { return };
    let far = |name: &str, mounts: &str| {
        let path = hosts.place.path(name);
        let rest = "export HOME=/no/such; unset XDG_RUNTIME_DIR\nexec ip netns exec server \"$@\"";
        write_script(&path, &format!("mount -t tmpfs -o noexec none /dev/shm\n{mounts}\n{rest}"));
        format!("exec:unshare --mount {}", path.display())
    };
    let ran = hosts.run(&["hosts", &far("noexec", ""), "netns://client"]);
    ran.expect(0, &["sut: it has no latput 0.1.0; this run copies one"]);
    let full = far("full", "mount -t tmpfs -o size=1m none /tmp");
    let ran = hosts.run(&["hosts", &full, "netns://client"]);
    ran.expect(1, &["/dev/shm: no program may run there (mounted noexec)", "/tmp: it is full"]);
    assert_eq!(leftover_files(), Vec::<PathBuf>::new());
}

#[needs("root", "/usr/sbin/sshd", "ip")]
#[test]
fn missing_capability_is_named_while_measuring() {
    let Some(hosts) = SshHosts::set_up() else { return };
    let nobody = "setpriv --reuid 65534 --clear-groups --bounding-set=-all";
    let both = format!("exec:ip netns exec server {nobody},exec:ip netns exec client {nobody}");
    let ran = hosts.run(&[&["measure", &both][..], &MEASURE].concat());
    ran.expect(0, &["sut: CAP_NET_ADMIN is missing: no knob can be set"]);
    let ran = hosts.run(&["run", "plan.toml", "--on", &both, "-o", "kept.db"]);
    ran.expect(3, &["CAP_NET_ADMIN"]);
    assert_eq!(leftover_files(), Vec::<PathBuf>::new());
}

#[needs("root", "/usr/sbin/sshd", "ip")]
#[test]
fn faults_between_hosts_are_told_first() {
    let Some(hosts) = SshHosts::set_up() else { return };
    let pair = ["hosts", "netns://server", "netns://client"];
    run_ip(&["-n", "server", "link", "set", "eth0", "mtu", "1400"]);
    hosts.run(&pair).expect(0, &["the MTU of server eth0 is 1400 and that of client eth0 is 1500"]);
    run_ip(&["-n", "server", "link", "set", "eth0", "mtu", "1500"]);
    // A second way.
    run_ip(&[
        "-n", "server", "link", "add", "eth1", "type", "veth", "peer", "eth1", "netns", "client",
    ]);
    for (idx, host) in ["server", "client"].into_iter().enumerate() {
        let address = format!("198.18.10.{}/24", idx + 1);
        run_ip(&["-n", host, "address", "add", &address, "dev", "eth1"]);
        run_ip(&["-n", host, "link", "set", "eth1", "up"]);
    }
    hosts.run(&pair).expect(2, &["2 paths", "netns://server%eth1 netns://client%eth1"]);
    let chosen = ["hosts", "netns://server%eth1", "netns://client"];
    hosts.run(&chosen).expect(0, &["server: eth1 198.18.10.1"]);
    let by_address = ["hosts", "netns://server", "netns://client%198.18.10.2"];
    hosts.run(&by_address).expect(0, &["client: eth1 198.18.10.2"]);
    run_ip(&["-n", "server", "link", "del", "eth1"]);
    give_ipv6_alone();
    let measure = [&["measure", "netns://server,netns://client"][..], &MEASURE].concat();
    hosts.run(&measure).expect(0, &["server: eth0 fd00:9::1"]);
    run_ip(&["-n", "client", "address", "flush", "dev", "eth0"]);
    hosts.run(&pair).expect(1, &["client does not have an address"]);
    run_ip(&["-n", "client", "address", "add", "fd00:8::1/64", "dev", "eth0", "nodad"]);
    hosts.run(&pair).expect(1, &["no route leads from server to client (fd00:8::1)"]);
}

/// The lines of ssh and the traffic both go by IPv6: the hosts have nothing else.
#[needs("root", "/usr/sbin/sshd", "ip")]
#[test]
#[ignore = "long: `cargo xtask ci --full` runs it"]
fn ipv6_only_hosts_are_reached() {
    let Some(hosts) = SshHosts::set_up() else { return };
    run_ip(&["address", "flush", "dev", "hub0"]);
    run_ip(&["address", "add", "fd00:9::fe/64", "dev", "hub0", "nodad"]);
    give_ipv6_alone();
    let known = std::fs::read_to_string(hosts.place.path("known_hosts")).unwrap();
    hosts.place.write("known_hosts", &known.replace("198.18.9.", "fd00:9::"));
    let pair = ["ssh://root@[fd00:9::1]:22", "ssh://root@fd00:9::2"];
    let ran = hosts.run(&[&["tune", "plan.toml"][..], &pair, &["--save", "saved.toml"]].concat());
    ran.expect(
        0,
        &[
            "fd00:9::2: it has no latput 0.1.0; this run copies one",
            "eth0 fd00:9::1 (veth",
            "6 trials",
        ],
    );
    let again = hosts.run(&["run", "plan.toml", "--on", "saved.toml", "-o", "again.db"]);
    again.expect(0, &["6 trials"]);
    assert_eq!(leftover_files(), Vec::<PathBuf>::new());
}

#[needs("root", "/usr/sbin/sshd", "ip")]
#[test]
fn two_users_at_once_do_not_meet() {
    let Some(hosts) = SshHosts::set_up() else { return };
    let start = |report: &str| {
        let mut command = hosts.latput_command(&["hosts", SERVER, CLIENT, "--json"]);
        let out = std::fs::File::create(hosts.place.path(report)).unwrap();
        command.stdout(out).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut both = ["one", "other"].map(start);
    assert!(both.iter_mut().all(|child| child.wait().unwrap().success()));
    assert_eq!(leftover_files(), Vec::<PathBuf>::new());
}

/// The hosts lose their addresses and have one of IPv6 each.
fn give_ipv6_alone() {
    for (idx, host) in ["server", "client"].into_iter().enumerate() {
        run_ip(&["-n", host, "address", "flush", "dev", "eth0"]);
        let address = format!("fd00:9::{}/64", idx + 1);
        run_ip(&["-n", host, "address", "add", &address, "dev", "eth0", "nodad"]);
    }
}

#[needs("root", "ip")]
#[test]
fn two_namespaces_get_cpus_of_their_own() {
    isolate();
    let place = Place::new();
    for line in [
        "netns add near",
        "netns add far",
        "link add eth0 netns near type veth peer name eth0 netns far",
        "-n near address add 198.18.7.1/24 dev eth0",
        "-n far address add 198.18.7.2/24 dev eth0",
        "-n near link set eth0 up",
        "-n far link set eth0 up",
    ] {
        run_ip(&line.split(' ').collect::<Vec<_>>());
    }
    let shared = "Do not use the CPU figures: both hosts run on the same CPUs.";
    let ran = place.run(&["hosts", "netns://near", "netns://far", "--save", "saved.toml"]);
    ran.expect(0, &["both are on one machine: near has CPUs"]);
    let saved: toml::Table =
        std::fs::read_to_string(place.path("saved.toml")).unwrap().parse().unwrap();
    let cpus = ["near", "far"].map(|host| {
        let list = saved["host"][host]["cpus"].as_str().unwrap();
        list.parse::<latput_units::CpuSet>().unwrap()
    });
    let is_shared = cpus[0].iter().any(|cpu| cpus[1].contains(cpu));
    assert_eq!(is_shared, std::thread::available_parallelism().unwrap().get() == 1, "{cpus:?}");
    assert_eq!(is_shared, ran.err.contains(shared), "{ran:?}");
    let said = cpus[0].to_string();
    let [near, far] = ["near", "far"].map(|host| format!("netns://{host}?cpus={said}"));
    place.run(&["hosts", &near, &far]).expect(0, &[shared]);
    place
        .run(&["hosts", "netns://near?cpus=8191", "netns://far"])
        .expect(2, &["the CPUs there are"]);
}
