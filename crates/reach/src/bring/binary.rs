//! The program that is brought: static, and for the far end's CPUs.

use std::fs::File;
use std::path::{Path, PathBuf};

use latput_linux::files;

/// More than any latput has: 1 GiB.
const BYTES_MOST: u64 = 1 << 30;
/// `uname -m`, and `e_machine` of its programs (elf(5), `include/uapi/linux/elf-em.h`).
const MACHINES: [(&str, u16); 7] = [
    ("x86_64", 62),
    ("aarch64", 183),
    ("riscv64", 243),
    ("ppc64le", 21),
    ("s390x", 22),
    ("i686", 3),
    ("armv7l", 40),
];

/// The programs that may be brought, opened while this process may read them; which one is told by the far end.
#[derive(Debug)]
pub(super) struct ProgramCandidates {
    /// The user has named the only one.
    is_named: bool,
    opened: Vec<(PathBuf, Result<File, String>)>,
}

impl ProgramCandidates {
    /// `file`, or else this program and the static one beside it.
    pub(super) fn open(file: Option<&Path>) -> Self {
        let own = || std::env::current_exe().into_iter().chain(latput_vm::beside_program("latput"));
        let paths = file.map_or_else(|| own().collect(), |file| vec![file.to_owned()]);
        let open = |path: PathBuf| {
            let opened = File::open(&path);
            let problem = |error| format!("{}: cannot read: {error}", path.display());
            let opened = opened.map_err(problem);
            (path, opened)
        };
        Self { is_named: file.is_some(), opened: paths.into_iter().map(open).collect() }
    }

    /// The first that runs on a host whose `uname -m` is `machine`.
    pub(super) fn for_machine(self, machine: &str) -> Result<Vec<u8>, String> {
        let mut faults = Vec::new();
        for (path, opened) in self.opened {
            let program = files::read_open(&path, opened?, BYTES_MOST);
            let program = program.map_err(|error| error.to_string())?;
            let Some(fault) = explain_incompatibility(&program, machine) else {
                return Ok(program);
            };
            if self.is_named {
                return Err(format!("--bring {}: {fault}", path.display()));
            }
            faults.push(format!("{} cannot be copied there: {fault}", path.display()));
        }
        Err(none_fits(&faults))
    }
}

fn none_fits(faults: &[String]) -> String {
    format!(
        "there is no latput {} there, and {}; install it there, run the static release here, or name a static one \
         with --bring FILE",
        env!("CARGO_PKG_VERSION"),
        faults.join("; ")
    )
}

/// Why a program does not run on a host of this kind; `None` where it does.
fn explain_incompatibility(program: &[u8], machine: &str) -> Option<String> {
    let Some(has) = machine_of(program) else { return Some("it is not a program".to_owned()) };
    let Some((_, wants)) = MACHINES.iter().find(|(name, _)| *name == machine) else {
        return Some(format!("latput does not know CPUs of the type `{machine}`"));
    };
    if has != *wants {
        let name = MACHINES
            .iter()
            .find(|(_, number)| *number == has)
            .map_or("another type", |found| found.0);
        return Some(format!("it is for {name}, but the CPUs there are {machine}"));
    }
    // Of other widths than 64 bits nothing is known here; they are not refused for that.
    (latput_vm::is_static(program) == Some(false))
        .then(|| "it needs shared libraries, which another host may not have".to_owned())
}

/// `e_machine`, in the byte order that the header names.
fn machine_of(program: &[u8]) -> Option<u16> {
    let bytes = [*program.get(18)?, *program.get(19)?];
    match (program.starts_with(b"\x7fELF"), program[5]) {
        (true, 1) => Some(u16::from_le_bytes(bytes)),
        (true, 2) => Some(u16::from_be_bytes(bytes)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsuitable_program_is_told_with_reason() {
        let mut program = vec![0; 128];
        program[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        program[18] = 183;
        assert_eq!(explain_incompatibility(&program, "aarch64"), None);
        assert!(explain_incompatibility(&program, "x86_64").unwrap().contains("it is for aarch64"));
        assert!(explain_incompatibility(&program, "vax").unwrap().contains("`vax`"));
        assert!(explain_incompatibility(b"#!/bin/sh", "x86_64").unwrap().contains("not a program"));
        program[5] = 2;
        program[18..20].copy_from_slice(&[0, 22]);
        assert_eq!(machine_of(&program), Some(22));
    }

    #[test]
    fn file_that_is_not_there_is_named() {
        let programs = ProgramCandidates::open(Some(Path::new("no/such/latput")));
        let problem = programs.for_machine("x86_64").unwrap_err();
        assert!(problem.contains("no/such/latput"), "{problem}");
    }
}
