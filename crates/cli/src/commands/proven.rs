//! The setting that a run recommends, where a command makes it last.

use latput_model::{Headline, ResultsSummary};
use latput_trial::Results;

use crate::exit::{CliError, ExitReason};
use crate::output;

/// The recommended setting, if it is proven better than today's. The error says why there is none, and what to do.
pub(super) fn proven_setting(results: &Results) -> Result<usize, CliError> {
    let summary = ResultsSummary::from_results(results);
    let Some(advice) = &summary.recommendation else {
        return Err(nothing_recommended(results, &summary));
    };
    if advice.is_proven() && advice.setting != 0 {
        tell_condition(&summary);
        return Ok(advice.setting);
    }
    if !advice.headline.is_answer() {
        return Err(no_answer(results, &advice.headline));
    }
    let (label, why) = (&results.settings[advice.setting].label, advice.headline.sentence());
    Err(CliError::usage(format!(
        "no setting is proven better than today's: the run recommends to stay with `{label}`: {why}. To take another, \
         {}",
        name_one(results)
    )))
}

/// The error of a command that needs the answer of a run without one: why it has none, and what to do.
pub(super) fn no_answer(results: &Results, headline: &Headline) -> CliError {
    let message = format!(
        "the run has no answer, and nothing was changed: {}. Measure again, or {}",
        headline.sentence(),
        name_one(results)
    );
    CliError::new(ExitReason::Partial, message)
}

/// Says what a recommendation holds beside, if other work was part of the case.
pub(super) fn tell_condition(summary: &ResultsSummary) {
    if let Some(words) = summary.fitness.beside_in_words() {
        output::print_remark(&format!("latput: {words}"));
    }
}

/// Why a run recommends nothing, and what to do.
pub(super) fn nothing_recommended(results: &Results, summary: &ResultsSummary) -> CliError {
    if let Some(headline) = &summary.headline {
        return no_answer(results, headline);
    }
    if results.is_observed() {
        return CliError::usage(
            "the run only observed: it compared no settings, and there is none to take. Run `latput tune` without \
             --observe",
        );
    }
    CliError::usage(format!(
        "the run recommends nothing (it has no goal). To take a setting, {}",
        name_one(results)
    ))
}

fn name_one(results: &Results) -> String {
    let labels: Vec<&str> = results.settings.iter().map(|one| one.label.as_str()).collect();
    format!("name one of its settings with --setting: {}", labels.join(", "))
}
