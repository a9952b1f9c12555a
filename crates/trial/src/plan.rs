//! Plans: settings x workloads x repetitions, the statistics wanted and the goal.

use std::collections::{BTreeMap, BTreeSet};

use latput_knobs::{Knob, Setting, Tier, Value};
use latput_units::Nanos;

use crate::observation::Role;
use crate::results::LabelledSetting;
use crate::workload::Workload;

mod file;

/// The plan of `latput tune` without arguments.
pub const BUILT_IN: &str = include_str!("../../../examples/built-in.toml");

/// A plan may ask for at most this many trials, repetitions included.
pub const MAX_TRIALS: u64 = 100_000;

/// A search chooses among at most this many settings.
pub const MAX_SEARCHED: u64 = 50_000;

/// What to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Shown in tables and kept with the results.
    pub name: String,
    /// The goal, as text; `None` means that only the trade-off is wanted.
    pub goal: Option<String>,
    /// What varies; settings are the cross product.
    pub factors: Vec<Factor>,
    /// The loads, each run under every setting.
    pub workloads: Vec<Workload>,
    /// How often, how long and how sure.
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

/// A knob, on the hosts of one role or on every host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnobOnRole {
    /// `None`: every host.
    pub role: Option<Role>,
    /// The knob.
    pub knob: Knob,
}

/// Which settings are run, and how they take turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Design {
    /// Every combination of the factors' levels, each in trials of its own, in randomised blocks.
    #[default]
    Blocks,
    /// Every combination, in slices of a part of a second within one workload whose traffic goes on.
    Slices,
    /// Those that promise to be best by the goal, block by block.
    Search,
}

/// What a run does about a level or a workload that the testbed does not support.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnUnsupported {
    /// It refuses the plan.
    #[default]
    Refuse,
    /// It skips the level or the workload, and the results say so.
    Skip,
}

/// How often, how long and how sure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Method {
    /// Which settings are run, and how; `None` where the plan leaves it open: slices where every factor
    /// is cheap to change and the testbed takes slices, else blocks; a search where `latput tune` finds that
    /// all settings take too long.
    pub design: Option<Design>,
    /// What becomes of what the testbed does not have.
    pub on_unsupported: OnUnsupported,
    /// Repetitions of everything before any stopping rule is looked at.
    pub repetitions_min: u32,
    /// Repetitions at most.
    pub repetitions_max: u32,
    /// Traffic before the measurement window.
    pub warmup: Nanos,
    /// The measurement window.
    pub duration: Nanos,
    /// Confidence of intervals, such as 0.99.
    pub confidence: f64,
    /// Wanted half width of a rate's interval as a share of the rate, such as 0.025.
    pub half_width: f64,
    /// Seed of the order of trials; drawn from the clock when absent.
    pub seed: Option<u64>,
    /// No block beyond the smallest number of repetitions is begun that would end after this time.
    pub budget: Option<Nanos>,
    /// Whether settings may take the link of a host's interface down and up.
    pub allow_link_reset: bool,
}

/// A plan that cannot be run, and where it says so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {problem}")]
pub struct PlanError {
    /// The file as it was named.
    pub file: String,
    /// Line, counted from 1.
    pub line: usize,
    /// What is wrong and how to mend it.
    pub problem: String,
}

impl Plan {
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

    /// How many settings the factors' levels make.
    pub fn combinations(&self) -> u64 {
        let levels = self.factors.iter().map(|factor| factor.levels.len() as u64);
        levels.fold(1, u64::saturating_mul)
    }

    /// Whether its settings can take turns while traffic flows: there are several, no knob of theirs disturbs
    /// traffic when it changes, and no workload ends by a count.
    pub fn is_cheap_to_change(&self) -> bool {
        let targets = self.factors.iter().flat_map(|factor| &factor.targets);
        self.combinations() > 1
            && targets.clone().all(|target| target.knob.spec().tier == Tier::Hitless)
            && self.workloads.iter().all(|workload| workload.count.is_none())
    }

    /// How long the traffic of every setting takes at its fewest repetitions.
    pub fn shortest_grid(&self) -> Nanos {
        let trials = self.trials_per_block().saturating_mul(u64::from(self.method.repetitions_min));
        self.method.warmup.saturating_add(self.method.duration).saturating_mul(trials)
    }

    /// How many trials one repetition of the whole plan has.
    pub fn trials_per_block(&self) -> u64 {
        self.combinations().saturating_mul(self.workloads.len() as u64)
    }
}

impl Factor {
    /// As plans write it: `gro-flush-timeout + napi-defer-hard-irqs`, `sut.mtu`.
    pub fn name(&self) -> String {
        let name = |target: &KnobOnRole| match target.role {
            Some(role) => format!("{}.{}", role.name(), target.knob),
            None => target.knob.to_string(),
        };
        self.targets.iter().map(name).collect::<Vec<_>>().join(" + ")
    }

    /// What one of its levels sets, by role.
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

    /// The first target's value names the level where it is another at each: what moves with it
    /// follows from it. Else all that vary do.
    fn label(&self, level: &[Value]) -> String {
        let values = |idx: usize| self.levels.iter().map(move |level| &level[idx]);
        let distinct = values(0).collect::<BTreeSet<_>>().len();
        let varies = |idx: &usize| values(*idx).any(|value| *value != self.levels[0][*idx]);
        let naming: Vec<usize> = if distinct == self.levels.len() {
            vec![0]
        } else {
            (0..self.targets.len()).filter(varies).collect()
        };
        let named = naming.into_iter().map(|idx| {
            let (target, value) = (&self.targets[idx], &level[idx]);
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
