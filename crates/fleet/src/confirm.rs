//! Measures a winner beside today's setting on several pairs of hosts, and judges whether it is one on all of them.
//!
//! All pairs are looked at before the first is measured, and the run of each is kept in a file of its own.

mod named;
mod verdict;

use std::collections::BTreeMap;
use std::error::Error as _;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use latput_experiment::session::{self, CheckReport, QuietPolicy, RunInputs};
use latput_experiment::{RunPart, Testbed};
use latput_knobs::{ChangeOutcome, Setting};
use latput_results::ResultsDb;
use latput_trial::observation::Role;
use latput_trial::today::first_difference;
use latput_trial::{Plan, Results};
use latput_units::Nanos;
use latput_units::text::{format_count, is_or_are};

use self::named::duplicate_host_message;
pub use self::named::{NamedPair, name_pairs, read_pairs};
pub use self::verdict::JointVerdict;
use crate::context::FleetContext;

/// The measurement that confirms a setting.
#[derive(Debug)]
pub struct ConfirmPlan {
    /// The setting, as its results call it.
    pub label: String,
    /// Its plan: this setting and today's.
    pub plan: Plan,
    /// The text that tells this plan from others.
    pub plan_text: String,
}

/// A pair, and what became of it.
#[derive(Debug)]
pub struct PairRun {
    /// Its hosts in a word.
    pub word: String,
    /// Its results file.
    pub file: PathBuf,
    pub(crate) state: PairState,
}

#[derive(Debug)]
pub(crate) enum PairState {
    /// It can be measured.
    Ready(Testbed),
    /// It was measured to the end, now or earlier.
    Done(Results),
    /// Some of its trials are there.
    CutShort(PairFailure, usize),
    /// No trial of it is there, or it cannot be compared.
    Failed(PairFailure),
    /// It was not begun.
    NotRun,
}

/// Why a pair has no results that count.
#[derive(Debug)]
pub(crate) struct PairFailure {
    pub(crate) why: String,
    /// Whether hosts are left changed.
    pub(crate) is_stranded: bool,
}

impl From<latput_runner::Error> for PairFailure {
    fn from(error: latput_runner::Error) -> Self {
        let mut why = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let _ = write!(why, ": {error}");
            cause = error.source();
        }
        Self { why, is_stranded: error.outcome() == ChangeOutcome::Stranded }
    }
}

impl From<latput_results::Error> for PairFailure {
    fn from(error: latput_results::Error) -> Self {
        latput_runner::Error::from(error).into()
    }
}

impl PairFailure {
    fn refuse(why: String) -> Self {
        Self { why, is_stranded: false }
    }
}

/// Pairs that were looked at, as far as they are known.
#[derive(Debug, Default)]
struct SeenPairs {
    /// The pair whose values of today the others must have, and these.
    first: Option<(String, BTreeMap<Role, Setting>)>,
    /// The pair of each network namespace.
    namespaces: BTreeMap<String, String>,
}

impl ConfirmPlan {
    /// Looks which pairs have ended, and which could be measured. Nothing is set.
    pub fn look_at_all(&self, pairs: Vec<NamedPair>, context: FleetContext<'_>) -> Vec<PairRun> {
        let mut seen = SeenPairs::default();
        let mut longest = Nanos::ZERO;
        let mut runs = Vec::new();
        for pair in pairs {
            let (word, file) = (pair.word.clone(), pair.file.clone());
            let looked = if context.stop.is_raised() {
                Ok(PairState::NotRun)
            } else {
                self.check_pair(pair, &mut seen, &mut longest, context)
            };
            let state = looked.unwrap_or_else(|failure| {
                report_failure(&word, &failure, context);
                PairState::Failed(failure)
            });
            runs.push(PairRun { word, file, state });
        }
        let ready = runs.iter().filter(|run| matches!(run.state, PairState::Ready(_))).count();
        if ready > 0 {
            let minutes = longest.as_secs_f64() / 60.0;
            context.progress.report_remark(&format!(
                "{ready} of {} {} to be measured, in at most about {minutes:.1} min",
                format_count(runs.len(), "pair"),
                is_or_are(ready)
            ));
        }
        runs
    }

