//! Steps on one host: set, confirm, put back. Each is a command of its latput there.

use std::time::Instant;

use latput_reach::broker::command::{HostVerb, SetOptions};
use latput_units::Nanos;

use super::{HostPhase, Lease, Rollout, RolloutOptions, RolloutPart, unix_ms};
use crate::fleet::{HostErrorKind, HostWork, NoAnswer};
use crate::judge::find_differences;

/// Added to the time at which a host goes back by itself: what watches it looks twice a second, and putting back takes
/// its time.
const BACK_WITHIN: Nanos = Nanos::from_s(5);

impl Lease {
    /// One that was asked for `within` from now at most.
    fn from_deadline(ends_at: Instant, within: Nanos) -> Self {
        let latest = within.saturating_add(BACK_WITHIN).as_ns() / 1_000_000;
        Self { ends_at, back_by_unix_ms: unix_ms().saturating_add(latest) }
    }
}

impl Rollout<'_> {
    /// Sets the host's values, which go back at the end of the lease; whether one was to be changed. In a dry run the
    /// host only says what it would do.
    pub(super) fn set_values(
        &self,
        work: &mut HostWork<'_, '_>,
    ) -> (Lease, Result<bool, NoAnswer>) {
        let RolloutOptions { confirm_within, allow_link_reset, dry_run, .. } = *self.options;
        let verb = HostVerb::Set(SetOptions {
            made_by: self.name.clone(),
            within_ns: Some(confirm_within.as_ns()),
            allow_link_reset,
            dry_run,
            json: true,
            ..SetOptions::default()
        });
        let ends_at = Instant::now() + confirm_within.as_duration();
        let heard = work.request_json(&verb, &work.host().setting_lines());
        let ended = heard.and_then(|document| match document["changes"].as_array() {
            Some(changes) => Ok(!changes.is_empty()),
            None => Err(NoAnswer::Strange("its answer has no list of changes")),
        });
        (Lease::from_deadline(ends_at, confirm_within), ended)
    }

    /// Has a host wait for another `--confirm-within`.
    pub(super) fn extend_lease(&self, work: &mut HostWork<'_, '_>) -> (Lease, Result<(), String>) {
        let within = self.options.confirm_within;
        let verb = HostVerb::Extend { made_by: self.name.clone(), within_ns: within.as_ns() };
        let ends_at = Instant::now() + within.as_duration();
        let ended = work.request_json_twice(&verb).map(drop).map_err(NoAnswer::into_words);
        (Lease::from_deadline(ends_at, within), ended)
    }

    /// Confirms the change of every changed host. One that cannot be confirmed goes back by itself.
    pub(super) fn confirm_all(&mut self) {
        let otherwise = "its confirmation was interrupted";
        self.end_changes("hosts confirmed", otherwise, Self::confirm_host);
    }

    fn confirm_host(&self, work: &mut HostWork<'_, '_>, lease: Lease) -> HostPhase {
        let verb = HostVerb::Confirm { made_by: Some(self.name.clone()) };
        let error = match work.request_json_twice(&verb) {
            Ok(document) => return HostPhase::Confirmed(document["journal"][0].as_u64()),
            Err(error) => error,
        };
        match error.kind() {
            Some(HostErrorKind::RolledBack) => return HostPhase::WentBack(error.into_words()),
            Some(HostErrorKind::Stranded) => return HostPhase::Stranded(error.into_words()),
            Some(HostErrorKind::Other) | None => {}
        }
        // The first answer may be what was lost.
        let found = work.read_interface(None).ok().and_then(|look| look.interface);
        let is_kept = found.is_some_and(|found| {
            found.waiting.is_none() && find_differences(work.host(), &found).is_empty()
        });
        if is_kept {
            return HostPhase::Confirmed(None);
        }
        HostPhase::GoesBack(error.into_words(), lease)
    }

    /// Puts every changed host back, as far as it can be reached.
    pub(super) fn put_back(&mut self) {
        let otherwise = "the wait for it was cut short";
        self.end_changes("hosts put back", otherwise, Self::put_host_back);
    }

    fn put_host_back(&self, work: &mut HostWork<'_, '_>, lease: Lease) -> HostPhase {
        let verb = HostVerb::Restore { made_by: Some(self.name.clone()) };
        match work.request_json_twice(&verb) {
            Ok(_) => compare_with_before(&self.parts[work.at], lease, work),
            Err(error) if error.kind() == Some(HostErrorKind::Stranded) => {
                HostPhase::Stranded(error.into_words())
            }
            Err(error) => HostPhase::GoesBack(error.into_words(), lease),
        }
    }

    /// Does `job` for every changed host, and keeps what became of it. One that was not begun goes back by itself.
    fn end_changes(
        &mut self,
        what: &str,
        otherwise: &str,
        job: fn(&Self, &mut HostWork<'_, '_>, Lease) -> HostPhase,
    ) {
        let one = |work: &mut HostWork<'_, '_>| {
            let phase = &self.parts[work.at].phase;
            if let HostPhase::Changed(lease) = phase {
                job(self, work, *lease)
            } else {
                phase.clone()
            }
        };
        let until = self.until_second_stop();
        for (at, result) in self.fleet.for_each(&self.changed_hosts(), until, what, one) {
            let phase = &mut self.parts[at].phase;
            if let HostPhase::Changed(lease) = *phase {
                *phase = result.unwrap_or_else(|| HostPhase::GoesBack(otherwise.to_owned(), lease));
            }
        }
    }
}

/// Compares a host that went back with what it was.
fn compare_with_before(part: &RolloutPart, lease: Lease, work: &mut HostWork<'_, '_>) -> HostPhase {
    let found = work.read_interface(None).ok().and_then(|look| look.interface);
    let (Some(found), Some(before)) = (found, part.before.last()) else {
        return HostPhase::PutBack("it could not be read again".to_owned());
    };
    if let Some(waiting) = found.waiting {
        return HostPhase::GoesBack(format!("a change ({}) still waits", waiting.by), lease);
    }
    let differ = before.look.knobs.iter().zip(&found.knobs).filter(|(was, is)| was != is);
    let differ = differ.map(|(was, is)| {
        let (is, before) = (is.summarize_values(), was.summarize_values());
        format!("{} is {is}, and was {before}", was.knob)
    });
    let differ: Vec<String> = differ.collect();
    if differ.is_empty() {
        return HostPhase::PutBack(String::new());
    }
    HostPhase::PutBack(format!("another program has changed it: {}", differ.join("; ")))
}
