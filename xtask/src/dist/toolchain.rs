//! Processors that packages are made for, and the programs that build and run for each of them on this machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail, ensure};

use crate::workspace::{Workspace, capture_output, find_on_path};

/// Runs programs of aarch64 on another processor (qemu-user).
const EMULATOR: &str = "qemu-aarch64-static";
const CROSS_COMPILER: &str = "aarch64-linux-gnu-gcc";
const REMEDY: &str = "run `.ci/cross`, which sets up what building for another processor needs";

/// A processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Processor {
    /// Of Intel and AMD.
    #[value(name = "x86_64")]
    X86_64,
    /// Of Arm, with 64 bits.
    #[value(name = "aarch64")]
    Aarch64,
}

impl Processor {
    /// The one of this machine.
    pub fn of_this_machine() -> Result<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Ok(Self::X86_64),
            "aarch64" => Ok(Self::Aarch64),
            other => bail!("no packages are made for {other}"),
        }
    }

    /// As the kernel calls it.
    pub fn kernel_name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// As Debian and OCI call it.
    pub fn debian_name(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    /// As rustc calls it, with the system.
    pub fn triple(self) -> String {
        format!("{}-unknown-linux-gnu", self.kernel_name())
    }

    fn is_native(self) -> bool {
        Self::of_this_machine().is_ok_and(|own| own == self)
    }

    /// Starts a program of this processor, by an emulator where it is not this machine's.
    pub fn run_program(self, program: &Path) -> Command {
        if self.is_native() {
            return Command::new(program);
        }
        let mut emulator = Command::new(EMULATOR);
        emulator.arg(program);
        emulator
    }
}

/// Programs that compile and link for a processor.
#[derive(Clone, Debug)]
pub struct Toolchain {
    /// The processor.
    pub processor: Processor,
    /// `rustc`.
    rustc: PathBuf,
    /// The compiler of C, which also links.
    compiler: &'static str,
    /// The folder of `ld.lld`, where `compiler` does not find it by itself.
    linker: Option<PathBuf>,
}

impl Toolchain {
    /// Finds it: this machine's own, or a cross compiler with the rustc that has the processor's library.
    pub fn find(workspace: &Workspace, processor: Processor) -> Result<Self> {
        let rustc = PathBuf::from("rustc");
        if processor.is_native() {
            return Ok(Self { processor, rustc, compiler: "cc", linker: None });
        }
        ensure!(processor == Processor::Aarch64, "no cross compiler is known for {processor:?}");
        for program in [CROSS_COMPILER, EMULATOR] {
            ensure!(find_on_path(program).is_some(), "{program} is missing; {REMEDY}");
        }
        let unpacked = workspace.target.join("programs-of-debian/cross/bin");
        let (rustc, linker) = match linker_of_rustup(processor)? {
            Some(linker) => (rustc, linker),
            None => (unpacked.join("rustc"), unpacked),
        };
        ensure!(linker.is_dir(), "rustc has no library for {}; {REMEDY}", processor.triple());
        Ok(Self { processor, rustc, compiler: CROSS_COMPILER, linker: Some(linker) })
    }

    /// `rustc`, to be asked.
    pub fn rustc(&self) -> Command {
        Command::new(&self.rustc)
    }

    /// The compiler of C, to be asked.
    pub fn compiler(&self) -> Command {
        Command::new(self.compiler)
    }

    /// Makes cargo take this rustc.
    pub fn choose_rustc(&self, build: &mut Command) {
        if !self.processor.is_native() {
            build.env("RUSTC", &self.rustc);
        }
    }

    /// Tells cargo, in the variables that it and the `cc` crate read. Flags are told by [`Self::link_flags`].
    pub fn configure_cargo(&self, build: &mut Command) {
        if self.processor.is_native() {
            return;
        }
        let triple = self.processor.triple().replace('-', "_");
        self.choose_rustc(build);
        let target = format!("CARGO_TARGET_{}", triple.to_uppercase());
        build.env(format!("{target}_LINKER"), self.compiler);
        build.env(format!("{target}_RUNNER"), EMULATOR);
        build.env(format!("CC_{triple}"), self.compiler);
    }

    /// Flags of rustc that make the linker lld, as it is for `x86_64` by itself, and let it strip: Debian's rustc does not.
    pub fn link_flags(&self) -> Vec<String> {
        let Some(folder) = &self.linker else { return Vec::new() };
        let lld = ["-fuse-ld=lld".to_owned(), format!("-B{}", folder.display())];
        let all = lld.into_iter().chain(["-Wl,--strip-all".to_owned()]);
        all.map(|flag| format!("-Clink-arg={flag}")).collect()
    }
}

/// The folder of `ld.lld` in rustup's toolchain, where that has the processor's library (`rustup target add`).
fn linker_of_rustup(processor: Processor) -> Result<Option<PathBuf>> {
    let ask = |words: &[&str]| capture_output(Command::new("rustc").args(words));
    let library = ask(&["--print", "target-libdir", "--target", &processor.triple()])?;
    let own = ask(&["--print", "target-libdir"])?;
    let linker = Path::new(own.trim()).with_file_name("bin/gcc-ld");
    Ok(Path::new(library.trim()).is_dir().then_some(linker))
}
