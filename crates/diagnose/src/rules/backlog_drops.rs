//! `backlog-drops`: a CPU's backlog has no room for a packet.

use crate::evidence::Evidence;
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::measures::cpus::{FULL, kernel_share};
use crate::measures::losses::is_harm;
use crate::measures::traffic::InterfaceTraffic;
use crate::source::EvidenceSource;

/// The kernel's own limit of a backlog.
const DEFAULT_BACKLOG: u64 = 1000;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "backlog-drops",
    subject: "backlogs of the CPUs",
    mechanism: "Packets that another CPU (RPS) or a virtual interface hands over wait in the CPU's backlog, and are dropped \
                when it is full, or early if one flow has most of it (flow limit).",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let Some(rows) = evidence.softnet() else { return Judgement::Unseen(EvidenceSource::Softnet) };
    let dropped: u64 = rows.values().map(|row| row.dropped).sum();
    let limited: u64 = rows.values().map(|row| row.flow_limited).sum();
    let processed: u64 = rows.values().map(|row| row.processed).sum();
    let is_idle = InterfaceTraffic::from_evidence(evidence).is_idle();
    if is_idle || !is_harm(dropped, Some(processed)) {
        return Judgement::Healthy;
    }
    let share = dropped as f64 / (processed + dropped) as f64;
    let Some((cpu, _)) = rows.iter().max_by_key(|(_, row)| row.dropped) else {
        return Judgement::Healthy;
    };
    let limit = evidence.sysctl("net/core/netdev_max_backlog");
    let now = limit.and_then(|text| text.parse::<u64>().ok());
    let is_full = evidence.cpus().and_then(|cpus| cpus.get(cpu)).map(kernel_share);
    let is_full = is_full.is_some_and(|kernel| kernel >= FULL);
    let is_by_flow = limited * 2 >= dropped;
    let cause = if is_by_flow {
        "; the flow limit dropped them, so that one flow has most of the backlog"
    } else if is_full {
        "; that CPU is full of softirqs, and a longer backlog only delays the drop"
    } else {
        ""
    };
    let is = now.map(|now| format!(" of {now} packets")).unwrap_or_default();
    let sentence = format!(
        "{dropped} packets ({:.2}%) found the backlog{is} full, most on CPU {cpu}{cause}",
        share * 100.0
    );
    let mut finding = Finding::new(rule, Confidence::Certain, sentence)
        .with("backlog_drops", dropped)
        .with("flow_limited", limited)
        .with("lost_share", share)
        .explaining_loss(share);
    if let Some(now) = now {
        finding = finding.with("netdev_max_backlog", now);
    }
    if is_by_flow {
        return Judgement::Fault(finding.with_remedy(
            "net.core.flow_limit_cpu_bitmap=0 switches the flow limit off; the flow would then crowd out the others",
        ));
    }
    let longer = now.unwrap_or(DEFAULT_BACKLOG).saturating_mul(4);
    Judgement::Fault(finding.with_change(evidence, &format!("netdev-max-backlog={longer}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::fixture::{Fixture, is_near};

    const TRAFFIC: [u64; 2] = [1_000_000, 100_000_000];

    fn host(dropped: u64) -> Fixture {
        Fixture::new()
            .traffic(TRAFFIC, TRAFFIC)
            .softnet(&[[500_000, 0, 0], [490_000, dropped, 9]])
            .fixed("proc/sys/net/core/netdev_max_backlog", "1000\n")
    }

    #[test]
    fn dropped_packets_are_found() {
        let found = host(10_000).fault(&RULE);
        let expected =
            "10000 packets (1.00%) found the backlog of 1000 packets full, most on CPU 1";
        assert_eq!(found.sentence, expected);
        assert!(is_near(found.explains.loss_share, 0.01));
        assert_eq!(found.remedy.unwrap(), "latput set eth0 netdev-max-backlog=4000 --dry-run");
    }

    #[test]
    fn flow_limit_is_named() {
        let row = |by: u64| format!("{:x} {by:x} 0 0 0 0 0 0 0 0 {by:x}\n", 1000 + by * 100);
        let limited = Fixture::new().grown("proc/net/softnet_stat", &row(0), &row(5000));
        assert!(limited.fault(&RULE).sentence.contains("the flow limit dropped them"));
    }

    #[test]
    fn few_drops_are_silent() {
        host(0).assert_healthy(&RULE);
        host(20).assert_healthy(&RULE);
        host(10_000).traffic([0, 0], [0, 0]).assert_healthy(&RULE);
        Fixture::new().traffic(TRAFFIC, TRAFFIC).assert_unseen(&RULE, EvidenceSource::Softnet);
    }
}
