//! Outcomes of a command on a host: one word in every command, and one rule for the exit code.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use latput_units::text::format_count;

use crate::context::FleetEnding;
use crate::inventory::FleetHost;

/// Makes the type and its table from the rows: the word, and how a command ends with such a host.
macro_rules! host_outcomes {
    ($($(#[$doc:meta])* $outcome:ident = $word:literal, $ending:ident;)*) => {
        /// Outcome of a command on a host, in the order of tables.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum HostOutcome {
            $($(#[$doc])* $outcome,)*
        }

        impl HostOutcome {
            /// Every outcome.
            pub const ALL: &'static [Self] = &[$(Self::$outcome,)*];

            /// The word for it, in text and JSON.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$outcome => $word,)*
                }
            }

            /// How a command ends with such a host.
            pub const fn ending(self) -> FleetEnding {
                match self {
                    $(Self::$outcome => FleetEnding::$ending,)*
                }
            }
        }
    };
}

host_outcomes! {
    /// All values are as wanted, or were read.
    Same = "same", Done;
    /// It keeps its change.
    Confirmed = "confirmed", Done;
    /// It would be changed.
    WouldChange = "would-change", Done;
    /// Its stage did not come, or it does not have the rollout.
    Unchanged = "unchanged", Done;
    /// It is as before the change.
    PutBack = "put-back", Done;
    /// Its entry was undone.
    Undone = "undone", Done;
    /// Its entry would be undone.
    WouldUndo = "would-undo", Done;
    /// It keeps the values over a reboot.
    Kept = "kept", Done;
    /// It would write files.
    WouldWrite = "would-write", Done;
    /// It does not keep the values over a reboot any more.
    Removed = "removed", Done;
    /// It would refuse its change.
    WouldRefuse = "would-refuse", Partial;
    /// Its latput refused.
    Refused = "refused", Partial;
    /// It answered, and cannot be used.
    LeftOut = "left-out", Partial;
    /// Values that somebody else set stay.
    InPart = "in-part", Partial;
    /// It went back before it was confirmed.
    WentBack = "went-back", Partial;
    /// It was not reached, and goes back by itself.
    GoesBack = "goes-back", Partial;
    /// It keeps no value over a reboot.
    NothingKept = "nothing-kept", Partial;
    /// It cannot tell what is in force.
    Unknown = "unknown", Partial;
    /// Its answer is invalid.
    Failed = "failed", Partial;
    /// It cannot be reached.
    Unreachable = "unreachable", Partial;
    /// It gave no answer in time.
    TimedOut = "timed-out", Partial;
    /// The command was interrupted before it had answered.
    NotAsked = "not-asked", Partial;
    /// A knob has another value than the wanted one.
    Drifted = "drifted", Drifted;
    /// It is not the host of the inventory.
    Other = "other", Drifted;
    /// Its kept setting is not in force.
    Different = "different", Drifted;
    /// It could not be put back.
    Stranded = "stranded", Stranded;
}

impl HostOutcome {
    /// Whether nothing was heard of the host.
    pub const fn is_unreached(self) -> bool {
        matches!(self, Self::Unreachable | Self::TimedOut | Self::NotAsked)
    }
}

impl FleetEnding {
    /// How a command ends, by its hosts: the worst counts. Hosts of the list that cannot be used are missing.
    pub(crate) fn from_outcomes(
        outcomes: impl IntoIterator<Item = HostOutcome>,
        left_out: usize,
    ) -> Self {
        let of_list = if left_out > 0 { Self::Partial } else { Self::Done };
        outcomes.into_iter().map(HostOutcome::ending).fold(of_list, Self::max)
    }
}

/// The hosts by outcome, for people: the number of each, and a line for each host with a reason.
pub(crate) fn render_outcomes<'a>(
    hosts: impl Iterator<Item = (&'a FleetHost, HostOutcome, &'a str)>,
) -> String {
    let mut by_outcome: BTreeMap<HostOutcome, Vec<(&FleetHost, &str)>> = BTreeMap::new();
    for (host, outcome, why) in hosts {
        by_outcome.entry(outcome).or_default().push((host, why));
    }
    let mut text = String::new();
    for (outcome, hosts) in by_outcome {
        let _ = writeln!(text, "{:<12} {}", outcome.name(), format_count(hosts.len(), "host"));
        for (host, why) in hosts.iter().filter(|(_, why)| !why.is_empty()) {
            let _ = writeln!(text, "  {} {}: {why}", host.name, host.interface);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worst_host_decides_the_ending() {
        use HostOutcome::{Drifted, Same, Stranded, TimedOut, Unreachable};
        for (outcomes, left_out, ending) in [
            (&[][..], 0, FleetEnding::Done),
            (&[Same], 0, FleetEnding::Done),
            (&[Same], 1, FleetEnding::Partial),
            (&[Same, Unreachable], 0, FleetEnding::Partial),
            (&[TimedOut, Drifted, Same], 1, FleetEnding::Drifted),
            (&[Stranded, Drifted, Unreachable], 0, FleetEnding::Stranded),
        ] {
            assert_eq!(FleetEnding::from_outcomes(outcomes.iter().copied(), left_out), ending);
        }
    }

    #[test]
    fn every_outcome_has_its_own_word() {
        let words: std::collections::BTreeSet<&str> =
            HostOutcome::ALL.iter().map(|outcome| outcome.name()).collect();
        assert_eq!(words.len(), HostOutcome::ALL.len());
    }
}
