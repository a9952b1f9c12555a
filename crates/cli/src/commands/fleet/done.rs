//! Outcome of each host after a fleet command.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use latput_experiment::broker::command::HostVerb;

use super::crew;
use super::hosts::{Fleet, InPlace, Until};
use super::table::hosts_in_words;
use super::tell::{Heard, tell};
use crate::context::Context;
use crate::document::fleet::{FleetDoneDocument, FleetDoneHost};
use crate::exit::Code;
use crate::output;

/// Outcome of each host.
pub(super) struct Done<'a> {
    action: &'static str,
    fleet: &'a Fleet,
    outcomes: BTreeMap<usize, (&'static str, String)>,
}

impl<'a> Done<'a> {
    pub(super) fn new(action: &'static str, fleet: &'a Fleet) -> Self {
        Self { action, fleet, outcomes: BTreeMap::new() }
    }

    pub(super) fn say(&mut self, at: usize, outcome: &'static str, why: String) {
        self.outcomes.insert(at, (outcome, why));
    }

    /// Tells these hosts to do something, side by side; those that do have `outcome`, and what `said` makes of their answer.
    pub(super) fn tell(
        &mut self,
        which: &[usize],
        context: &Context,
        (what, outcome): (&'static str, &'static str),
        verb: impl Fn(&usize) -> HostVerb + Sync,
        said: impl Fn(&serde_json::Value) -> String + Sync,
    ) {
        let fleet = self.fleet;
        let until = Until::SecondStop(&context.stop);
        let one = |at: &usize, place: &mut crew::HostSlot<'_>| {
            let member = &fleet.members[*at];
            let mut waiting = InPlace { place, until };
            match tell(fleet, member, &verb(at), &member.host.setting_lines(), &mut waiting) {
                Heard::Done(out) => match serde_json::from_slice(&out) {
                    Ok(document) => (outcome, said(&document)),
                    Err(_) => ("lost", "its answer is not from latput".to_owned()),
                },
                Heard::Refused(error) if error.kind == "stranded" => ("stranded", error.message),
                Heard::Refused(error) => ("refused", error.message),
                Heard::Lost(why) => ("lost", why),
            }
        };
        let is_over = || until.is_over();
        let results = crew::side_by_side(which, fleet.parallel, is_over, what, one);
        for (at, result) in which.iter().zip(results) {
            let (outcome, why) = result.unwrap_or(("left-out", "it was not reached".to_owned()));
            self.say(*at, outcome, why);
        }
    }

    /// Prints what became of every host, and gives the exit code.
    pub(super) fn end(self, context: &Context, rollout: Option<String>) -> ExitCode {
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
            Code::Stranded
        } else if is_any(&["left-out", "refused", "lost", "went-back"]) {
            Code::Partial
        } else {
            Code::Done
        };
        code.into()
    }
}
