//! A change goes back with all that it has moved, judged by `ip`, `ethtool`, `tc`, `chrt` and `taskset`.

use std::process::{Command, Stdio};

use latput_testkit::{isolate, needs};

use crate::keep::lacks_trace;
use crate::root_confirm::watcher_pids;
use crate::root_settings::Lab;
use crate::{CommandOutput, interrupt_pid, print_note, wait_until};

pub(crate) const WAITS: [&str; 2] = ["--confirm-within", "10min"];

#[needs("root")]
#[test]
fn dry_run_says_what_the_way_back_says() {
    let pair = VethPair::new();
    let mtu = |of: &str| run_shell(&format!("ip {of} -o link | grep -o 'mtu [0-9]*'"));
    let alike = |args: &[&str], code: i32, words: &[&str]| {
        let dry = pair.run(&[args, &["--dry-run"]].concat());
        dry.expect(code, words);
        let done = pair.run(args);
        assert_eq!((done.code, &done.err), (dry.code, &dry.err), "{args:?}");
    };
    let upper = "ip link add up0 link v0 type macvlan; ip link set up0 netns away";
    let moved =
        ["the kernel would set up0 (macvlan in network namespace away, mtu 9000) to 1500 too"];
    run_shell("ip netns add away");
    pair.run(&["set", "v0", "mtu=9000"]).expect(0, &["changed"]);
    run_shell(upper);
    assert!(mtu("-n away").contains("9000"));
    alike(&["undo"], 1, &moved);
    assert!(mtu("-n away").contains("9000") && mtu("").contains("9000"));
    run_shell("ip -n away link del up0");
    pair.run(&["undo"]).expect(0, &["undid"]);
    pair.run(&[&["set", "v0", "mtu=9000"][..], &WAITS].concat()).expect(0, &["changed"]);
    alike(&["undo", "1"], 1, &[]);
    run_shell(upper);
    alike(&["restore"], 0, &[&moved[..], &["latput: warning: v0: mtu goes back to 1500"]].concat());
    assert!(!mtu("").contains("9000"));
    run_shell("ip -n away link del up0");
    // It was moved away: where it is cannot be told.
    pair.run(&["set", "v0", "txqueuelen=700"]).expect(0, &["changed"]);
    pair.run(&[&["set", "v0", "mtu=1400"][..], &WAITS].concat()).expect(0, &["changed"]);
    alike(&["undo"], 1, &["waits to be confirmed"]);
    alike(&["set", "v0", "txqueuelen=600"], 1, &["waits to be confirmed"]);
    run_shell("ip link set v0 netns away");
    alike(&["restore"], 5, &["not in this network namespace", "Its checkpoint is kept"]);
    run_shell("ip -n away link set v0 netns $$");
    pair.run(&["restore", "--dry-run"]).expect(0, &["would put back"]);
    pair.run(&["restore"]).expect(0, &["put back"]);
    run_shell("ip netns del away");
}

/// An interface on top came after the change, so that going back moves it.
#[needs("root")]
#[test]
fn watchers_tell_what_going_back_moves() {
    let pair = VethPair::new();
    let mtu = |of: &str| run_shell(&format!("ip {of} -o link | grep -o 'mtu [0-9]*'"));
    run_shell("ip netns add away");
    pair.run(&["set", "v0", "mtu=9000", "--confirm-within", "4s"]).expect(0, &["changed"]);
    run_shell("ip link add up0 link v0 type macvlan; ip link set up0 netns away");
    assert!(mtu("-n away").contains("9000"));
    wait_until("the values to go back", || !mtu("").contains("9000"));
    wait_until("the watchers to end", || watcher_pids(&pair.place).is_empty());
    assert!(!mtu("-n away").contains("9000"), "the test does not test");
    let moved = "Warning: mtu goes back to 1500: the kernel would set up0 (macvlan in network namespace away, mtu 9000)";
    pair.run(&["confirm"]).expect(4, &["no confirmation came in time", moved]);
    pair.run(&["log"]).expect(0, &[moved]);
    run_shell("ip -n away link del up0; ip netns del away");
}

