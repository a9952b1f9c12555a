//! Checkpoints: what an interface's knobs were before latput changed them, kept where a crash of
//! latput cannot lose it.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use latput_units::Nanos;
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::catalogue::spec::Scope;
use crate::device::Device;
use crate::setting::State;

/// The version of the stored form of [`Checkpoint`].
pub const SCHEMA: u32 = 2;

/// Key of a checkpoint and its lock: a network namespace and an interface of it, by number, because names change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot {
    /// As in [`Checkpoint::namespace`].
    pub namespace: u64,
    /// As in [`Device::index`]; 0, which no interface has, for the lock of the host's own knobs.
    pub index: u32,
}

impl Slot {
    /// Where the lock of the knobs that belong to the host is kept.
    pub const fn host(namespace: u64) -> Self {
        Self { namespace, index: 0 }
    }
}

impl fmt::Display for Slot {
    /// `4026531840-7`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.namespace, self.index)
    }
}

impl FromStr for Slot {
    type Err = ParseIntError;

    /// Reads `4026531840-7`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (namespace, index) = text.split_once('-').unwrap_or((text, ""));
        Ok(Self { namespace: namespace.parse()?, index: index.parse()? })
    }
}

/// Maker of a change, as told by its environment: for people to read, and never trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Maker {
    /// The command: `set`, `apply`, `undo`.
    pub command: String,
    /// The name of who called sudo or logged in, or of the user; its number (`uid 7`) where it has no name.
    pub user: String,
    /// Which run of the command, where several may wait on one host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
}

impl Maker {
    /// The same user by another command: `apply`, or `apply/RUN`.
    pub fn with_command(self, command: &str) -> Self {
        let (command, run) = match command.split_once('/') {
            Some((command, run)) => (command, Some(run.to_owned())),
            None => (command, None),
        };
        Self { command: command.to_owned(), run, ..self }
    }

    /// Whether it is what such a text names.
    pub fn is_command(&self, command: &str) -> bool {
        let named = Self::default().with_command(command);
        (&named.command, &named.run) == (&self.command, &self.run)
    }
}

/// How to put one interface back.
///
/// The boot, the namespace and the device say which interface is meant; its name is for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// [`SCHEMA`]; another number is refused when read.
    #[serde(deserialize_with = "known_schema")]
    pub schema: u32,
    /// The boot the values belong to (`/proc/sys/kernel/random/boot_id`): settings do not outlive it.
    pub boot_id: String,
    /// The network namespace, by the inode number of `/proc/self/ns/net`.
    pub namespace: u64,
    /// The cookie that tells it from a later namespace with the same inode number (`SO_NETNS_COOKIE`, Linux 5.14).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_cookie: Option<u64>,
    /// The interface's name, the last one known.
    pub interface: String,
    /// Which interface it is.
    pub device: Device,
    /// The process that made the checkpoint.
    pub pid: u32,
    /// When it was made, in milliseconds since 1970 (UTC).
    pub created_unix_ms: u64,
    /// The values to put back; the earliest ones when many changes were made in a row.
    pub undo: State,
    /// Values that the change wrote, as read back: a value that is neither this nor the one to put back was set by
    /// somebody else. Empty while a change is under way.
    #[serde(default, skip_serializing_if = "State::is_empty")]
    pub written: State,
    /// Values that the change is about to write, where nothing else of it moves them: before `written` is known, a value that is
    /// neither this nor the one to put back was set by somebody else.
    #[serde(default, skip_serializing_if = "State::is_empty")]
    pub planned: State,
    /// Values that moved along with the change; for people and for the journal, and never put back by itself.
    #[serde(default, skip_serializing_if = "Along::is_empty")]
    pub along: Along,
    /// Values that a restore still has to put back; `None` before one has begun. From its first write on a value that
    /// differs from the one to put back is ours, whatever it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub going_back: Option<State>,
    /// Where the change is whole and stands until somebody confirms it: the end of that time, since the
    /// boot (`CLOCK_BOOTTIME`, which goes on while the machine sleeps). `None` while it is being made.
    #[serde(default, rename = "confirm_by_ns", skip_serializing_if = "Option::is_none")]
    pub confirm_by: Option<Nanos>,
    /// Maker of the change; `None` where an older latput made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Maker>,
    /// The number of the journal's entry that this change undoes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<u64>,
    /// Why the change was put back, where it is kept in the journal although it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub went_back: Option<String>,
}

