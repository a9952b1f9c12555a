//! The kernel's numbers are those of its specifications, and what latput makes no use of is told.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Family, set, name and number of each line, from the kernel's headers.
const NUMBERS: &str = include_str!("../src/netlink/numbers.txt");
/// The same from the kernel's YAML specifications.
const SPECS: &str = include_str!("netlink-specs.txt");

#[test]
fn netlink_numbers_match_kernel_specifications() {
    let headers: BTreeMap<_, _> = rows(NUMBERS).map(|row| (row.name, row.number)).collect();
    let mut compared = 0;
    for row in rows(SPECS) {
        assert_eq!(headers.get(row.name), Some(&row.number), "{row:?}");
        compared += 1;
    }
    assert!(compared > 200, "only {compared} attributes were compared");
}

/// `cargo test -p latput-linux --test netlink_numbers -- --nocapture` shows them.
#[test]
fn unused_parts_are_listed() {
    let mut used = BTreeSet::new();
    words_of(&sources(), &mut used);
    let mut unused = String::new();
    let mut before = ("", "");
    for Row { family, set, name, number } in rows(NUMBERS) {
        if used.contains(name) || name.ends_with("_UNSPEC") || name.ends_with("_PAD") {
            continue;
        }
        if (family, set) != before {
            let _ = write!(unused, "\nunknown to latput of {family} {set}:");
            before = (family, set);
        }
        let _ = write!(unused, " {name}={number}");
    }
    println!("{unused}");
    assert!(!unused.contains("ETHTOOL_A_COALESCE_RX_USECS="), "a knob's attribute is in use");
}

#[derive(Debug)]
struct Row {
    family: &'static str,
    set: &'static str,
    name: &'static str,
    number: u32,
}

fn rows(table: &'static str) -> impl Iterator<Item = Row> {
    table.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let [family, set, name, number] = words[..] else { panic!("not four words: {line}") };
        Row { family, set, name, number: number.parse().expect("a number") }
    })
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The words of all sources.
fn words_of(folder: &Path, words: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder of the sources") {
        let path = entry.expect("an entry of that folder").path();
        if path.is_dir() {
            words_of(&path, words);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a source file");
            let is_part = |char: char| char.is_ascii_alphanumeric() || char == '_';
            words.extend(text.split(|char| !is_part(char)).map(str::to_owned));
        }
    }
}
