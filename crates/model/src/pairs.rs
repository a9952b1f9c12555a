//! Findings of one plan on several pairs of hosts: a setting that helps on one pair and not on its twin is not
//! recommended.

mod plan;

use latput_stats::paired::Center;
use latput_stats::{Agreement, Estimate};
use latput_trial::results::LabelledSetting;
use latput_trial::today::first_difference;
use latput_trial::{Results, Row};

pub use self::plan::confirming_plan;
use crate::compare::{OriginDifference, differences_of_hosts};
use crate::goal::{Goal, OptimizeDirection};
use crate::recommend::{find_eliminated, objective_center};
use crate::runs::extract_confirmation;

/// Summary of the settings that all of several pairs tried.
#[derive(Clone, Debug, PartialEq)]
pub struct PairsSummary {
    /// The goal, as in the plan.
    pub goal: String,
    /// The confidence of the verdicts, all settings together.
    pub confidence: f64,
    /// The label of the setting that the others are compared with.
    pub base: String,
    /// The other settings, in the order of the first results.
    pub settings: Vec<PairsSetting>,
    /// The one to set: the best of the stable ones, an index into `settings`.
    pub recommended: Option<usize>,
    /// Other differences between the pairs: a pair, an index into the results, and a fact of a host in which it differs
    /// from the first pair.
    pub differences: Vec<(usize, OriginDifference)>,
}

/// A setting on all pairs.
#[derive(Clone, Debug, PartialEq)]
pub struct PairsSetting {
    /// Its label in the first results.
    pub label: String,
    /// Of each pair: the ratio of the objective to the first setting's.
    pub ratios: Vec<Estimate>,
    /// The ratio over all pairs, weighted by their errors.
    pub ratio: f64,
    /// The chance that the ratios lie so far apart if all are one.
    pub p_value: f64,
    /// The share of their scatter that their errors do not explain.
    pub inconsistency: f64,
    /// Verdict on the setting.
    pub verdict: PairsVerdict,
}

/// Verdict on a setting by several pairs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PairsVerdict {
    /// Proven better on every pair, by as much as its intervals tell.
    Stable,
    /// The pairs differ by more than their intervals.
    Unstable,
    /// Proven worse, or short of a limit, on a pair (an index into the results), and why.
    Worse(usize, String),
    /// Not proven better on this pair (the first such index).
    Unproven(usize),
}

impl PairsVerdict {
    /// Its name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Stable => "stable",
            Self::Unstable => "unstable",
            Self::Worse(..) => "worse",
            Self::Unproven(_) => "unproven",
        }
    }
}

impl PairsSummary {
    /// Compares the results of one plan on several pairs. The error says why they cannot be compared.
    ///
    /// Every claim is at the confidence of the results, shared among the settings (Bonferroni). That a setting is better
    /// on every pair needs no further correction: all of the tests must hold.
    pub fn from_results(files: &[Results]) -> Result<Self, String> {
        if files.len() < 2 {
            return Err("give the results of at least two pairs of hosts, better three".to_owned());
        }
        // The runs that chose the winner of a search are biased in its favour.
        let files: Vec<Results> = files
            .iter()
            .map(|results| {
                extract_confirmation(results).map_or_else(|| results.clone(), |(fresh, _)| fresh)
            })
            .collect();
        let goal = check_same_plan(&files)?;
        let [first, ..] = files.as_slice() else { return Err("no results are given".to_owned()) };
        let shared: Vec<(&LabelledSetting, Vec<usize>)> = first.settings[1..]
            .iter()
            .filter_map(|it| Some((it, find_positions(it, &files)?)))
            .collect();
        if shared.is_empty() {
            return Err(
                "no setting but the first is in all results: run the same plan on each pair"
                    .to_owned(),
            );
        }
        let level = (1.0 - first.confidence) / shared.len() as f64;
        let share = 1.0 / shared.len() as f64;
        let mut settings = Vec::new();
        for (setting, at) in shared {
            let label = &setting.label;
            let twos: Vec<Results> =
                files.iter().zip(&at).map(|(results, at)| beside_first(results, *at)).collect();
            let centers: Option<Vec<Center>> =
                twos.iter().map(|two| objective_center(two, &goal, 1)).collect();
            let centers = centers.ok_or_else(|| {
                format!("`{label}` shares fewer than two blocks with the first setting on a pair")
            })?;
            let mut worse = None;
            for (pair, two) in twos.iter().enumerate().rev() {
                let found = find_eliminated(two, &goal, share)?.into_iter().next();
                worse = found.map(|one| (pair, one.why)).or(worse);
            }
            settings.push(judge_setting(label, &centers, worse, goal.direction, level)?);
        }
        let gain = |it: &PairsSetting| match goal.direction {
            OptimizeDirection::Minimize => it.ratio,
            OptimizeDirection::Maximize => -it.ratio,
        };
        let stable =
            settings.iter().enumerate().filter(|(_, it)| it.verdict == PairsVerdict::Stable);
        let best = stable.min_by(|(_, one), (_, other)| gain(one).total_cmp(&gain(other)));
        let recommended = best.map(|(idx, _)| idx);
        let goal = first.goal.clone().unwrap_or_default();
        let base = first.settings[0].label.clone();
        let others = files.iter().enumerate().skip(1);
        let differences = others.flat_map(|(pair, other)| {
            differences_of_hosts(first, other).into_iter().map(move |it| (pair, it))
        });
        Ok(Self {
            goal,
            confidence: first.confidence,
            base,
            settings,
            recommended,
            differences: differences.collect(),
        })
    }
}

