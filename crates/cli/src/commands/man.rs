//! `latput man`: manual pages, made from the definition of the command line.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::CommandFactory;
use clap::builder::Resettable;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::Cli;
use crate::exit::CliError;
use crate::output;

/// Print a manual page, or write all of them to a folder.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput man | man -l -           the main page
  latput man tune | man -l -      a command's page
  latput man lab exec | man -l -
  latput man --output-dir .       latput.1, latput-tune.1, ...

The packages install all of them: `man latput-tune`.")]
pub(crate) struct Args {
    /// The command; otherwise latput itself.
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
    /// Write every page to this folder, which must be there.
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    output_dir: Option<PathBuf>,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        let mut root = Cli::command().disable_help_subcommand(true);
        root.build();
        match &self.output_dir {
            None => output::print_data(&render_page(find_command(&root, &self.command)?)?.1)?,
            Some(folder) => {
                for command in all_commands(&root) {
                    let (file, text) = render_page(command)?;
                    output::write_file(&folder.join(file), &text)?;
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The command that the words name, one below the other.
fn find_command<'a>(
    root: &'a clap::Command,
    words: &[String],
) -> Result<&'a clap::Command, CliError> {
    words.iter().try_fold(root, |command, word| {
        command.find_subcommand(word).ok_or_else(|| {
            let names: Vec<&str> =
                visible_subcommands(command).map(clap::Command::get_name).collect();
            let there = if names.is_empty() {
                "it has none".to_owned()
            } else {
                format!("the commands are {}", names.join(", "))
            };
            let name = command.get_display_name().unwrap_or("latput").replace('-', " ");
            CliError::usage(format!("{name} has no command `{word}`; {there}"))
        })
    })
}

/// A command and all below it.
fn all_commands(command: &clap::Command) -> Vec<&clap::Command> {
    std::iter::once(command).chain(visible_subcommands(command).flat_map(all_commands)).collect()
}

fn visible_subcommands(command: &clap::Command) -> impl Iterator<Item = &clap::Command> {
    command.get_subcommands().filter(|it| !it.is_hide_set())
}

/// The name of its file and its text.
fn render_page(command: &clap::Command) -> Result<(String, String), CliError> {
    let version = concat!("latput ", env!("CARGO_PKG_VERSION"));
    let without_notes = command.clone().after_help(Resettable::Reset);
    let man = Man::new(without_notes).source(version).manual("latput");
    let mut text = Vec::new();
    man.render(&mut text)?;
    let notes = command.get_after_help().map(|notes| notes_section(&notes.to_string()));
    let text = String::from_utf8_lossy(&text).into_owned() + &notes.unwrap_or_default();
    Ok((man.get_filename(), text))
}

/// Examples and tables, whose lines stay as they are.
fn notes_section(notes: &str) -> String {
    let mut roff = Roff::new();
    roff.control("SH", ["NOTES"]).control("nf", []);
    for line in notes.lines() {
        roff.text([roman(line)]);
    }
    roff.control("fi", []).to_roff()
}
