//! The soak: changed hosts are looked at until it is over, and one that is not well ends it.

use std::time::{Duration, Instant};

use latput_reach::broker::process::HostProcess;
use latput_fleet::HostAnswer;
use latput_fleet::guard::TimedLook;
use latput_fleet::judge::{HostState, JudgedHost, judge_hosts};

use super::super::guard_command;
use super::super::hosts::{InPlace, StopCondition, last_line};
use super::super::look;
use super::{INTERRUPTED, Rollout, RolloutHost, first_of};
use crate::commands::ask::{AskEnding, ended_in_words, run_with_timeout};

/// Parts of a soak after each of which the hosts are looked at.
const PARTS: u32 = 4;
/// The least time between two rounds.
const ROUND_EVERY_LEAST: Duration = Duration::from_secs(1);

impl Rollout<'_> {
    /// Watches every changed host for the soak; the error is what is broken.
    pub(super) fn watch_hosts(&mut self) -> Result<(), String> {
        let soak = self.args.soak.as_duration();
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
        let changed = self.changed_hosts();
        let results = self.for_each_host(
            &changed,
            StopCondition::Stop(self.stop()),
            "hosts watched",
            |part, waiting| {
                let now = self.look_twice(part, waiting)?;
                let problem = self.find_broken_guard(part, &now, waiting);
                Ok::<_, String>((now, problem))
            },
        );
        let mut problems = Vec::new();
        for (idx, result) in results {
            let part = &mut self.parts[idx];
            let name = &part.member.host.name;
            match result {
                None => return Err(INTERRUPTED.to_owned()),
                Some(Err(why)) => problems.push(format!("{name}: {why}")),
                Some(Ok((now, problem))) => {
                    problems.extend(problem.map(|why| format!("{name}: {why}")));
                    part.since.get_or_insert(now);
                }
            }
        }
        if self.stop().is_raised() {
            return Err(INTERRUPTED.to_owned());
        }
        first_of(problems)
    }

    /// A look, and a second one where the first fails: one lost packet is no reason to go back.
    fn look_twice(
        &self,
        part: &RolloutHost,
        waiting: &mut InPlace<'_, '_>,
    ) -> Result<TimedLook, String> {
        let mut why = String::new();
        for _ in 0..2 {
            let answer: HostAnswer = look::inspect_host(&self.fleet, &part.member, None, waiting);
            let judged = judge_hosts(std::slice::from_ref(&part.member.host), vec![answer]);
            for JudgedHost { state, look, .. } in judged {
                why = format!("{}: {}", state.name(), state.explanation());
                if let (Some(look), HostState::Same | HostState::Drifted(_)) = (look, &state) {
                    return Ok(TimedLook { at: self.elapsed_time(), look });
                }
            }
        }
        Err(why)
    }

    /// The guard that is broken on a host, if any.
    fn find_broken_guard(
        &self,
        part: &RolloutHost,
        now: &TimedLook,
        waiting: &mut InPlace<'_, '_>,
    ) -> Option<String> {
        let [.., earlier, before] = part.before.as_slice() else {
            return Some("it was not read before the change".to_owned());
        };
        let before = [earlier.clone(), before.clone()];
        let since = part.since.as_ref().unwrap_or(now);
        let host = &part.member.host;
        let problem = self.guards.find_broken_guard(host, &before, since, now);
        problem.or_else(|| {
            self.commands.iter().find_map(|words| self.run_guard_command(words, part, waiting))
        })
    }

    /// Why a guard of the user's does not hold.
    fn run_guard_command(
        &self,
        words: &[String],
        part: &RolloutHost,
        waiting: &mut InPlace<'_, '_>,
    ) -> Option<String> {
        let words = guard_command::of_host(words, &part.member.host);
        let shown = latput_report::make_printable(&words.join(" "));
        let within = self.fleet.timeout;
        let start = || HostProcess::start_guard(&words);
        let ending = run_with_timeout(start, b"", within.as_duration(), waiting);
        let why = match ending {
            Ok(AskEnding::Ended { code: Some(0), .. }) => return None,
            Ok(AskEnding::Ended { code, out, err }) => {
                let said = if err.trim().is_empty() {
                    String::from_utf8_lossy(&out).into_owned()
                } else {
                    err
                };
                format!("{}: {}", ended_in_words(code), last_line(&said))
            }
            Ok(AskEnding::TimedOut) => format!("did not end within {within}"),
            Ok(AskEnding::TooLong) => "printed too much".to_owned(),
            Ok(AskEnding::Stopped) => return Some(INTERRUPTED.to_owned()),
            Err(error) => format!("cannot be started: {error}"),
        };
        Some(format!("the guard `{shown}` {why}"))
    }
}
