//! `cargo xtask dist`: one static binary, and the packages made of it, in `target/packages/PROCESSOR`.
//!
//! The same commit and the same tools give the same bytes, in whatever folder: times are the commit's,
//! orders are sorted, owners are 0, and no path of the building machine is in the binary.

mod binary;
mod clean_root;
mod deb;
mod oci;
mod other_processor;
mod rpm;
mod sbom;
mod toolchain;
mod tree;
mod wheel;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

pub use self::clean_root::{first_source, make_debian};
pub use self::other_processor::check_aarch64;
pub use self::wheel::{add_program, find_wheel};

use self::toolchain::{Processor, Toolchain};
use crate::ci::Tally;
use crate::workspace::{Workspace, capture_output, find_on_path, make_folder, remove_folder};

const PROGRAMS: &[&str] =
    &["dpkg-deb", "git", "gzip", "nm", "readelf", "rpmbuild", "sha256sum", "tar"];
const SUMS: &str = "SHA256SUMS";
/// Levels of gzip and xz: for releases, and where only the bytes are compared.
const SMALLEST: u8 = 9;
const QUICKEST: u8 = 1;

/// Packages to make.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Pack this binary, built earlier by the same command, and build none.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Processor to build and pack for; otherwise this machine's. May be given more than once.
    #[arg(long, value_name = "PROCESSOR")]
    target: Vec<Processor>,
    /// Also make the Python package, with the program in it.
    #[arg(long)]
    wheel: bool,
    /// Where the packages of each processor get a folder; otherwise `target/packages`.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// The commit that is built.
#[derive(Clone, Debug)]
struct Commit {
    /// Its hash.
    revision: String,
    /// The hash as people read it, and whether files differ from it.
    name: String,
    /// Seconds since 1970: the time of every file.
    epoch: u64,
}

/// Facts of the release that every package gets.
#[derive(Debug)]
struct ReleaseInfo<'a> {
    workspace: &'a Workspace,
    /// As `Cargo.toml` has it.
    version: String,
    toolchain: Toolchain,
    commit: Commit,
    binary: PathBuf,
    /// The folder of the packages.
    out: PathBuf,
    /// Of xz, and of gzip for what is large: 1 to 9.
    compression: u8,
}

/// Builds the binary for each processor and packs it. Of several processors, the container images also get one index.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let mut processors = options.target.clone();
    if processors.is_empty() {
        processors.push(Processor::of_this_machine()?);
    }
    ensure!(options.binary.is_none() || processors.len() == 1, "--binary is for one processor");
    let folder = options.out.clone().unwrap_or_else(|| packages_folder(workspace));
    let folder = std::path::absolute(folder)?;
    let commit = Commit::read(workspace)?;
    let (mut releases, mut files) = (Vec::new(), Vec::new());
    for processor in processors {
        let toolchain = Toolchain::find(workspace, processor)?;
        let none_yet = &mut Tally::default();
        let binary = match &options.binary {
            Some(binary) => binary.clone(),
            None => binary::build_static_binary(workspace, &toolchain, &commit, none_yet)?,
        };
        let out = folder.join(processor.kernel_name());
        let release =
            ReleaseInfo::new(workspace, (toolchain, commit.clone()), &binary, &out, SMALLEST);
        files.extend(release.make_packages(options.wheel)?);
        releases.push(release);
    }
    if releases.len() > 1 {
        files.push(oci::make_oci_index(&releases, &folder)?);
    }
    for file in files {
        println!("{:>10} bytes  {}", fs::metadata(&file)?.len(), file.display());
    }
    Ok(())
}