/// It may be of a newer latput, cut, or edited by a stranger.
#[needs("root")]
#[test]
fn checkpoint_that_is_not_understood_is_left() {
    let pair = VethPair::new();
    pair.run(&[&["set", "v0", "mtu=1400"][..], &WAITS].concat()).expect(0, &["changed"]);
    let files = std::fs::read_dir(pair.place.path("state/checkpoints")).unwrap().flatten();
    let file = files
        .map(|file| file.path())
        .find(|path| path.extension().is_some_and(|it| it == "json"))
        .unwrap();
    let whole = std::fs::read_to_string(&file).unwrap();
    let look = || output_of(&["ip", "-o", "link"]);
    for (text, words) in [
        (whole.replace("\"schema\":2", "\"schema\":99"), "its schema is 99"),
        (whole.replace("\"undo\"", "\"undone\""), "unknown field `undone`"),
        (whole[..whole.len() / 2].to_owned(), "EOF"),
    ] {
        std::fs::write(&file, &text).unwrap();
        let before = look();
        for args in [
            &["restore"][..],
            &["restore", "--dry-run"],
            &["confirm"],
            &["confirm", "v0"],
            &["set", "v0", "txqueuelen=700"],
            &["set", "v0", "txqueuelen=700", "--dry-run"],
        ] {
            let ran = pair.run(args);
            // The change is in force, and its way back is not known.
            let code = if args[0] == "restore" { 5 } else { 1 };
            assert_eq!(ran.code, Some(code), "{ran:#?}");
            assert!(ran.err.contains(words) && ran.err.contains("checkpoints/"), "{ran:#?}");
        }
        assert_eq!(look(), before, "{words}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text, "{words}");
    }
    std::fs::write(&file, whole).unwrap();
    pair.run(&["restore"]).expect(0, &["put back v0 mtu"]);
}

/// A process that holds the interface is foretold too.
#[needs("root")]
#[test]
fn dry_run_names_who_holds_the_interface() {
    let pair = VethPair::new();
    pair.run(&["set", "v0", "gro=on"]).expect(0, &[]);
    let mut moderate = pair.place.latput_command(&["moderate", "v0"]);
    let mut daemon = moderate.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let set = ["set", "v0", "txqueuelen=700"];
    let dry_run = [&set[..], &["--dry-run"]].concat();
    wait_until("the daemon to hold it", || pair.run(&dry_run).code == Some(1));
    let held = format!("in use by another latput (pid {})", daemon.id());
    pair.run(&set).expect(1, &[&held]);
    pair.run(&dry_run).expect(1, &[&held]);
    interrupt_pid(daemon.id());
    daemon.wait().unwrap();
    pair.run(&dry_run).expect(0, &["would change v0 txqueuelen"]);
    pair.run(&set).expect(0, &["changed"]);
}

#[needs("root")]
#[test]
fn change_that_can_cut_needs_confirmation() {
    let pair = VethPair::new();
    let over = |args: &[&str]| {
        let mut command = pair.place.latput_command(args);
        command.env_remove("SSH_CLIENT").env("SSH_CONNECTION", "fe80::1%v0 50022 ::1 22");
        CommandOutput::from(command.output().unwrap())
    };
    let before = show_qdiscs();
    for change in ["mtu=1400", "qdisc=tbf rate=8kbps burst=1600 limit=3000", "qdisc=pfifo limit=0"]
    {
        let refused = ["v0 carries your connection", "--confirm-within"];
        over(&["set", "v0", change]).expect(1, &refused);
        over(&["set", "v0", change, "--dry-run"]).expect(1, &refused);
        assert_eq!(show_qdiscs(), before, "{change}");
        over(&["set", "v1", change, "--dry-run"]).expect(0, &["would change"]);
        over(&[&["set", "v0", change][..], &WAITS].concat()).expect(0, &["changed"]);
        over(&["restore"]).expect(0, &["put back v0"]);
    }
    over(&["set", "v0", "txqueuelen=700"]).expect(0, &["changed"]);
    // An undo can cut it as well.
    pair.run(&["set", "v0", "mtu=1400"]).expect(0, &["changed"]);
    let refused = ["v0 carries your connection", "mtu=1500 can cut it"];
    over(&["undo"]).expect(1, &refused);
    over(&["undo", "--dry-run"]).expect(1, &refused);
    over(&["undo", "--confirm-within", "10min"]).expect(0, &["undid v0 mtu"]);
    over(&["confirm"]).expect(0, &["confirmed"]);
}

#[needs("root")]
#[test]
fn memory_of_many_queues_is_bounded() {
    let pair = VethPair::new();
    output_of(&[
        "sh",
        "-c",
        "ip link add w0 numtxqueues 128 numrxqueues 128 type veth peer name w1",
    ]);
    for (change, most) in [("txqueuelen=1000000", "349525"), ("rps-flow-cnt=1048576", "524288")] {
        pair.run(&["set", "w0", change]).expect(1, &["cannot be", most]);
        // The same on one of two queues.
        pair.run(&["set", "v0", change, "--dry-run"]).expect(0, &["would change"]);
    }
    output_of(&[
        "sh",
        "-c",
        "ip link add x0 numtxqueues 512 type veth peer name x1; ip link set x0 up",
    ]);
    if run_tc("qdisc replace dev x0 root handle 1: mq") {
        let change = "queue-qdisc=fq_codel flows=65536";
        pair.run(&["set", "x0", change]).expect(1, &["on 512 queues would take 2304 MiB"]);
    }
}

#[needs("root", "ethtool")]
#[test]
fn refused_feature_is_not_wanted_afterwards() {
    isolate();
    let place = crate::Place::new();
    let lab = Lab::set_up(&place);
    let tso = || lab.b_sh("ethtool -k lat0 | grep tcp-segmentation-offload");
    lab.b_sh("ethtool -K lat0 tso off; ethtool -K lat0 sg off");
    assert!(tso().contains("off"));
    let refused = lab.run_on_b(&["set", "lat0", "tso=on"]);
    assert!(matches!(refused.code, Some(1 | 4)), "{refused:#?}");
    lab.b_sh("ethtool -K lat0 sg on");
    assert!(tso().contains("off"), "nobody wants it: {}", tso());
    // The other way round: what is wanted and held back stays wanted.
    lab.b_sh("ethtool -K lat0 tso on; ethtool -K lat0 sg off");
    lab.run_on_b(&[&["set", "lat0", "sg=on", "tso=off"][..], &WAITS].concat())
        .expect(0, &["changed"]);
    lab.run_on_b(&["restore"]).expect(0, &["put back"]);
    lab.b_sh("ethtool -K lat0 sg on");
    assert!(tso().contains(": on"), "{}", tso());
}

#[needs("root", "chrt", "taskset")]
#[test]
fn napi_threads_keep_cpus_and_policy() {
    let pair = VethPair::with_name("napithr0");
    pair.run(&["set", "napithr0", "gro=on", "threaded=on"]).expect(0, &[]);
    let threads = || threads_of("napithr0");
    assert_eq!(threads().len(), 2);
    for thread in threads() {
        output_of(&["taskset", "-pc", "1", &thread]);
        // A real-time thread keeps its nice value for the day on which it has another policy.
        output_of(&["renice", "-n", "-3", "-p", &thread]);
        output_of(&["chrt", "-f", "-p", "5", &thread]);
    }
    let look = || {
        let mut lines = Vec::new();
        for thread in threads() {
            let said =
                output_of(&["taskset", "-pc", &thread]) + &output_of(&["chrt", "-p", &thread]);
            lines
                .extend(said.lines().filter_map(|line| Some(line.rsplit_once(": ")?.1.to_owned())));
        }
        lines
    };
    let before = look();
    assert_eq!(before, ["1", "SCHED_FIFO", "5", "1", "SCHED_FIFO", "5"]);
    let nice = || -> Vec<i32> {
        let read = |thread: String| {
            let stat = std::fs::read_to_string(format!("/proc/{thread}/stat")).unwrap();
            stat.split(' ').nth(18).unwrap().parse().unwrap()
        };
        threads().into_iter().map(read).collect()
    };
    assert_eq!(nice(), [-3, -3]);
    for change in ["threaded=off", "gro=off"] {
        pair.run(&["set", "napithr0", change]).expect(0, &["changed"]);
        pair.run(&["undo"]).expect(0, &["undid"]);
        assert_eq!((look(), nice()), (before.clone(), vec![-3, -3]), "{change}");
        pair.run(&[&["set", "napithr0", change][..], &WAITS].concat()).expect(0, &["changed"]);
        pair.run(&["restore"]).expect(0, &["put back"]);
        assert_eq!((look(), nice()), (before.clone(), vec![-3, -3]), "{change}");
    }
    // A process that could not give them this takes nothing back.
    pair.run(&["set", "napithr0", "gro=off"]).expect(0, &["changed"]);
    let without_nice = ["setpriv", "--inh-caps=-sys_nice", "--bounding-set=-sys_nice"];
    let in_namespace = ["unshare", "-p", "-f", "-m", "--mount-proc"];
    for (wrapper, word) in [(&without_nice[..], "CAP_SYS_NICE"), (&in_namespace, "--pid=host")] {
        for undo in [&["undo", "--dry-run"][..], &["undo"]] {
            let ran = pair.place.wrapped_command(wrapper, undo).output().unwrap();
            CommandOutput::from(ran).expect(1, &["NAPI threads would be made anew", word]);
        }
    }
    pair.run(&["undo"]).expect(0, &["undid"]);
    assert_eq!((look(), nice()), (before.clone(), vec![-3, -3]));
    let set = pair.place.wrapped_command(&without_nice, &["set", "napithr0", "gro=off"]);
    CommandOutput::from({ set }.output().unwrap()).expect(1, &["CAP_SYS_NICE"]);
    // A policy that no new thread can get is named.
    let thread = &threads()[0];
    let all_cpus = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    output_of(&["taskset", "-pc", all_cpus.trim(), thread]);
    let (runtime, period) = (["-T", "1000000"], ["-P", "10000000"]);
    let chrt = [&["chrt", "-d"][..], &runtime, &["-D", "10000000"], &period, &["-p", "0", thread]];
    output_of(&chrt.concat());
    pair.run(&["set", "napithr0", "gro=off", "--dry-run"]).expect(1, &["such as SCHED_DEADLINE"]);
}

/// Linux 6.17 sets `threaded` of single NAPI instances, which a new instance would not have.
#[needs("root", "python3")]
#[test]
fn own_threaded_of_a_napi_is_not_lost() {
    let pair = VethPair::with_name("napithr2");
    pair.run(&["set", "napithr2", "gro=on"]).expect(0, &[]);
    let threaded = |wanted: &str| {
        let mut python = Command::new("python3");
        python.args(["-c", include_str!("set_napi_threaded.py"), "napithr2", wanted]);
        CommandOutput::from(python.output().unwrap())
    };
    let set = threaded("1");
    if set.code != Some(0) {
        return print_note(&format!("skipped: this kernel sets it per device only: {set:?}"));
    }
    for change in ["gro=off", "threaded=on"] {
        for more in [&[][..], &["--dry-run"]] {
            let set = [&["set", "napithr2", change], more].concat();
            pair.run(&set).expect(1, &["have their own `threaded` value, which would be lost"]);
        }
    }
    assert_eq!(threaded("get").out, "1\n");
    pair.run(&["set", "napithr2", "txqueuelen=700"]).expect(0, &["changed"]);
    assert_eq!(threaded("0").code, Some(0));
    pair.run(&["set", "napithr2", "gro=off"]).expect(0, &["changed"]);
}

/// Without the host's `/proc` the CPUs and policies of threads are not known.
#[needs("root", "chrt", "taskset", "unshare")]
#[test]
fn unseen_napi_threads_are_not_made_anew() {
    let pair = VethPair::with_name("napithr1");
    pair.run(&["set", "napithr1", "gro=on", "threaded=on"]).expect(0, &[]);
    let threads = threads_of("napithr1");
    for thread in &threads {
        output_of(&["chrt", "-f", "-p", "5", thread]);
    }
    let apart = ["unshare", "--pid", "--fork", "--mount-proc"];
    let run = |args: &[&str]| {
        CommandOutput::from(pair.place.wrapped_command(&apart, args).output().unwrap())
    };
    for change in ["threaded=off", "gro=off"] {
        for more in [&[][..], &["--dry-run"]] {
            let set = [&["set", "napithr1", change], more].concat();
            run(&set).expect(1, &["NAPI threads would be made anew", "host's process namespace"]);
        }
    }
    assert_eq!(threads_of("napithr1"), threads);
    run(&["set", "napithr1", "txqueuelen=700"]).expect(0, &["changed"]);
    // Nor is a policy that could not be given back.
    output_of(&["chrt", "-R", "-f", "-p", "5", &threads[0]]);
    pair.run(&["set", "napithr1", "threaded=off"]).expect(1, &["NAPI threads would be made anew"]);
    assert_eq!(threads_of("napithr1"), threads);
}

/// The threads that poll for an interface; its name must be this test's own.
fn threads_of(interface: &str) -> Vec<String> {
    let start = format!("napi/{interface}-");
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().into_string().ok());
    let is_it = |pid: &String| {
        // Names are cut at 15 bytes.
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        !name.is_empty() && start.starts_with(name.trim()) || name.starts_with(&start)
    };
    pids.filter(is_it).collect()
}

