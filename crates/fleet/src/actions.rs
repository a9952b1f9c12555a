//! Changes of hosts, taken back or kept over a reboot: the journals, `undo`, `finish` and `keep`.

use std::collections::BTreeMap;

use latput_linux::process::unix_ms;
use latput_reach::broker::command::{HostVerb, KeepOptions, UndoOptions};
use serde_json::Value;

use crate::context::{Error, FleetEnding};
use crate::fleet::{Fleet, NoAnswer};
use crate::journal::{HostEntry, newest_rollout};
use crate::judge::{HostState, JudgedHost};
use crate::look::RolloutState;
use crate::outcome::HostOutcome;
use crate::outcomes::{HostOutcomes, kept_outcome};
use crate::subprocess::Until;
use crate::unfinished::{OpenRollout, open_rollouts};

/// How a rollout that was cut short is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RolloutFinish {
    /// The hosts that wait keep it.
    Confirm,
    /// Every host goes back.
    Back {
        /// Whether links may go down and up.
        allow_link_reset: bool,
    },
}

impl Fleet<'_> {
    /// The journal of each host, or its state where that is not known. Names the rollouts that are open.
    pub fn read_journals(&self) -> Vec<Result<Vec<HostEntry>, HostState>> {
        self.warn_open_rollouts(&self.inspect_rollouts());
        let until = Until::Stop(self.context.stop);
        let answers = self.for_each(&self.places(), until, "hosts", |work| {
            let out = work.run_latput(&HostVerb::Log, "").map_err(NoAnswer::into_state)?;
            HostEntry::read(&out, &work.host().interface).map_err(HostState::Failed)
        });
        let journals = answers.into_iter();
        journals.map(|(_, journal)| journal.unwrap_or(Err(HostState::NotAsked))).collect()
    }

    /// How the reading of journals ended.
    pub fn ending_of_journals(
        &self,
        journals: &[Result<Vec<HostEntry>, HostState>],
    ) -> FleetEnding {
        let outcome = |journal: &Result<_, HostState>| {
            journal.as_ref().map_or_else(HostState::outcome, |_| HostOutcome::Same)
        };
        FleetEnding::from_outcomes(journals.iter().map(outcome), self.left_out)
    }

    /// Takes a rollout back on every host that has it: by default the newest that is in force.
    pub fn undo_rollout(
        &self,
        rollout: Option<&str>,
        dry_run: bool,
        allow_link_reset: bool,
    ) -> Result<HostOutcomes<'_>, Error> {
        let journals = self.read_journals();
        let entries = || journals.iter().flatten().flatten();
        let name = rollout.map(str::to_owned).or_else(|| newest_rollout(entries()));
        let of_rollout = |entry: &&HostEntry| {
            name.as_deref().is_some_and(|name| entry.is_of_rollout(Some(name)))
        };
        // A host that did not answer may have one.
        if journals.iter().all(Result::is_ok) {
            let Some(name) = &name else {
                let problem =
                    "no rollout is in force on these hosts: `latput fleet log` lists their changes";
                return Err(Error::Failed(problem.to_owned()));
            };
            if !entries().any(|entry| of_rollout(&entry)) {
                return Err(Error::Usage(format!(
                    "no host has a change of {name}: `latput fleet log` lists their changes"
                )));
            }
        }
        let mut done = HostOutcomes::new("undo", self);
        let mut planned = BTreeMap::new();
        for (at, journal) in journals.iter().enumerate() {
            match journal.as_ref().map(|entries| entries.iter().find(of_rollout)) {
                Err(state) => done.leave_out(at, state),
                Ok(Some(entry)) if entry.is_in_force() => drop(planned.insert(at, entry.number)),
                Ok(Some(entry)) => {
                    let why = format!("entry {} is {}", entry.number, entry.state);
                    done.set(at, HostOutcome::Unchanged, why);
                }
                Ok(None) if name.is_none() => {
                    done.set(at, HostOutcome::Unchanged, "no rollout is in force there");
                }
                Ok(None) => {
                    done.set(at, HostOutcome::Unchanged, "it has no change of this rollout");
                }
            }
        }
        match &name {
            Some(name) if !dry_run => {
                done.undo_entries(&planned, name, allow_link_reset, "hosts put back");
            }
            Some(_) | None => {
                for (at, entry) in &planned {
                    done.set(*at, HostOutcome::WouldUndo, format!("entry {entry}"));
                }
            }
        }
        done.rollout = name;
        Ok(done)
    }

    /// Ends a rollout whose own process ended before it had confirmed every host.
    pub fn finish_rollout(
        &self,
        rollout: Option<&str>,
        how: RolloutFinish,
    ) -> Result<HostOutcomes<'_>, Error> {
        let judged = self.inspect_rollouts();
        let mut done = HostOutcomes::new("finish", self);
        for (at, one) in judged.iter().enumerate().filter(|(_, one)| one.look.is_none()) {
            done.leave_out(at, &one.state);
        }
        let open = match choose_rollout(open_rollouts(&judged, unix_ms()), rollout) {
            // A host that did not answer may have one.
            Err(Error::Failed(_)) if judged.iter().any(|one| one.state.is_unknown()) => {
                for (at, _) in judged.iter().enumerate().filter(|(_, one)| one.look.is_some()) {
                    done.set(at, HostOutcome::Unchanged, "no such rollout is open there");
                }
                return Ok(done);
            }
            chosen => chosen?,
        };
        self.report_remark(&open.to_string());
        let (mut waiting, mut confirmed, mut back) = (Vec::new(), BTreeMap::new(), Vec::new());
        for (at, host) in &open.hosts {
            match host.state {
                RolloutState::Waits(_) => waiting.push(*at),
                RolloutState::Confirmed(entry) => drop(confirmed.insert(*at, entry)),
                RolloutState::WentBack => back.push(*at),
            }
        }
        let made_by = || Some(open.name.clone());
        match how {
            RolloutFinish::Confirm => {
                let verb = |_| HostVerb::Confirm { made_by: made_by() };
                let words = ("hosts confirmed", HostOutcome::Confirmed);
                done.tell_hosts(&waiting, words, verb, |_| String::new());
                for at in confirmed.into_keys() {
                    done.set(at, HostOutcome::Confirmed, "");
                }
                let why = "it went back before: `latput fleet apply` sets it again";
                for at in back {
                    done.set(at, HostOutcome::WentBack, why);
                }
                done.record_rollout_end(&open.name);
            }
            RolloutFinish::Back { allow_link_reset } => {
                let verb = |_| HostVerb::Restore { made_by: made_by() };
                let words = ("hosts put back", HostOutcome::PutBack);
                done.tell_hosts(&waiting, words, verb, |_| String::new());
                done.undo_entries(&confirmed, &open.name, allow_link_reset, "hosts undone");
                let why = "it went back before";
                for at in back {
                    done.set(at, HostOutcome::Unchanged, why);
                }
            }
        }
        done.rollout = Some(open.name);
        Ok(done)
    }

    /// Keeps the wanted values over a reboot on every host that has them, or removes what was installed.
    pub fn keep_values(&self, remove: bool, dry_run: bool) -> Result<HostOutcomes<'_>, Error> {
        let mut done = HostOutcomes::new("keep", self);
        let mut which = self.places();
        if !remove {
            self.require_wishes()?;
            for (at, one) in self.inspect(None).judged.into_iter().enumerate() {
                let JudgedHost { state, look, .. } = one;
                let waits = look.is_some_and(|look| look.waiting.is_some());
                match state {
                    HostState::Same if waits => {
                        done.set(at, HostOutcome::LeftOut, "its change waits to be confirmed");
                    }
                    HostState::Same => continue,
                    HostState::Drifted(_)
                    | HostState::Other(_)
                    | HostState::Failed(_)
                    | HostState::Unreachable(_)
                    | HostState::TimedOut(_)
                    | HostState::NotAsked => done.leave_out(at, &state),
                }
                which.retain(|other| *other != at);
            }
        }
        let outcome = match (dry_run, remove) {
            (true, _) => HostOutcome::WouldWrite,
            (false, false) => HostOutcome::Kept,
            (false, true) => HostOutcome::Removed,
        };
        let verb = |_| HostVerb::Keep(KeepOptions { remove, dry_run });
        done.tell_hosts(&which, ("hosts", outcome), verb, |document| {
            let files = document["files"].as_array().into_iter().flatten();
            let files = files.filter_map(Value::as_str).map(latput_report::make_printable);
            files.collect::<Vec<_>>().join(" ")
        });
        Ok(done)
    }

    /// Asks every host for its `latput keep --check`. Names the rollouts that are open.
    pub fn verify_kept(&self) -> HostOutcomes<'_> {
        self.warn_open_rollouts(&self.inspect_rollouts());
        let mut done = HostOutcomes::new("verify-kept", self);
        done.ask_hosts(&self.places(), "hosts asked", |_| HostVerb::CheckKept, kept_outcome);
        done
    }
}

