//! Shared parts of the commands that change an interface of this host and stay with the change.

use std::ops::RangeInclusive;

use latput_knobs::qdisc::ParameterValue;
use latput_knobs::transaction::{self, Applied, Foreign};
use latput_knobs::{
    self as knobs, AssignmentError, Checkpoint, KernelRead as _, Knob, Limits, LinkResets, Place,
    Setting, Value, parse_assignment,
};
use latput_linux::{Control, FileCheckpoints, LinuxKernel, checkpoint, facts, process};
use latput_protocol::folders;
use latput_report::interface_words;
use latput_units::{BitsPerSecond, Bytes, Nanos};

use crate::commands::watcher::Watcher;
use crate::context::CliContext;
use crate::exit::{CliError, ExitReason};
use crate::output;

/// Allowed times to wait for a confirmation.
const CONFIRM_WITHIN: RangeInclusive<Nanos> = Nanos::from_s(1)..=Nanos::from_s(24 * 3600);

/// Reads a `--confirm-within`.
pub(super) fn confirm_within(text: &str) -> Result<Nanos, String> {
    let time = Nanos::from_text_or_seconds(text).map_err(|error| error.to_string())?;
    CONFIRM_WITHIN.contains(&time).then_some(time).ok_or_else(|| "must be 1s to 24h".to_owned())
}

/// The interface's name where it was given by an alternative one (`ip link property add dev eth0 altname lan`). A name that is
/// nobody's stays: commands on changes know interfaces that are gone.
#[expect(clippy::unnecessary_wraps, reason = "clap takes a parser that may fail")]
pub(super) fn present_name(text: &str) -> Result<String, String> {
    let found = LinuxKernel::open().ok().and_then(|kernel| kernel.resolve_name(text));
    Ok(found.unwrap_or_else(|| text.to_owned()))
}

/// The words for a place of an interface of this host.
pub(super) fn place_words(knob: Knob, place: Place) -> String {
    let kernel = place.is_follower().then(LinuxKernel::open);
    match kernel {
        Some(Ok(kernel)) => kernel.place_words(knob, place),
        Some(Err(_)) | None => place.to_string(),
    }
}

/// Reads KNOB=VALUE words for any interface.
pub(super) fn setting_of(words: &[String]) -> Result<Setting, CliError> {
    setting_within(words, &|_| Limits::default())
}

/// Reads KNOB=VALUE words for an interface of this host: what is refused is told with the interface's own range.
pub(super) fn setting_on(interface: &str, words: &[String]) -> Result<Setting, CliError> {
    let limits = |knob| {
        LinuxKernel::open().map_or_else(|_| Limits::default(), |it| it.limits(interface, knob))
    };
    setting_within(words, &limits)
}

fn setting_within(words: &[String], limits: &dyn Fn(Knob) -> Limits) -> Result<Setting, CliError> {
    let mut setting = Setting::new();
    for word in words {
        let (knob, value) = parse_assignment(word).map_err(|error| {
            CliError::usage(match error {
                AssignmentError::Value(error) => error.words_within(limits(error.knob)),
                other => other.to_string(),
            })
        })?;
        if setting.insert(knob, value).is_some() {
            return Err(CliError::usage(format!("`{knob}` is given twice")));
        }
    }
    Ok(setting)
}

/// Identity of a measured interface, to tell it from another of its name: its driver and its place on its bus, of the
/// facts of a host.
pub(super) fn device_fingerprint(facts: &[(String, String)]) -> String {
    let of = |name: &str| {
        let fact = facts.iter().find(|(key, _)| key == name);
        fact.map_or("unknown", |(_, value)| value.as_str()).replace(' ', "-")
    };
    format!("{}/{}", of("driver"), of("bus address"))
}

/// Refuses an interface that has another driver or bus address than the measured one.
pub(super) fn must_be_measured(interface: &str, measured: &str) -> Result<(), CliError> {
    let found = device_fingerprint(&facts::collect(interface));
    if found == *measured {
        return Ok(());
    }
    let message = format!(
        "{interface} is not the measured interface: it is {found} (driver and bus address), but {measured} was \
         measured. If you mean it: --interface {interface}"
    );
    Err(CliError::new(ExitReason::Failed, message))
}

/// Which link resets a command line allows.
#[derive(Debug, clap::Args)]
pub(super) struct LinkResetArgs {
    /// Allow changes that take the link down and up; name the interface if it carries your connection.
    #[arg(long, value_name = "IFACE", num_args = 0..=1, require_equals = true)]
    #[expect(clippy::option_option, reason = "absent, without a name, and with one")]
    allow_link_reset: Option<Option<String>>,
}

