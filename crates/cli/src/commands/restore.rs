//! `latput restore`: finish the undo of a change that was cut short.

use std::process::ExitCode;

use latput_experiment::host;
use latput_knobs::transaction::{self, Change, Foreign, Restored};
use latput_knobs::{self as knobs, Checkpoint, CheckpointStore};
use latput_linux::{FileCheckpoints, LinuxKernel, Namespace, checkpoint};

use crate::commands::set;
use crate::context::Context;
use crate::exit::{Code, Failure};
use crate::output;

/// Put back what an earlier, unfinished change left (after a kill -9, a crash, a stranded rollback).
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput restore --dry-run    what would be put back
  latput restore
  latput restore eth0         this interface only

Checkpoints of another boot are refused and kept. Those of another network namespace are named and kept for a
restore there; where that namespace is not seen from here, the exit code is 5. What somebody else has set
since the change stays as it is.")]
pub(crate) struct Args {
    /// Only this interface; otherwise every one.
    #[arg(value_name = "IFACE")]
    interface: Option<String>,
    /// Print what would be put back and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Forget one checkpoint and put nothing back: for a namespace that is gone. Its ID is in what `latput restore`
    /// prints.
    #[arg(long, value_name = "ID", conflicts_with_all = ["dry_run", "interface"])]
    forget: Option<String>,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let mut store = FileCheckpoints::new(&host::checkpoints_dir());
        let origin = checkpoint::context()?;
        let listed =
            store.list().map_err(|error| Failure { code: Code::Failed, error: error.into() })?;
        if let Some(id) = &self.forget {
            return forget(context, &mut store, listed, id);
        }
        let mut done: Vec<(String, Outcome)> = Vec::new();
        let mut worst: Option<Failure> = None;
        let is_wanted = |name: &String| self.interface.as_ref().is_none_or(|only| only == name);
        for kept in listed {
            let outcome = match kept {
                Ok(kept) if !is_wanted(&kept.interface) => continue,
                Ok(kept) if self.dry_run => preview(&origin, &kept),
                Ok(kept) => put_back(&mut store, &origin, &kept),
                Err(error) => Err(Failure { code: Code::Failed, error: error.into() }),
            };
            match outcome {
                Ok(outcome) => done.push(outcome),
                // One that cannot be used must not keep the others from being put back.
                Err(failure) => {
                    if let Some(earlier) = worst.replace(failure) {
                        output::remark(&format!("latput: error: {:#}", earlier.error));
                    }
                }
            }
        }
        tell(context, &done, worst.is_some())?;
        worst.map_or(Ok(ExitCode::SUCCESS), Err)
    }
}

/// What became of a checkpoint.
enum Outcome {
    WouldChange(Vec<Change>),
    PutBack(Vec<Change>, Vec<Foreign>),
    Gone,
    /// It belongs to another network namespace, where another restore will find it.
    Elsewhere,
}

/// Whether a checkpoint is of this boot, but of another network namespace.
fn is_elsewhere(origin: &knobs::Context, kept: &Checkpoint) -> bool {
    kept.boot_id == origin.boot_id && kept.namespace != origin.namespace
}

fn preview(origin: &knobs::Context, kept: &Checkpoint) -> Result<(String, Outcome), Failure> {
    if is_elsewhere(origin, kept) {
        return Ok((kept.interface.clone(), Outcome::Elsewhere));
    }
    let kernel = LinuxKernel::open()?;
    let changes = transaction::plan_restore(&kernel, origin, kept)?;
    Ok((kept.interface.clone(), Outcome::WouldChange(changes)))
}

