//! `latput fleet pairs`: whether a winner is one on every pair of hosts that was measured.

use std::fmt::Write as _;
use std::process::ExitCode;

use latput_linux::confine::UsedFiles;
use latput_model::compare::OriginDifference;
use latput_model::pairs::PairsSetting;
use latput_model::{PairsSummary, PairsVerdict};
use latput_units::text::format_percent;

use crate::commands::report::{file_of, load_results};
use crate::context::{CliContext, keep_only_files};
use crate::document::fleet::PairsDocument;
use crate::exit::{CliError, ExitReason};
use crate::output;

/// Compare the results of one plan on several pairs of hosts.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput run plan.toml --on pair1.toml -o pair1.db      and the same for pair2 and pair3
  latput fleet pairs pair1.db pair2.db pair3.db

`stable`: every pair proves the setting better than the first setting, and the pairs agree within their
intervals. Only such a setting is recommended. `unstable`: the pairs differ. `worse`: a pair proves it worse,
or short of a limit. `unproven`: a pair does not prove it better. Exit code 1: no setting is recommended. `unstable`: the pairs differ.
`worse`: proven worse, or short of a limit, on a pair. `unproven`: not proven better on each. Exit code 1 where none
is recommended.")]
pub(super) struct Args {
    /// A results file of each pair, `FILE` or `FILE#RUN`.
    #[arg(value_name = "RESULTS", required = true, num_args = 2..)]
    files: Vec<String>,
}

/// Most pairs: every one's runs are in memory.
const PAIRS_MOST: usize = 64;

impl Args {
    pub(super) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        if self.files.len() > PAIRS_MOST {
            return Err(CliError::usage(format!("give at most {PAIRS_MOST} results files")));
        }
        let twice =
            self.files.iter().enumerate().find(|(at, file)| self.files[..*at].contains(file));
        if let Some((_, file)) = twice {
            return Err(CliError::usage(format!("{file} is given twice: each pair counts once")));
        }
        keep_only_files(&UsedFiles::new(self.files.iter().map(|name| file_of(name).0), []))?;
        let results =
            self.files.iter().map(|file| load_results(file)).collect::<Result<Vec<_>, _>>()?;
        let summary = PairsSummary::from_results(&results).map_err(CliError::usage)?;
        if self.files.len() == 2 {
            output::print_remark(
                "latput: two pairs say little about a third: measure three if you have them",
            );
        }
        if context.json {
            let differences = describe_differences(&self.files, &summary);
            let document = PairsDocument::new(&self.files, &summary, differences, |setting| {
                why_of(&self.files, setting)
            });
            output::print_json(&document)?;
        } else {
            output::print_text(&render_text(&self.files, &summary))?;
        }
        Ok(if summary.recommended.is_some() { ExitReason::Done } else { ExitReason::Failed }.into())
    }
}

fn render_text(files: &[String], summary: &PairsSummary) -> String {
    let mut text = format!(
        "{}: ratio to `{}` on each pair\n",
        latput_report::make_printable(&summary.goal),
        latput_report::make_printable(&summary.base)
    );
    for setting in &summary.settings {
        let label = latput_report::make_printable(&setting.label);
        let _ =
            writeln!(text, "\n{:<10} {label}: {}", setting.verdict.name(), why_of(files, setting));
        for (file, ratio) in files.iter().zip(&setting.ratios) {
            let _ = writeln!(
                text,
                "  {file}: {:.3} ({:.3} to {:.3} at {})",
                ratio.value,
                ratio.low,
                ratio.high,
                format_percent(ratio.confidence)
            );
        }
    }
    for differs in describe_differences(files, summary) {
        let _ = writeln!(text, "\n{differs}");
    }
    let end = match summary.recommended.map(|at| &summary.settings[at].label) {
        Some(label) => {
            format!("set `{}`: it is better on every pair", latput_report::make_printable(label))
        }
        None => "no setting is recommended: none is better on every pair".to_owned(),
    };
    let _ = writeln!(text, "\n{end}");
    text
}

/// Differences between the hosts of the pairs, a sentence each.
pub(super) fn describe_differences(files: &[String], summary: &PairsSummary) -> Vec<String> {
    let sentence = |(pair, differs): &(usize, OriginDifference)| {
        let OriginDifference { what, first, second } = differs;
        let text =
            format!("{} has another {what}: {second}; {} has {first}", files[*pair], files[0]);
        latput_report::make_printable(&text)
    };
    summary.differences.iter().map(sentence).collect()
}

/// The reason of a verdict, in words.
pub(super) fn why_of(files: &[String], setting: &PairsSetting) -> String {
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
            format!("{}: {}", files[*pair], latput_report::make_printable(why))
        }
        PairsVerdict::Unproven(pair) => format!("{} does not prove it better", files[*pair]),
    }
}
