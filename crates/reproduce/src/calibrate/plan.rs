//! Fit plans of the profiles: `data/calibration.toml` or a similar file, and the valid values of
//! its keys.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use latput_calibrate::{FixedParameter, FreeParameter, GeneratorCosts, Parameter, SearchEffort};
use latput_sim::SystemProfile;
use latput_sim::profile::{TextError, read_toml};
use latput_sim::vector::Throttle;
use serde::Deserialize;

use super::MOST_FREE;

/// Path of the shipped plans.
const FILE: &str = "data/calibration.toml";
const PLANS: &str = include_str!("../../../../data/calibration.toml");

/// Runs of a cell.
const RUNS: RangeInclusive<u64> = 1..=100;
/// Starts of a fit. One or two may all end in a poor optimum.
const STARTS: RangeInclusive<usize> = 3..=20;
/// Most evaluations of one search.
const MOST_EVALUATIONS: usize = 1_000;
/// Share of a prediction's simulated time.
const SHARE: RangeInclusive<f64> = 0.01..=1.0;
/// Start value of a free cost. A search of logarithms cannot begin at 0, and no cost exceeds 0.1 s.
const STARTED: RangeInclusive<f64> = 1e-3..=1e8;
/// Value of a fixed cost.
const GIVEN: RangeInclusive<f64> = 0.0..=1e8;

/// The plan of one fit.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FitPlan {
    /// The file of the plan.
    #[serde(skip)]
    file: String,
    /// The profile's name.
    pub profile: String,
    /// The system in a few words: the first line of the profile's file.
    pub about: String,
    /// Files of published cells.
    pub cells: Vec<String>,
    /// Names of the tables, runs, tests, sections or rows to use; all if empty.
    #[serde(default)]
    pub only: Vec<String>,
    /// Fixed parameters.
    #[serde(default)]
    pub fixed: Vec<FixedParameter>,
    /// The free parameters with their start values.
    pub free: Vec<FreeParameter>,
    /// Treatment of the generators' costs.
    #[serde(default)]
    pub generators: GeneratorCosts,
    /// Number of runs that are averaged to a figure. Each has its own start phases.
    #[serde(default = "one")]
    pub runs: u64,
    /// The length of the search.
    #[serde(default)]
    pub effort: SearchEffort,
}

const fn one() -> u64 {
    1
}

