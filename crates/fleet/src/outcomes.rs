//! Outcome of each host after a command, by its answer.

use std::collections::BTreeMap;

use latput_reach::broker::command::HostVerb;
use latput_report::make_printable;
use serde_json::Value;

use crate::context::FleetEnding;
use crate::fleet::Fleet;
use crate::inventory::FleetHost;
use crate::judge::HostState;
use crate::outcome::{HostOutcome, render_outcomes};
use crate::subprocess::Until;

/// Outcome of each host.
#[derive(Debug)]
pub struct HostOutcomes<'a> {
    /// The command: `undo`, `finish`, `keep` or `verify-kept`.
    pub action: &'static str,
    /// The rollout that was undone or finished.
    pub rollout: Option<String>,
    pub(crate) fleet: &'a Fleet<'a>,
    outcomes: BTreeMap<usize, (HostOutcome, String)>,
}

impl<'a> HostOutcomes<'a> {
    pub(crate) fn new(action: &'static str, fleet: &'a Fleet<'a>) -> Self {
        Self { action, rollout: None, fleet, outcomes: BTreeMap::new() }
    }

    pub(crate) fn set(&mut self, at: usize, outcome: HostOutcome, why: impl Into<String>) {
        self.outcomes.insert(at, (outcome, why.into()));
    }

    /// Leaves a host out for its state.
    pub(crate) fn leave_out(&mut self, at: usize, state: &HostState) {
        self.outcomes.insert(at, state.left_out());
    }

    /// The hosts with this outcome, by their place in the list.
    pub(crate) fn places_of(&self, wanted: HostOutcome) -> Vec<usize> {
        let hosts = self.outcomes.iter().filter(|(_, (outcome, _))| *outcome == wanted);
        hosts.map(|(at, _)| *at).collect()
    }

