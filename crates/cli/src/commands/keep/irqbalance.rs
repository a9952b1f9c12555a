//! irqbalance(1), which would move the interrupts of an interface that has its own CPUs: a policy script that has it leave them.
//!
//! irqbalance runs each script of a folder for each interrupt. A script that knows the interrupt prints `ban=true` and ends
//! with 0, any other ends with 1. The folder is named by a drop-in of irqbalance's unit, behind its own words.

use latput_linux::RootFolder;
use latput_linux::files::TEXT_BYTES_MOST;

use super::udev_files::{first_of_each_name, uncommented_lines};

const UNIT: &str = "irqbalance.service";
/// Folders of units, the first before the others (systemd.unit(5)).
const UNIT_FOLDERS: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];
/// Folder of the policy scripts.
pub(super) const SCRIPTS: &str = "/etc/latput/irqbalance";
/// Ways to name a policy script.
const OPTIONS: [&str; 2] = ["--policyscript", "-l"];

/// Files that have irqbalance leave the interrupts of an interface.
pub(super) struct IrqbalancePolicy {
    /// The text of the drop-in.
    pub(super) drop_in: String,
    /// The text of the script.
    pub(super) script: String,
}

impl IrqbalancePolicy {
    /// Makes those of `interface`, whose name is plain; `None` where there is no irqbalance. The error is what to do by hand
    /// where it has a policy of somebody.
    pub(super) fn of_interface(root: &RootFolder, interface: &str) -> Option<Result<Self, String>> {
        let command = start_command(root)?;
        let environment = ["/etc/default/irqbalance", "/etc/sysconfig/irqbalance"];
        let texts = environment.into_iter().filter_map(|file| root.look_at(file, TEXT_BYTES_MOST));
        let lines: Vec<String> =
            texts.flat_map(|text| uncommented_lines(&text, &['#', ';'])).collect();
        let has_policy = |line: &str| {
            let words = line.split(|c: char| c.is_whitespace() || "\"'=".contains(c));
            words.into_iter().any(|word| OPTIONS.contains(&word))
        };
        if has_policy(&command) || lines.iter().any(|line| has_policy(line)) {
            return Some(Err(format!(
                "irqbalance has a policy script of its own: have it print `ban=true` for the interrupts of {interface}"
            )));
        }
        Some(Ok(Self {
            drop_in: format!(
                "# By `latput keep`; `latput keep --remove` takes it out.\n[Service]\nExecStart=\nExecStart={command} \
                 --policyscript={SCRIPTS}\n"
            ),
            script: script_text(interface),
        }))
    }
}

/// The file of the drop-in.
pub(super) fn drop_in_file(interface: &str) -> String {
    format!("/etc/systemd/system/{UNIT}.d/50-latput-{interface}.conf")
}

/// The file of the script.
pub(super) fn script_file(interface: &str) -> String {
    format!("{SCRIPTS}/{interface}")
}

/// The text of the script: latput's rule for the interrupts of an interface, as far as sysfs has them.
pub(super) fn script_text(interface: &str) -> String {
    format!(
        "#!/bin/sh\n# By `latput keep`: irqbalance leaves the interrupts of {interface}. $2 is an interrupt.\n\
         device=/sys/class/net/{interface}/device\n\
         for irqs in $device/msi_irqs $device/../msi_irqs; do\n    \
         if [ -e \"$irqs/$2\" ]; then echo ban=true; exit 0; fi\n\
         done\n\
         if [ \"$(cat $device/irq 2>/dev/null)\" = \"$2\" ]; then echo ban=true; exit 0; fi\n\
         exit 1\n"
    )
}

/// The command of irqbalance's unit and of the drop-ins of others; `None` where there is no such unit.
fn start_command(root: &RootFolder) -> Option<String> {
    let units = UNIT_FOLDERS.map(|folder| format!("{folder}/{UNIT}"));
    let unit = units.iter().find_map(|file| root.look_at(file, TEXT_BYTES_MOST))?;
    let folders = UNIT_FOLDERS.map(|folder| format!("{folder}/{UNIT}.d"));
    let mut drop_ins = first_of_each_name(root, &folders, "conf");
    drop_ins.retain(|name, _| !name.starts_with("50-latput-"));
    let later = drop_ins.values().filter_map(|file| root.look_at(file, TEXT_BYTES_MOST));
    let mut command = None;
    for text in std::iter::once(unit).chain(later) {
        for line in uncommented_lines(&text, &['#', ';']) {
            if let Some(words) = line.strip_prefix("ExecStart=") {
                command = Some(words.trim().to_owned()).filter(|words| !words.is_empty());
            }
        }
    }
    command
}
