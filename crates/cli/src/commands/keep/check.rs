//! `latput keep --check`: what is kept, compared with its files and with the values in force.

use std::fmt::Write as _;
use std::process::ExitCode;

use latput_knobs::{Capability, KernelRead, Knob, Value};
use latput_linux::{LinuxKernel, RootFolder};

use super::files::{FileNow, KeepRecord, KeptValue};
use super::{nothing_kept, outranked};
use crate::context::CliContext;
use crate::document::ShownValue;
use crate::document::keep::{
    KeepCheckDocument, KeptFile, KeptFileState, KeptInterface, KeptKnob, KeptKnobState,
};
use crate::exit::{CliError, ExitReason};
use crate::output;

/// Columns of a knob's name and of its value.
const NAME: usize = 22;
const VALUE: usize = 18;

/// Compares every record and shows the result. Where nothing is kept, of `interface` if that is named, nothing differs.
pub(super) fn run(
    records: &[KeepRecord],
    (root, interface): (&RootFolder, Option<&str>),
    context: &CliContext,
) -> Result<ExitCode, CliError> {
    let is_running_system = root.is_running_system();
    let kernel = if is_running_system { Some(LinuxKernel::open()?) } else { None };
    let mut interfaces = Vec::new();
    for record in records {
        interfaces.push(compare_record(record, root, kernel.as_ref())?);
    }
    let document = KeepCheckDocument { schema: 1, is_running_system, interfaces };
    if context.json {
        output::print_json(&document)?;
    } else if records.is_empty() {
        output::print_text(&(nothing_kept(interface) + "\n"))?;
    } else {
        output::print_text(&render_table(&document))?;
    }
    Ok(exit_code(&document).into())
}

fn compare_record(
    record: &KeepRecord,
    root: &RootFolder,
    kernel: Option<&LinuxKernel>,
) -> Result<KeptInterface, CliError> {
    let interface = record.interface.clone();
    let mut files = Vec::new();
    for (file, text, now) in record.files_now(root)? {
        let problem = match now {
            FileNow::Missing => {
                Some((KeptFileState::Missing, "it is not there any more".to_owned()))
            }
            FileNow::Changed => {
                Some((KeptFileState::Changed, "it was changed since latput wrote it".to_owned()))
            }
            FileNow::Whole => outranked::find_problem(root, &interface, file, text),
        };
        let (state, problem) = match problem {
            Some((state, why)) => (state, Some(why)),
            None => (KeptFileState::Whole, None),
        };
        files.push(KeptFile { file: file.to_owned(), state, problem });
    }
    let knobs = record.kept.iter().map(|(knob, kept)| {
        if let Some(kernel) = kernel {
            in_force(kernel, &interface, (*knob, kept), &files)
        } else {
            let why = "values in force cannot be read of an image".to_owned();
            kept_knob(*knob, kept, KeptKnobState::Unreadable, Some(why))
        }
    });
    let knobs = knobs.collect();
    Ok(KeptInterface { interface, files, knobs })
}

fn kept_knob(
    knob: Knob,
    kept: &KeptValue,
    state: KeptKnobState,
    reason: Option<String>,
) -> KeptKnob {
    KeptKnob {
        name: knob.name().to_owned(),
        kept: kept.value.to_string(),
        state,
        in_force: Vec::new(),
        file: kept.file.clone(),
        reason,
    }
}