impl HostOutcomes<'_> {
    /// Records on the hosts that keep a rollout that it has ended without the others.
    fn record_rollout_end(&self, rollout: &str) {
        let missed = self
            .hosts()
            .filter(|(_, outcome, _)| outcome.is_unreached() || *outcome == HostOutcome::WentBack);
        let missed: Vec<&str> = missed.map(|(host, ..)| host.name.as_str()).collect();
        let confirmed = self.places_of(HostOutcome::Confirmed);
        self.fleet.record_rollout_end(rollout, &confirmed, &missed);
    }

    /// Undoes an entry of the journal of each of these hosts.
    fn undo_entries(
        &mut self,
        entries: &BTreeMap<usize, u64>,
        made_by: &str,
        allow_link_reset: bool,
        what: &'static str,
    ) {
        let verb = |at: usize| {
            let (entry, made_by) = (Some(entries[&at]), Some(made_by.to_owned()));
            HostVerb::Undo(UndoOptions { entry, made_by, allow_link_reset, json: true })
        };
        let which: Vec<usize> = entries.keys().copied().collect();
        self.tell_hosts(&which, (what, HostOutcome::Undone), verb, |_| String::new());
    }
}

/// The rollout that is meant.
fn choose_rollout(mut open: Vec<OpenRollout>, name: Option<&str>) -> Result<OpenRollout, Error> {
    open.retain(|one| !one.is_over() && name.is_none_or(|name| one.name == name));
    if open.len() > 1 {
        let all: Vec<String> = open.iter().map(ToString::to_string).collect();
        let all = all.join(". ");
        return Err(Error::Usage(format!("several rollouts are open, name one: {all}")));
    }
    open.pop().ok_or_else(|| {
        let which = name.map_or("no rollout is", |_| "that rollout is not");
        Error::Failed(format!(
            "{which} under way or cut short on these hosts: `latput fleet undo` takes a whole one back"
        ))
    })
}
