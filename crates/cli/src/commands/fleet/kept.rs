//! `latput fleet verify --kept`: compares what each host keeps with what is in force there.

use std::process::ExitCode;

use latput_experiment::broker::command::HostVerb;
use serde_json::Value;

use super::done::Done;
use super::hosts::{FleetArgs, FleetRights};
use super::wanted::FleetWish;
use crate::context::Context;
use crate::exit::CliError;

/// Asks every host for its `latput keep --check`.
pub(super) fn verify(args: &FleetArgs, context: &Context) -> Result<ExitCode, CliError> {
    let fleet = args.open(&FleetRights::default(), || Ok(FleetWish::default()), context)?;
    let mut done = Done::new("verify-kept", &fleet);
    let all: Vec<usize> = (0..fleet.members.len()).collect();
    done.ask(&all, context, "hosts asked", |_| HostVerb::CheckKept, outcome);
    Ok(done.end(context, None))
}

/// A host's outcome by the document of its `latput keep --check`.
fn outcome(document: &Value) -> (&'static str, String) {
    let interfaces = || document["interfaces"].as_array().into_iter().flatten();
    let parts =
        |name: &'static str| interfaces().filter_map(move |it| it[name].as_array()).flatten();
    let text = |value: &Value| latput_report::printable(value.as_str().unwrap_or("?"));
    let files = parts("files").filter(|file| !file["problem"].is_null());
    let files = files.map(|file| format!("{}: {}", text(&file["file"]), text(&file["problem"])));
    let differs = |knob: &&Value| knob["state"] == "different";
    let is_unread = |knob: &Value| knob["state"] == "unreadable";
    let knobs = parts("knobs").filter(differs).map(|knob| {
        let values = knob["in_force"].as_array().into_iter().flatten();
        let mut values: Vec<String> = values.map(|value| text(&value["value"])).collect();
        values.dedup();
        let (name, kept) = (text(&knob["name"]), text(&knob["kept"]));
        format!("{name} is {}, kept is {kept}: {}", values.join(", "), text(&knob["reason"]))
    });
    let words: Vec<String> = files.chain(knobs).collect();
    if !words.is_empty() {
        return ("different", words.join("; "));
    }
    if parts("knobs").next().is_none() {
        return ("unknown", "its record has no values: run `latput fleet keep` again".to_owned());
    }
    let unread: Vec<String> =
        parts("knobs").filter(|knob| is_unread(knob)).map(|knob| text(&knob["name"])).collect();
    if unread.is_empty() {
        return ("same", String::new());
    }
    ("unknown", format!("cannot be read: {}", unread.join(", ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document(state: &str, problem: Option<&str>) -> Value {
        let knob = json!({
            "name": "rx-usecs", "kept": "50us", "state": state, "reason": "the driver refused it",
            "in_force": [{"place": "device", "value": "3us"}],
        });
        let file = json!({"file": "/etc/x.link", "state": "whole", "problem": problem});
        json!({"interfaces": [{"interface": "eth0", "files": [file], "knobs": [knob]}]})
    }

    #[test]
    fn kept_values_are_same_different_or_unknown() {
        assert_eq!(outcome(&document("same", None)), ("same", String::new()));
        let words = "rx-usecs is 3us, kept is 50us: the driver refused it";
        assert_eq!(outcome(&document("different", None)), ("different", words.to_owned()));
        let words = "/etc/x.link: it is not there any more";
        let missing = document("same", Some("it is not there any more"));
        assert_eq!(outcome(&missing), ("different", words.to_owned()));
        let words = "cannot be read: rx-usecs";
        assert_eq!(outcome(&document("unreadable", None)), ("unknown", words.to_owned()));
        assert_eq!(outcome(&json!({"interfaces": []})).0, "unknown");
    }
}
