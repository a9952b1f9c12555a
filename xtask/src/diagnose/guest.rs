//! Faults that are planted in a guest with real drivers on emulated cards, and their healthy twins.
//!
//! Each case has a guest of its own (`xtask/guest.sh`) with two cards of one kind: that of host `a` in one namespace, that of
//! `b` in another. An emulated CPU has some ten thousand packets a second. Faults that need more cannot be planted here:
//! `moderation-too-short` and `offload-off`. QEMU's cards send no pauses.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::cases::{self, CHAIN_IN_B, Case, HostLine, ONE_IN_100_IN_B};
use super::{Answer, Options, Tools, parse_ids};
use crate::peers::lab::{INTERFACE, RunningProcess, SERVER_ADDRESS};
use crate::workspace::{Workspace, missing_for_root};

/// Script of the guest, around the lines of a case.
const SCRIPT: &str = include_str!("guest.sh");
/// Programs that the guest is made of, and those of cases.
const PROGRAMS: [&str; 9] = [
    "qemu-system-x86_64",
    "busybox",
    "depmod",
    "modprobe",
    "ip",
    "python3",
    "tc",
    "nft",
    "ethtool",
];
/// A boot takes 20 s on a quiet machine, the start of programs some seconds each.
const CASE_WITHIN: Duration = Duration::from_secs(300);
/// Before the words that say why a case cannot be planted.
const SKIPPED: &str = "latput: skipped: ";
/// Around the document.
const DOCUMENT: [&str; 2] = ["latput: begin", "latput: end"];

/// A case with the kind of its cards, as QEMU names it.
struct GuestCase {
    card: &'static str,
    case: Case,
}

const fn fault(
    card: &'static str,
    name: &'static str,
    (host, expected): (&'static str, &'static str),
    prepare: &'static [HostLine],
    traffic: &'static [HostLine],
) -> GuestCase {
    GuestCase { card, case: cases::fault(name, (host, expected), prepare, traffic) }
}

const fn healthy(
    card: &'static str,
    name: &'static str,
    host: &'static str,
    prepare: &'static [HostLine],
    traffic: &'static [HostLine],
) -> GuestCase {
    GuestCase { card, case: cases::healthy(name, host, prepare, traffic) }
}

const E1000E: &str = "e1000e";
/// The one that QEMU has of those whose delay `ethtool -C` sets.
const E1000: &str = "e1000-82545em";
const VIRTIO: &str = "virtio-net-pci";
const VMXNET3: &str = "vmxnet3";

// CPUs 0 and 5 are nobody's. Programs of `a` have CPU 2, those of `b` CPU 3.
const SERVE: HostLine = ("b", "taskset -c 3 $TRAFFIC serve 0");
const SINK: HostLine = ("b", "taskset -c 3 $TRAFFIC sink");
/// One request at a time that the other kernel answers; programs in Python have some hundred a second here.
const ECHO: HostLine = ("a", "taskset -c 2 ping -q -f -s 200 $B");
const ASK: HostLine = ("a", "taskset -c 2 $TRAFFIC client $B 2 1 0");
const SEND: HostLine = ("a", "taskset -c 2 $TRAFFIC bulk $B 8 0");
const A_APART: HostLine = ("a", "place 4");
const B_APART: HostLine = ("b", "place 1");
const APART: &[HostLine] = &[A_APART, B_APART];
/// Packets of the MTU one by one. QEMU cuts larger ones of vmxnet3 and e1000e into fragments of IP, which is a fault of its
/// own. With virtio, acknowledgements and completions fill most of a CPU of the sender.
const SMALL_SENT: HostLine = ("a", "ethtool -K lat0 tso off gso off");
const SMALL_RECEIVED: HostLine = ("b", "ethtool -K lat0 gro off");
/// Less than an emulated CPU takes.
const PACE: HostLine = ("a", "tc qdisc add dev lat0 root tbf rate 10mbit burst 32k limit 3000000");

