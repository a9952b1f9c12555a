//! Report of a rollout: what became of every host, and how all of it ended.

use std::fmt::Write as _;

use latput_knobs::{ChangeOutcome, Refusal};
use latput_report::NO_KEEP;
use latput_runner::error::LeftChanged;
use latput_units::text::{format_count, format_utc};

use super::{HostPhase, Rollout, RolloutEnded};
use crate::context::FleetEnding;
use crate::inventory::FleetHost;
use crate::judge::{describe_differences, find_differences};
use crate::outcome::{HostOutcome, render_outcomes};
use crate::unfinished::{RUN_AGAIN, missed_in_words};

/// Report of a rollout.
#[derive(Debug)]
pub struct RolloutReport {
    /// Name of the rollout in the hosts' journals.
    pub name: String,
    /// How it ended.
    pub ended: RolloutEnded,
    /// The names of the hosts of each stage.
    pub stages: Vec<Vec<String>>,
    /// Every host, in the order of the inventory.
    pub hosts: Vec<HostReport>,
    /// Which hosts it did not reach, how to take it back, and how to keep it over a reboot.
    next: String,
    /// Number of hosts of the list that cannot be used.
    left_out: usize,
}

/// The outcome on a host.
#[derive(Debug)]
pub struct HostReport {
    /// The host.
    pub host: FleetHost,
    /// Its outcome.
    pub outcome: HostOutcome,
    /// The reason; empty if the outcome says all.
    pub why: String,
    /// Number of its change in its journal.
    pub journal: Option<u64>,
    /// The latest time at which it goes back by itself.
    pub back_by_unix_ms: Option<u64>,
}

/// The error of a rollout that was put back.
#[derive(Debug)]
pub struct RolloutFailure {
    /// State of the hosts.
    pub outcome: ChangeOutcome,
    /// The reason, and what became of the hosts.
    pub message: String,
    /// The hosts that are, or may be, neither as they were nor as they are to be.
    pub left: Vec<LeftChanged>,
}

impl HostPhase {
    /// A host's outcome.
    fn outcome(&self, ended: &RolloutEnded) -> HostOutcome {
        match self {
            Self::Same => HostOutcome::Same,
            Self::LeftOut(outcome, _) => *outcome,
            Self::WouldRefuse(_) => HostOutcome::WouldRefuse,
            Self::Planned if *ended == RolloutEnded::Rehearsed => HostOutcome::WouldChange,
            Self::Planned => HostOutcome::Unchanged,
            Self::Changed(_) | Self::GoesBack(..) => HostOutcome::GoesBack,
            Self::Confirmed(_) => HostOutcome::Confirmed,
            Self::PutBack(_) => HostOutcome::PutBack,
            Self::WentBack(_) => HostOutcome::WentBack,
            Self::Stranded(_) => HostOutcome::Stranded,
        }
    }

    /// Reason of its ending; empty if its outcome says all.
    fn explain_outcome(&self) -> String {
        match self {
            Self::LeftOut(_, why)
            | Self::WouldRefuse(why)
            | Self::PutBack(why)
            | Self::WentBack(why)
            | Self::Stranded(why) => why.clone(),
            Self::GoesBack(why, lease) => {
                let time = format_utc(lease.back_by_unix_ms / 1000);
                format!("{why}; it goes back by itself by {time}")
            }
            Self::Same | Self::Planned | Self::Changed(_) | Self::Confirmed(_) => String::new(),
        }
    }
}