/// A step of `cargo xtask ci`: packs twice, compares, and installs in a clean root. The binary is the static one that the
/// other steps check; `cargo xtask ci --full` builds the one of releases.
pub fn check_packages(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    let missing: Vec<&str> =
        PROGRAMS.iter().copied().filter(|name| find_on_path(name).is_none()).collect();
    if !missing.is_empty() {
        tally.skip(&missing.join(", "));
        return Ok(());
    }
    let binary = workspace.built_latput()?;
    binary::check_static(&binary)?;
    binary::check_calls(workspace)?;
    let folder = packages_folder(workspace);
    let [first, second] = ["first", "second/below"].map(|name| folder.join("check").join(name));
    let toolchain = Toolchain::find(workspace, Processor::of_this_machine()?)?;
    let built = (toolchain, Commit::read(workspace)?);
    let [first, second] = [first, second]
        .map(|out| ReleaseInfo::new(workspace, built.clone(), &binary, &out, QUICKEST));
    // One package after the other keeps a CPU busy, and a fresh Debian comes over the network.
    let (made, again, base) = std::thread::scope(|scope| {
        let [made, again] =
            [&first, &second].map(|release| scope.spawn(|| release.make_packages(false)));
        let base = clean_root::make_base_root(&folder, tally);
        let [made, again] = [made, again].map(|it| it.join().expect("packing does not panic"));
        (made, again, base)
    });
    let files = made?;
    again?;
    for file in &files {
        let name = file.file_name().context("a package has a name")?;
        let same = fs::read(file)? == fs::read(second.out.join(name))?;
        ensure!(same, "{} has other bytes when it is made again", name.display());
    }
    println!("{} files have the same bytes when they are made again", files.len());
    tally.passed += 1;
    match base? {
        Some(base) => clean_root::check_clean_root(&first, &folder, &base, tally),
        None => Ok(()),
    }
}

/// The clean root that [`check_packages`] installs in.
pub fn prepare_clean_root(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    clean_root::make_base_root(&packages_folder(workspace), tally).map(drop)
}

/// A slow step: the binary of releases.
pub fn build_release_binary(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    let toolchain = Toolchain::find(workspace, Processor::of_this_machine()?)?;
    binary::build_static_binary(workspace, &toolchain, &Commit::read(workspace)?, tally).map(drop)
}

fn packages_folder(workspace: &Workspace) -> PathBuf {
    workspace.target.join("packages")
}

impl Commit {
    fn read(workspace: &Workspace) -> Result<Self> {
        let git = |args: &[&str]| {
            let said = capture_output(Command::new("git").args(args).current_dir(&workspace.root))?;
            anyhow::Ok(said.trim().to_owned())
        };
        let epoch = match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(epoch) => epoch,
            Err(_) => git(&["log", "-1", "--format=%ct"])?,
        };
        let revision = git(&["rev-parse", "HEAD"])?;
        let changed = !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
        let name = revision.get(..12).context("a commit has a hash")?;
        Ok(Self {
            name: format!("{name}{}", if changed { " with changes" } else { "" }),
            epoch: epoch.parse().with_context(|| format!("SOURCE_DATE_EPOCH is `{epoch}`"))?,
            revision,
        })
    }

    /// Its time, in the form that date(1) understands.
    fn format_time(&self, form: &str) -> Result<String> {
        let at = format!("--date=@{}", self.epoch);
        let said = capture_output(Command::new("date").args(["-u", &at, &format!("+{form}")]))?;
        Ok(said.trim().to_owned())
    }
}

impl<'a> ReleaseInfo<'a> {
    fn new(
        workspace: &'a Workspace,
        (toolchain, commit): (Toolchain, Commit),
        binary: &Path,
        out: &Path,
        compression: u8,
    ) -> Self {
        Self {
            workspace,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            toolchain,
            commit,
            binary: binary.to_owned(),
            out: out.to_owned(),
            compression,
        }
    }

    fn processor(&self) -> Processor {
        self.toolchain.processor
    }

    /// The binary, to be run on this machine.
    fn run_binary(&self) -> Command {
        self.processor().run_program(&self.binary)
    }

