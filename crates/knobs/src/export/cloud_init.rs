//! A `#cloud-config` for cloud-init: files that the host's own udev and sysctl apply at every boot.
//!
//! Not its network configuration: that comes from the cloud and not from the user, is taken as a whole, and has a word
//! for the MTU alone that every renderer knows.

use std::fmt::Write as _;

use super::{Format, Target, Words, elsewhere, sections};
use crate::catalogue::Knob;
use crate::value::Value;

const RULES: &str = "rules";
const SYSCTLS: &str = "sysctls";

/// The line of one knob, with the file that it goes to; `None` if neither file can hold it.
pub(super) fn words(knob: Knob, value: &Value, target: &Target) -> Option<Words> {
    let line = elsewhere::configure_elsewhere(knob, value, target, Format::CloudInit);
    let file = line.file?;
    if file == elsewhere::rules_file(target.interface()) {
        return Some(vec![(RULES, line.line)]);
    }
    (file == elsewhere::SYSCTLS).then(|| vec![(SYSCTLS, line.line)])
}

pub(super) fn document(target: &Target, words: &[(&'static str, String)]) -> (String, String) {
    let name = target.interface();
    let rules = elsewhere::rules_file(name);
    let mut body = format!(
        "# User data of a new instance, or a file in /etc/cloud/cloud.cfg.d of its image. cloud-init writes the\n\
         # files once; udev applies the rules whenever {name} appears, at every boot.\n\
         write_files:\n"
    );
    let mut commands = String::new();
    for (kind, lines) in sections(words) {
        let file = if kind == RULES { &rules } else { elsewhere::SYSCTLS };
        let _ = write!(body, "  - path: {file}\n    content: |\n");
        for line in lines {
            let _ = writeln!(body, "      {line}");
        }
        let _ = if kind == RULES {
            write!(
                commands,
                "  - [udevadm, control, --reload]\n  \
                 - [udevadm, trigger, --action=add, /sys/class/net/{name}]\n"
            )
        } else {
            writeln!(commands, "  - [sysctl, -p, {file}]")
        };
    }
    let _ = write!(body, "runcmd:\n{commands}");
    ("user-data".to_owned(), body)
}
