//! Changes of hosts, taken back or kept over a reboot: the journals, `undo`, `finish` and `keep`.

use std::collections::BTreeMap;

use latput_linux::process::unix_ms;
use latput_reach::broker::command::{HostVerb, KeepOptions, UndoOptions};
use serde_json::Value;

use crate::subprocess::Until;
use crate::context::Error;
use crate::fleet::{Fleet, NoAnswer};
use crate::journal::{HostEntry, newest_rollout};
use crate::judge::{HostState, JudgedHost};
use crate::look::RolloutState;
use crate::outcomes::{HostOutcomes, kept_outcome};
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
    /// The journal of each host, or why it is not known. Names the rollouts that are open.
    pub fn read_journals(&self) -> Vec<Result<Vec<HostEntry>, String>> {
        self.warn_open_rollouts(&self.inspect_rollouts());
        let until = Until::Stop(self.context.stop);
        let answers = self.for_each(&self.places(), until, "hosts", |work| {
            let out = work.run_latput(&HostVerb::Log, "").map_err(NoAnswer::into_words)?;
            HostEntry::read(&out, &work.host().interface)
        });
        let asked = |answer: Option<_>| answer.unwrap_or_else(|| Err("it was not reached".into()));
        answers.into_iter().map(|(_, answer)| asked(answer)).collect()
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
        let newest = || {
            newest_rollout(entries()).ok_or_else(|| {
                let problem =
                    "no rollout is in force on these hosts: `latput fleet log` lists their changes";
                Error::Failed(problem.to_owned())
            })
        };
        let name = rollout.map_or_else(newest, |name| Ok(name.to_owned()))?;
        let of_rollout = |entry: &&HostEntry| entry.is_of_rollout(Some(&name));
        if journals.iter().all(Result::is_ok) && !entries().any(|entry| of_rollout(&entry)) {
            return Err(Error::Usage(format!(
                "no host has a change of {name}: `latput fleet log` lists their changes"
            )));
        }
        let mut done = HostOutcomes::new("undo", self);
        let mut planned = BTreeMap::new();
        for (at, journal) in journals.iter().enumerate() {
            match journal.as_ref().map(|entries| entries.iter().find(of_rollout)) {
                Err(why) => done.set(at, "left-out", why),
                Ok(Some(entry)) if entry.is_in_force() => drop(planned.insert(at, entry.number)),
                Ok(Some(entry)) => {
                    done.set(at, "unchanged", format!("entry {} is {}", entry.number, entry.state));
                }
                Ok(None) => done.set(at, "unchanged", "it has no change of this rollout"),
            }
        }
        if dry_run {
            for (at, entry) in &planned {
                done.set(*at, "would-undo", format!("entry {entry}"));
            }
        } else {
            done.undo_entries(&planned, &name, allow_link_reset, "hosts put back");
        }
        done.rollout = Some(name);
        Ok(done)
    }

    /// Ends a rollout whose own process ended before it had confirmed every host.
    pub fn finish_rollout(
        &self,
        rollout: Option<&str>,
        how: RolloutFinish,
    ) -> Result<HostOutcomes<'_>, Error> {
        let judged = self.inspect_rollouts();
        let open = choose_rollout(open_rollouts(&judged, unix_ms()), rollout)?;
        self.report_remark(&open.to_string());
        let mut done = HostOutcomes::new("finish", self);
        for (at, one) in judged.iter().enumerate().filter(|(_, one)| one.look.is_none()) {
            done.set(at, "left-out", one.state.in_words());
        }
        let (mut waiting, mut confirmed, mut back) = (Vec::new(), BTreeMap::new(), Vec::new());
        for (at, host) in &open.hosts {
            match host.state {
                RolloutState::Waits(_) => waiting.push(*at),
                RolloutState::Confirmed(entry) => drop(confirmed.insert(*at, entry)),
                RolloutState::WentBack => back.push(*at),
            }
        }
        let made_by = || Some(open.name.clone());
        let (went_back, why) = match how {
            RolloutFinish::Confirm => {
                let verb = |_| HostVerb::Confirm { made_by: made_by() };
                let words = ("hosts confirmed", "confirmed");
                done.tell_hosts(&waiting, words, verb, |_| String::new());
                for at in confirmed.into_keys() {
                    done.set(at, "confirmed", "");
                }
                ("went-back", "it went back before: `latput fleet apply` sets it again")
            }
            RolloutFinish::Back { allow_link_reset } => {
                let verb = |_| HostVerb::Restore { made_by: made_by() };
                let words = ("hosts put back", "put-back");
                done.tell_hosts(&waiting, words, verb, |_| String::new());
                done.undo_entries(&confirmed, &open.name, allow_link_reset, "hosts undone");
                ("unchanged", "it went back before")
            }
        };
        for at in back {
            done.set(at, went_back, why);
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
                let why = match state {
                    HostState::Same if waits => "its change waits to be confirmed".to_owned(),
                    HostState::Same => continue,
                    state => state.in_words(),
                };
                done.set(at, "left-out", why);
                which.retain(|other| *other != at);
            }
        }
        let outcome = match (dry_run, remove) {
            (true, _) => "would-write",
            (false, false) => "kept",
            (false, true) => "removed",
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
        self.tell_hosts(&which, (what, "undone"), verb, |_| String::new());
    }
}

/// The rollout that is meant.
fn choose_rollout(mut open: Vec<OpenRollout>, name: Option<&str>) -> Result<OpenRollout, Error> {
    open.retain(|one| name.is_none_or(|name| one.name == name));
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
