//! Looks on other hosts and in other namespaces, and which side has the fault.

use std::path::Path;
use std::process::ExitCode;

use latput_controller::looks::{self, RecordedHost};
use latput_diagnose::{Snapshot, diagnose, diagnose_hosts};
use latput_linux::confine::UsedFiles;
use latput_reach::broker::message::RunPermissions;
use latput_reach::target::Target;
use latput_units::Nanos;

use crate::commands::snapshot::{check_window, join_looks};
use crate::context::CliContext;
use crate::exit::{CliError, ExitReason};
use crate::output;

use super::{print_diagnosis, render};

/// Diagnoses the hosts of these words. The rights of this process are given up before one of them is asked.
pub(super) fn diagnose_words(
    words: &[String],
    bring: Option<&Path>,
    window: Nanos,
    context: &CliContext,
) -> Result<ExitCode, CliError> {
    check_window(window)?;
    let targets: Vec<Target> =
        words.iter().map(|word| Target::parse(word)).collect::<Result<_, _>>()?;
    let ways = targets.iter().map(|target| target.launch_command(bring)).collect();
    let permitted = RunPermissions { ways, ..RunPermissions::default() };
    context.leave_rights_to_broker(&permitted, &UsedFiles::default())?;
    let mut recorded = record_targets(&targets, bring, window, context);
    if let ([word], 1) = (words, recorded.len()) {
        let snapshot = recorded.remove(0)?;
        return print_diagnosis(&diagnose(&snapshot), word, context);
    }
    let (mut judged, mut failed) = (Vec::new(), Vec::new());
    for (name, result) in looks::name_targets(&targets).into_iter().zip(recorded) {
        match result {
            Ok(snapshot) => judged.push((name, snapshot)),
            Err(error) => failed.push((name, error)),
        }
    }
    if judged.is_empty() {
        let first = failed.into_iter().next();
        return Err(first.map_or_else(|| CliError::usage("no host is named"), |(_, error)| error));
    }
    let diagnosis = diagnose_hosts(&judged);
    if context.json {
        output::print_json(&diagnosis)?;
    } else {
        let columns = output::stdout_screen().columns;
        output::print_text(&render::render_hosts(&diagnosis, columns))?;
    }
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let told: Vec<String> =
        failed.iter().map(|(name, error)| format!("{name}: {}", error.message())).collect();
    Err(CliError::new(ExitReason::Partial, format!("not judged: {}", told.join("; "))))
}

/// Records the looks at every host, at the same times. Rights are with the broker by now.
pub(super) fn record_targets(
    targets: &[Target],
    bring: Option<&Path>,
    window: Nanos,
    context: &CliContext,
) -> Vec<Result<Snapshot, CliError>> {
    let join = |recorded: RecordedHost| {
        let RecordedHost { interface, looks, window } = recorded;
        join_looks(&interface, looks, window.as_secs_f64())
    };
    let recorded = looks::record_hosts(targets, bring, window, &context.stop);
    recorded.into_iter().map(|host| host.map_err(CliError::from).and_then(join)).collect()
}
