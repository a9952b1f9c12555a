//! The hosts of a command, and how each is asked, side by side.

use std::collections::BTreeSet;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use latput_knobs::Knob;
use latput_linux::process::unix_ms;
use latput_reach::broker::command::{HostCommand, HostVerb};
use latput_reach::broker::message::{HostInterface, RunPermissions};
use latput_reach::broker::process::{HostProcess, Started};
use latput_units::{IntoSet, Nanos};
use rustix::io::Errno;
use serde::Deserialize;
use serde_json::Value;

use crate::context::{Error, FleetContext, FleetEnding, elapsed_since};
use crate::guard;
use crate::inventory::{self, FleetHost};
use crate::judge::{HostAnswer, HostState, JudgedHost, judge_hosts};
use crate::list::{FleetWish, HostSource};
use crate::look::{ALL, HostLook};
use crate::outcome::HostOutcome;
use crate::subprocess::{SubprocessEnding, Until, WaitObserver, last_line, run_with_timeout};
use crate::unfinished::{RUN_AGAIN, open_rollouts};
use crate::workers::{self, HostSlot};

/// The hosts with how to get to each.
#[derive(Debug)]
pub struct Fleet<'a> {
    /// The hosts, each with its wanted values.
    pub hosts: Vec<FleetHost>,
    /// Number of hosts of the list that cannot be reached as it says.
    pub(crate) left_out: usize,
    pub(crate) source: HostSource,
    pub(crate) context: FleetContext<'a>,
}

impl<'a> Fleet<'a> {
    /// Lists the hosts. Rights are to be given up before the first is asked.
    pub fn list(source: HostSource, context: FleetContext<'a>) -> Result<Self, Error> {
        let (hosts, left_out) = source.list_hosts(context)?;
        Ok(Self { hosts, left_out, source, context })
    }

    /// Permissions of the broker for these hosts: whether they are changed, and the words of the user's guards.
    pub fn permissions(&self, changes: bool, guards: &[Vec<String>]) -> RunPermissions {
        let interface = |host: &FleetHost| HostInterface {
            way: host.way.clone(),
            name: Some(host.interface.clone()),
        };
        let of_host = |host| guards.iter().map(move |words| guard::words_for_host(words, host));
        RunPermissions {
            interfaces: self.hosts.iter().map(interface).into_set(),
            changes,
            guards: self.hosts.iter().flat_map(of_host).into_set(),
            ..RunPermissions::default()
        }
    }

    /// Takes each host once, with what is wanted of it: what the wish has takes the place of the list's values.
    pub fn settle_wish(&mut self, wish: &FleetWish) -> Result<(), Error> {
        let hosts = self.hosts.drain(..).map(|host| wish.applied_to(host)).collect();
        let (hosts, remarks) =
            inventory::once_each(hosts).map_err(|error| self.source.list_error(error))?;
        self.hosts = hosts;
        for remark in remarks {
            self.report_remark(&remark);
        }
        Ok(())
    }

    /// Wants nothing of any host.
    pub fn clear_wishes(&mut self) {
        self.hosts.iter_mut().for_each(|host| host.setting.clear());
    }

    /// Refuses hosts of which nothing is wanted.
    pub fn require_wishes(&self) -> Result<(), Error> {
        match self.hosts.iter().find(|host| host.setting.is_empty()) {
            None => Ok(()),
            Some(host) => Err(Error::Usage(format!(
                "there are no wanted values for {}: give KNOB=VALUE, or `settings` in group `{}`",
                host.name, host.group
            ))),
        }
    }

    pub(crate) fn report_remark(&self, text: &str) {
        self.context.progress.report_remark(text);
    }

    /// Looks at every host, and names the rollouts that are open: at the wanted knobs of each, or at those that are named;
    /// where neither says any, at all that can be set.
    pub fn inspect(&self, knobs: Option<&[Knob]>) -> FleetInspection {
        let begun = Instant::now();
        let judged = judge_hosts(&self.hosts, self.read_interfaces(knobs));
        let took = elapsed_since(begun);
        self.warn_open_rollouts(&judged);
        FleetInspection { judged, left_out: self.left_out, took }
    }

    /// Looks at no value, only at what is under way.
    pub(crate) fn inspect_rollouts(&self) -> Vec<JudgedHost> {
        let mut hosts = self.hosts.clone();
        for host in &mut hosts {
            host.setting.clear();
        }
        judge_hosts(&hosts, self.read_interfaces(Some(&[])))
    }

    /// Names the rollouts that are not whole, and what to do about each.
    pub(crate) fn warn_open_rollouts(&self, judged: &[JudgedHost]) {
        for open in open_rollouts(judged, unix_ms()) {
            let finish = format!("latput fleet finish {}{}", open.name, self.source.to_arg_text());
            let next = if open.is_over() {
                RUN_AGAIN.to_owned()
            } else {
                format!("Unless somebody is at it: `{finish} --confirm` or `{finish} --back`")
            };
            self.report_remark(&format!("warning: {open}. {next}"));
        }
    }

