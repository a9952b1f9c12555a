//! Results of several pairs of hosts in words: whether a winner is one on every pair.

use std::fmt::Write as _;

use latput_model::compare::OriginDifference;
use latput_model::pairs::PairsSetting;
use latput_model::{PairsSummary, PairsVerdict};
use latput_report::make_printable;
use latput_stats::Estimate;
use latput_units::text::format_percent;

/// Most pairs: every one's runs are in memory.
pub const PAIRS_MOST: usize = 64;

/// The settings on every pair, for people.
pub fn render_text(files: &[String], summary: &PairsSummary) -> String {
    let mut text = format!(
        "{}: ratio to `{}` on each pair\n",
        make_printable(&summary.goal),
        make_printable(&summary.base)
    );
    for setting in &summary.settings {
        let label = make_printable(&setting.label);
        let _ = writeln!(
            text,
            "\n{:<10} {label}: {}",
            setting.verdict.name(),
            explain_verdict(files, setting)
        );
        for (file, ratio) in files.iter().zip(&setting.ratios) {
            let _ = writeln!(text, "  {file}: {}", ratio_in_words(ratio));
        }
    }
    for differs in describe_differences(files, summary) {
        let _ = writeln!(text, "\n{differs}");
    }
    let end = match summary.recommended.map(|at| &summary.settings[at].label) {
        Some(label) => {
            format!("set `{}`: it is better on every pair", make_printable(label))
        }
        None => "no setting is recommended: none is better on every pair".to_owned(),
    };
    let _ = writeln!(text, "\n{end}");
    text
}

/// Differences between the hosts of the pairs, a sentence each.
pub fn describe_differences(files: &[String], summary: &PairsSummary) -> Vec<String> {
    let sentence = |(pair, differs): &(usize, OriginDifference)| {
        let OriginDifference { what, first, second } = differs;
        let text =
            format!("{} has another {what}: {second}; {} has {first}", files[*pair], files[0]);
        make_printable(&text)
    };
    summary.differences.iter().map(sentence).collect()
}

/// The reason of a verdict, in words.
pub fn explain_verdict(files: &[String], setting: &PairsSetting) -> String {
    match &setting.verdict {
        PairsVerdict::Stable => {
            format!("proven better on every pair, {:.3} in all", setting.ratio)
        }
        PairsVerdict::Unstable => format!(
            "the pairs differ by more than their intervals (p = {:.2e}; {} of their scatter is between pairs)",
            setting.p_value,
            format_percent(setting.inconsistency)
        ),
        PairsVerdict::Worse(pair, why) => {
            format!("{}: {}", files[*pair], make_printable(why))
        }
        PairsVerdict::Unproven(pair) => format!("{} does not prove it better", files[*pair]),
    }
}

/// `0.950 (0.940 to 0.960 at 95%)`.
pub(crate) fn ratio_in_words(ratio: &Estimate) -> String {
    let Estimate { value, low, high, confidence, .. } = *ratio;
    format!("{value:.3} ({low:.3} to {high:.3} at {})", format_percent(confidence))
}