impl Rollout<'_> {
    pub(super) fn into_report(self, ended: RolloutEnded) -> RolloutReport {
        let name = |at: &usize| self.host_name(*at).to_owned();
        let stages = self.stages.iter().map(|stage| stage.iter().map(name).collect()).collect();
        let hosts = (0..self.parts.len()).map(|at| self.report_host(at, &ended)).collect();
        let next = self.next_lines(&ended);
        let left_out = self.fleet.left_out;
        RolloutReport { name: self.name, ended, stages, hosts, next, left_out }
    }

    fn report_host(&self, at: usize, ended: &RolloutEnded) -> HostReport {
        let (host, part) = (&self.fleet.hosts[at], &self.parts[at]);
        let outcome = part.phase.outcome(ended);
        let found = part.before.first().filter(|_| outcome == HostOutcome::WouldChange);
        HostReport {
            host: host.clone(),
            outcome,
            why: found.map_or_else(
                || part.phase.explain_outcome(),
                |found| describe_differences(&find_differences(host, &found.look)),
            ),
            journal: if let HostPhase::Confirmed(number) = part.phase { number } else { None },
            back_by_unix_ms: part.phase.lease().map(|lease| lease.back_by_unix_ms),
        }
    }

    fn next_lines(&self, ended: &RolloutEnded) -> String {
        match ended {
            RolloutEnded::Rehearsed | RolloutEnded::Broken(_) => return String::new(),
            RolloutEnded::Nothing | RolloutEnded::Confirmed => {}
        }
        let missed = match self.missed_hosts() {
            names if names.is_empty() => String::new(),
            names => format!("ended; {}. {RUN_AGAIN}\n", missed_in_words(&names)),
        };
        let confirmed = self.in_phase(|phase| matches!(phase, HostPhase::Confirmed(_)));
        if confirmed.is_empty() {
            return missed;
        }
        let (name, hosts) = (&self.name, self.fleet.source.to_arg_text());
        let is_namespace = |at: &usize| self.fleet.hosts[*at].reach.starts_with("netns://");
        let keep = if confirmed.iter().all(is_namespace) {
            NO_KEEP.to_owned()
        } else {
            format!("latput fleet keep{hosts}{}", self.options.wanted)
        };
        format!("{missed}undo:  latput fleet undo {name}{hosts}\nkeep:  {keep}\n")
    }
}

impl RolloutReport {
    fn hosts_of(&self, outcomes: &[HostOutcome]) -> Vec<&HostReport> {
        self.hosts.iter().filter(|host| outcomes.contains(&host.outcome)).collect()
    }

    /// How it ended, where it was not put back.
    pub fn ending(&self) -> FleetEnding {
        FleetEnding::from_outcomes(self.hosts.iter().map(|host| host.outcome), self.left_out)
    }

    /// The error of one that was put back.
    pub fn failure(&self) -> Option<RolloutFailure> {
        let RolloutEnded::Broken(why) = &self.ended else { return None };
        let back = self.hosts_of(&[HostOutcome::PutBack]).len();
        let left: Vec<LeftChanged> = self
            .hosts_of(&[HostOutcome::GoesBack, HostOutcome::Stranded])
            .into_iter()
            .map(|HostReport { host, why, .. }| LeftChanged {
                host: host.name.clone(),
                why: why.clone(),
                command: host.way.to_shell_line(&["restore", &host.interface]),
            })
            .collect();
        let (outcome, message) = match (left.is_empty(), back) {
            (true, 0) => {
                (ChangeOutcome::Refused(Refusal::Failure), format!("{why}: nothing was changed"))
            }
            (true, _) => (
                ChangeOutcome::RolledBack,
                format!("{why}: {} put back", format_count(back, "host")),
            ),
            (false, _) => {
                let mut message = format!("{why}. Put back: {}", format_count(back, "host"));
                for (what, outcome) in [
                    ("Going back by themselves, at the time above", HostOutcome::GoesBack),
                    ("Not put back", HostOutcome::Stranded),
                ] {
                    let hosts = self.hosts_of(&[outcome]);
                    let names: Vec<&str> = hosts.iter().map(|one| one.host.name.as_str()).collect();
                    if !names.is_empty() {
                        let _ = write!(message, ". {what}: {}", names.join(", "));
                    }
                }
                (ChangeOutcome::Stranded, message)
            }
        };
        Some(RolloutFailure { outcome, message, left })
    }

    /// All of it, for people.
    pub fn render_text(&self) -> String {
        let mut text = String::new();
        if self.ended == RolloutEnded::Rehearsed {
            for (number, stage) in self.stages.iter().enumerate() {
                let _ = writeln!(text, "stage {}: {}", number + 1, stage.join(" "));
            }
        }
        let hosts = self.hosts.iter().map(|one| (&one.host, one.outcome, one.why.as_str()));
        text + &render_outcomes(hosts) + &self.next
    }
}