    /// Records on these hosts that a rollout has ended, and the names of the hosts that it did not reach. Later commands
    /// then do not take it for one that was cut short. The record of one host is enough.
    pub(crate) fn record_rollout_end(&self, rollout: &str, which: &[usize], missed: &[&str]) {
        let names = missed.join("\n");
        let verb = HostVerb::EndRollout { rollout: rollout.to_owned() };
        let until = Until::SecondStop(self.context.stop);
        let results = self.for_each(which, until, "hosts told of the end", |work| {
            work.run_latput(&verb, &names).is_ok()
        });
        if !which.is_empty() && results.iter().all(|(_, is_recorded)| *is_recorded != Some(true)) {
            self.report_remark(&format!(
                "warning: no host has recorded that {rollout} has ended: later commands may call it cut short"
            ));
        }
    }

    /// The place of every host in the list.
    pub(crate) fn places(&self) -> Vec<usize> {
        (0..self.hosts.len()).collect()
    }

    fn read_interfaces(&self, knobs: Option<&[Knob]>) -> Vec<HostAnswer> {
        let until = Until::Stop(self.context.stop);
        let read = |work: &mut HostWork<'_, '_>| work.read_interface(knobs);
        let answers = self.for_each(&self.places(), until, "hosts", read);
        answers.into_iter().map(|(_, answer)| answer.unwrap_or(Err(HostState::NotAsked))).collect()
    }

    /// Does `job` for these hosts side by side; `what` counts them for people. One that was not begun has no result.
    pub(crate) fn for_each<R: Send>(
        &self,
        which: &[usize],
        until: Until<'_>,
        what: &str,
        job: impl Fn(&mut HostWork<'_, '_>) -> R + Sync,
    ) -> Vec<(usize, Option<R>)> {
        let count_host = self.context.progress.begin_hosts(which.len(), what);
        let one = |number: usize, place: &mut HostSlot<'_>| {
            let result = job(&mut HostWork { fleet: self, at: which[number], place, until });
            count_host();
            result
        };
        let is_over = || until.is_over();
        let results = workers::side_by_side(which.len(), self.source.parallel, is_over, one);
        which.iter().copied().zip(results).collect()
    }
}

/// Outcome of a look at every host.
#[derive(Debug)]
pub struct FleetInspection {
    /// The hosts, each with its state.
    pub judged: Vec<JudgedHost>,
    left_out: usize,
    /// Its time.
    pub took: Nanos,
}

impl FleetInspection {
    /// How it ended, of hosts that differ from each other or do not.
    pub fn ending(&self, has_drifted: bool) -> FleetEnding {
        let outcomes = self.judged.iter().map(|judged| judged.state.outcome());
        let of_hosts = FleetEnding::from_outcomes(outcomes, self.left_out);
        if has_drifted { of_hosts.max(FleetEnding::Drifted) } else { of_hosts }
    }
}

/// A host that is worked on, with its slot.
pub(crate) struct HostWork<'a, 'p> {
    fleet: &'a Fleet<'a>,
    /// Its place in the list.
    pub(crate) at: usize,
    place: &'a mut HostSlot<'p>,
    until: Until<'a>,
}

impl WaitObserver for HostWork<'_, '_> {
    fn is_over(&self) -> bool {
        self.until.is_over()
    }

    fn goes_on(&mut self, waited: Duration) {
        self.place.has_waited(waited);
    }
}

/// Kind of an error of a host's latput, as its JSON has it, as far as a fleet makes a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostErrorKind {
    /// The change was rolled back.
    RolledBack,
    /// A rollback failed.
    Stranded,
    /// Any other.
    #[serde(other)]
    Other,
}

/// Why a host has not done what it was told.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// Its latput says why.
    Refused { message: String, kind: HostErrorKind },
    /// Nobody waits for it any more.
    Stopped,
    /// It took too long.
    TimedOut(String),
    /// It is not an answer of latput.
    Strange(&'static str),
    /// Nothing of latput was heard of.
    Unreachable(String),
}

impl NoAnswer {
    /// Kind of the error of its latput; `None` where it is not known what the host has done.
    pub(crate) const fn kind(&self) -> Option<HostErrorKind> {
        match self {
            Self::Refused { kind, .. } => Some(*kind),
            Self::Stopped | Self::TimedOut(_) | Self::Strange(_) | Self::Unreachable(_) => None,
        }
    }

    /// State of a host that was only to be read.
    pub(crate) fn into_state(self) -> HostState {
        match self {
            Self::Refused { message, .. } => HostState::Failed(message),
            Self::Strange(words) => HostState::Failed(words.to_owned()),
            Self::Stopped => HostState::NotAsked,
            Self::TimedOut(why) => HostState::TimedOut(why),
            Self::Unreachable(why) => HostState::Unreachable(why),
        }
    }

    /// Outcome of a host that was told to do something, with the reason.
    pub(crate) fn into_outcome(self) -> (HostOutcome, String) {
        let refused = match self.kind() {
            Some(HostErrorKind::Stranded) => HostOutcome::Stranded,
            Some(HostErrorKind::RolledBack | HostErrorKind::Other) => HostOutcome::Refused,
            None => return self.into_state().left_out(),
        };
        (refused, self.into_words())
    }

