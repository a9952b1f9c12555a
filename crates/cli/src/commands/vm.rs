//! `latput vm`: direct use of the guest of the `vm` testbed, and latput's own commands in it.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use latput_linux::confine::UsedFiles;
use latput_linux::{confine, files};
use latput_reach::broker::message::RunPermissions;
use latput_reach::held_guest::HeldGuest;
use latput_vm::{CardDriver, CommandExit, ENDPOINTS, GuestCommand, GuestEndpoint, GuestSpec};

use crate::context::CliContext;
use crate::exit::{CliError, ExitReason};
use crate::output;

/// Use a QEMU guest with real drivers.
///
/// Its network cards are emulated.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput vm exec -- latput show eth0
  latput vm exec vm:e1000 -- latput set eth0 rx-usecs=125
  latput vm exec --host generator -- latput show eth1

The guest boots, runs one command and ends. It holds nothing but latput. It needs QEMU, a kernel package and a
static latput: `docs/vm.md`. `latput run PLAN --on vm:e1000e` makes its own guest.")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Boot a guest, run a command as one of its two hosts, and end it.
    Exec(Exec),
    /// Run a command in a running guest; for latput's own use.
    #[command(hide = true)]
    Attach(Attach),
    /// The first process of a guest; for latput's own use.
    #[command(hide = true)]
    Init,
    /// In a guest: check the emulated cards for faults; for latput's own use.
    #[command(hide = true)]
    Probe,
    /// In a guest: load the cards' driver with other parameters; for latput's own use.
    #[command(hide = true)]
    Reload { parameters: Vec<String> },
    /// In a guest: set the wall clock forward or back; for tests.
    #[command(hide = true)]
    StepClock {
        #[arg(allow_negative_numbers = true)]
        seconds: i64,
    },
    /// In a guest, which has no other programs: print a file, such as `/proc/interrupts`.
    #[command(hide = true)]
    Read { path: PathBuf },
}

#[derive(Debug, clap::Args)]
struct Exec {
    /// The guest, as in `--on`: `vm`, `vm:e1000e`, `vm:e1000`, `vm:virtio-net`.
    #[arg(default_value = "vm", value_name = "VM")]
    guest: String,
    /// `sut` (interface eth0) or `generator` (eth1).
    #[arg(long, default_value = "sut", value_parser = ENDPOINTS.map(|host| host.name))]
    host: String,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Debug, clap::Args)]
struct Attach {
    /// The folder of the guest.
    folder: PathBuf,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl Args {
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        match self.action {
            Action::Exec(exec) => exec.run(context),
            Action::Attach(attach) => attach.run(),
            Action::Init => {
                latput_vm::init::require_process_1()?;
                latput_vm::init::run(&mut io::stdout())
            }
            Action::Probe => {
                output::print_data(&latput_vm::probe::run()?.join("\n"))?;
                Ok(ExitCode::SUCCESS)
            }
            Action::Reload { parameters } => {
                latput_vm::init::reload_driver(&parameters)?;
                Ok(ExitCode::SUCCESS)
            }
            Action::StepClock { seconds } => {
                latput_vm::init::step_wall_clock(seconds)?;
                Ok(ExitCode::SUCCESS)
            }
            Action::Read { path } => {
                let text = files::read(&path, files::TEXT_BYTES_MOST)?;
                output::print_data(&String::from_utf8_lossy(&text))?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

impl Exec {
    /// Boots the guest and runs the command. As root a broker has the guest, and this process gives up its rights before
    /// the guest says anything.
    fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        let spec = parse_guest(&self.guest)?;
        let permitted = RunPermissions { guest: Some(spec), ..RunPermissions::default() };
        context.leave_rights_to_broker(&permitted, &UsedFiles::default())?;
        let guest = HeldGuest::start(spec, &context.stop)?;
        let host = ENDPOINTS.into_iter().find(|host| host.name == self.host);
        let words = host.as_ref().map(GuestEndpoint::exec_words).unwrap_or_default();
        let words = [words, self.command].concat();
        relay_streams(guest.start_command(&words)?, &words)
    }
}

impl Attach {
    /// Finds the line to the guest, and gives up all rights before the guest says anything.
    fn run(self) -> Result<ExitCode, CliError> {
        let line = GuestCommand::open(&self.folder, &self.command)?;
        confine::give_up_all_but_open_files()?;
        relay_streams(line, &self.command)
    }
}

/// The guest as in `--on`.
fn parse_guest(name: &str) -> Result<GuestSpec, CliError> {
    match name.strip_prefix("vm") {
        Some("") => Ok(GuestSpec::default()),
        Some(rest) if rest.starts_with(':') => Ok(rest[1..].parse()?),
        _ => {
            let drivers =
                CardDriver::ALL.map(|driver| format!("`vm:{}`", driver.name())).join(", ");
            Err(CliError::usage(format!("`{name}` is not a guest; the guests are {drivers}")))
        }
    }
}

/// Gives a command in the guest this process's streams, and returns its exit code.
fn relay_streams(line: GuestCommand, words: &[String]) -> Result<ExitCode, CliError> {
    match line.pass_on(io::stdin(), io::stdout(), io::stderr())? {
        CommandExit::Code(code) => Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))),
        CommandExit::Signal(signal) => Err(CliError::new(
            ExitReason::Failed,
            format!("`{}` was ended by signal {signal}", words.join(" ")),
        )),
        CommandExit::Failed(problem) => Err(CliError::new(ExitReason::Failed, problem)),
    }
}