    /// Measures every pair that is ready, one after the other: they may share switches.
    pub fn measure_all(&self, runs: &mut [PairRun], context: FleetContext<'_>) {
        let mut is_over = false;
        for run in runs {
            if let PairState::Ready(testbed) = &run.state {
                is_over |= context.stop.is_raised();
                run.state = if is_over {
                    PairState::NotRun
                } else {
                    context.progress.report_remark(&format!("measuring {}", run.word));
                    self.measure_pair(&run.word, &run.file, testbed, context)
                };
                // A host that is not as it was needs hands before others are changed.
                is_over |= run.is_stranded();
            }
        }
    }

    /// Looks at a pair: its results so far, or whether it could be measured. Nothing is set.
    fn check_pair(
        &self,
        pair: NamedPair,
        seen: &mut SeenPairs,
        longest: &mut Nanos,
        context: FleetContext<'_>,
    ) -> Result<PairState, PairFailure> {
        let (word, file) = (pair.word.clone(), pair.file.clone());
        if let Some(results) = self.load_finished(&word, &file, context)? {
            let today = results.settings.first().map(|first| first.by_role.clone());
            seen.check_same_today(&word, today, &file)?;
            return Ok(PairState::Done(results));
        }
        let testbed = pair.open(context)?;
        seen.check_hosts_unseen(&word, &testbed.namespaces)?;
        let checked = session::check_run(&self.run(&testbed, context))?;
        let CheckReport { settings, first, time, .. } = checked;
        if settings < 2 {
            return Err(PairFailure::refuse(
                "it has the setting already: put its earlier values in force (`latput undo`), or name another \
                 pair"
                    .to_owned(),
            ));
        }
        seen.check_same_today(&word, first.map(|first| first.by_role), &file)?;
        *longest = longest.saturating_add(time.1);
        Ok(PairState::Ready(testbed))
    }

    /// The results of an earlier call that ended.
    fn load_finished(
        &self,
        word: &str,
        file: &Path,
        context: FleetContext<'_>,
    ) -> Result<Option<Results>, PairFailure> {
        if !file.exists() {
            return Ok(None);
        }
        ResultsDb::check_path(file)?;
        if file.metadata().is_ok_and(|meta| meta.len() == 0) {
            return Ok(None);
        }
        let found = ResultsDb::open(file)?.find_finished_run(&self.plan_text)?;
        let found = found.filter(|results| results.testbed == word);
        if found.is_some() {
            let remark = format!("{word}: measured earlier ({})", file.display());
            context.progress.report_remark(&remark);
        }
        Ok(found)
    }

    fn measure_pair(
        &self,
        word: &str,
        file: &Path,
        testbed: &Testbed,
        context: FleetContext<'_>,
    ) -> PairState {
        let ended =
            ResultsDb::create(file).map_err(latput_runner::Error::from).and_then(|mut db| {
                session::run(
                    &self.run(testbed, context),
                    &mut db,
                    &mut *context.progress.begin_run(),
                )
            });
        match ended {
            Err(error) => {
                let failure = PairFailure::from(error);
                report_failure(word, &failure, context);
                PairState::Failed(failure)
            }
            Ok(ended) => match ended.cause {
                None => PairState::Done(ended.results),
                Some(cause) => {
                    let failure = PairFailure::from(cause);
                    report_failure(word, &failure, context);
                    PairState::CutShort(failure, ended.results.rows.len())
                }
            },
        }
    }

    fn run<'a>(&'a self, testbed: &'a Testbed, context: FleetContext<'a>) -> RunInputs<'a> {
        RunInputs {
            plan: &self.plan,
            plan_text: &self.plan_text,
            testbed,
            part: RunPart::Whole,
            quiet: QuietPolicy::Anyhow,
            interval: None,
            stop: context.stop,
        }
    }
}

fn report_failure(word: &str, failure: &PairFailure, context: FleetContext<'_>) {
    context.progress.report_remark(&format!("{word}: {}", failure.why));
}