/// The values that moved, or were lost, with a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Along {
    /// Values before the change. One that `after` does not have was lost: the change took its place away.
    pub before: State,
    /// Values since.
    pub after: State,
}

impl Along {
    /// Whether nothing moved and nothing was lost.
    pub fn is_empty(&self) -> bool {
        self.before.is_empty()
    }
}

impl Checkpoint {
    /// A checkpoint of `interface`, which is `device`, that holds no value yet.
    pub fn new(context: &Context, interface: &str, device: Device) -> Self {
        Self {
            schema: SCHEMA,
            boot_id: context.boot_id.clone(),
            namespace: context.namespace,
            namespace_cookie: context.namespace_cookie,
            interface: interface.to_owned(),
            device,
            pid: context.pid,
            created_unix_ms: context.now_unix_ms,
            undo: State::default(),
            written: State::default(),
            planned: State::default(),
            along: Along::default(),
            going_back: None,
            confirm_by: None,
            by: Some(context.by.clone()),
            undoes: context.undoes,
            went_back: None,
        }
    }

    /// The slot that it is kept under.
    pub const fn slot(&self) -> Slot {
        Slot { namespace: self.namespace, index: self.device.index }
    }

    /// Returns the values that a restore has to put back: all of [`undo`](Self::undo) before it has begun.
    pub const fn to_put_back(&self) -> &State {
        match &self.going_back {
            Some(left) => left,
            None => &self.undo,
        }
    }

    /// Returns the values by which another one is known to be somebody else's.
    pub fn own_values(&self) -> &State {
        if self.written.is_empty() { &self.planned } else { &self.written }
    }

    /// Whether both are of one and the same change, however far it had come.
    pub fn is_of_the_change(&self, other: &Self) -> bool {
        let maker = |checkpoint: &Self| (checkpoint.pid, checkpoint.created_unix_ms);
        maker(self) == maker(other) && self.boot_id == other.boot_id && self.slot() == other.slot()
    }

    /// Owner of the change: `alice (latput set, process 77)`.
    pub fn owner(&self) -> String {
        let Self { by, pid, .. } = self;
        match by {
            Some(by) if !by.command.is_empty() => {
                format!("{} (latput {}, process {pid})", by.user, by.command)
            }
            Some(by) => format!("{} (process {pid})", by.user),
            None => format!("process {pid}"),
        }
    }

    /// Whether it was made in this boot and in the namespace of `context`; `None` if the namespace is gone,
    /// because another has its number.
    pub fn is_of_namespace(&self, context: &Context) -> Option<bool> {
        let cookies = (self.namespace_cookie, context.namespace_cookie);
        let is_reused = matches!(cookies, (Some(then), Some(now)) if then != now);
        match self.namespace == context.namespace {
            true if is_reused => None,
            same => Some(same),
        }
    }

    /// Whether it holds values that belong to the host and not to its interface.
    pub fn holds_host_knobs(&self) -> bool {
        self.undo.0.keys().any(|(knob, _)| knob.spec().scope == Scope::Host)
    }
}

/// Circumstances of a change: the facts of the world that a checkpoint records, and the permissions of the change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// This boot, as in [`Checkpoint::boot_id`].
    pub boot_id: String,
    /// The network namespace that the kernel value stands for, as in [`Checkpoint::namespace`].
    pub namespace: u64,
    /// As in [`Checkpoint::namespace_cookie`].
    pub namespace_cookie: Option<u64>,
    /// This process.
    pub pid: u32,
    /// Now, in milliseconds since 1970 (UTC).
    pub now_unix_ms: u64,
    /// Now, since the boot, on the clock of [`Checkpoint::confirm_by`].
    pub since_boot: Nanos,
    /// Whether changes may take the link down. Going back always may.
    pub link_resets: LinkResets,
    /// Maker of the change.
    pub by: Maker,
    /// As in [`Checkpoint::undoes`].
    pub undoes: Option<u64>,
}

