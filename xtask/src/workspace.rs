//! Where the repository is, and what `cargo metadata` says of its crates.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// The repository and its crates.
#[derive(Debug, Deserialize)]
pub struct Workspace {
    /// The folder of the root `Cargo.toml`.
    #[serde(rename = "workspace_root")]
    pub root: PathBuf,
    /// Where cargo builds.
    #[serde(rename = "target_directory")]
    pub target: PathBuf,
    /// The crates, as their manifests have them.
    pub packages: Vec<Package>,
}

/// One crate's manifest.
#[derive(Clone, Debug, Deserialize)]
pub struct Package {
    /// The package name, such as `latput-units`.
    pub name: String,
    /// Its dependencies, of any kind.
    pub dependencies: Vec<Dependency>,
}

/// One line of a manifest's dependency tables.
#[derive(Clone, Debug, Deserialize)]
pub struct Dependency {
    /// The package depended on.
    pub name: String,
    /// `None` for a normal dependency, else `dev` or `build`.
    pub kind: Option<String>,
    /// The folder, if it is a crate of this repository.
    pub path: Option<PathBuf>,
}

impl Workspace {
    /// Asks cargo about the workspace that this program was built from.
    pub fn from_cargo_metadata() -> Result<Self> {
        let mut ask = cargo_command();
        ask.args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path"]);
        ask.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"));
        serde_json::from_str(&capture_output(&mut ask)?)
            .context("cannot read the answer of `cargo metadata`")
    }

    /// The latput of this path, or else the released binary of this tree.
    pub fn given_latput(&self, path: Option<&Path>) -> Result<PathBuf> {
        let Some(path) = path else { return self.build_latput() };
        path.canonicalize().with_context(|| format!("there is no latput {}", path.display()))
    }

    /// The released binary, built anew where a source has changed.
    pub fn build_latput(&self) -> Result<PathBuf> {
        let mut build = cargo_command();
        build.args(["build", "--quiet", "--release", "-p", "latput"]);
        run_checked(build.current_dir(&self.root))?;
        Ok(self.target.join("release/latput"))
    }

    /// The static binary that a guest runs, as [`crate::vm`] leaves it.
    pub fn guest_latput(&self) -> PathBuf {
        self.target.join("vm/latput")
    }

    /// The binary that the steps of CI check: optimised, without link-time optimisation. An error that says how to build it
    /// where it is not there.
    pub fn built_latput(&self) -> Result<PathBuf> {
        let binary = self.guest_latput();
        let shown = binary.display();
        ensure!(binary.is_file(), "{shown} is missing; run `cargo xtask ci --only build`");
        Ok(binary)
    }
}

impl Package {
    /// The name in the tables of ARCHITECTURE.md: the folder's.
    pub fn folder_name(&self) -> &str {
        folder_of(&self.name)
    }
}

/// `latput-units` lives in `units`, the binary `latput` in `cli`.
pub fn folder_of(package: &str) -> &str {
    match package {
        "latput" => "cli",
        other => other.strip_prefix("latput-").unwrap_or(other),
    }
}

/// The cargo that started us, so that a chosen toolchain stays chosen.
pub fn cargo_command() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs a command and returns its output; an error with its stderr if it fails.
pub fn capture_output(command: &mut Command) -> Result<String> {
    let shown = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot start {shown}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{shown} failed: {}", errors.trim());
    String::from_utf8(output.stdout).with_context(|| format!("{shown} printed no text"))
}

/// Runs a command, which must succeed; its output is shown.
pub fn run_checked(command: &mut Command) -> Result<()> {
    let shown = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("cannot start {shown}"))?;
    ensure!(status.success(), "{shown} ended with {status}");
    Ok(())
}

/// Makes a folder, and those above it.
pub fn make_folder(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

/// Removes a folder with all that is in it, where it is there.
pub fn remove_folder(folder: &Path) -> Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder)
            .with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    Ok(())
}

/// Makes a folder with nothing in it.
pub fn make_empty_folder(folder: &Path) -> Result<()> {
    remove_folder(folder)?;
    make_folder(folder)
}

/// The programs of a virtual environment of Python in `folder`, made where there is none.
pub fn python_programs(folder: &Path) -> Result<PathBuf> {
    let programs = folder.join("bin");
    if !programs.join("pip").is_file() {
        capture_output(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
    }
    Ok(programs)
}

/// The first thing that is missing for work of root with these programs: the rights, or a program.
pub fn missing_for_root(programs: &[&'static str]) -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("root");
    }
    programs.iter().copied().find(|name| find_on_path(name).is_none())
}

/// The first program of that name in the folders of PATH.
pub fn find_on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.is_file())
}
