//! `latput set`: sets knobs in one transaction.

use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::process::ExitCode;

use latput_experiment::host;
use latput_knobs::transaction::{self, Change};
use latput_knobs::{self as knobs, LinkResets, Setting, parse_assignment};
use latput_linux::{Control, FileCheckpoints, LinuxKernel, checkpoint, process};
use latput_units::Nanos;

use crate::commands::effect;
use crate::commands::watcher::Watcher;
use crate::context::Context;
use crate::exit::{CliError, Code};
use crate::output;

/// Allowed times to wait for a confirmation.
const CONFIRM_WITHIN: RangeInclusive<Nanos> = Nanos::from_s(1)..=Nanos::from_s(24 * 3600);

/// Set knobs of an interface, all or none, and read each back.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput set eth0 gro-flush-timeout=50us napi-defer-hard-irqs=100
  latput set eth0 mtu=9000 --dry-run
  latput set eth0 rps-cpus=0-3 tso=off
  latput set eth0 adaptive-rx=off rx-usecs=50us rx-frames=32 --verify-effect
  latput set eth0 mtu=9000 --confirm-within 60s
      goes back after a minute unless `latput confirm eth0` comes, from a new ssh session best
  latput set eth1 rx-ring=4096 --allow-link-reset
  latput set eth0 rx-ring=4096 --allow-link-reset=eth0 --confirm-within 60s
      eth0 carries your ssh connection: only named twice may its link go down and up
  latput set eth0 qdisc=\"fq_codel limit=10240 target=5ms\" smp-affinity=hint rx-ring=max

`latput show IFACE` lists the knobs and their ranges. On any error everything is put back; after a
kill -9, `latput restore` does that, or with --confirm-within what watches the time.")]
pub(crate) struct Args {
    /// The interface.
    #[arg(value_name = "IFACE")]
    interface: String,
    /// The knobs with their new values.
    #[arg(required = true, value_name = "KNOB=VALUE")]
    assignments: Vec<String>,
    /// Print the exact writes without doing them.
    #[arg(long)]
    dry_run: bool,
    /// Put everything back after this time (1s to 24h) unless `latput confirm` comes first, also if latput
    /// is killed or its ssh session dies.
    #[arg(long, value_name = "TIME", value_parser = Nanos::from_text_or_seconds)]
    confirm_within: Option<Nanos>,
    /// Allow changes that take the link down and up; name the interface if it carries your connection.
    #[arg(long, value_name = "IFACE", num_args = 0..=1, require_equals = true)]
    #[expect(clippy::option_option, reason = "absent, without a name, and with one")]
    allow_link_reset: Option<Option<String>>,
    /// Before the change is kept, count the interrupts (or polls) of the interface's own traffic for a
    /// second: put everything back if the device ignores the setting, and say so if there is too
    /// little traffic to tell.
    #[arg(long, conflicts_with = "dry_run")]
    verify_effect: bool,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, CliError> {
        let mut setting = Setting::new();
        for text in &self.assignments {
            let (knob, value) =
                parse_assignment(text).map_err(|error| CliError::usage(error.to_string()))?;
            if setting.insert(knob, value).is_some() {
                return Err(CliError::usage(format!("`{knob}` is given twice")));
            }
        }
        if self.confirm_within.is_some_and(|time| !CONFIRM_WITHIN.contains(&time)) {
            return Err(CliError::usage("--confirm-within must be 1s to 24h"));
        }
        let link_resets = self.link_resets()?;
        let mut kernel = LinuxKernel::open()?;
        if self.dry_run {
            let changes = transaction::plan(&kernel, &self.interface, &setting)?;
            tell(context, &self.interface, &changes, "would change")?;
            let interface = &self.interface;
            let setting = &setting;
            transaction::check_link_resets(&kernel, link_resets, interface, setting, &changes)?;
            return Ok(Code::Done.into());
        }
        let mut store = FileCheckpoints::new(&host::checkpoints_dir());
        let origin = knobs::Context { link_resets, ..checkpoint::context()? };
        let start = |within| Watcher::start(&kernel, &origin, &self.interface, within);
        let watcher = self.confirm_within.map(start).transpose()?;
        let applied =
            transaction::apply(&mut kernel, &mut store, &origin, &self.interface, &setting)?;
        let is_ignored =
            self.verify_effect && effect::verify(context, &self.interface).is_ignored();
        if is_ignored {
            transaction::restore(&mut kernel, &mut store, &origin, &applied.undo)?;
            let message = "the device ignores the setting: everything is as it was";
            return Err(CliError::new(Code::RolledBack, message));
        }
        if context.stop.is_raised() {
            transaction::restore(&mut kernel, &mut store, &origin, &applied.undo)?;
            return Err(CliError::new(Code::RolledBack, "interrupted: everything is as it was"));
        }
        let mut left = None;
        let waits = self.confirm_within.filter(|_| !applied.changes.is_empty());
        if let Some(within) = waits {
            let by = process::since_boot() + within;
            if let Err(error) = transaction::await_confirmation(&mut store, &applied.undo, by) {
                transaction::restore(&mut kernel, &mut store, &origin, &applied.undo)?;
                return Err(CliError { code: Code::RolledBack, error: error.into() });
            }
        } else {
            left = transaction::commit(&mut store, &applied.undo).err();
        }
        // Dropped before anything is printed: a closed terminal must not keep the change from being
        // put back.
        drop((store, watcher));
        for Change { knob, place, from, to } in &applied.rounded {
            output::remark(&format!("latput: {knob} ({place}): the device keeps {to} for {from}"));
        }
        if let Some(within) = waits {
            let interface = &self.interface;
            output::remark(&format!(
                "latput: everything goes back in {within} unless `latput confirm {interface}` comes"
            ));
        }
        tell(context, &self.interface, &applied.changes, "changed")?;
        left.map_or_else(|| Ok(Code::from(applied.outcome()).into()), |error| Err(error.into()))
    }
}

impl Args {
    /// The link resets that the command line allows. Naming the interface twice allows one that
    /// cuts the own connection.
    fn link_resets(&self) -> Result<LinkResets, CliError> {
        match &self.allow_link_reset {
            Some(Some(named)) if *named == self.interface => Ok(LinkResets::Allowed),
            Some(Some(named)) => Err(CliError::usage(format!(
                "--allow-link-reset={named} must repeat the interface, which is {}",
                self.interface
            ))),
            _ if Control::find()?.interfaces.contains(&self.interface) => {
                Ok(LinkResets::RefusedOnControl)
            }
            Some(None) => Ok(LinkResets::Allowed),
            None => Ok(LinkResets::Refused),
        }
    }
}

fn tell(
    context: &Context,
    interface: &str,
    changes: &[Change],
    verb: &str,
) -> Result<(), CliError> {
    if context.json {
        let changes = changes_json(interface, changes);
        output::print_json(&serde_json::json!({ "schema": 1, "changes": changes }))?;
    } else {
        output::print(&changes_text(interface, changes, verb))?;
    }
    Ok(())
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

/// The changes as text, one a line.
pub(super) fn changes_text(interface: &str, changes: &[Change], verb: &str) -> String {
    let mut text = String::new();
    for Change { knob, place, from, to } in changes {
        let _ = writeln!(text, "{verb} {interface} {knob} ({place}) from {from} to {to}");
    }
    if changes.is_empty() {
        let _ = writeln!(text, "nothing to change: {interface} is as wanted");
    }
    text
}
