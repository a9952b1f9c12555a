//! `latput undo`: takes back a committed change.

use std::process::ExitCode;

use latput_knobs as knobs;
use latput_knobs::transaction::{self, Change, Foreign};
use latput_knobs::{Checkpoint, LinkResets, Place, Setting};
use latput_linux::{FileCheckpoints, LinuxKernel, checkpoint};
use latput_protocol::folders;
use latput_units::Nanos;

use crate::commands::change::{self, ChangeTransaction, LinkResetArgs};
use crate::commands::journal::{
    ChangeState, Journal, JournalEntry, PendingState, UnconfirmedChange,
};
use crate::commands::restore::{self, is_made_by};
use crate::commands::{set, way_back};
use crate::context::CliContext;
use crate::exit::{CliError, ExitReason};
use crate::output;

/// Take back a change, by default the newest in force.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput undo                          the newest change that is in force and is no undo itself
  latput undo 7 --dry-run              entry 7 of `latput log`
  latput undo 7 --confirm-within 60s   goes forward again unless `latput confirm` comes

An undo is a change like any other: all or nothing, read back, and an entry of the journal. `latput undo` of
its number makes the first change again. A value that another program has set since stays and is named.
Changes of another boot are refused: the reboot ended them.")]
pub(crate) struct Args {
    /// The number in `latput log`.
    #[arg(value_name = "N")]
    number: Option<u64>,
    /// Print the exact writes without doing them, or what the undo would refuse.
    #[arg(long)]
    dry_run: bool,
    /// Make the change again after this time (1s to 24h) unless `latput confirm` comes first.
    #[arg(long, value_name = "TIME", value_parser = change::confirm_within)]
    confirm_within: Option<Nanos>,
    #[command(flatten)]
    resets: LinkResetArgs,
    /// The way to this host was there with these values: a fleet had reached it.
    #[arg(long, hide = true)]
    of_fleet: bool,
    /// Only a change that this command has made, as `latput set --made-by` named it.
    #[arg(long, value_name = "COMMAND", hide = true)]
    made_by: Option<String>,
}

impl Args {
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        let journal = Journal::read()?;
        for problem in journal.describe_unread() {
            output::print_remark(&format!("latput: left out: {problem}"));
        }
        let entry = match self.number {
            Some(number) => find_in_force(&journal, number)?,
            None => choose_newest(&journal)?,
        };
        self.check_maker(entry)?;
        let own = journal.build_undo_checkpoint(entry);
        let interface = &entry.change.interface;
        let link_resets = self.resets.link_resets(interface)?;
        let PlannedUndo { changes, others, warnings } = plan_undo(&own, link_resets)?;
        let setting: Setting = changes.iter().map(|it| (it.knob, it.to.clone())).collect();
        if !self.of_fleet {
            change::check_connection(interface, &setting, link_resets, self.confirm_within)?;
        }
        for warning in warnings {
            output::print_remark(&format!("latput: warning: {interface}: {warning}"));
        }
        if self.dry_run {
            tell_others(&journal, entry, &others);
            let text = set::changes_text(interface, &changes, "would undo");
            return Ok(print_undone(context, entry, (&changes, &text), &others, None));
        }
        set::warn_of_hidden_state(interface);
        let mut changing = ChangeTransaction::begin("undo", link_resets)?;
        changing.start_watcher(interface, self.confirm_within)?;
        changing.claim_to_undo(&own)?;
        // Another command may have undone it, or set the same values, before the lock was taken.
        let journal = Journal::read()?;
        let entry = find_in_force(&journal, entry.number)?;
        let (applied, others) =
            changing.undo_entry(entry.number, &journal.build_undo_checkpoint(entry))?;
        let kept = changing.commit_change(context, &applied)?;
        kept.print_confirm_reminder(interface);
        tell_others(&journal, entry, &others);
        let text = set::applied_text(interface, &applied, "undid");
        Ok(print_undone(context, entry, (&applied.changes, &text), &others, kept.number))
    }

    /// Refuses a change that another command made: after a reboot its number may be that of an earlier one.
    fn check_maker(&self, entry: &JournalEntry) -> Result<(), CliError> {
        if is_made_by(&entry.change, self.made_by.as_deref()) {
            return Ok(());
        }
        let (number, owner) = (entry.number, entry.change.owner());
        let message = format!("change {number} is not undone: it is of {owner}");
        Err(CliError::new(ExitReason::Failed, message))
    }
}

/// The newest change in force that is no undo itself.
fn choose_newest(journal: &Journal) -> Result<&JournalEntry, CliError> {
    let can_go = |entry: &&JournalEntry| {
        let is_undo = entry.change.undoes.is_some();
        !is_undo
            && matches!(entry.state, ChangeState::InForce | ChangeState::InPart)
            && !journal.is_undone(entry)
    };
    let entry = journal.entries.iter().find(can_go).ok_or_else(|| nothing_to_undo(journal))?;
    match journal.find_unknown_since(entry) {
        None => Ok(entry),
        Some(later) => {
            let message = format!(
                "entry {later} is newer than {0} and may have changed the same values: run `latput undo {0}` to \
                 put back those from before {0}",
                entry.number
            );
            Err(CliError::new(ExitReason::Failed, message))
        }
    }
}

