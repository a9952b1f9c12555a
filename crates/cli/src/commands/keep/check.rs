//! `latput keep --check`: compares what is kept with the files and the values of now.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use latput_knobs::{KernelErrorKind, Knob, no_interface};
use latput_linux::{LinuxKernel, RootFolder};
use serde::Serialize;

use super::choose;
use super::files::{FileState, Record};
use crate::exit::{CliError, Code};
use crate::output;

/// What is kept for one interface, beside what there is.
#[derive(Debug, Serialize)]
struct CheckedInterface {
    interface: String,
    files: Vec<CheckedFile>,
    /// Each kept value; empty below a folder that is not `/`, whose kernel does not run.
    knobs: Vec<CheckedKnob>,
    /// Why values may differ, each a sentence.
    reasons: Vec<String>,
}

#[derive(Debug, Serialize)]
struct CheckedFile {
    file: String,
    state: FileState,
}

#[derive(Debug, Serialize)]
struct CheckedKnob {
    knob: String,
    kept: String,
    state: KnobState,
    /// The values of now that differ, each once.
    in_force: Vec<String>,
    /// Why it could not be read.
    problem: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum KnobState {
    InForce,
    Different,
    Unread,
}

impl KnobState {
    const fn describe(self) -> &'static str {
        match self {
            Self::InForce => "in force",
            Self::Different => "different",
            Self::Unread => "cannot be read",
        }
    }
}

/// Compares and prints. The exit code is 8 where a file or a value differs, 6 where a value cannot be read.
pub(super) fn check(
    root: &RootFolder,
    records: &[Record],
    is_json: bool,
) -> Result<ExitCode, CliError> {
    let checked: Result<Vec<CheckedInterface>, CliError> =
        records.iter().map(|record| CheckedInterface::of_record(root, record)).collect();
    let checked = checked?;
    if is_json {
        output::print_json(&serde_json::json!({ "schema": 1, "kept": checked }))?;
    } else {
        output::print(&checked.iter().map(CheckedInterface::in_words).collect::<String>())?;
    }
    let has_knob = |state| checked.iter().flat_map(|it| &it.knobs).any(|knob| knob.state == state);
    let has_changed_file =
        checked.iter().flat_map(|it| &it.files).any(|file| file.state != FileState::AsWritten);
    Ok(if has_changed_file || has_knob(KnobState::Different) {
        Code::Drifted.into()
    } else if has_knob(KnobState::Unread) {
        Code::Partial.into()
    } else {
        ExitCode::SUCCESS
    })
}

impl CheckedInterface {
    fn of_record(root: &RootFolder, record: &Record) -> Result<Self, CliError> {
        let files: Vec<CheckedFile> = record
            .file_states(root)?
            .into_iter()
            .map(|(file, state)| CheckedFile { file, state })
            .collect();
        let mut checked = Self {
            interface: record.interface.clone(),
            files,
            knobs: Vec::new(),
            reasons: Vec::new(),
        };
        if root.path() == Path::new("/") {
            checked.knobs = compare(record)?;
            checked.reasons = checked.reasons_of(record);
        } else {
            let why =
                "this is no running system, so no value can be read: only the files were checked";
            checked.reasons.push(why.to_owned());
        }
        Ok(checked)
    }

    /// What may be behind values that are not in force.
    fn reasons_of(&self, record: &Record) -> Vec<String> {
        if self.knobs.is_empty() {
            let why = "an older latput kept this without a list of values: keep it again to have them checked";
            return vec![why.to_owned()];
        }
        if self.knobs.iter().all(|knob| knob.state != KnobState::Different) {
            return Vec::new();
        }
        let format = record.format();
        let mut reasons = Vec::new();
        if let Some(other) = choose::link_in_place_of(format, &self.interface) {
            reasons.push(other);
        }
        if self.files.iter().all(|file| file.state == FileState::AsWritten) {
            reasons.push(format!(
                "the files were not read since they were written, the driver refused a value, or another program \
                 changed it. Read them: {}",
                choose::reload(format, &self.interface)
            ));
        }
        reasons
    }

    fn in_words(&self) -> String {
        let mut text = format!("{}\n", self.interface);
        for CheckedFile { file, state } in &self.files {
            let _ = writeln!(text, "  {file}: {}", state.describe());
        }
        let width = |of: fn(&CheckedKnob) -> &str| {
            self.knobs.iter().map(|knob| of(knob).len()).max().unwrap_or(0)
        };
        let (names, values) = (width(|knob| &knob.knob), width(|knob| &knob.kept));
        for CheckedKnob { knob, kept, state, in_force, problem } in &self.knobs {
            let state = state.describe();
            let _ = write!(text, "  {knob:<names$}  {kept:<values$}  {state}");
            if !in_force.is_empty() {
                let _ = write!(text, ": {}", in_force.join(", "));
            }
            if let Some(problem) = problem {
                let _ = write!(text, ": {problem}");
            }
            text.push('\n');
        }
        for reason in &self.reasons {
            let _ = writeln!(text, "  {reason}");
        }
        text
    }
}

/// Reads each kept knob.
fn compare(record: &Record) -> Result<Vec<CheckedKnob>, CliError> {
    let kernel = LinuxKernel::open()?;
    let survey = kernel.survey(&record.interface);
    let mut knobs = Vec::new();
    for (name, kept) in record.setting() {
        let unread = |problem: String| CheckedKnob {
            knob: name.clone(),
            kept: kept.clone(),
            state: KnobState::Unread,
            in_force: Vec::new(),
            problem: Some(problem),
        };
        let parsed: Option<(Knob, _)> =
            name.parse().ok().and_then(|knob: Knob| Some((knob, knob.parse_value(kept).ok()?)));
        let Some((knob, wanted)) = parsed else {
            knobs.push(unread("this latput does not know the knob or its value".to_owned()));
            continue;
        };
        let values = survey.iter().find(|surveyed| surveyed.knob == knob).map(|it| &it.values);
        knobs.push(match values {
            Some(Ok(values)) => {
                let differing = values.iter().filter(|(_, now)| !knob.spec().takes(&wanted, now));
                let mut in_force: Vec<String> =
                    differing.map(|(_, value)| value.to_string()).collect();
                in_force.dedup();
                let state =
                    if in_force.is_empty() { KnobState::InForce } else { KnobState::Different };
                let knob = name.clone();
                CheckedKnob { knob, kept: kept.clone(), state, in_force, problem: None }
            }
            Some(Err(error)) if error.kind == KernelErrorKind::NoInterface => {
                unread(no_interface(&record.interface))
            }
            Some(Err(error)) => unread(error.reason.clone()),
            None => unread("the kernel was not asked for it".to_owned()),
        });
    }
    Ok(knobs)
}
