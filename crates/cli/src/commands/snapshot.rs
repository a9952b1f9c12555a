//! `latput snapshot`: records what `latput diagnose` reads.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use latput_diagnose::{Look, Snapshot};
use latput_knobs::format_no_interface;
use latput_linux::StageRecorder;
use latput_linux::look::{LookTexts, read_look};
use latput_linux::route::Route;
use latput_units::Nanos;

use crate::commands::change;
use crate::context::CliContext;
use crate::exit::{CliError, ExitReason};
use crate::output;

/// The shortest window of which shares of CPU time say anything.
const SHORTEST: Nanos = Nanos::from_ms(500);
/// How often the wait looks for Ctrl-C.
const GLANCE: Duration = Duration::from_millis(50);

/// Record what `latput diagnose` reads.
///
/// Two looks at the host's counters, settings and topology, and what packets waited for between
/// them. It changes nothing and makes no traffic.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput snapshot eth0 -o slow.json                 ten seconds
  latput snapshot eth0 --for 60s --share -o slow.json  for a bug report: without addresses and names
  latput diagnose slow.json                         on any machine, without rights")]
pub(crate) struct Args {
    /// The interface.
    #[arg(value_name = "IFACE", value_parser = change::present_name)]
    interface: String,
    /// Time between the two looks.
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = Nanos::from_text_or_seconds)]
    window: Nanos,
    /// Write to this file instead of stdout.
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Leave addresses of connections and names of control groups out.
    #[arg(long)]
    share: bool,
}

impl Args {
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        let mut snapshot = record_snapshot(&self.interface, self.window, context)?;
        if self.share {
            snapshot = snapshot.without_names();
        }
        write_snapshot(&snapshot, self.output.as_deref())
    }
}

/// Writes a snapshot to a file, or else to stdout.
pub(super) fn write_snapshot(
    snapshot: &Snapshot,
    file: Option<&Path>,
) -> Result<ExitCode, CliError> {
    let text = serde_json::to_string_pretty(snapshot).expect("maps of texts") + "\n";
    match file {
        Some(path) => output::write_file(path, &text)?,
        None => output::print_data(&text)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Looks at the host twice.
pub(super) fn record_snapshot(
    interface: &str,
    window: Nanos,
    context: &CliContext,
) -> Result<Snapshot, CliError> {
    check_window(window)?;
    let is_there = || {
        let links = Route::open()?.links()?;
        Ok::<bool, CliError>(links.iter().any(|link| link.name == interface))
    };
    if !is_there()? {
        return Err(CliError::usage(format_no_interface(interface)));
    }
    let begun = Instant::now();
    let before = read_look(interface);
    let stages = StageRecorder::start(interface);
    while begun.elapsed() < window.as_duration() {
        if context.stop.is_raised() {
            return Err(CliError::new(ExitReason::Failed, "interrupted: nothing was changed"));
        }
        thread::sleep(GLANCE.min(window.as_duration().saturating_sub(begun.elapsed())));
    }
    let stages = stages.finish();
    let seconds = begun.elapsed().as_secs_f64();
    let after = read_look(interface);
    if !is_there()? {
        return Err(CliError::new(
            ExitReason::Failed,
            format!("{interface} went away while it was observed"),
        ));
    }
    let snapshot = join_looks(interface, [before, after], seconds)?;
    Ok(Snapshot { stages: Some(stages), ..snapshot })
}

/// Refuses a window of which shares of CPU time say nothing.
pub(super) fn check_window(window: Nanos) -> Result<(), CliError> {
    if window >= SHORTEST {
        return Ok(());
    }
    Err(CliError::usage(format!(
        "`--for` is at least {SHORTEST}: the kernel counts CPU time in ticks of 10 ms"
    )))
}

/// A snapshot of two looks with so many seconds between.
pub(super) fn join_looks(
    interface: &str,
    [before, after]: [LookTexts; 2],
    seconds: f64,
) -> Result<Snapshot, CliError> {
    let [before, after] = [before, after].map(|texts| {
        let mut look = Look::default();
        for (name, text) in texts {
            look.insert(&name, text);
        }
        look
    });
    let mut snapshot = Snapshot::from_looks(Some(interface), before, after)
        .map_err(|error| CliError::new(ExitReason::Failed, error.to_string()))?;
    snapshot.window_s = Some((seconds * 1000.0).round() / 1000.0);
    Ok(snapshot)
}
