//! A watcher at work: it waits for the confirmation, and puts the change back when its time is over.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use latput_knobs::transaction::{self, Foreign, RestoreError, Restored};
use latput_knobs::{
    self as knobs, Checkpoint, CheckpointStore, KernelRead as _, Slot, StoreError, Whereabouts,
};
use latput_linux::checkpoint::FolderId;
use latput_linux::{FileCheckpoints, LinuxKernel, process};
use latput_load::Stop;
use latput_protocol::folders::checkpoints_dir;
use latput_protocol::text::format_error_chain;
use latput_units::Nanos;

use super::peer::PeerWatcher;
use super::{Args, ChangeMaker, MAKER_WITHIN};
use crate::commands::way_back;

/// Interval at which a watcher checks for the confirmation and for a stop.
const LOOK_EVERY: Nanos = Nanos::from_ms(500);
/// Most time between two attempts to put the change back, at first.
const ATTEMPT_EVERY: Duration = Duration::from_secs(1);
/// How long that is after the first attempt; then they are rare, and never end.
const OFTEN_FOR: Nanos = Nanos::from_s(60);
const RARELY: Duration = Duration::from_secs(30);

/// Signals from outside that end a watcher.
pub(super) struct WatchEnds<'a> {
    pub(super) stop: &'a Stop,
    /// Set by the signal of whoever has confirmed the change or put it back.
    pub(super) is_settled: Arc<AtomicBool>,
}

/// A watcher at work.
pub(super) struct ConfirmDeadline<'a> {
    args: Args,
    /// The checkpoint of the change.
    change: Checkpoint,
    /// The same as it was last read, with its values.
    seen: Option<Checkpoint>,
    /// The folder that it was in.
    folder: Option<FolderId>,
    maker: ChangeMaker,
    /// Deadline of the maker.
    by: Nanos,
    /// End of the wait for the maker after this process was told to end.
    end_by: Option<Nanos>,
    /// The first attempt to put the change back.
    attempted: Option<Nanos>,
    /// Whether the maker was killed.
    is_ended: bool,
    /// Once the values are back and only the checkpoint is left: why they went back, and warnings of that.
    back: Option<(&'static str, Vec<String>)>,
    /// The kernel's log, for the first failure. It is open before that, which may be a lack of
    /// descriptors.
    kernel_log: Option<File>,
    peer: PeerWatcher,
    stop: &'a Stop,
    is_settled: Arc<AtomicBool>,
    origin: knobs::Context,
    kernel: LinuxKernel,
}

impl<'a> ConfirmDeadline<'a> {
    pub(super) fn new(
        args: Args,
        (change, maker, peer): (Checkpoint, ChangeMaker, PeerWatcher),
        WatchEnds { stop, is_settled }: WatchEnds<'a>,
        (origin, kernel): (knobs::Context, LinuxKernel),
    ) -> Self {
        let by = Nanos::from_ns(args.by_ns);
        Self {
            args,
            change,
            seen: None,
            folder: None,
            maker,
            by,
            end_by: None,
            attempted: None,
            is_ended: false,
            back: None,
            kernel_log: OpenOptions::new().write(true).open("/dev/kmsg").ok(),
            peer,
            stop,
            is_settled,
            origin,
            kernel,
        }
    }

    /// Watches until the change was confirmed or put back, or was never made.
    pub(super) fn run(mut self) {
        // The store's lock ends with the store, so that a confirmation never waits for it.
        let store = || FileCheckpoints::new(&checkpoints_dir());
        while let Some(left) = self.time_left(&store()) {
            if left > Nanos::ZERO {
                self.peer.restart_if_dead(&self.args);
                self.peer.wait_at_most(left.min(LOOK_EVERY), !self.maker.is_done());
                continue;
            }
            self.is_ended |= self.maker.kill_if_running();
            if self.try_put_back(&mut store()) || self.stop.is_raised_again() {
                return;
            }
            self.peer.restart_if_dead(&self.args);
            self.wait_to_retry();
        }
    }

    /// Waits for the next attempt; no longer where this process was told twice to end.
    fn wait_to_retry(&self) {
        let mut left = self.retry_delay();
        while !left.is_zero() && !self.stop.is_raised_again() {
            let slice = left.min(LOOK_EVERY.as_duration());
            std::thread::sleep(slice);
            left -= slice;
        }
    }

    /// Time left for the change to be made or confirmed. `None` once it was confirmed, put back, or
    /// never made.
    fn time_left(&mut self, store: &FileCheckpoints) -> Option<Nanos> {
        // Checked before the store, which is final once the maker is done.
        let is_done = self.maker.is_done();
        let now = process::since_boot();
        let kept = store.kept(self.change.slot());
        let by = match kept {
            Ok(kept) => match kept.filter(|kept| kept.is_of_the_change(&self.change)) {
                None if is_done && !self.is_away(store) => return None,
                None => self.by_as_seen(),
                Some(kept) => {
                    let by = kept.confirm_by;
                    self.seen = Some(kept);
                    self.folder = store.folder().or(self.folder);
                    // Without a deadline, the change is incomplete.
                    by.unwrap_or(if is_done { Nanos::ZERO } else { self.by })
                }
            },
            // It may have been confirmed, or not: who can read it again will know.
            Err(error) => {
                self.log_problem(&format!("its checkpoint cannot be read: {error}"));
                self.by_as_seen()
            }
        };
        if self.stop.is_raised() {
            let end_by = if is_done { now } else { now.saturating_add(MAKER_WITHIN) };
            self.end_by = Some(self.end_by.map_or(end_by, |known| known.min(end_by)));
        }
        let by = self.end_by.map_or(by, |end_by| by.min(end_by));
        Some(by.saturating_sub(now))
    }

