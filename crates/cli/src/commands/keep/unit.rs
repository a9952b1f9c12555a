//! The systemd units that `latput keep` writes: a check after each boot, and the CPUs of interrupts, which no other file
//! can hold.

use std::fs;
use std::path::{Path, PathBuf};

use latput_linux::RootFolder;

const UNITS: &str = "/etc/systemd/system";
const WANTS: &str = "/etc/systemd/system/multi-user.target.wants";

/// A unit that runs latput once after each boot, when the network is up.
pub(super) struct BootUnit<'a> {
    /// The first line, by which latput knows its own units.
    pub(super) comment: &'a str,
    pub(super) description: &'a str,
    /// More lines of the section of the unit.
    pub(super) order: &'a str,
    /// The words behind the program's name.
    pub(super) words: &'a str,
    /// More lines of the section of the service.
    pub(super) service: &'a str,
}

impl BootUnit<'_> {
    /// The text of the unit file. The error says why the path of this program cannot stand in a unit.
    pub(super) fn render_text(&self) -> Result<String, String> {
        let Self { comment, description, order, words, service } = self;
        let program = program_path()?;
        Ok(format!(
            "{comment}\n[Unit]\nDescription=latput: {description}\nWants=network-online.target\n\
             After=network-online.target\n{order}\n[Service]\nType=oneshot\nExecStart={} {words}\n{service}\n\
             [Install]\nWantedBy=multi-user.target\n",
            program.display()
        ))
    }
}

/// The path of this program, as a unit names it.
fn program_path() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-_.+".contains(c);
    if program.to_str().is_some_and(|path| path.chars().all(is_plain)) {
        return Ok(program);
    }
    Err(format!("a unit cannot name {}: install latput on this host", program.display()))
}

/// The file of a unit.
pub(super) fn unit_file(name: &str) -> String {
    format!("{UNITS}/{name}")
}

/// The unit that gives the interrupts of an interface their CPUs after a boot.
pub(super) fn affinity_unit(interface: &str) -> String {
    format!("latput-affinity-{interface}.service")
}

/// The text of that unit. The error says why there is none.
pub(super) fn affinity_text(interface: &str, value: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if interface.starts_with('-') || !interface.chars().all(is_plain) {
        return Err("its name cannot stand in the name of a unit".to_owned());
    }
    let unit = BootUnit {
        comment: "# By `latput keep`; `latput keep --remove` takes it out.",
        description: &format!("CPUs of the interrupts of {interface}"),
        order: "After=irqbalance.service\nBefore=latput-keep-check.service\n\
                StartLimitIntervalSec=5min\nStartLimitBurst=6\n",
        words: &format!("set {interface} smp-affinity={value}"),
        // A driver may ask for its interrupts later than this.
        service: "Restart=on-failure\nRestartSec=10s\n",
    };
    unit.render_text()
}

/// Whether `systemctl enable` has been run for a unit.
pub(super) fn is_enabled(root: &RootFolder, name: &str) -> bool {
    root.entries(WANTS).is_ok_and(|names| names.iter().any(|found| found == name))
}

/// Whether a service is masked (`systemctl mask`).
pub(super) fn is_masked(root: &RootFolder, service: &str) -> bool {
    let links = [UNITS, "/run/systemd/system"].map(|folder| format!("{folder}/{service}"));
    let target = |link: &String| fs::read_link(root.below(link)).ok();
    links.iter().filter_map(target).any(|target| target == Path::new("/dev/null"))
}

/// The command that makes a unit run after each boot.
pub(super) fn enable_command(root: &RootFolder, name: &str) -> String {
    let of_image = match root.path() {
        path if path == Path::new("/") => String::new(),
        path => format!("--root={} ", path.display()),
    };
    format!("systemctl {of_image}enable {name}")
}
