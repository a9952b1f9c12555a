//! A trial with a third-party program at the far end: its answers are read here, without rights.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use latput_knobs::{ChangeOutcome, Refusal};
use latput_linux::process;
use latput_load::Window;
use latput_peers::{Error, ErrorKind, PeerResult, PeerSession};
use latput_protocol::control::{
    Answer, EarlyEnd, Failure, PeerFinished, PeerTrial, failure_with_outcome, make_failure,
};
use latput_protocol::text::format_error_chain;
use latput_units::Nanos;

use super::AgentService;
use crate::keeper_line::{CountRequest, WindowCounts};

/// Time for the traffic's threads and the counters to get ready before the window.
const START_AHEAD: Nanos = Nanos::from_ms(5);

impl AgentService<'_> {
    /// Runs the traffic on another thread while the keeper counts.
    pub(super) fn run_peer_trial(&mut self, trial: &PeerTrial) -> Result<Answer, Failure> {
        let PeerTrial { peer, address, workload, warmup, duration } = trial;
        let session = match peer.open(*address, workload, *warmup, *duration, self.stop) {
            Ok(session) => session,
            Err(error) => return Ok(Answer::PeerFailed(convert_peer_error(&error))),
        };
        let (at, warmup) = (latput_load::now(), session.warmup().max(START_AHEAD));
        let window = Window::starting_after(at, warmup, *duration)
            .map_err(|error| make_failure(format_error_chain(&error)))?;
        let wanted = CountRequest {
            at,
            warmup,
            duration: *duration,
            turns: None,
            early_end: EarlyEnd::AtBreak,
            is_of_programs: false,
        };
        let (outcome, counted) = self.run(session, window, wanted);
        // The traffic's error comes first: it tells more than the counters'.
        let result = match outcome {
            Ok(result) => result,
            Err(error) => return Ok(Answer::PeerFailed(convert_peer_error(&error))),
        };
        let WindowCounts { slices, drift, held_back: _, left: _ } = counted?;
        let (host, _) =
            slices.into_iter().next().ok_or_else(|| make_failure("nothing was counted"))?;
        Ok(Answer::PeerFinished(Box::new(PeerFinished { result, host, drift })))
    }

    fn run(
        &mut self,
        session: PeerSession,
        window: Window,
        wanted: CountRequest,
    ) -> (Result<PeerResult, Error>, Result<WindowCounts, Failure>) {
        let is_broken = AtomicBool::new(false);
        let (stop, cpus) = (self.stop, &self.cpus_at_start);
        thread::scope(|scope| {
            let traffic = scope.spawn(|| {
                // The agent's own threads may run wherever its host is counted.
                let _as_it_is = process::bind_thread(cpus);
                let outcome = session.run(window, stop);
                is_broken.store(outcome.is_err(), Ordering::Relaxed);
                outcome
            });
            let is_over = || is_broken.load(Ordering::Relaxed);
            let counted = self.keeper.count_window(wanted, &is_over, &mut |_| {});
            (traffic.join().unwrap_or_else(|panic| resume_unwind(panic)), counted)
        })
    }
}

fn convert_peer_error(error: &Error) -> Failure {
    let refusal = match error.kind() {
        ErrorKind::Usage => Refusal::Usage,
        _ => Refusal::Failure,
    };
    let outcome = ChangeOutcome::Refused(refusal);
    Failure {
        is_transient: error.is_transient(),
        ..failure_with_outcome(outcome, format_error_chain(error))
    }
}
