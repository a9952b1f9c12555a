//! Ends a pool of agents: puts every host back, in parallel.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use latput_load::Stop;
use latput_protocol::control::ControllerId;
use latput_reach::broker::message::HostCall;
use latput_reach::broker::process::HostProcess;
use latput_reach::host_spec::HostSpec;
use latput_runner::error::LeftChanged;

use super::agent::Agent;
use super::last_lines::LastLines;

/// Most time of the agents to put their hosts back after their lines are closed.
const PUT_BACK_WITHIN: Duration = Duration::from_secs(15);
/// Most time to wait for an agent whose host needs no putting back.
const END_WITHIN: Duration = Duration::from_secs(2);
/// No `latput restore` begins later, on all hosts in parallel. One that may have to take latput along first has
/// the time for that.
const RESTORE_WITHIN: Duration = Duration::from_secs(15);
/// Time between two attempts, because an agent that was cut off may be putting its host back
/// itself.
const RESTORE_EVERY: Duration = Duration::from_millis(500);
/// Time for the last words of a process that has ended.
const LAST_WORDS_WITHIN: Duration = Duration::from_secs(1);
/// Waits longer than this are reported.
const TELL_AFTER: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Kept lines of the output of `latput restore`: 64 KB.
const RESTORE_LINES: usize = 64;
const RESTORE_LINE_BYTES: usize = 1000;

/// `stop` was raised twice.
pub(super) struct WaitAborted;

/// Closes every line, whereupon each agent puts its host back, and waits for all of them. Then runs
/// `latput restore` in parallel for agents that have not confirmed that their host is as it was.
/// Returns the hosts that may still be changed. A second raise of `stop` ends the wait.
pub(super) fn put_back(
    mut agents: Vec<Agent>,
    stop: &Stop,
    tell: &mut dyn FnMut(&str),
) -> Vec<LeftChanged> {
    let waited = close(&mut agents, stop, tell);
    for agent in &mut agents {
        if agent.line.has_ended() || (waited.is_err() && !agent.is_settled()) {
            agent.line.leave_running(); // what is about to put its host back is not cut off
        } else {
            agent.line.kill();
        }
    }
    let open = agents.iter().filter(|agent| !agent.is_settled());
    let mut restores: Vec<RestoreProcess> = open.map(RestoreProcess::new).collect();
    if waited.is_ok() && !restores.is_empty() {
        let _hurried = run_restores(&mut restores, stop, tell);
    }
    let left = restores.into_iter().filter(|restore| !restore.is_done);
    left.map(|restore| LeftChanged {
        command: restore.spec.to_shell_line(&["restore"]),
        host: restore.spec.name,
        why: restore.why,
    })
    .collect()
}

