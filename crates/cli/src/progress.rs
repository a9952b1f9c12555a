//! Progress of a run: a bar with the time left on a terminal, plain lines otherwise.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use latput_experiment::runner::{Progress, TrialDone};

/// Plain lines come at most this often, so that a log stays readable.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Shows a run on stderr.
#[derive(Debug)]
pub(crate) struct Shown {
    bar: Option<ProgressBar>,
    last_line: Option<Instant>,
}

impl Shown {
    pub(crate) fn new() -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            // Twice a second: the bar must not disturb what is measured.
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(2));
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len} trials  {msg}")
                .expect("the template is a constant that indicatif accepts");
            bar.set_style(style.progress_chars("=> "));
            bar
        });
        Self { bar, last_line: None }
    }
}

impl Progress for Shown {
    #[expect(clippy::print_stderr, reason = "progress belongs on stderr")]
    fn remark(&mut self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{text}")),
            None => eprintln!("{text}"),
        }
    }

    #[expect(clippy::print_stderr, reason = "progress belongs on stderr")]
    fn trial(&mut self, done: &TrialDone<'_>) {
        let left = minutes_and_seconds(done.time_left.as_duration());
        if let Some(bar) = &self.bar {
            bar.set_length(done.planned);
            bar.set_position(done.finished);
            bar.set_message(format!("{left} left  {}", done.what));
            return;
        }
        let is_due = self.last_line.is_none_or(|last| last.elapsed() >= LINE_EVERY);
        if is_due || done.finished == done.planned {
            eprintln!("{}/{} trials, {left} left: {}", done.finished, done.planned, done.what);
            self.last_line = Some(Instant::now());
        }
    }

    fn ended(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn minutes_and_seconds(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 60 {
        format!("{seconds} s")
    } else {
        format!("{} min {:02} s", seconds / 60, seconds % 60)
    }
}
