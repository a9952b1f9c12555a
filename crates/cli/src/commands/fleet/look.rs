//! A look at an interface: what the host does, and how it is asked.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::process::ExitCode;

use latput_reach::broker::command::HostVerb;
use latput_protocol::folders;
use latput_fleet::journal::ROLLOUT;
use latput_fleet::look::{
    HostLook, InterfaceLook, KnobLook, PlaceLook, RolloutLook, RolloutState, SCHEMA, WaitingChange,
};
use latput_fleet::{FleetHost, HostAnswer};
use latput_knobs::{
    self as knobs, Capability, Checkpoint, KernelError, KernelErrorKind, KernelRead, Knob, Place,
    Slot, Standing, Value, parse_assignment, transaction,
};
use latput_linux::route::{Link, Route};
use latput_linux::{FileCheckpoints, LinuxKernel, checkpoint, facts, process};
use latput_units::IntoSet;

use super::crew;
use super::hosts::{Fleet, FleetMember, InPlace, StopCondition, last_line};
use crate::commands::ask::AskEnding;
use crate::context::CliContext;
use crate::exit::{CliError, ExitReason};
use crate::output;

/// Most that is read of a question, bytes.
const STDIN_BYTES_MOST: u64 = 1 << 20;
/// Asks for every knob that can be set.
const ALL: &str = "*";

/// Read an interface of this host: the knobs of stdin, as JSON.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    interface: String,
}

/// A knob that is asked for, and its wanted value where that may be a word.
type Question = (Knob, Option<Value>);

impl Args {
    pub(super) fn run(self) -> Result<ExitCode, CliError> {
        let mut text = String::new();
        std::io::stdin().take(STDIN_BYTES_MOST).read_to_string(&mut text)?;
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
        match links.iter().find(|link| link.name == self.interface) {
            Some(link) => {
                look.interface = Some(self.inspect_interface(&kernel, &origin, link, &text)?);
            }
            None => look.others = links.into_iter().map(|link| link.name).collect(),
        }
        let text = serde_json::to_string(&look)
            .map_err(|error| CliError { code: ExitReason::Failed, error: error.into() })?;
        output::print_text(&text)?;
        Ok(ExitCode::SUCCESS)
    }

    fn inspect_interface(
        &self,
        kernel: &LinuxKernel,
        origin: &knobs::Context,
        link: &Link,
        question: &str,
    ) -> Result<InterfaceLook, CliError> {
        let slot = Slot { namespace: origin.namespace, index: link.index };
        Ok(InterfaceLook {
            name: link.name.clone(),
            index: link.index,
            driver: facts::driver(link),
            is_up: link.is_up,
            has_carrier: link.has_carrier,
            faults: Route::open()?.faults(link.index)?,
            knobs: self.inspect_knobs(kernel, question)?,
            waiting: find_waiting_change(origin, slot),
            rollout: find_newest_rollout(kernel, origin, slot),
        })
    }

    fn inspect_knobs(
        &self,
        kernel: &LinuxKernel,
        question: &str,
    ) -> Result<Vec<KnobLook>, CliError> {
        if question.trim() == ALL {
            return Ok(self.inspect_settable(kernel));
        }
        let asked = parse_questions(question)?;
        let names: Vec<Knob> = asked.iter().map(|(knob, _)| *knob).collect();
        let read = kernel.read_many(&self.interface, &names);
        let look = |((knob, wanted), values): (&Question, _)| {
            self.inspect_knob(kernel, *knob, wanted.as_ref(), values)
        };
        Ok(asked.iter().zip(read).map(look).collect())
    }

    /// Everything that can be set here and was read.
    fn inspect_settable(&self, kernel: &LinuxKernel) -> Vec<KnobLook> {
        let surveyed = kernel.survey(&self.interface).into_iter();
        let settable = surveyed.filter(|one| matches!(one.capability, Capability::Settable(_)));
        settable
            .filter(|one| one.values.is_ok())
            .map(|one| self.inspect_knob(kernel, one.knob, None, one.values))
            .collect()
    }

