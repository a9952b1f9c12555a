//! `cargo xtask vm`: what the guest of the `vm` testbed is made of, in `target/vm`, where latput and
//! its tests find it.
//!
//! A static latput, and a kernel package of the distribution, unpacked and not installed: this
//! machine's own boot is left alone.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::ci::Tally;
use crate::dist::first_source;
use crate::workspace::{
    Workspace, capture_output, cargo_command, find_on_path, make_empty_folder, make_folder,
    remove_folder,
};

/// A kernel with the drivers of real hardware, whatever its version; the `cloud` kernels lack them.
const META_PACKAGE: &str = "linux-image-amd64";
/// The oldest kernel that is claimed, and the Debian that has it.
const OLDEST: &str = "5.10.";
const OLDEST_SUITE: &str = "bullseye";
const TARGET: &str = "x86_64-unknown-linux-gnu";
const PROFILE: &str = "guest";

/// Makes both; what is there already is kept, but for latput, which cargo keeps up to date.
pub fn run(workspace: &Workspace) -> Result<()> {
    let tally = &mut Tally::default();
    fetch_kernel(workspace, tally)?;
    build_guest_latput(workspace, tally)
}

/// The kernel alone: `cargo xtask ci` links a latput of its own.
pub fn fetch_kernel(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    ensure!(cfg!(target_arch = "x86_64"), "the guest's kernel and latput are for x86_64 only");
    let folder = workspace.target.join("vm");
    make_folder(&folder)?;
    prepare_kernel(&folder, tally)
}

fn prepare_kernel(folder: &Path, tally: &mut Tally) -> Result<()> {
    let unpacked = folder.join("kernel");
    if unpacked.join("boot").exists() {
        println!("the kernel in {} is kept", unpacked.display());
        return Ok(());
    }
    if find_on_path("apt-get").is_none() || find_on_path("dpkg-deb").is_none() {
        tally.skip("apt-get and dpkg-deb, or a kernel named by LATPUT_VM_KERNEL");
        return Ok(());
    }
    unpack_kernel(folder, &unpacked, &[], tally)
}

/// Downloads the newest kernel that apt has with these options, and unpacks it.
fn unpack_kernel(folder: &Path, unpacked: &Path, apt: &[String], tally: &mut Tally) -> Result<()> {
    let package = find_kernel_package(apt)?;
    let downloads = folder.join("download");
    let partial = folder.join("kernel.partial");
    make_empty_folder(&downloads)?;
    make_empty_folder(&partial)?;
    let mut download = Command::new("apt-get");
    download.args(apt).args(["download", "-q", &package]).current_dir(&downloads);
    tally.run(&mut download)?;
    let file = fs::read_dir(&downloads)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .with_context(|| format!("`apt-get download {package}` left no package"))?;
    tally.run(Command::new("dpkg-deb").arg("-x").arg(file).arg(&partial))?;
    // Only a whole one has the name.
    fs::rename(&partial, unpacked)?;
    remove_folder(&downloads)
}

/// The package of the newest kernel.
fn find_kernel_package(apt: &[String]) -> Result<String> {
    let mut ask = Command::new("apt-cache");
    let text = capture_output(ask.args(apt).args(["depends", META_PACKAGE])).unwrap_or_default();
    let mut depends = text.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    match depends.find(|name| name.starts_with("linux-image-")) {
        Some(name) => Ok(name.to_owned()),
        None => bail!("`apt-cache` knows no {META_PACKAGE}: run `apt-get update`"),
    }
}

/// A step of `cargo xtask ci --full`: the static binary measures on the oldest kernel that is claimed.
pub fn check_oldest_kernel(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    let folder = workspace.target.join("vm-oldest");
    let kernel = folder.join("kernel");
    make_folder(&folder)?;
    if !kernel.join("boot").exists() {
        let (_, from) = first_source()?;
        // Lists and packages of its own: this machine's are left alone.
        for name in ["lists/partial", "cache/archives/partial"] {
            make_folder(&folder.join(name))?;
        }
        let list = folder.join("sources.list");
        fs::write(&list, format!("deb {from} {OLDEST_SUITE} main\n"))?;
        let path = |name: &str| folder.join(name).display().to_string();
        let apt = [
            format!("-oDir::Etc::SourceList={}", list.display()),
            "-oDir::Etc::SourceParts=/dev/null".to_owned(),
            format!("-oDir::State::Lists={}", path("lists")),
            format!("-oDir::Cache={}", path("cache")),
        ];
        tally.run(Command::new("apt-get").args(&apt).args(["update", "-q"]))?;
        unpack_kernel(&folder, &kernel, &apt, tally)?;
    }
    let release = fs::read_dir(kernel.join("lib/modules"))?
        .find_map(|entry| entry.ok()?.file_name().into_string().ok())
        .context("the package has no modules")?;
    ensure!(release.starts_with(OLDEST), "{OLDEST_SUITE} has Linux {release}, not {OLDEST}");
    let mut measure = Command::new(workspace.built_latput()?);
    measure.args(["measure", "vm", "--workload", "tcp_rr", "--duration", "1s", "--json"]);
    let said = capture_output(measure.env("LATPUT_VM_KERNEL", &kernel).current_dir(&folder))?;
    ensure!(said.contains(&release), "the measurement does not tell of {release}: {said}");
    println!("Linux {release}: measured");
    Ok(())
}

fn build_guest_latput(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    // A start that relocates nothing is emulated in half the time.
    let flags = format!(
        "target.{TARGET}.rustflags=[\"-Ctarget-feature=+crt-static\", \"-Crelocation-model=static\"]"
    );
    let line = ["build", "--locked", "--package", "latput", "--profile", PROFILE];
    let mut build = cargo_command();
    build.args(line).args(["--target", TARGET, "--config", &flags]);
    tally.run(build.current_dir(&workspace.root))?;
    let built = workspace.target.join(TARGET).join(PROFILE).join("latput");
    let to = workspace.guest_latput();
    fs::copy(&built, &to)
        .with_context(|| format!("cannot copy {} to {}", built.display(), to.display()))?;
    println!("the guest's latput is {}", to.display());
    Ok(())
}
