//! `latput report --compare`: what changed between two runs or settings, and the gate for CI.

use std::process::ExitCode;

use latput_model::Comparison;
use latput_model::compare::{self, CompareMethod, FigureComparison, SMALLEST_EFFECT};
use latput_report::{
    Gate, GateAnswer, comparison, comparison_csv, comparison_html, comparison_json, render_junit,
    render_ktap,
};
use latput_results::ResultsDb;
use latput_trial::Results;
use latput_trial::results::LabelledSetting;

use super::format::{self, ReportFormat};
use super::{Args, load_results, setting_of};
use crate::context::CliContext;
use crate::exit::{CliError, ExitReason};
use crate::output;
use crate::precision::parse_percent_flag;

/// Rule that fails the gate, and the smallest effect that does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct FailOn {
    is_unproven: bool,
    smallest_effect: Option<f64>,
}

impl FailOn {
    fn to_gate(self) -> Gate {
        if self.is_unproven {
            Gate::Unproven(self.smallest_effect.unwrap_or(SMALLEST_EFFECT))
        } else {
            Gate::Worse
        }
    }
}

/// `worse` or `unproven`, each alone or with a share: `worse:2%`.
pub(super) fn fail_on(text: &str) -> Result<FailOn, String> {
    let (what, effect) =
        text.split_once(':').map_or((text, None), |(what, effect)| (what, Some(effect)));
    if !matches!(what, "worse" | "unproven") {
        return Err(format!(
            "`{text}`: write `worse` or `unproven`, alone or with a share, such as `worse:2%`"
        ));
    }
    let parsed =
        effect.map(|effect| parse_percent_flag("--fail-on", effect, 0.0, 100.0)).transpose();
    let smallest_effect = parsed.map_err(|refused| refused.error.to_string())?;
    Ok(FailOn { is_unproven: what == "unproven", smallest_effect })
}

/// One side of a comparison: a results file with perhaps a run, and perhaps one of its settings.
struct ComparisonSide {
    results: Results,
    setting: Option<usize>,
}

impl ComparisonSide {
    /// Of `FILE`, `FILE#RUN`, `FILE:SETTING` or `FILE#RUN:SETTING`. What is a file's name as a whole is that file.
    fn load_side(name: &str) -> Result<Self, CliError> {
        let (file, label) = side_of(name);
        let results = load_results(file)?;
        let setting = label.map(|label| setting_of(&results, label)).transpose()?;
        Ok(Self { results, setting })
    }
}

/// The file, perhaps with a run, and the setting that a side names.
pub(super) fn side_of(name: &str) -> (&str, Option<&str>) {
    if super::file_of(name).0.exists() {
        return (name, None);
    }
    // A file's name may have a colon too: the longest part that is a file counts.
    let mut parts = name.rmatch_indices(':').map(|(at, _)| (&name[..at], &name[at + 1..]));
    parts
        .find(|(file, _)| super::file_of(file).0.exists())
        .map_or((name, None), |(file, label)| (file, Some(label)))
}

