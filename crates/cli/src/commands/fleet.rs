//! `latput fleet`: reads, compares and sets the interfaces of many hosts side by side.

mod apply;
mod args;
mod journal;
mod pairs;

use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;

use latput_experiment::RunProgress;
use latput_fleet::judge::{render_states, undecided_groups};
use latput_fleet::{
    Error, FleetContext, FleetEnding, FleetProgress, FleetWish, HostOutcomes, drift, local_look,
    prometheus,
};
use latput_knobs::Knob;
use latput_linux::confine::UsedFiles;
use latput_linux::process::unix_ms;

use self::args::{FleetArgs, FleetRights, WantedArgs};
use crate::context::CliContext;
use crate::document::fleet::{FleetDocument, FleetDoneDocument};
use crate::exit::{CliError, ExitReason};
use crate::progress::ProgressDisplay;
use crate::{output, parallel};

/// Most that is read of stdin, bytes.
const STDIN_BYTES_MOST: u64 = 1 << 20;

/// Read, compare and set the interfaces of many hosts.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput fleet show -i inventory.toml                       the values of every host, by value
  latput fleet verify -i inventory.toml --prometheus /var/lib/node_exporter/latput.prom
  latput fleet verify -i hosts.ini rx-usecs=50us            of an Ansible inventory
  latput fleet verify -i inventory.toml --from latput-results.db
  latput fleet verify -i inventory.toml --kept              what each host keeps, against what is in force
  latput fleet drift --hosts-from 'consul catalog nodes' --interface eth0
  latput fleet apply -i inventory.toml --canary 1 --then 10% --then all --confirm-within 6min
  latput fleet undo -i inventory.toml                       takes the newest rollout back
  latput fleet finish -i inventory.toml --confirm           one that was cut short
  latput fleet keep -i inventory.toml                       keeps the values over a reboot
  latput fleet log -i inventory.toml                        the changes of every host
  latput fleet confirm latput-results.db -i inventory.toml  is the winner one on every pair of hosts?
  latput fleet pairs pair1.db pair2.db pair3.db             the same of results that are there

inventory.toml:
  schema = 1
  [group.web]
  hosts = [\"ssh://root@web1\", \"ssh://root@web2\"]
  interface = \"eth0\"
  settings = { rx-usecs = \"50us\" }

A slow or dead host does not delay others. In every command, a host without an answer is `unreachable`,
`timed-out`, `failed` or `not-asked`, and the exit code is 6. Exit code 8: a host is not as wanted. Exit code 5: a
host could not be put back.")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Show the values of knobs, with the hosts that have each.
    Show(Show),
    /// Compare every host with the wanted values.
    Verify(Verify),
    /// Compare the hosts of each group with each other.
    Drift(Show),
    /// Set the wanted values in stages, watch the hosts, and put all back if a guard breaks.
    Apply(apply::Args),
    Undo(journal::Undo),
    Finish(journal::Finish),
    Keep(journal::Keep),
    Log(journal::Log),
    /// Compare the results of one plan on several pairs of hosts
    Pairs(pairs::Pairs),
    /// Measure the recommendation of a run on three or more pairs of hosts
    Confirm(pairs::Confirm),
    /// Read an interface of this host; started by the others.
    #[command(hide = true)]
    Look {
        interface: String,
    },
    /// Record on this host that a rollout has ended; started by `apply` and `finish`.
    #[command(hide = true)]
    End {
        interface: String,
        /// The name of the rollout.
        #[arg(long)]
        rollout: String,
    },
}

#[derive(Debug, clap::Args)]
struct Show {
    /// Only these knobs.
    #[arg(value_name = "KNOB")]
    knobs: Vec<Knob>,
    #[command(flatten)]
    fleet: FleetArgs,
}

#[derive(Debug, clap::Args)]
struct Verify {
    #[command(flatten)]
    wanted: WantedArgs,
    #[command(flatten)]
    fleet: FleetArgs,
    /// Write the states as a text file for `node_exporter`'s textfile collector, whole or not at all.
    #[arg(long, value_name = "FILE")]
    prometheus: Option<PathBuf>,
    /// Compare what each host keeps over a reboot (`latput keep --check`) instead of wanted values.
    #[arg(long, conflicts_with_all = ["wanted", "from", "prometheus"])]
    kept: bool,
}

impl Args {
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        match self.action {
            Action::Show(args) => args.run(context, "show"),
            Action::Verify(args) => args.run(context),
            Action::Drift(args) => args.run(context, "drift"),
            Action::Apply(args) => args.run(context),
            Action::Undo(args) => args.run(context),
            Action::Finish(args) => args.run(context),
            Action::Keep(args) => args.run(context),
            Action::Log(args) => args.run(context),
            Action::Pairs(args) => args.run(context),
            Action::Confirm(args) => args.run(context),
            Action::Look { interface } => print_interface(&interface),
            Action::End { interface, rollout } => record_rollout_end(&interface, &rollout),
        }
    }
}

