//! `latput set`: a setting as a transaction.

use std::fmt::Write as _;
use std::process::ExitCode;

use latput_experiment::host;
use latput_knobs::transaction::{self, Change};
use latput_knobs::{Setting, parse_assignment};
use latput_linux::{FileCheckpoints, LinuxKernel, checkpoint};

use crate::commands::effect;
use crate::context::Context;
use crate::exit::{Code, Failure};
use crate::output;

/// Set knobs of an interface, all or none, each read back.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput set eth0 gro-flush-timeout=50us napi-defer-hard-irqs=100
  latput set eth0 mtu=9000 --dry-run
  latput set eth0 rps-cpus=0-3 tso=off
  latput set eth0 adaptive-rx=off rx-usecs=50us rx-frames=32 --verify-effect
  latput set eth0 qdisc=\"fq_codel limit=10240 target=5ms\" smp-affinity=hint rx-ring=max

`latput show IFACE` lists the knobs and their ranges. On any error everything is put back; after a
kill -9, `latput restore` does that.")]
pub(crate) struct Args {
    /// The interface.
    #[arg(value_name = "IFACE")]
    interface: String,
    /// What to set.
    #[arg(required = true, value_name = "KNOB=VALUE")]
    assignments: Vec<String>,
    /// Print the exact writes and do none of them.
    #[arg(long)]
    dry_run: bool,
    /// Before the change is kept, count the interrupts (or polls) of the interface's own traffic for a
    /// second: put everything back if the device ignores the setting, and say so if there is too
    /// little traffic to tell.
    #[arg(long, conflicts_with = "dry_run")]
    verify_effect: bool,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let mut setting = Setting::new();
        for text in &self.assignments {
            let (knob, value) =
                parse_assignment(text).map_err(|error| Failure::usage(error.to_string()))?;
            if setting.insert(knob, value).is_some() {
                return Err(Failure::usage(format!("`{knob}` is given twice")));
            }
        }
        let mut kernel = LinuxKernel::open()?;
        if self.dry_run {
            let changes = transaction::plan(&kernel, &self.interface, &setting)?;
            return tell(context, &self.interface, &changes, "would change");
        }
        let mut store = FileCheckpoints::new(&host::checkpoints_dir());
        let origin = checkpoint::context()?;
        let applied =
            transaction::apply(&mut kernel, &mut store, &origin, &self.interface, &setting)?;
        let is_ignored =
            self.verify_effect && effect::verify(context, &self.interface).is_ignored();
        if is_ignored {
            transaction::restore(&mut kernel, &mut store, &origin, &applied.undo)?;
            let message = "the device ignores the setting: everything is as it was";
            return Err(Failure::new(Code::RolledBack, message));
        }
        if context.stop.is_raised() {
            transaction::restore(&mut kernel, &mut store, &origin, &applied.undo)?;
            return Err(Failure::new(Code::RolledBack, "interrupted: everything is as it was"));
        }
        transaction::commit(&mut store, &applied.undo)
            .map_err(|error| Failure { code: Code::Failed, error: error.into() })?;
        for Change { knob, place, from, to } in &applied.rounded {
            output::remark(&format!("latput: {knob} ({place}): the device keeps {to} for {from}"));
        }
        tell(context, &self.interface, &applied.changes, "changed")
    }
}

fn tell(
    context: &Context,
    interface: &str,
    changes: &[Change],
    verb: &str,
) -> Result<ExitCode, Failure> {
    if context.json {
        let changes = changes_json(interface, changes);
        output::print_json(&serde_json::json!({ "schema": 1, "changes": changes }))?;
    } else {
        output::print(&changes_text(interface, changes, verb))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Changes as JSON.
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

/// Changes as text, one a line.
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
