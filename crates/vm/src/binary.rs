//! Finds a latput that runs where there are no libraries: a static one.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::kernel::beside_program;
use crate::modules::ELF_MAGIC;

/// Names the static latput.
const VARIABLE: &str = "LATPUT_VM_BINARY";
/// `ELFCLASS64` (elf(5)).
const BITS_64: u8 = 2;
/// `PT_INTERP`: the program header that names the loader of libraries (elf(5)).
const INTERPRETER: u32 = 3;

/// The file of `LATPUT_VM_BINARY`, else this program if it is static, else the one beside it
/// (`vm/latput`, where `cargo xtask vm` puts it).
pub(crate) fn read() -> Result<Vec<u8>, Error> {
    let missing = |what: String| Error::Missing {
        what,
        mend: format!(
            "the guest has no libraries: build one with `cargo xtask vm`, or name one in {VARIABLE}"
        ),
    };
    if let Some(path) = std::env::var_os(VARIABLE).map(PathBuf::from) {
        let program = read_file(&path)?;
        if is_static(&program) != Some(true) {
            return Err(missing(format!("{VARIABLE} is {}: not static", path.display())));
        }
        return Ok(program);
    }
    let own = std::env::current_exe().map_err(|source| Error::io("find this program", source))?;
    for path in [Some(own), beside_program("latput")].into_iter().flatten() {
        let program = read_file(&path)?;
        if is_static(&program) == Some(true) {
            return Ok(program);
        }
    }
    Err(missing("this latput needs libraries".to_owned()))
}

fn read_file(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|source| Error::io(format!("read {}", path.display()), source))
}

/// Whether a program of 64 bits asks for no loader of libraries; `None` for what is no such program.
pub fn is_static(program: &[u8]) -> Option<bool> {
    has_interpreter(program).map(|has| !has)
}

fn has_interpreter(program: &[u8]) -> Option<bool> {
    let number = |at: usize, length: usize| {
        let mut bytes = [0; 8];
        bytes[..length].copy_from_slice(program.get(at..at.checked_add(length)?)?);
        usize::try_from(u64::from_le_bytes(bytes)).ok()
    };
    if !program.starts_with(ELF_MAGIC) || *program.get(4)? != BITS_64 {
        return None;
    }
    let table = number(32, 8)?;
    let size = number(54, 2)?;
    let count = number(56, 2)?;
    for idx in 0..count {
        let kind = number(table.checked_add(idx * size)?, 4)?;
        if kind == INTERPRETER as usize {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_with_loader_is_not_static() {
        check_static(&[1, 2], true);
        check_static(&[1, INTERPRETER, 2], false);
        check_static(&[], true);
    }

    #[test]
    fn what_is_no_program_is_not_static() {
        for bytes in [&b""[..], b"#!/bin/sh", b"\x7fELF", &[0; 64], b"\x7fELF\x01"] {
            assert!(is_static(bytes).is_none(), "{bytes:?}");
        }
        let whole = build_program(&[1, 2]);
        for end in 0..whole.len() - 4 {
            assert_ne!(is_static(&whole[..end]), Some(true), "{end}");
        }
    }

    /// A header and program headers of 8 bytes, of which only the kind counts here.
    fn build_program(kinds: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..5].copy_from_slice(b"\x7fELF\x02");
        bytes[32] = 64;
        bytes[54] = 8;
        bytes[56] = u8::try_from(kinds.len()).unwrap();
        for kind in kinds {
            bytes.extend_from_slice(&kind.to_le_bytes());
            bytes.extend_from_slice(&[0; 4]);
        }
        bytes
    }

    #[track_caller]
    fn check_static(kinds: &[u32], expected: bool) {
        assert_eq!(is_static(&build_program(kinds)), Some(expected), "{kinds:?}");
    }
}
