//! The checks of a trial, each with what its failure voids. Measuring code makes the checks; the model, tables and
//! documents read here what they mean.

use crate::metric::Metric;
use crate::observation::{Check, Observation};

/// Part of a trial that a failed check takes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Voids {
    /// Nothing: the trial is marked, and its figures count. Either they hold all the same, or the setting itself may
    /// be the cause, so that leaving its trials out would favour it.
    Nothing,
    /// The figures of CPU time.
    Cpu,
    /// The figures of TCP connections.
    Tcp,
    /// The percentiles that need more observations than there are ([`Metric::needed_observations`]).
    FewPercentiles,
    /// All figures: something other than the setting changed what was measured. The trial is unfit.
    Trial,
    /// All figures, unless the plan says that the hosts' other work is part of the case (`beside = true`).
    TrialUnlessBeside,
}

impl Voids {
    /// The words in the table of `docs/checks.md`.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Cpu => "CPU figures",
            Self::Tcp => "TCP figures",
            Self::FewPercentiles => "these percentiles",
            Self::Trial => "the trial",
            Self::TrialUnlessBeside => "the trial, unless `beside`",
        }
    }
}

/// One row of the table of checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckRow {
    /// The name in results.
    pub name: &'static str,
    /// Part of a trial that its failure voids.
    pub voids: Voids,
    /// Meaning of its failure, for the middle of a sentence; empty where it voids no trial.
    pub meaning: &'static str,
}

const fn row(name: &'static str, voids: Voids, meaning: &'static str) -> CheckRow {
    CheckRow { name, voids, meaning }
}

/// Other processes on the CPUs of an end.
pub const OTHER_WORK: &str = "other-work";
/// Time that a hypervisor gave to others.
pub const STEAL: &str = "steal";
/// A quota, or the heat of a CPU, held the traffic back.
pub const THROTTLED: &str = "throttled";
/// Packets of the interface that are not the trial's.
pub const OTHER_TRAFFIC: &str = "other-traffic";
/// A knob that somebody else changed.
pub const KNOB_DRIFT: &str = "knob-drift";
/// An end that did not begin or end its window when it was due.
pub const ON_SCHEDULE: &str = "on-schedule";

/// TCP connections that were opened, and not seen.
pub const CONNECTIONS_SEEN: &str = "connections-seen";

/// A percentile of fewer observations than it needs.
pub const FEW_OBSERVATIONS: &str = "few-observations";

/// Every check of the tree.
pub const CHECKS: &[CheckRow] = &[
    row(OTHER_WORK, Voids::TrialUnlessBeside, "other programs used the hosts' CPUs"),
    row(STEAL, Voids::TrialUnlessBeside, "the hypervisor gave CPU time to others"),
    row(THROTTLED, Voids::TrialUnlessBeside, "a quota or heat throttled the hosts"),
    row(OTHER_TRAFFIC, Voids::TrialUnlessBeside, "other traffic was on the interface"),
    row(KNOB_DRIFT, Voids::Trial, "another program changed a knob"),
    row(ON_SCHEDULE, Voids::TrialUnlessBeside, "a host was held up"),
    row("cpu-parts-add-up", Voids::Cpu, ""),
    row("cpu-covers-window", Voids::Cpu, ""),
    row("cpu-sources-agree", Voids::Cpu, ""),
    row("sampling-cost", Voids::Cpu, ""),
    row(CONNECTIONS_SEEN, Voids::Tcp, ""),
    row("started-together", Voids::Nothing, ""),
    row("changed-in-cut", Voids::Nothing, ""),
    row("wall-clock-step", Voids::Nothing, ""),
    row("knob-without-effect", Voids::Nothing, ""),
    row("steady", Voids::Nothing, ""),
    row("timer-phase-lock", Voids::Nothing, ""),
    row("packets-per-transaction", Voids::Nothing, ""),
    row("retransmissions", Voids::Nothing, ""),
    row("offered-rate-kept", Voids::Nothing, ""),
    row("probe-on-schedule", Voids::Nothing, ""),
    row("udp-receive-buffer", Voids::Nothing, ""),
    row("sender-saturated", Voids::Nothing, ""),
    row(FEW_OBSERVATIONS, Voids::FewPercentiles, ""),
    row("program-errors", Voids::Nothing, ""),
    row("wrong-keys", Voids::Nothing, ""),
    row("peer-cpu", Voids::Nothing, ""),
    row("ring-drops", Voids::Nothing, ""),
    row(crate::live::GUARD_CHECK, Voids::Nothing, ""),
    row(crate::live::BAN_CHECK, Voids::Nothing, ""),
];