impl Show {
    fn run(self, context: &CliContext, action: &str) -> Result<ExitCode, CliError> {
        let wish = || Ok(FleetWish::default());
        let mut fleet = self.fleet.open(&FleetRights::default(), wish, context)?;
        fleet.clear_wishes();
        let asked = if self.knobs.is_empty() { None } else { Some(self.knobs.as_slice()) };
        let looked = fleet.inspect(asked);
        let (values, text) = if action == "drift" {
            let values = drift::find_drift(&looked.judged);
            let text = drift::render_drift(&values, &drift::count_compared(&looked.judged));
            (values, text)
        } else {
            let values = drift::values(&looked.judged);
            let text = drift::render_values(&values);
            (values, text)
        };
        if context.json {
            output::print_json(&FleetDocument::new(action, &looked.judged, &values, looked.took))?;
        } else {
            output::print_text(&(text + &render_states(&looked.judged, false)))?;
        }
        let has_drifted = action == "drift" && !values.is_empty();
        Ok(ExitReason::from(looked.ending(has_drifted)).into())
    }
}

impl Verify {
    fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        if self.kept {
            let wish = || Ok(FleetWish::default());
            let fleet = self.fleet.open(&FleetRights::default(), wish, context)?;
            return Ok(print_outcomes(&fleet.verify_kept(), context));
        }
        if let Some(path) = &self.prometheus {
            latput_linux::files::check(path)?;
        }
        self.wanted.check_values()?;
        let files = UsedFiles::new(self.wanted.results_file(), self.prometheus.as_deref());
        let rights = FleetRights { files, ..FleetRights::default() };
        let fleet = self.fleet.open(&rights, || self.wanted.read(), context)?;
        fleet.require_wishes()?;
        let looked = fleet.inspect(None);
        for problem in undecided_groups(&looked.judged) {
            output::print_remark(&format!(
                "latput: warning: {problem}: name the right one by `driver`"
            ));
        }
        if let Some(path) = &self.prometheus {
            let text = prometheus::render_metrics(&looked.judged, unix_ms() / 1000, looked.took);
            output::write_file(path, &text)?;
        }
        if context.json {
            output::print_json(&FleetDocument::new("verify", &looked.judged, &[], looked.took))?;
        } else {
            output::print_text(&render_states(&looked.judged, true))?;
        }
        Ok(ExitReason::from(looked.ending(false)).into())
    }
}

fn read_stdin() -> Result<String, CliError> {
    let mut text = String::new();
    std::io::stdin().take(STDIN_BYTES_MOST).read_to_string(&mut text)?;
    Ok(text)
}

/// Answers another latput: the knobs of stdin.
fn print_interface(interface: &str) -> Result<ExitCode, CliError> {
    let look = local_look::inspect_interface(interface, &read_stdin()?)?;
    let text = serde_json::to_string(&look)
        .map_err(|error| CliError { code: ExitReason::Failed, error: error.into() })?;
    output::print_text(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Records that a rollout has ended without the hosts that stdin names.
fn record_rollout_end(interface: &str, rollout: &str) -> Result<ExitCode, CliError> {
    local_look::record_rollout_end(interface, rollout, &read_stdin()?)?;
    output::print_change_json(&serde_json::json!({ "schema": 1 }));
    Ok(ExitCode::SUCCESS)
}

/// Prints what became of every host, and gives the exit code.
fn print_outcomes(done: &HostOutcomes<'_>, context: &CliContext) -> ExitCode {
    if context.json {
        output::print_change_json(&FleetDoneDocument::new(done));
    } else {
        output::print_change(&done.render_text());
    }
    ExitReason::from(done.ending()).into()
}

/// Shows the progress of a command on stderr, with a bar on a terminal.
#[derive(Debug)]
struct FleetDisplay;

fn fleet_context(context: &CliContext) -> FleetContext<'_> {
    FleetContext { progress: &FleetDisplay, stop: &context.stop }
}

impl FleetProgress for FleetDisplay {
    fn report_remark(&self, text: &str) {
        output::print_remark(&format!("latput: {text}"));
    }

    fn begin_hosts(&self, count: usize, what: &str) -> Box<dyn Fn() + Sync> {
        let bar = parallel::make_progress_bar(count, what); // cleared when it is dropped
        Box::new(move || bar.iter().for_each(|bar| bar.inc(1)))
    }

    fn begin_run(&self) -> Box<dyn RunProgress> {
        Box::new(ProgressDisplay::new())
    }
}

impl From<FleetEnding> for ExitReason {
    fn from(ending: FleetEnding) -> Self {
        match ending {
            FleetEnding::Done => Self::Done,
            FleetEnding::Unproven => Self::Failed,
            FleetEnding::Partial => Self::Partial,
            FleetEnding::Worse => Self::Worse,
            FleetEnding::Drifted => Self::Drifted,
            FleetEnding::Stranded => Self::Stranded,
        }
    }
}

impl From<Error> for CliError {
    fn from(error: Error) -> Self {
        match error {
            Error::Usage(message) => Self::usage(message),
            Error::Failed(message) => Self::new(ExitReason::Failed, message),
            Error::Run(error) => error.into(),
            Error::Kernel(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use latput_fleet::HostOutcome;

    use super::*;

    #[test]
    fn guide_has_exit_codes_of_outcomes() {
        let guide = include_str!("../../../../docs/fleet-outcomes.md");
        let rows: Vec<Vec<&str>> = guide
            .lines()
            .filter(|line| line.starts_with("| `"))
            .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
            .collect();
        for outcome in HostOutcome::ALL {
            let word = format!("`{}`", outcome.name());
            let is_meant = |row: &&Vec<&str>| row[0].split(", ").any(|one| one == word);
            let row = rows.iter().find(is_meant).unwrap_or_else(|| panic!("no row of {word}"));
            let code = (ExitReason::from(outcome.ending()) as u8).to_string();
            assert_eq!(row.last(), Some(&code.as_str()), "{word}");
        }
    }
}