/// The goal that all results have. The error names what differs.
fn check_same_plan(files: &[Results]) -> Result<Goal, String> {
    let first = &files[0];
    let name = |results: &Results| results.source.clone().unwrap_or_else(|| results.name.clone());
    let text = first.goal.as_ref().ok_or_else(|| format!("{} has no goal", name(first)))?;
    for other in files {
        let differs = if other.goal != first.goal {
            "goal".to_owned()
        } else if other.workloads != first.workloads {
            "workload".to_owned()
        } else if other.confidence.to_bits() != first.confidence.to_bits() {
            "confidence".to_owned()
        } else if let Some(what) = first_settings_differ(first, other) {
            format!("first setting, which all others are compared with ({what})")
        } else {
            continue;
        };
        return Err(format!(
            "{} and {} differ in the {differs}: run the same plan on each pair, with the same values of today",
            name(first),
            name(other)
        ));
    }
    if !(first.confidence > 0.0 && first.confidence < 1.0) || first.settings.is_empty() {
        return Err(format!("{} has no setting, or an invalid confidence", name(first)));
    }
    Goal::parse_kept(text).map_err(|error| error.to_string())
}

fn first_settings_differ(one: &Results, other: &Results) -> Option<String> {
    match [one, other].map(|results| results.settings.first()) {
        [Some(one), Some(other)] => first_difference(&one.by_role, &other.by_role),
        [None, None] => None,
        _ => Some("one has none".to_owned()),
    }
}

/// Where each of the results has a setting; `None` if one lacks it.
fn find_positions(setting: &LabelledSetting, files: &[Results]) -> Option<Vec<usize>> {
    let is_it =
        |other: &LabelledSetting| other.by_role == setting.by_role && other.label == setting.label;
    files.iter().map(|results| results.settings.iter().position(is_it)).collect()
}

/// The first setting and one other, with their runs.
fn beside_first(results: &Results, setting: usize) -> Results {
    let wanted = [0, setting];
    let rows = results.rows.iter().filter_map(|row| {
        let place = wanted.iter().position(|it| *it == row.setting)?;
        Some(Row { setting: place, ..row.clone() })
    });
    let settings = wanted.map(|it| results.settings[it].clone());
    Results { rows: rows.collect(), ..with_settings(results, settings.into()) }
}

/// The results with these settings and without their runs.
pub(crate) fn with_settings(results: &Results, settings: Vec<LabelledSetting>) -> Results {
    Results {
        name: results.name.clone(),
        goal: results.goal.clone(),
        testbed: results.testbed.clone(),
        latput_version: results.latput_version.clone(),
        hosts: results.hosts.clone(),
        settings,
        workloads: results.workloads.clone(),
        rows: Vec::new(),
        notes: Vec::new(),
        source: None,
        today: results.today.clone(),
        findings: Vec::new(),
        confirmed_from: None,
        ..*results
    }
}

