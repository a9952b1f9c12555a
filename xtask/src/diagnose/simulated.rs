//! Faults that are planted in the simulator, and their healthy twins. What the model does not have cannot be planted:
//! sockets of TCP, the placement of other programs, pauses of a switch.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::{Answer, Options, parse_ids};
use crate::workspace::capture_output;

/// A trial of `latput sim snapshot`, and the finding that must come first; `None` where there must be none.
struct SimulatedCase {
    name: &'static str,
    expected: Option<&'static str>,
    words: &'static [&'static str],
}

const fn fault(
    name: &'static str,
    expected: &'static str,
    words: &'static [&'static str],
) -> SimulatedCase {
    SimulatedCase { name, expected: Some(expected), words }
}

const fn healthy(name: &'static str, words: &'static [&'static str]) -> SimulatedCase {
    SimulatedCase { name, expected: None, words }
}

/// All of them, each fault before its twin.
const CASES: &[SimulatedCase] = &[
    fault(
        "long delay under requests",
        "moderation-too-long",
        &["--workload", "tcp_rr", "--set", "rx-usecs=250us"],
    ),
    healthy("requests", &["--workload", "tcp_rr", "--set", "rx-usecs=10us"]),
    fault(
        "long delay under many requests",
        "moderation-too-long",
        &["--workload", "tcp_rr", "connections=8", "--set", "rx-usecs=500us"],
    ),
    healthy("many requests", &["--workload", "tcp_rr", "connections=8"]),
    fault(
        "no delay under bulk",
        "moderation-too-short",
        &["--workload", "tcp_stream", "rate=4Gbps", "--set", "rx-usecs=0us"],
    ),
    healthy("paced bulk", &["--workload", "tcp_stream", "rate=4Gbps"]),
    fault(
        "small ring",
        "ring-too-small",
        &["--workload", "tcp_stream", "connections=4", "--set", "rx-ring=16"],
    ),
    healthy("bulk", &["--workload", "tcp_stream", "connections=4"]),
    fault(
        "packet by packet",
        "offload-off",
        &["--workload", "tcp_stream", "connections=4", "rate=4Gbps", "--set", "gro=off"],
    ),
    healthy("paced bulk of several", &["--workload", "tcp_stream", "connections=4", "rate=4Gbps"]),
    fault(
        "interrupts beside the server",
        "irq-on-application-cpu",
        &[
            "--workload",
            "tcp_rr",
            "connections=64",
            "burst=4",
            "sut_cpus=0",
            "--set",
            "smp-affinity=0",
        ],
    ),
    healthy(
        "server on other CPUs",
        &["--workload", "tcp_rr", "connections=16", "sut_cpus=1-3", "threads=3"],
    ),
    fault(
        "all interrupts on one CPU",
        "irq-on-one-cpu",
        &[
            "--workload",
            "tcp_rr",
            "connections=64",
            "threads=3",
            "rate_per_s=600000",
            "sut_cpus=1-3",
            "--set",
            "smp-affinity=0",
        ],
    ),
    fault(
        "one queue for four CPUs",
        "irq-on-one-cpu",
        &[
            "--workload",
            "tcp_rr",
            "connections=64",
            "threads=3",
            "rate_per_s=1000000",
            "sut_cpus=1-3",
            "--set",
            "combined-channels=1",
        ],
    ),
    healthy(
        "interrupts on all CPUs",
        &["--workload", "tcp_rr", "connections=64", "threads=4", "rate_per_s=100000"],
    ),
    fault(
        "more datagrams than a CPU takes",
        "cpu-full-of-softirq",
        &["--on", "sim:hs22-ixgbe", "--workload", "udp_stream", "datagram_bytes=64"],
    ),
    healthy("datagrams", &["--workload", "udp_stream", "rate=500Mbps"]),
    fault(
        "datagrams for a small buffer",
        "udp-receive-buffer",
        &["--workload", "udp_stream", "rate=2Gbps", "receive_buffer_bytes=2048"],
    ),
    fault(
        "short queue",
        "qdisc-drops",
        &[
            "--workload",
            "tcp_maerts",
            "connections=16",
            "--set",
            "qdisc=pfifo limit=4",
            "--set",
            "tx-ring=8",
        ],
    ),
    healthy("bulk that is sent", &["--workload", "tcp_maerts", "connections=4"]),
    fault(
        "long queue",
        "qdisc-bloat",
        &[
            "--workload",
            "tcp_maerts",
            "connections=64",
            "--set",
            "qdisc=pfifo limit=100000",
            "--set",
            "tx-ring=64",
        ],
    ),
    healthy("fair queues", &["--workload", "tcp_maerts", "connections=16"]),
    healthy("pings", &["--workload", "ping"]),
    healthy("connections", &["--workload", "tcp_crr", "connections=4"]),
    healthy("both ways", &["--workload", "tcp_bidir", "connections=2", "rate=2Gbps"]),
    healthy("requests at times", &["--workload", "tcp_rr", "connections=16", "rate_per_s=20000"]),
    healthy(
        "adaptive moderation",
        &["--workload", "tcp_stream", "rate=3Gbps", "--set", "adaptive-rx=on"],
    ),
];

/// Simulates the chosen cases, and judges the snapshot of each.
pub(super) fn plant_cases(binary: &Path, scratch: &Path, options: &Options) -> Result<Vec<Answer>> {
    let file = scratch.join("simulated.json");
    let mut answers = Vec::new();
    for case in CASES.iter().filter(|case| options.is_chosen(case.name)) {
        let said = judge_case(binary, &file, case, options.window());
        let said = said.with_context(|| case.name.to_owned())?;
        answers.push(Answer::print_new(case.name, case.expected, said));
    }
    Ok(answers)
}

fn judge_case(
    binary: &Path,
    file: &Path,
    case: &SimulatedCase,
    window: &str,
) -> Result<Vec<String>> {
    let mut simulate = Command::new(binary);
    simulate.args(["sim", "snapshot", "--for", window]).args(case.words).arg("-o").arg(file);
    capture_output(&mut simulate)?;
    let mut judge = Command::new(binary);
    parse_ids(&capture_output(judge.arg("diagnose").arg(file).arg("--json"))?)
}
