//! The user guide's table of knobs is made from the catalogue.

use std::fmt::Write as _;

use latput_knobs::Knob;
use latput_testkit::blessed;

const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
const MARKS: [&str; 2] = [
    "<!-- knobs: written by `LATPUT_BLESS=1 cargo test -p latput-knobs --test documents` -->\n",
    "<!-- knobs: end -->\n",
];

#[test]
fn guide_has_the_table_of_knobs() {
    blessed::between(GUIDE, MARKS, &table());
}

fn table() -> String {
    let mut text = String::new();
    let mut before = None;
    for knob in Knob::ALL {
        let spec = knob.spec();
        if before != Some(spec.group) {
            before = Some(spec.group);
            let title = spec.group.to_string();
            let (first, rest) = title.split_at(1);
            let _ = write!(
                text,
                "\n### {}{rest}\n\n| knob | what it does | values | where it lives | a change is |\n\
                 |---|---|---|---|---|\n",
                first.to_uppercase()
            );
        }
        let link = if spec.resets_link { ", link" } else { "" };
        let link = if spec.is_for_new_sockets { ", new sockets" } else { link };
        let _ = writeln!(
            text,
            "| `{knob}` | {} | {} | {} | {}{link} |",
            spec.doc,
            spec.allowed(),
            spec.lives,
            spec.tier
        );
    }
    text + "\n"
}