    fn by_as_seen(&self) -> Nanos {
        self.seen.as_ref().and_then(|seen| seen.confirm_by).unwrap_or(self.by)
    }

    /// Whether the folder of the checkpoints is gone or another one is in its place, and with it the checkpoint, although
    /// nobody has confirmed the change or put it back.
    fn is_away(&self, store: &FileCheckpoints) -> bool {
        // Believed here alone: whoever sends this signal to all processes must not end a watch.
        let is_settled = self.is_settled.load(Ordering::Relaxed);
        let Some(seen) = self.seen.as_ref().filter(|_| self.back.is_none() && !is_settled) else {
            return false;
        };
        let is_another = store.folder().zip(self.folder).is_some_and(|(now, then)| now != then);
        (store.is_gone() || is_another) && !self.is_interface_gone(seen)
    }

    /// Whether nothing is left to put back: the interface was deleted, or it is not here when the time is over.
    fn is_interface_gone(&self, seen: &Checkpoint) -> bool {
        match self.kernel.find(&seen.device) {
            Ok(Whereabouts::Deleted) => true,
            Ok(Whereabouts::Unknown) => self.by_as_seen() <= process::since_boot(),
            Ok(Whereabouts::Here(_)) | Err(_) => false,
        }
    }

    /// Puts the change back, if it still exists; returns whether that is settled.
    fn try_put_back(&mut self, store: &mut FileCheckpoints) -> bool {
        self.attempted.get_or_insert_with(process::since_boot);
        if self.is_away(store) && self.seen.is_some() {
            return self.put_back_as_seen(store);
        }
        let slot = self.change.slot();
        let kept = match store.claim_to_restore(slot, &self.change.interface) {
            Ok(Some(kept)) if kept.is_of_the_change(&self.change) => kept,
            // Somebody confirms it or puts it back right now, or its maker has not ended yet.
            Err(StoreError::Locked { .. }) => return false,
            // Its file says nothing any more, and stays for a person to look at.
            Err(StoreError::Damaged { .. }) if self.seen.is_some() => {
                return self.put_back_as_seen(store);
            }
            Err(error) => {
                self.log_problem(&format!("its checkpoint cannot be read: {error}"));
                return false;
            }
            Ok(None) => {
                let _ = store.remove(slot); // the lock's file
                return true;
            }
            Ok(Some(_)) => return true,
        };
        if let Some((why, moved)) = &self.back {
            if store.remove(slot).is_err() {
                return false;
            }
            let ending = RestoreEnding::AllBack;
            let _no_room = store.tell_late(&kept, &ending.describe_to_caller(why, moved));
            way_back::log_went_back(store, &kept, ending.describe_to_journal(why, moved));
            return true;
        }
        let why = self.restore_reason(&kept);
        // Noted before the values change, so that it is known to anyone who sees them.
        let noted = RestoreEnding::AllBack.describe_to_caller(why, &[]);
        let is_noted = store.tell_late(&kept, &noted).is_ok();
        let moved = self.restore_warnings(&kept);
        let ended = self.put_back(store, &kept, &moved);
        let said = match &ended {
            Ok(ending) => ending.describe_to_caller(why, &moved),
            Err(failure) => failure.clone(),
        };
        // The checkpoint that is gone may have made room for it.
        if said != noted || !is_noted {
            let _no_room = store.tell_late(&kept, &said);
        }
        if let Ok(ending) = ended {
            way_back::log_went_back(store, &kept, ending.describe_to_journal(why, &moved));
        }
        store.kept(slot).is_ok_and(|kept| kept.is_none())
    }

    /// Puts the values back that this process remembers; returns whether that is settled.
    fn put_back_as_seen(&mut self, store: &FileCheckpoints) -> bool {
        let Some(seen) = self.seen.clone() else { return false };
        let mut remembered = RememberedCheckpoint(seen.clone());
        let ended = self.put_back(&mut remembered, &seen, &[]);
        self.seen = Some(remembered.0);
        let Ok(ending) = ended else { return false };
        // A folder in the place of ours is not written to.
        if !self.is_away(store) {
            let why = self.restore_reason(&seen);
            let _no_room = store.tell_late(&seen, &ending.describe_to_caller(why, &[]));
            way_back::log_went_back(store, &seen, ending.describe_to_journal(why, &[]));
        }
        true
    }