/// The entry with this number, if its change is in force.
fn find_in_force(journal: &Journal, number: u64) -> Result<&JournalEntry, CliError> {
    let entry = journal.entries.iter().find(|entry| entry.number == number);
    let entry = entry.ok_or_else(|| {
        if journal.damaged.iter().any(|damaged| damaged.number == number) {
            let message = format!("change {number} is not undone: its entry cannot be read");
            return CliError::new(ExitReason::Failed, message);
        }
        CliError::usage(format!("the journal has no entry {number}: see `latput log`"))
    })?;
    let why = match entry.state {
        ChangeState::InForce | ChangeState::InPart => return Ok(entry),
        ChangeState::BeforeBoot => "it was made before the last boot, which ended it".to_owned(),
        ChangeState::Elsewhere => {
            "it is of another network namespace: run `latput undo` there".to_owned()
        }
        ChangeState::Gone => format!("its interface {} is gone", entry.change.interface),
        ChangeState::WentBack => {
            let why = entry.change.went_back.as_deref().unwrap_or_default();
            format!("it was put back: {why}")
        }
        ended => format!("it is not in force: {ended}"),
    };
    Err(CliError::new(ExitReason::Failed, format!("change {number} is not undone: {why}")))
}

/// The error without a change to undo. One that is unfinished, or waits to be confirmed, is no entry of the journal yet.
fn nothing_to_undo(journal: &Journal) -> CliError {
    let pending = |pending: &UnconfirmedChange| {
        let interface = &pending.change.interface;
        let state = match pending.state {
            PendingState::InUse(pid) => return format!("{interface} is in use by process {pid}"),
            PendingState::Waiting(_) | PendingState::Unwatched(_) => "waits to be confirmed",
            PendingState::Unfinished => "is unfinished",
        };
        let target = pending.command_target();
        format!("the change of {interface} {state}: `latput restore {target}` puts it back")
    };
    let pending: Vec<String> = journal.pending.iter().map(pending).collect();
    let why = if pending.is_empty() { "see `latput log`".to_owned() } else { pending.join("; ") };
    CliError::new(ExitReason::Failed, format!("no change in force can be undone: {why}"))
}

/// An undo before its first write.
struct PlannedUndo {
    changes: Vec<Change>,
    /// Values that it leaves to others.
    others: Vec<Foreign>,
    warnings: Vec<String>,
}

fn plan_undo(earlier: &Checkpoint, link_resets: LinkResets) -> Result<PlannedUndo, CliError> {
    let kernel = LinuxKernel::open()?;
    let store = FileCheckpoints::new(&folders::checkpoints_dir());
    let origin = knobs::Context { link_resets, ..checkpoint::context()? };
    let (changes, others) = transaction::plan_undo(&kernel, &store, &origin, earlier)?;
    let named = way_back::with_its_name_of_now(&kernel, &origin, earlier.clone());
    let warnings = way_back::restore_warnings(&kernel, &named, &changes);
    Ok(PlannedUndo { changes, others, warnings })
}

/// Names the values that stay, with who set them.
fn tell_others(journal: &Journal, entry: &JournalEntry, others: &[Foreign]) {
    for value in entry.values.iter().filter(|value| value.is_in_force()) {
        if let Some(later) = entry.superseded.get(&(value.knob, value.place)) {
            output::print_remark(&format!(
                "latput: {}: {} ({}) is {}, set again by change {later}; it stays",
                entry.change.interface, value.knob, value.place, value.written
            ));
        }
    }
    for other in others {
        let Foreign { knob, place, before, written, found } = other;
        let value = entry.values.iter().find(|value| (value.knob, value.place) == (*knob, *place));
        // The value of another interface that followed may have been set there.
        let has_set_linked = |later: &JournalEntry| {
            let Checkpoint { namespace, device, written, .. } = &later.change;
            let is_its = place.linked_index() == Some(device.index);
            is_its
                && *namespace == entry.change.namespace
                && written.0.get(&(*knob, Place::Device)) == Some(found)
        };
        let mut later = journal.entries.iter().filter(|later| later.number > entry.number);
        let maker = later.find(|later| {
            value.is_some_and(|value| later.has_made_current_value(&entry.change, value))
                || has_set_linked(later)
        });
        let who = match maker {
            Some(later) => format!("change {}", later.number),
            // An entry that cannot be read may have set it.
            None => match journal.find_damaged_since(entry) {
                Some(number) => {
                    format!("change {number}, which cannot be read, or another program")
                }
                None => "another program".to_owned(),
            },
        };
        let interface = &entry.change.interface;
        let [before, written, found] =
            [before, written, found].map(|value| place.format_value(value));
        output::print_remark(&format!(
            "latput: {interface}: {knob} ({place}) stays {found}, which {who} set. It was {before}, and change {} \
             set {written}",
            entry.number
        ));
    }
}

fn print_undone(
    context: &CliContext,
    entry: &JournalEntry,
    (changes, text): (&[transaction::Change], &str),
    others: &[Foreign],
    number: Option<u64>,
) -> ExitCode {
    let interface = &entry.change.interface;
    if context.json {
        let others: Vec<_> = others.iter().map(restore::other_json).collect();
        output::print_change_json(&serde_json::json!({
            "schema": 1,
            "undone": entry.number,
            "changes": set::changes_json(interface, changes),
            "set_by_others": others,
            "journal": number,
        }));
    } else {
        let again = number.map_or(String::new(), |number| format!("again: latput undo {number}\n"));
        output::print_change(&(text.to_owned() + &again));
    }
    ExitCode::SUCCESS
}
