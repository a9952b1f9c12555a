//! `latput diagnose`: names what slows an interface's traffic, from two looks at the kernel's counters.

mod files;
mod hosts;
mod prove;
mod render;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use latput_diagnose::{Diagnosis, diagnose};
use latput_knobs::format_no_interface;
use latput_reach::target::Target;
use latput_units::Nanos;

use crate::commands::change;
use crate::commands::snapshot::record_snapshot;
use crate::context::CliContext;
use crate::exit::CliError;
use crate::output;
use crate::targets;

use self::prove::ProveArgs;

/// Name what slows an interface's traffic.
///
/// Looks twice at the kernel's counters. The finding that explains most comes first, with its
/// evidence and the command that would prove it. Without --prove it changes nothing, and it makes no
/// traffic.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput diagnose eth0                    ten seconds of this host's traffic
  latput diagnose eth0 --for 60s --json   for scripts
  latput diagnose eth0 --prove            tries the first remedy by turns with today's setting
  latput diagnose ssh://root@server%eth0 ssh://root@client%eth0
                                          two hosts at the same time: which side has the fault
  latput diagnose slow.json               what `latput snapshot` recorded, on any machine
  latput diagnose ticket/                 a folder with `before/` and `after/`
  latput diagnose before.txt after.txt    two outputs of `ethtool -S`, or two copies of a file of /proc

A finding is a hypothesis until it is tried. Counters that were large before and do not grow say
nothing; what is missing is listed as not seen.")]
pub(crate) struct Args {
    /// An interface of this host. Or one or several hosts: `ssh://root@server%eth0`, `netns://NAME%eth0`,
    /// `exec:COMMAND`. Or a recorded snapshot, a folder, or two files of one kind.
    #[arg(required = true, num_args = 1..=16, value_name = "IFACE|HOST|FILE")]
    subjects: Vec<String>,
    /// Time between the two looks at an interface.
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = Nanos::from_text_or_seconds)]
    window: Nanos,
    /// The interface that a folder is about, where it has several.
    #[arg(long, value_name = "IFACE")]
    interface: Option<String>,
    #[command(flatten)]
    trial: ProveArgs,
}

/// Source of the looks.
enum Subject {
    /// This interface of this host.
    Interface(String),
    /// Interfaces of hosts, as the user named them.
    Hosts(Vec<String>),
    /// A file or a folder, or two.
    Files(PathBuf, Option<PathBuf>),
}

impl Args {
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        self.trial.check()?;
        let is_trial = self.trial.is_given();
        match self.find_subject()? {
            Subject::Interface(name) if is_trial => {
                self.trial.prove_on(&name, self.window, context)
            }
            Subject::Interface(name) => {
                let diagnosis = diagnose(&record_snapshot(&name, self.window, context)?);
                print_diagnosis(&diagnosis, &name, context)
            }
            Subject::Hosts(words) => match (is_trial, words.as_slice()) {
                (true, [word]) => self.trial.prove_on(word, self.window, context),
                (true, _) => Err(CliError::usage(
                    "--prove changes one host: name the one that the first finding is about",
                )),
                (false, _) => {
                    let bring = self.trial.bring();
                    hosts::diagnose_words(&words, bring, self.window, context)
                }
            },
            Subject::Files(..) if is_trial => Err(CliError::usage(
                "--prove needs the traffic that is there: name an interface, not a file",
            )),
            Subject::Files(path, second) => {
                let interface = self.interface.as_deref();
                let diagnosis =
                    diagnose(&files::read_snapshot(&path, second.as_deref(), interface)?);
                print_diagnosis(&diagnosis, &diagnosis.interface, context)
            }
        }
    }

    fn find_subject(&self) -> Result<Subject, CliError> {
        let is_file = |word: &str| Path::new(word).exists() && !Target::is_told_by(word);
        let are_hosts = self.subjects.iter().any(|word| Target::is_told_by(word));
        match self.subjects.as_slice() {
            [word] if are_hosts => Ok(Subject::Hosts(vec![word.clone()])),
            [word] if is_file(word) => Ok(Subject::Files(PathBuf::from(word), None)),
            [word] => change::present_name(word).map(Subject::Interface).map_err(CliError::usage),
            [first, second] if !are_hosts && is_file(first) => {
                Ok(Subject::Files(PathBuf::from(first), Some(PathBuf::from(second))))
            }
            words => {
                let names = words.iter().map(|word| change::present_name(word));
                let names: Vec<String> =
                    names.collect::<Result<_, _>>().map_err(CliError::usage)?;
                match names.iter().find(|name| !targets::is_hosts(name)) {
                    None => Ok(Subject::Hosts(names)),
                    Some(other) => Err(CliError::usage(format_no_interface(other))),
                }
            }
        }
    }
}

fn print_diagnosis(
    diagnosis: &Diagnosis,
    subject: &str,
    context: &CliContext,
) -> Result<ExitCode, CliError> {
    if context.json {
        output::print_json(diagnosis)?;
    } else {
        let columns = output::stdout_screen().columns;
        output::print_text(&render::render_diagnosis(diagnosis, subject, columns))?;
    }
    Ok(ExitCode::SUCCESS)
}