    /// Tells these hosts to do something, side by side; those that do have `outcome`, and what `said` makes of their answer.
    pub(crate) fn tell_hosts(
        &mut self,
        which: &[usize],
        (what, outcome): (&'static str, HostOutcome),
        verb: impl Fn(usize) -> HostVerb + Sync,
        said: impl Fn(&Value) -> String + Sync,
    ) {
        self.ask_hosts(which, what, verb, |document| match values_of_others(document) {
            stay if stay.is_empty() => (outcome, said(document)),
            stay => (HostOutcome::InPart, stay),
        });
    }

    /// Asks these hosts side by side; `judged` is each one's outcome by its answer, with words.
    pub(crate) fn ask_hosts(
        &mut self,
        which: &[usize],
        what: &str,
        verb: impl Fn(usize) -> HostVerb + Sync,
        judged: impl Fn(&Value) -> (HostOutcome, String) + Sync,
    ) {
        let until = Until::SecondStop(self.fleet.context.stop);
        let results = self.fleet.for_each(which, until, what, |work| {
            let input = work.host().setting_lines();
            match work.request_json(&verb(work.at), &input) {
                Ok(document) => judged(&document),
                Err(error) => error.into_outcome(),
            }
        });
        for (at, result) in results {
            self.outcomes.insert(at, result.unwrap_or_else(|| HostState::NotAsked.left_out()));
        }
    }

    /// The hosts with their outcomes and the reasons.
    pub fn hosts(&self) -> impl Iterator<Item = (&FleetHost, HostOutcome, &str)> {
        let hosts = self.outcomes.iter();
        hosts.map(|(at, (outcome, why))| (&self.fleet.hosts[*at], *outcome, why.as_str()))
    }

    /// The hosts by outcome, for people.
    pub fn render_text(&self) -> String {
        let name = self.rollout.as_ref().map_or(String::new(), |name| format!("{name}\n"));
        name + &render_outcomes(self.hosts())
    }

    /// How the command ended.
    pub fn ending(&self) -> FleetEnding {
        let outcomes = self.outcomes.values().map(|(outcome, _)| *outcome);
        FleetEnding::from_outcomes(outcomes, self.fleet.left_out)
    }
}

/// The values that stay since somebody else set them, as `latput undo` and `latput restore` name them; empty without any.
fn values_of_others(document: &Value) -> String {
    let restored = document["restored"].as_array().into_iter().flatten();
    let parts = std::iter::once(document).chain(restored);
    let others = parts.filter_map(|part| part["set_by_others"].as_array()).flatten();
    let words = others.map(|other| {
        let text = |key: &str| make_printable(other[key].as_str().unwrap_or("?"));
        let [knob, place, found, written] = ["knob", "place", "found", "written"].map(text);
        format!("{knob} ({place}) stays {found}: somebody else set it after {written}")
    });
    words.collect::<Vec<_>>().join("; ")
}

/// A host's outcome by the document of its `latput keep --check`.
pub(crate) fn kept_outcome(document: &Value) -> (HostOutcome, String) {
    let interfaces = || document["interfaces"].as_array().into_iter().flatten();
    if interfaces().next().is_none() {
        return (HostOutcome::NothingKept, String::new());
    }
    let parts =
        |name: &'static str| interfaces().filter_map(move |it| it[name].as_array()).flatten();
    let text = |value: &Value| make_printable(value.as_str().unwrap_or("?"));
    let is_lost = |file: &&Value| {
        let state = file["state"].as_str().unwrap_or_default();
        ["missing", "changed", "outranked", "not_used"].contains(&state)
    };
    let files = parts("files").filter(is_lost);
    let files = files.map(|file| format!("{}: {}", text(&file["file"]), text(&file["problem"])));
    let differs = |knob: &&Value| knob["state"] == "different";
    let is_unread = |knob: &Value| knob["state"] == "unreadable";
    let knobs = parts("knobs").filter(differs).map(|knob| {
        let found: Vec<&Value> = knob["in_force"].as_array().into_iter().flatten().collect();
        let is_one = found.windows(2).all(|pair| pair[0]["value"] == pair[1]["value"]);
        let values = match found.as_slice() {
            [first, ..] if is_one => text(&first["value"]),
            _ => {
                let words = |it: &&Value| format!("{} {}", text(&it["place"]), text(&it["value"]));
                found.iter().map(words).collect::<Vec<_>>().join(", ")
            }
        };
        let (name, kept) = (text(&knob["name"]), text(&knob["kept"]));
        format!("{name} is {values}, kept is {kept}: {}", text(&knob["reason"]))
    });
    let words: Vec<String> = files.chain(knobs).collect();
    if !words.is_empty() {
        return (HostOutcome::Different, words.join("; "));
    }
    if parts("knobs").next().is_none() {
        return (
            HostOutcome::Unknown,
            "its record has no values: run `latput fleet keep` again".to_owned(),
        );
    }
    let unread: Vec<String> =
        parts("knobs").filter(|knob| is_unread(knob)).map(|knob| text(&knob["name"])).collect();
    if unread.is_empty() {
        return (HostOutcome::Same, String::new());
    }
    (HostOutcome::Unknown, format!("cannot be read: {}", unread.join(", ")))
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

    fn kept_document(state: &str, file: &str) -> Value {
        let knob = json!({
            "name": "rx-usecs", "kept": "50us", "state": state, "reason": "the driver refused it",
            "in_force": [{"place": "device", "value": "3us"}],
        });
        let file = json!({"file": "/etc/x.link", "state": file, "problem": "why"});
        json!({"interfaces": [{"interface": "eth0", "files": [file], "knobs": [knob]}]})
    }

    #[test]
    fn kept_values_are_same_different_or_unknown() {
        for file in ["whole", "not_applied"] {
            assert_eq!(
                kept_outcome(&kept_document("same", file)),
                (HostOutcome::Same, String::new())
            );
        }
        let words = "rx-usecs is 3us, kept is 50us: the driver refused it";
        assert_eq!(
            kept_outcome(&kept_document("different", "whole")),
            (HostOutcome::Different, words.to_owned())
        );
        let lost = (HostOutcome::Different, "/etc/x.link: why".to_owned());
        for file in ["missing", "changed", "outranked", "not_used"] {
            assert_eq!(kept_outcome(&kept_document("same", file)), lost);
        }
        let mut queues = kept_document("different", "whole");
        queues["interfaces"][0]["knobs"][0]["in_force"] =
            json!([{"place": "rx-0", "value": "3us"}, {"place": "rx-1", "value": "50us"}]);
        assert!(kept_outcome(&queues).1.starts_with("rx-usecs is rx-0 3us, rx-1 50us, kept"));
        let words = "cannot be read: rx-usecs";
        assert_eq!(
            kept_outcome(&kept_document("unreadable", "whole")),
            (HostOutcome::Unknown, words.to_owned())
        );
        assert_eq!(kept_outcome(&json!({"interfaces": []})).0, HostOutcome::NothingKept);
        let without = json!({"interfaces": [{"interface": "eth0", "files": [], "knobs": []}]});
        assert_eq!(kept_outcome(&without).0, HostOutcome::Unknown);
    }
}