/// Output of a shell.
pub(crate) fn run_shell(script: &str) -> String {
    output_of(&["sh", "-c", script])
}

pub(crate) fn output_of(words: &[&str]) -> String {
    String::from_utf8(Command::new(words[0]).args(&words[1..]).output().unwrap().stdout).unwrap()
}

#[needs("root", "tc")]
#[test]
fn qdisc_with_unknown_parts_is_left() {
    let pair = VethPair::new();
    for (steps, knobs) in [
        (
            &[
                "qdisc replace dev v0 root handle 1: mq",
                "qdisc replace dev v0 parent 1:1 handle 10: tbf rate 100mbit burst 32k limit 64k",
                "qdisc replace dev v0 parent 10:1 handle 20: pfifo limit 77",
            ][..],
            &["qdisc=pfifo limit=9", "queue-qdisc=pfifo limit=9"][..],
        ),
        (
            &[
                "qdisc replace dev v0 root handle 1: mq",
                "qdisc replace dev v0 parent 1:1 handle 10: tbf rate 100mbit burst 32k limit 64k overhead 24 linklayer atm",
            ],
            &["qdisc=pfifo limit=9", "queue-qdisc=pfifo limit=9"],
        ),
        (
            &["qdisc replace dev v0 root handle 1: stab overhead 20 linklayer atm pfifo"],
            &["qdisc=pfifo limit=9"],
        ),
        (
            &[
                "qdisc replace dev v0 root handle 1: tbf rate 100mbit burst 32k limit 64k overhead 24 linklayer atm",
            ],
            &["qdisc=pfifo limit=9"],
        ),
        (
            &["qdisc replace dev v0 root handle 1: estimator 1sec 4sec pfifo limit 7"],
            &["qdisc=pfifo limit=9"],
        ),
        (
            &[
                "qdisc replace dev v0 root handle 1: tbf rate 100mbit burst 32k limit 64k",
                "qdisc replace dev v0 parent 1:1 handle 20: pfifo limit 77",
            ],
            &["qdisc=pfifo limit=9"],
        ),
    ] {
        run_tc("qdisc del dev v0 root");
        if !steps.iter().all(|step| run_tc(step)) {
            print_note(&format!("this kernel takes no `tc {}`", steps[steps.len() - 1]));
            continue;
        }
        let before = show_qdiscs();
        for knob in knobs {
            pair.run(&["set", "v0", knob]).expect(1, &["could not put back"]);
            assert_eq!(show_qdiscs(), before, "{steps:?} {knob}");
        }
    }
}

