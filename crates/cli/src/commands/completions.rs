//! `latput completions`: what a shell needs to complete latput's command line.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::Cli;
use crate::exit::CliError;
use crate::output;

/// Print the completions of a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput completions bash > ~/.local/share/bash-completion/completions/latput
  latput completions zsh > ~/.zfunc/_latput         a folder of $fpath
  latput completions fish > ~/.config/fish/completions/latput.fish

The packages install those of bash, zsh and fish.")]
pub(crate) struct Args {
    /// The shell.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut without_hidden(), "latput", &mut script);
        output::print(&String::from_utf8_lossy(&script))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The command line as its help shows it: a shell offers whatever command it is told of.
fn without_hidden() -> clap::Command {
    let whole = Cli::command();
    let shown = whole.get_subcommands().filter(|command| !command.is_hide_set());
    clap::Command::new("latput")
        .version(env!("CARGO_PKG_VERSION"))
        .args(whole.get_arguments())
        .subcommands(shown)
}
