//! The guide's table of workloads is made from the kinds' own rows.

use std::fmt::Write as _;

use latput_testkit::blessed;
use latput_trial::check::CHECKS;
use latput_trial::figures::{Parser, ParserRow, SPELLINGS};
use latput_trial::metric::Unit;
use latput_trial::workload::{COUNT, Field, FieldUnit, KINDS, PROBE_HZ, SOCKET_FIELDS};
use latput_units::{BitsPerSecond, Nanos};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/plans.md");
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/workloads/README.md");
const CHECKS_PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/checks.md");
const MARKS: [&str; 2] = ["<!-- workloads: begin -->\n", "<!-- workloads: end -->\n"];

#[test]
fn guide_has_every_kind_with_its_fields() {
    blessed::between(PATH, MARKS, &table());
}

#[test]
fn guide_lists_every_check() {
    let text = std::fs::read_to_string(CHECKS_PAGE).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(lines.len(), CHECKS.len());
    for (line, row) in lines.iter().zip(CHECKS) {
        assert!(line.starts_with(&format!("| `{}` | ", row.name)), "{line}");
        assert!(line.ends_with(&format!(" | {} |", row.voids.describe())), "{line}");
    }
}

#[test]
fn guide_lists_every_parser() {
    let mut text = String::from(
        "| program | needs | metrics of latput | metrics of its own | distribution of latency | remarks |\n|---|---|---|---|---|---|\n",
    );
    let code = |names: &[&str]| {
        names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    };
    for parser in Parser::ALL {
        let ParserRow { name, needs, gives, own, histogram, remark, quiet_start, .. } =
            parser.row();
        let (gives, own) = (code(gives), code(own));
        let quiet = if *quiet_start == Nanos::ZERO {
            String::new()
        } else {
            format!(" It sends nothing at first: the warm-up begins {quiet_start} after its start.")
        };
        let _ = writeln!(
            text,
            "| `{name}` | {needs} | {gives} | {own} | {histogram} | {remark}{quiet} |"
        );
    }
    blessed::between(PROGRAMS, ["<!-- parsers: begin -->\n", "<!-- parsers: end -->\n"], &text);
}

#[test]
fn guide_has_every_unit_of_a_figure() {
    let mut text = String::from("| base unit | spellings |\n|---|---|\n");
    for unit in Unit::ALL.iter().filter(|unit| unit.is_of_programs()) {
        let spellings = SPELLINGS.iter().filter(|printed| printed.unit == *unit);
        let spellings: Vec<String> =
            spellings.map(|printed| format!("`{}`", printed.spelling)).collect();
        let _ = writeln!(text, "| {} | {} |", unit.name(), spellings.join(", "));
    }
    blessed::between(PROGRAMS, ["<!-- units: begin -->\n", "<!-- units: end -->\n"], &text);
}

fn table() -> String {
    let mut text = String::from("| kind | what flows | fields (default) |\n|---|---|---|\n");
    for kind in KINDS {
        let fields: Vec<String> = kind.fields.iter().map(in_words).collect();
        let _ = writeln!(text, "| `{}` | {} | {} |", kind.name, kind.about, fields.join("; "));
    }
    let sockets: Vec<String> = SOCKET_FIELDS.iter().chain([&COUNT]).map(in_words).collect();
    let _ = writeln!(
        text,
        "| all but `ping` | sockets at both ends, CPUs of the traffic threads within the host's | {}; `congestion`: \
         `TCP_CONGESTION`, not of UDP; `sut_cpus`, `generator_cpus` |",
        sockets.join("; ")
    );
    let _ = writeln!(text, "| all | | {}; `name` |", in_words(&PROBE_HZ));
    text
}

/// The default as written in plans.
fn default_text(field: &Field) -> String {
    match (field.unit, field.default) {
        (FieldUnit::BitRate, None) => "max".to_owned(),
        (_, None) => "off".to_owned(),
        (FieldUnit::Time, Some(ns)) => Nanos::from_ns(ns).to_string(),
        (FieldUnit::BitRate, Some(rate)) => BitsPerSecond::new(rate).to_string(),
        (FieldUnit::Switch, Some(value)) => (value != 0).to_string(),
        (FieldUnit::Distribution, Some(0)) => "fixed".to_owned(),
        (FieldUnit::Distribution, Some(_)) => "exponential".to_owned(),
        (_, Some(value)) => value.to_string(),
    }
}

/// The field with its default, its range where that is one of numbers, and what it is.
fn in_words(field: &Field) -> String {
    let Field { name, about, least, most, .. } = field;
    let default = default_text(field);
    match field.unit {
        FieldUnit::Count | FieldUnit::Bytes | FieldUnit::PerSecond if *most < u64::MAX >> 1 => {
            format!("`{name}` ({default}; {least} to {most}): {about}")
        }
        _ => format!("`{name}` ({default}): {about}"),
    }
}
