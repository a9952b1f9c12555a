//! `latput diagnose`: names what slows an interface's traffic, from two looks at the kernel's counters.

use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use latput_diagnose::diagnosis::RankedFinding;
use latput_diagnose::finding::{Confidence, Explained};
use latput_diagnose::{Diagnosis, Snapshot, diagnose, folder, snapshot};
use latput_linux::confine::UsedFiles;
use latput_report::lines::{wrap_hanging, wrap_text};
use latput_units::Nanos;

use crate::commands::change;
use crate::commands::snapshot::record_snapshot;
use crate::commands::stages::render_stages;
use crate::context::{CliContext, keep_only_files};
use crate::exit::CliError;
use crate::output;

/// Folders below those of a snapshot's two looks.
const DEEPEST: usize = 16;
/// Indent of what belongs to a finding.
const INDENT: &str = "     ";

/// Name what slows an interface's traffic.
///
/// Looks twice at the kernel's counters, changes nothing and makes no traffic. The finding that
/// explains most comes first, with its evidence and the command that would prove it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput diagnose eth0                    ten seconds of this host's traffic
  latput diagnose eth0 --for 60s --json   for scripts
  latput diagnose slow.json               what `latput snapshot` recorded, on any machine
  latput diagnose ticket/                 a folder with `before/` and `after/`
  latput diagnose before.txt after.txt    two outputs of `ethtool -S`, or two copies of a file of /proc

A finding is a hypothesis until it is tried. Counters that were large before and do not grow say
nothing; what is missing is listed as not seen.")]
pub(crate) struct Args {
    /// An interface of this host, a recorded snapshot, or a folder.
    #[arg(value_name = "IFACE|FILE")]
    subject: String,
    /// The second look, if the first is a file or a folder of its own.
    #[arg(value_name = "AFTER")]
    after: Option<PathBuf>,
    /// Time between the two looks at an interface.
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = Nanos::from_text_or_seconds)]
    window: Nanos,
    /// The interface that a folder is about, where it has several.
    #[arg(long, value_name = "IFACE")]
    interface: Option<String>,
}

