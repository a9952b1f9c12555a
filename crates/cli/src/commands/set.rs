//! `latput set`: sets knobs in one transaction.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Read as _;
use std::process::ExitCode;

use latput_knobs::transaction::{self, Applied, ApplyError, Change};
use latput_knobs::{Knob, Place, Setting, Value};
use latput_linux::{FileCheckpoints, LinuxKernel, checkpoint, interfaces, state_place};
use latput_protocol::folders;
use latput_units::{IntoSet, Nanos};

use crate::commands::change::{self, ChangeTransaction, LinkResetArgs};
use crate::commands::{effect, next};
use crate::context::CliContext;
use crate::exit::{CliError, ExitReason};
use crate::output;

/// Most that is read of values, bytes.
const STDIN_BYTES_MOST: u64 = 1 << 20;

/// Set knobs of an interface, all or none, and read each back.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput set eth0 gro-flush-timeout=50us napi-defer-hard-irqs=100
  latput set eth0 mtu=9000 --allow-link-reset --dry-run
  latput set eth0 rps-cpus=0-1 tso=off
  latput set eth0 adaptive-rx=off rx-usecs=50us rx-frames=32 --verify-effect
  latput set eth0 mtu=9000 --allow-link-reset --confirm-within 60s
      goes back after a minute unless `latput confirm eth0` comes, from a new ssh session best
  latput set eth1 rx-ring=4096 --allow-link-reset
  latput set eth0 rx-ring=4096 --allow-link-reset=eth0 --confirm-within 60s
      eth0 carries your ssh connection: only named twice may its link go down and up
  latput set eth0 qdisc=\"fq_codel limit=10240 target=5ms\" smp-affinity=hint rx-ring=max

`latput show IFACE` lists the knobs and their ranges. After an error everything is put back. After a kill -9,
`latput restore` does that, or with --confirm-within the process that watches the time.")]
pub(crate) struct Args {
    /// The interface.
    #[arg(value_name = "IFACE", value_parser = change::present_name)]
    interface: String,
    /// The knobs with their new values.
    #[arg(required_unless_present = "stdin", value_name = "KNOB=VALUE")]
    assignments: Vec<String>,
    /// Print the exact writes without doing them, or what the change would refuse.
    #[arg(long)]
    dry_run: bool,
    /// Put everything back after this time (1s to 24h) unless `latput confirm` comes first, also if latput
    /// is killed or its ssh session dies.
    #[arg(long, value_name = "TIME", value_parser = change::confirm_within)]
    confirm_within: Option<Nanos>,
    #[command(flatten)]
    resets: LinkResetArgs,
    /// Before the change is kept, count the interrupts (or polls) of the interface's own traffic for a second: put
    /// everything back if the device ignores the setting, and say so if there is too little traffic to judge.
    #[arg(long, conflicts_with = "dry_run")]
    verify_effect: bool,
    /// The command that the journal names; `latput apply` gives it.
    #[arg(long, hide = true, value_name = "COMMAND")]
    made_by: Option<String>,
    /// Read the values from stdin, one a line: a remote shell would split some.
    #[arg(long, hide = true, conflicts_with = "assignments")]
    stdin: bool,
    /// Refuse an interface with another driver or place on its bus.
    #[arg(long, hide = true, value_name = "DRIVER/BUS")]
    only_if: Option<String>,
}

impl Args {
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        self.change_interface(context).map_err(|error| with_owner(error, &self.interface))
    }

    fn change_interface(&self, context: &CliContext) -> Result<ExitCode, CliError> {
        let setting = change::setting_on(&self.interface, &self.read_assignments()?)?;
        let interface = &self.interface;
        if let Some(measured) = &self.only_if {
            change::must_be_measured(interface, measured)?;
        }
        let link_resets = self.resets.link_resets(interface)?;
        if self.dry_run {
            let kernel = LinuxKernel::open()?;
            let changes = plan_changes(&kernel, interface, &setting)?;
            tell_planned(context, interface, &changes)?;
            transaction::check_link_resets(&kernel, link_resets, interface, &setting, &changes)?;
            change::check_connection(interface, &setting, link_resets, self.confirm_within)?;
            return Ok(ExitReason::Done.into());
        }
        change::check_connection(interface, &setting, link_resets, self.confirm_within)?;
        warn_of_hidden_state(interface);
        let by = self.made_by.as_deref().unwrap_or("set");
        let mut changing = ChangeTransaction::begin(by, link_resets)?;
        changing.start_watcher(interface, self.confirm_within)?;
        let applied = changing.apply_setting(interface, &setting)?;
        if self.verify_effect && effect::measure_effect(context, interface).is_ignored() {
            return Err(changing
                .put_back(&applied, "the device ignores the setting: everything was put back"));
        }
        let kept = changing.commit_change(context, &applied)?;
        for Change { knob, place, from, to } in &applied.rounded {
            output::print_remark(&format!(
                "latput: {knob} ({place}): the device keeps {to} for {from}"
            ));
        }
        kept.print_confirm_reminder(interface);
        for knob in until_link_down(&applied) {
            output::print_remark(&format!(
                "latput: {knob}: some drivers lose the values of NAPI instances when the link goes down. `latput log` \
                 shows whether they are in force"
            ));
        }
        print_applied(context, interface, &applied, (kept.number, &setting));
        Ok(ExitReason::from(applied.outcome()).into())
    }
}

/// The changes that would be made. Who may not read the checkpoints is told that they are not known.
fn plan_changes(
    kernel: &LinuxKernel,
    interface: &str,
    setting: &Setting,
) -> Result<Vec<Change>, CliError> {
    let store = FileCheckpoints::new(&folders::checkpoints_dir());
    let origin = checkpoint::context()?;
    match transaction::plan_apply(kernel, &store, &origin, interface, setting) {
        Err(ApplyError::Checkpoint(error)) if error.is_permission() => {
            output::print_remark(&format!(
                "latput: whether a change of {interface} waits or was not finished is not known: {error}"
            ));
            Ok(transaction::plan(kernel, interface, setting)?)
        }
        planned => Ok(planned?),
    }
}