    /// Makes every package, and the list of their sums; gives their files.
    fn make_packages(&self, with_wheel: bool) -> Result<Vec<PathBuf>> {
        remove_folder(&self.out)?;
        let parts = self.out.join("parts");
        make_folder(&parts)?;
        let binary = self.package_path("", "");
        write_file(&binary, &fs::read(&self.binary)?, 0o755)?;
        let mut files = vec![binary];
        files.push(self.make_tarball(&parts)?);
        files.push(deb::make_deb(self, &parts)?);
        files.push(rpm::make_rpm(self, &parts)?);
        files.push(oci::make_oci_image(self, &parts)?);
        files.push(sbom::make_sbom(self)?);
        if with_wheel {
            files.push(wheel::make_wheel(self, &parts)?);
        }
        let mut sums = Command::new("sha256sum");
        sums.current_dir(&self.out).args(files.iter().filter_map(|file| file.file_name()));
        let list = self.out.join(SUMS);
        write_file(&list, capture_output(&mut sums)?.as_bytes(), 0o644)?;
        files.push(list);
        remove_folder(&parts)?;
        Ok(files)
    }

    /// The tree below `/usr`, to be unpacked where one likes.
    fn make_tarball(&self, parts: &Path) -> Result<PathBuf> {
        let name = format!("latput-{}-{}-linux", self.version, self.processor().kernel_name());
        let folder = parts.join("tarball");
        tree::install_files(self, &folder.join(&name), "share/zsh/site-functions")?;
        let file = self.out.join(format!("{name}.tar.gz"));
        let tar = folder.join("tar");
        self.create_tar(&folder, &[&name], &tar)?;
        compress_file(&tar, &file, self.compression)?;
        Ok(file)
    }

    /// `latput-VERSION-ARCH-linux`, with an ending.
    fn package_path(&self, part: &str, ending: &str) -> PathBuf {
        self.out.join(format!(
            "latput-{}-{}-linux{part}{ending}",
            self.version,
            self.processor().kernel_name()
        ))
    }

    /// Packs entries of a folder: sorted, owned by 0, of the commit's time.
    fn create_tar(&self, folder: &Path, entries: &[&str], file: &Path) -> Result<()> {
        let mut tar = Command::new("tar");
        tar.args(["--create", "--format=ustar", "--sort=name", "--owner=0", "--group=0"]);
        tar.arg("--numeric-owner").arg(format!("--mtime=@{}", self.commit.epoch));
        tar.arg("--file").arg(file).arg("--directory").arg(folder).args(entries);
        capture_output(&mut tar).map(drop)
    }

    /// The commit's time (RFC 3339).
    fn format_commit_time(&self) -> Result<String> {
        self.commit.format_time("%Y-%m-%dT%H:%M:%SZ")
    }
}

/// Compresses a file, without its name and time.
fn compress_file(from: &Path, to: &Path, level: u8) -> Result<()> {
    let mut gzip = Command::new("gzip");
    let output = gzip.arg(format!("-{level}n")).arg("--stdout").arg(from).output()?;
    ensure!(output.status.success(), "gzip failed: {}", String::from_utf8_lossy(&output.stderr));
    write_file(to, &output.stdout, 0o644)
}

/// The SHA-256 of a file, in hexadecimal.
fn compute_sha256(file: &Path) -> Result<String> {
    let said = capture_output(Command::new("sha256sum").arg("--").arg(file))?;
    Ok(said.split_whitespace().next().unwrap_or_default().to_owned())
}

/// Writes a file with this mode, whatever the umask, and the folders above it with 0755.
fn write_file(file: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let shown = || format!("cannot write {}", file.display());
    let above = file.parent().context("a file is in a folder")?;
    let missing: Vec<&Path> = above.ancestors().take_while(|folder| !folder.exists()).collect();
    for folder in missing.into_iter().rev() {
        fs::create_dir(folder).with_context(shown)?;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).with_context(shown)?;
    }
    fs::write(file, bytes).with_context(shown)?;
    fs::set_permissions(file, fs::Permissions::from_mode(mode)).with_context(shown)
}
