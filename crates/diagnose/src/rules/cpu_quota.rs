//! `cpu-quota`: a control group has used up its CPU time, and its programs stand still until the next period.

use crate::evidence::Evidence;
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::measures::traffic::InterfaceTraffic;
use crate::source::EvidenceSource;

/// The part of the periods that end early (kubernetes-mixin alerts at 25%; its #108 has the false alarms below).
const LEAST_PERIODS: f64 = 0.25;
/// A smaller part of the window is no harm.
const LEAST_SHARE: f64 = 0.05;
/// A tenth of the periods and of the window: one request in ten waits.
const LONG_SHARE: f64 = 0.1;
/// A group that uses less of a CPU serves nobody that matters here.
const LEAST_CPUS: f64 = 0.05;
/// The kernel's own period, in seconds.
const PERIOD_S: f64 = 0.1;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "cpu-quota",
    subject: "CPU quotas",
    mechanism: "A control group that has used up its quota stands still until the period of 100 ms is over: requests that \
                arrive meanwhile wait for up to that long, however idle the host is.",
    judge,
};

/// Throttling of a control group within the window.
struct Throttling<'a> {
    group: &'a str,
    /// The part of its periods in which it was stopped.
    periods: f64,
    /// The part of the window that it stood still.
    share: f64,
    stopped_s: f64,
}

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let [_, after] = evidence.looks();
    let mut files = after
        .texts_below("")
        .map(|(name, _)| name)
        .filter(|name| name.ends_with("cpu.stat"))
        .peekable();
    if files.peek().is_none() {
        return Judgement::Unseen(EvidenceSource::Quotas);
    }
    let throttled = files.filter_map(|name| read_throttling(evidence, name));
    let is_felt = |throttling: &Throttling<'_>| {
        (throttling.periods >= LEAST_PERIODS && throttling.share >= LEAST_SHARE)
            || (throttling.periods >= LONG_SHARE && throttling.share >= LONG_SHARE)
    };
    let worst =
        throttled.filter(is_felt).max_by(|one, other| one.stopped_s.total_cmp(&other.stopped_s));
    let is_idle = InterfaceTraffic::from_evidence(evidence).is_idle();
    let Some(worst) = worst.filter(|_| !is_idle) else { return Judgement::Healthy };
    let sentence = format!(
        "the quota of control group {} stopped it in {:.0}% of its periods, for {:.1} s in sum",
        worst.group,
        worst.periods * 100.0,
        worst.stopped_s
    );
    Judgement::Fault(
        Finding::new(rule, Confidence::Likely, sentence)
            .with("group", worst.group)
            .with("throttled_periods_share", worst.periods)
            .with("throttled_s", worst.stopped_s)
            // Of the window, the part in which whoever asked had to wait.
            .explaining_latency(worst.share)
            .with_remedy(format!(
                "raise cpu.max of {} (in Kubernetes the CPU limit), or let it run fewer threads; whether it is the server, its \
                 cgroup.procs tells",
                worst.group
            )),
    )
}

fn read_throttling<'a>(evidence: &Evidence<'_>, name: &'a str) -> Option<Throttling<'a>> {
    let grown = evidence.grown_pairs(name)?;
    let count = |name: &str| grown.get(name).copied();
    let periods = count("nr_periods").filter(|periods| *periods > 0)? as f64;
    // Version 1 counts nanoseconds.
    let stopped_s = count("throttled_usec")
        .map(|time| time as f64 / 1e6)
        .or_else(|| Some(count("throttled_time")? as f64 / 1e9))?;
    let window = evidence.window_s().unwrap_or(periods * PERIOD_S);
    let used = count("usage_usec").map(|time| time as f64 / 1e6 / window);
    if used.is_some_and(|used| used < LEAST_CPUS) {
        return None;
    }
    let group = name.trim_end_matches("cpu.stat").trim_end_matches('/');
    Some(Throttling {
        group: group.strip_prefix("sys/fs/cgroup/").unwrap_or(if group.is_empty() {
            "/"
        } else {
            group
        }),
        periods: count("nr_throttled")? as f64 / periods,
        // The kernel adds up the time of all CPUs.
        share: (stopped_s / window).min(1.0),
        stopped_s,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::fixture::{Fixture, is_near};

    const NAME: &str = "sys/fs/cgroup/system.slice/web.service/cpu.stat";

    fn host(throttled: u64, usec: u64) -> Fixture {
        let text = |grown: u64| {
            format!(
                "usage_usec {}\nnr_periods {}\nnr_throttled {}\nthrottled_usec {}\n",
                900_000_000 + 5_000_000 * grown,
                70_000 + 100 * grown,
                50_000 + throttled * grown,
                800_000_000 + usec * grown
            )
        };
        Fixture::new().traffic([9000, 900_000], [9000, 900_000]).grown(NAME, &text(0), &text(1))
    }

    #[test]
    fn stopped_group_is_found() {
        let found = host(80, 4_000_000).fault(&RULE);
        let expected = "the quota of control group system.slice/web.service stopped it in 80% of its periods, for 4.0 s in sum";
        assert_eq!(found.sentence, expected);
        assert!(is_near(found.explains.latency_share, 0.4));
        host(20, 4_000_000).fault(&RULE);
    }

    #[test]
    fn group_with_time_left_is_silent() {
        host(0, 0).assert_healthy(&RULE);
        host(5, 4_000_000).assert_healthy(&RULE);
        host(20, 500_000).assert_healthy(&RULE);
        host(80, 100_000).assert_healthy(&RULE);
        Fixture::new().assert_unseen(&RULE, EvidenceSource::Quotas);
    }
}
