//! The packages where nothing of this machine is: the `.deb` under the systemd of a fresh Debian, and the
//! binary in a folder with nothing else.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{ReleaseInfo, write_file};
use crate::ci::Tally;
use crate::workspace::{capture_output, remove_folder};

const PROGRAMS: &[&str] =
    &["apt-get", "chroot", "debootstrap", "systemd-nspawn", "timeout", "unshare"];
/// Packages that the smallest Debian lacks and the script needs.
const INCLUDED: &str = "systemd-sysv,iproute2";
/// The base is made anew when this changes.
const BASE: &str = "base-1";
/// How debootstrap makes any Debian, also one that is newer than itself.
const DEBOOTSTRAP_SCRIPT: &str = "/usr/share/debootstrap/scripts/sid";

/// Script that tries the package, under its systemd, in a network of its own. Each line that matters says so.
const SCRIPT: &str = include_str!("try.sh");

/// Lines that the script must print.
const SAID: &str = "installed|shown |/usr/share/man/man1/latput-tune.1.gz|/usr/share/zsh/vendor-completions/_latput|completes|\
    tuned|Recommended|disabled|started active|ext0: holding|again active|purged inactive|no state";

const SERVICE: &str = "[Service]\nType=oneshot\nExecStart=/bin/sh /try/script\n\
    StandardOutput=journal+console\nStandardError=journal+console\n";

/// Installs, uses and purges the `.deb`; then asks the binary alone for a name.
pub fn check_clean_root(
    release: &ReleaseInfo,
    folder: &Path,
    base: &Path,
    tally: &mut Tally,
) -> Result<()> {
    let clean = folder.join("root");
    remove_folder(&clean)?;
    capture_output(Command::new("cp").args(["-a", "--reflink=auto"]).arg(base).arg(&clean))?;
    check_deb_lifecycle(release, &clean)?;
    tally.passed += 1;
    check_binary_alone(release, &folder.join("alone"))?;
    tally.passed += 1;
    remove_folder(&clean)
}

/// The name of this machine's Debian, and the first place that apt has it from.
pub fn first_source() -> Result<(String, String)> {
    let format = ["indextargets", "--format", "$(CODENAME) $(REPO_URI)", "Created-By: Packages"];
    let sources = capture_output(Command::new("apt-get").args(format))?;
    let first = sources.lines().find_map(|line| line.split_once(' '));
    let (suite, from) = first.context("apt has no sources; run `apt-get update`")?;
    Ok((suite.to_owned(), from.to_owned()))
}

/// A fresh Debian of this machine's version, from the first source that apt has for it; made once. `None` where something is
/// missing for it, which is said.
pub fn make_base_root(folder: &Path, tally: &mut Tally) -> Result<Option<PathBuf>> {
    if tally.skips_without(PROGRAMS) {
        return Ok(None);
    }
    make_debian(folder.join(BASE), None, Some(INCLUDED), |_| Ok(())).map(Some)
}

/// The root of a Debian, made once; without a suite of this machine's. `fill` installs more in it.
pub fn make_debian(
    root: PathBuf,
    suite: Option<&str>,
    included: Option<&str>,
    fill: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    if root.exists() {
        return Ok(root);
    }
    let partial = root.with_extension("partial");
    remove_folder(&partial)?;
    let (own, from) = first_source()?;
    let mut make = Command::new("debootstrap");
    make.arg("--variant=minbase").args(included.map(|packages| format!("--include={packages}")));
    make.arg(suite.unwrap_or(&own)).arg(&partial).args([&from, DEBOOTSTRAP_SCRIPT]);
    capture_output(&mut make)?;
    fill(&partial)?;
    // Only a whole one has the name.
    fs::rename(&partial, &root)?;
    Ok(root)
}

fn check_deb_lifecycle(release: &ReleaseInfo, root: &Path) -> Result<()> {
    let deb = format!("latput_{}_{}.deb", release.version, release.processor().debian_name());
    write_file(&root.join("try/latput.deb"), &fs::read(release.out.join(deb))?, 0o644)?;
    let plan = fs::read(release.workspace.root.join("xtask/short-plan.toml"))?;
    write_file(&root.join("try/plan.toml"), &plan, 0o644)?;
    write_file(&root.join("try/script"), SCRIPT.as_bytes(), 0o644)?;
    write_file(&root.join("etc/systemd/system/try.service"), SERVICE.as_bytes(), 0o644)?;
    let mut boot = Command::new("timeout");
    boot.args(["-k", "5", "120", "systemd-nspawn", "--quiet", "--private-network"]);
    boot.args(["--register=no", "--keep-unit", "--boot", "--directory"]).arg(root);
    boot.args(["systemd.mask=systemd-firstboot.service", "systemd.wants=try.service"]);
    let ran = boot.output().context("cannot start systemd-nspawn")?;
    let said = String::from_utf8_lossy(&ran.stdout);
    let all = || format!("{said}\n{}", String::from_utf8_lossy(&ran.stderr));
    for words in SAID.split('|').chain([format!("latput {}", release.version).as_str()]) {
        ensure!(said.contains(words), "the clean root did not say `{words}`:\n{}", all());
    }
    let list = |name: &str| {
        let file = root.join("try").join(name);
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))
    };
    let (before, after) = (list("before")?, list("after")?);
    ensure!(before.lines().count() > 1000, "the list of files is not whole");
    for (these, those, what) in
        [(&after, &before, "is left after the purge"), (&before, &after, "is gone")]
    {
        let those: std::collections::BTreeSet<&str> = those.lines().collect();
        let odd: Vec<&str> = these.lines().filter(|line| !those.contains(line)).collect();
        ensure!(odd.is_empty(), "{what}: {}", odd.join(", "));
    }
    println!("the .deb was installed, used and purged; {} files as before", after.lines().count());
    Ok(())
}

/// Nothing but the binary, a hosts file and `/dev/null`: no library, no NSS, no `getent`.
fn check_binary_alone(release: &ReleaseInfo, folder: &Path) -> Result<()> {
    remove_folder(folder)?;
    write_file(&folder.join("latput"), &fs::read(&release.binary)?, 0o755)?;
    write_file(&folder.join("etc/hosts"), b"127.0.0.9 far.test\n", 0o644)?;
    for name in ["tmp", "proc", "sys", "dev"] {
        fs::create_dir(folder.join(name))?;
    }
    // A run with rights starts a process, and Rust's library gives that `/dev/null`.
    write_file(&folder.join("dev/null"), b"", 0o644)?;
    // Port 9 (discard): nothing listens there. The mounts end with the namespace.
    let script = "mount -t proc proc \"$0/proc\" && mount --bind /sys \"$0/sys\" && \
        mount --bind /dev/null \"$0/dev/null\" && \
        exec chroot \"$0\" /latput measure iperf3://far.test:9 --workload tcp_stream";
    let mut measure = Command::new("unshare");
    let ran = measure.args(["--mount", "sh", "-c", script]).arg(folder).output()?;
    let said = String::from_utf8_lossy(&ran.stderr);
    ensure!(said.contains("127.0.0.9:9 refuses"), "the binary alone: {}: {said}", ran.status);
    println!("alone in a root, the binary resolves a name");
    remove_folder(folder)
}
