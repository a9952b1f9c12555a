//! `latput moderate`: the daemon that holds an interface at a goal while its load changes.

use std::process::ExitCode;

use latput_experiment::host;
use latput_moderate::{Goal, GoalError, Hold, MetricsAddress, Options, Status};
use latput_units::Nanos;

use crate::context::Context;
use crate::exit::Failure;
use crate::output;

/// Hold an interface at a goal: move the delay of its interrupts (or polls) with the load.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput moderate eth0                                  the longest delay that costs at most 2 % of the rate
  latput moderate eth0 --goal cpu --max-delay 150us     the least CPU at full rate
  latput moderate eth0 --cpu-budget 30%                 the least delay that keeps the host's CPU under 30 %
  latput moderate eth0 --observe                        only say what would be done
  latput moderate eth0 --metrics 127.0.0.1:9711         for Prometheus
  latput moderate eth0 --status                         ask the one that runs

Goals (the names are those of `latput tune`):
  latency      no delay at all, whatever it costs
  throughput   the longest delay that costs no throughput (0.5 %), at most 100us
  cpu          the longest delay that costs at most 5 % of the rate, at most 200us
  balanced     the longest delay that costs at most 2 % of the rate, at most 100us (the default)

It moves rx-usecs and tx-usecs where the device has them (adaptive moderation is switched off meanwhile), else
gro-flush-timeout with napi-defer-hard-irqs. Everything is put back at the end: on Ctrl-C, on SIGTERM, after a
kill -9 by the next start or by `latput restore`. A knob that somebody else sets meanwhile is let go.
docs/moderation.md says how it decides.")]
pub(crate) struct Args {
    /// The interface.
    #[arg(value_name = "IFACE")]
    interface: String,
    /// What to hold it at: latency, throughput, cpu or balanced.
    #[arg(long)]
    goal: Option<String>,
    /// The longest delay, whatever the load: `200us`.
    #[arg(long, value_name = "TIME")]
    max_delay: Option<Nanos>,
    /// The share of the host's CPU time that may be used, all CPUs together: `30%`.
    #[arg(long, value_name = "SHARE", value_parser = share)]
    cpu_budget: Option<f64>,
    /// Change nothing, and log what would be changed.
    #[arg(long)]
    observe: bool,
    /// Ask the one that runs, and end.
    #[arg(
        long,
        conflicts_with_all = ["goal", "max_delay", "cpu_budget", "observe", "metrics", "every", "length"]
    )]
    status: bool,
    /// Give out metrics to Prometheus: `unix:PATH`, or a loopback address such as `127.0.0.1:9711`.
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<String>,
    /// Time between two decisions.
    #[arg(long, value_name = "TIME", default_value = "50ms")]
    every: Nanos,
    /// End after this long; otherwise when told to.
    #[arg(long = "for", value_name = "TIME")]
    length: Option<Nanos>,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let folder = host::state_dir();
        if self.status {
            tell(context, &latput_moderate::ask(&folder, &self.interface)?)?;
            return Ok(ExitCode::SUCCESS);
        }
        if !(Nanos::from_ms(5)..=Nanos::from_s(10)).contains(&self.every) {
            return Err(Failure::usage(format!("--every {}: must be from 5ms to 10s", self.every)));
        }
        let goal = Goal::new(self.goal.as_deref(), self.max_delay, self.cpu_budget)
            .map_err(|error: GoalError| Failure::usage(error.to_string()))?;
        let metrics = self.metrics.as_deref().map(str::parse::<MetricsAddress>).transpose()?;
        let options = Options {
            interface: self.interface,
            goal,
            every: self.every,
            observe: self.observe,
            folder,
            metrics,
            length: self.length,
        };
        let ended = Hold::run(options, &|| context.stop.is_raised())?;
        tell(context, &ended)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn tell(context: &Context, status: &Status) -> Result<(), Failure> {
    if context.json { output::print_json(status) } else { output::print(&status.to_text()) }
}

/// `30%` or `0.3`.
fn share(text: &str) -> Result<f64, String> {
    let wrong = || format!("`{text}` is no share: write it as `30%`");
    let number = |text: &str| text.trim().parse::<f64>().map_err(|_| wrong());
    match text.strip_suffix('%') {
        Some(percent) => number(percent).map(|percent| percent / 100.0),
        None => number(text),
    }
}