/// An error in a file of plans.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// The file is no valid file of plans.
    #[error("{file}: {error}")]
    Syntax {
        /// The file.
        file: String,
        /// The parser's error.
        error: TextError,
    },
    /// A key has an invalid value.
    #[error("{file}, profile `{profile}`: `{key}` is {found}, must be {wanted}")]
    Value {
        /// The file.
        file: String,
        /// The plan's profile.
        profile: String,
        /// The key, as a path.
        key: String,
        /// Its value.
        found: String,
        /// The valid values.
        wanted: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanFile {
    profile: Vec<FitPlan>,
}

impl FitPlan {
    /// The shipped plans.
    pub fn load_shipped() -> Result<Vec<Self>, PlanError> {
        Self::parse(FILE, PLANS)
    }

    /// Parses and checks the plans of a file.
    pub fn parse(file: &str, text: &str) -> Result<Vec<Self>, PlanError> {
        let PlanFile { profile: mut plans } =
            read_toml(text).map_err(|error| PlanError::Syntax { file: file.to_owned(), error })?;
        for plan in &mut plans {
            file.clone_into(&mut plan.file);
        }
        let mut seen = BTreeSet::new();
        for plan in &plans {
            plan.check_values()?;
            if !seen.insert(&plan.profile) {
                return Err(plan.value_error("profile", "there twice", "in one plan only"));
            }
        }
        Ok(plans)
    }

    fn value_error(&self, key: &str, found: impl ToString, wanted: impl ToString) -> PlanError {
        PlanError::Value {
            file: self.file.clone(),
            profile: self.profile.clone(),
            key: key.to_owned(),
            found: found.to_string(),
            wanted: wanted.to_string(),
        }
    }

    fn check_range<T: PartialOrd + ToString>(
        &self,
        key: &str,
        value: T,
        range: &RangeInclusive<T>,
    ) -> Result<(), PlanError> {
        if range.contains(&value) {
            return Ok(());
        }
        let wanted = format!("from {} to {}", range.start().to_string(), range.end().to_string());
        Err(self.value_error(key, value, wanted))
    }

    fn check_values(&self) -> Result<(), PlanError> {
        if self.cells.is_empty() {
            return Err(self.value_error("cells", "empty", "names of files of data/published"));
        }
        self.check_range("runs", self.runs, &RUNS)?;
        self.check_range("free (how many)", self.free.len(), &(1..=MOST_FREE))?;
        for FreeParameter { parameter, start } in &self.free {
            self.check_range(&format!("free {parameter}: start"), *start, &STARTED)?;
        }
        for FixedParameter { parameter, value } in &self.fixed {
            self.check_range(&format!("fixed {parameter}: value"), *value, &GIVEN)?;
        }
        self.check_effort()?;
        self.check_parameters()
    }

    /// Checks the effort: a search needs a slope for each parameter, a start and one step.
    fn check_effort(&self) -> Result<(), PlanError> {
        let evaluations = self.free.len() + 2..=MOST_EVALUATIONS;
        let SearchEffort { starts, first, last: (more, share) } = self.effort;
        self.check_range("effort.starts", starts, &STARTS)?;
        self.check_range("effort.first", first, &evaluations)?;
        self.check_range("effort.last, the first", more, &evaluations)?;
        self.check_range("effort.last, the second", share, &SHARE)
    }

    /// The parameters that it sets, in order.
    fn parameters(&self) -> impl Iterator<Item = Parameter> {
        let fixed = self.fixed.iter().map(|fixed| fixed.parameter);
        fixed.chain(self.free.iter().map(|free| free.parameter))
    }

    /// Checks that each parameter occurs once, is not overwritten by a later one, and has an
    /// effect.
    fn check_parameters(&self) -> Result<(), PlanError> {
        let all: Vec<Parameter> = self.parameters().collect();
        for (idx, parameter) in all.iter().enumerate() {
            if let Some(over) = all[idx + 1..].iter().find(|later| later.sets_again(*parameter)) {
                let found = format!("set again by `{over}`");
                return Err(self.value_error(
                    &parameter.to_string(),
                    found,
                    "a parameter whose value lasts",
                ));
            }
        }
        if self.generators == GeneratorCosts::Stay && all.contains(&Parameter::Generator) {
            let found = "a parameter while generators = \"stay\"";
            return Err(self.value_error(
                "generator",
                found,
                "left out, or generators = \"follow\"",
            ));
        }
        Ok(())
    }

    /// Checks that the fitted profile has each parameter.
    pub(super) fn check_profile(&self, base: &SystemProfile) -> Result<(), PlanError> {
        for parameter in self.parameters() {
            let lacks = match parameter {
                Parameter::Generator if base.generator.is_none() => "costs of the generators",
                Parameter::Throttle if base.sut.nic.coalescing.throttle == Throttle::None => {
                    "throttle"
                }
                _ => continue,
            };
            let wanted = format!("left out, as the profile has no {lacks}");
            return Err(self.value_error(&parameter.to_string(), "a parameter", wanted));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::PublishedCells;
    use crate::files;
    use crate::system::SystemCatalog;
    use crate::table::CsvTable;

    /// A plan as it must be, with `from` in place of `to`.
    fn parse_plan(from: &str, to: &str) -> Result<Vec<FitPlan>, PlanError> {
        let good = r#"
            [[profile]]
            profile = "freebsd-em"
            about = "A host."
            cells = ["device_polling.csv"]
            runs = 6
            fixed = [{ parameter = "wake", value = 2000 }]
            free = [{ parameter = "interrupt", start = 68000 }, { parameter = "ack", start = 1.5 }]
            effort = { starts = 3, first = 14, last = [20, 1.0] }
        "#;
        assert_eq!(good.matches(from).count(), 1, "{from}");
        FitPlan::parse("p.toml", &good.replace(from, to))
    }

    #[track_caller]
    fn check_refused(from: &str, to: &str, words: &[&str]) {
        let said = parse_plan(from, to).unwrap_err().to_string();
        let words = [&["p.toml"], words].concat();
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    }

    #[test]
    fn meaningless_value_is_named_with_range() {
        assert_eq!(parse_plan("runs = 6", "runs = 6").unwrap()[0].runs, 6);
        assert_eq!(parse_plan("runs = 6", "").unwrap()[0].runs, 1);
        let ranges = [
            ("runs = 6", "runs = 0", "`runs` is 0, must be from 1 to 100"),
            ("starts = 3", "starts = 0", "`effort.starts` is 0, must be from 3 to 20"),
            ("starts = 3", "starts = 2", "`effort.starts` is 2"),
            ("first = 14", "first = 3", "`effort.first` is 3, must be from 4 to 1000"),
            ("[20, 1.0]", "[0, 1.0]", "`effort.last, the first` is 0"),
            ("[20, 1.0]", "[20, 0.0]", "`effort.last, the second` is 0, must be from 0.01 to 1"),
            ("[20, 1.0]", "[20, nan]", "`effort.last, the second` is NaN"),
            ("start = 1.5", "start = -1.5", "`free ack: start` is -1.5, must be from 0.001 to 1"),
            ("start = 1.5", "start = nan", "`free ack: start` is NaN"),
            ("value = 2000", "value = inf", "`fixed wake: value` is inf, must be from 0 to"),
            ("[\"device_polling.csv\"]", "[]", "`cells` is empty, must be names of files"),
        ];
        for (from, to, said) in ranges {
            check_refused(from, to, &["profile `freebsd-em`", said]);
        }
        check_refused(
            "runs = 6",
            "runs = -6",
            &["`profile.runs` must be a whole number from 0, not -6"],
        );
        check_refused("runs = 6", "run = 6", &["unknown field `run`"]);
    }

    #[test]
    fn ineffective_parameter_is_refused() {
        check_refused("\"wake\"", "\"interrupt\"", &["`interrupt` is set again by `interrupt`"]);
        check_refused("\"interrupt\"", "\"ack\"", &["`ack` is set again by `ack`"]);
        // A sent packet sets the acknowledgement's cost, which may be set apart after it and not before.
        assert!(parse_plan("\"interrupt\"", "\"tx_packet\"").is_ok());
        let before =
            parse_plan("start = 1.5 }", "start = 1.5 }, { parameter = \"tx_packet\", start = 1 }");
        assert!(before.unwrap_err().to_string().contains("`ack` is set again by `tx_packet`"));
        let stays = "generators = \"stay\"\nruns = 6";
        assert!(parse_plan("runs = 6", stays).is_ok());
        let moved = parse_plan("runs = 6", stays).map(|mut plans| {
            plans[0].free[0].parameter = Parameter::Generator;
            plans[0].check_values()
        });
        assert!(moved.unwrap().unwrap_err().to_string().contains("generators = \"follow\""));
    }

    #[test]
    fn parameter_that_the_profile_lacks_is_refused() {
        let systems = SystemCatalog::load_shipped();
        let mut plan = parse_plan("runs = 6", "runs = 6").unwrap().remove(0);
        let base = systems.expect_profile(&plan.profile);
        assert!(plan.check_profile(base).is_ok());
        plan.free[0].parameter = Parameter::Throttle;
        let said = plan.check_profile(systems.expect_profile("bl25p-tg3")).unwrap_err().to_string();
        assert!(said.contains("`throttle`") && said.contains("no throttle"), "{said}");
    }

    #[test]
    fn shipped_plans_name_existing_parts() {
        let systems = SystemCatalog::load_shipped();
        for plan in FitPlan::load_shipped().unwrap() {
            let base = systems.find_profile(&plan.profile).expect(&plan.profile);
            plan.check_profile(base).unwrap();
            let text = |name: &String| {
                let (_, text) = files::FILES
                    .iter()
                    .find(|(file, _)| name.strip_suffix(".csv") == Some(file))
                    .expect(name);
                (name.clone(), CsvTable::parse(text).unwrap())
            };
            let files = plan.cells.iter().map(text).collect();
            let cells = PublishedCells::from_tables(files, &plan.profile, &systems).unwrap();
            let groups: BTreeSet<&str> = cells.group_names().collect();
            let absent: Vec<_> =
                plan.only.iter().filter(|only| !groups.contains(only.as_str())).collect();
            assert!(absent.is_empty(), "{}: {absent:?} of {groups:?}", plan.profile);
        }
    }
}