    pub(crate) fn into_words(self) -> String {
        match self {
            Self::Refused { message: words, .. }
            | Self::TimedOut(words)
            | Self::Unreachable(words) => words,
            Self::Strange(words) => words.to_owned(),
            Self::Stopped => "the wait for it was cut short".to_owned(),
        }
    }
}

impl<'a> HostWork<'a, '_> {
    pub(crate) fn host(&self) -> &'a FleetHost {
        &self.fleet.hosts[self.at]
    }

    /// Runs a process for the host within the time of one answer.
    pub(crate) fn run_process(
        &mut self,
        start: impl FnOnce() -> io::Result<Started>,
        input: &str,
    ) -> io::Result<SubprocessEnding> {
        let within = self.fleet.source.timeout.as_duration();
        run_with_timeout(start, input.as_bytes(), within, self)
    }

    /// Runs its latput with this command and this input, and hears what it prints.
    pub(crate) fn run_latput(&mut self, verb: &HostVerb, input: &str) -> Result<Vec<u8>, NoAnswer> {
        let (host, timeout) = (self.host(), self.fleet.source.timeout);
        let command = HostCommand { interface: host.interface.clone(), verb: verb.clone() };
        let begun = Instant::now();
        let ending = loop {
            let start = || HostProcess::start_command(&host.way, command.clone());
            match self.run_process(start, input) {
                // Too many processes or open files for a moment: others end.
                Err(error) if is_for_now(&error) && begun.elapsed() < timeout.as_duration() => {
                    thread::sleep(Duration::from_millis(50));
                }
                ending => break ending,
            }
        };
        match ending {
            Err(error) => {
                Err(NoAnswer::Unreachable(format!("cannot start the connection: {error}")))
            }
            Ok(SubprocessEnding::Stopped) => Err(NoAnswer::Stopped),
            Ok(SubprocessEnding::TimedOut) => {
                Err(NoAnswer::TimedOut(format!("it did not answer within {timeout}")))
            }
            Ok(SubprocessEnding::TooLong) => Err(NoAnswer::Strange("its answer is too long")),
            Ok(SubprocessEnding::Ended { code: Some(0), out, .. }) => Ok(out),
            // A check tells by its exit code what it found.
            Ok(SubprocessEnding::Ended { code: Some(_), out, .. })
                if *verb == HostVerb::CheckKept && !out.is_empty() =>
            {
                Ok(out)
            }
            Ok(SubprocessEnding::Ended { err, .. }) => {
                Err(said_by_latput(&err).unwrap_or_else(|| NoAnswer::Unreachable(last_line(&err))))
            }
        }
    }

    /// The same, with an answer in JSON.
    pub(crate) fn request_json(&mut self, verb: &HostVerb, input: &str) -> Result<Value, NoAnswer> {
        let out = self.run_latput(verb, input)?;
        serde_json::from_slice(&out).map_err(|_| NoAnswer::Strange("its answer is not from latput"))
    }

    /// The same without input; once more where the first answer is lost.
    pub(crate) fn request_json_twice(&mut self, verb: &HostVerb) -> Result<Value, NoAnswer> {
        match self.request_json(verb, "") {
            Err(error) if error.kind().is_none() => self.request_json(verb, ""),
            heard => heard,
        }
    }

    /// Reads the host's interface: `knobs`, else those of its setting, else all that can be set.
    pub(crate) fn read_interface(&mut self, knobs: Option<&[Knob]>) -> HostAnswer {
        let host = self.host();
        let (question, asked): (String, Option<BTreeSet<Knob>>) = match knobs {
            Some(knobs) => {
                let lines = knobs.iter().map(|knob| format!("{knob}\n"));
                (lines.collect(), Some(knobs.iter().copied().into_set()))
            }
            None if host.setting.is_empty() => (ALL.to_owned(), None),
            None => (host.setting_lines(), Some(host.setting.keys().copied().into_set())),
        };
        match self.run_latput(&HostVerb::Look, &question) {
            Ok(out) => {
                HostLook::read(&out, &host.interface, asked.as_ref()).map_err(HostState::Failed)
            }
            Err(error) => Err(error.into_state()),
        }
    }
}

fn is_for_now(error: &io::Error) -> bool {
    let few = [Errno::AGAIN, Errno::NOMEM, Errno::NFILE, Errno::MFILE];
    Errno::from_io_error(error).is_some_and(|errno| few.contains(&errno))
}

/// The error in the last line of stderr; `None` if no latput with `--json` wrote it.
fn said_by_latput(err: &str) -> Option<NoAnswer> {
    let line = err.lines().rev().find(|line| !line.trim().is_empty())?;
    let document: Value = serde_json::from_slice(line.as_bytes()).ok()?;
    let error = document.get("error")?;
    let message = latput_report::make_printable(error.get("message")?.as_str()?);
    let kind = HostErrorKind::deserialize(error.get("kind")?).ok()?;
    Some(NoAnswer::Refused { message, kind })
}
