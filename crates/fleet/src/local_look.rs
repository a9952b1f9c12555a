//! Reads an interface of this host for the latput that asks, and records there that a rollout has ended.

use latput_knobs::{
    self as knobs, Capability, Checkpoint, KernelError, KernelErrorKind, KernelRead, Knob, Place,
    Slot, Standing, Value, parse_assignment, transaction,
};
use latput_linux::route::{Link, Route};
use latput_linux::{FileCheckpoints, LinuxKernel, checkpoint, facts, process};
use latput_protocol::folders;

use crate::context::Error;
use crate::journal::ROLLOUT;
use crate::look::{
    ALL, HostLook, InterfaceLook, KnobLook, PlaceLook, RolloutLook, RolloutState, SCHEMA,
    WaitingChange,
};

/// A knob that is asked for, and its wanted value where that may be a word.
type Question = (Knob, Option<Value>);

/// Looks at an interface of this host: at the knobs of `question`, a line each.
pub fn inspect_interface(interface: &str, question: &str) -> Result<HostLook, Error> {
    let kernel = LinuxKernel::open()?;
    let origin = checkpoint::context()?;
    let links = Route::open()?.links()?;
    let mut look = HostLook {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        boot_id: origin.boot_id.clone(),
        network_namespace: origin.namespace,
        interface: None,
        others: Vec::new(),
    };
    match links.iter().find(|link| link.name == interface) {
        Some(link) => look.interface = Some(inspect_link(&kernel, &origin, link, question)?),
        None => look.others = links.into_iter().map(|link| link.name).collect(),
    }
    Ok(look)
}

fn inspect_link(
    kernel: &LinuxKernel,
    origin: &knobs::Context,
    link: &Link,
    question: &str,
) -> Result<InterfaceLook, Error> {
    let slot = Slot { namespace: origin.namespace, index: link.index };
    Ok(InterfaceLook {
        name: link.name.clone(),
        index: link.index,
        driver: facts::driver(link),
        is_up: link.is_up,
        has_carrier: link.has_carrier,
        faults: Route::open()?.faults(link.index)?,
        knobs: inspect_knobs(kernel, &link.name, question)?,
        waiting: find_waiting_change(origin, slot),
        rollout: find_newest_rollout(kernel, origin, slot),
    })
}

/// The knobs that are asked for, or everything that can be set here and was read.
fn inspect_knobs(
    kernel: &LinuxKernel,
    interface: &str,
    question: &str,
) -> Result<Vec<KnobLook>, Error> {
    if question.trim() == ALL {
        let surveyed = kernel.survey(interface).into_iter();
        let settable = surveyed.filter(|one| matches!(one.capability, Capability::Settable(_)));
        let looks = settable.filter(|one| one.values.is_ok());
        return Ok(looks.map(|one| knob_look(one.knob, one.values, |_| None)).collect());
    }
    let asked = parse_questions(question)?;
    let names: Vec<Knob> = asked.iter().map(|(knob, _)| *knob).collect();
    let read = kernel.read_many(interface, &names);
    let looks = asked.iter().zip(read).map(|((knob, wanted), values)| {
        let word = |place| match wanted {
            Some(Value::Named(named)) => kernel.resolve(interface, *knob, place, *named).ok(),
            _ => None,
        };
        knob_look(*knob, values, word)
    });
    Ok(looks.collect())
}

/// The look at a knob; `word` is the value at a place of the word that is wanted.
fn knob_look(
    knob: Knob,
    values: Result<Vec<(Place, Value)>, KernelError>,
    word: impl Fn(Place) -> Option<Value>,
) -> KnobLook {
    let (values, problem) = match values {
        Ok(values) => (values, None),
        Err(error) if error.kind == KernelErrorKind::Unsupported => {
            (Vec::new(), Some(format!("it does not have this knob: {}", error.reason)))
        }
        Err(error) => (Vec::new(), Some(error.reason)),
    };
    let values = values.into_iter().map(|(place, value)| PlaceLook {
        place: place.to_string(),
        value: value.to_string(),
        word: word(place).map(|word| word.to_string()),
    });
    KnobLook { knob: knob.name().to_owned(), values: values.collect(), problem }
}

