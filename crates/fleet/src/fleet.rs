//! The hosts of a command, and how each is asked, side by side.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use latput_knobs::Knob;
use latput_linux::process::unix_ms;
use latput_reach::broker::command::{HostCommand, HostVerb};
use latput_reach::broker::message::{HostInterface, RunPermissions};
use latput_reach::broker::process::{HostProcess, Started};
use latput_units::{IntoSet, Nanos};
use rustix::io::Errno;
use serde_json::Value;

use crate::subprocess::{SubprocessEnding, Until, WaitObserver, last_line, run_with_timeout};
use crate::context::{Error, FleetContext, FleetEnding, elapsed_since};
use crate::workers::{self, HostSlot};
use crate::guard;
use crate::inventory::{self, FleetHost};
use crate::judge::{HostAnswer, HostState, JudgedHost, judge_hosts};
use crate::list::{FleetWish, HostSource};
use crate::look::{ALL, HostLook};
use crate::unfinished::open_rollouts;

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
        let judged = judge_hosts(&self.hosts, self.look_at_all(knobs));
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
        judge_hosts(&hosts, self.look_at_all(Some(&[])))
    }

    /// Names the rollouts that are open, and how each is finished.
    pub(crate) fn warn_open_rollouts(&self, judged: &[JudgedHost]) {
        for open in open_rollouts(judged, unix_ms()) {
            let finish = format!("latput fleet finish {}{}", open.name, self.source.to_arg_text());
            self.report_remark(&format!(
                "warning: {open}. Unless somebody is at it: `{finish} --confirm` or `{finish} --back`"
            ));
        }
    }

    /// The place of every host in the list.
    pub(crate) fn places(&self) -> Vec<usize> {
        (0..self.hosts.len()).collect()
    }

    fn look_at_all(&self, knobs: Option<&[Knob]>) -> Vec<HostAnswer> {
        let until = Until::Stop(self.context.stop);
        let answers = self.for_each(&self.places(), until, "hosts", |work| work.read_interface(knobs));
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
        let results = crew::side_by_side(which.len(), self.source.parallel, is_over, one);
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
        if has_drifted || self.judged.iter().any(|judged| judged.state.is_wrong()) {
            FleetEnding::Drifted
        } else if self.left_out > 0 || self.judged.iter().any(|judged| judged.state.is_unknown()) {
            FleetEnding::Partial
        } else {
            FleetEnding::Done
        }
    }
}

/// A host that is worked on, with its place in the crew.
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

/// Why a host has not done what it was told.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// Its latput says why.
    Refused {
        message: String,
        /// Kind of the error, as its JSON has it.
        kind: String,
    },
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
    /// Whether it is not known what the host has done.
    pub(crate) const fn is_lost(&self) -> bool {
        !matches!(self, Self::Refused { .. })
    }

    /// Whether its latput ended with an error of this kind.
    pub(crate) fn is_of_kind(&self, of: &str) -> bool {
        matches!(self, Self::Refused { kind, .. } if kind == of)
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
    pub(crate) fn run(&mut self, verb: &HostVerb, input: &str) -> Result<Vec<u8>, NoAnswer> {
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
    pub(crate) fn ask(&mut self, verb: &HostVerb, input: &str) -> Result<Value, NoAnswer> {
        let out = self.run_latput(verb, input)?;
        serde_json::from_slice(&out).map_err(|_| NoAnswer::Strange("its answer is not from latput"))
    }

    /// The same without input; once more where the first answer is lost.
    pub(crate) fn ask_twice(&mut self, verb: &HostVerb) -> Result<Value, NoAnswer> {
        match self.request_json(verb, "") {
            Err(error) if error.is_lost() => self.request_json(verb, ""),
            heard => heard,
        }
    }

    /// Looks at the host: at `knobs`, else at those of its setting, else at all that can be set.
    pub(crate) fn look(&mut self, knobs: Option<&[Knob]>) -> HostAnswer {
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
            Err(NoAnswer::Stopped) => Err(HostState::NotAsked),
            Err(NoAnswer::TimedOut(why)) => Err(HostState::TimedOut(why)),
            Err(NoAnswer::Unreachable(why)) => Err(HostState::Unreachable(why)),
            Err(error) => Err(HostState::Failed(error.into_words())),
        }
    }
}

/// The command line to be typed here that runs the latput of a host: this program is called by its name.
pub(crate) fn command_line(host: &FleetHost, args: &[&str]) -> String {
    let own = std::env::current_exe().unwrap_or_default();
    let word = |word: &String| {
        if Path::new(word) == own { "latput".to_owned() } else { latput_report::shell_word(word) }
    };
    host.way.to_command_line(args).iter().map(word).collect::<Vec<_>>().join(" ")
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
    Some(NoAnswer::Refused { message, kind: error.get("kind")?.as_str()?.to_owned() })
}
