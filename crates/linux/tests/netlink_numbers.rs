//! The kernel's numbers in `netlink/uapi.rs` are those of the kernel's headers, and what latput makes no use of is told.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Family, set, name and number of each line, from the kernel's headers.
const NUMBERS: &str = include_str!("netlink-numbers.txt");
/// The same from the kernel's YAML specifications.
const SPECS: &str = include_str!("netlink-specs.txt");
/// From here on the file of constants is written by the test.
const MARK: &str = "\n// Written by tests/netlink_numbers.rs";

/// With `LATPUT_BLESS=1` in the environment the constants are written anew.
#[test]
fn constants_are_the_numbers_of_the_kernels_headers() {
    let path = sources().join("netlink/uapi.rs");
    let text = fs::read_to_string(&path).unwrap();
    let head = &text[..text.find(MARK).expect("the mark before the constants")];
    let expected = format!("{head}{MARK} from tests/netlink-numbers.txt.\n{}", constants());
    latput_testkit::blessed::file(&path, &expected);
}

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

fn constants() -> String {
    let mut text = String::new();
    let mut before = ("", "");
    for Row { family, set, name, number } in rows(NUMBERS) {
        if (family, set) != before {
            let _ = write!(text, "\n// {family}, {set}\n");
            before = (family, set);
        }
        let _ = writeln!(text, "pub(crate) const {name}: {} = {number};", width(family, set));
    }
    text
}

/// The type in which messages carry the numbers of a set.
fn width(family: &str, set: &str) -> &'static str {
    match (family, set) {
        ("rtnetlink", "messages") => "u16",
        (_, "messages" | "operations" | "commands" | "inet6-addr-gen-mode") => "u8",
        (_, "queue-type") => "u32",
        _ => "u16",
    }
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The words of all files but the constants themselves.
fn words_of(folder: &Path, words: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder of the sources") {
        let path = entry.expect("an entry of that folder").path();
        if path.is_dir() {
            words_of(&path, words);
        } else if !path.ends_with("netlink/uapi.rs") {
            let text = fs::read_to_string(&path).expect("a source file");
            let is_part = |char: char| char.is_ascii_alphanumeric() || char == '_';
            words.extend(text.split(|char| !is_part(char)).map(str::to_owned));
        }
    }
}
