//! Entry points of the fuzzer: parsers of files from untrusted sources.

use crate::testbed::Testbed;

/// Reads any text as a testbed file.
pub fn testbed(text: &str) {
    let _ = Testbed::parse("testbed.toml", text);
}
