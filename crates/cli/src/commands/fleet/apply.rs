//! `latput fleet apply`: brings the wanted values to a fleet in stages, and back where a guard breaks.

use std::process::ExitCode;

use latput_fleet::{GuardLimits, RolloutOptions, StageStep, guard, roll_out};
use latput_linux::confine::UsedFiles;
use latput_units::Nanos;

use super::args::{FleetArgs, FleetRights, WantedArgs};
use crate::commands::change;
use crate::context::CliContext;
use crate::document::fleet::RolloutDocument;
use crate::exit::{CliError, CutShort, ExitReason};
use crate::output;

/// Set the wanted values in stages, watch the hosts, and put all back where a guard breaks.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput fleet apply -i inventory.toml --dry-run
  latput fleet apply -i inventory.toml --canary 1 --then 10% --then all --confirm-within 6min --soak 30s
  latput fleet apply -i inventory.toml --from latput-results.db
      what a run recommends, in the place of the inventory's settings
  latput fleet apply -i inventory.toml --guard 'curl -fsS -m 5 http://{host}/health'

Each stage counts the hosts of a group, those of earlier stages included. After each stage all changed hosts
must be well for --soak: reachable, interface up, carrier as before, values in force, errors and drops as
before, every --guard with exit code 0. When all are well at the end, the change is confirmed on every host.
Otherwise, and on Ctrl-C, every host goes back (exit code 4). A host that cannot be reached then goes back by
itself at the end of --confirm-within, and is named (exit code 5).

Hosts that cannot be used are left out and named (exit code 6). The same command later changes the hosts that
are not as wanted.")]
pub(super) struct Args {
    #[command(flatten)]
    wanted: WantedArgs,
    #[command(flatten)]
    fleet: FleetArgs,
    /// The first stage: a number of hosts of each group, or a share such as 10%.
    #[arg(long, value_name = "HOSTS", default_value = "1")]
    canary: StageStep,
    /// A later stage: the number of hosts of each group with the values after it. May be repeated [default: all].
    #[arg(long, value_name = "HOSTS")]
    then: Vec<StageStep>,
    /// Put every host back after this time (1s to 24h) unless all are well.
    #[arg(long, value_name = "TIME", default_value = "5min", value_parser = change::confirm_within)]
    confirm_within: Nanos,
    /// How long the hosts must be well after each stage (0s to 24h).
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_soak)]
    soak: Nanos,
    /// A command that is run here for each changed host and must exit with 0: `{host}`, `{interface}` and `{target}`
    /// are those of the host. No shell reads it. May be repeated.
    #[arg(long, value_name = "COMMAND")]
    guard: Vec<String>,
    /// Errors and drops of an interface that are allowed in addition to the earlier rate, in packets a second.
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    new_faults_most: u64,
    /// Allow changes that take the link down and up, unless it carries the connection to the host.
    #[arg(long)]
    allow_link_reset: bool,
    /// Look at the hosts, and print the stages and what would be changed.
    #[arg(long)]
    dry_run: bool,
}

fn parse_soak(text: &str) -> Result<Nanos, String> {
    let time = Nanos::from_text_or_seconds(text).map_err(|error| error.to_string())?;
    let is_meant = time <= Nanos::from_s(24 * 3600);
    is_meant.then_some(time).ok_or_else(|| "must be 0s to 24h".to_owned())
}

impl Args {
    pub(super) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        let commands = self.guard.iter().map(|line| guard::parse_command(line));
        let commands = commands.collect::<Result<Vec<_>, _>>()?;
        self.wanted.check_values()?;
        let files = UsedFiles::new(self.wanted.results_file(), []);
        let rights = FleetRights { changes: !self.dry_run, guards: &commands, files };
        let fleet = self.fleet.open(&rights, || self.wanted.read(), context)?;
        let then = if self.then.is_empty() { [StageStep::All].as_slice() } else { &self.then };
        let options = RolloutOptions {
            steps: [&[self.canary][..], then].concat(),
            confirm_within: self.confirm_within,
            soak: self.soak,
            guards: GuardLimits { faults_most_pps: self.new_faults_most },
            allow_link_reset: self.allow_link_reset,
            dry_run: self.dry_run,
            wanted: self.wanted.to_arg_text(),
            commands,
        };
        let report = roll_out(&fleet, &options)?;
        if context.json {
            output::print_json(&RolloutDocument::new(&report))?;
        } else {
            output::print_text(&report.render_text())?;
        }
        report.failure().map_or_else(
            || Ok(ExitReason::from(report.ending()).into()),
            |failure| {
                let cut_short = CutShort { message: failure.message, left: failure.left };
                Err(CliError { code: failure.outcome.into(), error: cut_short.into() })
            },
        )
    }
}
