//! `latput moderate`: the daemon that keeps an interface at a goal while its load changes.

use std::process::ExitCode;

use latput_moderate::{Daemon, DaemonOptions, Goal, GoalError, MetricsAddress, Status};
use latput_protocol::folders;
use latput_units::Nanos;
use latput_units::text::{parse_percent, refuse_bare_share};

use crate::commands::change;
use crate::context::CliContext;
use crate::exit::CliError;
use crate::output;

/// Hold an interface at a goal while its load changes.
///
/// latput changes the delay of its interrupts (or polls).
#[derive(Debug, clap::Args)]
#[command(after_help = after_help())]
pub(crate) struct Args {
    /// The interface.
    #[arg(value_name = "IFACE", value_parser = change::present_name)]
    interface: String,
    /// The goal: no-delay, keep-rate, save-cpu or standard.
    #[arg(long)]
    goal: Option<String>,
    /// The longest delay under any load: `200us`.
    #[arg(long, value_name = "DELAY")]
    max_delay: Option<Nanos>,
    /// The most CPU time of the host, as a share of all CPUs together: `30%`.
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    cpu_budget: Option<f64>,
    /// Change nothing, and log what would be changed.
    #[arg(long)]
    observe: bool,
    /// Print the status of the running daemon, and end.
    #[arg(
        long,
        conflicts_with_all = ["goal", "max_delay", "cpu_budget", "observe", "metrics", "every", "length"]
    )]
    status: bool,
    /// Serve metrics to Prometheus: `unix:PATH`, or a loopback address such as `127.0.0.1:9711`.
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<String>,
    /// Time between two decisions.
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = Nanos::from_text_or_seconds)]
    every: Nanos,
    /// End after this long; by default on a signal.
    #[arg(long = "for", value_name = "TIME", value_parser = Nanos::from_text_or_seconds)]
    length: Option<Nanos>,
}

fn after_help() -> String {
    format!(
        "\
Examples:
  latput moderate eth0                           the longest delay that costs 2% of the rate
  latput moderate eth0 --goal save-cpu --max-delay 150us
  latput moderate eth0 --cpu-budget 30%          the least delay that keeps the CPU under 30%
  latput moderate eth0 --observe                 only log what it would change
  latput moderate eth0 --metrics 127.0.0.1:9711  for Prometheus
  latput moderate eth0 --status                  print the status of the daemon that runs

Goals:
{}

It sets rx-usecs and tx-usecs where the device has them, and switches adaptive moderation off meanwhile.
Otherwise it sets gro-flush-timeout with napi-defer-hard-irqs. At the end everything is put back: on Ctrl-C
and SIGTERM by itself, after a kill -9 by the next start or by `latput restore`. A knob that another program
sets is released. docs/design/moderation.md explains the decisions.",
        latput_moderate::goal::help_text()
    )
}

impl Args {
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        let folder = folders::state_dir();
        if self.status {
            print_status(context, &latput_moderate::request_status(&folder, &self.interface)?)?;
            return Ok(ExitCode::SUCCESS);
        }
        if !(Nanos::from_ms(5)..=Nanos::from_s(10)).contains(&self.every) {
            return Err(CliError::usage(format!(
                "--every {}: must be from 5ms to 10s",
                self.every
            )));
        }
        let goal = Goal::new(self.goal.as_deref(), self.max_delay, self.cpu_budget)
            .map_err(|error: GoalError| CliError::usage(error.to_string()))?;
        let metrics = self.metrics.as_deref().map(str::parse::<MetricsAddress>).transpose()?;
        let options = DaemonOptions {
            interface: self.interface,
            goal,
            every: self.every,
            observe: self.observe,
            folder,
            metrics,
            length: self.length,
        };
        let ended = Daemon::run(options, &|| context.stop.is_raised())?;
        print_status(context, &ended)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn print_status(context: &CliContext, status: &Status) -> Result<(), CliError> {
    if context.json { output::print_json(status) } else { output::print_text(&status.to_text()) }
}

/// `30%`.
fn parse_share(text: &str) -> Result<f64, String> {
    if let Some(refusal) = refuse_bare_share(text) {
        return Err(refusal);
    }
    parse_percent(text)
        .ok_or_else(|| format!("`{text}` is not a share of the CPU time: write it as `30%`"))
}
