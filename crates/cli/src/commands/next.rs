//! The lines after a change of this host: how to take it back, and how to keep it over a reboot. Those under a
//! recommendation are in `latput-report`.

use std::fmt::Write as _;

use latput_knobs::Setting;
use latput_linux::state_place;
use latput_report::{NO_KEEP, interface_words, shell_word};

/// Beginning of [`undo_line`].
const UNDO: &str = "undo:  latput undo ";

/// How to take back entry `number` of the journal.
pub(super) fn undo_line(number: u64) -> String {
    format!("{UNDO}{number}\n")
}

/// The number in a line of [`undo_line`]; `None` for another line.
pub(super) fn parse_undo_line(line: &str) -> Option<u64> {
    line.strip_prefix(UNDO)?.parse().ok()
}

/// The lines after `setting` was set on `interface`, as entry `number` of the journal.
pub(super) fn next_lines(number: u64, interface: &str, setting: &Setting) -> String {
    let mut keep = "keep:  ".to_owned();
    if state_place::is_without_own_files() {
        keep += NO_KEEP;
    } else {
        let _ = write!(keep, "latput keep {}", interface_words(interface));
        for (knob, value) in setting {
            let _ = write!(keep, " {}", shell_word(&format!("{knob}={value}")));
        }
    }
    undo_line(number) + &keep + "\n"
}