/// Compares the two that `--compare` names, writes the answer, and ends as the gate says.
pub(super) fn run(
    args: &Args,
    context: &CliContext,
    [first, second]: [&str; 2],
) -> Result<ExitCode, CliError> {
    let smallest_effect = args.smallest_effect.as_deref();
    let smallest_effect = smallest_effect
        .map(|text| parse_percent_flag("--smallest-effect", text, 0.0, 100.0))
        .transpose()?
        .or_else(|| args.fail_on.as_ref()?.smallest_effect)
        .unwrap_or(SMALLEST_EFFECT);
    let (of_first, of_second);
    let (base, other, settings): (&Results, &Results, Vec<(usize, usize)>) =
        if let Some(file) = &args.file {
            of_first = ResultsDb::open(file)?.load_chosen(args.run)?;
            let pair = (setting_of(&of_first, first)?, setting_of(&of_first, second)?);
            if pair.0 == pair.1 {
                let label = &of_first.settings[pair.0].label;
                let message = format!("`{first}` and `{second}` are the same setting, `{label}`");
                return Err(CliError::usage(message));
            }
            (&of_first, &of_first, vec![pair])
        } else {
            let sides = (ComparisonSide::load_side(first)?, ComparisonSide::load_side(second)?);
            let pairs = pairs_of((first, &sides.0), (second, &sides.1))?;
            let is_one_run =
                !sides.0.results.rows.is_empty() && sides.0.results.rows == sides.1.results.rows;
            (of_first, of_second) = (sides.0.results, sides.1.results);
            // Settings of one run are compared in pairs.
            (&of_first, if is_one_run { &of_first } else { &of_second }, pairs)
        };
    let method = CompareMethod { confidence: base.confidence, smallest_effect };
    let found = compare::compare_settings(base, other, &settings, method);
    let format = format::choose_format(args.format, args.output.as_deref(), context.json)?;
    args.write(&text_of(args, format, (&found, base), method)?, format)?;
    match args.fail_on {
        Some(fail_on) => apply_gate(&found, base, fail_on.to_gate()),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// The settings that are compared: those that both sides name, or else every one that both have.
fn pairs_of(
    (first_name, first): (&str, &ComparisonSide),
    (second_name, second): (&str, &ComparisonSide),
) -> Result<Vec<(usize, usize)>, CliError> {
    let is_one_run = !first.results.rows.is_empty() && first.results.rows == second.results.rows;
    match (first.setting, second.setting) {
        (Some(one), Some(other)) if is_one_run && one == other => {
            let message = format!("{first_name} and {second_name} are the same setting of one run");
            Err(CliError::usage(message))
        }
        (Some(one), Some(other)) => Ok(vec![(one, other)]),
        (None, None) if is_one_run => {
            let message =
                format!("{first_name} and {second_name} are the same run: nothing to compare");
            Err(CliError::usage(message))
        }
        (None, None) => {
            let pairs = same_settings(&first.results.settings, &second.results.settings)?;
            let (ones, others): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
            for (name, side, compared) in [(first_name, first, ones), (second_name, second, others)]
            {
                if let Some(remark) = left_out(name, &side.results, &compared) {
                    output::print_remark(&remark);
                }
            }
            Ok(pairs)
        }
        (one, _) => {
            let (with, without) =
                if one.is_some() { (first_name, second_name) } else { (second_name, first_name) };
            let message =
                format!("{with} names a setting and {without} none: write `{without}:SETTING` too");
            Err(CliError::usage(message))
        }
    }
}

fn text_of(
    args: &Args,
    format: ReportFormat,
    (found, base): (&[Comparison], &Results),
    method: CompareMethod,
) -> Result<String, CliError> {
    let gate = args.fail_on.map_or(Gate::Worse, FailOn::to_gate);
    let screen =
        if args.output.is_none() { output::stdout_screen() } else { output::file_screen() };
    Ok(match format {
        ReportFormat::Table => comparison::render_terminal(found, base, screen),
        ReportFormat::Markdown => comparison::render_markdown(found, base),
        ReportFormat::Json => comparison_json(found, method),
        ReportFormat::Html => comparison_html(found, base, args.fail_on.map(FailOn::to_gate)),
        ReportFormat::Csv => comparison_csv(found),
        ReportFormat::Junit => render_junit(found, base, gate),
        ReportFormat::Ktap => render_ktap(found, base, gate),
        ReportFormat::Flent => {
            let message =
                "--compare writes `table`, `html`, `csv`, `markdown`, `json`, `junit` or `ktap`";
            return Err(CliError::usage(message));
        }
    })
}

/// Passes or fails by the rule, and says so. A gate that could judge nothing has not passed, and a loss in a figure that
/// could not be judged is not ruled out.
fn apply_gate(found: &[Comparison], base: &Results, rule: Gate) -> Result<ExitCode, CliError> {
    let answer = GateAnswer::new(rule, found);
    if answer.is_unjudged() {
        let obstacle = found.iter().find_map(|comparison| comparison.obstacle.as_deref());
        let why = obstacle.unwrap_or("each side needs at least two trials that count");
        let message = format!("no figure could be judged, so the gate did not pass: {why}");
        return Err(CliError::new(ExitReason::Failed, message));
    }
    let Some(mut why) = answer.why_failed() else {
        output::print_remark(&answer.sentence());
        return Ok(ExitCode::SUCCESS);
    };
    if matches!(rule, Gate::Unproven(_)) {
        let loss = |it: &&FigureComparison| it.largest_loss.unwrap_or(0.0);
        let figures = found.iter().flat_map(|comparison| &comparison.figures);
        let bounded = figures.filter(|it| it.largest_loss.is_some());
        if let Some(worst) = bounded.max_by(|a, b| loss(a).total_cmp(&loss(b))) {
            let sentence = comparison::describe_figure(worst, base);
            why += &["; the worst is ", worst.metric.name(), ", ", &sentence].concat();
        }
    }
    output::print_remark(&format!("the gate failed: {why}"));
    Ok(ExitReason::Worse.into())
}

/// The settings that both results have, by their values, or else by label; if each has only one setting, those two.
fn same_settings(
    first: &[LabelledSetting],
    second: &[LabelledSetting],
) -> Result<Vec<(usize, usize)>, CliError> {
    if first.len() == 1 && second.len() == 1 {
        return Ok(vec![(0, 0)]);
    }
    let mut same: Vec<(usize, usize)> = Vec::new();
    // The values before one run may be a level of the other's plan, under another label.
    let has_values = |one: &LabelledSetting, other: &LabelledSetting| one.by_role == other.by_role;
    let has_label = |one: &LabelledSetting, other: &LabelledSetting| one.label == other.label;
    for is_same in [has_values, has_label] {
        for (idx, one) in first.iter().enumerate() {
            let is_free = |at: usize| same.iter().all(|pair| pair.0 != idx && pair.1 != at);
            let found = second.iter().enumerate().find(|(at, it)| is_free(*at) && is_same(one, it));
            let found = found.map(|(at, _)| (idx, at));
            same.extend(found);
        }
    }
    same.sort_unstable();
    if same.is_empty() {
        let message = "the two files have no setting in common: compare two settings of one file";
        return Err(CliError::usage(message));
    }
    Ok(same)
}

/// Names the settings of one side that the other does not have.
fn left_out(name: &str, results: &Results, compared: &[usize]) -> Option<String> {
    let settings = results.settings.iter().enumerate();
    let left = settings.filter(|(idx, _)| !compared.contains(idx));
    let labels: Vec<String> = left.map(|(_, setting)| format!("`{}`", setting.label)).collect();
    (!labels.is_empty()).then(|| format!("not compared, only in {name}: {}", labels.join(", ")))
}

#[cfg(test)]
mod tests {
    use latput_knobs::parse_assignment;
    use latput_trial::observation::Role;

    use super::*;

    #[test]
    fn what_fails_a_gate_may_have_a_share() {
        let effect = |text| fail_on(text).map(|found| (found.is_unproven, found.smallest_effect));
        assert_eq!(effect("worse"), Ok((false, None)));
        assert_eq!(effect("worse:2%"), Ok((false, Some(0.02))));
        assert_eq!(effect("unproven:2%"), Ok((true, Some(0.02))));
        assert_eq!(fail_on("unproven").unwrap().to_gate(), Gate::Unproven(SMALLEST_EFFECT));
        for text in
            ["better", "worse:", "worse:-1%", "worse:many", "", "worse:200%", "unproven:0.02"]
        {
            assert!(effect(text).is_err(), "{text}");
        }
    }

    #[test]
    fn settings_are_paired_by_values_then_by_label() {
        let setting = |label: &str, words: &[&str]| {
            let values = words.iter().map(|word| parse_assignment(word).unwrap()).collect();
            LabelledSetting { label: label.to_owned(), by_role: [(Role::Sut, values)].into() }
        };
        let first = [setting("0us", &["gro-flush-timeout=0us"]), setting("today", &["gro=on"])];
        let second = [
            setting("today", &["gro-flush-timeout=0us"]),
            setting("9us", &["gro-flush-timeout=9us"]),
        ];
        assert_eq!(same_settings(&first, &second).unwrap(), [(0, 0)], "`today` is taken");
        assert_eq!(
            same_settings(&first[1..], &second).unwrap(),
            [(0, 0)],
            "as it is, then and now"
        );
        assert_eq!(same_settings(&first[..1], &second[1..]).unwrap(), [(0, 0)], "the only ones");
        assert!(same_settings(&first, &second[1..]).is_err());
    }

    #[test]
    fn side_is_a_file_with_run_and_setting() {
        let file = std::env::temp_dir().join(format!("latput:side-{}", std::process::id()));
        std::fs::write(&file, "").unwrap();
        let name = file.display().to_string();
        let sides = ["", "#2", ":50us", "#2:50us", ":a=1 b=x:y"].map(|end| format!("{name}{end}"));
        let found = sides.each_ref().map(|side| side_of(side));
        std::fs::remove_file(&file).unwrap();
        let run = format!("{name}#2");
        let expected = [
            (name.as_str(), None),
            (run.as_str(), None),
            (name.as_str(), Some("50us")),
            (run.as_str(), Some("50us")),
            (name.as_str(), Some("a=1 b=x:y")),
        ];
        assert_eq!(found, expected);
        assert_eq!(side_of("nowhere.db:50us"), ("nowhere.db:50us", None));
    }
}
