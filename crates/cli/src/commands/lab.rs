//! `latput lab`: the virtual testbed by hand.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use latput_linux::lab::{Lab, LabOptions};
use latput_linux::{Namespace, namespace, process};
use latput_protocol::folders::state_dir;
use latput_reach::bring::{self, RemoteStreams};
use latput_reach::held_lab::{LAB_STATE, LabLock};
use latput_reach::target::{FORMS, ReachMethod, Target};
use latput_units::CpuSet;

use crate::context::CliContext;
use crate::exit::{CliError, ExitReason};
use crate::output;

/// Subfolder of the state folder for checkpoints of processes in a lab that is up.
const PINNED_LAB_STATE: &str = "lab-up";

/// Make or use the virtual testbed by hand.
///
/// Two namespaces `a` and `b` and a veth pair `lat0` between them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput lab up
  latput lab exec b -- latput show lat0
  latput lab exec a -- ping -c 3 198.18.0.2
  latput lab down
  latput lab exec ssh://root@server -- latput show eth0

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
    /// Run a command on one of the lab's hosts: in its namespace and on its CPUs. Or on another host: `latput` is
    /// copied there while it runs, unless the host has this version.
    Exec(Exec),
}

#[derive(Debug, clap::Args)]
struct Exec {
    /// `a` or `b`, or a host: `ssh://root@server`, `netns://NAME`, `exec:COMMAND`.
    #[arg(required_unless_present = "namespace")]
    host: Option<String>,
    /// The static latput to copy there; by default this program.
    #[arg(long, value_name = "FILE", conflicts_with = "namespace")]
    bring: Option<PathBuf>,
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
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        match self.action {
            Action::Up => build_lab(context),
            Action::Down => remove_lab(context),
            Action::Exec(exec) => exec.run(),
        }
    }
}

fn build_lab(context: &CliContext) -> Result<ExitCode, CliError> {
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
        output::print_text(&format!(
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

fn remove_lab(context: &CliContext) -> Result<ExitCode, CliError> {
    process::Capability::SysAdmin.require("removing the lab")?;
    let _lock = LabLock::take()?;
    let removed = Lab::remove_pinned()?;
    // Their checkpoints refer to namespaces that no longer exist.
    let _ = std::fs::remove_dir_all(state_dir().join(PINNED_LAB_STATE));
    if context.json {
        output::print_json(&serde_json::json!({ "schema": 1, "removed": removed }))?;
    } else if removed.is_empty() {
        output::print_text("there was no lab\n")?;
    } else {
        output::print_text(&format!("removed {}\n", removed.join(" and ")))?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Exec {
    /// Becomes the command; returns only if it could not, or has taken latput to another host.
    fn run(self) -> Result<ExitCode, CliError> {
        match (&self.namespace, &self.host) {
            (Some(path), _) => {
                self.exec_in_namespace(&Namespace::open(path)?, self.cpus.clone(), LAB_STATE)
            }
            (None, Some(host)) if Target::is_told_by(host) => {
                self.exec_on_host(&Target::parse(host)?)
            }
            (None, host) => {
                let lab = Lab::open_pinned(&LabOptions::default())?.ok_or_else(|| {
                    CliError::new(
                        ExitReason::Failed,
                        "there is no lab: make one with `latput lab up`",
                    )
                })?;
                let hosts = lab.hosts();
                let found = hosts.iter().find(|other| host.as_deref() == Some(other.name));
                let found = found.ok_or_else(|| {
                    let host = host.as_deref().unwrap_or_default();
                    CliError::usage(format!(
                        "`{host}` is not a host: name a or b of the lab, or {FORMS}"
                    ))
                })?;
                let (namespace, cpus) = (found.namespace.try_clone()?, Some(found.cpus.clone()));
                self.exec_in_namespace(&namespace, cpus, PINNED_LAB_STATE)
            }
        }
    }

    /// Becomes the command in a namespace of the lab. The lab's checkpoints are not the machine's: they end with its
    /// namespaces.
    fn exec_in_namespace(
        &self,
        namespace: &Namespace,
        cpus: Option<CpuSet>,
        state: &str,
    ) -> Result<ExitCode, CliError> {
        namespace.enter_process()?;
        if let Some(cpus) = cpus {
            process::bind_thread(&cpus)?;
        }
        let state = state_dir().join(state);
        exec_command(
            Command::new(&self.command[0]).args(&self.command[1..]).env("LATPUT_STATE_DIR", state),
        )
    }

    /// Becomes the command on another host, or takes latput there.
    fn exec_on_host(&self, target: &Target) -> Result<ExitCode, CliError> {
        if target.at.is_some() {
            return Err(CliError::usage(
                "a command runs on a host, not on an interface: leave out `%`",
            ));
        }
        if let ReachMethod::Namespace(name) = &target.reach {
            Namespace::open(&Path::new(namespace::PIN_FOLDER).join(name))?.enter_process()?;
            return exec_command(Command::new(&self.command[0]).args(&self.command[1..]));
        }
        if self.command[0] == "latput" {
            let ends = RemoteStreams {
                input: io::stdin().as_fd().try_clone_to_owned()?.into(),
                output: io::stdout().as_fd().try_clone_to_owned()?.into(),
                errors: io::stderr().as_fd().try_clone_to_owned()?.into(),
            };
            let code = bring::run(target, self.bring.as_deref(), &self.command[1..], ends)?;
            return Ok(ExitCode::from(code));
        }
        let words = target.remote_command(&self.command).expect("the host is elsewhere");
        exec_command(Command::new(&words[0]).args(&words[1..]))
    }
}

fn exec_command(command: &mut Command) -> Result<ExitCode, CliError> {
    let error = command.exec();
    let program = command.get_program().display().to_string();
    Err(CliError::new(ExitReason::Failed, format!("cannot run `{program}`: {error}")))
}
