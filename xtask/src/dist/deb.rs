//! The package of Debian and its kin (deb(5), deb-control(5)).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::tree::{self, LICENCES};
use super::{ReleaseInfo, SMALLEST, compress_file, write_file};
use crate::workspace::capture_output;

/// The description of the package; three words stand for values.
const CONTROL: &str = include_str!("control");
/// The scripts of the maintainer, in `packaging/deb`.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Makes `latput_VERSION_ARCH.deb`.
pub fn make_deb(release: &ReleaseInfo, parts: &Path) -> Result<PathBuf> {
    let folder = parts.join("deb");
    tree::install_files(release, &folder.join("usr"), "share/zsh/vendor-completions")?;
    write_documents(release, &folder.join("usr/share/doc/latput"))?;
    let files =
        capture_output(Command::new("find").args(["usr", "-type", "f"]).current_dir(&folder))?;
    let mut files: Vec<&str> = files.lines().collect();
    files.sort_unstable();
    let mut sums = Command::new("md5sum");
    let sums = capture_output(sums.args(&files).current_dir(&folder))?;
    let bytes: u64 = files
        .iter()
        .map(|file| fs::metadata(folder.join(file)).map(|it| it.len()))
        .sum::<Result<_, _>>()?;
    let control = folder.join("DEBIAN");
    let text = CONTROL
        .replace("VERSION", &release.version)
        .replace("ARCHITECTURE", release.processor().debian_name())
        .replace("KIBIBYTES", &bytes.div_ceil(1024).to_string());
    write_file(&control.join("control"), text.as_bytes(), 0o644)?;
    write_file(&control.join("md5sums"), sums.as_bytes(), 0o644)?;
    for name in SCRIPTS {
        let file = release.workspace.root.join("packaging/deb").join(name);
        let script = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        write_file(&control.join(name), &script, 0o755)?;
    }
    let package = release.out.join(format!(
        "latput_{}_{}.deb",
        release.version,
        release.processor().debian_name()
    ));
    let mut build = Command::new("dpkg-deb");
    // The order of blocks that several threads compress depends on how many there are.
    build.args(["--root-owner-group", "-Zxz", "--threads-max=1"]);
    build.arg(format!("-z{}", release.compression)).arg("--build");
    build.arg(&folder).arg(&package).env("SOURCE_DATE_EPOCH", release.commit.epoch.to_string());
    capture_output(&mut build)?;
    Ok(package)
}

/// Documents that the policy of Debian wants beside the guide (sections 12.5 and 12.7).
fn write_documents(release: &ReleaseInfo, doc: &Path) -> Result<()> {
    let root = &release.workspace.root;
    let mut text = "Licensed under either of the MIT licence, below, or the Apache Licence 2.0, which Debian has in\n\
        /usr/share/common-licenses/Apache-2.0, at your option.\n\n"
        .to_owned();
    text += &fs::read_to_string(root.join("LICENSE-MIT"))?;
    for name in LICENCES {
        fs::remove_file(doc.join(name))?;
    }
    write_file(&doc.join("copyright"), text.as_bytes(), 0o644)?;
    compress_file(&root.join("CHANGELOG.md"), &doc.join("CHANGELOG.md.gz"), SMALLEST)
}
