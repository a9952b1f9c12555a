//! The soak: changed hosts are looked at until it is over, and one that is not well ends it.

use std::time::{Duration, Instant};

use latput_reach::broker::process::HostProcess;

use super::{INTERRUPTED, Rollout, RolloutPart, elapsed_since, first_of};
use crate::fleet::HostWork;
use crate::guard::{self, TimedLook};
use crate::judge::{HostState, judge_host};
use crate::subprocess::{SubprocessEnding, ended_in_words, last_line};

/// Parts of a soak after each of which the hosts are looked at.
const PARTS: u32 = 4;
/// The least time between two rounds.
const ROUND_EVERY_LEAST: Duration = Duration::from_secs(1);

impl Rollout<'_> {
    /// Watches every changed host for the soak; the error is what is broken.
    pub(super) fn watch_hosts(&mut self) -> Result<(), String> {
        let soak = self.options.soak.as_duration();
        let end = Instant::now() + soak;
        // The last round begins when the soak is over, however long a round takes.
        loop {
            let begun = Instant::now();
            self.watch_once()?;
            if begun >= end {
                return Ok(());
            }
            let now = Instant::now();
            self.wait_until(end.min(now + (soak / PARTS).max(ROUND_EVERY_LEAST)))?;
        }
    }

    /// Looks at every changed host once.
    fn watch_once(&mut self) -> Result<(), String> {
        let watch = |work: &mut HostWork<'_, '_>| {
            let now = self.look_twice(work)?;
            let problem = self.find_broken_guard(&self.parts[work.at], &now, work);
            Ok::<_, String>((now, problem))
        };
        let until = self.until_stop();
        let results = self.fleet.for_each(&self.changed_hosts(), until, "hosts watched", watch);
        let mut problems = Vec::new();
        for (at, result) in results {
            let name = self.host_name(at);
            match result {
                None => return Err(INTERRUPTED.to_owned()),
                Some(Err(why)) => problems.push(format!("{name}: {why}")),
                Some(Ok((now, problem))) => {
                    problems.extend(problem.map(|why| format!("{name}: {why}")));
                    self.parts[at].since.get_or_insert(now);
                }
            }
        }
        if self.is_stopped() {
            return Err(INTERRUPTED.to_owned());
        }
        first_of(problems)
    }

    /// A look, and a second one where the first fails: one lost packet is no reason to go back.
    fn look_twice(&self, work: &mut HostWork<'_, '_>) -> Result<TimedLook, String> {
        let mut why = String::new();
        for _ in 0..2 {
            let judged = judge_host(work.host(), work.read_interface(None));
            why = judged.state.in_words();
            if let (Some(look), HostState::Same | HostState::Drifted(_)) =
                (judged.look, &judged.state)
            {
                return Ok(TimedLook { at: elapsed_since(self.begun), look });
            }
        }
        Err(why)
    }

    /// The guard that is broken on a host, if any.
    fn find_broken_guard(
        &self,
        part: &RolloutPart,
        now: &TimedLook,
        work: &mut HostWork<'_, '_>,
    ) -> Option<String> {
        let [.., earlier, before] = part.before.as_slice() else {
            return Some("it was not read before the change".to_owned());
        };
        let before = [earlier.clone(), before.clone()];
        let since = part.since.as_ref().unwrap_or(now);
        let problem = self.options.guards.find_broken_guard(work.host(), &before, since, now);
        let mut commands = self.options.commands.iter();
        problem.or_else(|| commands.find_map(|words| self.run_guard_command(words, work)))
    }

    /// Why a guard of the user's does not hold.
    fn run_guard_command(&self, words: &[String], work: &mut HostWork<'_, '_>) -> Option<String> {
        let words = guard::words_for_host(words, work.host());
        let shown = latput_report::make_printable(&words.join(" "));
        let why = match work.run_process(|| HostProcess::start_guard(&words), "") {
            Ok(SubprocessEnding::Ended { code: Some(0), .. }) => return None,
            Ok(SubprocessEnding::Ended { code, out, err }) => {
                let said = if err.trim().is_empty() {
                    String::from_utf8_lossy(&out).into_owned()
                } else {
                    err
                };
                format!("{}: {}", ended_in_words(code), last_line(&said))
            }
            Ok(SubprocessEnding::TimedOut) => {
                format!("did not end within {}", self.fleet.source.timeout)
            }
            Ok(SubprocessEnding::TooLong) => "printed too much".to_owned(),
            Ok(SubprocessEnding::Stopped) => return Some(INTERRUPTED.to_owned()),
            Err(error) => format!("cannot be started: {error}"),
        };
        Some(format!("the guard `{shown}` {why}"))
    }
}
