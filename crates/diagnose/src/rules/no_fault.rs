//! `no-fault`: nothing is wrong on this host's network path.

use crate::evidence::{Evidence, percent};
use crate::finding::{Confidence, Finding, Judgement, Rule};

/// The busy part of all CPUs below which they wait for work.
const LITTLE_WORK: f64 = 0.1;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "no-fault",
    subject: "this host's network path",
    mechanism: "No counter that tells of lost packets, of waits or of wasted CPU time grew enough to be felt.",
    judge,
};

/// Answers wherever nothing else was found. Its share of the CPU time is what programs use of the busy time.
fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let told = "Nothing is wrong on this host's network path";
    let packets = evidence.packets();
    let confidence = if packets.is_some() { Confidence::Likely } else { Confidence::Hint };
    let found = match evidence.program_share() {
        Some((programs, busy)) if busy >= LITTLE_WORK => {
            let sentence =
                format!("{told}; the application takes {} of the CPU time", percent(programs));
            Finding::new(rule, confidence, sentence)
                .with("application_cpu_share", programs)
                .with("cpu_busy_share", busy)
                .explaining_cpu(programs)
                .with_remedy(
                    "look at the application: `perf top`, its locks, its disks, its own requests",
                )
        }
        Some((programs, busy)) => {
            let sentence = format!(
                "{told}; the CPUs are {} idle, so that the time goes to the application's own waits or to the other end",
                percent(1.0 - busy)
            );
            Finding::new(rule, confidence, sentence)
                .with("application_cpu_share", programs)
                .with("cpu_busy_share", busy)
                .with_remedy("look at the application's waits (locks, disks, its own requests), and at the other end")
        }
        None if packets.is_some() => Finding::new(
            rule,
            confidence,
            format!("{told}, as far as the snapshot shows it (it has no CPU time)"),
        ),
        None => Finding::new(
            rule,
            confidence,
            format!(
                "{told}, as far as the snapshot shows it (it tells of neither packets nor CPU time)"
            ),
        ),
    };
    Judgement::Fault(match packets {
        Some(packets) => found.with("packets", packets),
        None => found,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::testing::{PlantedLooks, number};

    const BEFORE: &str = "cpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\n";

    #[test]
    fn application_has_its_share_of_time() {
        let after = "cpu0 600 0 330 0 0 0 70 0\ncpu1 900 0 30 0 0 0 70 0\n";
        let found = PlantedLooks::new().text("proc/stat", BEFORE, after).find(&RULE);
        assert_eq!(
            found.sentence,
            "Nothing is wrong on this host's network path; the application takes 93% of the CPU time"
        );
        assert!((number(&found, "application_cpu_share") - 0.93).abs() < 1e-9);
    }

    #[test]
    fn idle_cpus_are_told() {
        let after = "cpu0 30 0 0 970 0 0 0 0\ncpu1 30 0 0 970 0 0 0 0\n";
        let found = PlantedLooks::new().text("proc/stat", BEFORE, after).find(&RULE);
        assert!(found.sentence.contains("the CPUs are 97% idle"), "{}", found.sentence);
    }

    #[test]
    fn unknown_traffic_is_a_hint() {
        let found = PlantedLooks::new().seconds(5).find(&RULE);
        assert_eq!(found.confidence, Confidence::Hint);
    }
}