/// Whether a change may take the link of its interface down and up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkResets {
    /// Nobody has said so.
    #[default]
    Refused,
    /// Nobody has named the interface, which carries the connection that latput is led through.
    RefusedOnControl,
    /// It may.
    Allowed,
}

/// Where checkpoints are kept.
///
/// An implementation guarantees:
///
/// * **Durable.** When [`save`](Self::save) returns `Ok`, the checkpoint is read back complete after
///   `kill -9`: written to a temporary file, synced, renamed over the old one, directory synced.
///   After an `Err` the checkpoint that was there before is still there, whole.
/// * **One checkpoint** per slot. A save replaces it.
/// * **All or nothing.** [`archive`](Self::archive) turns the checkpoint into an entry of the journal in one step:
///   after `kill -9` there is one of the two, never both and never neither.
/// * **One owner.** A lock (which the operating system drops when the process dies) keeps two latputs
///   off one interface: every method but [`list`](Self::list) fails with [`StoreError::Locked`] while
///   another process holds it.
pub trait CheckpointStore {
    /// Takes the lock of this interface, and gives back the checkpoint that an earlier, unfinished
    /// change left. Claiming again from the same store is harmless. The name is for whoever is refused.
    fn claim(&mut self, slot: Slot, interface: &str) -> Result<Option<Checkpoint>, StoreError>;

    /// Like [`claim`](Self::claim), for whoever puts a change back: a lock that cannot be made, because the disk is
    /// full, read-only or broken, must not keep a host from being put back. Nobody else can make it then either.
    fn claim_to_restore(
        &mut self,
        slot: Slot,
        interface: &str,
    ) -> Result<Option<Checkpoint>, StoreError> {
        self.claim(slot, interface)
    }

    /// Keeps `checkpoint` for its interface, which has been claimed.
    fn save(&mut self, checkpoint: &Checkpoint) -> Result<(), StoreError>;

    /// Forgets the checkpoint, if there is one, and lets go of the lock.
    fn remove(&mut self, slot: Slot) -> Result<(), StoreError>;

    /// Turns the checkpoint, if there is one, into the newest entry of the journal, and lets go of the lock.
    /// Gives the entry's number.
    fn archive(&mut self, slot: Slot) -> Result<Option<u64>, StoreError>;

    /// Every checkpoint kept, of all namespaces and boots. One that cannot be read is an error in
    /// its place and hides no other.
    fn list(&self) -> Result<Vec<Result<Checkpoint, StoreError>>, StoreError>;

    /// As [`claim`](Self::claim), without taking the lock, and as far as that can be told.
    fn peek(&self, slot: Slot, interface: &str) -> Result<Option<Checkpoint>, StoreError>;

