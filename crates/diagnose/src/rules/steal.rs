//! `steal`: the hypervisor gives the machine's CPUs to others.

use crate::evidence::Evidence;
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::measures::cpus::busy_cpus;
use crate::measures::traffic::InterfaceTraffic;
use crate::source::EvidenceSource;

/// The part of the time that CPUs wanted to run and could not.
const LEAST_OF_WANTED: f64 = 0.1;
/// The part of all time; less is below what the kernel's ticks tell.
const LEAST_OF_ALL: f64 = 0.03;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "steal",
    subject: "CPU time that the hypervisor takes",
    mechanism: "A virtual CPU that wants to run waits until the hypervisor lets it: packets, timers and programs of the guest \
                wait with it.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let Some(cpus) = evidence.cpus() else { return Judgement::Unseen(EvidenceSource::Cpus) };
    let stolen: f64 = cpus.values().map(|shares| shares.steal).sum();
    // Steal is counted only while a CPU wants to run.
    let of_wanted = stolen / busy_cpus(cpus).max(f64::EPSILON);
    let of_all = stolen / cpus.len().max(1) as f64;
    let is_idle = InterfaceTraffic::from_evidence(evidence).is_idle();
    if is_idle || of_wanted < LEAST_OF_WANTED || of_all < LEAST_OF_ALL {
        return Judgement::Healthy;
    }
    let sentence = format!(
        "the hypervisor took {:.0}% of the time that this machine's CPUs wanted to run ({:.0}% of all time)",
        of_wanted * 100.0,
        of_all * 100.0
    );
    Judgement::Fault(
        Finding::new(rule, Confidence::Certain, sentence)
            .with("steal_share_of_wanted", of_wanted)
            .with("steal_share", of_all)
            // A program that wants to run waits for this part of its time.
            .explaining_latency(of_wanted)
            .explaining_cpu(of_wanted)
            .with_remedy(
                "a machine type with CPUs of its own, fewer machines on that host, or CPU credits; no setting of this machine",
            ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::fixture::{Fixture, is_near};

    const TRAFFIC: [u64; 2] = [9000, 900_000];

    #[test]
    fn stolen_time_is_found() {
        let host = Fixture::new().traffic(TRAFFIC, TRAFFIC);
        let found = host.cpus(&[[30, 10, 0, 10, 30], [20, 0, 0, 0, 20]]).fault(&RULE);
        let expected = "the hypervisor took 42% of the time that this machine's CPUs wanted to run (25% of all time)";
        assert_eq!(found.sentence, expected);
        assert!(is_near(found.explains.latency_share, 50.0 / 120.0));
    }

    #[test]
    fn little_steal_is_silent() {
        let host = || Fixture::new().traffic(TRAFFIC, TRAFFIC);
        host().cpus(&[[60, 20, 0, 10, 4]]).assert_healthy(&RULE);
        host().cpus(&[[1, 1, 0, 0, 1]]).assert_healthy(&RULE);
        host().assert_unseen(&RULE, EvidenceSource::Cpus);
    }
}
