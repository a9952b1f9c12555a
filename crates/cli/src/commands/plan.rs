//! `latput plan`: prints a plan for an interface of this host, or a built-in one.

use std::process::ExitCode;

use latput_linux::{LinuxKernel, process};
use latput_trial::plan;

use crate::exit::{CliError, Code};
use crate::output;

/// Print a plan: for an interface of this host, or a built-in one as a start for your own.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput plan nic eth0 > eth0.toml       what this NIC and its driver can set, around today's values
  latput plan twin > twin.toml           the rows that `latput model twin` needs
  latput plan built-in > mine.toml       the plan of `latput tune`, as a start for your own")]
pub(crate) struct Args {
    /// The plan.
    which: Which,
    /// The interface, for `nic`.
    #[arg(value_name = "IFACE", required_if_eq("which", "nic"))]
    interface: Option<String>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Which {
    /// The knobs that an interface of this host can have set, three to five levels around today's.
    Nic,
    /// The rows for calibrating a profile with `latput model twin`.
    Twin,
    /// The plan of `latput tune` without arguments.
    BuiltIn,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        match (self.which, &self.interface) {
            (Which::Nic, interface) => {
                output::print(&of_nic(interface.as_deref().unwrap_or_default())?)?;
            }
            (_, Some(interface)) => {
                let message = format!("`{interface}`: only `latput plan nic` takes an interface");
                return Err(CliError::usage(message));
            }
            (Which::Twin, None) => output::print(latput_calibrate::PLAN)?,
            (Which::BuiltIn, None) => output::print(plan::BUILT_IN)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn of_nic(interface: &str) -> Result<String, CliError> {
    let links = latput_linux::route::Route::open()?.links()?;
    if !links.iter().any(|link| link.name == interface) {
        let message = format!("there is no interface `{interface}`: `latput show` lists them");
        return Err(CliError::usage(message));
    }
    let nic = LinuxKernel::open()?.nic(interface, &process::allowed_cpus()?)?;
    nic.plan().map_err(|why| CliError::new(Code::Failed, why))
}
