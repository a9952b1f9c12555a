//! Another optimiser that drives a search by lines of JSON: over stdin and stdout for the command line, over channels
//! for the Python package.

mod lines;

use std::collections::BTreeMap;

use latput_runner::Error;
use latput_trial::plan::{Design, Factor};
use latput_trial::{Metric, Plan};
use latput_units::IntoMap;

pub use self::lines::{SearchAnswer, SearchSaid, SpaceFactor};
use crate::session::{ExternalOptimiser, RunOutcome, SettingObservation};

/// Most bytes of a line of the optimiser.
pub const LONGEST_LINE: u64 = 1 << 20;

/// The way to an optimiser and back.
pub trait OptimiserLine {
    /// Sends a line to it.
    fn send_line(&mut self, said: &SearchSaid) -> Result<(), Error>;
    /// Its next line, of at most [`LONGEST_LINE`] bytes and one; `None` when it has hung up.
    fn receive_line(&mut self) -> Result<Option<Vec<u8>>, Error>;
}

/// The plan and its text as a search by another optimiser has them: a run is resumed by the same search only.
pub fn convert_to_search(mut plan: Plan, text: &str) -> (Plan, String) {
    plan.method.design = Some(Design::Search);
    (plan, format!("{text}\n# search --ask-tell\n"))
}

/// An optimiser at the other end of a line.
#[derive(Debug)]
pub struct AskTell<L> {
    line: L,
    /// Names of the factors, in the plan's order.
    names: Vec<String>,
    /// Number of lines read.
    heard: usize,
}

impl<L: OptimiserLine> AskTell<L> {
    /// Begins nothing yet; the session asks and tells.
    pub const fn new(line: L) -> Self {
        Self { line, names: Vec::new(), heard: 0 }
    }

    /// Says the last line, where the search was not cut short.
    pub fn finish_search(&mut self, ended: &RunOutcome, file: String) -> Result<(), Error> {
        if ended.cause.is_some() {
            return Ok(());
        }
        self.line.send_line(&SearchSaid::Ended {
            trials: ended.results.rows.len(),
            file,
            run: ended.run,
            remarks: ended.results.notes.clone(),
        })
    }

    fn parse_answer(&self, line: &[u8]) -> Result<SearchAnswer, Error> {
        if line.len() as u64 > LONGEST_LINE {
            return Err(self.line_error(&format!("it is longer than {LONGEST_LINE} bytes")));
        }
        serde_json::from_slice(line).map_err(|error| {
            let example = r#"{"kind":"suggest","settings":[{"mtu":0}]} or {"kind":"done"}"#;
            self.line_error(&format!("{error}: answer with one line such as {example}"))
        })
    }

    /// The levels in the plan's order.
    fn parse_levels(&self, setting: &BTreeMap<String, usize>) -> Result<Vec<usize>, Error> {
        if let Some(name) = setting.keys().find(|name| !self.names.contains(name)) {
            return Err(self.line_error(&format!(
                "the plan has no factor `{name}`; there are {}",
                self.names.join(", ")
            )));
        }
        let level = |name: &String| {
            let missing = || self.line_error(&format!("a setting has no level of `{name}`"));
            setting.get(name).copied().ok_or_else(missing)
        };
        self.names.iter().map(level).collect()
    }

    fn name_levels(&self, levels: &[usize]) -> BTreeMap<String, usize> {
        self.names.iter().cloned().zip(levels.iter().copied()).into_map()
    }

    fn line_error(&self, problem: &str) -> Error {
        let problem = format!("said something wrong in its line {}: {problem}", self.heard);
        Error::Optimiser { problem }
    }
}

impl<L: OptimiserLine> ExternalOptimiser for AskTell<L> {
    fn start_search(&mut self, plan: &Plan, refused: usize) -> Result<(), Error> {
        self.names = plan.factors.iter().map(Factor::name).collect();
        let factors = plan.factors.iter().map(|factor| SpaceFactor {
            name: factor.name(),
            levels: factor.levels.iter().map(|level| factor.label(level)).collect(),
        });
        self.line.send_line(&SearchSaid::Space {
            schema: 1,
            plan: plan.name.clone(),
            goal: plan.goal.clone(),
            factors: factors.collect(),
            workloads: plan.workloads.iter().map(|workload| workload.name.clone()).collect(),
            refused_count: refused,
        })
    }

    fn record_observation(&mut self, one: &SettingObservation<'_>) -> Result<(), Error> {
        let metrics = one.rows.iter().filter_map(|row| {
            let workload = one.results.workloads.get(row.workload)?;
            let value = |metric: Metric| {
                let value = metric.value(&workload.traffic, &row.observation)?;
                Some((metric.name().to_owned(), value))
            };
            let values = row.observation.metrics().filter_map(value).into_map();
            Some((workload.name.clone(), values))
        });
        let said = SearchSaid::Observe {
            block: one.seen.block,
            setting: one.levels.as_ref().map(|levels| self.name_levels(levels)),
            label: one.seen.set.label.clone(),
            cost: one.seen.cost_log.map(f64::exp),
            limits_ratio: one.seen.excesses_log.iter().map(|log| log.exp()).collect(),
            metrics: metrics.into_map(),
        };
        self.line.send_line(&said)
    }

    fn suggest_settings(&mut self) -> Result<Option<Vec<Vec<usize>>>, Error> {
        self.line.send_line(&SearchSaid::Ask {})?;
        let Some(line) = self.line.receive_line()? else {
            let problem = "closed stdin before it said `{\"kind\":\"done\"}`".to_owned();
            return Err(Error::Optimiser { problem });
        };
        self.heard += 1;
        match self.parse_answer(&line)? {
            SearchAnswer::Done {} => Ok(None),
            SearchAnswer::Suggest { settings } => settings
                .iter()
                .map(|setting| self.parse_levels(setting))
                .collect::<Result<_, _>>()
                .map(Some),
        }
    }

    fn reject_setting(&mut self, levels: &[usize], why: &str) -> Result<(), Error> {
        let setting = self.name_levels(levels);
        self.line.send_line(&SearchSaid::Refused { setting, problem: why.to_owned() })
    }
}
