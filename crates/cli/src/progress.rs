//! Progress of a run: a bar with the time left on a terminal, plain lines otherwise.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use latput_experiment::session::{RunProgress, TrialDone};
use latput_report::lines::truncate_text;
use latput_report::make_printable;
use latput_runner::trials::{IntervalCounts, TrialProgress};
use latput_units::Nanos;
use latput_units::text::format_count;

use crate::exit::CliError;
use crate::output;

/// Least time between plain lines, so that a log stays readable.
pub(crate) const LINE_EVERY: Duration = Duration::from_secs(10);

/// Columns of the bar, with the blank behind it.
const BAR_COLUMNS: usize = "==================== ".len();

/// Reports while a trial runs.
#[derive(Debug, clap::Args)]
pub(crate) struct ProgressArgs {
    /// Report the rate and the packets of each interval of a running trial, on stderr: at
    /// least 100ms.
    #[arg(short, long, value_name = "TIME", value_parser = Nanos::from_text_or_seconds)]
    interval: Option<Nanos>,
}

impl ProgressArgs {
    /// The interval, if it is valid.
    pub(crate) fn checked_interval(&self) -> Result<Option<Nanos>, CliError> {
        match self.interval {
            Some(interval) if interval < Nanos::from_ms(100) => {
                Err(CliError::usage("--interval must be at least 100ms"))
            }
            interval => Ok(interval),
        }
    }
}

/// Shows the progress of a run on stderr.
#[derive(Debug)]
pub(crate) struct ProgressDisplay {
    bar: Option<ProgressBar>,
    last_line: Option<Instant>,
}

impl ProgressDisplay {
    pub(crate) fn new() -> Self {
        let bar = output::can_move().then(|| {
            // Twice a second: the bar must not disturb the measurement.
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(2));
            let style = ProgressStyle::with_template("{bar:20} {msg}")
                .expect("the template is a constant that indicatif accepts");
            bar.set_style(style.progress_chars("=> "));
            bar
        });
        Self { bar, last_line: None }
    }
}

impl TrialProgress for ProgressDisplay {
    fn report_remark(&mut self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| output::print_remark(text)),
            None => output::print_remark(text),
        }
    }

    fn report_interval(&mut self, interval: &IntervalCounts) {
        self.report_remark(&interval_line(interval));
    }
}

impl RunProgress for ProgressDisplay {
    fn report_trial(&mut self, done: &TrialDone<'_>) {
        let (position, length) = match done.time {
            Some(time) => (time.spent.as_ns().min(time.most.as_ns()), time.most.as_ns()),
            None => (done.finished, done.planned),
        };
        let (so_far, what) = (so_far(done), make_printable(done.what));
        if let Some(bar) = &self.bar {
            bar.set_length(length);
            bar.set_position(position);
            let room = output::stderr_columns().saturating_sub(BAR_COLUMNS + 1);
            bar.set_message(truncate_text(&format!("{so_far}  {what}"), room).into_owned());
            return;
        }
        let is_due = self.last_line.is_none_or(|last| last.elapsed() >= LINE_EVERY);
        if is_due || position == length {
            output::print_remark(&format!("{so_far}: {what}"));
            self.last_line = Some(Instant::now());
        }
    }

    fn report_end(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// `12/40 trials, 35 s left`; of a run that ends by time, `12 s of at most 25 s`.
fn so_far(done: &TrialDone<'_>) -> String {
    let text = |time: Nanos| minutes_and_seconds(time.as_duration());
    if let Some(time) = done.time {
        return format!("{} of at most {}", text(time.spent.min(time.most)), text(time.most));
    }
    let planned = format_count(done.planned, "trial");
    format!("{}/{planned}, {} left", done.finished, text(done.time_left))
}

/// `  1.0 s  45.2 k/s | load 90.1 in 90.2 out k/s | sut 90.2 in 90.1 out k/s`.
fn interval_line(interval: &IntervalCounts) -> String {
    let rate = interval.bits_per_s.map_or_else(
        || format_scaled(interval.units_per_s, "/s"),
        |bits_per_s| format_scaled(bits_per_s, "bit/s"),
    );
    let hosts = interval.packets_per_s.iter();
    let hosts = hosts.fold(String::new(), |text, (host, rx, tx)| {
        text + &format!(
            " | {host}: {} in, {} out",
            format_scaled(*rx, "p/s"),
            format_scaled(*tx, "p/s")
        )
    });
    format!("{:>7.1} s  {rate:>11}{hosts}", interval.end.as_secs_f64())
}

/// A rate with the prefix of its size.
pub(crate) fn format_scaled(figure: f64, unit: &str) -> String {
    match figure {
        1e9.. => format!("{:.2} G{unit}", figure / 1e9),
        1e6.. => format!("{:.1} M{unit}", figure / 1e6),
        1e3.. => format!("{:.1} k{unit}", figure / 1e3),
        _ => format!("{figure:.0} {unit}"),
    }
}

pub(crate) fn minutes_and_seconds(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 60 {
        format!("{seconds} s")
    } else {
        format!("{} min {:02} s", seconds / 60, seconds % 60)
    }
}

#[cfg(test)]
mod tests {
    use latput_experiment::session::TimeSpent;

    use super::*;

    #[test]
    fn timed_run_counts_time() {
        let mut done = TrialDone {
            finished: 3,
            planned: 3,
            time_left: Nanos::from_s(75),
            time: None,
            what: "tcp_rr, as it is",
        };
        assert_eq!(so_far(&done), "3/3 trials, 1 min 15 s left");
        let [spent, most] = [12, 87].map(Nanos::from_s);
        done.time = Some(TimeSpent { spent, most });
        assert_eq!(so_far(&done), "12 s of at most 1 min 27 s");
        done.time = Some(TimeSpent { spent: Nanos::from_s(88), most });
        assert_eq!(so_far(&done), "1 min 27 s of at most 1 min 27 s");
    }
}