impl CheckRow {
    /// The row of a name. A name of another version has none, and voids nothing.
    pub fn find(name: &str) -> Option<&'static Self> {
        CHECKS.iter().find(|row| row.name == name)
    }

    /// Whether its failure makes a trial unfit.
    pub const fn voids_trial(&self, beside: bool) -> bool {
        match self.voids {
            Voids::Nothing | Voids::Cpu | Voids::Tcp | Voids::FewPercentiles => false,
            Voids::Trial => true,
            Voids::TrialUnlessBeside => !beside,
        }
    }
}

impl Observation {
    /// The rows of the checks that failed, each once, in the order of the table.
    pub fn failed_rows(&self) -> impl Iterator<Item = &'static CheckRow> + '_ {
        CHECKS.iter().filter(|row| self.has_failed(row.name))
    }

    /// The failed checks because of which it does not count; `beside` where other work is part of the case.
    pub fn unfit_for(&self, beside: bool) -> impl Iterator<Item = &Check> + '_ {
        let voids = move |check: &&Check| {
            !check.passed && CheckRow::find(&check.name).is_some_and(|row| row.voids_trial(beside))
        };
        self.checks.iter().filter(voids)
    }

    /// Whether it counts in comparisons.
    pub fn is_fit(&self, beside: bool) -> bool {
        self.unfit_for(beside).next().is_none()
    }

    /// Whether its figures of CPU time count.
    pub fn has_cpu_figures(&self) -> bool {
        self.failed_rows().all(|row| row.voids != Voids::Cpu)
    }

    /// How many observations this figure of latency is of, as far as it is known.
    pub fn observations_of(&self, metric: Metric) -> Option<u64> {
        if metric.is_of_probe() {
            return self.probe.as_ref().map(|probe| probe.received);
        }
        self.traffic.transactions
    }

    /// Whether a failed check voids this figure of an observation that is fit.
    pub fn voids_figure(&self, metric: Metric) -> bool {
        self.failed_rows().any(|row| match row.voids {
            Voids::Cpu => metric.is_of_cpu(),
            Voids::Tcp => metric.is_of_connections(),
            Voids::FewPercentiles => {
                let known = metric.needed_observations().zip(self.observations_of(metric));
                known.is_some_and(|(needed, done)| done < needed)
            }
            Voids::Nothing | Voids::Trial | Voids::TrialUnlessBeside => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(names: &[&str]) -> Observation {
        let check =
            |name: &&str| Check { name: (*name).to_owned(), passed: false, detail: String::new() };
        Observation { checks: names.iter().map(check).collect(), ..Observation::default() }
    }

    #[test]
    fn every_check_has_one_row() {
        for (idx, row) in CHECKS.iter().enumerate() {
            assert!(CHECKS[..idx].iter().all(|other| other.name != row.name), "{row:?}");
            assert_eq!(row.voids_trial(false), !row.meaning.is_empty(), "{row:?}");
        }
    }

    #[test]
    fn disturbance_makes_a_trial_unfit() {
        assert!(failed(&[]).is_fit(false));
        assert!(!failed(&["steady", OTHER_WORK]).is_fit(false));
        assert!(failed(&["steady", "cpu-parts-add-up", "of-another-version"]).is_fit(false));
    }

    #[test]
    fn declared_load_disturbs_nothing() {
        for name in [OTHER_WORK, STEAL, THROTTLED, OTHER_TRAFFIC, ON_SCHEDULE] {
            assert!(failed(&[name]).is_fit(true) && !failed(&[name]).is_fit(false), "{name}");
        }
        assert!(!failed(&[KNOB_DRIFT]).is_fit(true));
    }

    #[test]
    fn doubtful_cpu_time_voids_nothing_else() {
        let doubtful = failed(&["cpu-sources-agree"]);
        assert!(doubtful.is_fit(false) && !doubtful.has_cpu_figures());
        assert!(failed(&[OTHER_WORK]).has_cpu_figures());
    }

    #[test]
    fn missed_connections_void_tcp_figures_alone() {
        let missed = failed(&[CONNECTIONS_SEEN]);
        assert!(missed.is_fit(false) && missed.has_cpu_figures());
        for (metric, is_void) in [
            (Metric::TcpThroughputBps, true),
            (Metric::TcpRttNsP99, true),
            (Metric::TcpRetransmitsPerS, true),
            (Metric::SutPacketCpuNs, false),
            (Metric::SutRxPps, false),
        ] {
            assert_eq!(missed.voids_figure(metric), is_void, "{metric}");
        }
    }
}
