//! `busy-poll-waste`: programs spin on the device and find nothing.

use crate::evidence::Evidence;
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::measures::cpus::{busy_cpus, find_system_shares};
use crate::measures::traffic::InterfaceTraffic;
use crate::source::EvidenceSource;

/// A CPU that spins is in system calls for most of its time.
const SPINNING: f64 = 0.5;
/// With a larger part of the packets found by polling it serves its purpose, unless they are few.
const MOST_FOUND: f64 = 0.1;
/// CPU time in milliseconds for each packet that is found: an interrupt and a wake-up take a hundredth of it.
const MOST_MS_A_PACKET: f64 = 1.0;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "busy-poll-waste",
    subject: "busy polling",
    mechanism: "A program that waits with busy polling asks the card again and again in place of sleeping; where packets are \
                few or arrive by interrupt all the same, that burns a CPU for nothing.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let usecs = |name: &str| evidence.sysctl(name)?.parse::<f64>().ok();
    let settings = [usecs("net/core/busy_poll"), usecs("net/core/busy_read")];
    // Programs may ask for it themselves (SO_BUSY_POLL): then only this counter tells.
    let found = evidence.protocol("TcpExt.BusyPollRxPackets");
    let longest = settings.into_iter().flatten().max_by(f64::total_cmp);
    if longest.is_none() && found.is_none() {
        return Judgement::Unseen(EvidenceSource::Settings);
    }
    let Some(shares) = find_system_shares(evidence) else {
        return Judgement::Unseen(EvidenceSource::Cpus);
    };
    let is_on =
        longest.is_some_and(|longest| longest > 0.0) || found.is_some_and(|found| found > 0);
    let traffic = InterfaceTraffic::from_evidence(evidence);
    let spinning: Vec<u32> =
        shares.iter().filter(|(_, share)| **share >= SPINNING).map(|(cpu, _)| *cpu).collect();
    let received = traffic.received.unwrap_or(0);
    let part = found.map(|found| found as f64 / received.max(1) as f64);
    let burnt: f64 = spinning.iter().filter_map(|cpu| shares.get(cpu)).sum();
    let ms_each = found
        .zip(evidence.window_s())
        .map(|(found, window)| burnt * window * 1000.0 / found.max(1) as f64);
    let is_cheap = ms_each.is_none_or(|ms| ms <= MOST_MS_A_PACKET);
    let is_useful = part.is_none_or(|part| part > MOST_FOUND && is_cheap);
    if !is_on || spinning.is_empty() || is_useful || traffic.is_idle() || traffic.is_bulk() {
        return Judgement::Healthy;
    }
    let is = longest.filter(|longest| *longest > 0.0);
    let sentence = format!(
        "busy polling{} found {:.1}% of {received} packets, while {} CPUs spent {:.0}% of their time in system calls",
        is.map(|longest| format!(" of {longest:.0} us")).unwrap_or_default(),
        part.unwrap_or(0.0) * 100.0,
        spinning.len(),
        burnt / spinning.len() as f64 * 100.0
    );
    let mut finding = Finding::new(rule, Confidence::Likely, sentence)
        .with("spinning_cpus", spinning.len() as u64)
        .with("system_share", burnt / spinning.len() as f64)
        .with("found_share", part.unwrap_or(0.0))
        .with_change(evidence, "busy-poll=0us busy-read=0us");
    if let Some(ms) = ms_each {
        finding = finding.with("cpu_ms_per_packet", ms);
    }
    if let Some(cpus) = evidence.cpus() {
        // An upper end: other system calls are in it. The trial by turns tells.
        finding = finding.explaining_cpu(burnt / busy_cpus(cpus).max(f64::EPSILON));
    }
    Judgement::Fault(finding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::fixture::{Fixture, is_near};

    const TRAFFIC: [u64; 2] = [20_000, 2_000_000];

    fn host(usecs: &str, found: u64, system: u64) -> Fixture {
        Fixture::new()
            .traffic(TRAFFIC, TRAFFIC)
            .fixed("proc/sys/net/core/busy_poll", usecs)
            .fixed("proc/sys/net/core/busy_read", "0\n")
            .protocols("netstat", "TcpExt", &[("BusyPollRxPackets", found)])
            .cpus(&[[5, system, 0, 0, 0], [5, 0, 0, 0, 0]])
    }

    #[test]
    fn spinning_without_packets_is_found() {
        let found = host("50\n", 200, 90).fault(&RULE);
        let expected = "busy polling of 50 us found 1.0% of 20000 packets, while 1 CPUs spent 90% of their time in system calls";
        assert_eq!(found.sentence, expected);
        assert!(is_near(found.explains.cpu_share, 0.9));
        assert_eq!(found.remedy.unwrap(), "latput set eth0 busy-poll=0us busy-read=0us --dry-run");
    }

    #[test]
    fn spinning_for_few_packets_is_found() {
        let rare = Fixture::new()
            .traffic([500, 50_000], [500, 50_000])
            .protocols("netstat", "TcpExt", &[("BusyPollRxPackets", 250)])
            .fixed("proc/sys/net/core/busy_poll", "0\n")
            .cpus(&[[5, 90, 0, 0, 0], [5, 0, 0, 0, 0]]);
        let found = rare.fault(&RULE);
        assert!(found.sentence.starts_with("busy polling found 50.0% of 500 packets"), "{found:?}");
    }

    #[test]
    fn polling_that_finds_packets_is_silent() {
        host("50\n", 18_000, 90).assert_healthy(&RULE);
        host("50\n", 0, 20).assert_healthy(&RULE);
        host("0\n", 0, 90).assert_healthy(&RULE);
        Fixture::new().traffic(TRAFFIC, TRAFFIC).assert_unseen(&RULE, EvidenceSource::Settings);
    }
}
