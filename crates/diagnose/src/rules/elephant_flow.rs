//! `elephant-flow`: one flow carries most of the traffic, and so one CPU most of the work.

use crate::evidence::{CpuShares, Evidence, percent};
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::rules::offload_off;
use crate::source::EvidenceSource;

/// The busy part from which a CPU has no time left.
const FULL: f64 = 0.9;
/// The least part of a full CPU's time that receiving must take for it to be the cause.
const LEAST_SOFTIRQS: f64 = 0.5;
/// The busy part up to which another CPU could take work over.
const ROOM: f64 = 0.5;
/// The least part of the bytes that one flow carries.
const LEAST_OF_BYTES: f64 = 0.8;
/// The part that the flow explains where an offload is off.
const LEFT_OF_EFFECT: f64 = 0.3;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "elephant-flow",
    subject: "the largest flow",
    mechanism: "A flow's packets go to one queue and one CPU, because spreading goes by flow: a single flow can use no more \
                than that CPU, however many are idle.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let Some(cpus) = evidence.cpus() else { return Judgement::Unseen(EvidenceSource::Cpus) };
    let busiest = cpus.iter().max_by(|one, other| receiving(one.1).total_cmp(&receiving(other.1)));
    let Some((cpu, shares)) = busiest else { return Judgement::Unseen(EvidenceSource::Cpus) };
    let has_room = cpus.iter().any(|(other, shares)| other != cpu && shares.busy() <= ROOM);
    let is_full = shares.busy() >= FULL && receiving(shares) >= LEAST_SOFTIRQS;
    if !is_full || !has_room {
        return Judgement::Healthy;
    }
    let limited: u64 =
        evidence.softnet().map_or(0, |rows| rows.values().map(|row| row.flow_limited).sum());
    let largest = find_largest(evidence);
    let (told, confidence) = match (&largest, limited) {
        (Some((part, peer)), _) if *part >= LEAST_OF_BYTES => {
            let peer = if peer.is_empty() { String::new() } else { format!(" (with {peer})") };
            let told = format!("one connection{peer} carries {} of the bytes", percent(*part));
            (told, Confidence::Likely)
        }
        // The kernel's flow limit drops only of a flow that has half of a backlog.
        (_, 1..) => {
            (format!("the flow limit dropped {limited} packets of one flow"), Confidence::Likely)
        }
        (Some(_), 0) => return Judgement::Healthy,
        (None, 0) => return Judgement::Unseen(EvidenceSource::Sockets),
    };
    let all_busy: f64 = cpus.values().map(CpuShares::busy).sum();
    // A CPU may be full because an offload is off, and have time for the flow with it.
    let left = if offload_off::is_fault(evidence) { LEFT_OF_EFFECT } else { 1.0 };
    let sentence = format!(
        "{told}, and CPU {cpu} that receives them is {} busy while others have room",
        percent(shares.busy())
    );
    let mut found = Finding::new(rule, confidence, sentence)
        .with("cpu", u64::from(*cpu))
        .with("cpu_busy_share", shares.busy())
        .with("softirq_share", receiving(shares))
        .with("flow_limited", limited)
        .explaining_cpu(receiving(shares) / all_busy.max(1e-9) * left)
        .with_change(evidence, "rps-sock-flow-entries=32768 rps-flow-cnt=4096");
    if let Some((part, _)) = largest {
        // Bytes of this flow wait for that CPU, those of others need not.
        found = found.with("flow_byte_share", part).explaining_latency(part * shares.busy() * left);
    }
    Judgement::Fault(found)
}

/// The part of a CPU's time that receiving takes.
fn receiving(shares: &CpuShares) -> f64 {
    shares.softirqs + shares.interrupts
}

/// The connection with most of the bytes that were received: its part, and its other end. `None` if little TCP was received.
fn find_largest(evidence: &Evidence<'_>) -> Option<(f64, String)> {
    let datagrams = evidence.protocol("Udp.InDatagrams").unwrap_or(0);
    if datagrams > evidence.protocol("Tcp.InSegs").unwrap_or(u64::MAX) {
        return None;
    }
    let active = evidence.active_connections()?;
    let received = |growth: &crate::evidence::SocketGrowth<'_>| growth.grown("bytes_received");
    let all: f64 = active.iter().map(received).sum();
    let most = active.iter().max_by(|one, other| received(one).total_cmp(&received(other)))?;
    (all > 0.0).then(|| (received(most) / all, most.now.peer.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::testing::{PlantedLooks, number};

    const IDLE: &str = "cpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\n";
    /// CPU 0 is full of softirqs, CPU 1 idle.
    const FULL_OF_ONE: &str = "cpu0 5 0 45 20 0 0 930 0\ncpu1 10 0 40 950 0 0 0 0\n";

    fn row(port: u32, bytes: u64) -> String {
        format!(
            "ESTAB 0 0 10.0.0.1:5201 10.0.0.2:{port}\n\t cubic rtt:1/1 bytes_received:{bytes}\n"
        )
    }

    fn looks(stat: &str, bytes: [u64; 2]) -> PlantedLooks {
        let before = row(50_000, 7_000_000_000) + &row(50_001, 9_000_000_000);
        let after = row(50_000, 7_000_000_000 + bytes[0]) + &row(50_001, 9_000_000_000 + bytes[1]);
        PlantedLooks::new().text("proc/stat", IDLE, stat).sockets(&before, &after)
    }

    #[test]
    fn one_flow_that_fills_a_cpu_is_found() {
        let found = looks(FULL_OF_ONE, [9_500_000_000, 500_000_000]).find(&RULE);
        assert!((number(&found, "flow_byte_share") - 0.95).abs() < 1e-9);
        assert!(
            found.sentence.contains("(with 10.0.0.2:50000) carries 95% of the bytes"),
            "{}",
            found.sentence
        );
        assert!(found.sentence.contains("CPU 0"));
    }

    #[test]
    fn flow_limit_tells_without_connections() {
        let looks = PlantedLooks::new().text("proc/stat", IDLE, FULL_OF_ONE).text(
            "proc/net/softnet_stat",
            "10 0 0 0 0 0 0 0 0 0 0\n",
            "90 0 0 0 0 0 0 0 0 0 20\n",
        );
        assert!(looks.find(&RULE).sentence.contains("dropped 32 packets of one flow"));
    }

    #[test]
    fn many_flows_or_free_cpu_are_healthy() {
        assert_eq!(looks(FULL_OF_ONE, [5_000_000, 5_000_000]).judge(&RULE), Judgement::Healthy);
        let half = "cpu0 5 0 45 550 0 0 400 0\ncpu1 10 0 40 950 0 0 0 0\n";
        assert_eq!(looks(half, [9_500_000, 5000]).judge(&RULE), Judgement::Healthy);
    }

    #[test]
    fn missing_parts_are_unseen() {
        let looks = PlantedLooks::new().seconds(5);
        assert_eq!(looks.judge(&RULE), Judgement::Unseen(EvidenceSource::Cpus));
        let full = looks.text("proc/stat", IDLE, FULL_OF_ONE);
        assert_eq!(full.judge(&RULE), Judgement::Unseen(EvidenceSource::Sockets));
    }
}
