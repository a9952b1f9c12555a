//! `latput keep --watch`: a systemd unit that runs `latput keep --check` after each boot.

use latput_linux::RootFolder;
use latput_linux::files::{Owner, TEXT_BYTES_MOST};

use super::unit::{self, BootUnit};
use crate::exit::{CliError, ExitReason};
use crate::output;

const NAME: &str = "latput-keep-check.service";
/// Its first line.
const COMMENT: &str = "# By `latput keep --watch`; `latput keep --remove` takes it out.";
/// Permissions of the unit, and of folders that are missing.
const PUBLIC: u32 = 0o644;
const OPEN: u32 = 0o755;

/// The unit. It fails where something differs: `systemctl --failed` lists it, and the journal has the comparison.
const UNIT: BootUnit<'_> = BootUnit {
    comment: COMMENT,
    description: "compare kept network settings with those in force",
    order: "",
    words: "keep --check",
    service: "NoNewPrivileges=yes\nProtectSystem=strict\nProtectHome=read-only\n",
};

/// Writes the unit, and says how to enable it.
pub(super) fn install(root: &RootFolder, force: bool) -> Result<(), CliError> {
    let text = UNIT.render_text().map_err(|why| CliError::new(ExitReason::Failed, why))?;
    let file = &unit::unit_file(NAME);
    let now = root.read(file, TEXT_BYTES_MOST)?.map(|(text, _)| text);
    if now.as_ref().is_some_and(|now| !is_ours(now)) && !force {
        let message = format!(
            "{} is not latput's: nothing was written. Overwrite it: --force",
            root.below(file).display()
        );
        return Err(CliError::new(ExitReason::Failed, message));
    }
    if now.as_ref() != Some(&text) {
        for folder in ["/etc", "/etc/systemd", "/etc/systemd/system"] {
            root.make_folder(folder, OPEN)?;
        }
        root.install(file, text.as_bytes(), Owner::ours(PUBLIC))?;
    }
    output::print_text(&format!("{}\n", root.below(file).display()))?;
    output::print_remark(&format!(
        "latput: to compare after each boot: {}. It fails where something differs",
        unit::enable_command(root, NAME)
    ));
    Ok(())
}

/// Takes the unit out. systemd ignores the link that enabled it, which is not latput's.
pub(super) fn remove(root: &RootFolder) -> Result<(), CliError> {
    let file = &unit::unit_file(NAME);
    let Some((now, _)) = root.read(file, TEXT_BYTES_MOST)? else { return Ok(()) };
    if is_ours(&now) {
        root.uninstall(file)?;
        let link = if unit::is_enabled(root, NAME) {
            format!(". Its link is left: systemctl disable {NAME}")
        } else {
            String::new()
        };
        output::print_remark(&format!("latput: {NAME} was removed too{link}"));
    }
    Ok(())
}

fn is_ours(text: &str) -> bool {
    text.starts_with(COMMENT)
}
