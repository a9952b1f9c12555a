//! Runs what is chosen of a group: its lanes at the same time, the steps of each in turn.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::Result;
use rustix::process::setpriority_process;

use super::steps::{Step, StepGroup, StepLane};
use super::tally::Tally;
use crate::workspace::Workspace;

/// Result of a step.
#[derive(Debug)]
pub struct StepResult {
    pub step: &'static Step,
    pub tally: Tally,
    pub seconds: f64,
}

/// Runs the chosen steps of a group. Those of its first lane are run by `run`; after one that fails no further is begun,
/// unless `keep_going`.
pub fn run(
    group: StepGroup,
    chosen: &[&'static Step],
    keep_going: bool,
    apart: impl Fn(&'static Step) -> CapturedStep + Sync,
    mut run: impl FnMut(&'static Step) -> StepResult,
) -> Vec<StepResult> {
    let of = |lane: &'static StepLane| -> (bool, Vec<&'static Step>) {
        let is_chosen = |step: &&Step| chosen.iter().any(|it| it.name == step.name);
        (lane.has_lowest_priority, lane.steps.iter().filter(is_chosen).collect())
    };
    let mut lanes = group.iter().map(of).filter(|(_, steps)| !steps.is_empty());
    let Some((_, first)) = lanes.next() else { return Vec::new() };
    let failed = AtomicBool::new(false);
    let goes_on = || keep_going || !failed.load(Ordering::Relaxed);
    let note = |ended: StepResult| {
        failed.fetch_or(ended.tally.failed > 0, Ordering::Relaxed);
        ended
    };
    std::thread::scope(|scope| {
        let (goes_on, note, apart) = (&goes_on, &note, &apart);
        let in_lane = |(has_lowest_priority, steps): (bool, Vec<&'static Step>)| {
            scope.spawn(move || {
                if has_lowest_priority {
                    lower_priority();
                }
                let steps = steps.into_iter().take_while(|_| goes_on());
                let ran = steps.map(|step| {
                    let CapturedStep { said, ended } = apart(step);
                    CapturedStep { said, ended: note(ended) }
                });
                ran.collect::<Vec<_>>()
            })
        };
        let beside: Vec<_> = lanes.map(in_lane).collect();
        let steps = first.into_iter().take_while(|_| goes_on());
        let mut ended: Vec<StepResult> = steps.map(|step| note(run(step))).collect();
        for lane in beside {
            for ran in lane.join().expect("to run steps does not panic") {
                println!("{}", ran.said);
                ended.push(ran.ended);
            }
        }
        ended
    })
}

/// A step that ran in a process of its own.
#[derive(Debug)]
pub struct CapturedStep {
    /// All that it said.
    pub said: String,
    /// Its result.
    pub ended: StepResult,
}

/// Of this thread alone, and of all that it starts (setpriority(2)).
fn lower_priority() {
    if let Err(error) = setpriority_process(None, 19) {
        println!("cannot lower the priority: {error}");
    }
}

/// Runs `cargo xtask ci --only STEP`, which leaves its counts in a file.
pub fn run_apart(workspace: &Workspace, step: &'static Step, is_timed: bool) -> CapturedStep {
    let started = Instant::now();
    let mut said = Vec::new();
    let tally = run_step_process(workspace, step, is_timed, &mut said).unwrap_or_else(|error| {
        println!("error: {}: {error:#}", step.name);
        let mut tally = Tally::default();
        tally.record_failed_step(step.name, &format!("{error:#}"));
        tally
    });
    let seconds = started.elapsed().as_secs_f64();
    let said = String::from_utf8_lossy(&said).into_owned();
    CapturedStep { said, ended: StepResult { step, tally, seconds } }
}

fn run_step_process(
    workspace: &Workspace,
    step: &Step,
    is_timed: bool,
    said: &mut Vec<u8>,
) -> Result<Tally> {
    let file = workspace.target.join(format!("ci-{}.json", step.name));
    if file.exists() {
        fs::remove_file(&file)?;
    }
    // The step `build` may have put another in this program's place.
    let mut command = Command::new("/proc/self/exe");
    command.args(["ci", "--only", step.name, "--tally"]).arg(&file);
    if is_timed {
        command.arg("--timings");
    }
    let ended = Tally::default().run_to(&mut command, said);
    match fs::read(&file) {
        Ok(counts) => Ok(serde_json::from_slice(&counts)?),
        Err(missing) => Err(ended.err().unwrap_or_else(|| missing.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ci::steps::{Run, lane, step};

    const NOTHING: Run = |_, _| Ok(());
    static GROUP: StepGroup = &[
        lane(&[
            step("first", "fails", NOTHING),
            step("second", "is not chosen", NOTHING),
            step("third", "follows", NOTHING),
        ]),
        lane(&[step("beside", "in a process of its own", NOTHING)]),
    ];

    #[test]
    fn failed_step_stops_unless_keep_going() {
        let chosen: Vec<_> =
            GROUP.iter().flat_map(|lane| lane.steps).filter(|step| step.name != "second").collect();
        let ended = |chosen: &[&'static Step], keep_going| -> Vec<&str> {
            let end = |step: &'static Step| {
                let mut tally = Tally::default();
                if step.name == "first" {
                    tally.record_failed_step("first", "no reason");
                }
                StepResult { step, tally, seconds: 0.0 }
            };
            let apart = |step| CapturedStep { said: String::new(), ended: end(step) };
            let ended = run(GROUP, chosen, keep_going, apart, end);
            ended.iter().map(|it| it.step.name).collect()
        };
        assert_eq!(ended(&chosen, true), ["first", "third", "beside"]);
        assert!(!ended(&chosen, false).contains(&"third"));
        assert_eq!(ended(&chosen[2..], false), ["beside"]);
    }
}