/// All of them, each fault before its twin.
const CASES: &[GuestCase] = &[
    // QEMU throttles no vectors of this card: its driver shows a delay that nothing obeys.
    fault(
        E1000E,
        "e1000e: delay that the card ignores",
        ("b", "knob-ignored"),
        &[A_APART, B_APART, ("b", "ethtool -C lat0 rx-usecs 1000")],
        &[ECHO],
    ),
    healthy(E1000E, "e1000e: requests", "b", APART, &[SERVE, ASK]),
    healthy(E1000E, "e1000e: requests, client", "a", APART, &[SERVE, ASK]),
    healthy(E1000E, "e1000e: idle", "a", &[], &[]),
    fault(
        E1000E,
        "e1000e: server on the interrupts' CPU",
        ("b", "irq-on-application-cpu"),
        APART,
        &[("b", "taskset -c 1 $TRAFFIC serve 0"), ("a", "taskset -c 2 $TRAFFIC client $B 8 1 0")],
    ),
    fault(
        E1000E,
        "e1000e: interrupts that are moved",
        ("b", "irq-moved"),
        APART,
        &[ECHO, ("b", "while :; do place 1; sleep 1; place 0; sleep 1; done")],
    ),
    fault(
        E1000E,
        "e1000e: somebody else sets the delay",
        ("b", "second-tuner"),
        APART,
        &[
            SERVE,
            ASK,
            ("b", "for us in $(seq 20 59); do ethtool -C lat0 rx-usecs $us; sleep 1; done"),
        ],
    ),
    fault(
        E1000E,
        "e1000e: short queue",
        ("a", "qdisc-drops"),
        &[
            A_APART,
            B_APART,
            SMALL_SENT,
            ("a", "tc qdisc add dev lat0 root tbf rate 10mbit burst 32k limit 20000"),
        ],
        &[SINK, SEND],
    ),
    healthy(
        E1000E,
        "e1000e: paced bulk",
        "b",
        &[A_APART, B_APART, SMALL_SENT, PACE],
        &[SINK, SEND],
    ),
    fault(
        E1000E,
        "e1000e: slow reader",
        ("b", "slow-application"),
        &[A_APART, B_APART, SMALL_SENT],
        &[("b", "taskset -c 3 $TRAFFIC slow-read"), SEND],
    ),
    fault(
        E1000,
        "e1000: long delay under requests",
        ("b", "moderation-too-long"),
        &[A_APART, B_APART, ("b", "ethtool -C lat0 rx-usecs 1000")],
        &[ECHO],
    ),
    healthy(E1000, "e1000: requests", "b", APART, &[SERVE, ASK]),
    fault(
        VIRTIO,
        "virtio: interrupts put off",
        ("b", "moderation-too-long"),
        &[
            A_APART,
            B_APART,
            ("b", "echo 2000000 >/sys/class/net/lat0/gro_flush_timeout"),
            ("b", "echo 100 >/sys/class/net/lat0/napi_defer_hard_irqs"),
        ],
        &[ECHO],
    ),
    healthy(VIRTIO, "virtio: requests", "b", APART, &[SERVE, ASK]),
    fault(
        VIRTIO,
        "virtio: four queues on one CPU",
        ("a", "irq-on-one-cpu"),
        &[("a", "ethtool -L lat0 combined 4"), A_APART, B_APART, SMALL_SENT, SMALL_RECEIVED],
        &[SINK, SEND],
    ),
    fault(
        VIRTIO,
        "virtio: one queue of four",
        ("a", "irq-on-one-cpu"),
        &[("a", "ethtool -L lat0 combined 1"), A_APART, B_APART, SMALL_SENT, SMALL_RECEIVED],
        &[SINK, SEND],
    ),
    fault(
        VIRTIO,
        "virtio: a table of one queue",
        ("a", "rss-imbalance"),
        &[
            ("a", "ethtool -L lat0 combined 4"),
            ("a", "ethtool -X lat0 weight 1 0 0 0"),
            A_APART,
            B_APART,
            SMALL_SENT,
            SMALL_RECEIVED,
        ],
        &[SINK, SEND],
    ),
    healthy(
        VIRTIO,
        "virtio: paced bulk",
        "b",
        &[("b", "ethtool -L lat0 combined 4"), PACE],
        &[SINK, SEND],
    ),
    fault(
        VIRTIO,
        "virtio: long queue",
        ("a", "qdisc-bloat"),
        &[A_APART, B_APART, PACE],
        &[SERVE, SINK, SEND, ASK],
    ),
    fault(
        VIRTIO,
        "virtio: datagrams too fast",
        ("b", "udp-receive-buffer"),
        APART,
        &[
            ("b", "taskset -c 3 $TRAFFIC receive 0.01 4096"),
            ("a", "taskset -c 2 $TRAFFIC datagrams $B 1000 1000 wait"),
        ],
    ),
    healthy(
        VIRTIO,
        "virtio: datagrams",
        "b",
        APART,
        &[
            ("b", "taskset -c 3 $TRAFFIC receive 0 4194304"),
            ("a", "taskset -c 2 $TRAFFIC datagrams $B 1000 300 wait"),
        ],
    ),
    fault(
        VIRTIO,
        "virtio: loss",
        ("a", "loss-on-path"),
        &[A_APART, B_APART, CHAIN_IN_B, ONE_IN_100_IN_B],
        &[SINK, SEND],
    ),
    fault(
        VMXNET3,
        "vmxnet3: small ring",
        ("b", "ring-too-small"),
        &[("b", "ethtool -G lat0 rx 32"), A_APART, B_APART, SMALL_SENT],
        &[SINK, SEND],
    ),
    healthy(
        VMXNET3,
        "vmxnet3: paced bulk",
        "b",
        &[A_APART, B_APART, SMALL_SENT, PACE],
        &[SINK, SEND],
    ),
];

