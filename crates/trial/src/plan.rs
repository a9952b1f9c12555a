//! Plans: settings x workloads x repetitions, the wanted precision and the goal.

use std::collections::BTreeMap;

use latput_knobs::{Knob, Setting, Tier, Value};
use latput_units::{IntoSet, Nanos};

use crate::observation::Role;
use crate::program::Program;
use crate::results::LabelledSetting;
use crate::workload::Workload;

mod file;
mod live;
mod today;

/// The plan of `latput tune` without arguments.
pub const BUILT_IN: &str = include_str!("../../../examples/built-in.toml");

/// Most trials of a plan, repetitions included.
pub const MAX_TRIALS: u64 = 100_000;

/// Most settings of a search.
pub const MAX_SEARCHED: u64 = 50_000;

/// A plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Name in tables and results.
    pub name: String,
    /// The goal as text; `None` if only the trade-off is wanted.
    pub goal: Option<String>,
    /// The factors; settings are their cross product.
    pub factors: Vec<Factor>,
    /// The workloads; each runs under every setting.
    pub workloads: Vec<Workload>,
    /// Repetitions, durations and precision.
    pub method: Method,
}

/// Knobs that move together through a list of levels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Factor {
    /// The knobs, each on one role's hosts or on all.
    pub targets: Vec<KnobOnRole>,
    /// The levels; each has one value per target.
    pub levels: Vec<Vec<Value>>,
}

/// A knob on the hosts of one role or on every host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnobOnRole {
    /// The role; `None` means every host.
    pub role: Option<Role>,
    /// The knob.
    pub knob: Knob,
}

/// The settings that are run, and their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Design {
    /// Every combination of the factors' levels, each in its own trials, in randomised blocks.
    #[default]
    Blocks,
    /// Every combination, in slices of a part of a second within one workload whose traffic
    /// continues.
    Slices,
    /// The settings that promise to be best by the goal, block by block.
    Search,
}

/// The reaction to a level or a workload that the testbed does not support.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnUnsupported {
    /// Refuse the plan.
    #[default]
    Refuse,
    /// Skip the level or the workload, and say so in the results.
    Skip,
}

/// Repetitions, durations and precision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Method {
    /// The settings that are run, and their order. `None` leaves the choice to latput: slices if
    /// every factor is cheap to change and the testbed supports slices, else blocks; a search if
    /// `latput tune` finds that all settings take too long.
    pub design: Option<Design>,
    /// The reaction to parts that the testbed does not support.
    pub on_unsupported: OnUnsupported,
    /// Fewest repetitions before the stopping rule applies.
    pub repetitions_min: u32,
    /// Most repetitions.
    pub repetitions_max: u32,
    /// Traffic before the measurement window.
    pub warmup: Nanos,
    /// The measurement window.
    pub duration: Nanos,
    /// Confidence of intervals, such as 0.99.
    pub confidence: f64,
    /// Wanted half width of a rate's interval as a share of the rate, such as 0.025.
    pub half_width: f64,
    /// Seed of the order of trials; without one it is drawn from the clock.
    pub seed: Option<u64>,
    /// Time budget: after the fewest repetitions no block begins that would end later.
    pub budget: Option<Nanos>,
    /// Whether settings may take the link of a host's interface down and up.
    pub allow_link_reset: bool,
    /// Whether the hosts' other work is part of the case: it makes no trial unfit.
    pub beside: bool,
    /// Whether the run ends as soon as its goal has a proven answer.
    pub first: bool,
}

/// An error in a plan, with its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {problem}")]
pub struct PlanError {
    /// The file as it was named.
    pub file: String,
    /// Line, counted from 1.
    pub line: usize,
    /// The problem and the remedy.
    pub problem: String,
}

impl Method {
    /// Seconds of a benchmark's `{duration_s}`: warm-up and window, rounded up.
    pub fn whole_seconds(&self) -> u64 {
        let whole = self.warmup + self.duration;
        whole.as_ns().div_ceil(Nanos::from_s(1).as_ns()).max(1)
    }

    /// The time from a benchmark's start to its window.
    pub fn before_window_of(&self, program: &Program) -> Nanos {
        let warmup = if program.runs_by_time() {
            Nanos::from_s(self.whole_seconds()).saturating_sub(self.duration)
        } else {
            Nanos::ZERO
        };
        program.quiet_start().saturating_add(warmup)
    }

