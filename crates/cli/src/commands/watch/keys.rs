//! Keys of a terminal, as bytes of its input.

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// A letter or sign of ASCII.
    Char(char),
    Enter,
    Up,
    Down,
    Escape,
}

/// The keys that are pressed within this time; `None` where the terminal is gone.
pub(super) fn read_keys(wait: Duration) -> io::Result<Option<Vec<Key>>> {
    let stdin = io::stdin();
    let timeout = Timespec::try_from(wait).map_err(io::Error::other)?;
    let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
    match poll(&mut polled, Some(&timeout)) {
        Ok(0) | Err(Errno::INTR) => return Ok(Some(Vec::new())),
        Ok(_) => {}
        Err(error) => return Err(error.into()),
    }
    let mut bytes = [0; 64];
    match rustix::io::read(&stdin, &mut bytes) {
        Ok(0) | Err(Errno::IO) => Ok(None),
        Ok(count) => Ok(Some(parse_keys(&bytes[..count]))),
        Err(Errno::INTR | Errno::AGAIN) => Ok(Some(Vec::new())),
        Err(error) => Err(error.into()),
    }
}

/// Reads keys. Sequences of keys that have no use here are passed over.
fn parse_keys(bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut rest = bytes;
    while let [first, behind @ ..] = rest {
        rest = behind;
        match first {
            b'\x1b' => {
                let (key, length) = parse_sequence(behind);
                keys.extend(key);
                rest = &behind[length..];
            }
            b'\r' | b'\n' => keys.push(Key::Enter),
            b' '..=b'~' => keys.push(Key::Char(char::from(*first))),
            _ => {}
        }
    }
    keys
}

/// The key of the bytes behind an escape, and how many of them are its.
fn parse_sequence(bytes: &[u8]) -> (Option<Key>, usize) {
    let [b'[' | b'O', parameters @ ..] = bytes else { return (Some(Key::Escape), 0) };
    let Some(end) = parameters.iter().position(|byte| (b'@'..=b'~').contains(byte)) else {
        return (None, bytes.len());
    };
    let key = match parameters[end] {
        b'A' => Some(Key::Up),
        b'B' => Some(Key::Down),
        _ => None,
    };
    (key, end + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_are_told_from_escape() {
        let keys = parse_keys(b"j\x1b[A\x1bOB\x1b[5~\r?\x1b");
        let expected =
            [Key::Char('j'), Key::Up, Key::Down, Key::Enter, Key::Char('?'), Key::Escape];
        assert_eq!(keys, expected);
    }

    #[test]
    fn cut_and_foreign_bytes_give_no_key() {
        assert!(parse_keys(b"\x1b[").is_empty());
        assert!(parse_keys(b"\x01\xc3\xa4").is_empty());
    }
}
