//! `latput fleet`: reads, compares and sets the interfaces of many hosts side by side.

mod confirm;
mod crew;
mod done;
mod finish;
mod guard_command;
mod hosts;
mod journal;
mod kept;
mod look;
mod pairs;
mod rollout;
mod table;
mod tell;
mod wanted;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use latput_fleet::judge::{JudgedHost, undecided_groups};
use latput_fleet::{judge_hosts, prometheus, twins};
use latput_knobs::Knob;
use latput_linux::confine::UsedFiles;
use latput_linux::process::unix_ms;
use latput_units::Nanos;

use self::hosts::{Fleet, FleetArgs, FleetRights};
use self::wanted::{FleetWish, WantedArgs};
use crate::context::CliContext;
use crate::document::fleet::FleetDocument;
use crate::exit::{CliError, ExitReason};
use crate::output;

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

A slow or dead host does not delay others. Exit code 8: a host is not as wanted. Exit code 6: a host did not
answer.")]
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
    Apply(rollout::Args),
    Undo(journal::Undo),
    Finish(finish::Args),
    Keep(journal::Keep),
    Log(journal::Log),
    /// Compare the results of one plan on several pairs of hosts
    Pairs(pairs::Args),
    /// Measure the recommendation of a run on three or more pairs of hosts
    Confirm(confirm::Args),
    /// Read an interface of this host; started by the others.
    #[command(hide = true)]
    Look(look::Args),
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
            Action::Look(args) => args.run(),
        }
    }
}

impl Show {
    fn run(self, context: &CliContext, action: &str) -> Result<ExitCode, CliError> {
        let wish = || Ok(FleetWish::default());
        let mut fleet = self.fleet.open(&FleetRights::default(), wish, context)?;
        for member in &mut fleet.members {
            member.host.setting.clear(); // nothing is wanted
        }
        let asked = if self.knobs.is_empty() { None } else { Some(self.knobs.as_slice()) };
        let looked = FleetInspection::from_fleet(&fleet, asked, context);
        finish::warn_open_rollouts(&self.fleet, &looked.judged);
        let (values, text) = if action == "drift" {
            let values = twins::find_drift(&looked.judged);
            let text = table::render_drift(&values, &twins::count_compared(&looked.judged));
            (values, text)
        } else {
            let values = twins::values(&looked.judged);
            let text = table::values(&values);
            (values, text)
        };
        if context.json {
            output::print_json(&FleetDocument::new(action, &looked.judged, &values, looked.took))?;
        } else {
            output::print_text(&(text + &table::render_states(&looked.judged, false)))?;
        }
        let has_drifted = action == "drift" && !values.is_empty();
        Ok(looked.exit_code(has_drifted).into())
    }
}

impl Verify {
    fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        if self.kept {
            return kept::verify_kept(&self.fleet, context);
        }
        if let Some(path) = &self.prometheus {
            latput_linux::files::check(path)?;
        }
        self.wanted.check_values()?;
        let files = UsedFiles::new(self.wanted.results_file(), self.prometheus.as_deref());
        let rights = FleetRights { files, ..FleetRights::default() };
        let fleet = self.fleet.open(&rights, || self.wanted.read(), context)?;
        fleet.must_want()?;
        let looked = FleetInspection::from_fleet(&fleet, None, context);
        finish::warn_open_rollouts(&self.fleet, &looked.judged);
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
            output::print_text(&table::render_states(&looked.judged, true))?;
        }
        Ok(looked.exit_code(false).into())
    }
}

/// Outcome of a look at every host.
struct FleetInspection {
    judged: Vec<JudgedHost>,
    /// Number of hosts of the list that cannot be reached as it says.
    left_out: usize,
    took: Nanos,
}

impl FleetInspection {
    /// Looks at every host: at the wanted knobs of each, or at those that are named; where neither says any, at all that
    /// can be set.
    fn from_fleet(fleet: &Fleet, knobs: Option<&[Knob]>, context: &CliContext) -> Self {
        let begun = Instant::now();
        let answers = look::inspect_all(fleet, knobs, context);
        let hosts = fleet.hosts();
        let judged = judge_hosts(&hosts, answers);
        let took = Nanos::from_ns(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
        Self { judged, left_out: fleet.left_out, took }
    }

    fn exit_code(&self, has_drifted: bool) -> ExitReason {
        if has_drifted || self.judged.iter().any(|judged| judged.state.is_wrong()) {
            ExitReason::Drifted
        } else if self.left_out > 0 || self.judged.iter().any(|judged| judged.state.is_unknown()) {
            ExitReason::Partial
        } else {
            ExitReason::Done
        }
    }
}
