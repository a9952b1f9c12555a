//! `--check` of `latput run` and `latput tune`: whether the run would start, and how long it takes.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use latput_experiment::session::{self, CheckReport, PlannedRuns, QuietPolicy, RunInputs};
use latput_experiment::{RunPart, Testbed};
use latput_linux::files;
use latput_results::ResultsDb;
use latput_trial::Plan;
use latput_trial::plan::Design;
use latput_units::Nanos;
use latput_units::text::format_count;

use crate::context::CliContext;
use crate::document::check::CheckDocument;
use crate::exit::CliError;
use crate::output;

/// Scope of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum CheckScope {
    /// All: the plan, the testbed, and that its hosts have the knobs and levels.
    All,
    /// Only the plan file, on any machine.
    Plan,
}

/// A plan with the name that messages have for it.
pub(crate) struct PlanToCheck<'a> {
    pub(crate) name: &'a str,
    pub(crate) plan: &'a Plan,
    /// Whether the run needs quiet hosts to begin.
    pub(crate) quiet: QuietPolicy,
}

/// Tells of a plan that was read and found good, and of no testbed.
pub(crate) fn plan_only(
    context: &CliContext,
    named: &PlanToCheck<'_>,
    is_simulated: bool,
) -> Result<ExitCode, CliError> {
    let plan = named.plan;
    let listed = plan.settings();
    let live = plan.live();
    // On hosts: the simulator has no slices.
    let design = plan.method.design.or_else(|| {
        let takes_turns = live.is_none() && !is_simulated && plan.is_cheap_to_change();
        takes_turns.then_some(Design::Slices)
    });
    let settings = listed.len();
    let runs = if let Some(live) = live {
        PlannedRuns::of_live(plan, live, settings)
    } else {
        let design = design.unwrap_or_default();
        PlannedRuns::of_grid(plan, design, settings as u64, is_simulated)
    };
    print_document(
        context,
        CheckDocument {
            schema: 1,
            plan: named.name.to_owned(),
            testbed: None,
            hosts: Vec::new(),
            design: design.map(|design| design_name(design).to_owned()),
            settings: runs.settings,
            labels: session::list_labels(&listed),
            workloads: plan.workloads.len() as u64,
            trials_min: runs.trials.0,
            trials_max: runs.trials.1,
            duration_ns_min: runs.time.0.as_ns(),
            duration_ns_max: runs.time.1.as_ns(),
            is_simulated,
            remarks: plan
                .workloads
                .iter()
                .flat_map(|load| {
                    let programs = load.program.iter().flat_map(|program| program.described());
                    programs.map(|said| format!("workload `{}` {said}", load.name))
                })
                .chain(live.map(session::live_remarks).unwrap_or_default())
                .collect(),
        },
    )
}

/// Checks that the plan can run on the testbed.
pub(crate) fn check_run(
    context: &CliContext,
    named: &PlanToCheck<'_>,
    testbed: &Testbed,
) -> Result<ExitCode, CliError> {
    let run = RunInputs {
        plan: named.plan,
        plan_text: "",
        testbed,
        part: RunPart::Whole,
        quiet: named.quiet,
        interval: None,
        stop: &context.stop,
    };
    let checked = session::check_run(&run)?;
    let CheckReport {
        design, settings, workloads, trials, time, is_simulated, hosts, remarks, ..
    } = checked;
    print_document(
        context,
        CheckDocument {
            schema: 1,
            plan: named.name.to_owned(),
            testbed: Some(testbed.name.clone()),
            hosts,
            design: Some(design_name(design).to_owned()),
            settings,
            labels: checked.labels,
            workloads,
            trials_min: trials.0,
            trials_max: trials.1,
            duration_ns_min: time.0.as_ns(),
            duration_ns_max: time.1.as_ns(),
            is_simulated,
            remarks,
        },
    )
}

/// Refuses a results file that the run could not add to, and makes none.
pub(crate) fn check_results(path: &Path) -> Result<(), CliError> {
    let mut file = path.to_owned();
    if path.metadata().is_ok_and(|meta| meta.len() > 0) {
        ResultsDb::open(path)?;
        file = path.canonicalize().unwrap_or(file);
    }
    Ok(files::check_in_place(&file)?)
}

const fn design_name(design: Design) -> &'static str {
    match design {
        Design::Blocks => "blocks",
        Design::Slices => "slices",
        Design::Search => "search",
    }
}

fn print_document(context: &CliContext, document: CheckDocument) -> Result<ExitCode, CliError> {
    if context.json {
        output::print_json(&document)?;
    } else {
        output::print_text(&in_words(&document))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn in_words(document: &CheckDocument) -> String {
    let CheckDocument { plan, testbed, hosts, settings, workloads, .. } = document;
    let (trials_min, trials_max) = (document.trials_min, document.trials_max);
    let mut text = format!(
        "{plan}: {} x {}",
        format_count(*settings, "setting"),
        format_count(*workloads, "workload")
    );
    if let Some(design) = &document.design {
        let _ = write!(text, " in a {design} design");
    }
    let time = |ns: u64| format_duration(Nanos::from_ns(ns));
    let span = |least: String, most: String| {
        if least == most { least } else { format!("{least} to {most}") }
    };
    let _ = writeln!(
        text,
        "\ntrials   {}\ntime     about {}{}",
        span(trials_min.to_string(), trials_max.to_string()),
        span(time(document.duration_ns_min), time(document.duration_ns_max)),
        if document.is_simulated { ", simulated, which passes faster" } else { "" }
    );
    for label in &document.labels {
        let _ = writeln!(text, "setting  {label}");
    }
    let unlisted = settings.saturating_sub(document.labels.len() as u64);
    if unlisted > 0 {
        let _ = writeln!(text, "         and {unlisted} more");
    }
    for host in hosts {
        let _ = writeln!(text, "host     {host}");
    }
    for remark in &document.remarks {
        let _ = writeln!(text, "remark   {remark}");
    }
    let checked = match testbed {
        Some(testbed) => format!("the run can start on {testbed}; nothing was set"),
        None => "only the plan".to_owned(),
    };
    text + "checked  " + &checked + "\n"
}

/// `40 s`, `12 min`, `3.5 h`.
fn format_duration(time: Nanos) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        ..90.0 => format!("{seconds:.0} s"),
        ..5400.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_the_unit_that_fits() {
        for (seconds, text) in [(40, "40 s"), (720, "12 min"), (12_600, "3.5 h")] {
            assert_eq!(format_duration(Nanos::from_s(seconds)), text);
        }
    }
}