    /// Time of a trial of this workload's traffic. A program that ends by count takes nobody knows how long: it counts as
    /// one that sends for as long as other traffic.
    pub fn trial_time(&self, workload: &Workload) -> Nanos {
        match &workload.program {
            Some(program) if program.runs_by_time() => {
                self.before_window_of(program).saturating_add(self.duration)
            }
            other => {
                let quiet = other.as_ref().map_or(Nanos::ZERO, |program| program.quiet_start());
                quiet.saturating_add(self.warmup).saturating_add(self.duration)
            }
        }
    }
}

impl Plan {
    /// The programs that its workloads run on hosts.
    pub fn programs(&self) -> impl Iterator<Item = &Program> {
        self.workloads.iter().filter_map(|load| load.program.as_deref())
    }

    /// Whether it runs programs on hosts.
    pub fn runs_programs(&self) -> bool {
        self.programs().next().is_some() || self.live().is_some_and(|live| live.command().is_some())
    }

    /// Reads a plan; `file` is only used in errors.
    pub fn parse(file: &str, text: &str) -> Result<Self, PlanError> {
        file::parse(file, text)
    }

    /// The settings in the order of the cross product; the first has the first level of each factor.
    pub fn settings(&self) -> Vec<LabelledSetting> {
        let mut settings = vec![(Vec::<String>::new(), BTreeMap::<Role, Setting>::new())];
        for factor in &self.factors {
            settings = settings
                .iter()
                .flat_map(|(labels, by_role)| {
                    factor.levels.iter().map(move |level| {
                        let mut by_role = by_role.clone();
                        factor.apply(level, &mut by_role);
                        let mut labels = labels.clone();
                        labels.push(factor.label(level));
                        (labels, by_role)
                    })
                })
                .collect();
        }
        settings
            .into_iter()
            .map(|(labels, by_role)| LabelledSetting {
                label: if labels.is_empty() { "as it is".to_owned() } else { labels.join(" ") },
                by_role,
            })
            .collect()
    }

    /// Number of combinations of the factors' levels.
    pub fn combinations(&self) -> u64 {
        let levels = self.factors.iter().map(|factor| factor.levels.len() as u64);
        levels.fold(1, u64::saturating_mul)
    }

    /// Whether settings can take turns while traffic flows: there are several, and they
    /// [may](Self::may_take_turns).
    pub fn is_cheap_to_change(&self) -> bool {
        self.combinations() > 1 && self.may_take_turns()
    }

    /// Whether no change of its knobs disturbs traffic, and no workload ends by a count.
    pub fn may_take_turns(&self) -> bool {
        let mut targets = self.factors.iter().flat_map(|factor| &factor.targets);
        targets.all(|target| target.knob.spec().tier == Tier::Hitless)
            && self
                .workloads
                .iter()
                .all(|load| load.count.is_none() && load.program.is_none() && load.live.is_none())
    }

    /// Duration of the traffic of every setting with the fewest repetitions.
    pub fn shortest_grid(&self) -> Nanos {
        let trials = self.trials_per_block().saturating_mul(u64::from(self.method.repetitions_min));
        self.method.warmup.saturating_add(self.method.duration).saturating_mul(trials)
    }

    /// Number of trials in one repetition of the whole plan.
    pub fn trials_per_block(&self) -> u64 {
        self.combinations().saturating_mul(self.workloads.len() as u64)
    }
}

impl Factor {
    /// The name in plans: `gro-flush-timeout + napi-defer-hard-irqs`, `sut.mtu`.
    pub fn name(&self) -> String {
        let name = |target: &KnobOnRole| match target.role {
            Some(role) => format!("{}.{}", role.name(), target.knob),
            None => target.knob.to_string(),
        };
        self.targets.iter().map(name).collect::<Vec<_>>().join(" + ")
    }

