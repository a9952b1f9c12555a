//! The static binary, and what must not be in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Commit;
use super::toolchain::{Processor, Toolchain};
use crate::ci::Tally;
use crate::workspace::{Workspace, capture_output, cargo_command};

const PROFILE: &str = "dist";
/// Most bytes of the binary. An instruction of aarch64 always has four bytes.
const fn bytes_most(processor: Processor) -> usize {
    match processor {
        Processor::X86_64 => 12_000_000,
        Processor::Aarch64 => 12_500_000,
    }
}

/// Stands in a binary that calls the C library's resolver and has link-time optimisation: its configuration
/// (nsswitch.conf(5)). Without that optimisation the archive's members stay, though nothing calls them.
const RESOLVER: &str = "/etc/nsswitch.conf";
/// Functions that load NSS modules (nss(5)): names of users, hosts and services.
const NSS_CALLS: &[&str] =
    &["getaddrinfo", "gethostby", "getnameinfo", "getpw", "getgr", "getserv"];
const REMEDY: &str = "resolve names by latput-names; nothing may call getaddrinfo or getpwuid_r";

/// Builds it and holds it to what is promised.
pub fn build_static_binary(
    workspace: &Workspace,
    toolchain: &Toolchain,
    commit: &Commit,
    tally: &mut Tally,
) -> Result<PathBuf> {
    let target = toolchain.processor.triple();
    let places = PathRemaps::new(workspace, toolchain)?;
    let mut build = cargo_command();
    build.args(["build", "--locked", "--package", "latput", "--profile", PROFILE]);
    build.args(["--target", &target]).env("CARGO_ENCODED_RUSTFLAGS", places.rust_flags(toolchain));
    toolchain.configure_cargo(&mut build);
    // Read by `latput --version`; it depends on the commit alone.
    build.env("LATPUT_COMMIT", &commit.name).env("LATPUT_COMMIT_DATE", commit.format_time("%F")?);
    // SQLite, the only C.
    build.env("CFLAGS", places.c_flags());
    tally.run(build.current_dir(&workspace.root))?;
    let binary = workspace.target.join(target).join(PROFILE).join("latput");
    check_binary(&binary, toolchain.processor, &places)?;
    tally.passed += 1;
    Ok(binary)
}

/// Folders of this machine, each with the name that stands for it in the binary.
struct PathRemaps(Vec<(PathBuf, &'static str)>);

impl PathRemaps {
    fn new(workspace: &Workspace, toolchain: &Toolchain) -> Result<Self> {
        let sysroot = capture_output(toolchain.rustc().args(["--print", "sysroot"]))?;
        let home = std::env::home_dir().context("HOME is not set")?;
        let cargo_home = std::env::var_os("CARGO_HOME").map_or(home.join(".cargo"), PathBuf::from);
        Ok(Self(vec![
            (workspace.root.clone(), "/latput"),
            (workspace.target.clone(), "/latput/target"),
            (cargo_home, "/cargo"),
            (sysroot.trim().into(), "/rust"),
        ]))
    }

    /// As `CARGO_ENCODED_RUSTFLAGS` has them: each flag behind a character that no path has.
    fn rust_flags(&self, toolchain: &Toolchain) -> String {
        let remap =
            self.0.iter().map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()));
        // Relative relocations in their packed form: 0.6 MB less. The libc within can read them (glibc 2.36).
        // Functions of the same code are kept once.
        let of_target = [
            "-Ctarget-feature=+crt-static",
            "-Clink-arg=-Wl,-z,pack-relative-relocs",
            "-Clink-arg=-Wl,--icf=all",
        ];
        let flags = toolchain.link_flags().into_iter().chain(of_target.map(str::to_owned));
        flags.chain(remap).collect::<Vec<_>>().join("\u{1f}")
    }

    fn c_flags(&self) -> String {
        let flags =
            self.0.iter().map(|(from, to)| format!("-ffile-prefix-map={}={to}", from.display()));
        flags.collect::<Vec<_>>().join(" ")
    }
}

fn check_binary(binary: &Path, processor: Processor, places: &PathRemaps) -> Result<()> {
    let shown = binary.display();
    check_static(binary)?;
    let bytes = fs::read(binary)?;
    ensure!(bytes.len() <= bytes_most(processor), "{shown} has {} bytes: too large", bytes.len());
    for (place, _) in &places.0 {
        let place = place.display().to_string();
        ensure!(!contains_text(&bytes, &place), "{shown} names a folder of this machine: {place}");
    }
    ensure!(!contains_text(&bytes, RESOLVER), "{shown} has the C library's resolver: {REMEDY}");
    println!("{shown}: static, stripped, {} bytes", bytes.len());
    Ok(())
}

/// It needs no loader and no library of the host.
pub fn check_static(binary: &Path) -> Result<()> {
    let shown = binary.display();
    let segments = capture_output(Command::new("readelf").arg("-Wl").arg(binary))?;
    ensure!(!segments.contains("INTERP"), "{shown} is not static: it asks for a loader");
    let sections = capture_output(Command::new("readelf").arg("-WS").arg(binary))?;
    ensure!(!sections.contains(".symtab"), "{shown} is not stripped");
    Ok(())
}

/// Checks the calls of a binary in its dynamic form, which names each call into the C library: the one that cargo built
/// for the tests.
pub fn check_calls(workspace: &Workspace) -> Result<()> {
    let binary = workspace.target.join("debug/latput");
    let symbols = capture_output(Command::new("nm").args(["-D", "--undefined-only"]).arg(&binary))?;
    let called = |line: &&str| NSS_CALLS.iter().any(|call| line.contains(&format!(" {call}")));
    let found: Vec<&str> = symbols.lines().filter(called).map(str::trim).collect();
    ensure!(found.is_empty(), "{} calls {}: {REMEDY}", binary.display(), found.join(", "));
    ensure!(symbols.contains(" socket"), "{} names no calls", binary.display());
    Ok(())
}

fn contains_text(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}
