//! The user guide's table of knobs is made from the catalogue.

use std::fmt::Write as _;
use std::fs;

use latput_knobs::Knob;

const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
const BEGIN: &str =
    "<!-- knobs: written by `LATPUT_BLESS=1 cargo test -p latput-knobs --test documents` -->\n";
const END: &str = "<!-- knobs: end -->\n";

/// With `LATPUT_BLESS=1` in the environment the table is written anew.
#[test]
fn the_guide_has_the_table_of_knobs() {
    let guide = fs::read_to_string(GUIDE).unwrap();
    let (before, rest) = guide.split_once(BEGIN).expect("docs/settings.md has the first mark");
    let (kept, after) = rest.split_once(END).expect("docs/settings.md has the second mark");
    let table = table();
    if std::env::var_os("LATPUT_BLESS").is_some() {
        fs::write(GUIDE, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
    } else {
        assert_eq!(kept, table, "docs/settings.md: write it anew with LATPUT_BLESS=1");
    }
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
