//! Runs what is chosen of a group: its steps in turn, at once, or some behind others.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rustix::process::setpriority_process;

use super::steps::{Step, StepGroup};
use super::tally::{Tally, count_before};

/// What came of a step.
#[derive(Debug)]
pub struct StepResult {
    pub step: &'static Step,
    pub tally: Tally,
    pub seconds: f64,
}

/// Runs the chosen steps of a group. Those in turn are run by `run`; after one that fails no further is begun, unless
/// `keep_going`.
pub fn run(
    group: &StepGroup,
    chosen: &[&'static Step],
    keep_going: bool,
    mut run: impl FnMut(&'static Step) -> StepResult,
) -> Vec<StepResult> {
    let of = |steps: &'static [Step]| -> Vec<&'static Step> {
        let is_chosen = |step: &&Step| chosen.iter().any(|it| it.name == step.name);
        steps.iter().filter(is_chosen).collect()
    };
    let (front, behind) = match *group {
        StepGroup::InTurn(steps) => (of(steps), Vec::new()),
        StepGroup::AtOnce(steps) => match of(steps) {
            several if several.len() > 1 => return at_once(&several),
            one => (one, Vec::new()),
        },
        StepGroup::Behind { front, behind } => match (of(front), of(behind)) {
            (none, behind) if none.is_empty() => (behind, none),
            both => both,
        },
    };
    let failed = AtomicBool::new(false);
    let goes_on = || keep_going || !failed.load(Ordering::Relaxed);
    let note = |ended: StepResult| {
        failed.fetch_or(ended.tally.failed > 0, Ordering::Relaxed);
        ended
    };
    std::thread::scope(|scope| {
        let hidden = scope.spawn(|| {
            lower_priority();
            let steps = behind.into_iter().take_while(|_| goes_on());
            steps.map(|step| apart(step, note)).collect::<Vec<_>>()
        });
        let steps = front.into_iter().take_while(|_| goes_on());
        let mut ended: Vec<StepResult> = steps.map(|step| note(run(step))).collect();
        ended.extend(shown(hidden.join().expect("to run steps does not panic")));
        ended
    })
}

/// Each in a process of its own.
fn at_once(steps: &[&'static Step]) -> Vec<StepResult> {
    std::thread::scope(|scope| {
        let running: Vec<_> =
            steps.iter().map(|step| scope.spawn(|| apart(step, |ended| ended))).collect();
        let ended = running.into_iter().map(|it| it.join().expect("to run a step does not panic"));
        shown(ended.collect())
    })
}

/// What a step said, and what came of it.
type Said = (String, StepResult);

/// What ran beside other steps is shown whole once it has ended.
fn shown(said: Vec<Said>) -> Vec<StepResult> {
    let show = |(said, ended)| {
        println!("{said}");
        ended
    };
    said.into_iter().map(show).collect()
}

/// Of this thread alone, and of all that it starts (setpriority(2)).
fn lower_priority() {
    if let Err(error) = setpriority_process(None, 19) {
        println!("cannot lower the priority: {error}");
    }
}

/// Runs a step in a process of its own.
fn apart(step: &'static Step, note: impl Fn(StepResult) -> StepResult) -> Said {
    let started = Instant::now();
    let (said, tally) = ask(step);
    let seconds = started.elapsed().as_secs_f64();
    (said, note(StepResult { step, tally, seconds }))
}

/// Runs `cargo xtask ci --only STEP`.
fn ask(step: &Step) -> (String, Tally) {
    let mut said = Vec::new();
    // The step `build` may have put another in this program's place.
    let mut command = Command::new("/proc/self/exe");
    let ended = Tally::default().run_to(command.args(["ci", "--only", step.name]), &mut said);
    let (own, mut tally) = read(&String::from_utf8_lossy(&said));
    if let Err(error) = ended
        && tally.failed == 0
    {
        println!("error: {}: {error:#}", step.name);
        tally.failed = 1;
    }
    (own, tally)
}

/// What the step itself said, and the counts of what `ci` says after it.
fn read(said: &str) -> (String, Tally) {
    let (own, after) = said.rsplit_once("\n\n").unwrap_or((said, ""));
    let mut tally = Tally::default();
    for line in after.lines() {
        if let Some(arm) = line.strip_prefix("skipped: ") {
            tally.skipped.push(arm.to_owned());
        } else if line.ends_with(" passed only alone") {
            tally.passed = count_before(line, " passed");
            tally.failed = count_before(line, " failed");
        }
    }
    (own.to_owned(), tally)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ci::steps::Run;

    const NOTHING: Run = |_, _| Ok(());
    static GROUP: StepGroup = StepGroup::InTurn(&[
        Step::new("first", "fails", NOTHING),
        Step::new("second", "is not chosen", NOTHING),
        Step::new("third", "follows", NOTHING),
    ]);

    #[test]
    fn after_a_step_that_fails_the_next_is_run_only_to_keep_going() {
        let chosen: Vec<_> = GROUP.steps().filter(|step| step.name != "second").collect();
        for (keep_going, expected) in [(false, vec!["first"]), (true, vec!["first", "third"])] {
            let ended = run(&GROUP, &chosen, keep_going, |step| {
                let mut tally = Tally::default();
                tally.failed = usize::from(step.name == "first");
                StepResult { step, tally, seconds: 0.0 }
            });
            assert_eq!(ended.iter().map(|it| it.step.name).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn what_a_step_says_is_told_from_what_ci_counts() {
        let own =
            "\n== one: first\nerror: no such file\n\n2 passed in 3 s\n== one: FAILED after 3.0 s";
        let counts = "one       FAILED     3.0 s  2 passed, 1 failed\nall                  3.0 s\nskipped: needs chromium\n\
                      2 passed, 1 failed, 0 passed only alone\n";
        let (said, tally) = read(&format!("{own}\n\n{counts}"));
        assert_eq!(said, own);
        assert_eq!((tally.passed, tally.failed), (2, 1));
        assert_eq!(tally.skipped, ["needs chromium"]);
    }
}
