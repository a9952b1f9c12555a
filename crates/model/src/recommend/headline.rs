//! The answer of a run in one sentence.

use std::collections::{BTreeMap, BTreeSet};

use latput_units::text::format_count;

use super::condition::LimitCheck;
use super::recommendation::{Headline, ProvenBy};
use super::smallest::LARGEST_MISSED;
use super::{GoalJudge, GoalVerdict, SettingVerdict, SmallestEffect};
use crate::words;

impl GoalJudge<'_> {
    /// Why no other setting can be the answer, whatever the noise hides; `None` where one can.
    pub(super) fn why_all_are_out(
        &self,
        kept: &BTreeMap<usize, Vec<LimitCheck<'_>>>,
    ) -> Option<String> {
        let verdicts: Vec<SettingVerdict> =
            self.objective_changes(kept).into_iter().map(|change| change.verdict).collect();
        if !verdicts.iter().all(|verdict| verdict.is_out()) {
            return None;
        }
        let all: BTreeSet<&str> = verdicts.into_iter().map(SettingVerdict::describe).collect();
        let all: Vec<&str> = all.into_iter().collect();
        (!all.is_empty()).then(|| format!("every other setting is {}", all.join(", or ")))
    }

    /// The answer by this verdict, from the runs that count. Where too few count, or those that count prove nothing and all
    /// together might have, the hosts were not quiet.
    pub(super) fn build_headline(
        &self,
        kept: &BTreeMap<usize, Vec<LimitCheck<'_>>>,
        verdict: &GoalVerdict,
        smallest: &[SmallestEffect],
    ) -> Headline {
        let to = if let GoalVerdict::Change { to, .. } = verdict { Some(*to) } else { None };
        if self.fitness.is_unfit_for(to) {
            return Headline::NotQuiet(self.fitness.describe_noise());
        }
        let headline = self.undisturbed_headline(kept, verdict, smallest);
        let is_open = matches!(headline, Headline::NoAnswer(_) | Headline::TooNoisy(_));
        if is_open && self.fitness.may_have_cost_the_answer(smallest) {
            Headline::NotQuiet(self.fitness.describe_noise())
        } else {
            headline
        }
    }

    fn undisturbed_headline(
        &self,
        kept: &BTreeMap<usize, Vec<LimitCheck<'_>>>,
        verdict: &GoalVerdict,
        smallest: &[SmallestEffect],
    ) -> Headline {
        if let (GoalVerdict::Stay { .. }, Some(why)) = (verdict, self.why_all_are_out(kept)) {
            return Headline::Stay(why);
        }
        match verdict {
            GoalVerdict::Change { to, by } => {
                let change = match by {
                    ProvenBy::Objective => self.objective_change(*to),
                    ProvenBy::Limit => "it meets a limit that today's setting misses".to_owned(),
                };
                Headline::Set(format!("{} is proven better: {change}", self.quoted_label(*to)))
            }
            GoalVerdict::NoneKeeps { .. } => {
                Headline::Stay("every setting is proven short of a limit of the goal".to_owned())
            }
            GoalVerdict::Stay { .. } if self.results.settings.len() < 2 => {
                Headline::Stay("no other setting was run".to_owned())
            }
            GoalVerdict::Stay { .. } => {
                let objective = smallest.iter().find(|one| one.limit.is_none());
                self.stay_headline(objective)
            }
        }
    }

    fn stay_headline(&self, objective: Option<&SmallestEffect>) -> Headline {
        let name = self.objective_name();
        let Some(effect) = objective else {
            let sentence = "too few trials. Run at least two blocks, better five";
            return Headline::NoAnswer(sentence.to_owned());
        };
        let change = words::format_change(effect.ratio);
        if missed_share(effect.ratio) <= LARGEST_MISSED {
            return Headline::Stay(format!(
                "nothing better was found; this run could detect a setting whose {name} is {change}"
            ));
        }
        let limit = if effect.ratio < 1.0 { 1.0 - LARGEST_MISSED } else { 1.0 + LARGEST_MISSED };
        let blocks: BTreeSet<u32> = self.results.rows.iter().map(|row| row.block).collect();
        let wanted = match effect.blocks_wanted {
            Some(wanted) => {
                format!("run {} instead of {}", format_count(wanted, "block"), blocks.len())
            }
            None => "quieter hosts are needed".to_owned(),
        };
        let (share, side) =
            (words::format_percent(LARGEST_MISSED), if limit < 1.0 { "drop" } else { "rise" });
        Headline::TooNoisy(format!(
            "too noisy: this run could only detect a setting whose {name} is {change}. To detect a {share} {side}, \
             {wanted}"
        ))
    }
}

/// Size of a ratio as a share of the first setting's figure.
pub(crate) fn missed_share(ratio: f64) -> f64 {
    if ratio.is_finite() { (ratio - 1.0).abs() } else { f64::INFINITY }
}

