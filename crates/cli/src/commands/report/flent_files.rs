//! Data files for flent: one for a run of one setting under one workload, or a folder of them with a manifest.
//!
//! flent compares files, as in `flent -i A -i B -p ping_cdf`. Settings as series of one file would be wrong there:
//! flent adds all `TCP upload::*` of a file up.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use latput_formats::flent::{self, FlentFile};
use latput_formats::gzip;
use latput_linux::files;
use latput_trial::Results;
use latput_units::text::format_count;

use super::format::{FLENT, FLENT_FOLDER};
use crate::document::flent::{ManifestDocument, ManifestFile};
use crate::exit::{CliError, ExitReason};
use crate::output;

/// Most characters of a name made of a workload or a setting.
const NAME_CHARS_MOST: usize = 60;
/// The manifest in the folder.
const MANIFEST: &str = "manifest.json";

/// Writes the runs to `output`.
pub(super) fn write(results: &Results, output: Option<&Path>) -> Result<ExitCode, CliError> {
    let path = output.ok_or_else(|| {
        CliError::usage(format!("--format flent needs -o with a name that ends in {FLENT}"))
    })?;
    let name = path.to_string_lossy();
    let files = flent::write(results);
    if files.is_empty() {
        return Err(CliError::new(ExitReason::Failed, "the run has no finished trial to write"));
    }
    if name.ends_with(FLENT_FOLDER) {
        write_folder(path, &files)?;
        return Ok(ExitCode::SUCCESS);
    }
    let stem = name.strip_suffix(FLENT).ok_or_else(|| {
        CliError::usage(format!(
            "{name}: flent opens only files whose names end in {FLENT}; a folder of them ends in {FLENT_FOLDER}"
        ))
    })?;
    let [file] = files.as_slice() else {
        let count = files.len();
        return Err(CliError::usage(format!(
            "{name}: a flent file has one setting and one workload, and the run has {count} such pairs. `-o \
             {stem}{FLENT_FOLDER}` makes a folder with a file for each"
        )));
    };
    files::replace(path, &gzip::pack(&file.text))?;
    output::print_remark(&format!("{name}: {}", file.title()));
    Ok(ExitCode::SUCCESS)
}

fn write_folder(folder: &Path, several: &[FlentFile]) -> Result<(), CliError> {
    make_folder(folder)?;
    let mut listed = Vec::new();
    for (number, file) in (1..).zip(several) {
        let (workload, setting) = (sanitize_name(&file.workload), sanitize_name(&file.setting));
        let name = format!("{number:02}-{workload}-{setting}{FLENT}");
        files::replace(&folder.join(&name), &gzip::pack(&file.text))?;
        listed.push(ManifestFile {
            file: name,
            workload: file.workload.clone(),
            setting: file.setting.clone(),
            flent_test: file.test.to_owned(),
        });
    }
    let manifest = ManifestDocument { schema: 1, files: listed };
    let text = serde_json::to_string_pretty(&manifest)
        .map_err(|error| CliError { code: ExitReason::Failed, error: error.into() })?;
    let path: PathBuf = folder.join(MANIFEST);
    output::write_file(&path, &(text + "\n"))?;
    output::print_remark(&format!(
        "{}: {}; listed in {MANIFEST}",
        folder.display(),
        format_count(several.len(), "data file")
    ));
    Ok(())
}

/// Makes the folder unless it is there. One behind a symbolic link is somebody else's choice.
fn make_folder(folder: &Path) -> Result<(), CliError> {
    let refused = |problem: String| {
        CliError::new(ExitReason::Failed, format!("{}: {problem}", folder.display()))
    };
    match std::fs::create_dir(folder) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let found = folder.symlink_metadata()?;
            if found.is_dir() {
                Ok(())
            } else if found.is_symlink() {
                Err(refused("it is a symbolic link: name another file".to_owned()))
            } else {
                Err(refused("it is not a folder: name another file".to_owned()))
            }
        }
        Err(error) => Err(refused(format!("cannot make the folder: {error}"))),
    }
}

/// A part of a file's name.
fn sanitize_name(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.=".contains(c);
    text.chars().take(NAME_CHARS_MOST).map(|c| if is_plain(c) { c } else { '_' }).collect()
}
