//! `latput show`: lists every knob of an interface with value, unit and range, and whether it can
//! be set.

use std::fmt::Write as _;
use std::process::ExitCode;

use latput_knobs::{self as knobs, KernelErrorKind, KernelRead, Knob, Scope, ValueKind};
use latput_linux::route::Route;
use latput_linux::{Capability, LinuxKernel, Surveyed, facts, interfaces};
use latput_report::interface_words;
use latput_report::lines::{display_width, truncate_text};

use crate::commands::change;
use crate::context::CliContext;
use crate::document::{ShowDocument, ShownFact, ShownKnob, ShownValue};
use crate::exit::CliError;
use crate::output;

/// Below this width the range is in a line of its own.
const NARROW_COLUMNS: usize = 80;
/// Least width with room for descriptions.
const WIDE_COLUMNS: usize = 120;
/// Columns of a name: the longest has 22 characters.
const NAME: usize = 23;
/// Columns of a value, a range and a tier.
const VALUE: usize = 18;
const RANGE: usize = 22;
const TIER: usize = 13;
/// The fact that tells whose the knobs of an interface are that lies on others.
const OWNER: &str = "lies on";

/// Show the knobs of an interface and their values.
///
/// Also shows the range of each, whether it can be set here, and what a change disturbs.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput show                    the interfaces of this host
  latput show eth0               every knob that one has
  latput show eth0 --all         also those that it lacks, and why
  latput show eth0 rx-usecs mtu  all that is known of these
  latput show eth0 --json        everything, with the host's facts, for scripts")]
pub(crate) struct Args {
    /// The interface; without one, list the interfaces.
    #[arg(value_name = "IFACE", value_parser = change::present_name)]
    interface: Option<String>,
    /// Only these knobs, with all details.
    #[arg(value_name = "KNOB")]
    knobs: Vec<String>,
    /// Also show the knobs that the interface, its driver or this kernel lacks, with the reason.
    #[arg(long)]
    all: bool,
}