impl PairRun {
    /// The name of its outcome.
    pub const fn outcome_name(&self) -> &'static str {
        match self.state {
            PairState::Done(_) => "done",
            PairState::Ready(_) => "ready",
            PairState::CutShort(..) => "cut-short",
            PairState::Failed(_) => "failed",
            PairState::NotRun => "not-run",
        }
    }

    /// Why it has no results that count; empty also where it was not begun.
    pub fn why(&self) -> &str {
        self.failure().map_or("", |failure| &failure.why)
    }

    /// The trials that it has.
    pub const fn trials(&self) -> usize {
        match &self.state {
            PairState::Done(results) => results.rows.len(),
            PairState::CutShort(_, trials) => *trials,
            PairState::Ready(_) | PairState::Failed(_) | PairState::NotRun => 0,
        }
    }

    pub(crate) const fn failure(&self) -> Option<&PairFailure> {
        match &self.state {
            PairState::CutShort(failure, _) | PairState::Failed(failure) => Some(failure),
            PairState::Ready(_) | PairState::Done(_) | PairState::NotRun => None,
        }
    }

    /// Its results, if they are whole.
    pub(crate) const fn results(&self) -> Option<&Results> {
        match &self.state {
            PairState::Done(results) => Some(results),
            PairState::Ready(_)
            | PairState::CutShort(..)
            | PairState::Failed(_)
            | PairState::NotRun => None,
        }
    }

    /// Whether hosts of it are left changed.
    pub(crate) fn is_stranded(&self) -> bool {
        self.failure().is_some_and(|failure| failure.is_stranded)
    }
}

impl SeenPairs {
    /// Refuses a pair with a host that an earlier pair has under another name.
    fn check_hosts_unseen(&mut self, word: &str, namespaces: &[String]) -> Result<(), PairFailure> {
        for namespace in namespaces {
            if let Some(other) = self.namespaces.get(namespace) {
                return Err(PairFailure::refuse(duplicate_host_message(word, other)));
            }
        }
        let of_pair = namespaces.iter().map(|namespace| (namespace.clone(), word.to_owned()));
        self.namespaces.extend(of_pair);
        Ok(())
    }

    /// Refuses a pair with other values of today than the first one: its ratios would be to something else.
    fn check_same_today(
        &mut self,
        word: &str,
        today: Option<BTreeMap<Role, Setting>>,
        file: &Path,
    ) -> Result<(), PairFailure> {
        let Some(today) = today else { return Ok(()) };
        let Some((other, first)) = &self.first else {
            self.first = Some((word.to_owned(), today));
            return Ok(());
        };
        match first_difference(&today, first) {
            None => Ok(()),
            Some(what) => Err(PairFailure::refuse(format!(
                "its values of today differ from those of {other} ({what}), so their ratios cannot be \
                 compared. Give both the same values, or leave one pair out; if it was measured earlier, move \
                 {} away",
                file.display()
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_today(text: &str) -> BTreeMap<Role, Setting> {
        let (knob, value) = latput_knobs::parse_assignment(text).unwrap();
        BTreeMap::from([(Role::Sut, Setting::from([(knob, value)]))])
    }

    #[test]
    fn pair_with_other_values_is_named() {
        let mut seen = SeenPairs::default();
        let file = Path::new("x.db");
        assert!(seen.check_same_today("a,b", None, file).is_ok());
        assert!(seen.check_same_today("c,d", Some(parse_today("mtu=1500")), file).is_ok());
        assert!(seen.check_same_today("e,f", Some(parse_today("mtu=1500")), file).is_ok());
        let failure =
            seen.check_same_today("g,h", Some(parse_today("mtu=9000")), file).unwrap_err();
        for words in ["those of c,d", "sut.mtu=9000, there 1500", "x.db"] {
            assert!(failure.why.contains(words), "{}", failure.why);
        }
        let failure = seen.check_same_today("g,h", Some(BTreeMap::new()), file).unwrap_err();
        assert!(failure.why.contains("sut.mtu=several values, there 1500"), "{}", failure.why);
    }

    #[test]
    fn renamed_host_is_recognised_by_namespace() {
        let mut seen = SeenPairs::default();
        let both = |one: &str, other: &str| [one.to_owned(), other.to_owned()];
        assert!(seen.check_hosts_unseen("a,b", &both("boot 1", "boot 2")).is_ok());
        assert!(seen.check_hosts_unseen("c,d", &[]).is_ok());
        let failure = seen.check_hosts_unseen("e,f", &both("boot 3", "boot 2")).unwrap_err();
        assert!(failure.why.contains("`e,f` and `a,b` have a host in common"), "{}", failure.why);
        assert!(
            seen.check_hosts_unseen("g,h", &both("boot 3", "boot 4")).is_ok(),
            "it was refused as a whole"
        );
    }
}
