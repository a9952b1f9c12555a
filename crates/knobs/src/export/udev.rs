//! A file of udev rules: whatever one command, or a file in sysfs, can set.

use std::fmt::Write as _;

use super::{Format, Target, Words, elsewhere};
use crate::catalogue::Knob;
use crate::value::Value;

/// The rule of one knob; `None` if it cannot be set by one.
pub(super) fn words(knob: Knob, value: &Value, target: &Target) -> Option<Words> {
    let rule = elsewhere::configure_elsewhere(knob, value, target, Format::Udev);
    let is_rule = rule.file.is_some_and(|file| file == elsewhere::rules_file(target.interface()));
    is_rule.then(|| vec![("", rule.line)])
}

pub(super) fn document(target: &Target, words: &[(&'static str, String)]) -> (String, String) {
    let name = target.interface();
    let file = elsewhere::rules_file(name);
    let mut body = format!(
        "# Keep as {file}; udev applies it when {name} appears:\n\
         # `udevadm control --reload && udevadm trigger --action=add /sys/class/net/{name}`.\n"
    );
    for (_, rule) in words {
        let _ = writeln!(body, "{rule}");
    }
    (file, body)
}
