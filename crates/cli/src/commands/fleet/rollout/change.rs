//! Steps on one host: set, confirm, put back. Each is a command of its latput there.

use std::time::Instant;

use latput_reach::broker::command::{HostSet, HostVerb};
use latput_fleet::HostAnswer;
use latput_fleet::judge::find_differences;
use latput_units::Nanos;

use super::super::hosts::{Fleet, FleetMember, InPlace};
use super::super::look::{self, FarError};
use super::super::tell::{CommandReply, run_host_command};
use super::{HostPhase, Lease, Rollout, RolloutHost, StopCondition, unix_ms};

/// Added to the time at which a host goes back by itself: what watches it looks twice a second, and putting back takes
/// its time.
const BACK_WITHIN: Nanos = Nanos::from_s(5);

/// A change that hosts are told to make.
pub(super) struct HostChange<'a> {
    pub(super) fleet: &'a Fleet,
    pub(super) made_by: &'a str,
    pub(super) within: Nanos,
    pub(super) allow_link_reset: bool,
    /// Whether the host only says what it would do.
    pub(super) dry_run: bool,
}

/// How the change of a host ended.
pub(super) enum SettingEnded {
    /// It is made, and waits to be confirmed.
    Done,
    /// Nothing was to be changed.
    Nothing,
    /// The host refused, and is unchanged.
    Refused(String),
    /// The host could not go back.
    Stranded(String),
    /// It is not known.
    Lost(String),
}

impl Lease {
    /// One that was asked for `within` from now at most.
    fn from_deadline(ends_at: Instant, within: Nanos) -> Self {
        let latest = within.saturating_add(BACK_WITHIN).as_ns() / 1_000_000;
        Self { ends_at, back_by_unix_ms: unix_ms().saturating_add(latest) }
    }
}

impl HostChange<'_> {
    /// Sets the host's values; they go back at the end of the lease.
    pub(super) fn set_values(
        &self,
        member: &FleetMember,
        waiting: &mut InPlace<'_, '_>,
    ) -> (Lease, SettingEnded) {
        let verb = HostVerb::Set(HostSet {
            made_by: self.made_by.to_owned(),
            within_ns: Some(self.within.as_ns()),
            allow_link_reset: self.allow_link_reset,
            dry_run: self.dry_run,
            json: true,
            ..HostSet::default()
        });
        let values = member.host.setting_lines();
        let ends_at = Instant::now() + self.within.as_duration();
        let heard = run_for_document(self.fleet, member, &verb, &values, waiting);
        let lease = Lease::from_deadline(ends_at, self.within);
        let ended = match heard {
            HostReply::Done(document) => match document["changes"].as_array() {
                Some(changes) if changes.is_empty() => SettingEnded::Nothing,
                Some(_) => SettingEnded::Done,
                None => SettingEnded::Lost("its answer has no list of changes".to_owned()),
            },
            HostReply::Refused(FarError { message, kind }) if kind == "stranded" => {
                SettingEnded::Stranded(message)
            }
            HostReply::Refused(FarError { message, .. }) => SettingEnded::Refused(message),
            HostReply::Lost(why) => SettingEnded::Lost(why),
        };
        (lease, ended)
    }
}

