//! The files that every package has: those below `/usr`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::{ReleaseInfo, SMALLEST, compress_file, write_file};
use crate::workspace::capture_output;

const UNIT: &str = "packaging/latput-moderate@.service";
/// The files of licences, at the root of the repository.
pub const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];
/// Where bash and fish look, on every distribution.
const COMPLETIONS: [(&str, &str); 2] = [
    ("bash", "share/bash-completion/completions/latput"),
    ("fish", "share/fish/vendor_completions.d/latput.fish"),
];

/// The folders of `docs` that are for users.
const GUIDE: [&str; 2] = ["", "owners"];

/// Puts them into `usr`; zsh looks for completions in `zsh_folder`, which distributions call differently.
pub fn install_files(release: &ReleaseInfo, usr: &Path, zsh_folder: &str) -> Result<()> {
    let root = &release.workspace.root;
    let read =
        |name: &str| fs::read(root.join(name)).with_context(|| format!("cannot read {name}"));
    write_file(&usr.join("bin/latput"), &fs::read(&release.binary)?, 0o755)?;
    write_file(&usr.join("lib/systemd/system/latput-moderate@.service"), &read(UNIT)?, 0o644)?;
    let zsh = format!("{zsh_folder}/_latput");
    for (shell, file) in COMPLETIONS.into_iter().chain([("zsh", zsh.as_str())]) {
        let script = capture_output(release.run_binary().args(["completions", shell]))?;
        write_file(&usr.join(file), script.as_bytes(), 0o644)?;
    }
    write_manual_pages(release, usr)?;
    // The unit and the help refer to the guide.
    let doc = usr.join("share/doc/latput");
    for folder in GUIDE {
        for entry in fs::read_dir(root.join("docs").join(folder))? {
            let entry = entry?;
            let name = entry.file_name();
            if Path::new(&name).extension().is_some_and(|it| it == "md") {
                write_file(&doc.join(folder).join(name), &fs::read(entry.path())?, 0o644)?;
            }
        }
    }
    for licence in LICENCES {
        write_file(&doc.join(licence), &read(licence)?, 0o644)?;
    }
    Ok(())
}

/// Every page, compressed as distributions have them.
fn write_manual_pages(release: &ReleaseInfo, usr: &Path) -> Result<()> {
    let plain = release.out.join("parts/man");
    fs::create_dir_all(&plain)?;
    capture_output(release.run_binary().args(["man", "--output-dir"]).arg(&plain))?;
    for entry in fs::read_dir(&plain)? {
        let page = entry?;
        let name = format!("{}.gz", page.file_name().display());
        let file = usr.join("share/man/man1").join(name);
        write_file(&file, &[], 0o644)?;
        compress_file(&page.path(), &file, SMALLEST)?;
    }
    Ok(())
}