#[cfg(test)]
mod tests {
    use latput_trial::{Check, Results, Row};
    use latput_units::SeededRng;

    use super::*;
    use crate::goal::Goal;
    use crate::recommend::recommend_setting;
    use crate::synthetic::{SyntheticFigures, build_results, noise_factor, rr_workload};

    #[test]
    fn proof_quiet_and_noisy_runs_differ() {
        check_headline(0.5, 0.02, 8, "set", "`20us` is proven better: latency_ns_p99 is");
        check_headline(1.0, 0.02, 8, "stay", "nothing better was found; this run could detect");
        check_headline(
            1.0,
            0.4,
            5,
            "no_answer",
            "too noisy: this run could only detect a setting whose latency_ns_p99 is",
        );
        check_headline(1.0, 0.4, 5, "no_answer", "To detect a 20% drop, run ");
        check_headline(0.5, 0.02, 1, "no_answer", "too few trials");
        assert!(find_headline(&make_results(1.0, 0.4, 5)).is_judged());
        assert!(
            !find_headline(&make_results(0.5, 0.02, 1)).is_judged(),
            "one pair has no interval"
        );
        // Noise hides no better setting where all are known to be worse.
        check_headline(50.0, 0.4, 5, "stay", "every other setting is proven worse");
    }

    #[test]
    fn ruled_out_settings_raise_no_doubt() {
        // `20us` has 60% of the rate. What its tail is hides in the noise.
        let mut rng = SeededRng::from_seed(6);
        let made = build_results(&["off", "20us"], &[rr_workload("rr")], 6, |setting, _| {
            SyntheticFigures {
                rate: [1e5, 6e4][setting] * noise_factor(&mut rng, 0.02),
                p99_us: Some(50.0 * noise_factor(&mut rng, 0.4)),
                ..SyntheticFigures::default()
            }
        });
        let said = |goal: &str| {
            let goal = Goal::parse(goal).unwrap();
            recommend_setting(&made, &goal).unwrap().headline
        };
        let limited = said("minimize latency_ns_p99 where transactions_per_s >= 0.95 today");
        assert_eq!(limited.kind(), "stay", "{limited:?}");
        assert_eq!(
            limited.sentence(),
            "every other setting is proven short of a limit of the goal"
        );
        let goal = "minimize latency_ns_p99 where transactions_per_s >= 0.95 today";
        let reason = recommend_setting(&made, &Goal::parse(goal).unwrap()).unwrap().reason;
        assert_eq!(reason[0], "Stay with `off`: no other setting is left.", "{reason:?}");
        assert_eq!(said("minimize latency_ns_p99").kind(), "no_answer");
    }

    #[test]
    fn blocks_of_noisy_runs_are_enough() {
        let (mut answers, mut tried) = (0, 0);
        for seed in 0..40 {
            let Headline::TooNoisy(sentence) = find_headline(&draw_results(seed, 1.0, 0.3, 6))
            else {
                continue;
            };
            let words: Vec<&str> = sentence.split(' ').collect();
            let at = words.iter().rposition(|word| *word == "run").unwrap();
            let blocks: u32 = words[at + 1].parse().unwrap();
            let longer = find_headline(&draw_results(100 + seed, 1.0, 0.3, blocks));
            tried += 1;
            answers += u32::from(matches!(longer, Headline::Stay(_)));
        }
        assert!(5 * answers >= 2 * tried && tried > 20, "{answers} of {tried}");
    }

    /// The blocks that a noisy run is told to run, and those that it has.
    fn find_advice(made: &Results) -> (usize, usize) {
        let Headline::TooNoisy(sentence) = find_headline(made) else { panic!("it has an answer") };
        let advice = sentence.split_once(", run ").unwrap().1;
        let (wanted, run) = advice.split_once(" blocks instead of ").unwrap();
        (wanted.parse().unwrap(), run.parse().unwrap())
    }

    #[test]
    fn advice_counts_all_blocks_of_live_traffic() {
        let paired = make_three_results(0.3, 6);
        let of_block = |block: u32, setting: usize| {
            let mut rows = paired.rows.iter().filter(move |row| row.block == block);
            rows.find(|row| row.setting == setting).unwrap().clone()
        };
        // The noise first, on blocks of today's setting alone; then each block has a single pair.
        let alone = (0..12).map(|block| Row { block, ..of_block(block % 6, 0) });
        let pairs = (12..24).flat_map(|block| {
            let (pair, setting) = ((block - 12) / 2, 1 + (block as usize) % 2);
            [0, setting].map(|setting| Row { block, ..of_block(pair, setting) })
        });
        let rows: Vec<Row> = alone.chain(pairs).collect();
        let (wanted, run) = find_advice(&Results { rows, ..paired.clone() });
        let (wanted_together, run_together) = find_advice(&paired);
        assert_eq!((run, run_together), (24, 6));
        assert!(wanted > run && wanted_together > run_together, "{wanted} {wanted_together}");
        // As many pairs of each setting are wanted as where all settings are in each block.
        assert_eq!(wanted - 12, 2 * wanted_together);
    }