impl LinkResetArgs {
    /// The link resets of `interface` that are allowed. Naming the interface twice allows one that
    /// cuts the own connection.
    pub(super) fn link_resets(&self, interface: &str) -> Result<LinkResets, CliError> {
        match &self.allow_link_reset {
            Some(Some(named)) if named == interface => Ok(LinkResets::Allowed),
            Some(Some(named)) => Err(CliError::usage(format!(
                "--allow-link-reset={named} must repeat the interface, which is {interface}"
            ))),
            _ if Control::find()?.interfaces.iter().any(|control| control == interface) => {
                Ok(LinkResets::RefusedOnControl)
            }
            Some(None) => Ok(LinkResets::Allowed),
            None => Ok(LinkResets::Refused),
        }
    }
}

/// Refuses, without somebody who confirms it, what can cut the connection that this is typed through.
pub(super) fn check_connection(
    interface: &str,
    setting: &Setting,
    link_resets: LinkResets,
    within: Option<Nanos>,
) -> Result<(), CliError> {
    let cuts = setting.iter().find(|(knob, value)| can_cut(**knob, value));
    match cuts {
        Some((knob, value)) if link_resets == LinkResets::RefusedOnControl && within.is_none() => {
            let message = format!(
                "{interface} carries your connection, and {knob}={value} can cut it. Give --confirm-within, so \
                 that it goes back unless you confirm it, or name the interface again: \
                 --allow-link-reset={interface}"
            );
            Err(CliError::new(ExitReason::Failed, message))
        }
        _ => Ok(()),
    }
}

/// Parameters of queue disciplines that bound what passes, or what may wait.
const BOUNDS: [&str; 5] = ["limit", "flow_limit", "memory_limit", "maxrate", "rate"];
/// A queue of fewer packets or bytes may starve a connection: it holds no window of ten segments (RFC 6928).
const FEW_PACKETS: u64 = 10;
const FEW_BYTES: Bytes = Bytes::new(15_000);
const SLOW: BitsPerSecond = BitsPerSecond::new(1_000_000);

/// Whether packets of the way to a host may no longer fit, or be dropped or starved.
fn can_cut(knob: Knob, value: &Value) -> bool {
    match value {
        Value::Qdisc(qdisc) => {
            let is_starving = |(_, parameter): (&str, ParameterValue)| match parameter {
                ParameterValue::Count(packets) => packets < FEW_PACKETS,
                ParameterValue::Size(bytes) => bytes < FEW_BYTES,
                ParameterValue::Rate(rate) => rate < SLOW,
                _ => false,
            };
            let is_bound = |(name, _): &(&str, ParameterValue)| BOUNDS.contains(name);
            matches!(qdisc.kind(), "netem" | "tbf")
                || qdisc.parameters().filter(is_bound).any(is_starving)
        }
        Value::Count(packets) if knob == Knob::Txqueuelen => *packets == 0,
        _ => knob == Knob::Mtu,
    }
}

/// A change on its way.
pub(super) struct ChangeTransaction {
    kernel: LinuxKernel,
    store: FileCheckpoints,
    origin: knobs::Context,
    watched: Option<(Watcher, Nanos)>,
}

/// How a change stays.
pub(super) struct CommitOutcome {
    /// The number of its entry in the journal; `None` if it waits, or nothing was to be changed.
    pub(super) number: Option<u64>,
    /// The time within which it must be confirmed.
    pub(super) waits: Option<Nanos>,
}

impl ChangeTransaction {
    /// Gets ready; `command` is what the journal will name.
    pub(super) fn begin(command: &str, link_resets: LinkResets) -> Result<Self, CliError> {
        let origin = checkpoint::context()?;
        let by = origin.by.clone().with_command(command);
        Ok(Self {
            kernel: LinuxKernel::open()?,
            store: FileCheckpoints::new(&folders::checkpoints_dir()),
            origin: knobs::Context { link_resets, by, ..origin },
            watched: None,
        })
    }

    /// Starts what puts the change of `interface` back unless it is confirmed within a time, if one is given.
    pub(super) fn start_watcher(
        &mut self,
        interface: &str,
        within: Option<Nanos>,
    ) -> Result<(), CliError> {
        if let Some(within) = within {
            if std::process::id() == 1 {
                return Err(CliError::usage(
                    "latput is the first process of its process namespace: whoever would put the change back ends with it. \
                     Run it in the host's (`podman run --pid=host`), or leave --confirm-within out",
                ));
            }
            let watcher = Watcher::start(&self.kernel, &self.origin, interface, within)?;
            self.watched = Some((watcher, within));
        }
        Ok(())
    }

