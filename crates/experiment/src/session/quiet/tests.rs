//! Whole runs in slices on a made-up host that others disturb. Only waits take time.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use latput_knobs::Knob;
use latput_load::Stop;
use latput_model::{Headline, ResultsSummary};
use latput_reach::host_spec::HostSpec;
use latput_results::ResultsDb;
use latput_runner::trials::{IntervalCounts, PlanPart, SliceRunner, Stint, Trial, TrialProgress};
use latput_stats::Histogram;
use latput_trial::check::OTHER_WORK;
use latput_trial::observation::{OtherProcess, TrafficObservation};
use latput_trial::plan::Method;
use latput_trial::results::HostFacts;
use latput_trial::{Check, HostToday, Observation, Plan, Results, Row};
use latput_units::SeededRng;

use super::super::opened::build_header;
use super::super::slices::STEPS;
use super::super::{LostTrials, RunPart, TrialDone};
use super::*;
use crate::testbed::Testbed;

const METHOD: &str = "seed = 1\nduration = \"2s\"\n";

/// A host on which `50us` has the tail of today's, and a third of it where others disturb.
struct FakeSliceHost {
    rng: SeededRng,
    /// Stints are disturbed up to this one; the first finds carry-over.
    disturbed_until: usize,
    stints: usize,
    /// The searches of carry-over, from the first on, that see a change settle after half a turn.
    carrying_searches: usize,
    /// How often somebody looked at the host.
    looks: Cell<usize>,
    /// Its surroundings without traffic.
    surroundings: Surroundings,
}

impl FakeSliceHost {
    fn new(disturbed_until: usize) -> Self {
        let (rng, looks) = (SeededRng::from_seed(1), Cell::new(0));
        let surroundings = Surroundings::default();
        Self { rng, disturbed_until, stints: 0, carrying_searches: 0, looks, surroundings }
    }

    /// The results of a run that begins.
    fn results(&self, run: &RunInputs<'_>) -> Results {
        build_header(run, self, Vec::new())
    }

    fn make_observation(&mut self, setting: usize) -> Observation {
        let is_disturbed = self.stints <= self.disturbed_until;
        let tail_us = if is_disturbed { [3000.0, 1000.0] } else { [60.0, 60.0] }[setting];
        let noise = 1.0 + 0.05 * (2.0 * self.rng.next_uniform() - 1.0);
        let mut latency = Histogram::new();
        latency.record_n(Nanos::from_secs_f64(tail_us * noise / 1e6), 1000);
        let check = Check {
            name: OTHER_WORK.to_owned(),
            passed: !is_disturbed,
            detail: "b: half of a CPU".to_owned(),
        };
        Observation {
            traffic: TrafficObservation {
                sender_window: Nanos::from_ms(225),
                receiver_window: Nanos::from_ms(225),
                transactions: Some(1000),
                latency: Some(latency),
                ..TrafficObservation::default()
            },
            checks: vec![check],
            ..Observation::default()
        }
    }
}

impl SliceRunner for FakeSliceHost {
    fn measure_stint(
        &mut self,
        stint: &Stint,
        _: &Method,
        _: &Stop,
        _: &mut dyn TrialProgress,
    ) -> Result<Vec<Observation>, Error> {
        let mut seen: Vec<Observation> =
            stint.trials.iter().map(|trial| self.make_observation(trial.setting)).collect();
        if self.stints < self.carrying_searches {
            let steps = seen.iter_mut().enumerate();
            let unsettled = steps.filter(|(idx, _)| idx % STEPS < STEPS / 2);
            unsettled.for_each(|(_, step)| step.traffic.transactions = Some(500));
        }
        self.stints += 1;
        Ok(seen)
    }
}

impl TrialRunner for FakeSliceHost {
    fn host_facts(&self) -> Vec<HostFacts> {
        Vec::new()
    }
    fn machine_id(&self) -> String {
        "made".to_owned()
    }
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
    fn read_knob_values(&mut self, _: &BTreeSet<Knob>, _: &Stop) -> Result<Vec<HostToday>, Error> {
        Ok(Vec::new())
    }
    fn watch_surroundings(&mut self, _: Nanos, _: &Stop) -> Result<Vec<Surroundings>, Error> {
        self.looks.set(self.looks.get() + 1);
        Ok(vec![self.surroundings.clone()])
    }
    fn measure_trial(
        &mut self,
        _: &Trial,
        _: &Method,
        _: &Stop,
        _: &mut dyn TrialProgress,
    ) -> Result<Observation, Error> {
        Ok(Observation::default())
    }
    fn slice_runner(&mut self) -> Option<&mut dyn SliceRunner> {
        Some(self)
    }
    fn explain_unsupported(
        &mut self,
        _: PlanPart<'_>,
        _: &Method,
        _: &Stop,
    ) -> Result<Option<String>, Error> {
        Ok(None)
    }
    fn close(self: Box<Self>, _: &Stop, _: &mut dyn FnMut(&str)) -> Result<(), Error> {
        Ok(())
    }
    fn abort_run(self: Box<Self>, cause: Error, _: &Stop, _: &mut dyn FnMut(&str)) -> Error {
        cause
    }
}

