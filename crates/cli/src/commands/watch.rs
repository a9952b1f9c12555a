//! `latput watch`: an interface's path live, on a screen or as lines for a log.

mod history;
mod keys;
mod log_line;
mod looks;
mod rows;
mod screen;
mod state;
mod terminal;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use latput_diagnose::Snapshot;
use latput_knobs::format_no_interface;
use latput_linux::StageRecorder;
use latput_linux::route::Route;
use latput_report::make_printable;
use latput_units::Nanos;
use ratatui_core::terminal::Terminal;
use signal_hook::consts::{SIGCONT, SIGTSTP};
use signal_hook::low_level::emulate_default_handler;

use self::history::LookHistory;
use self::keys::read_keys;
use self::looks::LookTaker;
use self::state::{KeyEffect, WatchState};
use self::terminal::{AnsiBackend, ScreenMode};
use crate::commands::change;
use crate::context::CliContext;
use crate::exit::{CliError, ExitReason};
use crate::output;

/// The shortest interval of which shares of CPU time say anything.
const SHORTEST: Nanos = Nanos::from_ms(500);
/// How long a wait for a key, a look or a signal takes at most.
const GLANCE: Duration = Duration::from_millis(50);

/// Watch an interface's path live.
///
/// Rates, waits by stage, CPU time, interrupts, drops by place, round trips and findings, on a
/// screen. Without a terminal a line for each interval. It changes nothing and makes no traffic.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput watch eth0                     a screen; `?` lists its keys
  latput watch eth0 --lines --every 5s  for a log
  latput watch eth0 --json --for 60s    an object a line, for scripts

The screen needs 60 columns and 20 rows. Programs such as `ethtool` and `ss` are asked at every
fifth look; findings, drops of queue disciplines and round trips are of the time between those.")]
pub(crate) struct Args {
    /// The interface.
    #[arg(value_name = "IFACE", value_parser = change::present_name)]
    interface: String,
    /// Time between two looks.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = Nanos::from_text_or_seconds)]
    every: Nanos,
    /// End after this time.
    #[arg(long = "for", value_name = "TIME", value_parser = Nanos::from_text_or_seconds)]
    limit: Option<Nanos>,
    /// A line for each interval, also on a terminal.
    #[arg(long)]
    lines: bool,
}

