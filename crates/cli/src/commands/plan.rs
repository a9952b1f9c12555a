//! `latput plan`: prints a plan for an interface of this host, or a built-in one.

use std::process::ExitCode;

use latput_linux::{LinuxKernel, process};
use latput_trial::plan;

use crate::context::CliContext;
use crate::document::check::PlanDocument;
use crate::exit::{CliError, ExitReason};
use crate::output;

/// Print a plan as a start for your own.
///
/// For an interface of this host, or a built-in one.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput plan nic eth0 > eth0.toml       what this NIC and its driver can set, around today's values
  latput plan twin > twin.toml           the rows that `latput model twin` needs
  latput plan built-in > mine.toml       the plan of `latput tune`, as a start for your own")]
pub(crate) struct Args {
    /// The plan.
    which: PlanKind,
    /// The interface, for `nic`.
    #[arg(value_name = "IFACE", required_if_eq("which", "nic"))]
    interface: Option<String>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum PlanKind {
    /// The knobs that an interface of this host can have set, three to five levels around today's.
    Nic,
    /// The rows for calibrating a profile with `latput model twin`.
    Twin,
    /// The plan of `latput tune` without arguments.
    BuiltIn,
}

impl Args {
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        let text = match (self.which, &self.interface) {
            (PlanKind::Nic, interface) => build_nic_plan(interface.as_deref().unwrap_or_default())?,
            (_, Some(interface)) => {
                let message = format!("`{interface}`: only `latput plan nic` takes an interface");
                return Err(CliError::usage(message));
            }
            (PlanKind::Twin, None) => latput_calibrate::PLAN.to_owned(),
            (PlanKind::BuiltIn, None) => plan::BUILT_IN.to_owned(),
        };
        if context.json {
            let plan = toml::from_str(&text)
                .map_err(|error| CliError { code: ExitReason::Failed, error: error.into() })?;
            output::print_json(&PlanDocument { schema: 1, plan, toml: text })?;
        } else {
            output::print_data(&text)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn build_nic_plan(interface: &str) -> Result<String, CliError> {
    let nic = LinuxKernel::open()?.nic(interface, &process::allowed_cpus()?)?;
    nic.plan().map_err(|why| CliError::new(ExitReason::Failed, why))
}
