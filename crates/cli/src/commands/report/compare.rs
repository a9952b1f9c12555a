//! `latput report --compare`: what changed between two runs or settings, and the gate for CI.

use std::process::ExitCode;

use latput_experiment::ResultsDb;
use latput_model::Comparison;
use latput_model::compare::{self, CompareMethod, SMALLEST_EFFECT, Verdict};
use latput_report::{comparison, junit, ktap};
use latput_trial::Results;

use super::format::{self, ReportFormat};
use super::{Args, load, setting_of};
use crate::context::Context;
use crate::exit::{CliError, Code};
use crate::output;
use crate::precision::percent;

/// What fails the gate, and the smallest effect that does.
#[derive(Clone, Debug)]
pub(super) struct FailOn {
    smallest_effect: Option<f64>,
}

/// `worse`, or `worse:2%`.
pub(super) fn fail_on(text: &str) -> Result<FailOn, String> {
    let (verdict, effect) =
        text.split_once(':').map_or((text, None), |(verdict, effect)| (verdict, Some(effect)));
    if verdict != "worse" {
        return Err(format!("`{text}`: write `worse` or `worse:PERCENT`, such as `worse:2%`"));
    }
    let parsed = effect.map(|effect| percent("--fail-on", effect, 0.0, 100.0)).transpose();
    Ok(FailOn { smallest_effect: parsed.map_err(|refused| refused.error.to_string())? })
}

/// Compares the two that `--compare` names, writes the answer, and ends as the gate says.
pub(super) fn run(
    args: &Args,
    context: &Context,
    [first, second]: [&str; 2],
) -> Result<ExitCode, CliError> {
    let smallest_effect = args.smallest_effect.as_deref();
    let smallest_effect = smallest_effect
        .map(|text| percent("--smallest-effect", text, 0.0, 100.0))
        .transpose()?
        .or_else(|| args.fail_on.as_ref()?.smallest_effect)
        .unwrap_or(SMALLEST_EFFECT);
    let (of_first, of_second);
    let (base, other, settings) = if let Some(file) = &args.file {
        of_first = ResultsDb::open(file)?.load_chosen(args.run)?;
        let pair = (setting_of(&of_first, first)?, setting_of(&of_first, second)?);
        if pair.0 == pair.1 {
            let label = &of_first.settings[pair.0].label;
            let message = format!("`{first}` and `{second}` are the same setting, `{label}`");
            return Err(CliError::usage(message));
        }
        (&of_first, &of_first, vec![pair])
    } else {
        (of_first, of_second) = (load(first)?, load(second)?);
        if !of_first.rows.is_empty() && of_first.rows == of_second.rows {
            let message =
                format!("{first} and {second} are the same run: there is nothing to compare");
            return Err(CliError::usage(message));
        }
        let settings = same_settings(&of_first, &of_second)?;
        (&of_first, &of_second, settings)
    };
    let method = CompareMethod { confidence: base.confidence, smallest_effect };
    let found = compare::compare(base, other, &settings, method);
    let format = format::chosen(args.format, args.output.as_deref(), context.json)?;
    args.write(&text(args, format, &found, base)?, format)?;
    match &args.fail_on {
        Some(_) => gate(&found),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn text(
    args: &Args,
    format: ReportFormat,
    found: &[Comparison],
    base: &Results,
) -> Result<String, CliError> {
    let screen = if args.output.is_none() { output::screen() } else { output::plain() };
    Ok(match format {
        ReportFormat::Table => comparison::terminal(found, base, screen),
        ReportFormat::Markdown => comparison::markdown(found, base),
        ReportFormat::Json => found.iter().map(comparison::json).collect(),
        ReportFormat::Junit => junit(found, base),
        ReportFormat::Ktap => ktap(found, base),
        ReportFormat::Html | ReportFormat::Csv | ReportFormat::Flent => {
            let message = "--compare writes `table`, `markdown`, `json`, `junit` or `ktap`";
            return Err(CliError::usage(message));
        }
    })
}

/// Fails if a figure is proven worse. A gate that could judge nothing has not passed.
fn gate(found: &[Comparison]) -> Result<ExitCode, CliError> {
    let figures = || found.iter().flat_map(|comparison| &comparison.figures);
    let worse = figures().filter(|figure| figure.verdict == Verdict::Worse).count();
    if worse > 0 {
        output::remark(&format!(
            "the gate failed: {worse} of {} figures are proven worse",
            figures().count()
        ));
        return Ok(Code::Worse.into());
    }
    if figures().all(|figure| figure.verdict == Verdict::NotJudged) {
        let message = "no figure could be judged, so the gate has not passed: each side needs two trials or more of a \
                       workload that both have";
        return Err(CliError::new(Code::Failed, message));
    }
    Ok(ExitCode::SUCCESS)
}

/// The settings that both results have, by label; if each has only one setting, those two.
fn same_settings(first: &Results, second: &Results) -> Result<Vec<(usize, usize)>, CliError> {
    if first.settings.len() == 1 && second.settings.len() == 1 {
        return Ok(vec![(0, 0)]);
    }
    let labels = first.settings.iter().enumerate();
    let same: Vec<(usize, usize)> = labels
        .filter_map(|(idx, setting)| {
            let other = second.settings.iter().position(|other| other.label == setting.label)?;
            Some((idx, other))
        })
        .collect();
    if same.is_empty() {
        let message = "the two have no setting in common: compare two settings of one file";
        return Err(CliError::usage(message));
    }
    Ok(same)
}

#[cfg(test)]
mod tests {
    use super::fail_on;

    #[test]
    fn what_fails_a_gate_is_worse_with_a_share_or_without() {
        let effect = |text| fail_on(text).map(|found| found.smallest_effect);
        assert_eq!(effect("worse"), Ok(None));
        assert_eq!(effect("worse:2%"), Ok(Some(0.02)));
        for text in ["better", "worse:", "worse:-1%", "worse:many", "", "worse:200%"] {
            assert!(effect(text).is_err(), "{text}");
        }
    }
}
