//! The setting of a results file for `keep`, which has all rights: a process of its own without rights reads the file.

use std::io::Read;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use latput_linux::confine::UsedFiles;

use crate::commands::export_settings::{SourceArgs, WantedSetting};
use crate::context::keep_only_files;
use crate::exit::{CliError, ExitReason};
use crate::output;

/// The hidden command that reads the file.
pub(crate) const READER: &str = "read-setting";
/// Most bytes of what it says: a setting has some hundred values, of which a queue list may be long.
const BYTES_MOST: u64 = 1 << 20;

/// Read the setting of a results file without rights; started by `latput keep`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The results file.
    file: String,
    #[command(flatten)]
    of: SourceArgs,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        keep_only_files(&UsedFiles::new([Path::new(&self.file)], []))?;
        output::print_json(&self.of.read_results(&self.file)?)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The setting, read by another process. Where that fails it has said why, and this is its exit code.
pub(super) fn read(
    file: &str,
    of: &SourceArgs,
    is_json: bool,
) -> Result<Result<WantedSetting, ExitCode>, CliError> {
    let mut command = Command::new("/proc/self/exe");
    command.args(is_json.then_some("--json")).arg(READER).args(of.to_args());
    command.args(["--", file]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let mut text = Vec::new();
    let mut from = child.stdout.take().expect("stdout is piped").take(BYTES_MOST);
    let read = from.read_to_end(&mut text);
    drop(from);
    let status = child.wait()?;
    read?;
    if !status.success() {
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        return Ok(Err(code.map_or_else(|| ExitReason::Failed.into(), ExitCode::from)));
    }
    let wanted = serde_json::from_slice(&text).map_err(|error| {
        CliError::new(ExitReason::Failed, format!("the process that reads {file} said {error}"))
    })?;
    Ok(Ok(wanted))
}