fn judge_setting(
    label: &str,
    centers: &[Center],
    worse: Option<(usize, String)>,
    direction: OptimizeDirection,
    level: f64,
) -> Result<PairsSetting, String> {
    let unusable = || format!("the figures of `{label}` cannot be compared");
    let Agreement { log, p_value, inconsistency } =
        Agreement::from_centers(centers).ok_or_else(unusable)?;
    let p_better = |center: &Center| match direction {
        OptimizeDirection::Minimize => center.p_below(),
        OptimizeDirection::Maximize => center.p_above(),
    };
    let unproven = centers.iter().position(|center| p_better(center) >= level);
    let verdict = match (worse, unproven) {
        _ if p_value < level => PairsVerdict::Unstable,
        (Some((pair, why)), _) => PairsVerdict::Worse(pair, why),
        (None, Some(pair)) => PairsVerdict::Unproven(pair),
        (None, None) => PairsVerdict::Stable,
    };
    let ratios = centers.iter().map(|center| center.ratio(1.0 - level)).collect::<Option<Vec<_>>>();
    let ratios = ratios.ok_or_else(unusable)?;
    Ok(PairsSetting {
        label: label.to_owned(),
        ratios,
        ratio: log.exp(),
        p_value,
        inconsistency,
        verdict,
    })
}

#[cfg(test)]
mod tests {
    use latput_knobs::{Knob, Qdisc, Setting, Value};
    use latput_trial::observation::Role;
    use latput_trial::results::HostFacts;
    use latput_units::SeededRng;

    use super::*;
    use crate::synthetic::{SyntheticFigures, build_results, noise_factor, rr_workload};

    /// Eight blocks on a pair where settings `b` and `c` have these times the rate of `a`.
    fn make_pair(number: u64, rates: [f64; 2]) -> Results {
        let mut rng = SeededRng::from_seed_and_index(7, number);
        let rates = [1.0, rates[0], rates[1]];
        let mut found = build_results(&["a", "b", "c"], &[rr_workload("rr")], 8, |setting, _| {
            SyntheticFigures {
                rate: 1e4 * (1.0 + number as f64) * rates[setting] * noise_factor(&mut rng, 0.02),
                ..SyntheticFigures::default()
            }
        });
        found.goal = Some("maximize transactions_per_s".to_owned());
        found
    }

    fn summarize_pairs(rates: [[f64; 2]; 3]) -> PairsSummary {
        let files: Vec<Results> =
            (0..).zip(rates).map(|(number, rates)| make_pair(number, rates)).collect();
        PairsSummary::from_results(&files).unwrap()
    }

    #[test]
    fn best_setting_of_every_pair_is_recommended() {
        let found = summarize_pairs([[1.1, 1.3], [1.1, 1.3], [1.1, 1.3]]);
        let names: Vec<_> = found.settings.iter().map(|it| it.verdict.name()).collect();
        assert_eq!(names, ["stable", "stable"], "{found:?}");
        assert_eq!(found.recommended, Some(1));
        assert!((found.settings[1].ratio - 1.3).abs() < 0.03, "{found:?}");
        // Two settings share 1%.
        let confidence = found.settings[1].ratios[0].confidence;
        assert!((confidence - 0.995).abs() < 1e-12, "{confidence}");
    }

    #[test]
    fn differing_fact_of_pair_is_named() {
        let mut files: Vec<Results> = (0..3).map(|number| make_pair(number, [1.1, 1.3])).collect();
        for (results, driver) in files.iter_mut().zip(["ixgbe", "ixgbe", "ice"]) {
            let facts = vec![("driver".to_owned(), driver.to_owned())];
            let role = Role::Sut;
            results.hosts = vec![HostFacts { role, facts, ..HostFacts::default() }];
        }
        let found = PairsSummary::from_results(&files).unwrap().differences;
        let [(2, differs)] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(
            (&*differs.what, &*differs.first, &*differs.second),
            ("driver of sut", "ixgbe", "ice")
        );
    }

    #[test]
    fn reversed_pair_makes_setting_unstable() {
        let found = summarize_pairs([[1.1, 1.3], [1.1, 1.3], [1.1, 0.8]]);
        assert_eq!(found.settings[1].verdict, PairsVerdict::Unstable, "{found:?}");
        assert!(found.settings[1].inconsistency > 0.9);
        assert_eq!(found.recommended, Some(0), "{found:?}");
        // Also where it helps everywhere, and much more on one pair.
        let found = summarize_pairs([[1.0, 1.1], [1.0, 1.1], [1.0, 2.0]]);
        assert_eq!(found.settings[1].verdict, PairsVerdict::Unstable, "{found:?}");
        assert_eq!(found.recommended, None);
    }

