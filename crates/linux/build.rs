//! Writes the constants of `src/netlink/uapi.rs` from `src/netlink/numbers.txt`.

use std::error::Error;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs};

const NUMBERS: &str = "src/netlink/numbers.txt";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={NUMBERS}");
    let table = fs::read_to_string(NUMBERS)?;
    let mut constants = String::new();
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        let [family, set, name, number] = words[..] else {
            return Err(format!("{NUMBERS}: not four words: {line}").into());
        };
        writeln!(constants, "pub(crate) const {name}: {} = {number};", width(family, set))?;
    }
    let folder = env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?;
    Ok(fs::write(PathBuf::from(folder).join("uapi.rs"), constants)?)
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
