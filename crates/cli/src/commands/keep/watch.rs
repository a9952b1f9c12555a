//! `latput keep --watch`: a systemd unit that runs `latput keep --check` after each boot.

use std::path::Path;

use latput_linux::RootFolder;
use latput_linux::files::{Owner, TEXT_BYTES_MOST};

use crate::exit::{CliError, Code};
use crate::output;

const NAME: &str = "latput-keep-check.service";
const FILE: &str = "/etc/systemd/system/latput-keep-check.service";
/// The link that `systemctl enable` makes.
const ENABLED: &str = "/etc/systemd/system/multi-user.target.wants/latput-keep-check.service";
/// Permissions of the unit, and of folders that are missing.
const PUBLIC: u32 = 0o644;
const OPEN: u32 = 0o755;

/// The unit. It fails where something differs: `systemctl --failed` lists it, and the journal has the comparison.
fn unit(program: &Path) -> String {
    format!(
        "# By `latput keep --watch`; `latput keep --remove` takes it out.\n\
         [Unit]\n\
         Description=latput: compare kept network settings with those in force\n\
         Wants=network-online.target\n\
         After=network-online.target\n\n\
         [Service]\n\
         Type=oneshot\n\
         ExecStart={} keep --check\n\
         NoNewPrivileges=yes\n\
         ProtectSystem=strict\n\
         ProtectHome=read-only\n\n\
         [Install]\n\
         WantedBy=multi-user.target\n",
        program.display()
    )
}

/// Writes the unit, and says how to enable it.
pub(super) fn install(root: &RootFolder, force: bool) -> Result<(), CliError> {
    let program = std::env::current_exe()?;
    if !program.to_str().is_some_and(|path| path.chars().all(|c| c.is_ascii_graphic())) {
        let message = format!("a unit cannot name {}: move the program", program.display());
        return Err(CliError::new(Code::Failed, message));
    }
    let text = unit(&program);
    let now = root.read(FILE, TEXT_BYTES_MOST)?.map(|(text, _)| text);
    if now.as_ref().is_some_and(|now| !is_ours(now)) && !force {
        let message = format!(
            "{} is not latput's: nothing was written. Overwrite it: --force",
            root.below(FILE).display()
        );
        return Err(CliError::new(Code::Failed, message));
    }
    if now.as_ref() != Some(&text) {
        for folder in ["/etc", "/etc/systemd", "/etc/systemd/system"] {
            root.make_folder(folder, OPEN)?;
        }
        root.install(FILE, text.as_bytes(), Owner::ours(PUBLIC))?;
    }
    output::print(&format!("{}\n", root.below(FILE).display()))?;
    let of_image = match root.path() {
        path if path == Path::new("/") => String::new(),
        path => format!("--root={} ", path.display()),
    };
    output::remark(&format!(
        "latput: to compare after each boot: systemctl {of_image}enable {NAME}. It fails where something differs"
    ));
    Ok(())
}

/// Takes the unit out. systemd ignores the link that enabled it, which is not latput's.
pub(super) fn remove(root: &RootFolder) -> Result<(), CliError> {
    let Some((now, _)) = root.read(FILE, TEXT_BYTES_MOST)? else { return Ok(()) };
    if is_ours(&now) {
        root.uninstall(FILE)?;
        let link = if root.has(ENABLED) {
            format!(". Its link is left: systemctl disable {NAME}")
        } else {
            String::new()
        };
        output::remark(&format!("latput: {NAME} was removed too{link}"));
    }
    Ok(())
}

fn is_ours(text: &str) -> bool {
    text.starts_with("# By `latput keep --watch`")
}