    fn inspect_knob(
        &self,
        kernel: &LinuxKernel,
        knob: Knob,
        wanted: Option<&Value>,
        values: Result<Vec<(Place, Value)>, KernelError>,
    ) -> KnobLook {
        let word = |place: Place| match wanted {
            Some(Value::Named(named)) => {
                let found = kernel.resolve(&self.interface, knob, place, *named).ok()?;
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

fn parse_questions(text: &str) -> Result<Vec<Question>, CliError> {
    let question = |line: &str| {
        if line.contains('=') {
            let (knob, value) = parse_assignment(line).map_err(|error| error.to_string())?;
            return Ok((knob, Some(value)));
        }
        let knob: Result<Knob, knobs::UnknownKnob> = line.trim().parse();
        Ok((knob.map_err(|error| error.to_string())?, None))
    };
    text.lines().map(question).collect::<Result<_, String>>().map_err(CliError::usage)
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

/// Looks at every host of a fleet, side by side; see [`inspect_host`] for `knobs`.
pub(super) fn inspect_all(
    fleet: &Fleet,
    knobs: Option<&[Knob]>,
    context: &CliContext,
) -> Vec<HostAnswer> {
    let is_over = || context.stop.is_raised();
    let answers =
        crew::side_by_side(&fleet.members, fleet.parallel, is_over, "hosts", |member, place| {
            let mut waiting = InPlace { place, until: StopCondition::Stop(&context.stop) };
            inspect_host(fleet, member, knobs, &mut waiting)
        });
    answers.into_iter().map(|answer| answer.unwrap_or(HostAnswer::NotAsked)).collect()
}

/// Looks at a host: at `knobs`, else at those of its setting, else at all that can be set.
pub(super) fn inspect_host(
    fleet: &Fleet,
    member: &FleetMember,
    knobs: Option<&[Knob]>,
    waiting: &mut InPlace<'_, '_>,
) -> HostAnswer {
    let FleetHost { interface, setting, .. } = &member.host;
    let (question, asked): (String, Option<BTreeSet<Knob>>) = match knobs {
        Some(knobs) => {
            let lines = knobs.iter().map(|knob| format!("{knob}\n"));
            (lines.collect(), Some(knobs.iter().copied().into_set()))
        }
        None if setting.is_empty() => (ALL.to_owned(), None),
        None => (member.host.setting_lines(), Some(setting.keys().copied().into_set())),
    };
    match member.run_latput(&HostVerb::Look, &question, fleet.timeout, waiting) {
        Err(error) => HostAnswer::Unreachable(format!("cannot start the connection: {error}")),
        Ok(AskEnding::Stopped) => HostAnswer::NotAsked,
        Ok(AskEnding::TimedOut) => {
            HostAnswer::TimedOut(format!("it did not answer within {}", fleet.timeout))
        }
        Ok(AskEnding::TooLong) => HostAnswer::Failed("its answer is too long".to_owned()),
        Ok(AskEnding::Ended { code: Some(0), out, .. }) => {
            match HostLook::read(&out, interface, asked.as_ref()) {
                Ok(look) => HostAnswer::Look(Box::new(look)),
                Err(why) => HostAnswer::Failed(why),
            }
        }
        Ok(AskEnding::Ended { err, .. }) => match said_by_latput(&err) {
            Some(said) => HostAnswer::Failed(said.message),
            None => HostAnswer::Unreachable(last_line(&err)),
        },
    }
}

/// The error that a latput at the far end ended with.
#[derive(Debug)]
pub(super) struct FarError {
    /// Its words.
    pub(super) message: String,
    /// As [`ExitReason::kind_and_remedy`] has it.
    pub(super) kind: String,
}

/// The error in the last line of stderr; `None` if no latput with `--json` wrote it.
pub(super) fn said_by_latput(err: &str) -> Option<FarError> {
    let line = err.lines().rev().find(|line| !line.trim().is_empty())?;
    let document: serde_json::Value = serde_json::from_slice(line.as_bytes()).ok()?;
    let error = document.get("error")?;
    let message = latput_report::make_printable(error.get("message")?.as_str()?);
    Some(FarError { message, kind: error.get("kind")?.as_str()?.to_owned() })
}