    /// Puts the values back; returns how that ended, or why it failed.
    fn put_back(
        &mut self,
        store: &mut dyn CheckpointStore,
        kept: &Checkpoint,
        moved: &[String],
    ) -> Result<RestoreEnding, String> {
        let why = self.restore_reason(kept);
        match transaction::restore(&mut self.kernel, store, &self.origin, kept) {
            Ok(Restored::InterfaceGone) => Ok(RestoreEnding::InterfaceGone),
            Ok(Restored::Done { others, .. }) if !others.is_empty() => {
                Ok(RestoreEnding::Except(others))
            }
            Ok(_) => Ok(RestoreEnding::AllBack),
            Err(error) => {
                // From now on a value that differs is somebody else's.
                if matches!(error, RestoreError::Forget { .. }) {
                    self.back = Some((why, moved.to_vec()));
                }
                let failure =
                    format!("{why}, and putting it back failed: {}", format_error_chain(&error));
                self.log_problem(&failure);
                Err(failure)
            }
        }
    }

    /// Warnings of going back, in sentences.
    fn restore_warnings(&self, kept: &Checkpoint) -> Vec<String> {
        let kept = way_back::with_its_name_of_now(&self.kernel, &self.origin, kept.clone());
        match transaction::plan_restore(&self.kernel, &self.origin, &kept) {
            Ok(Restored::Done { changes, .. }) => {
                way_back::restore_warnings(&self.kernel, &kept, &changes)
            }
            _ => Vec::new(),
        }
    }

    fn restore_reason(&self, kept: &Checkpoint) -> &'static str {
        match kept.confirm_by {
            None if self.is_ended => {
                "the change was not finished in time, and its process was ended"
            }
            None => "the change was not finished",
            Some(by) if by <= process::since_boot() => "no confirmation came in time",
            Some(_) => "the process that watched the time was told to end",
        }
    }

    /// Time until the next attempt.
    fn retry_delay(&self) -> Duration {
        let since =
            self.attempted.map_or(Nanos::ZERO, |first| process::since_boot().saturating_sub(first));
        if since < OFTEN_FOR { ATTEMPT_EVERY } else { RARELY }
    }

    /// Says the first failure in the kernel's log: there is nobody else to tell.
    fn log_problem(&mut self, problem: &str) {
        let Some(mut log) = self.kernel_log.take() else { return };
        let interface = &self.change.interface;
        let problem: String = problem.chars().filter(|c| !c.is_control()).take(700).collect();
        let pid = std::process::id();
        let line = format!("<3>latput[{pid}]: {interface}: {problem}; this is tried again\n");
        let _no_log = log.write_all(line.as_bytes());
    }
}

/// How a change went back.
enum RestoreEnding {
    AllBack,
    /// Somebody else has set these values since.
    Except(Vec<Foreign>),
    InterfaceGone,
}

impl RestoreEnding {
    /// The sentence for whoever comes too late to confirm it.
    fn describe_to_caller(&self, why: &str, moved: &[String]) -> String {
        let all_back = format!("{why}, and everything was put back");
        let sentence = match self {
            Self::AllBack => all_back,
            Self::Except(others) => way_back::with_others(&all_back, others),
            Self::InterfaceGone => format!("{why}, and the interface was deleted"),
        };
        with_warnings(&sentence, moved)
    }

    /// The reason in the journal, whose state says that it was put back.
    fn describe_to_journal(&self, why: &str, moved: &[String]) -> String {
        match self {
            Self::AllBack => with_warnings(why, moved),
            Self::Except(others) => with_warnings(&way_back::with_others(why, others), moved),
            Self::InterfaceGone => self.describe_to_caller(why, moved),
        }
    }
}

/// A sentence on a change, with the warnings of its way back.
fn with_warnings(sentence: &str, moved: &[String]) -> String {
    let warnings = moved.iter().map(|moved| format!(". Warning: {moved}"));
    [sentence.to_owned()].into_iter().chain(warnings).collect()
}

/// The store of a change whose folder is gone: what a watcher remembers of it.
struct RememberedCheckpoint(Checkpoint);

impl CheckpointStore for RememberedCheckpoint {
    fn claim(&mut self, slot: Slot, _: &str) -> Result<Option<Checkpoint>, StoreError> {
        Ok((slot == self.0.slot()).then(|| self.0.clone()))
    }

    fn save(&mut self, checkpoint: &Checkpoint) -> Result<(), StoreError> {
        self.0 = checkpoint.clone();
        Ok(())
    }

    fn remove(&mut self, _: Slot) -> Result<(), StoreError> {
        Ok(())
    }

    fn archive(&mut self, _: Slot) -> Result<Option<u64>, StoreError> {
        Ok(None)
    }

    fn list(&self) -> Result<Vec<Result<Checkpoint, StoreError>>, StoreError> {
        Ok(vec![Ok(self.0.clone())])
    }

    fn peek(&self, slot: Slot, _: &str) -> Result<Option<Checkpoint>, StoreError> {
        Ok((slot == self.0.slot()).then(|| self.0.clone()))
    }
}
