//! A look at an interface of this host, for the latput that asks.

use latput_experiment::host;
use latput_knobs::{
    self as knobs, Capability, Checkpoint, KernelError, KernelErrorKind, KernelRead, Knob, Place,
    Slot, Standing, Value, parse_assignment, transaction,
};
use latput_linux::route::{Link, Route};
use latput_linux::{FileCheckpoints, LinuxKernel, checkpoint, facts, process};

use crate::command::Error;
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
        Some(link) => {
            let here = LinkInspection { kernel: &kernel, origin: &origin, link };
            look.interface = Some(here.inspect(question)?);
        }
        None => look.others = links.into_iter().map(|link| link.name).collect(),
    }
    Ok(look)
}

/// An interface that is looked at.
struct LinkInspection<'a> {
    kernel: &'a LinuxKernel,
    origin: &'a knobs::Context,
    link: &'a Link,
}

impl LinkInspection<'_> {
    fn inspect(&self, question: &str) -> Result<InterfaceLook, Error> {
        let Self { kernel, origin, link } = *self;
        let slot = Slot { namespace: origin.namespace, index: link.index };
        Ok(InterfaceLook {
            name: link.name.clone(),
            index: link.index,
            driver: facts::driver(link),
            is_up: link.is_up,
            has_carrier: link.has_carrier,
            faults: Route::open()?.faults(link.index)?,
            knobs: self.inspect_knobs(question)?,
            waiting: find_waiting_change(origin, slot),
            rollout: find_newest_rollout(kernel, origin, slot),
        })
    }

    fn inspect_knobs(&self, question: &str) -> Result<Vec<KnobLook>, Error> {
        if question.trim() == ALL {
            return Ok(self.inspect_settable());
        }
        let asked = parse_questions(question)?;
        let names: Vec<Knob> = asked.iter().map(|(knob, _)| *knob).collect();
        let read = self.kernel.read_many(&self.link.name, &names);
        let look = |((knob, wanted), values): (&Question, _)| {
            self.inspect_knob(*knob, wanted.as_ref(), values)
        };
        Ok(asked.iter().zip(read).map(look).collect())
    }

    /// Everything that can be set here and was read.
    fn inspect_settable(&self) -> Vec<KnobLook> {
        let surveyed = self.kernel.survey(&self.link.name).into_iter();
        let settable = surveyed.filter(|one| matches!(one.capability, Capability::Settable(_)));
        settable
            .filter(|one| one.values.is_ok())
            .map(|one| self.inspect_knob(one.knob, None, one.values))
            .collect()
    }

    fn inspect_knob(
        &self,
        knob: Knob,
        wanted: Option<&Value>,
        values: Result<Vec<(Place, Value)>, KernelError>,
    ) -> KnobLook {
        let word = |place: Place| match wanted {
            Some(Value::Named(named)) => {
                let found = self.kernel.resolve(&self.link.name, knob, place, *named).ok()?;
                Some(found.to_string())
            }
            _ => None,
        };
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
            word: word(place),
        });
        KnobLook { knob: knob.name().to_owned(), values: values.collect(), problem }
    }
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
    let kept = match FileCheckpoints::new(&host::checkpoints_dir()).kept(slot) {
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
    let store = FileCheckpoints::new(&host::checkpoints_dir());
    let is_here = |change: &Checkpoint| {
        change.slot() == slot
            && change.boot_id == origin.boot_id
            && change.is_of_namespace(origin) == Some(true)
    };
    let name = |change: &Checkpoint| {
        let command = change.by.as_ref().map(|by| by.command.clone());
        command.filter(|command| command.starts_with(ROLLOUT))
    };
    if let Some(change) = store.kept(slot).ok().flatten().filter(is_here)
        && let Some(name) = name(&change)
    {
        let left = change.confirm_by.map(|by| by.saturating_sub(process::since_boot()));
        let state = RolloutState::Waits(left.map(|left| left.as_ns() / 1_000_000));
        return Some(RolloutLook { name, state });
    }
    let entries = store.journal().entries().ok()?.into_iter();
    let changes = entries.filter_map(|(number, change)| Some((number, change.ok()?)));
    let mut rollouts = changes
        .filter(|(_, change)| is_here(change))
        .filter_map(|(number, change)| Some((number, name(&change)?, change)));
    let (number, name, change) = rollouts.next()?;
    let is_in_force = || transaction::standing(kernel, &change).iter().any(Standing::is_in_force);
    let state = match change.went_back {
        Some(_) => RolloutState::WentBack,
        None if is_in_force() => RolloutState::Confirmed(number),
        None => return None,
    };
    Some(RolloutLook { name, state })
}