impl Args {
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        let snapshot = self.read_snapshot(context)?;
        let diagnosis = diagnose(&snapshot);
        if context.json {
            output::print_json(&diagnosis)?;
        } else {
            output::print_text(&render(&diagnosis, output::stdout_screen().columns))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn read_snapshot(&self, context: &CliContext) -> Result<Snapshot, CliError> {
        let path = Path::new(&self.subject);
        if self.after.is_none() && !path.exists() {
            let interface = change::present_name(&self.subject).map_err(CliError::usage)?;
            return record_snapshot(&interface, self.window, context);
        }
        let paths: Vec<&Path> = std::iter::once(path).chain(self.after.as_deref()).collect();
        keep_only_files(&UsedFiles::new(paths.iter().copied(), []))?;
        if paths.len() == 1 && path.is_file() {
            return Snapshot::parse(&read_text(path, snapshot::LARGEST_DOCUMENT)?)
                .map_err(|error| refuse(path, &error.to_string()));
        }
        let mut texts = Vec::new();
        for (path, look) in paths.iter().zip(["before", "after"]) {
            let start = if self.after.is_some() { PathBuf::from(look) } else { PathBuf::new() };
            if path.is_dir() {
                read_folder(path, &start, 0, &mut texts)?;
            } else {
                let name = path.file_name().unwrap_or_default();
                let text = read_text(path, snapshot::LARGEST_TEXT)?;
                texts.push((start.join(name).display().to_string(), text));
            }
        }
        folder::read_folder(texts, self.interface.as_deref())
            .map_err(|error| refuse(path, &error.to_string()))
    }
}

fn refuse(path: &Path, problem: &str) -> CliError {
    CliError::usage(format!("{}: {problem}", path.display()))
}

/// The text of a file; bytes that are none are replaced.
fn read_text(path: &Path, most: usize) -> Result<String, CliError> {
    let problem = |error: std::io::Error| refuse(path, &error.to_string());
    let file = fs::File::open(path).map_err(problem)?;
    if !file.metadata().map_err(problem)?.is_file() {
        return Err(refuse(path, "this is not a file"));
    }
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes).map_err(problem)?;
    if bytes.len() > most {
        return Err(refuse(path, &format!("it has more than {most} bytes")));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads a folder's files with their paths below it. Links are not followed.
fn read_folder(
    folder: &Path,
    start: &Path,
    depth: usize,
    texts: &mut Vec<(String, String)>,
) -> Result<(), CliError> {
    let problem = |error: std::io::Error| refuse(folder, &error.to_string());
    for entry in fs::read_dir(folder).map_err(problem)? {
        let entry = entry.map_err(problem)?;
        let (kind, name) = (entry.file_type().map_err(problem)?, start.join(entry.file_name()));
        if kind.is_dir() && depth < DEEPEST {
            read_folder(&entry.path(), &name, depth + 1, texts)?;
        } else if kind.is_file() {
            // A ticket's folder has logs and pictures too: a file that is too large is passed over.
            if entry.metadata().map_err(problem)?.len() > snapshot::LARGEST_TEXT as u64 {
                continue;
            }
            let text = read_text(&entry.path(), snapshot::LARGEST_TEXT)?;
            texts.push((name.display().to_string(), text));
        }
    }
    Ok(())
}

/// The answer in lines: the first finding, the others, what is healthy, what was not seen.
fn render(diagnosis: &Diagnosis, columns: usize) -> String {
    let window = diagnosis.window_s.map(|window| format!(", {window:.0} s")).unwrap_or_default();
    let mut text = format!("{}{window}\n", diagnosis.interface);
    for found in &diagnosis.findings {
        text.push('\n');
        render_finding(&mut text, found, columns);
    }
    text.push_str(&render_stages(&diagnosis.stages, columns));
    if !diagnosis.healthy.is_empty() {
        let list = format!("Healthy: {}", diagnosis.healthy.join(", "));
        let _ = write!(text, "\n{}", wrap_hanging(&list, "", "  ", columns));
    }
    if !diagnosis.unseen.is_empty() {
        let list = format!("Not seen: {}", diagnosis.unseen.join(", "));
        let _ = write!(text, "\n{}", wrap_hanging(&list, "", "  ", columns));
    }
    text
}

fn render_finding(text: &mut String, found: &RankedFinding, columns: usize) {
    let finding = &found.finding;
    let head = format!("{}. {}", found.rank, finding.sentence);
    text.push_str(&wrap_hanging(&head, "", "   ", columns));
    let sure = match finding.confidence {
        Confidence::Hint => "a hint",
        Confidence::Likely => "likely",
        Confidence::Certain => "certain",
    };
    let explained = describe_shares(finding.explains);
    text.push_str(&wrap_text(&format!("{} ({sure}{explained})", finding.id), INDENT, columns));
    text.push_str(&wrap_text(finding.mechanism, INDENT, columns));
    if let Some(remedy) = &finding.remedy {
        text.push_str(&wrap_hanging(&format!("remedy: {remedy}"), INDENT, "       ", columns));
    }
    if let Some(prove) = &finding.prove {
        text.push_str(&wrap_hanging(&format!("prove: {prove}"), INDENT, "       ", columns));
    }
}

fn describe_shares(explains: Explained) -> String {
    let shares = [
        (explains.loss_share, "what was lost"),
        (explains.latency_share, "the waits"),
        (explains.cpu_share, "the CPU time"),
    ];
    let told = shares.into_iter().filter_map(|(share, what)| {
        Some(format!("{:.0}% of {what}", share.filter(|share| *share >= 0.005)? * 100.0))
    });
    let told: Vec<String> = told.collect();
    if told.is_empty() { String::new() } else { format!("; explains {}", told.join(", ")) }
}
