//! `latput fleet verify --kept`: compares what each host keeps with what is in force there.

use std::process::ExitCode;

use latput_reach::broker::command::HostVerb;
use serde::Deserialize as _;
use serde_json::Value;

use super::done::HostOutcomes;
use super::finish;
use super::hosts::{FleetArgs, FleetRights};
use super::wanted::FleetWish;
use crate::context::CliContext;
use crate::document::keep::KeptFileState;
use crate::exit::CliError;

/// Asks every host for its `latput keep --check`.
pub(super) fn verify_kept(args: &FleetArgs, context: &CliContext) -> Result<ExitCode, CliError> {
    let fleet = args.open(&FleetRights::default(), || Ok(FleetWish::default()), context)?;
    finish::tell_open(args, &fleet, context);
    let mut done = HostOutcomes::new("verify-kept", &fleet);
    let all: Vec<usize> = (0..fleet.members.len()).collect();
    done.ask_hosts(&all, context, "hosts asked", |_| HostVerb::CheckKept, kept_outcome);
    Ok(done.print_outcomes(context, None))
}

/// A host's outcome by the document of its `latput keep --check`.
fn kept_outcome(document: &Value) -> (&'static str, String) {
    let interfaces = || document["interfaces"].as_array().into_iter().flatten();
    if interfaces().next().is_none() {
        return ("nothing-kept", String::new());
    }
    let parts =
        |name: &'static str| interfaces().filter_map(move |it| it[name].as_array()).flatten();
    let text = |value: &Value| latput_report::make_printable(value.as_str().unwrap_or("?"));
    let is_lost = |file: &&Value| {
        KeptFileState::deserialize(&file["state"]).is_ok_and(KeptFileState::is_lost)
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
            assert_eq!(kept_outcome(&kept_document("same", file)), ("same", String::new()));
        }
        let words = "rx-usecs is 3us, kept is 50us: the driver refused it";
        assert_eq!(
            kept_outcome(&kept_document("different", "whole")),
            ("different", words.to_owned())
        );
        let lost = ("different", "/etc/x.link: why".to_owned());
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
            ("unknown", words.to_owned())
        );
        assert_eq!(kept_outcome(&json!({"interfaces": []})).0, "nothing-kept");
        let without = json!({"interfaces": [{"interface": "eth0", "files": [], "knobs": []}]});
        assert_eq!(kept_outcome(&without).0, "unknown");
    }
}