#[needs("root", "tc")]
#[test]
fn undo_of_queue_disciplines_keeps_all_queues() {
    let pair = VethPair::new();
    assert!(run_tc("qdisc replace dev v0 root handle 1: mq"));
    assert!(run_tc(
        "qdisc replace dev v0 parent 1:1 handle 10: tbf rate 100mbit burst 32k limit 64k"
    ));
    let before = show_qdiscs();
    pair.run(&["set", "v0", "queue-qdisc=pfifo limit=9"]).expect(0, &["undo:"]);
    assert_ne!(show_qdiscs(), before);
    pair.run(&["undo"]).expect(0, &["undid"]);
    assert_eq!(show_qdiscs(), before);
    pair.run(&[&["set", "v0", "queue-qdisc=pfifo limit=9"][..], &WAITS].concat()).expect(0, &[]);
    pair.run(&["restore"]).expect(0, &["put back"]);
    assert_eq!(show_qdiscs(), before);
}

/// strace ends a restore on entry to its n-th request to the kernel, or has that fail: the next one finds all queues again.
#[needs("root", "tc", "strace")]
#[test]
fn restore_cut_anywhere_finds_all_queues() {
    if lacks_trace() {
        return;
    }
    let pair = VethPair::new();
    assert!(run_tc("qdisc replace dev v0 root handle 1: mq"));
    assert!(run_tc(
        "qdisc replace dev v0 parent 1:1 handle 10: tbf rate 100mbit burst 32k limit 64k"
    ));
    let before = show_qdiscs();
    let set = [&["set", "v0", "queue-qdisc=pfifo limit=9"][..], &WAITS].concat();
    for how in ["signal=KILL", "error=ENOMEM"] {
        let mut nth = 1;
        loop {
            pair.run(&set).expect(0, &["changed"]);
            let inject = format!("inject=sendto:{how}:when={nth}");
            let strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=sendto", "-e"];
            let strace = [&strace[..], &[&inject]].concat();
            let cut = pair.place.wrapped_command(&strace, &["restore"]).output().unwrap();
            pair.run(&["restore"]).expect(0, &[]);
            assert_eq!(show_qdiscs(), before, "{inject}: {cut:?}");
            nth += 1;
            if cut.status.success() && nth > REQUESTS {
                break;
            }
            assert!(nth < 10 * REQUESTS, "{inject} has no end");
        }
    }
}