/// Compares one knob with the kernel.
fn in_force(
    kernel: &LinuxKernel,
    interface: &str,
    (knob, kept): (Knob, &KeptValue),
    files: &[KeptFile],
) -> KeptKnob {
    let values = match kernel.read(interface, knob) {
        Ok(values) => values,
        Err(error) => {
            return kept_knob(knob, kept, KeptKnobState::Unreadable, Some(error.reason));
        }
    };
    let is_same = values.iter().all(|(place, found)| {
        let wanted = match &kept.value {
            Value::Named(word) => kernel.resolve(interface, knob, *place, *word).ok(),
            value => Some(value.clone()),
        };
        wanted.is_some_and(|wanted| knob.spec().takes(&wanted, found))
    });
    let in_force = values.into_iter().map(|(place, value)| ShownValue {
        place: place.to_string(),
        meaning: kernel.meaning(interface, knob, &value).map(ToOwned::to_owned),
        value: value.to_string(),
    });
    let in_force = in_force.collect();
    if is_same {
        return KeptKnob { in_force, ..kept_knob(knob, kept, KeptKnobState::Same, None) };
    }
    let reason =
        explain_difference(kernel, interface, knob, files.iter().find(|it| it.file == kept.file));
    KeptKnob { in_force, ..kept_knob(knob, kept, KeptKnobState::Different, Some(reason)) }
}

/// The reason of a difference, as far as it is known.
fn explain_difference(
    kernel: &LinuxKernel,
    interface: &str,
    knob: Knob,
    file: Option<&KeptFile>,
) -> String {
    if let Some(KeptFile { file, problem: Some(problem), .. }) = file {
        return format!("{file}: {problem}");
    }
    match kernel.capability(interface, knob) {
        Capability::ReadOnly(why) | Capability::Absent(why) => {
            format!("it cannot be set here: {why}")
        }
        Capability::Settable(_) => {
            "the file is whole: the driver refused the value or was given it too early, or \
                                    something changed it since"
                .to_owned()
        }
    }
}

fn exit_code(document: &KeepCheckDocument) -> ExitReason {
    if document.interfaces.is_empty() {
        return ExitReason::Done;
    }
    let files = document.interfaces.iter().flat_map(|it| &it.files);
    let mut states = document.interfaces.iter().flat_map(|it| &it.knobs).map(|knob| knob.state);
    let has = |wanted: KeptKnobState| states.clone().any(|state| state == wanted);
    if files.map(|file| file.state).any(KeptFileState::is_lost) || has(KeptKnobState::Different) {
        return ExitReason::Drifted;
    }
    let is_unknown = has(KeptKnobState::Unreadable) || states.next().is_none();
    if document.is_running_system && is_unknown { ExitReason::Partial } else { ExitReason::Done }
}

/// The files and the knobs of each interface.
fn render_table(document: &KeepCheckDocument) -> String {
    let mut text = String::new();
    for KeptInterface { interface, files, knobs } in &document.interfaces {
        let _ = writeln!(text, "{interface}");
        for KeptFile { file, problem, .. } in files {
            let problem = problem.as_deref().unwrap_or("whole");
            let _ = writeln!(text, "  {file}: {problem}");
        }
        for knob in knobs.iter().filter(|_| document.is_running_system) {
            text.push_str(&render_knob(knob));
        }
        if knobs.is_empty() {
            let _ = writeln!(
                text,
                "  the record has no values: run the same `latput keep {interface} ...` again"
            );
        }
    }
    if !document.is_running_system {
        text.push_str("values in force cannot be read: this is an image, not the running system\n");
    }
    text
}

fn render_knob(knob: &KeptKnob) -> String {
    let KeptKnob { name, kept, state, in_force, reason, .. } = knob;
    let state = match state {
        KeptKnobState::Same => "same".to_owned(),
        KeptKnobState::Different => format!("different: {}", values_text(in_force)),
        KeptKnobState::Unreadable => "cannot be read".to_owned(),
    };
    let mut text = format!("  {name:<NAME$}{kept:<VALUE$} {state}\n");
    if let Some(reason) = reason {
        let _ = writeln!(text, "      {reason}");
    }
    text
}

/// The value in force, or those of the places where they differ.
fn values_text(values: &[ShownValue]) -> String {
    match values {
        [first, rest @ ..] if rest.iter().all(|other| other.value == first.value) => {
            first.value.clone()
        }
        many => {
            let places = many.iter().map(|it| format!("{}: {}", it.place, it.value));
            places.collect::<Vec<_>>().join(", ")
        }
    }
}