impl Rollout<'_> {
    /// Has a host wait for another `--confirm-within`.
    pub(super) fn prepare_one(
        &self,
        part: &RolloutHost,
        waiting: &mut InPlace<'_, '_>,
    ) -> (Lease, Result<(), String>) {
        let within = self.args.confirm_within;
        let verb = HostVerb::Extend { made_by: self.name.clone(), within_ns: within.as_ns() };
        let ends_at = Instant::now() + within.as_duration();
        let mut heard = run_host_command(&self.fleet, &part.member, &verb, "", waiting);
        if matches!(heard, CommandReply::Lost(_)) {
            heard = run_host_command(&self.fleet, &part.member, &verb, "", waiting);
        }
        let ended = match heard {
            CommandReply::Done(_) => Ok(()),
            CommandReply::Refused(FarError { message, .. }) | CommandReply::Lost(message) => {
                Err(message)
            }
        };
        (Lease::from_deadline(ends_at, within), ended)
    }

    /// Confirms the change of every changed host. One that cannot be confirmed goes back by itself.
    pub(super) fn confirm_all(&mut self) {
        let changed = self.changed_hosts();
        let results = self.for_each_host(
            &changed,
            StopCondition::SecondStop(self.stop()),
            "hosts confirmed",
            |part, waiting| self.confirm_one(part, waiting),
        );
        self.record_phases(results, "its confirmation was interrupted");
    }

    fn confirm_one(&self, part: &RolloutHost, waiting: &mut InPlace<'_, '_>) -> HostPhase {
        let HostPhase::Changed(lease) = part.phase else { return part.phase.clone() };
        let verb = HostVerb::Confirm { made_by: Some(self.name.clone()) };
        let mut heard = run_for_document(&self.fleet, &part.member, &verb, "", waiting);
        if matches!(heard, HostReply::Lost(_)) {
            heard = run_for_document(&self.fleet, &part.member, &verb, "", waiting);
        }
        let why = match heard {
            HostReply::Done(document) => {
                return HostPhase::Confirmed(document["journal"][0].as_u64());
            }
            HostReply::Refused(FarError { message, kind }) => match kind.as_str() {
                "rolled_back" => return HostPhase::PutBack(message),
                "stranded" => return HostPhase::Stranded(message),
                _ => message,
            },
            HostReply::Lost(why) => why,
        };
        // The first answer may be what was lost.
        match look::inspect_host(&self.fleet, &part.member, None, waiting) {
            HostAnswer::Look(found)
                if found.interface.as_ref().is_some_and(|found| {
                    found.waiting.is_none() && find_differences(&part.member.host, found).is_empty()
                }) =>
            {
                HostPhase::Confirmed(None)
            }
            _ => HostPhase::GoesBack(why, lease),
        }
    }

    /// Puts every changed host back, as far as it can be reached.
    pub(super) fn put_back(&mut self) {
        let changed = self.changed_hosts();
        let results = self.for_each_host(
            &changed,
            StopCondition::SecondStop(self.stop()),
            "hosts put back",
            |part, waiting| self.put_back_one(part, waiting),
        );
        self.record_phases(results, "the wait for it was cut short");
    }

    fn put_back_one(&self, part: &RolloutHost, waiting: &mut InPlace<'_, '_>) -> HostPhase {
        let HostPhase::Changed(lease) = part.phase else { return part.phase.clone() };
        let verb = HostVerb::Restore { made_by: Some(self.name.clone()) };
        let mut heard = run_for_document(&self.fleet, &part.member, &verb, "", waiting);
        if matches!(heard, HostReply::Lost(_)) {
            heard = run_for_document(&self.fleet, &part.member, &verb, "", waiting);
        }
        match heard {
            HostReply::Done(_) => self.as_before(part, lease, waiting),
            HostReply::Refused(FarError { message, kind }) if kind == "stranded" => {
                HostPhase::Stranded(message)
            }
            HostReply::Refused(FarError { message, .. }) | HostReply::Lost(message) => {
                HostPhase::GoesBack(message, lease)
            }
        }
    }

    /// Compares a host that went back with what it was.
    fn as_before(
        &self,
        part: &RolloutHost,
        lease: Lease,
        waiting: &mut InPlace<'_, '_>,
    ) -> HostPhase {
        let found = match look::inspect_host(&self.fleet, &part.member, None, waiting) {
            HostAnswer::Look(found) => found.interface,
            _ => None,
        };
        let (Some(found), Some(before)) = (found, part.before.last()) else {
            return HostPhase::PutBack("it could not be read again".to_owned());
        };
        if let Some(waiting) = found.waiting {
            return HostPhase::GoesBack(format!("a change ({}) still waits", waiting.by), lease);
        }
        let differ = before.look.knobs.iter().zip(&found.knobs).filter(|(was, is)| was != is);
        let differ: Vec<String> = differ
            .map(|(was, is)| {
                format!(
                    "{} is {}, and was {}",
                    was.knob,
                    is.summarize_values(),
                    was.summarize_values()
                )
            })
            .collect();
        if differ.is_empty() {
            return HostPhase::PutBack(String::new());
        }
        HostPhase::PutBack(format!("another program has changed it: {}", differ.join("; ")))
    }

    /// Keeps what became of hosts. One without a result goes back by itself.
    fn record_phases(&mut self, results: Vec<(usize, Option<HostPhase>)>, otherwise: &str) {
        for (idx, result) in results {
            let RolloutHost { phase, .. } = &mut self.parts[idx];
            let HostPhase::Changed(lease) = *phase else { continue };
            *phase = result.unwrap_or_else(|| HostPhase::GoesBack(otherwise.to_owned(), lease));
        }
    }
}

/// Runs a command of the host's latput, and reads its answer.
fn run_for_document(
    fleet: &Fleet,
    member: &FleetMember,
    verb: &HostVerb,
    input: &str,
    waiting: &mut InPlace<'_, '_>,
) -> HostReply {
    match run_host_command(fleet, member, verb, input, waiting) {
        CommandReply::Done(out) => match serde_json::from_slice(&out) {
            Ok(document) => HostReply::Done(document),
            Err(_) => HostReply::Lost("its answer is not from latput".to_owned()),
        },
        CommandReply::Refused(error) => HostReply::Refused(error),
        CommandReply::Lost(why) => HostReply::Lost(why),
    }
}

/// Answer of a latput at the far end, as a document.
enum HostReply {
    Done(serde_json::Value),
    Refused(FarError),
    Lost(String),
}
