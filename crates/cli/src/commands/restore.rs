//! `latput restore`: finishes the undo of an interrupted change.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use latput_knobs::transaction::{self, Change, Foreign, RestoreError, Restored};
use latput_knobs::{self as knobs, Checkpoint, CheckpointStore, StoreError};
use latput_linux::{FileCheckpoints, LinuxKernel, Namespace, checkpoint, process};
use latput_protocol::folders;
use latput_report::interface_words;

use crate::commands::way_back::{
    log_went_back, present_name, restore_warnings, with_its_name_of_now, with_others,
};
use crate::commands::{change, next, set, watcher};
use crate::context::CliContext;
use crate::exit::{CliError, ExitReason};
use crate::output;

/// Longest wait for a process that holds the interface, and the time between two looks.
const LOCK_WAIT: Duration = Duration::from_secs(5);
const LOCK_RETRY: Duration = Duration::from_millis(50);

/// Put back an earlier, unfinished change.
///
/// One is left after a kill -9, a crash or a stranded rollback.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput restore --dry-run    what would be put back
  latput restore
  latput restore eth0         this interface only

An interface is found under its new name too. If it cannot be found, it was moved or deleted: its checkpoint
is kept (exit code 5). Checkpoints of another network namespace are named and kept. If that namespace is not
visible from here, the exit code is 5. Checkpoints of another boot are refused and kept until `--forget`
or the next change of the interface.
Values that another program has set since stay. Changes of another user that wait to be confirmed stay and are
named.")]
pub(crate) struct Args {
    /// Only this interface; by default all.
    #[arg(value_name = "IFACE", value_parser = change::present_name)]
    interface: Option<String>,
    /// Print the writes without doing them, or what cannot be put back.
    #[arg(long)]
    dry_run: bool,
    /// Delete one checkpoint without putting anything back, because its interface, namespace or boot is gone. `latput
    /// restore` prints the ID.
    #[arg(long, value_name = "ID", conflicts_with_all = ["dry_run", "interface"])]
    forget: Option<String>,
    /// Only what this command has changed, as `latput set --made-by` named it.
    #[arg(long, hide = true, value_name = "COMMAND", conflicts_with = "of")]
    made_by: Option<String>,
    /// Also put back changes that wait for this user's confirmation; without it, only your own.
    #[arg(long, value_name = "USER")]
    of: Option<String>,
}

impl Args {
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        let mut store = FileCheckpoints::new(&folders::checkpoints_dir());
        let origin = checkpoint::context()?;
        let listed = store.list()?;
        if let Some(id) = &self.forget {
            return forget_checkpoint(context, (&mut store, &origin), listed, id);
        }
        let mut done: Vec<(String, RestoreOutcome)> = Vec::new();
        let mut worst: Option<CliError> = None;
        let is_wanted = |name: &String| self.interface.as_ref().is_none_or(|only| only == name);
        let mut kernel = LinuxKernel::open()?;
        for kept in listed {
            let kept = kept.map(|kept| with_its_name_of_now(&kernel, &origin, kept));
            let outcome = match kept {
                Ok(kept) if !is_wanted(&kept.interface) => continue,
                Ok(kept) if !is_made_by(&kept, self.made_by.as_deref()) => continue,
                Ok(kept)
                    if self.made_by.is_none()
                        && waits_for_other(&kept, &origin, self.of.as_deref()) =>
                {
                    Ok((
                        kept.interface.clone(),
                        RestoreOutcome::Waits(waiting_words(&kept, "puts it back")),
                    ))
                }
                Ok(kept) if self.dry_run => preview_restore(&kernel, &origin, &kept),
                Ok(kept) => put_back(&mut kernel, &mut store, &origin, &kept),
                // The host may have its changes.
                Err(error @ StoreError::Damaged { .. }) => {
                    Err(CliError { code: ExitReason::Stranded, error: error.into() })
                }
                Err(error) => Err(error.into()),
            };
            match outcome {
                Ok(outcome) => done.push(outcome),
                // An unusable checkpoint must not stop the others from being put back.
                Err(failure) => {
                    if let Some(earlier) = worst.replace(failure) {
                        output::print_remark(&format!("latput: error: {:#}", earlier.error));
                    }
                }
            }
        }
        print_outcomes(context, &done, worst.is_some());
        worst.map_or(Ok(ExitCode::SUCCESS), Err)
    }
}

/// The outcome for a checkpoint.
enum RestoreOutcome {
    WouldChange(Vec<Change>, Vec<Foreign>),
    PutBack(Vec<Change>, Vec<Foreign>),
    Gone,
    /// It belongs to another network namespace, and must be restored there.
    Elsewhere,
    /// It waits for somebody else's word, and is left to them.
    Waits(String),
}

/// Whether a change is of the command that is meant; without one, each is.
pub(super) fn is_made_by(kept: &Checkpoint, command: Option<&str>) -> bool {
    command.is_none_or(|command| kept.by.as_ref().is_some_and(|by| by.is_command(command)))
}

