//! Outcome of each host after a fleet command.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use latput_reach::broker::command::HostVerb;

use super::crew;
use super::hosts::{Fleet, InPlace, StopCondition};
use super::table::hosts_in_words;
use super::tell::{CommandReply, run_host_command};
use crate::context::CliContext;
use crate::document::fleet::{FleetDoneDocument, FleetDoneHost};
use crate::exit::ExitReason;
use crate::output;

/// Outcome of each host.
pub(super) struct HostOutcomes<'a> {
    action: &'static str,
    fleet: &'a Fleet,
    outcomes: BTreeMap<usize, (&'static str, String)>,
}

impl<'a> HostOutcomes<'a> {
    pub(super) fn new(action: &'static str, fleet: &'a Fleet) -> Self {
        Self { action, fleet, outcomes: BTreeMap::new() }
    }

    pub(super) fn set_outcome(&mut self, at: usize, outcome: &'static str, why: String) {
        self.outcomes.insert(at, (outcome, why));
    }

    /// Tells these hosts to do something, side by side; those that do have `outcome`, and what `said` makes of their answer.
    pub(super) fn run_on_hosts(
        &mut self,
        which: &[usize],
        context: &CliContext,
        (what, outcome): (&'static str, &'static str),
        verb: impl Fn(&usize) -> HostVerb + Sync,
        said: impl Fn(&serde_json::Value) -> String + Sync,
    ) {
        self.ask_hosts(which, context, what, verb, |document| match values_of_others(document) {
            stay if stay.is_empty() => (outcome, said(document)),
            stay => ("in-part", stay),
        });
    }

    /// Asks these hosts side by side; `judged` is each one's outcome by its answer, with words.
    pub(super) fn ask_hosts(
        &mut self,
        which: &[usize],
        context: &CliContext,
        what: &'static str,
        verb: impl Fn(&usize) -> HostVerb + Sync,
        judged: impl Fn(&serde_json::Value) -> (&'static str, String) + Sync,
    ) {
        let fleet = self.fleet;
        let until = StopCondition::SecondStop(&context.stop);
        let one = |at: &usize, place: &mut crew::HostSlot<'_>| {
            let member = &fleet.members[*at];
            let mut waiting = InPlace { place, until };
            match run_host_command(
                fleet,
                member,
                &verb(at),
                &member.host.setting_lines(),
                &mut waiting,
            ) {
                CommandReply::Done(out) => match serde_json::from_slice(&out) {
                    Ok(document) => judged(&document),
                    Err(_) => ("lost", "its answer is not from latput".to_owned()),
                },
                CommandReply::Refused(error) if error.kind == "stranded" => {
                    ("stranded", error.message)
                }
                CommandReply::Refused(error) => ("refused", error.message),
                CommandReply::Lost(why) => ("lost", why),
            }
        };
        let is_over = || until.is_over();
        let results = crew::side_by_side(which, fleet.parallel, is_over, what, one);
        for (at, result) in which.iter().zip(results) {
            let (outcome, why) = result.unwrap_or(("left-out", "it was not reached".to_owned()));
            self.set_outcome(*at, outcome, why);
        }
    }

    /// Prints what became of every host, and gives the exit code.
    pub(super) fn print_outcomes(self, context: &CliContext, rollout: Option<String>) -> ExitCode {
        let of_outcome =
            |name: &str| self.outcomes.values().filter(|(outcome, _)| *outcome == name).count();
        if context.json {
            let hosts = self.outcomes.iter().map(|(at, (outcome, why))| {
                FleetDoneHost::new(&self.fleet.members[*at].host, outcome, why)
            });
            let hosts = hosts.collect();
            let action = self.action.to_owned();
            output::print_change_json(&FleetDoneDocument { schema: 1, action, rollout, hosts });
        } else {
            let mut text = rollout.map_or(String::new(), |name| format!("{name}\n"));
            let mut names: Vec<&str> =
                self.outcomes.values().map(|(outcome, _)| *outcome).collect();
            names.sort_unstable();
            names.dedup();
            for name in names {
                let _ = writeln!(text, "{name:<12} {}", hosts_in_words(of_outcome(name)));
                let hosts = self
                    .outcomes
                    .iter()
                    .filter(|(_, (outcome, why))| *outcome == name && !why.is_empty());
                for (at, (_, why)) in hosts {
                    let host = &self.fleet.members[*at].host;
                    let _ = writeln!(text, "  {} {}: {why}", host.name, host.interface);
                }
            }
            output::print_change(&text);
        }
        let is_any = |names: &[&str]| names.iter().any(|name| of_outcome(name) > 0);
        let code = if is_any(&["stranded"]) {
            ExitReason::Stranded
        } else if is_any(&["different"]) {
            ExitReason::Drifted
        } else if self.fleet.left_out > 0
            || is_any(&["in-part", "unknown", "nothing-kept", "left-out", "refused"])
            || is_any(&["lost", "went-back"])
        {
            ExitReason::Partial
        } else {
            ExitReason::Done
        };
        code.into()
    }
}

/// The values that stay since somebody else set them, as `latput undo` and `latput restore` name them; empty without any.
fn values_of_others(document: &serde_json::Value) -> String {
    let restored = document["restored"].as_array().into_iter().flatten();
    let parts = std::iter::once(document).chain(restored);
    let others = parts.filter_map(|part| part["set_by_others"].as_array()).flatten();
    let words = others.map(|other| {
        let text = |key: &str| latput_report::make_printable(other[key].as_str().unwrap_or("?"));
        let [knob, place, found, written] = ["knob", "place", "found", "written"].map(text);
        format!("{knob} ({place}) stays {found}: somebody else set it after {written}")
    });
    words.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_set_by_others_are_named() {
        let other = json!({"knob": "gro", "place": "device", "found": "off", "written": "on"});
        let words = "gro (device) stays off: somebody else set it after on";
        let undone = json!({"schema": 1, "undone": 3, "set_by_others": [other]});
        assert_eq!(values_of_others(&undone), words);
        let restored = json!({"schema": 1, "restored": [{"set_by_others": []}, undone]});
        assert_eq!(values_of_others(&restored), words);
        assert_eq!(values_of_others(&json!({"schema": 1, "files": []})), "");
    }
}