    /// Fails where a checkpoint could not be kept now, because its folder is full, read-only or somebody else's. Leaves nothing.
    fn check_room(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

impl<S: CheckpointStore + ?Sized> CheckpointStore for &mut S {
    fn claim(&mut self, slot: Slot, interface: &str) -> Result<Option<Checkpoint>, StoreError> {
        (**self).claim(slot, interface)
    }

    fn claim_to_restore(
        &mut self,
        slot: Slot,
        interface: &str,
    ) -> Result<Option<Checkpoint>, StoreError> {
        (**self).claim_to_restore(slot, interface)
    }

    fn save(&mut self, checkpoint: &Checkpoint) -> Result<(), StoreError> {
        (**self).save(checkpoint)
    }

    fn remove(&mut self, slot: Slot) -> Result<(), StoreError> {
        (**self).remove(slot)
    }

    fn archive(&mut self, slot: Slot) -> Result<Option<u64>, StoreError> {
        (**self).archive(slot)
    }

    fn list(&self) -> Result<Vec<Result<Checkpoint, StoreError>>, StoreError> {
        (**self).list()
    }

    fn peek(&self, slot: Slot, interface: &str) -> Result<Option<Checkpoint>, StoreError> {
        (**self).peek(slot, interface)
    }

    fn check_room(&self) -> Result<(), StoreError> {
        (**self).check_room()
    }
}

/// A checkpoint that could not be kept, read or forgotten.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Another process holds the interface.
    #[error("{interface} is in use by another latput (pid {pid})")]
    Locked {
        /// The interface.
        interface: String,
        /// The other process; 0 when it could not be told.
        pid: u32,
    },
    /// The process may not.
    #[error("{path}: cannot {operation} the checkpoint: {reason}: run as root")]
    Permission {
        /// The file.
        path: String,
        /// `write`, `read`, `remove` ...
        operation: &'static str,
        /// The operating system's words.
        reason: String,
    },
    /// A full disk, a read-only file system, an I/O error.
    #[error("{path}: cannot {operation} the checkpoint: {reason}")]
    Io {
        /// The file.
        path: String,
        /// `write`, `read`, `remove` ...
        operation: &'static str,
        /// The operating system's words.
        reason: String,
    },
    /// There is a file, but it holds no checkpoint that this version understands.
    #[error(
        "{path}: not a checkpoint of this version: {reason}: restore it with the latput that wrote \
         it, or move it away once the interface is as it should be"
    )]
    Damaged {
        /// The file.
        path: String,
        /// The problem of its content.
        reason: String,
    },
}

impl StoreError {
    /// Whether the process lacks a privilege.
    pub const fn is_permission(&self) -> bool {
        matches!(self, Self::Permission { .. })
    }
}