/// Closes every line and waits until each agent has ended, or its time is over.
pub(super) fn close(
    agents: &mut [Agent],
    stop: &Stop,
    tell: &mut dyn FnMut(&str),
) -> Result<(), WaitAborted> {
    for agent in &mut *agents {
        agent.line.close();
    }
    let begun = Instant::now();
    let mut is_told = false;
    loop {
        for agent in &mut *agents {
            for left in agent.line.hear_out() {
                tell(&format!("latput: {}: {left}", agent.spec.name));
            }
        }
        let waits_for = |agent: &&Agent| {
            let within = if agent.is_settled() { END_WITHIN } else { PUT_BACK_WITHIN };
            !agent.line.has_ended() && begun.elapsed() < within
        };
        let awaited: Vec<&str> =
            agents.iter().filter(waits_for).map(|agent| agent.spec.name.as_str()).collect();
        if awaited.is_empty() {
            return Ok(());
        }
        if stop.is_raised_again() {
            return Err(WaitAborted);
        }
        if !is_told && begun.elapsed() > TELL_AFTER {
            is_told = true;
            tell(&format!(
                "latput: waiting up to {} s for the agent of {} to put its host back. A second Ctrl-C stops waiting \
                 and may leave hosts changed",
                PUT_BACK_WITHIN.as_secs(),
                awaited.join(", ")
            ));
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// `latput restore` on one host, in place of its agent.
struct RestoreProcess {
    spec: HostSpec,
    process: Option<(HostProcess, Arc<Mutex<LastLines>>)>,
    again_at: Instant,
    /// When the process was first seen to have ended.
    ended_at: Option<Instant>,
    /// The reason why the host may still be changed.
    why: String,
    is_done: bool,
}

impl RestoreProcess {
    fn new(agent: &Agent) -> Self {
        let why = agent.line.last_failure().map_or_else(
            || "its agent has not said that it put the host back".to_owned(),
            |refusal| format!("its agent said: {refusal}"),
        );
        let spec = agent.spec.clone();
        let again_at = Instant::now();
        Self { spec, process: None, again_at, ended_at: None, why, is_done: false }
    }

    /// Starts it when it is due, and checks whether it has ended.
    fn poll_process(&mut self) {
        if self.is_done || Instant::now() < self.again_at {
            return;
        }
        let Some((process, errors)) = &mut self.process else {
            return self.start();
        };
        let Some(how) = process.how_it_ended() else { return };
        // Its last words may still be on their way.
        let ended_at = *self.ended_at.get_or_insert_with(Instant::now);
        if !LastLines::is_whole(errors) && ended_at.elapsed() < LAST_WORDS_WITHIN {
            return;
        }
        self.ended_at = None;
        self.is_done = process.exit_code() == Some(0);
        process.leave_running();
        let said = LastLines::read_text(errors);
        self.why = format!("`latput restore` failed there ({how}): {said}");
        self.process = None;
        self.again_at = Instant::now() + RESTORE_EVERY;
    }

    fn start(&mut self) {
        let call = HostCall::Restore(ControllerId::of_this_process());
        match HostProcess::start(&self.spec, &call) {
            Ok((process, [_, _, errors])) => {
                let errors = errors.expect("stderr is piped");
                let errors = LastLines::collect_from(errors, RESTORE_LINES, RESTORE_LINE_BYTES);
                self.process = Some((process, errors));
            }
            Err(error) => {
                self.why = format!("`latput restore` could not be started: {error}");
                self.again_at = Instant::now() + RESTORE_EVERY;
            }
        }
    }

    /// Most time of it, from the begin of the first attempt.
    fn time_limit(&self) -> Duration {
        self.spec.first_answer_within().max(RESTORE_WITHIN)
    }

    /// Whether it is worth waiting for.
    fn has_time(&self, begun: Instant) -> bool {
        let within = if self.process.is_some() { self.time_limit() } else { RESTORE_WITHIN };
        !self.is_done && begun.elapsed() < within
    }

    /// Kills it if it still runs.
    fn kill_if_running(&mut self) {
        if let Some((mut process, errors)) = self.process.take() {
            process.kill();
            let said = LastLines::read_text(&errors);
            let seconds = self.time_limit().as_secs();
            self.why = format!("`latput restore` did not end there within {seconds} s");
            if !said.is_empty() {
                self.why = format!("{}; it said: {said}", self.why);
            }
        }
    }
}

fn run_restores(
    restores: &mut [RestoreProcess],
    stop: &Stop,
    tell: &mut dyn FnMut(&str),
) -> Result<(), WaitAborted> {
    let hosts: Vec<&str> = restores.iter().map(|restore| restore.spec.name.as_str()).collect();
    tell(&format!(
        "latput: running `latput restore` on {} (at most {} s)",
        hosts.join(", "),
        restores.iter().map(RestoreProcess::time_limit).max().unwrap_or_default().as_secs()
    ));
    let begun = Instant::now();
    while restores.iter().any(|restore| restore.has_time(begun)) {
        if stop.is_raised_again() {
            return Err(WaitAborted); // what has begun goes on without anybody who waits
        }
        restores
            .iter_mut()
            .filter(|restore| restore.has_time(begun))
            .for_each(RestoreProcess::poll_process);
        thread::sleep(LOOK_EVERY);
    }
    restores.iter_mut().for_each(RestoreProcess::kill_if_running);
    Ok(())
}
