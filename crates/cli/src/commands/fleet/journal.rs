//! `latput fleet log`, `undo`, `finish` and `keep`: what hosts have changed, back again, and over a reboot.

use std::fmt::Write as _;
use std::process::ExitCode;

use latput_fleet::FleetWish;
use latput_fleet::actions::RolloutFinish;
use latput_fleet::journal::render_journal;
use latput_linux::confine::UsedFiles;

use super::args::{FleetArgs, FleetRights, WantedArgs};
use super::print_outcomes;
use crate::context::CliContext;
use crate::document::fleet::FleetLogDocument;
use crate::exit::{CliError, ExitReason};
use crate::output;

/// List the changes that were made on the hosts, the newest first.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput fleet log -i inventory.toml
  latput fleet log -i inventory.toml --group web --newest 1

Each line is an entry of the host's own journal, as in `latput log`. Changes by `latput fleet apply` have the
name of their rollout, for `latput fleet undo`.")]
pub(super) struct Log {
    /// Entries of each host.
    #[arg(long, value_name = "N", default_value_t = 5)]
    newest: usize,
    #[command(flatten)]
    fleet: FleetArgs,
}

/// Take a rollout back on every host: by default the newest that is in force.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput fleet undo -i inventory.toml --dry-run              which hosts have it
  latput fleet undo -i inventory.toml                        the newest rollout
  latput fleet undo fleet-1a21f0015cc-7fbf -i inventory.toml    as `latput fleet apply` has called it

Each host undoes the entry of its own journal, completely or not at all. Values that another program has set
since stay. Exit code 6: a host did not answer or refused. The same command, run again, undoes the rest.")]
pub(super) struct Undo {
    /// The name of the rollout.
    #[arg(value_name = "ROLLOUT")]
    rollout: Option<String>,
    /// Show which hosts have it.
    #[arg(long)]
    dry_run: bool,
    /// Allow changes that take the link down and up, unless it carries the connection to the host.
    #[arg(long)]
    allow_link_reset: bool,
    #[command(flatten)]
    fleet: FleetArgs,
}

/// Keep the wanted values over a reboot on every host that has them, in its own configuration system.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput fleet keep -i inventory.toml --dry-run
  latput fleet keep -i inventory.toml
  latput fleet keep -i inventory.toml --from latput-results.db
  latput fleet keep -i inventory.toml --remove       the files are again as they were

Each host runs `latput keep`. A host without the wanted values is left out (exit code 6): run `latput fleet
apply` first.")]
pub(super) struct Keep {
    #[command(flatten)]
    wanted: WantedArgs,
    /// Show what would be written.
    #[arg(long)]
    dry_run: bool,
    /// Remove what was installed.
    #[arg(long, conflicts_with_all = ["wanted", "from"])]
    remove: bool,
    #[command(flatten)]
    fleet: FleetArgs,
}

/// Finish a rollout that was cut short: confirm it on the hosts that wait, or take it back on all.
#[derive(Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("which way").required(true),
    after_help = "\
Examples:
  latput fleet finish -i inventory.toml --confirm       the hosts that wait keep it
  latput fleet finish -i inventory.toml --back          every host goes back, also those that have confirmed it
  latput fleet finish fleet-1a21f0015cc-7fbf -i inventory.toml --back

A rollout is cut short where `latput fleet apply` is killed while it confirms one host after the other. The other commands
of `latput fleet` name it then. One that came to its end without some hosts has ended: run the same `latput fleet apply`
again. A host that waits goes back by itself at the end of its time; with --confirm such a host is
named (exit code 6), and `latput fleet apply` sets it again."
)]
pub(super) struct Finish {
    /// The name of the rollout; needed where several are open.
    #[arg(value_name = "ROLLOUT")]
    rollout: Option<String>,
    /// Confirm it on the hosts that wait.
    #[arg(long, group = "which way")]
    confirm: bool,
    /// Take it back on the hosts that wait, and on those that have confirmed it.
    #[arg(long, group = "which way")]
    back: bool,
    /// Allow changes that take the link down and up, unless it carries the connection to the host.
    #[arg(long)]
    allow_link_reset: bool,
    #[command(flatten)]
    fleet: FleetArgs,
}

impl Log {
    pub(super) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        let wish = || Ok(FleetWish::default());
        let fleet = self.fleet.open(&FleetRights::default(), wish, context)?;
        let journals = fleet.read_journals();
        if context.json {
            output::print_json(&FleetLogDocument::new(&fleet.hosts, &journals, self.newest))?;
        } else {
            let mut text = String::new();
            for (host, journal) in fleet.hosts.iter().zip(&journals) {
                let _ = writeln!(text, "{} {}", host.name, host.interface);
                text += &render_journal(journal, self.newest);
            }
            output::print_text(&text)?;
        }
        Ok(ExitReason::from(fleet.ending_of_journals(&journals)).into())
    }
}

impl Undo {
    pub(super) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        let rights = FleetRights { changes: !self.dry_run, ..FleetRights::default() };
        let fleet = self.fleet.open(&rights, || Ok(FleetWish::default()), context)?;
        let rollout = self.rollout.as_deref();
        let done = fleet.undo_rollout(rollout, self.dry_run, self.allow_link_reset)?;
        Ok(print_outcomes(&done, context))
    }
}

impl Finish {
    pub(super) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        let rights = FleetRights { changes: true, ..FleetRights::default() };
        let fleet = self.fleet.open(&rights, || Ok(FleetWish::default()), context)?;
        let how = if self.confirm {
            RolloutFinish::Confirm
        } else {
            RolloutFinish::Back { allow_link_reset: self.allow_link_reset }
        };
        let done = fleet.finish_rollout(self.rollout.as_deref(), how)?;
        Ok(print_outcomes(&done, context))
    }
}

impl Keep {
    pub(super) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        self.wanted.check_values()?;
        let files = UsedFiles::new(self.wanted.results_file(), []);
        let rights = FleetRights { changes: !self.dry_run, files, ..FleetRights::default() };
        let fleet = self.fleet.open(&rights, || self.wanted.read(), context)?;
        Ok(print_outcomes(&fleet.keep_values(self.remove, self.dry_run)?, context))
    }
}