fn known_schema<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let schema = u32::deserialize(deserializer)?;
    if schema == SCHEMA {
        Ok(schema)
    } else {
        Err(de::Error::custom(format!("its schema is {schema}, and only {SCHEMA} is known")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Knob, Place, Value};

    #[test]
    fn checkpoint_round_trips() {
        let checkpoint = sample();
        let text = serde_json::to_string(&checkpoint).unwrap();
        assert_eq!(serde_json::from_str::<Checkpoint>(&text).unwrap(), checkpoint);
        assert!(!text.contains("confirm_by") && !text.contains("undoes"));
        let older = Checkpoint { by: None, ..checkpoint.clone() };
        let text = serde_json::to_string(&older).unwrap();
        assert!(!text.contains("\"by\""), "as an older latput wrote it");
        assert_eq!(serde_json::from_str::<Checkpoint>(&text).unwrap(), older);
        let waiting = Checkpoint { confirm_by: Some(Nanos::from_s(7)), ..checkpoint };
        let text = serde_json::to_string(&waiting).unwrap();
        assert_eq!(serde_json::from_str::<Checkpoint>(&text).unwrap(), waiting);
    }

    /// The file was written by the program of that day, the first with this schema.
    #[test]
    fn checkpoint_of_earlier_latput_is_read() {
        let text = include_str!("../tests/data/checkpoint-of-2026-11-23.json");
        let checkpoint: Checkpoint = serde_json::from_str(text).unwrap();
        assert_eq!((checkpoint.interface.as_str(), checkpoint.device.index), ("eth0", 2));
        assert_eq!(checkpoint.confirm_by, Some(Nanos::from_s(7)));
        assert_eq!((checkpoint.undo.0.len(), checkpoint.written.0.len()), (9, 9));
        let before: Vec<String> =
            checkpoint.undo.0.iter().map(|((knob, _), value)| format!("{knob}={value}")).collect();
        let meant = "rx-ring=256 mtu=1500 gro=on qdisc=fq_codel smp-affinity=0-1 rps-cpus=none xps-cpus=0 \
                     busy-poll=0us gro-flush-timeout=0us";
        assert_eq!(before.join(" "), meant);
        // Nothing that it holds is lost where it is written again.
        let before: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_value(&checkpoint).unwrap(), before);
    }

    #[test]
    fn maker_is_named_by_command_and_run() {
        let alice = Maker { user: "alice".into(), ..Maker::default() };
        let run = alice.clone().with_command("apply/1a");
        assert!(run.is_command("apply/1a") && run.user == "alice");
        for other in ["apply", "apply/1b", "set", "set/1a", ""] {
            assert!(!run.is_command(other), "{other}");
        }
        let checkpoint = Checkpoint { by: Some(run), ..sample() };
        assert_eq!(checkpoint.owner(), "alice (latput apply, process 7)");
        let text = serde_json::to_string(&checkpoint).unwrap();
        assert_eq!(serde_json::from_str::<Checkpoint>(&text).unwrap(), checkpoint);
        assert!(!serde_json::to_string(&sample()).unwrap().contains("\"run\""), "as before");
        assert_eq!(Checkpoint { by: None, ..checkpoint }.owner(), "process 7");
    }

    #[test]
    fn foreign_checkpoint_is_refused() {
        let text = serde_json::to_string(&sample()).unwrap();
        check_refused(&text.replace("\"schema\":2", "\"schema\":1"), "schema is 1");
        check_refused(&text.replace("\"schema\":2,", ""), "missing field `schema`");
        check_refused(&text.replace("\"pid\"", "\"pidd\""), "unknown field `pidd`");
        check_refused(
            &text.replace("\"mtu\"", "\"mut\""),
            "there is no knob `mut`: did you mean `mtu`?",
        );
        check_refused(&text[..text.len() / 2], "EOF");
        check_refused("", "EOF");
        let entry = r#"{"knob":"mtu","place":"device","value":{"count":1500}}"#;
        check_refused(&text.replace(entry, &format!("{entry},{entry}")), "two values");
    }

    #[test]
    fn change_is_recognised_at_any_progress() {
        let one = sample();
        let further = Checkpoint {
            interface: "renamed0".into(),
            written: one.undo.clone(),
            confirm_by: Some(Nanos::from_s(7)),
            ..one.clone()
        };
        assert!(one.is_of_the_change(&one) && one.is_of_the_change(&further));
        let device = Device { index: 3, ..one.device.clone() };
        for other in [
            Checkpoint { pid: 8, ..one.clone() },
            Checkpoint { created_unix_ms: 2, ..one.clone() },
            Checkpoint { boot_id: "c".into(), ..one.clone() },
            Checkpoint { namespace: 1, ..one.clone() },
            Checkpoint { device, ..one.clone() },
        ] {
            assert!(!one.is_of_the_change(&other), "{other:?}");
        }
    }

    #[test]
    fn one_host_knob_holds_host_knobs() {
        let mut checkpoint = sample();
        assert!(!checkpoint.holds_host_knobs());
        checkpoint.undo.0.insert((Knob::BusyPoll, Place::Host), Value::Time(Nanos::ZERO));
        assert!(checkpoint.holds_host_knobs());
        checkpoint.undo.0.retain(|(knob, _), _| *knob == Knob::BusyPoll);
        assert!(checkpoint.holds_host_knobs());
    }

    fn sample() -> Checkpoint {
        let context = Context {
            boot_id: "b".into(),
            namespace: 4_026_531_840,
            namespace_cookie: Some(1),
            pid: 7,
            now_unix_ms: 1,
            since_boot: Nanos::ZERO,
            link_resets: LinkResets::Allowed,
            by: Maker { command: "set".into(), user: "uid 0".into(), run: None },
            undoes: None,
        };
        let mut checkpoint =
            Checkpoint::new(&context, "eth0", Device { index: 2, ..Device::default() });
        checkpoint.undo.0.insert((Knob::Mtu, Place::Device), Value::Count(1500));
        checkpoint.undo.0.insert((Knob::Gro, Place::Device), Value::Switch(true));
        checkpoint
    }

    #[track_caller]
    fn check_refused(text: &str, why: &str) {
        let error = serde_json::from_str::<Checkpoint>(text).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}