/// The remarks of a run.
struct RecordedRemarks(Vec<String>);

impl TrialProgress for RecordedRemarks {
    fn report_remark(&mut self, text: &str) {
        self.0.push(text.to_owned());
    }
    fn report_interval(&mut self, _: &IntervalCounts) {}
}

impl RunProgress for RecordedRemarks {
    fn report_trial(&mut self, _: &TrialDone<'_>) {}
    fn report_end(&mut self) {}
}

/// A run that others disturb until some stint: its results, how often the host was looked at, and the remarks.
fn run(disturbed_until: usize, beside: bool) -> (Results, usize, Vec<String>) {
    run_on(FakeSliceHost::new(disturbed_until), beside)
}

fn run_on(mut made: FakeSliceHost, beside: bool) -> (Results, usize, Vec<String>) {
    let method = format!("{METHOD}repetitions = {{ min = 4, max = 4 }}\nbeside = {beside}\n");
    with_inputs(&method, QuietPolicy::Anyhow, |run| {
        let mut heard = RecordedRemarks(Vec::new());
        let results = with_session(run, &made.results(run), &mut heard, |session| {
            session.run_slices(&mut made).unwrap();
            session.results.clone()
        });
        (results, made.looks.get(), heard.0)
    })
}

/// Calls `act` with a run of two settings by this method.
fn with_inputs<T>(method: &str, quiet: QuietPolicy, act: impl FnOnce(&RunInputs<'_>) -> T) -> T {
    let text = format!(
        "schema = 1\ngoal = \"latency\"\n[factors]\n\"gro-flush-timeout\" = [\"0us\", \"50us\"]\n[[workload]]\n\
         kind = \"tcp_rr\"\n[method]\n{method}"
    );
    let plan = Plan::parse("made.toml", &text).unwrap();
    let role = latput_trial::observation::Role::Sut;
    let host = HostSpec::from_launch_command("made", role, (Vec::new(), String::new()));
    let (testbed, stop) = (Testbed::from_single_host("made", host), Stop::new());
    act(&RunInputs {
        plan: &plan,
        plan_text: "",
        testbed: &testbed,
        part: RunPart::Whole,
        interval: None,
        quiet,
        stop: &stop,
    })
}

/// Calls `act` with the session of a run that begins now with these results.
fn with_session<T>(
    run: &RunInputs<'_>,
    results: &Results,
    heard: &mut RecordedRemarks,
    act: impl FnOnce(&mut RunSession<'_>) -> T,
) -> T {
    let folder = tempfile::tempdir().unwrap();
    let mut db = ResultsDb::create(&folder.path().join("made.db")).unwrap();
    let id = db.begin_run("", "made", 0, results).unwrap();
    act(&mut RunSession {
        run,
        db: &mut db,
        progress: heard,
        id,
        machine: "made".to_owned(),
        places: BTreeMap::new(),
        resumed: 0,
        results: results.clone(),
        begun: Instant::now(),
        is_simulated: false,
        slice: None,
        run_time: None,
        lost: LostTrials::default(),
    })
}

fn count_rounds(results: &Results) -> usize {
    results.rows.iter().filter(|row| row.setting == 0).count()
}

#[test]
fn quiet_run_has_no_wait() {
    let (results, looks, _) = run(0, false);
    let wanted = count_rounds(&results);
    // 8 s in slices of 225 ms, and what is left of the last stint.
    assert!((36..56).contains(&wanted), "{wanted}");
    assert_eq!(looks, 0);
    assert_eq!(ResultsSummary::from_results(&results).headline.unwrap().kind(), "stay");
}

#[test]
fn carry_over_is_searched_twice() {
    let layout = |carrying_searches| {
        let host = FakeSliceHost { carrying_searches, ..FakeSliceHost::new(0) };
        let (_, _, remarks) = run_on(host, false);
        remarks.into_iter().find(|text| text.contains("settings alternate")).unwrap()
    };
    assert!(layout(1).contains("in slices of 250 ms; the first 25 ms of each are cut"));
    assert!(layout(2).contains("in slices of 750 ms; the first 125 ms of each are cut"));
}

#[test]
fn disturbed_rounds_are_repeated_later() {
    let wanted = count_rounds(&run(0, false).0);
    let (results, looks, remarks) = run(1, false);
    let fit = results.rows.iter().filter(|row| row.setting == 0 && row.observation.is_fit(false));
    assert!(fit.count() >= 36 && count_rounds(&results) > wanted, "{}", count_rounds(&results));
    assert_eq!(looks, 1, "after the disturbed stint");
    assert!(
        remarks.iter().any(|text| text.contains("waiting up to 10 s for quiet")),
        "{remarks:?}"
    );
    let headline = ResultsSummary::from_results(&results).headline.unwrap();
    assert!(matches!(headline, Headline::Stay(_)), "{headline:?}");
}

#[test]
fn always_disturbed_run_has_no_answer() {
    let wanted = count_rounds(&run(0, false).0);
    let (results, ..) = run(usize::MAX, false);
    assert!((2 * 36..=3 * wanted).contains(&count_rounds(&results)), "{}", count_rounds(&results));
    let headline = ResultsSummary::from_results(&results).headline.unwrap();
    assert!(matches!(headline, Headline::NotQuiet(_)), "{headline:?}");
}

#[test]
fn load_of_the_case_is_not_repeated() {
    let (results, looks, _) = run(usize::MAX, true);
    assert_eq!((count_rounds(&results), looks), (count_rounds(&run(0, false).0), 0));
    assert!(results.beside);
    let headline = ResultsSummary::from_results(&results).headline.unwrap();
    assert!(matches!(headline, Headline::Set(_)), "{headline:?}");
}

#[test]
fn check_refuses_what_start_refuses() {
    let busy = Surroundings {
        host: "b".to_owned(),
        cpus: "0-1".parse().unwrap(),
        busy_ratio: 0.4,
        other_work_cpu_ratio: Some(0.8),
        others: vec![OtherProcess {
            name: "cc1".to_owned(),
            pid: 7,
            cpu_ratio: 0.8,
            cpus: "1".parse().unwrap(),
            switches_per_s: 0.0,
        }],
        ..Surroundings::default()
    };
    let who = "b: other work takes 80% of a CPU: cc1 (pid 7) 80% of CPU 1";
    let checked = |quiet: QuietPolicy, surroundings: &Surroundings| {
        let mut host =
            FakeSliceHost { surroundings: surroundings.clone(), ..FakeSliceHost::new(0) };
        let checked = with_inputs(METHOD, quiet, |run| check_quiet_start(run, &mut host));
        (checked.map(|(_, would)| would), host.looks.get())
    };
    let (refused, looks) = checked(QuietPolicy::Within(Nanos::ZERO), &busy);
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains(who) && looks == 2, "{looks} {refused}");
    let mut host = FakeSliceHost { surroundings: busy.clone(), ..FakeSliceHost::new(0) };
    let started = with_inputs(METHOD, QuietPolicy::Within(Nanos::ZERO), |run| {
        wait_for_quiet_start(run, &mut host, &mut RecordedRemarks(Vec::new()))
    });
    assert_eq!((started.unwrap_err().to_string(), host.looks.get()), (refused, looks));
    for (quiet, words) in [
        (QuietPolicy::Within(Nanos::from_s(120)), "it would wait up to 120s for quiet hosts"),
        (QuietPolicy::Anyhow, "it would begin on hosts that are not quiet: "),
    ] {
        let would = checked(quiet, &busy).0.unwrap().unwrap();
        assert!(would.starts_with(words) && would.ends_with(who), "{would}");
        assert_eq!(checked(quiet, &Surroundings::default()).0.unwrap(), None);
    }
}

#[test]
fn blocks_to_come_are_told_at_todays_pace() {
    let mut made = FakeSliceHost::new(0);
    // Ten trials of a second; planned are 2.35 s each.
    let method = format!("{METHOD}repetitions = {{ min = 5, max = 30 }}\nbudget = \"41900ms\"\n");
    let told = with_inputs(&method, QuietPolicy::Anyhow, |run| {
        let mut results = made.results(run);
        for block in 0..5 {
            results.rows.extend([0, 1].map(|setting| Row {
                block,
                setting,
                workload: 0,
                started_unix_ms: 0,
                observation: made.make_observation(setting),
            }));
        }
        let mut heard = RecordedRemarks(Vec::new());
        with_session(run, &results, &mut heard, |session| {
            session.begun = Instant::now().checked_sub(Duration::from_secs(10)).unwrap();
            // The rule that ends the run lets as many begin.
            let more = |blocks: usize| session.fits_budget(10, 2 * blocks);
            assert!(more(15) && !more(16));
            session.describe_more_blocks(10)
        })
    });
    assert!(told.contains("up to 15 more blocks may follow, in the 3"), "{told}");
}
