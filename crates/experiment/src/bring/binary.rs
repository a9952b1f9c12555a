//! The program that is brought: static, and for the far end's CPUs.

use std::path::Path;

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

/// `file`, or else this program, or the static one beside it, for a host whose `uname -m` is `machine`.
pub(super) fn for_machine(machine: &str, file: Option<&Path>) -> Result<Vec<u8>, String> {
    if let Some(file) = file {
        let program = read(file)?;
        return match fault(&program, machine) {
            None => Ok(program),
            Some(fault) => Err(format!("--bring {}: {fault}", file.display())),
        };
    }
    let own =
        std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let beside = latput_vm::beside_program("latput");
    let mut faults = Vec::new();
    for path in [Some(own), beside].into_iter().flatten() {
        let program = read(&path)?;
        match fault(&program, machine) {
            None => return Ok(program),
            Some(fault) => faults.push(format!("{} cannot be brought: {fault}", path.display())),
        }
    }
    Err(format!(
        "there is no latput {} there, and {}; install it there, run the static release here, or name a static one \
         with --bring FILE",
        env!("CARGO_PKG_VERSION"),
        faults.join("; ")
    ))
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    files::read(path, BYTES_MOST).map_err(|error| error.to_string())
}

/// Why a program does not run on a host of this kind; `None` where it does.
fn fault(program: &[u8], machine: &str) -> Option<String> {
    let Some(has) = machine_of(program) else { return Some("it is no program".to_owned()) };
    let Some((_, wants)) = MACHINES.iter().find(|(name, _)| *name == machine) else {
        return Some(format!("nothing is known of CPUs of the type `{machine}`"));
    };
    if has != *wants {
        let name = MACHINES
            .iter()
            .find(|(_, number)| *number == has)
            .map_or("another type", |found| found.0);
        return Some(format!("it is for {name}, and the CPUs there are {machine}"));
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
    fn a_program_that_cannot_run_there_is_told_with_the_reason() {
        let mut program = vec![0; 128];
        program[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        program[18] = 183;
        assert_eq!(fault(&program, "aarch64"), None);
        assert!(fault(&program, "x86_64").unwrap().contains("it is for aarch64"));
        assert!(fault(&program, "vax").unwrap().contains("`vax`"));
        assert!(fault(b"#!/bin/sh", "x86_64").unwrap().contains("no program"));
        program[5] = 2;
        program[18..20].copy_from_slice(&[0, 22]);
        assert_eq!(machine_of(&program), Some(22));
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let problem = for_machine("x86_64", Some(Path::new("no/such/latput"))).unwrap_err();
        assert!(problem.contains("no/such/latput"), "{problem}");
    }
}