/// Whether a change waits for the confirmation of somebody who is neither this user nor `meant`.
pub(super) fn waits_for_other(
    kept: &Checkpoint,
    origin: &knobs::Context,
    meant: Option<&str>,
) -> bool {
    let is_other = |user: &str| user != meant.unwrap_or(&origin.by.user);
    kept.confirm_by.is_some() && kept.by.as_ref().is_some_and(|by| is_other(&by.user))
}

/// Names the owner of a waiting change, its deadline, and who may end it: `ends_it` is what the command does.
pub(super) fn waiting_words(kept: &Checkpoint, ends_it: &str) -> String {
    let left = kept.confirm_by.unwrap_or_default().saturating_sub(process::since_boot());
    let user = kept.by.as_ref().map_or("", |by| by.user.as_str());
    format!(
        "{}: a change of {} waits to be confirmed for another {} s. It is not yours and stays; `--of '{user}'` \
         {ends_it}",
        kept.interface,
        kept.owner(),
        left.as_ns() / 1_000_000_000,
    )
}

fn preview_restore(
    kernel: &LinuxKernel,
    origin: &knobs::Context,
    kept: &Checkpoint,
) -> Result<(String, RestoreOutcome), CliError> {
    let interface = kept.interface.clone();
    let planned = transaction::plan_restore(kernel, origin, kept);
    if let Ok(Restored::Done { changes, .. }) = &planned {
        print_warnings(kernel, kept, changes);
    }
    match planned {
        Ok(Restored::Done { changes, others, .. }) => {
            Ok((interface, RestoreOutcome::WouldChange(changes, others)))
        }
        Ok(Restored::InterfaceGone) => Ok((interface, RestoreOutcome::Gone)),
        Ok(Restored::NothingToDo) => {
            Ok((interface, RestoreOutcome::WouldChange(Vec::new(), Vec::new())))
        }
        Err(error) => classify_restore_error(interface, error),
    }
}

fn print_warnings(kernel: &LinuxKernel, kept: &Checkpoint, changes: &[Change]) {
    for warning in restore_warnings(kernel, kept, changes) {
        output::print_remark(&format!("latput: warning: {}: {warning}", kept.interface));
    }
}

fn put_back(
    kernel: &mut LinuxKernel,
    store: &mut FileCheckpoints,
    origin: &knobs::Context,
    kept: &Checkpoint,
) -> Result<(String, RestoreOutcome), CliError> {
    let interface = kept.interface.clone();
    if let Ok(Restored::Done { changes, .. }) = transaction::plan_restore(kernel, origin, kept) {
        print_warnings(kernel, kept, &changes);
    }
    match transaction::restore(kernel, store, origin, kept) {
        Ok(Restored::Done { changes, others, .. }) => {
            if kept.confirm_by.is_some() {
                watcher::tell_settled(kept);
            }
            if kept.confirm_by.is_some() || !changes.is_empty() {
                let why = format!("`latput restore` by {}", origin.by.user);
                log_went_back(store, kept, with_others(&why, &others));
            }
            Ok((interface, RestoreOutcome::PutBack(changes, others)))
        }
        Ok(Restored::InterfaceGone) => Ok((interface, RestoreOutcome::Gone)),
        Ok(Restored::NothingToDo) => {
            Ok((interface, RestoreOutcome::PutBack(Vec::new(), Vec::new())))
        }
        Err(error) => classify_restore_error(interface, error),
    }
}

/// The outcome for a checkpoint that is not put back.
fn classify_restore_error(
    interface: String,
    error: RestoreError,
) -> Result<(String, RestoreOutcome), CliError> {
    match error {
        RestoreError::OtherNamespace { slot, .. } if Namespace::exists(slot.namespace)? => {
            Ok((interface, RestoreOutcome::Elsewhere))
        }
        // The namespace may still exist, held by a descriptor or a mount that this process cannot
        // see.
        RestoreError::OtherNamespace { slot, .. } => Err(CliError::new(
            ExitReason::Stranded,
            format!(
                "{interface} is in network namespace {}, which is not visible from here. Its checkpoint is \
                 kept. Run `latput restore` in that namespace. If it is gone, run `latput restore --forget \
                 {slot}`",
                slot.namespace
            ),
        )),
        error => Err(error.into()),
    }
}

/// Whether the interface of a change is here, with the values that the change has made.
fn is_here(kernel: &LinuxKernel, origin: &knobs::Context, kept: &Checkpoint) -> bool {
    kept.boot_id == origin.boot_id && present_name(kernel, origin, kept).is_some()
}

