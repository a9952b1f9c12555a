//! `latput completions`: what a shell needs to complete latput's command line.

use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, CommandFactory};
use clap_complete::Shell;
use latput_model::Goal;
use latput_sim::SystemProfile;
use latput_trial::workload::KINDS;

use crate::Cli;
use crate::exit::CliError;
use crate::output;
use crate::targets::SIMULATED;

/// Stands for the interfaces of the host, which the shell lists when it completes.
const INTERFACES: &str = "latput_interfaces__";
/// Stands for the systems of the simulator, `sim:SYSTEM` each.
const SYSTEMS: &str = "latput_systems__";
/// Stands for the testbed files of the folder.
const FILES: &str = "latput_testbed_files__";

/// Print the completions of a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput completions bash > ~/.local/share/bash-completion/completions/latput
  latput completions zsh > ~/.zfunc/_latput         a folder of $fpath
  latput completions fish > ~/.config/fish/completions/latput.fish

The packages install those of bash, zsh and fish. They offer interfaces, kinds of workloads, goals, systems of the
simulator and testbeds too.")]
pub(crate) struct Args {
    /// The shell.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        let whole = Cli::command();
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut visible_command(&whole), "latput", &mut script);
        let script = with_lists(self.shell, &String::from_utf8_lossy(&script));
        output::print_data(&without_flags(self.shell, &script, &hidden_flags(&whole)))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The command line as its help shows it, with what its arguments may be: a shell offers whatever it is told of.
fn visible_command(whole: &Command) -> Command {
    let shown = whole.get_subcommands().filter(|command| !command.is_hide_set());
    Command::new("latput")
        .version(env!("CARGO_PKG_VERSION"))
        .args(whole.get_arguments())
        .subcommands(shown.map(|command| with_values(command.clone())))
}

fn with_values(command: Command) -> Command {
    command.mut_args(add_possible_values).mut_subcommands(with_values)
}

/// An argument with the values that it is known to take.
fn add_possible_values(arg: Arg) -> Arg {
    let name =
        arg.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str());
    let values: Vec<&'static str> = match (arg.get_long(), name) {
        (_, "IFACE") | (Some("interface"), _) => vec![INTERFACES],
        (_, "KIND") => KINDS.iter().map(|kind| kind.name).collect(),
        (_, "GOAL") => Goal::NAMED.iter().map(|(name, _)| *name).collect(),
        (_, "TESTBED" | "TARGET") => vec!["lab", "loopback", SYSTEMS, FILES],
        _ => return arg,
    };
    arg.value_parser(PossibleValuesParser::new(values))
}

/// The script with the shell's own lists in the place of the words that stand for them.
fn with_lists(shell: Shell, script: &str) -> String {
    let interfaces = "command ls /sys/class/net 2>/dev/null";
    let systems = |between: &str, colon: &str| {
        let names = SystemProfile::shipped_names().map(|name| format!("{SIMULATED}{name}"));
        names.map(|name| name.replace(':', colon)).collect::<Vec<_>>().join(between)
    };
    match shell {
        Shell::Bash => {
            let script = script
                .replace(INTERFACES, &format!("$({interfaces})"))
                .replace(SYSTEMS, &systems(" ", ":"))
                .replace(FILES, "$(compgen -G '*.toml')");
            // `sim:SYSTEM` is one word.
            script + "COMP_WORDBREAKS=${COMP_WORDBREAKS//:}\n"
        }
        Shell::Zsh => script
            .replace(INTERFACES, &format!("$({interfaces})"))
            .replace(SYSTEMS, &systems(" ", "\\:"))
            .replace(FILES, "*.toml(N)"),
        Shell::Fish => script
            .replace(&format!("{INTERFACES}\\t''"), &format!("({interfaces})"))
            .replace(SYSTEMS, &systems("\\t''\\n", ":"))
            .replace(&format!("{FILES}\\t''"), "(__fish_complete_suffix .toml)"),
        _ => script.replace(INTERFACES, "").replace(SYSTEMS, "").replace(FILES, ""),
    }
}

/// Flags that no help shows, in no command.
fn hidden_flags(whole: &Command) -> Vec<String> {
    let mut all: Vec<(String, bool)> = Vec::new();
    collect_flags(whole, &mut all);
    let is_shown = |flag: &String| all.iter().any(|(name, hidden)| name == flag && !hidden);
    all.iter().map(|(name, _)| name.clone()).filter(|flag| !is_shown(flag)).collect()
}

fn collect_flags(command: &Command, all: &mut Vec<(String, bool)>) {
    let flags = command.get_arguments().filter_map(|arg| Some((arg.get_long()?, arg)));
    all.extend(flags.map(|(long, arg)| (long.to_owned(), arg.is_hide_set())));
    command.get_subcommands().for_each(|below| collect_flags(below, all));
}

/// The script without these flags. The shells but bash have each in a line of its own.
fn without_flags(shell: Shell, script: &str, flags: &[String]) -> String {
    if shell == Shell::Bash {
        return flags.iter().fold(script.to_owned(), |script, flag| {
            script.replace(&format!("--{flag} "), "").replace(&format!(" --{flag}\""), "\"")
        });
    }
    let offers = |line: &str, flag: &String| match shell {
        Shell::Fish => {
            line.contains(&format!("-l {flag} ")) || line.ends_with(&format!("-l {flag}"))
        }
        _ => [" ", "=", "'", "["].iter().any(|end| line.contains(&format!("--{flag}{end}"))),
    };
    let lines = script.lines().filter(|line| !flags.iter().any(|flag| offers(line, flag)));
    lines.map(|line| line.to_owned() + "\n").collect()
}