/// Says that a latput outside of this container does not see the change.
pub(super) fn warn_of_hidden_state(interface: &str) {
    let folder = folders::state_dir();
    if state_place::is_hidden(&folder) {
        output::print_remark(&format!(
            "latput: warning: {} is this container's, and the network is not: a latput outside of it sees neither this \
             change nor its lock, and may change {interface} at the same time. Mount the host's folder there",
            folder.display()
        ));
    }
}

/// The knobs whose NAPI instances have values that those to come will not take from the device.
fn until_link_down(applied: &Applied) -> BTreeSet<Knob> {
    let of_napi = |(knob, place): &(Knob, Place)| matches!(place, Place::Napi(_)).then_some(*knob);
    let changed: BTreeSet<Knob> =
        applied.changes.iter().filter_map(|it| of_napi(&(it.knob, it.place))).into_set();
    let is_kept = |knob: &Knob| applied.found.0.contains_key(&(*knob, Place::Device));
    changed.into_iter().filter(|knob| !is_kept(knob)).into_set()
}

impl Args {
    /// The values as text, `KNOB=VALUE` each.
    fn read_assignments(&self) -> Result<Vec<String>, CliError> {
        if !self.stdin {
            return Ok(self.assignments.clone());
        }
        let mut text = String::new();
        std::io::stdin().take(STDIN_BYTES_MOST).read_to_string(&mut text)?;
        Ok(text.lines().map(str::to_owned).collect())
    }
}

/// Adds whose a knob is that an interface lacks which lies on another.
fn with_owner(failed: CliError, interface: &str) -> CliError {
    let lacks = matches!(failed.error.downcast_ref(), Some(ApplyError::Unsupported { .. }));
    match lacks.then(|| interfaces::describe_stacking(interface)).flatten() {
        Some(owner) => CliError::new(failed.code, format!("{:#}; {owner}", failed.error)),
        None => failed,
    }
}

/// Tells what a dry run found.
fn tell_planned(context: &CliContext, interface: &str, changes: &[Change]) -> Result<(), CliError> {
    if !context.json {
        return output::print_text(&changes_text(interface, changes, "would change"));
    }
    let changes = changes_json(interface, changes);
    output::print_json(&serde_json::json!({ "schema": 1, "changes": changes, "journal": null }))
}

fn print_applied(
    context: &CliContext,
    interface: &str,
    applied: &Applied,
    (number, setting): (Option<u64>, &Setting),
) {
    if context.json {
        output::print_change_json(&serde_json::json!({
            "schema": 1,
            "changes": changes_json(interface, &applied.changes),
            "along": changes_json(interface, &applied.along),
            "lost": lost_json(interface, &applied.lost),
            "journal": number,
        }));
    } else {
        let lines =
            number.map_or(String::new(), |number| next::next_lines(number, interface, setting));
        output::print_change(&(applied_text(interface, applied, "changed") + &lines));
    }
}

/// All that a change has moved, one a line.
pub(super) fn applied_text(interface: &str, applied: &Applied, verb: &str) -> String {
    let mut text = changes_text(interface, &applied.changes, verb);
    for change in &applied.along {
        let _ = writeln!(text, "{}, along with it", change_line(interface, change, verb));
    }
    for (knob, place, value) in &applied.lost {
        let (place, value) = (change::place_words(*knob, *place), place.format_value(value));
        let _ =
            writeln!(text, "{verb} {interface} {knob} ({place}) from {value}: its place is gone");
    }
    text
}

/// The changes as JSON.
pub(super) fn changes_json(interface: &str, changes: &[Change]) -> Vec<serde_json::Value> {
    changes
        .iter()
        .map(|change| {
            serde_json::json!({
                "interface": interface,
                "knob": change.knob.name(),
                "place": change.place.to_string(),
                "from": change.from.to_string(),
                "to": change.to.to_string(),
            })
        })
        .collect()
}

/// Values of places that a change took away, as JSON.
fn lost_json(interface: &str, lost: &[(Knob, Place, Value)]) -> Vec<serde_json::Value> {
    let value = |(knob, place, value): &(Knob, Place, Value)| {
        serde_json::json!({
            "interface": interface, "knob": knob.name(), "place": place.to_string(),
            "from": value.to_string(),
        })
    };
    lost.iter().map(value).collect()
}

/// Beginning of the answer where every value is as wanted.
pub(super) const NOTHING_TO_CHANGE: &str = "nothing to change: ";

fn change_line(interface: &str, change: &Change, verb: &str) -> String {
    let Change { knob, place, from, to } = change;
    let [from, to] = [from, to].map(|value| place.format_value(value));
    let place = change::place_words(*knob, *place);
    format!("{verb} {interface} {knob} ({place}) from {from} to {to}")
}

/// The changes as text, one a line.
pub(super) fn changes_text(interface: &str, changes: &[Change], verb: &str) -> String {
    let mut text = String::new();
    let leads = |knob: Knob| changes.iter().any(|it| it.knob == knob && !it.place.is_follower());
    // A value that follows another one of its knob is not worth a line, unless it is another interface's.
    for change in changes.iter().filter(|it| it.place.is_reported() || !leads(it.knob)) {
        let _ = writeln!(text, "{}", change_line(interface, change, verb));
    }
    if changes.is_empty() {
        let _ = writeln!(text, "{NOTHING_TO_CHANGE}{interface} is as wanted");
    }
    text
}
