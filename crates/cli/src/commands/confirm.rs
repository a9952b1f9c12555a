//! `latput confirm`: keeps a change that would be put back at the end of its time.

use std::process::ExitCode;

use latput_knobs::transaction::{self, ConfirmError, Restored};
use latput_knobs::{self as knobs, Checkpoint, CheckpointStore};
use latput_linux::checkpoint::LateEnding;
use latput_linux::{FileCheckpoints, LinuxKernel, checkpoint, process};
use latput_protocol::folders;
use latput_units::Nanos;

use crate::commands::restore::{is_made_by, waiting_words, waits_for_other};
use crate::commands::way_back::with_its_name_of_now;
use crate::commands::{change, next, watcher};
use crate::context::CliContext;
use crate::exit::{CliError, ExitReason};
use crate::output;

/// Keep a change that was made with `latput set --confirm-within`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput set eth0 mtu=9000 --allow-link-reset --confirm-within 60s
  latput confirm eth0           from a new ssh session, which proves that the host can still be reached
  latput confirm                every change of this host (or network namespace) that waits
  latput restore                instead: put back now

Exit code 4: too late, and everything was put back. Exit code 5: too late, and the change is still in force,
because the process that watched the time was killed. Run `latput restore`.")]
pub(crate) struct Args {
    /// The interface; by default every change that waits.
    #[arg(value_name = "IFACE", value_parser = change::present_name)]
    interface: Option<String>,
    /// Only a change that this command has made, as `latput set --made-by` named it.
    #[arg(long, hide = true, value_name = "COMMAND", conflicts_with = "of")]
    made_by: Option<String>,
    /// Only give it this much more time, before a fleet confirms several hosts.
    #[arg(long, hide = true, value_name = "TIME", value_parser = change::confirm_within)]
    extend: Option<Nanos>,
    /// A change of this user; without it, only your own.
    #[arg(long, value_name = "USER")]
    of: Option<String>,
}

impl Args {
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        let mut store = FileCheckpoints::new(&folders::checkpoints_dir());
        let origin = checkpoint::context()?;
        let mut kernel = LinuxKernel::open()?;
        let is_meant =
            |interface: &String| self.interface.as_ref().is_none_or(|meant| meant == interface);
        let (readable, unreadable): (Vec<_>, Vec<_>) =
            store.list()?.into_iter().partition(Result::is_ok);
        for error in unreadable.into_iter().filter_map(Result::err) {
            output::print_remark(&format!("latput: left out: {error}"));
        }
        let waiting: Vec<Checkpoint> = readable
            .into_iter()
            .flatten()
            .filter(|kept| kept.is_of_namespace(&origin) == Some(true))
            .map(|kept| with_its_name_of_now(&kernel, &origin, kept))
            .filter(|kept| is_meant(&kept.interface))
            .filter(|kept| self.interface.is_some() || kept.confirm_by.is_some())
            .filter(|kept| is_made_by(kept, self.made_by.as_deref()))
            .collect();
        let is_other = |kept: &Checkpoint| {
            self.made_by.is_none() && waits_for_other(kept, &origin, self.of.as_deref())
        };
        let (others, waiting): (Vec<_>, Vec<_>) = waiting.into_iter().partition(is_other);
        if waiting.is_empty() && !others.is_empty() {
            let others: Vec<String> =
                others.iter().map(|kept| waiting_words(kept, "keeps it")).collect();
            return Err(CliError::new(ExitReason::Failed, others.join("; ")));
        }
        for other in &others {
            output::print_remark(&format!("latput: {}", waiting_words(other, "keeps it")));
        }
        let mut worst = None;
        let mut confirmed = Vec::new();
        for change in &waiting {
            let now = process::since_boot();
            let ended = match self.extend {
                Some(time) => {
                    let times = (now, now.saturating_add(time));
                    transaction::extend(&mut store, &origin, change, times).map(|()| None)
                }
                None => transaction::confirm(&kernel, &mut store, &origin, change, now),
            };
            match ended {
                Ok(number) => {
                    if self.extend.is_none() {
                        watcher::tell_settled(change);
                    }
                    confirmed.push((&change.interface, number));
                }
                Err(error) => {
                    let failure =
                        confirm_failure(error, (&mut kernel, &mut store, &origin), change);
                    if let Some(earlier) = worst.replace(failure) {
                        output::print_remark(&format!("latput: error: {:#}", earlier.error));
                    }
                }
            }
        }
        if waiting.is_empty() {
            let meant = self.interface.as_deref();
            return Err(nothing_to_confirm(meant, &late_endings(&store, &kernel, &origin, meant)));
        }
        if self.extend.is_none() || context.json {
            print_confirmed(context, &confirmed);
        }
        worst.map_or(Ok(ExitCode::SUCCESS), Err)
    }
}

/// The failure of a confirmation. A change that has gone back without its checkpoint, which was away, is forgotten.
fn confirm_failure(
    error: ConfirmError,
    (kernel, store, origin): (&mut LinuxKernel, &mut FileCheckpoints, &knobs::Context),
    change: &Checkpoint,
) -> CliError {
    if let ConfirmError::TooLate { interface, since } = &error
        && let Ok(Restored::Done { changes, .. }) =
            transaction::plan_restore(kernel, origin, change)
        && changes.is_empty()
        && transaction::restore(kernel, store, origin, change).is_ok()
    {
        let message = format!("{interface}: too late by {since}: everything was put back");
        return CliError::new(ExitReason::RolledBack, message);
    }
    CliError { code: error.outcome().into(), error: error.into() }
}

/// Changes of `meant`, or of any interface, that nobody confirmed in time; the interfaces under their present names.
fn late_endings(
    store: &FileCheckpoints,
    kernel: &LinuxKernel,
    origin: &knobs::Context,
    meant: Option<&str>,
) -> Vec<LateEnding> {
    let mut late = store.told_late(origin);
    late.retain_mut(|it| match kernel.name_of_number(it.index) {
        Some(name) => {
            it.interface = name;
            meant.is_none_or(|meant| meant == it.interface)
        }
        // Nobody waits for an interface that is gone, unless it is named.
        None => meant == Some(&it.interface),
    });
    late
}

/// The error without a waiting change: it is too late, or no change was to be confirmed.
fn nothing_to_confirm(interface: Option<&str>, late: &[LateEnding]) -> CliError {
    if late.is_empty() {
        let of = interface.map_or(String::new(), |name| format!(" of {name}"));
        return CliError::new(ExitReason::Failed, format!("no change{of} waits to be confirmed"));
    }
    let late: Vec<String> =
        late.iter().map(|it| format!("{}: too late: {}", it.interface, it.ending)).collect();
    CliError::new(ExitReason::RolledBack, late.join("; "))
}

fn print_confirmed(context: &CliContext, confirmed: &[(&String, Option<u64>)]) {
    if context.json {
        let numbers: Vec<Option<u64>> = confirmed.iter().map(|(_, number)| *number).collect();
        let confirmed: Vec<&String> = confirmed.iter().map(|(interface, _)| *interface).collect();
        return output::print_change_json(
            &serde_json::json!({ "schema": 1, "confirmed": confirmed, "journal": numbers }),
        );
    }
    for (interface, number) in confirmed {
        let undo = number.map_or(String::new(), next::undo_line);
        output::print_change(&format!("confirmed: {interface} keeps its change\n{undo}"));
    }
}
