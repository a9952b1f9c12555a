//! `latput lab`: the virtual testbed by hand.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use latput_experiment::host::state_dir;
use latput_experiment::testbed::{LAB_STATE, LabLock};
use latput_linux::lab::{Lab, LabOptions};
use latput_linux::{Namespace, process};
use latput_units::CpuSet;

use crate::context::Context;
use crate::exit::{CliError, Code};
use crate::output;

/// Subfolder of the state folder for checkpoints of processes in a lab that is up.
const PINNED_LAB_STATE: &str = "lab-up";

/// The virtual testbed by hand: two namespaces `a` and `b` and a veth pair `lat0` between them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput lab up
  latput lab exec b -- latput show lat0
  latput lab exec a -- ping -c 3 198.18.0.2
  latput lab down

`latput tune` and `latput run` make a lab of their own and do not need this one.")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Make the lab, with names that `ip netns` sees: latput-a and latput-b.
    Up,
    /// Remove the lab, or its remains.
    Down,
    /// Run a command on one of the lab's hosts: in its namespace and on its CPUs.
    Exec(Exec),
}

#[derive(Debug, clap::Args)]
struct Exec {
    /// `a` or `b`.
    #[arg(required_unless_present = "namespace", value_parser = ["a", "b"])]
    host: Option<String>,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// The file of the namespace; for latput's own use.
    #[arg(long, hide = true, conflicts_with = "host")]
    namespace: Option<PathBuf>,
    /// The CPUs to bind the command to; for latput's own use.
    #[arg(long, hide = true, requires = "namespace")]
    cpus: Option<CpuSet>,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, CliError> {
        match self.action {
            Action::Up => up(context),
            Action::Down => down(context),
            Action::Exec(exec) => exec.run(),
        }
    }
}

fn up(context: &Context) -> Result<ExitCode, CliError> {
    let _lock = LabLock::take()?;
    let lab = Lab::build(&LabOptions::default())?;
    lab.pin()?;
    if context.json {
        let hosts = lab.hosts().map(|host| {
            serde_json::json!({
                "name": host.name,
                "namespace": host.pin_name(),
                "interface": host.interface,
                "address": host.address,
                "cpus": host.cpus,
            })
        });
        output::print_json(&serde_json::json!({ "schema": 1, "hosts": hosts }))?;
        return Ok(ExitCode::SUCCESS);
    }
    for host in lab.hosts() {
        output::print(&format!(
            "{}: namespace {}, {} {}, CPUs {}\n",
            host.name,
            host.pin_name(),
            host.interface,
            host.address,
            host.cpus
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn down(context: &Context) -> Result<ExitCode, CliError> {
    process::Capability::SysAdmin.require("removing the lab")?;
    let _lock = LabLock::take()?;
    let removed = Lab::remove_pinned()?;
    // Their checkpoints refer to namespaces that no longer exist.
    let _ = std::fs::remove_dir_all(state_dir().join(PINNED_LAB_STATE));
    if context.json {
        output::print_json(&serde_json::json!({ "schema": 1, "removed": removed }))?;
    } else if removed.is_empty() {
        output::print("there was no lab\n")?;
    } else {
        output::print(&format!("removed {}\n", removed.join(" and ")))?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Exec {
    /// Replaces this process by the command; returns only on failure.
    fn run(self) -> Result<ExitCode, CliError> {
        let (namespace, cpus) = match (&self.namespace, &self.host) {
            (Some(path), _) => (Namespace::open(path)?, self.cpus.clone()),
            (None, host) => {
                let lab = Lab::open_pinned(&LabOptions::default())?.ok_or_else(|| {
                    CliError::new(Code::Failed, "there is no lab: make one with `latput lab up`")
                })?;
                let host = lab
                    .hosts()
                    .into_iter()
                    .find(|other| host.as_deref() == Some(other.name))
                    .expect("clap accepts only the names of the lab's hosts");
                (host.namespace.try_clone()?, Some(host.cpus.clone()))
            }
        };
        let state = if self.namespace.is_some() { LAB_STATE } else { PINNED_LAB_STATE };
        namespace.enter_process()?;
        if let Some(cpus) = cpus {
            process::bind_thread(&cpus)?;
        }
        let error = Command::new(&self.command[0])
            .args(&self.command[1..])
            // The lab's checkpoints end with its namespaces, so they are separate from the
            // machine's.
            .env("LATPUT_STATE_DIR", state_dir().join(state))
            .exec();
        Err(CliError::new(Code::Failed, format!("cannot run `{}`: {error}", self.command[0])))
    }
}