    /// Refuses a level that is listed twice: its two settings would be one.
    pub fn check_levels(&self) -> Result<(), String> {
        for (idx, level) in self.levels.iter().enumerate() {
            if let Some(first) = self.levels[..idx].iter().position(|other| other == level) {
                let values: Vec<String> = level.iter().map(ToString::to_string).collect();
                return Err(format!(
                    "levels {} and {} of `{}` are the same ({}): leave one out",
                    first + 1,
                    idx + 1,
                    self.name(),
                    values.join(", ")
                ));
            }
        }
        Ok(())
    }

    /// The values of one of its levels, by role.
    pub fn setting(&self, level: &[Value]) -> BTreeMap<Role, Setting> {
        let mut by_role = BTreeMap::new();
        self.apply(level, &mut by_role);
        by_role
    }

    fn apply(&self, level: &[Value], by_role: &mut BTreeMap<Role, Setting>) {
        for (target, value) in self.targets.iter().zip(level) {
            for role in [Role::Sut, Role::Generator] {
                if target.role.is_none_or(|only| only == role) {
                    by_role.entry(role).or_default().insert(target.knob, value.clone());
                }
            }
        }
    }

    /// A level with its knob, as in tables: `rx-usecs=50us`. The first target's value names the level if it differs at
    /// each level, since the other values follow from it. Otherwise every varying value does.
    pub fn label(&self, level: &[Value]) -> String {
        let values = |idx: usize| self.levels.iter().map(move |level| &level[idx]);
        let distinct = values(0).into_set().len();
        let varies = |idx: &usize| values(*idx).any(|value| *value != self.levels[0][*idx]);
        let naming: Vec<usize> = if distinct == self.levels.len() {
            vec![0]
        } else {
            (0..self.targets.len()).filter(varies).collect()
        };
        let named = naming.into_iter().map(|idx| {
            let target = &self.targets[idx];
            let value = &level[idx];
            match target.role {
                Some(role) => format!("{}.{}={value}", role.name(), target.knob),
                None => format!("{}={value}", target.knob),
            }
        });
        named.collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_has_a_label_of_its_own() {
        check("mtu = [1500, 9000]", &["mtu=1500", "mtu=9000"]);
        let together = "\"rx-usecs + rx-frames\" = ";
        check(&format!("{together}[[10, 0], [50, 0]]"), &["rx-usecs=10us", "rx-usecs=50us"]);
        check(
            "\"rx-usecs + sut.mtu + rx-frames\" = [[10, 1500, 0], [10, 1500, 8], [50, 1500, 8]]",
            &[
                "rx-usecs=10us rx-frames=0",
                "rx-usecs=10us rx-frames=8",
                "rx-usecs=50us rx-frames=8",
            ],
        );
    }

    #[test]
    fn program_takes_whole_seconds() {
        let command =
            |words: &str| format!("kind = \"command\"\nname = \"own\"\ncommand = [{words}]\n");
        let by_parser = |words: &str, parser: &str| {
            format!("{}metrics = {{ parser = \"{parser}\" }}\n", command(words))
        };
        let sockperf = "\"sockperf\", \"pp\", \"-i\", \"{sut}\", \"-t\", \"{duration_s}\"";
        check_time("kind = \"tcp_rr\"\n", 1_700);
        check_time(&by_parser("\"wrk\", \"-d\", \"{duration_s}\"", "wrk"), 2_000);
        check_time(&by_parser(sockperf, "sockperf"), 2_100 + 2_000);
        check_time(&by_parser("\"wrk\", \"-n\", \"9\"", "wrk"), 1_700);
    }

    #[track_caller]
    fn check_time(workload: &str, ms: u64) {
        let text = format!(
            "schema = 1\nname = \"x\"\n[[workload]]\n{workload}[method]\nwarmup = \"200ms\"\nduration = \"1500ms\"\n"
        );
        let plan = Plan::parse("plan.toml", &text).unwrap();
        assert_eq!(plan.method.trial_time(&plan.workloads[0]), Nanos::from_ms(ms));
    }

    #[track_caller]
    fn check(factors: &str, expected: &[&str]) {
        let text = format!(
            "schema = 1\nname = \"x\"\n[factors]\n{factors}\n[[workload]]\nkind = \"tcp_rr\"\n"
        );
        let settings = Plan::parse("plan.toml", &text).unwrap().settings();
        let labels: Vec<&str> = settings.iter().map(|setting| setting.label.as_str()).collect();
        assert_eq!(labels, expected);
    }
}
