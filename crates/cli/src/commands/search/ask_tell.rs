//! Another optimiser at the other end of stdin and stdout.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use latput_experiment::Error;
use latput_experiment::session::{Observed, Suggest};
use latput_load::Stop;
use latput_trial::plan::Factor;
use latput_trial::{Metric, Plan};

use crate::document::ask_tell::{SearchAnswer, SearchSaid, SpaceFactor};
use crate::output;

/// Most bytes of a line of the optimiser.
const LONGEST: u64 = 1 << 20;
/// How often the stop flag is looked at while nothing is said.
const LOOK: Duration = Duration::from_millis(50);

/// The other optimiser.
pub(super) struct AskTell<'a> {
    lines: Receiver<io::Result<Vec<u8>>>,
    stop: &'a Stop,
    /// Names of the factors, in the plan's order.
    names: Vec<String>,
    /// Number of lines read.
    line: usize,
}

impl<'a> AskTell<'a> {
    /// Begins to listen. The thread ends with stdin or with the process, because a read cannot be stopped.
    pub(super) fn new(stop: &'a Stop) -> Self {
        let (said, lines) = sync_channel(1);
        thread::spawn(move || {
            let mut input = BufReader::new(io::stdin());
            loop {
                let mut line = Vec::new();
                let read = input.by_ref().take(LONGEST + 1).read_until(b'\n', &mut line);
                let is_last = !matches!(read, Ok(1..)) || line.len() as u64 > LONGEST;
                if said.send(read.map(|_| line)).is_err() || is_last {
                    return;
                }
            }
        });
        Self { lines, stop, names: Vec::new(), line: 0 }
    }

    /// The next line; `None` at the end of stdin.
    fn read(&mut self) -> Result<Option<Vec<u8>>, Error> {
        loop {
            if self.stop.is_raised() {
                return Err(Error::Interrupted);
            }
            match self.lines.recv_timeout(LOOK) {
                Ok(Ok(line)) if line.is_empty() => return Ok(None),
                Ok(Ok(line)) => {
                    self.line += 1;
                    return Ok(Some(line));
                }
                Ok(Err(error)) => return Err(failed(format!("cannot be read: {error}"))),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
            }
        }
    }

    fn answer(&self, line: &[u8]) -> Result<SearchAnswer, Error> {
        if line.len() as u64 > LONGEST {
            return Err(self.wrong(&format!("it is longer than {LONGEST} bytes")));
        }
        serde_json::from_slice(line).map_err(|error| {
            let example = r#"{"kind":"suggest","settings":[{"mtu":0}]} or {"kind":"done"}"#;
            self.wrong(&format!("{error}: answer with one line such as {example}"))
        })
    }

    /// The levels in the plan's order.
    fn levels(&self, setting: &BTreeMap<String, usize>) -> Result<Vec<usize>, Error> {
        if let Some(name) = setting.keys().find(|name| !self.names.contains(name)) {
            return Err(self.wrong(&format!(
                "the plan has no factor `{name}`; there are {}",
                self.names.join(", ")
            )));
        }
        let level = |name: &String| {
            let missing = || self.wrong(&format!("a setting has no level of `{name}`"));
            setting.get(name).copied().ok_or_else(missing)
        };
        self.names.iter().map(level).collect()
    }

    fn named(&self, levels: &[usize]) -> BTreeMap<String, usize> {
        self.names.iter().cloned().zip(levels.iter().copied()).collect()
    }

    fn wrong(&self, problem: &str) -> Error {
        failed(format!("said something wrong in its line {}: {problem}", self.line))
    }
}

impl Suggest for AskTell<'_> {
    fn begin(&mut self, plan: &Plan, refused: usize) -> Result<(), Error> {
        self.names = plan.factors.iter().map(Factor::name).collect();
        let factors = plan.factors.iter().map(|factor| SpaceFactor {
            name: factor.name(),
            levels: factor.levels.iter().map(|level| factor.label(level)).collect(),
        });
        say(&SearchSaid::Space {
            schema: 1,
            plan: plan.name.clone(),
            goal: plan.goal.clone(),
            factors: factors.collect(),
            workloads: plan.workloads.iter().map(|workload| workload.name.clone()).collect(),
            refused_count: refused,
        })
    }

    fn observe(&mut self, one: &Observed<'_>) -> Result<(), Error> {
        let metrics = one.rows.iter().filter_map(|row| {
            let workload = one.results.workloads.get(row.workload)?;
            let value = |metric: Metric| {
                let value = metric.value(&workload.traffic, &row.observation)?;
                Some((metric.name().to_owned(), value))
            };
            let values = row.observation.metrics().filter_map(value).collect();
            Some((workload.name.clone(), values))
        });
        say(&SearchSaid::Observe {
            block: one.seen.block,
            setting: one.levels.as_ref().map(|levels| self.named(levels)),
            label: one.seen.set.label.clone(),
            cost: one.seen.cost_log.map(f64::exp),
            limits_ratio: one.seen.excesses_log.iter().map(|log| log.exp()).collect(),
            metrics: metrics.collect(),
        })
    }

    fn suggest(&mut self) -> Result<Option<Vec<Vec<usize>>>, Error> {
        say(&SearchSaid::Ask {})?;
        let Some(line) = self.read()? else {
            return Err(failed("closed stdin before it said `{\"kind\":\"done\"}`".to_owned()));
        };
        match self.answer(&line)? {
            SearchAnswer::Done {} => Ok(None),
            SearchAnswer::Suggest { settings } => settings
                .iter()
                .map(|setting| self.levels(setting))
                .collect::<Result<_, _>>()
                .map(Some),
        }
    }

    fn refuse(&mut self, levels: &[usize], why: &str) -> Result<(), Error> {
        say(&SearchSaid::Refused { setting: self.named(levels), problem: why.to_owned() })
    }
}

/// Writes a line to the optimiser.
pub(super) fn say(said: &SearchSaid) -> Result<(), Error> {
    let line = serde_json::to_string(said).map_err(|error| failed(error.to_string()))?;
    output::print(&(line + "\n"))
        .map_err(|error| failed(format!("cannot be told: {}", error.message())))
}

fn failed(problem: String) -> Error {
    Error::Optimiser { problem }
}
