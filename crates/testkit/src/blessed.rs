//! Files in the tree that tests hold against the code: with `LATPUT_BLESS=1` in the environment a test writes its file
//! anew instead.

use std::fs;
use std::path::Path;

/// The whole file at `path` must be `text`.
///
/// # Panics
///
/// It is not, or it cannot be written.
#[track_caller]
pub fn file(path: impl AsRef<Path>, text: &str) {
    let path = path.as_ref();
    if std::env::var_os("LATPUT_BLESS").is_some() {
        fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    let kept = fs::read_to_string(path).unwrap_or_default();
    assert_eq!(kept, text, "{}: write it anew with LATPUT_BLESS=1", path.display());
}

/// Checks that the file at `path` has `text` between the lines `begin` and `end`.
///
/// # Panics
///
/// It is not, the file or a line is missing, or it cannot be written.
#[track_caller]
pub fn between(path: impl AsRef<Path>, [begin, end]: [&str; 2], text: &str) {
    let path = path.as_ref();
    let whole =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (head, rest) = whole.split_once(begin).expect("the file has the first mark");
    let (_, tail) = rest.split_once(end).expect("the file has the second mark");
    file(path, &[head, begin, text, end, tail].concat());
}