fn parse_questions(text: &str) -> Result<Vec<Question>, Error> {
    let question = |line: &str| {
        if line.contains('=') {
            let (knob, value) = parse_assignment(line).map_err(|error| error.to_string())?;
            return Ok((knob, Some(value)));
        }
        let knob: Result<Knob, knobs::UnknownKnob> = line.trim().parse();
        Ok((knob.map_err(|error| error.to_string())?, None))
    };
    text.lines().map(question).collect::<Result<_, String>>().map_err(Error::Usage)
}

/// The change of an interface that is under way, or waits to be confirmed. One that cannot be read counts as one.
fn find_waiting_change(origin: &knobs::Context, slot: Slot) -> Option<WaitingChange> {
    let kept = match FileCheckpoints::new(&folders::checkpoints_dir()).kept(slot) {
        Ok(kept) => kept?,
        Err(error) => return Some(WaitingChange { by: error.to_string(), left_ms: None }),
    };
    if kept.boot_id != origin.boot_id || kept.is_of_namespace(origin) != Some(true) {
        return None;
    }
    let by = kept.by.unwrap_or_default();
    let left = kept.confirm_by.map(|by| by.saturating_sub(process::since_boot()));
    Some(WaitingChange {
        by: format!("{} by {}", by.command, by.user),
        left_ms: left.map(|left| left.as_ns() / 1_000_000),
    })
}

/// The newest rollout of an interface, unless it was taken back or something else is in its place. What cannot be read has
/// none.
fn find_newest_rollout(
    kernel: &LinuxKernel,
    origin: &knobs::Context,
    slot: Slot,
) -> Option<RolloutLook> {
    let store = FileCheckpoints::new(&folders::checkpoints_dir());
    let kept = store.kept(slot).ok().flatten().filter(|change| is_here(change, origin, slot));
    if let Some(change) = kept
        && let Some(name) = rollout_of(&change)
    {
        let left = change.confirm_by.map(|by| by.saturating_sub(process::since_boot()));
        let state = RolloutState::Waits(left.map(|left| left.as_ns() / 1_000_000));
        return Some(RolloutLook { name: name.to_owned(), state, missed: None });
    }
    let entries = store.journal().entries().ok()?.into_iter();
    let mut changes = entries.filter_map(|(number, change)| Some((number, change.ok()?)));
    let (number, change) = changes
        .find(|(_, change)| is_here(change, origin, slot) && rollout_of(change).is_some())?;
    let name = rollout_of(&change)?.to_owned();
    let is_in_force =
        || transaction::read_standing(kernel, &change).iter().any(Standing::is_in_force);
    let state = match change.went_back {
        Some(_) => RolloutState::WentBack,
        None if is_in_force() => RolloutState::Confirmed(number),
        None => return None,
    };
    Some(RolloutLook { name, state, missed: store.journal().rollout_end(number) })
}

/// Records beside the entry of a rollout in this host's journal that it has ended. `missed` has the names of the hosts that
/// were not reached, a line each.
pub fn record_rollout_end(interface: &str, rollout: &str, missed: &str) -> Result<(), Error> {
    let origin = checkpoint::context()?;
    let links = Route::open()?.links()?;
    let link = links.iter().find(|link| link.name == interface);
    let link = link.ok_or_else(|| Error::Failed(format!("it has no interface {interface}")))?;
    let slot = Slot { namespace: origin.namespace, index: link.index };
    let is_meant =
        |change: &Checkpoint| is_here(change, &origin, slot) && rollout_of(change) == Some(rollout);
    let journal = FileCheckpoints::new(&folders::checkpoints_dir()).journal();
    let failed = |error: knobs::StoreError| Error::Failed(error.to_string());
    let entries = journal.entries().map_err(failed)?;
    let entry = entries.into_iter().find(|(_, change)| change.as_ref().is_ok_and(is_meant));
    let (number, _) =
        entry.ok_or_else(|| Error::Failed(format!("its journal has no change of {rollout}")))?;
    let missed: Vec<String> = missed.lines().map(str::to_owned).collect();
    journal.record_rollout_end(number, &missed).map_err(failed)
}

/// Whether a change is of an interface, in this boot and namespace.
fn is_here(change: &Checkpoint, origin: &knobs::Context, slot: Slot) -> bool {
    change.slot() == slot
        && change.boot_id == origin.boot_id
        && change.is_of_namespace(origin) == Some(true)
}

/// The name of the rollout that has made a change, if one has.
fn rollout_of(change: &Checkpoint) -> Option<&str> {
    let command = change.by.as_ref().map(|by| by.command.as_str());
    command.filter(|command| command.starts_with(ROLLOUT))
}
