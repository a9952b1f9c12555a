//! The setting that a run recommends, where a command makes it last.

use latput_model::{Headline, Summary};
use latput_trial::Results;

use crate::exit::CliError;
use crate::output;

/// The recommended setting, if it is proven better than today's. The error says why there is none, and what to do.
pub(super) fn proven(results: &Results) -> Result<usize, CliError> {
    let summary = Summary::of(results);
    let Some(advice) = &summary.recommendation else {
        return Err(nothing_recommended(results, &summary));
    };
    if advice.is_proven() && advice.setting != 0 {
        tell_condition(&summary);
        return Ok(advice.setting);
    }
    let why = match &advice.headline {
        Headline::NoAnswer(why) | Headline::NotQuiet(why) => {
            format!("the run has no answer: {why}")
        }
        Headline::Stay(why) | Headline::Set(why) => {
            let label = &results.settings[advice.setting].label;
            format!("the run recommends to stay with `{label}`: {why}")
        }
    };
    Err(CliError::usage(format!(
        "no setting is proven better than today's: {why}. {}",
        name_one(results)
    )))
}

/// Says what a recommendation holds beside, if other work was part of the case.
pub(super) fn tell_condition(summary: &Summary) {
    if let Some(words) = summary.fitness.beside_in_words() {
        output::remark(&format!("latput: {words}"));
    }
}

/// Why a run recommends nothing, and what to do.
pub(super) fn nothing_recommended(results: &Results, summary: &Summary) -> CliError {
    let why = match &results.goal {
        None => "it has no goal",
        Some(_) => summary.warnings.first().map_or("its goal cannot be judged", String::as_str),
    };
    CliError::usage(format!("the run recommends nothing ({why}). {}", name_one(results)))
}

fn name_one(results: &Results) -> String {
    let labels: Vec<&str> = results.settings.iter().map(|one| one.label.as_str()).collect();
    format!("Name one of its settings with --setting: {}", labels.join(", "))
}