/// Plants the chosen cases, each in a guest of its own.
pub(super) fn plant_cases(
    workspace: &Workspace,
    tools: &Tools<'_>,
    options: &Options,
) -> Result<Vec<Answer>> {
    if let Some(missing) = missing_for_root(&PROGRAMS) {
        bail!("{missing} is missing");
    }
    ensure!(
        workspace.target.join("vm/kernel/boot").is_dir(),
        "there is no kernel for the guest: run `cargo xtask vm`"
    );
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot catch signals")?;
    }
    let script = tools.scratch.join("guest-case.sh");
    let mut answers = Vec::new();
    for GuestCase { card, case } in CASES.iter().filter(|one| options.is_chosen(one.case.name)) {
        std::fs::write(&script, compose_script(case, tools, options.window()))
            .context("cannot write the script of a case")?;
        let mut boot = Command::new("bash");
        boot.arg(workspace.root.join("xtask/guest.sh")).arg("bash").arg(&script);
        boot.env("CARGO_TARGET_DIR", &workspace.target).env("LATPUT_GUEST_PAIR", card);
        let running = RunningProcess::start(boot)?;
        let said = running.wait_for_output(&stop, Instant::now() + CASE_WITHIN);
        if let Some(ids) = read_console(&said?).with_context(|| case.name.to_owned())? {
            answers.push(Answer::print_new(case.name, case.expected, ids));
        } else {
            println!("{:<40} skipped: it cannot be planted here", case.name);
        }
    }
    Ok(answers)
}

/// The shell script that a guest runs for a case.
fn compose_script(case: &Case, tools: &Tools<'_>, window: &str) -> String {
    let quote = |word: &str| format!("'{}'", word.replace('\'', r"'\''"));
    let call =
        |function: &str, (host, line): &HostLine| format!("{function} {host} {}\n", quote(line));
    let program = format!("python3 {}", tools.traffic.display());
    let prepare: Vec<String> = case.prepare.iter().map(|line| call("prepare", line)).collect();
    let mut traffic: Vec<String> = case.traffic.iter().map(|line| call("run", line)).collect();
    if !traffic.is_empty() {
        traffic.push(format!("settle {}\n", case.host));
    }
    let [begin, end] = DOCUMENT;
    format!(
        "export A=198.18.0.1 B={SERVER_ADDRESS} TRAFFIC={}\n{SCRIPT}\n{}{}echo {}\nip netns exec {} {} diagnose \
         {INTERFACE} --for {window} --json || cat /run/said\necho {}\n",
        quote(&program),
        prepare.concat(),
        traffic.concat(),
        quote(begin),
        case.host,
        quote(&tools.binary.display().to_string()),
        quote(end)
    )
}

/// The ids of the findings in what a guest said; `None` where its case cannot be planted.
fn read_console(said: &str) -> Result<Option<Vec<String>>> {
    if said.lines().any(|line| line.starts_with(SKIPPED)) {
        return Ok(None);
    }
    let [begin, end] = DOCUMENT;
    let (_, rest) = said.split_once(begin).context("the guest came to no diagnosis")?;
    let (document, _) = rest.split_once(end).context("the guest ended in its diagnosis")?;
    parse_ids(document).map(Some).with_context(|| format!("the guest said: {}", document.trim()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn console_has_document_or_reason() {
        let said = "noise\nlatput: begin\n{\"findings\":[{\"id\":\"steal\"}]}\nlatput: end\nmore\n";
        assert_eq!(read_console(said).unwrap().unwrap(), ["steal"]);
        assert!(read_console("latput: skipped: no such card\n").unwrap().is_none());
        assert!(read_console("Kernel panic\n").is_err());
    }

    #[test]
    fn lines_are_quoted_for_the_guest() {
        let prepare = &[("b", "nft add chain ip t c '{ }'")];
        let case = cases::healthy("x", "b", prepare, &[SERVE]);
        let tools = Tools {
            binary: Path::new("/bin/latput"),
            scratch: Path::new("/"),
            traffic: Path::new("/t.py"),
        };
        let script = compose_script(&case, &tools, "10s");
        assert!(script.contains(r"prepare b 'nft add chain ip t c '\''{ }'\'''"), "{script}");
        assert!(script.contains("run b 'taskset -c 3 $TRAFFIC serve 0'\nsettle b\n"), "{script}");
    }
}