impl Args {
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        let mut wanted: Vec<Knob> = Vec::new();
        for name in &self.knobs {
            let knob = name
                .parse()
                .map_err(|error: knobs::UnknownKnob| CliError::usage(error.to_string()))?;
            wanted.push(knob);
        }
        let Some(interface) = &self.interface else {
            list_interfaces(context)?;
            return Ok(ExitCode::SUCCESS);
        };
        let mut document = read(interface)?;
        if !wanted.is_empty() {
            let is_wanted = |name: &str| wanted.iter().any(|knob| knob.name() == name);
            document.knobs.retain(|knob| is_wanted(&knob.name));
        }
        if context.json {
            output::print_json(&document)?;
        } else if wanted.is_empty() {
            output::print_text(&render_table(
                &document,
                self.all,
                output::stdout_screen().columns,
            ))?;
        } else {
            output::print_text(&render_details(&document))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn list_interfaces(context: &CliContext) -> Result<(), CliError> {
    let links = Route::open()?.links()?;
    if context.json {
        let names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
        return output::print_json(&serde_json::json!({ "schema": 1, "interfaces": names }));
    }
    let mut text = String::new();
    for link in &links {
        let state = if link.is_up { "up" } else { "down" };
        let _ = writeln!(text, "{:<16} {:<5} mtu {}", link.name, state, link.mtu.get());
    }
    text.push_str("\n`latput show IFACE` shows the knobs of one.\n");
    output::print_text(&text)
}

/// Reads all knobs. The reason of an unreadable one takes the place of its values.
fn read(interface: &str) -> Result<ShowDocument, CliError> {
    let kernel = LinuxKernel::open()?;
    let mut knobs = Vec::new();
    let mut hidden: Vec<&str> = Vec::new();
    for surveyed in kernel.survey(interface) {
        if let Err(error) = &surveyed.values
            && error.kind == KernelErrorKind::NoInterface
        {
            return Err(CliError::usage(knobs::format_no_interface(interface)));
        }
        if surveyed.values.as_ref().is_err_and(|error| error.kind == KernelErrorKind::Permission) {
            hidden.push(surveyed.knob.name());
        }
        knobs.push(document_knob(&kernel, interface, surveyed));
    }
    let owner = interfaces::describe_stacking(interface).map(|owner| (OWNER.to_owned(), owner));
    let missing = missing_privileges(&hidden);
    let facts = facts::collect(interface)
        .into_iter()
        .chain(owner)
        .map(|(name, value)| ShownFact { name, value })
        .collect();
    Ok(ShowDocument { schema: 1, interface: interface.to_owned(), knobs, facts, missing })
}

/// The privileges that this process lacks, for the knobs that it could not read and for all others.
fn missing_privileges(hidden: &[&str]) -> Vec<String> {
    let mut missing = Vec::new();
    if !Capability::NetAdmin.is_effective() {
        let name = Capability::NetAdmin.name();
        missing.push(format!("setting any of these needs {name}: run `latput set` as root"));
    }
    if !hidden.is_empty() {
        missing.push(format!("this user may not read {}: run as root", hidden.join(", ")));
    }
    missing
}

fn document_knob(kernel: &LinuxKernel, interface: &str, surveyed: Surveyed) -> ShownKnob {
    let absent = surveyed.is_absent();
    let Surveyed { knob, values, capability, limits } = surveyed;
    let spec = knob.spec();
    let (values, unreadable) = match values {
        Ok(values) => (values, None),
        Err(error) => (Vec::new(), Some(error.reason)),
    };
    let (settable, how) = match capability {
        knobs::Capability::Settable(how) => (true, how),
        knobs::Capability::ReadOnly(why) | knobs::Capability::Absent(why) => (false, why),
    };
    let is_number = matches!(spec.kind, ValueKind::Count | ValueKind::Time);
    let (min, max) = spec.range_within(limits);
    let values = values.into_iter().map(|(place, value)| ShownValue {
        place: place.to_string(),
        meaning: kernel.meaning(interface, knob, &value).map(ToOwned::to_owned),
        value: value.to_string(),
    });
    ShownKnob {
        name: knob.name().to_owned(),
        group: spec.group.to_string(),
        scope: if spec.scope == Scope::Host { "host" } else { "interface" }.to_owned(),
        absent,
        values: values.collect(),
        unreadable,
        allowed: spec.allowed_within(limits),
        unit: spec.unit.to_owned(),
        min: is_number.then_some(min),
        max: is_number.then_some(max),
        tier: spec.tier.to_string(),
        resets_link: kernel.resets_link(interface, knob),
        settable,
        how,
        doc: spec.doc.to_owned(),
    }
}

/// One line for each knob, by group, with its description if there is room.
fn render_table(document: &ShowDocument, with_absent: bool, columns: usize) -> String {
    let mut text = document.interface.clone();
    for name in ["driver", "firmware"] {
        let fact = document.facts.iter().find(|fact| fact.name == name);
        if let Some(fact) = fact.filter(|fact| has_known_value(&fact.value)) {
            let _ = write!(text, ", {name} {}", fact.value);
        }
    }
    text.push('\n');
    for owner in document.facts.iter().filter(|fact| fact.name == OWNER) {
        let _ = writeln!(text, "{}", owner.value);
    }
    let mut group = "";
    let mut hidden = 0;
    for knob in &document.knobs {
        if knob.absent && !with_absent {
            hidden += 1;
            continue;
        }
        if group != knob.group {
            group = &knob.group;
            let _ = writeln!(text, "\n{group}");
        }
        text.push_str(&render_knob(knob, columns));
    }
    if hidden > 0 {
        let interface = interface_words(&document.interface);
        let _ = writeln!(
            text,
            "\n{hidden} more are not available: `latput show --all {interface}` says why.\n`latput show \
             {interface} KNOB` shows all details of one."
        );
    }
    text + &render_missing(document)
}

/// Rights that this process lacks, said once.
fn render_missing(document: &ShowDocument) -> String {
    document.missing.iter().fold(String::new(), |text, missing| text + "\n" + missing + "\n")
}

/// Whether a fact has a value other than "none".
fn has_known_value(fact: &str) -> bool {
    !matches!(fact, "none" | "N/A" | "not present") && !fact.starts_with("unreadable")
}

fn render_knob(knob: &ShownKnob, columns: usize) -> String {
    let value = format_values(knob);
    let tier = match (&knob.settable, knob.resets_link) {
        (false, _) => "fixed",
        (true, true) if knob.tier == "disruptive" => "link reset",
        (true, true) => "may reset",
        (true, false) => &knob.tier,
    };
    let mut line = format!("  {:<NAME$}", knob.name);
    let rest = format!("{:<RANGE$} {tier:<TIER$}", format_range(knob));
    if display_width(&value) <= VALUE && columns >= NARROW_COLUMNS {
        let _ = write!(line, "{value:<VALUE$} {rest}");
    } else {
        let indent = if columns >= NARROW_COLUMNS { NAME + VALUE + 1 } else { NAME };
        let _ = write!(line, "{value}\n  {:<indent$}{rest}", "");
    }
    if columns >= WIDE_COLUMNS {
        let _ = write!(line, " {}", knob.doc);
    }
    let mut text = line.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    text.push('\n');
    // `fixed` already says that the driver cannot change an offload.
    let is_plain = knob.settable || knob.how.contains("the driver cannot change");
    if knob.values.is_empty() || !is_plain {
        let reason = knob.unreadable.as_ref().unwrap_or(&knob.how);
        let _ =
            writeln!(text, "      {}", truncate_text(reason, columns.saturating_sub(6).max(20)));
    }
    text
}

/// The value, or the values of the places if they differ.
fn format_values(knob: &ShownKnob) -> String {
    let one = |shown: &ShownValue| match &shown.meaning {
        Some(meaning) => format!("{} ({meaning})", shown.value),
        None => shown.value.clone(),
    };
    match knob.values.as_slice() {
        [] if knob.absent => "-".to_owned(),
        [] => "unreadable".to_owned(),
        [only] => one(only),
        [first, rest @ ..] if rest.iter().all(|other| other.value == first.value) => {
            format!("{} (all {})", one(first), knob.values.len())
        }
        many => {
            let places = many.iter().map(|value| format!("{}: {}", value.place, one(value)));
            places.collect::<Vec<_>>().join(", ")
        }
    }
}

/// The range in a few characters: `0..10000 us`, `on|off`.
fn format_range(knob: &ShownKnob) -> String {
    if let (Some(min), Some(max)) = (knob.min, knob.max) {
        return format!("{min}..{max} {}", knob.unit);
    }
    let kind = knob.name.parse::<Knob>().map(|knob| knob.spec().kind);
    let words = match kind {
        Ok(ValueKind::Switch) => "on|off",
        Ok(ValueKind::Cpus) => "CPUs",
        Ok(ValueKind::Qdisc) => "a discipline",
        Ok(ValueKind::Table) => "equal N, or a list",
        Ok(ValueKind::Profile) => "five points",
        Ok(ValueKind::Sizes) => "three sizes",
        Ok(ValueKind::Module) => "a name",
        Ok(ValueKind::Count | ValueKind::Time) | Err(_) => "",
    };
    words.to_owned()
}

/// Owner of the value, in words.
fn describe_value_scope(knob: &ShownKnob) -> &'static str {
    let has = |kind: &str| knob.values.iter().any(|value| value.place.starts_with(kind));
    if knob.scope != "interface" {
        "all interfaces of the host share the value"
    } else if has("napi of") {
        "each NAPI instance of the interface has a value"
    } else if has("interrupt") {
        "each interrupt of the interface has a value"
    } else if has("rx-") || has("tx-") {
        "each queue of the interface has a value"
    } else {
        "the interface has one value"
    }
}

/// All details of each knob.
fn render_details(document: &ShowDocument) -> String {
    let mut text = String::new();
    for knob in &document.knobs {
        let mark = if knob.settable { "can be set through" } else { "cannot be set:" };
        let link = if knob.resets_link { ", takes the link down and up" } else { "" };
        let _ = writeln!(text, "{}: {}", knob.name, format_values(knob));
        if let Some(reason) = &knob.unreadable {
            let _ = writeln!(text, "  not readable: {reason}");
        }
        let _ = writeln!(text, "  {}", knob.doc);
        let _ = writeln!(text, "  takes {}", knob.allowed);
        let _ = writeln!(text, "  {mark} {}", knob.how);
        let _ =
            writeln!(text, "  a change is {}{link}; {}\n", knob.tier, describe_value_scope(knob));
    }
    text + render_missing(document).trim_start()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_fits_eighty_columns() {
        let document = sample_document();
        let text = render_table(&document, false, 80);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(!text.contains("rx-ring") && text.contains("1 more are not available"), "{text}");
        assert!(text.contains("3us (dynamic conservative)"), "{text}");
        assert!(!text.contains("what it does"), "{text}");
        let text = render_table(&document, true, 160);
        assert!(text.contains("rx-ring") && text.contains("no such ring"), "{text}");
        assert!(text.contains("what it does"), "{text}");
    }

    #[test]
    fn details_say_whose_a_value_is() {
        let mut document = sample_document();
        for (scope, place, said) in [
            ("interface", "napi of rx-0", "each NAPI instance of the interface has a value"),
            ("interface", "tx-0", "each queue of the interface has a value"),
            ("interface", "interrupt 0", "each interrupt of the interface has a value"),
            ("interface", "device", "the interface has one value"),
            ("host", "host", "all interfaces of the host share the value"),
        ] {
            document.knobs[0].scope = scope.to_owned();
            document.knobs[0].values[0].place = place.to_owned();
            let text = render_details(&document);
            assert!(text.contains(said), "{place}: {text}");
        }
    }

    #[test]
    fn values_that_differ_are_told_by_place() {
        let mut knob = sample_document().knobs.swap_remove(0);
        let value = |place: &str, value: &str| ShownValue {
            place: place.to_owned(),
            value: value.to_owned(),
            meaning: None,
        };
        knob.values = vec![value("rx-0", "1"), value("rx-1", "1")];
        assert_eq!(format_values(&knob), "1 (all 2)");
        knob.values = vec![value("rx-0", "1"), value("rx-1", "2")];
        assert_eq!(format_values(&knob), "rx-0: 1, rx-1: 2");
        knob.values = Vec::new();
        assert_eq!(format_values(&knob), "unreadable");
    }

    fn sample_document() -> ShowDocument {
        let knob = |name: &str, value: Option<(&str, &str)>| ShownKnob {
            name: name.to_owned(),
            group: "interrupt coalescing".to_owned(),
            scope: "interface".to_owned(),
            absent: value.is_none(),
            values: value
                .into_iter()
                .map(|(value, meaning)| ShownValue {
                    place: "device".to_owned(),
                    value: value.to_owned(),
                    meaning: Some(meaning.to_owned()),
                })
                .collect(),
            unreadable: value.is_none().then(|| "no such ring".to_owned()),
            allowed: "a time".to_owned(),
            unit: "us".to_owned(),
            min: Some(0),
            max: Some(1_000_000),
            tier: "hitless".to_owned(),
            resets_link: false,
            settable: true,
            how: "ethtool".to_owned(),
            doc: "what it does".to_owned(),
        };
        ShowDocument {
            schema: 1,
            interface: "eth0".to_owned(),
            knobs: vec![
                knob("rx-usecs", Some(("3us", "dynamic conservative"))),
                knob("rx-ring", None),
            ],
            facts: Vec::new(),
            missing: Vec::new(),
        }
    }
}