fn put_back(
    store: &mut FileCheckpoints,
    origin: &knobs::Context,
    kept: &Checkpoint,
) -> Result<(String, Outcome), Failure> {
    let interface = kept.interface.clone();
    if is_elsewhere(origin, kept) && Namespace::exists(kept.namespace)? {
        return Ok((interface, Outcome::Elsewhere));
    }
    if is_elsewhere(origin, kept) {
        // Held by a descriptor or a mount that this process cannot see, a namespace may still be there.
        let namespace = kept.namespace;
        let id = checkpoint::id(namespace, &interface);
        return Err(Failure::new(
            Code::Stranded,
            format!(
                "{interface} of network namespace {namespace}, which is not seen from here: its checkpoint is kept. \
                 In that namespace run `latput restore`; if it is gone, run `latput restore --forget {id}`"
            ),
        ));
    }
    let mut kernel = LinuxKernel::open()?;
    Ok(match transaction::restore(&mut kernel, store, origin, kept)? {
        Restored::Done { changes, others, .. } => (interface, Outcome::PutBack(changes, others)),
        Restored::InterfaceGone { .. } => (interface, Outcome::Gone),
        Restored::NothingToDo => (interface, Outcome::PutBack(Vec::new(), Vec::new())),
    })
}

/// Forgets one checkpoint, by the word of its owner.
fn forget(
    context: &Context,
    store: &mut FileCheckpoints,
    listed: Vec<Result<Checkpoint, knobs::StoreError>>,
    id: &str,
) -> Result<ExitCode, Failure> {
    let kept = listed
        .into_iter()
        .flatten()
        .find(|kept| checkpoint::id(kept.namespace, &kept.interface) == id)
        .ok_or_else(|| Failure::usage(format!("there is no checkpoint `{id}`")))?;
    store
        .remove(kept.namespace, &kept.interface)
        .map_err(|error| Failure { code: Code::Failed, error: error.into() })?;
    if context.json {
        let forgotten =
            serde_json::json!({ "interface": kept.interface, "state": "forgotten", "changes": [] });
        output::print_json(&serde_json::json!({ "schema": 1, "restored": [forgotten] }))?;
    } else {
        output::print(&format!("forgot {id}: {} stays as it is\n", kept.interface))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn tell(context: &Context, done: &[(String, Outcome)], failed: bool) -> Result<(), Failure> {
    if context.json {
        let done: Vec<_> = done
            .iter()
            .map(|(interface, outcome)| {
                let (state, changes, others): (_, &[Change], &[Foreign]) = match outcome {
                    Outcome::WouldChange(changes) => ("would-change", changes, &[]),
                    Outcome::PutBack(changes, others) => ("put-back", changes, others),
                    Outcome::Gone => ("gone", &[], &[]),
                    Outcome::Elsewhere => ("elsewhere", &[], &[]),
                };
                let changes = set::changes_json(interface, changes);
                let others: Vec<_> = others.iter().map(other_json).collect();
                serde_json::json!({
                    "interface": interface, "state": state, "changes": changes, "set_by_others": others,
                })
            })
            .collect();
        return output::print_json(&serde_json::json!({ "schema": 1, "restored": done }));
    }
    if done.is_empty() && !failed {
        return output::print("nothing to restore\n");
    }
    for (interface, outcome) in done {
        let text = match outcome {
            Outcome::WouldChange(changes) => {
                set::changes_text(interface, changes, "would put back")
            }
            Outcome::PutBack(changes, others) => {
                for other in others {
                    output::remark(&format!("latput: {interface}: {other}; it stays"));
                }
                set::changes_text(interface, changes, "put back")
            }
            Outcome::Gone => format!("{interface} is gone: nothing is left to put back\n"),
            Outcome::Elsewhere => format!(
                "{interface} of another network namespace: run `latput restore` in that namespace\n"
            ),
        };
        output::print(&text)?;
    }
    Ok(())
}

fn other_json(other: &Foreign) -> serde_json::Value {
    serde_json::json!({
        "knob": other.knob.name(),
        "place": other.place.to_string(),
        "before": other.before.to_string(),
        "written": other.written.to_string(),
        "found": other.found.to_string(),
    })
}