    #[test]
    fn unproven_and_harmful_settings_are_told_apart() {
        let found = summarize_pairs([[1.0, 0.8], [1.0, 0.8], [1.0, 0.8]]);
        assert_eq!(found.settings[0].verdict, PairsVerdict::Unproven(0), "{found:?}");
        assert!(
            matches!(&found.settings[1].verdict, PairsVerdict::Worse(0, why) if why.contains("proven worse")),
            "{found:?}"
        );
        // Half of 1% for each setting, half of that for the objective, on one side: 99.5% on both.
        let PairsVerdict::Worse(_, why) = &found.settings[1].verdict else { panic!("{found:?}") };
        assert!(why.ends_with(" lower at 99.5%)"), "{why}");
        assert_eq!(found.recommended, None);
    }

    #[test]
    fn results_of_other_plans_are_refused() {
        let files = || vec![make_pair(0, [1.0, 1.0]), make_pair(1, [1.0, 1.0])];
        let refused = |files: &[Results], words: &str| {
            let error = PairsSummary::from_results(files).unwrap_err();
            assert!(error.contains(words), "{error}");
        };
        refused(&files()[..1], "two pairs");
        let mut other = files();
        other[1].goal = Some("minimize latency_ns_p99".to_owned());
        refused(&other, "differ in the goal");
        let mut other = files();
        other[1].workloads = vec![rr_workload("other")];
        refused(&other, "differ in the workload");
        let mut other = files();
        other[1].confidence = 0.95;
        refused(&other, "differ in the confidence");
        for confidence in [0.0, 1.0, -0.5, 1.5, f64::NAN] {
            let other = files().into_iter().map(|it| Results { confidence, ..it });
            refused(&other.collect::<Vec<_>>(), "an invalid confidence");
        }
        let other = files().into_iter().map(|it| Results { settings: Vec::new(), ..it });
        refused(&other.collect::<Vec<_>>(), "has no setting");
        let mut other = files();
        other[1].settings[0].by_role = parse_setting("mtu=9000");
        refused(
            &other,
            "differ in the first setting, which all others are compared with (sut.mtu=several values, there \
             9000)",
        );
        let mut other = files();
        other[1].settings[1].label = "x".to_owned();
        other[1].settings[2].label = "y".to_owned();
        refused(&other, "no setting but the first");
        let mut other = files();
        other[1].rows.retain(|row| row.block == 0);
        refused(&other, "fewer than two blocks");
    }

    fn parse_setting(text: &str) -> std::collections::BTreeMap<Role, Setting> {
        let (knob, value) = latput_knobs::parse_assignment(text).unwrap();
        [(Role::Sut, Setting::from([(knob, value)]))].into()
    }

    /// As each kernel numbers the disciplines that somebody has set.
    #[test]
    fn numbered_qdiscs_are_the_same_setting() {
        let mut files = vec![make_pair(0, [1.1, 1.3]), make_pair(1, [1.1, 1.3])];
        for (file, number) in files.iter_mut().zip(1u16..) {
            let qdisc = Qdisc::from_kind("fq_codel").with_handle(number);
            file.settings[0].by_role =
                [(Role::Sut, Setting::from([(Knob::Qdisc, Value::Qdisc(qdisc))]))].into();
        }
        assert_ne!(files[0].settings[0].by_role, files[1].settings[0].by_role);
        assert_eq!(PairsSummary::from_results(&files).unwrap().recommended, Some(1));
    }

    #[test]
    fn disagreement_just_at_the_level_is_not_proven() {
        let center =
            |log: f64| Center { log, error: 0.01, degrees_of_freedom: 7, runs: 8, untrimmed: None };
        let judged = |level: f64| {
            let centers = [center(0.1), center(0.13), center(0.15)];
            judge_setting("b", &centers, None, OptimizeDirection::Maximize, level).unwrap()
        };
        let p_value = judged(0.5).p_value;
        assert!((0.001..0.4).contains(&p_value), "{p_value}");
        assert_eq!(judged(p_value).verdict, PairsVerdict::Stable);
        assert_eq!(judged(p_value * 1.001).verdict, PairsVerdict::Unstable);
    }

    #[test]
    fn results_without_runs_confirm_nothing() {
        let found = Results { confirmed_from: Some(3), ..make_pair(0, [1.0, 1.0]) };
        let found = with_settings(&found, found.settings.clone());
        assert_eq!((found.confirmed_from, found.rows.len()), (None, 0));
    }
}