/// Deletes one checkpoint at its owner's request. A change whose interface is here becomes an entry of the journal.
fn forget_checkpoint(
    context: &CliContext,
    (store, origin): (&mut FileCheckpoints, &knobs::Context),
    listed: Vec<Result<Checkpoint, StoreError>>,
    id: &str,
) -> Result<ExitCode, CliError> {
    let is_meant = |kept: &Result<Checkpoint, StoreError>| match kept {
        Ok(kept) => kept.slot().to_string() == id,
        Err(StoreError::Damaged { path, .. }) => {
            Path::new(path).file_stem().is_some_and(|name| name == id)
        }
        Err(_) => false,
    };
    let found = listed.into_iter().find(is_meant);
    let (Some(found), Ok(slot)) = (found, id.parse()) else {
        return Err(CliError::usage(format!("there is no checkpoint `{id}`")));
    };
    let kernel = LinuxKernel::open()?;
    let in_force = found.as_ref().ok().filter(|kept| is_here(&kernel, origin, kept));
    if let Some(kept) = in_force
        && kept.confirm_by.is_some_and(|by| by > origin.since_boot)
    {
        let message = if waits_for_other(kept, origin, None) {
            waiting_words(
                kept,
                "with `latput confirm` keeps it, with `latput restore` puts it back",
            )
        } else {
            format!(
                "{}: the change of {} waits to be confirmed: `latput confirm {word}` keeps it, `latput restore {word}` puts \
                 it back",
                kept.interface,
                kept.owner(),
                word = interface_words(&kept.interface)
            )
        };
        return Err(CliError::new(ExitReason::Failed, message));
    }
    // Values that stay are an entry of the journal, so that they can be undone.
    let number = wait_for_lock(|| match in_force {
        Some(_) => store.archive(slot),
        None => store.remove(slot).map(|()| None),
    })?;
    store.forget_late(slot);
    if let Some(kept) = in_force {
        watcher::tell_settled(kept);
    }
    let interface =
        found.map_or_else(|_| format!("interface {}", slot.index), |kept| kept.interface);
    if context.json {
        let forgotten =
            serde_json::json!({ "interface": interface, "state": "forgotten", "changes": [] });
        output::print_change_json(&serde_json::json!({ "schema": 1, "restored": [forgotten] }));
    } else {
        let undo = number.map_or(String::new(), next::undo_line);
        output::print_change(&format!("forgot {id}: {interface} stays as it is\n{undo}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Tries again for a while where another process holds the interface: a watcher does for each of its attempts to put a change
/// back.
fn wait_for_lock<T>(mut attempt: impl FnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
    let deadline = Instant::now() + LOCK_WAIT;
    loop {
        match attempt() {
            Err(StoreError::Locked { .. }) if Instant::now() < deadline => {
                std::thread::sleep(LOCK_RETRY);
            }
            ended => return ended,
        }
    }
}

fn print_outcomes(context: &CliContext, done: &[(String, RestoreOutcome)], failed: bool) {
    if context.json {
        let done: Vec<_> = done
            .iter()
            .map(|(interface, outcome)| {
                let (state, changes, others): (_, &[Change], &[Foreign]) = match outcome {
                    RestoreOutcome::WouldChange(changes, others) => ("would-change", changes, others),
                    RestoreOutcome::PutBack(changes, others) => ("put-back", changes, others),
                    RestoreOutcome::Gone => ("gone", &[], &[]),
                    RestoreOutcome::Elsewhere => ("elsewhere", &[], &[]),
                    RestoreOutcome::Waits(_) => ("waits", &[], &[]),
                };
                let changes = set::changes_json(interface, changes);
                let others: Vec<_> = others.iter().map(other_json).collect();
                serde_json::json!({
                    "interface": interface, "state": state, "changes": changes, "set_by_others": others,
                })
            })
            .collect();
        return output::print_change_json(&serde_json::json!({ "schema": 1, "restored": done }));
    }
    if done.is_empty() && !failed {
        return output::print_change("nothing to restore\n");
    }
    for (interface, outcome) in done {
        let text = match outcome {
            RestoreOutcome::WouldChange(changes, others) => {
                tell_others(interface, others);
                set::changes_text(interface, changes, "would put back")
            }
            RestoreOutcome::PutBack(changes, others) => {
                tell_others(interface, others);
                set::changes_text(interface, changes, "put back")
            }
            RestoreOutcome::Waits(words) => format!("{words}\n"),
            RestoreOutcome::Gone => {
                format!("{interface} was deleted: nothing is left to put back\n")
            }
            RestoreOutcome::Elsewhere => format!(
                "{interface} of another network namespace: run `latput restore` in that namespace\n"
            ),
        };
        output::print_change(&text);
    }
}

fn tell_others(interface: &str, others: &[Foreign]) {
    for other in others {
        output::print_remark(&format!("latput: {interface}: {other}; it stays"));
    }
}

pub(super) fn other_json(other: &Foreign) -> serde_json::Value {
    serde_json::json!({
        "knob": other.knob.name(),
        "place": other.place.to_string(),
        "before": other.before.to_string(),
        "written": other.written.to_string(),
        "found": other.found.to_string(),
    })
}
