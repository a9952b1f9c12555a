//! `napi-thread-starved`: the thread that receives packets is ready, and others run.

use crate::evidence::Evidence;
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::measures::cpus::find_receive_cpus;
use crate::measures::losses::{count_ring_drops, loses_in_ring, loss_rate};
use crate::measures::threads::find_receive_threads;
use crate::measures::traffic::InterfaceTraffic;
use crate::source::EvidenceSource;

/// A thread that waits a smaller part of the window keeps up.
const LEAST_WAIT: f64 = 0.1;
/// A thread that waits a smaller part of the time that it wants to run is a little delayed, not starved.
const LEAST_PART: f64 = 0.3;
/// The part of a CPU's time that programs have where nothing is left for the thread.
const ALL: f64 = 0.9;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "napi-thread-starved",
    subject: "threads that receive packets",
    mechanism: "Packets are received by a thread (a NAPI thread, or ksoftirqd under load), which the scheduler treats as any \
                other: programs of a higher priority, or many of the same, let it wait, and packets with it.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let threads = find_receive_threads(evidence);
    let is_threaded = evidence.sysfs("threaded").map(|value| value != "0");
    if threads.is_empty() && is_threaded.is_none() {
        return Judgement::Unseen(EvidenceSource::Cpus);
    }
    if InterfaceTraffic::from_evidence(evidence).is_idle() {
        return Judgement::Healthy;
    }
    if threads.is_empty() {
        return if is_threaded == Some(true) {
            judge_by_programs(rule, evidence)
        } else {
            Judgement::Healthy
        };
    }
    let Some(window) = evidence.window_s() else { return Judgement::Unseen(EvidenceSource::Cpus) };
    let starved = threads.iter().filter(|thread| {
        let wanted = thread.ran_s + thread.waited_s;
        thread.waited_s >= LEAST_WAIT * window && thread.waited_s >= LEAST_PART * wanted
    });
    let Some(worst) = starved.max_by(|one, other| one.waited_s.total_cmp(&other.waited_s)) else {
        return Judgement::Healthy;
    };
    let sentence = format!(
        "{} ran {:.0}% of the window and was ready for another {:.0}% in which others ran",
        worst.name,
        worst.ran_s / window * 100.0,
        worst.waited_s / window * 100.0
    );
    let mut finding = Finding::new(rule, Confidence::Certain, sentence)
        .with("thread", worst.name.as_str())
        .with("ran_s", worst.ran_s)
        .with("waited_s", worst.waited_s)
        // A packet waits for the thread in that part of the window.
        .explaining_latency(worst.waited_s / window);
    if loses_in_ring(evidence) {
        let drops = count_ring_drops(evidence).unwrap_or(0);
        finding = finding.explaining_loss(loss_rate(evidence, drops));
    }
    Judgement::Fault(with_remedy(finding, evidence, worst.name.starts_with("napi/")))
}

/// Judges where the threads' own times are missing: packets are lost, and programs have the CPU to themselves.
fn judge_by_programs(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let Some(cpus) = evidence.cpus() else { return Judgement::Unseen(EvidenceSource::Cpus) };
    let own = find_receive_cpus(evidence);
    let full = cpus.iter().find(|(cpu, shares)| {
        own.as_ref().is_none_or(|own| own.contains(cpu)) && shares.programs >= ALL
    });
    let Some((cpu, shares)) = full.filter(|_| loses_in_ring(evidence)) else {
        return Judgement::Healthy;
    };
    let drops = count_ring_drops(evidence).unwrap_or(0);
    let sentence = format!(
        "NAPI runs in threads, programs have {:.0}% of CPU {cpu}, and the ring lost {drops} packets; the threads' \
         /proc/PID/schedstat would tell whether they waited",
        shares.programs * 100.0
    );
    let finding = Finding::new(rule, Confidence::Hint, sentence)
        .with("cpu", u64::from(*cpu))
        .with("programs_share", shares.programs)
        .with("ring_drops", drops)
        .explaining_loss(loss_rate(evidence, drops));
    Judgement::Fault(with_remedy(finding, evidence, true))
}

fn with_remedy(finding: Finding, evidence: &Evidence<'_>, is_napi: bool) -> Finding {
    if is_napi {
        return finding.with_change(evidence, "threaded=off");
    }
    finding.with_remedy(
        "take the programs off that CPU or lower their priority (chrt -p, taskset), or move the interrupts to another CPU",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::fixture::{Fixture, is_near};

    const TRAFFIC: [u64; 2] = [500_000, 50_000_000];

    fn host(schedstat: &str) -> Fixture {
        Fixture::new()
            .traffic(TRAFFIC, TRAFFIC)
            .sysfs("threaded", "1\n")
            .fixed("proc/812/comm", "napi/eth0-8193\n")
            .grown("proc/812/schedstat", "500 500 9\n", schedstat)
    }

    #[test]
    fn waiting_thread_is_found() {
        let found = host("2000000500 6000000500 900\n").fault(&RULE);
        assert!(found.sentence.starts_with("napi/eth0-8193 ran 20% of the window"), "{found:?}");
        assert!(is_near(found.explains.latency_share, 0.6));
        assert_eq!(found.remedy.unwrap(), "latput set eth0 threaded=off --dry-run");
    }

    #[test]
    fn lost_packets_of_threads_are_hint() {
        let threaded = || Fixture::new().traffic(TRAFFIC, TRAFFIC).sysfs("threaded", "1\n");
        let busy = threaded().cpus(&[[98, 1, 0, 0, 0]]).driver(&[("rx_missed_errors", 9000)]);
        assert_eq!(busy.fault(&RULE).confidence, Confidence::Hint);
        threaded().cpus(&[[98, 1, 0, 0, 0]]).assert_healthy(&RULE);
    }

    #[test]
    fn thread_that_runs_is_silent() {
        host("6000000500 400000500 900\n").assert_healthy(&RULE);
        let off = Fixture::new().traffic(TRAFFIC, TRAFFIC).sysfs("threaded", "0\n");
        off.assert_healthy(&RULE);
        Fixture::new().traffic(TRAFFIC, TRAFFIC).assert_unseen(&RULE, EvidenceSource::Cpus);
    }
}