impl Args {
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        if self.every < SHORTEST {
            return Err(CliError::usage(format!(
                "`--every` is at least {SHORTEST}: the kernel counts CPU time in ticks of 10 ms"
            )));
        }
        if !Route::open()?.links()?.iter().any(|link| link.name == self.interface) {
            return Err(CliError::usage(format_no_interface(&self.interface)));
        }
        let mut watch = Watch::start(&self);
        if context.json || self.lines || !output::can_draw() {
            watch.print_lines(context)?;
        } else {
            watch.draw_screens(context)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The looks that are taken, what they say, and what is shown of it.
struct Watch {
    taker: LookTaker,
    history: LookHistory,
    state: WatchState,
    /// Traces the waits by stage; not while the watch is paused or stopped, or the interface is gone.
    stages: Option<StageRecorder>,
}

impl Watch {
    fn start(args: &Args) -> Self {
        let limit = args.limit.map(Nanos::as_duration);
        Self {
            taker: LookTaker::start(&args.interface, args.every.as_duration(), limit),
            history: LookHistory::new(&args.interface),
            state: WatchState::new(&args.interface, &args.every.to_string()),
            stages: Some(StageRecorder::start(&args.interface)),
        }
    }

    /// Takes the look that is due or has come, if there is one; gives whether what is shown has changed.
    fn advance(&mut self) -> Result<bool, CliError> {
        let Some(taken) = self.taker.poll()?.filter(|_| !self.state.is_paused) else {
            return Ok(false);
        };
        if !taken.is_there {
            self.history.forget();
            self.stages = None;
            self.state.show_gone();
            return Ok(true);
        }
        // An interface that came back has another number.
        let interface = &self.state.interface;
        let stages = self.stages.get_or_insert_with(|| StageRecorder::start(interface));
        let record = stages.take_record();
        let window = self
            .history
            .add(taken)
            .map_err(|error| CliError::new(ExitReason::Failed, error.to_string()))?;
        // Of the first look there is no window yet.
        let Some(window) = window else { return Ok(false) };
        self.state.show_window(window);
        self.state.show_stages(&record);
        Ok(true)
    }

    /// Prints a line for each window.
    fn print_lines(&mut self, context: &CliContext) -> Result<(), CliError> {
        let mut is_told = context.json; // each object has the list
        while !context.stop.is_raised() && !self.taker.is_over() {
            if !self.advance()? {
                thread::sleep(GLANCE);
                continue;
            }
            if self.state.is_gone {
                return Err(CliError::new(
                    ExitReason::Failed,
                    format!("{} went away while it was watched", self.state.interface),
                ));
            }
            if !is_told && !self.state.unseen_stages.is_empty() {
                is_told = true;
                let list = format!("not seen: {}", self.state.unseen_stages.join(", "));
                output::print_remark(&make_printable(&list));
            }
            let line = if context.json {
                let document = log_line::make_document(&self.state);
                serde_json::to_string(&document).expect("numbers and texts")
            } else {
                log_line::render(&self.state)
            };
            if !output::print_line(&line)? {
                break; // nobody reads it any more
            }
        }
        Ok(())
    }

    /// Shows screens until a key or a signal ends them.
    fn draw_screens(&mut self, context: &CliContext) -> Result<(), CliError> {
        let [stops, continues] = [SIGTSTP, SIGCONT].map(|signal| {
            let flag = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(signal, Arc::clone(&flag)).map(|_| flag)
        });
        let (stops, continues) = (stops?, continues?);
        let is_styled = output::stdout_screen().is_styled;
        let mode = ScreenMode::enter()?;
        let mut terminal = Terminal::new(AnsiBackend::new())?;
        let mut drawn = None;
        while !context.stop.is_raised() && !self.taker.is_over() {
            if stops.swap(false, Ordering::Relaxed) {
                self.stages = None; // a stopped process would leave the programs attached
                mode.end();
                emulate_default_handler(SIGTSTP)?;
            }
            if continues.swap(false, Ordering::Relaxed) {
                mode.begin()?;
                terminal.clear()?;
                drawn = None;
            }
            let size = terminal.size()?;
            if self.advance()? || drawn != Some(size) {
                terminal.draw(|frame| screen::render(frame, &self.state, is_styled))?;
                drawn = Some(size);
            }
            let Some(keys) = read_keys(GLANCE)? else { break };
            for key in keys {
                drawn = None;
                match self.state.apply_key(key) {
                    KeyEffect::Shown => {}
                    KeyEffect::Paused => {
                        self.taker.pause();
                        self.stages = None;
                    }
                    KeyEffect::Resumed => {
                        self.history.forget();
                        self.taker.restart();
                    }
                    KeyEffect::Record => {
                        let told = record(self.history.judged_snapshot());
                        self.state.message = Some(told);
                    }
                    KeyEffect::Quit => return Ok(()),
                }
            }
        }
        Ok(())
    }
}

/// Writes the two looks of the last judged window to a file, and tells what became of it.
fn record(snapshot: Option<&Snapshot>) -> String {
    let Some(snapshot) = snapshot else { return "nothing to record yet".to_owned() };
    let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let name = format!("{}-{}.json", snapshot.interface, seconds.as_secs());
    let text = serde_json::to_string_pretty(snapshot).expect("maps of texts") + "\n";
    match output::write_file(Path::new(&name), &text) {
        Ok(()) => format!("recorded: latput diagnose {name}"),
        Err(failure) => format!("not recorded: {}", failure.message()),
    }
}