/// More than the requests of a restore up to its first write.
const REQUESTS: usize = 40;

#[needs("root")]
#[test]
fn restore_with_link_down_keeps_the_checkpoint() {
    isolate();
    let place = crate::Place::new();
    let lab = Lab::set_up(&place);
    let change = ["set", "lat0", "gro-flush-timeout=50us", "napi-defer-hard-irqs=7"];
    let before = lab.read_knobs();
    lab.run_on_b(&[&change[..], &WAITS].concat()).expect(0, &["changed"]);
    lab.run_ip("b", &["link", "set", "lat0", "down"]).expect(0, &[]);
    let left = ["bring the interface up", "gro-flush-timeout"];
    lab.run_on_b(&["restore", "--dry-run"]).expect(5, &left);
    lab.run_on_b(&["restore"]).expect(5, &left);
    lab.run_ip("b", &["link", "set", "lat0", "up"]).expect(0, &[]);
    lab.run_on_b(&["restore"]).expect(0, &[]);
    lab.run_on_b(&["restore"]).expect(0, &["nothing to restore"]);
    assert_eq!(lab.read_knobs(), before);
}

/// A veth's NAPIs are made anew when it goes down and up, with the values of the device.
#[needs("root")]
#[test]
fn napi_values_outlast_link_down() {
    isolate();
    let place = crate::Place::new();
    let lab = Lab::set_up(&place);
    lab.b_sh("echo 20000 > /sys/class/net/lat0/gro_flush_timeout");
    let sysfs = || {
        let files = "cd /sys/class/net/lat0; grep . gro_flush_timeout napi_defer_hard_irqs";
        lab.b_sh(files).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let of_napis = || {
        let knobs = lab.read_knobs();
        let all = knobs.as_array().unwrap().iter().filter(|knob| {
            ["gro-flush-timeout", "napi-defer-hard-irqs"].contains(&knob["name"].as_str().unwrap())
        });
        all.map(|knob| knob["values"].to_string()).collect::<Vec<_>>()
    };
    let flap = || {
        lab.run_ip("b", &["link", "set", "lat0", "down"]).expect(0, &[]);
        lab.run_ip("b", &["link", "set", "lat0", "up"]).expect(0, &[]);
    };
    let before = (sysfs(), of_napis());
    let set = ["set", "lat0", "gro=on", "gro-flush-timeout=50us", "napi-defer-hard-irqs=7"];
    for waits in [&[][..], &WAITS] {
        let ran = lab.run_on_b(&[&set[..], waits].concat());
        ran.expect(0, &["changed"]);
        assert!(!ran.err.contains("end with a link down"), "{ran:#?}");
        let set = (sysfs(), of_napis());
        assert_eq!(set.0, "gro_flush_timeout:50000 napi_defer_hard_irqs:7");
        flap();
        assert_eq!((sysfs(), of_napis()), set);
        let back = if waits.is_empty() { "undo" } else { "restore" };
        if waits.is_empty() {
            lab.run_on_b(&["log"]).expect(0, &[": in force\n"]);
        }
        lab.run_on_b(&[back]).expect(0, &["gro-flush-timeout"]);
        assert_eq!((sysfs(), of_napis()), before);
        flap();
        assert_eq!((sysfs(), of_napis()), before);
    }
}

/// The first process of a container is in other files than a second one that shares its network.
#[needs("root", "unshare")]
#[test]
fn state_unseen_by_others_is_told() {
    isolate();
    let place = crate::Place::new();
    let made = ["link", "add", "v0", "type", "veth", "peer", "name", "v1"];
    assert!(Command::new("ip").args(made).status().unwrap().success());
    let set = "env -u LATPUT_STATE_DIR \"$0\" set v0 txqueuelen=";
    let script = format!(
        "mount -t proc proc /proc; {set}700; \
         unshare -m sh -c 'mount -t tmpfs none /run; {set}600; true' \"$0\"; \
         unshare -m sh -c 'mkdir -p /run/latput; mount --bind /run/latput /run/latput; {set}500; true' \"$0\""
    );
    let mut command =
        place.wrapped_command(&["unshare", "-m", "-p", "-f", "sh", "-c", &script], &[]);
    let ran = CommandOutput::from(command.output().unwrap());
    let warned = "/run/latput is this container's, and the network is not";
    ran.expect(0, &["from 1000 to 700", "from 700 to 600", "from 600 to 500", warned]);
    assert_eq!(ran.err.matches(warned).count(), 1, "{ran:#?}");
}

#[needs("root", "unshare")]
#[test]
fn napi_values_lost_by_link_are_told() {
    isolate();
    let place = crate::Place::new();
    let lab = Lab::set_up(&place);
    let told = "some drivers lose the values of NAPI instances when the link goes down";
    lab.run_on_b(&["set", "lat0", "irq-suspend-timeout=9ms"])
        .expect(0, &["irq-suspend-timeout", told]);
    // As in a container: sysfs is read-only, and netlink sets the NAPIs alone.
    let mount = "mount -o bind,remount,ro /sys && exec \"$0\" \"$@\"";
    let before = ["unshare", "-m", "sh", "-c", mount];
    let ran = lab.b_behind(&before, &["set", "lat0", "gro-flush-timeout=50us"]);
    ran.expect(0, &["(napi of rx-0) from 0us to 50us", told]);
    assert_eq!(lab.b_sh("cat /sys/class/net/lat0/gro_flush_timeout").trim(), "0");
}

#[needs("root")]
#[test]
fn foreign_waiting_change_is_left() {
    isolate();
    let place = crate::Place::new();
    let lab = Lab::set_up(&place);
    let by = |user: &str, args: &[&str]| {
        let user = format!("SUDO_USER={user}");
        lab.b_behind(&["env", &user], args)
    };
    let mtu = || lab.b_sh("ip -o link show lat0 | grep -o 'mtu [0-9]*'").trim().to_owned();
    by("alice", &[&["set", "lat0", "mtu=1400"][..], &WAITS].concat()).expect(0, &["changed"]);
    let named = ["alice (latput set", "waits to be confirmed for another", "--of 'alice'"];
    by("bob", &["restore"]).expect(0, &named);
    by("bob", &["restore", "lat0"]).expect(0, &named);
    by("bob", &["confirm"]).expect(1, &named);
    by("bob", &["confirm", "lat0"]).expect(1, &named);
    by("bob", &["set", "lat0", "gro=off"])
        .expect(1, &["alice (latput set", "waits to be confirmed"]);
    // The makers: a controller, an apply and a daemon.
    for made_by in
        ["--made-by=agent", "--made-by=moderate", "--made-by=apply/1234", "--made-by=fleet-x"]
    {
        by("alice", &["restore", made_by]).expect(0, &["nothing to restore"]);
        by("alice", &["confirm", "lat0", made_by]).expect(1, &["no change of lat0 waits"]);
    }
    assert_eq!(mtu(), "mtu 1400");
    by("bob", &["restore", "--of", "alice"]).expect(0, &["put back lat0 mtu"]);
    assert_eq!(mtu(), "mtu 1500");
    // The run of an apply is no other's.
    let apply = ["set", "lat0", "mtu=1400", "--made-by=apply/12"];
    by("alice", &[&apply[..], &WAITS].concat()).expect(0, &["changed"]);
    by("bob", &["confirm", "lat0", "--made-by=apply/13"]).expect(1, &["no change"]);
    by("bob", &["confirm", "lat0", "--made-by=apply/12"]).expect(0, &["confirmed"]);
    lab.run_on_b(&["log"]).expect(0, &["apply by alice"]);
}

/// A veth pair with two queues in a namespace of its own.
pub(crate) struct VethPair {
    pub(crate) place: crate::Place,
}

impl VethPair {
    pub(crate) fn new() -> Self {
        Self::with_name("v0")
    }

    fn with_name(name: &str) -> Self {
        isolate();
        let queues = "numtxqueues 2 numrxqueues 2";
        let words = format!("link add {name} {queues} type veth peer name v1 {queues}");
        for words in [words, format!("link set {name} up"), "link set v1 up".to_owned()] {
            let done = Command::new("ip").args(words.split(' ')).status().unwrap();
            assert!(done.success(), "{words}");
        }
        Self { place: crate::Place::new() }
    }

    pub(crate) fn run(&self, args: &[&str]) -> CommandOutput {
        self.place.run(args)
    }

    /// Has the dry run of a change and the change itself refused in these words.
    #[track_caller]
    pub(crate) fn expect_refusals(&self, args: &[&str], words: &[&str]) {
        for more in [&["--dry-run"][..], &[]] {
            self.run(&[args, more].concat()).expect(1, words);
        }
    }
}

fn run_tc(words: &str) -> bool {
    Command::new("tc").args(words.split(' ')).output().unwrap().status.success()
}

/// The disciplines and classes, without what they have counted.
fn show_qdiscs() -> String {
    ["qdisc", "class", "filter"]
        .map(|what| output_of(&["tc", "-d", what, "show", "dev", "v0"]))
        .concat()
}
