//! The package of Fedora and its kin, by rpmbuild(8).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::{ReleaseInfo, tree, write_file};
use crate::workspace::capture_output;

const SPEC: &str = include_str!("latput.spec");

/// Makes `latput-VERSION-1.ARCH.rpm`.
pub fn make_rpm(release: &ReleaseInfo, parts: &Path) -> Result<PathBuf> {
    let folder = parts.join("rpm");
    tree::install_files(release, &folder.join("usr"), "share/zsh/site-functions")?;
    let spec = parts.join("latput.spec");
    write_file(&spec, SPEC.as_bytes(), 0o644)?;
    let top = parts.join("rpmbuild");
    let mut build = Command::new("rpmbuild");
    build.arg("-bb").args(["--target", &format!("{}-linux", release.processor().kernel_name())]);
    for (name, value) in [
        ("_topdir", top.display().to_string()),
        ("tree", folder.display().to_string()),
        ("latput_version", release.version.clone()),
        ("use_source_date_epoch_as_buildtime", "1".to_owned()),
        ("clamp_mtime_to_source_date_epoch", "1".to_owned()),
        ("_buildhost", "latput".to_owned()),
        // One thread, a format that every rpm of today reads.
        ("_binary_payload", format!("w{}.xzdio", release.compression)),
        // The tree is finished: nothing strips, compresses or looks for debug information.
        ("__os_install_post", "%{nil}".to_owned()),
        ("debug_package", "%{nil}".to_owned()),
        ("_build_id_links", "none".to_owned()),
        // rpm of Debian keeps its database elsewhere; nothing is looked up in it.
        ("_dbpath", top.join("db").display().to_string()),
    ] {
        build.arg("--define").arg(format!("{name} {value}"));
    }
    capture_output(build.arg(&spec).env("SOURCE_DATE_EPOCH", release.commit.epoch.to_string()))?;
    let name = format!("latput-{}-1.{}.rpm", release.version, release.processor().kernel_name());
    let package = release.out.join(&name);
    fs::rename(top.join("RPMS").join(release.processor().kernel_name()).join(name), &package)?;
    Ok(package)
}