    #[test]
    fn advice_counts_blocks_that_are_left_out() {
        let mut made = make_three_results(0.6, 9);
        let quiet = find_advice(&made);
        for row in made.rows.iter_mut().filter(|row| row.block < 3) {
            let name = latput_trial::check::KNOB_DRIFT.to_owned();
            row.observation.checks.push(Check { name, passed: false, detail: String::new() });
        }
        let (wanted, run) = find_advice(&made);
        assert!(quiet.0 > quiet.1 && wanted > run && run == 9, "{wanted} of {run}, {quiet:?}");
    }

    /// Three settings without a difference.
    fn make_three_results(sd: f64, blocks: u32) -> Results {
        let mut rng = SeededRng::from_seed(11);
        build_results(&["off", "20us", "50us"], &[rr_workload("rr")], blocks, |_, _| {
            SyntheticFigures {
                rate: 1e5,
                p99_us: Some(50.0 * noise_factor(&mut rng, sd)),
                service_demand_us: 2.0,
            }
        })
    }

    #[track_caller]
    fn check_headline(effect: f64, sd: f64, blocks: u32, kind: &str, words: &str) {
        let headline = find_headline(&make_results(effect, sd, blocks));
        assert_eq!(headline.kind(), kind, "{headline:?}");
        assert!(headline.sentence().contains(words), "{headline:?}");
    }

    fn find_headline(results: &Results) -> Headline {
        recommend_setting(results, &Goal::parse("latency").unwrap()).unwrap().headline
    }

    fn make_results(effect: f64, sd: f64, blocks: u32) -> Results {
        draw_results(5, effect, sd, blocks)
    }

    fn draw_results(seed: u64, effect: f64, sd: f64, blocks: u32) -> Results {
        let mut rng = SeededRng::from_seed(seed);
        build_results(&["off", "20us"], &[rr_workload("rr")], blocks, |setting, _| {
            SyntheticFigures {
                rate: 1e5,
                p99_us: Some(
                    50.0 * noise_factor(&mut rng, sd) * if setting == 1 { effect } else { 1.0 },
                ),
                service_demand_us: 2.0,
            }
        })
    }

    #[test]
    fn banned_or_missing_rivals_explain_stay() {
        let of_banned = |settings: usize, banned: &[usize]| {
            let labels = ["a", "b", "c"];
            let mut made =
                build_results(&labels[..settings], &[rr_workload("rr")], 6, |setting, _| {
                    SyntheticFigures {
                        p99_us: Some([50.0, 25.0, 75.0][setting]),
                        ..SyntheticFigures::default()
                    }
                });
            for row in made.rows.iter_mut().filter(|row| banned.contains(&row.setting)) {
                let name = latput_trial::live::BAN_CHECK.to_owned();
                row.observation.checks.push(Check { name, passed: false, detail: String::new() });
            }
            find_headline(&made).sentence().to_owned()
        };
        let all = "every other setting is banned for breaking a guard";
        assert_eq!(of_banned(3, &[1, 2]), all);
        assert!(of_banned(3, &[2]).starts_with("`b` is proven better"));
        let worse = "every other setting is banned for breaking a guard, or proven worse";
        assert_eq!(of_banned(3, &[1]), worse, "`c` is worse than `a`");
        assert_eq!(of_banned(1, &[]), "no other setting was run");
    }

    #[test]
    fn too_noisy_run_names_blocks_wanted() {
        let made = make_results(1.0, 0.02, 3);
        let goal = Goal::parse("latency").unwrap();
        let runs = crate::runs::RunTable::of_goal(&made, &goal);
        let judge = GoalJudge::new(&made, &runs, &goal).unwrap();
        let stay = |ratio: f64, blocks_wanted: Option<usize>| {
            let effect = SmallestEffect {
                figures: Vec::new(),
                limit: None,
                ratio,
                ratio_in_four_times: ratio,
                blocks_wanted,
            };
            judge.stay_headline(Some(&effect)).sentence().to_owned()
        };
        for (ratio, change, side, blocks, wanted) in [
            (0.64, "36% lower", "drop", Some(8), "run 8 blocks instead of 3"),
            (1.44, "44% higher", "rise", Some(12), "run 12 blocks instead of 3"),
            (1e-300, "100% lower", "drop", None, "quieter hosts are needed"),
            (0.0, "100% lower", "drop", None, "quieter hosts are needed"),
        ] {
            let expected = format!(
                "too noisy: this run could only detect a setting whose latency_ns_p99 is {change}. To detect a 20% \
                 {side}, {wanted}"
            );
            assert_eq!(stay(ratio, blocks), expected);
        }
        assert!(stay(0.85, None).starts_with("nothing better was found"));
    }
}