    /// Moves `interface` to `setting`.
    pub(super) fn apply_setting(
        &mut self,
        interface: &str,
        setting: &Setting,
    ) -> Result<Applied, CliError> {
        let Self { kernel, store, origin, .. } = self;
        Ok(transaction::apply(kernel, store, origin, interface, setting)?)
    }

    /// Takes the lock of the interface of `earlier`, an entry of the journal, which is to be read again then.
    pub(super) fn claim_to_undo(&mut self, earlier: &Checkpoint) -> Result<(), CliError> {
        let Self { kernel, store, origin, .. } = self;
        Ok(transaction::claim_to_undo(kernel, store, origin, earlier)?)
    }

    /// Takes back entry `number` of the journal, which is `earlier`.
    pub(super) fn undo_entry(
        &mut self,
        number: u64,
        earlier: &Checkpoint,
    ) -> Result<(Applied, Vec<Foreign>), CliError> {
        let Self { kernel, store, origin, .. } = self;
        origin.undoes = Some(number);
        Ok(transaction::undo(kernel, store, origin, earlier)?)
    }

    /// Puts a change back that was just made; the error says why, unless that failed too.
    pub(super) fn put_back(mut self, applied: &Applied, why: &str) -> CliError {
        let Self { kernel, store, origin, .. } = &mut self;
        match transaction::restore(kernel, store, origin, &applied.undo) {
            Ok(_) => CliError::new(ExitReason::RolledBack, why),
            Err(error) => error.into(),
        }
    }

    /// Stays with the change, or lets it wait for its confirmation.
    ///
    /// Everything is let go of before anything is printed: a closed terminal must not keep the change from being
    /// put back.
    pub(super) fn commit_change(
        mut self,
        context: &CliContext,
        applied: &Applied,
    ) -> Result<CommitOutcome, CliError> {
        if context.stop.is_raised() {
            return Err(self.put_back(applied, "interrupted: everything was put back"));
        }
        let waits = self.watched.as_ref().map(|(_, within)| *within);
        let Some(within) = waits.filter(|_| !applied.changes.is_empty()) else {
            return match transaction::commit(&mut self.store, &applied.undo) {
                Ok(number) => Ok(CommitOutcome { number, waits: None }),
                Err(error) => {
                    let why = format!(
                        "{}: the change cannot be recorded, so everything was put back: {error}",
                        applied.undo.interface
                    );
                    Err(self.put_back(applied, &why))
                }
            };
        };
        let by = process::since_boot() + within;
        if let Err(error) = transaction::await_confirmation(&mut self.store, &applied.undo, by) {
            return Err(self.put_back(applied, &error.to_string()));
        }
        if self.watched.as_ref().is_some_and(|(watcher, _)| !watcher.is_alive()) {
            let why = "what would put it back in time was killed: everything is as it was";
            return Err(self.put_back(applied, why));
        }
        Ok(CommitOutcome { number: None, waits })
    }
}

impl CommitOutcome {
    /// Says on stderr that the change of `interface` waits, if it does.
    pub(super) fn print_confirm_reminder(&self, interface: &str) {
        if let Some(within) = self.waits {
            output::print_remark(&format!(
                "latput: everything goes back in {within} unless `latput confirm {}` comes",
                interface_words(interface)
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_that_can_cut_connection_needs_confirmation() {
        let check = |word: &str, resets, within| {
            let setting = setting_of(&[word.to_owned()]).unwrap();
            check_connection("eth0", &setting, resets, within).is_ok()
        };
        let on_control = LinkResets::RefusedOnControl;
        for cutting in [
            "qdisc=netem loss=100%",
            "qdisc=tbf rate=8kbps burst=1600 limit=3000",
            "mtu=1400",
            "qdisc=pfifo limit=0",
            "qdisc=fq limit=1",
            "qdisc=fq flow_limit=1",
            "qdisc=fq maxrate=8kbps",
            "qdisc=fq_codel memory_limit=1000",
            "queue-qdisc=pfifo limit=3",
        ] {
            assert!(!check(cutting, on_control, None), "{cutting}");
            assert!(check(cutting, on_control, Some(Nanos::from_s(60))), "{cutting}");
            assert!(check(cutting, LinkResets::Refused, None), "{cutting}: another interface");
            assert!(check(cutting, LinkResets::Allowed, None), "{cutting}: named twice");
        }
        for harmless in ["qdisc=fq", "qdisc=pfifo limit=100", "gro=off", "txqueuelen=500"] {
            assert!(check(harmless, on_control, None), "{harmless}");
        }
    }
}
