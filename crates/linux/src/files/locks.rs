//! The kernel's table of file locks (`proc_locks(5)`): it tells of a lock without touching it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;

const TABLE: &str = "/proc/locks";

/// Whether a process has a flock(2) on the file. Processes of another PID namespace are not in the table.
pub(super) fn is_held(file: &File) -> io::Result<bool> {
    let meta = file.metadata()?;
    let table = fs::read_to_string(TABLE)?;
    let device = (libc::major(meta.dev()), libc::minor(meta.dev()));
    Ok(table.lines().any(|line| locked_file(line) == Some((device, meta.ino()))))
}

/// The device and inode of a line of the table that is of a flock(2) which is held:
/// `1: FLOCK  ADVISORY  WRITE 708 00:13:66491 0 EOF`. One that only waits has `->` behind its number.
fn locked_file(line: &str) -> Option<((u32, u32), u64)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, "FLOCK", _, _, _, file, ..] = words[..] else { return None };
    let mut parts = file.split(':');
    let mut hex = || u32::from_str_radix(parts.next()?, 16).ok();
    let device = (hex()?, hex()?);
    Some((device, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_flocks_are_found_by_inode() {
        let of = |line: &str| locked_file(line);
        assert_eq!(
            of("1: FLOCK  ADVISORY  WRITE 708 fe:0a:66491 0 EOF"),
            Some(((0xfe, 10), 66491))
        );
        for other in [
            "1: -> FLOCK  ADVISORY  WRITE 708 fe:0a:66491 0 EOF",
            "2: POSIX  ADVISORY  READ 9298 fe:00:3024400 128 128",
            "3: OFDLCK ADVISORY  READ -1 00:06:1028 0 EOF",
            "4: FLOCK  ADVISORY  WRITE 708 fe:0a 0 EOF",
            "4: FLOCK  ADVISORY  WRITE 708",
            "",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn lock_is_seen_while_it_is_held() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let opened = File::open(file.path()).unwrap();
        assert!(!is_held(&opened).unwrap());
        file.as_file().lock().unwrap();
        assert!(is_held(&opened).unwrap());
        file.as_file().unlock().unwrap();
        assert!(!is_held(&opened).unwrap());
    }
}
