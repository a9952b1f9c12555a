//! For the fuzzer: what reads files that strangers may have written.

use crate::testbed::Testbed;

/// Reads any text as a testbed file.
pub fn testbed(text: &str) {
    let _ = Testbed::parse("testbed.toml", text);
}
