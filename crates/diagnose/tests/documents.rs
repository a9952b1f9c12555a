//! The user guide's table of findings is made from the rules.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use latput_diagnose::rules::RULES;
use latput_diagnose::stages::{Part, STAGES};
use latput_testkit::blessed;

const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/diagnose.md");
const MARKS: [&str; 2] = [
    "<!-- findings: written by `LATPUT_BLESS=1 cargo test -p latput-diagnose --test documents` -->\n",
    "<!-- findings: end -->\n",
];

const STAGES_PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/design/stages.md");
const STAGES_MARKS: [&str; 2] = [
    "<!-- stages: written by `LATPUT_BLESS=1 cargo test -p latput-diagnose --test documents` -->\n",
    "<!-- stages: end -->\n",
];

#[test]
fn guide_has_the_table_of_findings() {
    let mut table = "\n| finding | what is looked at | how it costs |\n|---|---|---|\n".to_owned();
    for rule in RULES {
        let _ = writeln!(table, "| `{}` | {} | {} |", rule.id, rule.subject, rule.mechanism);
    }
    blessed::between(GUIDE, MARKS, &(table + "\n"));
}

#[test]
fn design_page_has_the_table_of_stages() {
    let mut table = "\n| stage | from where to where | it is |\n|---|---|---|\n".to_owned();
    for row in STAGES {
        let part = match row.part {
            Part::Path => "in the way",
            Part::Program => "the program's",
            Part::Beside => "beside",
            Part::Whole => "the whole",
        };
        let _ = writeln!(table, "| `{}` | {} | {part} |", row.name, row.meaning);
    }
    blessed::between(STAGES_PAGE, STAGES_MARKS, &(table + "\n"));
}

#[test]
fn names_of_findings_are_unique() {
    let names: BTreeSet<&str> = RULES.iter().map(|rule| rule.id).collect();
    assert_eq!(names.len(), RULES.len());
}
