//! `latput --version`, which has more than `latput -V`: the build, and the kernel interfaces that are there.

use latput_linux::find_kernel_features;

use crate::exit::CliError;
use crate::output;

/// The commit of the build, and its day. `cargo xtask dist` sets both; they depend on the commit alone, and so do the bytes of
/// the binary.
const COMMIT: Option<&str> = option_env!("LATPUT_COMMIT");
const COMMIT_DATE: Option<&str> = option_env!("LATPUT_COMMIT_DATE");

/// Whether the command line has the long word.
pub(crate) fn is_long_asked() -> bool {
    std::env::args_os().any(|word| word == "--version")
}

/// Prints the version, then a line for each fact.
pub(crate) fn print_long() -> Result<(), CliError> {
    let commit = COMMIT.map_or_else(
        || "not recorded (`cargo xtask dist` records it)".to_owned(),
        |commit| format!("{commit} of {}", COMMIT_DATE.unwrap_or("an unknown day")),
    );
    let facts = [("commit", commit), ("build", describe_build())];
    let facts = facts.into_iter().chain(find_kernel_features());
    let lines: Vec<String> = facts.map(|(name, what)| format!("{name}: {what}\n")).collect();
    output::print_text(&format!("latput {}\n{}", env!("CARGO_PKG_VERSION"), lines.concat()))
}

/// The processor, how the C library is linked, and whether debug assertions are in.
fn describe_build() -> String {
    let linked = if cfg!(target_feature = "crt-static") { "static" } else { "dynamic" };
    let checks = if cfg!(debug_assertions) { ", debug assertions" } else { "" };
    format!("{} {}, {linked}{checks}", std::env::consts::ARCH, std::env::consts::OS)
}
