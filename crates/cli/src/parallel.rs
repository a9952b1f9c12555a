//! Simulations in parallel, with their progress on stderr: a bar on a terminal, now and then a line elsewhere.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use latput_experiment::parallel;
use latput_load::Stop;

use crate::output;
use crate::progress::{LINE_EVERY, minutes_and_seconds};

/// As [`parallel::map`], with a progress that is told of each job.
pub(crate) fn map<J: Sync, R: Send>(
    jobs: &[J],
    stop: &Stop,
    progress: Option<&JobProgress>,
    job: impl Fn(&J) -> R + Sync,
) -> Option<Vec<R>> {
    let done = || progress.into_iter().for_each(JobProgress::count_done);
    parallel::map(jobs, stop, done, job)
}

/// Shows how many jobs are done.
#[derive(Debug)]
pub(crate) struct JobProgress {
    what: &'static str,
    count: usize,
    /// `None` without a terminal.
    bar: Option<ProgressBar>,
    lines: Mutex<ThrottledProgress>,
}

/// The jobs that are done, and when that was told last.
#[derive(Debug)]
struct ThrottledProgress {
    done: usize,
    begun: Instant,
    last: Instant,
}

impl JobProgress {
    pub(crate) fn new(count: usize, what: &'static str) -> Self {
        let now = Instant::now();
        let lines = Mutex::new(ThrottledProgress { done: 0, begun: now, last: now });
        Self { what, count, bar: make_progress_bar(count, what), lines }
    }

    /// One more job is done.
    pub(crate) fn count_done(&self) {
        if let Some(bar) = &self.bar {
            return bar.inc(1);
        }
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = lines.count_done(Instant::now(), self.count, self.what) {
            output::print_remark(&text);
        }
    }

    /// All jobs are done, or no more will be.
    pub(crate) fn finish_jobs(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

impl ThrottledProgress {
    /// The line that is due after one more job at the time `now`.
    fn count_done(&mut self, now: Instant, count: usize, what: &str) -> Option<String> {
        self.done += 1;
        if now.saturating_duration_since(self.last) < LINE_EVERY || self.done == count {
            return None;
        }
        self.last = now;
        let spent = now.saturating_duration_since(self.begun);
        let left =
            spent.as_secs_f64() * (count.saturating_sub(self.done)) as f64 / self.done as f64;
        let left = minutes_and_seconds(Duration::try_from_secs_f64(left).unwrap_or_default());
        Some(format!("{}/{count} {what}, {left} left", self.done))
    }
}

/// A progress bar with the time left; `None` without a terminal.
pub(crate) fn make_progress_bar(count: usize, what: &str) -> Option<ProgressBar> {
    output::can_move().then(|| {
        let bar = ProgressBar::with_draw_target(
            Some(count as u64),
            ProgressDrawTarget::stderr_with_hz(5),
        );
        let template = format!("{{bar:20}} {{pos}}/{{len}} {what}, {{eta}} left");
        let style = ProgressStyle::with_template(&template)
            .expect("the template is made of constants that indicatif accepts");
        bar.set_style(style.progress_chars("=> "));
        bar
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_work_shows_progress() {
        let begun = Instant::now();
        let told = |job: Duration| {
            let mut lines = ThrottledProgress { done: 0, begun, last: begun };
            let all = (1..=100).filter_map(|at| lines.count_done(begun + job * at, 100, "runs"));
            all.collect::<Vec<String>>()
        };
        assert_eq!(told(Duration::from_millis(90)), Vec::<String>::new());
        let lines = told(Duration::from_millis(1500));
        assert_eq!(lines.len(), 14, "{lines:?}");
        assert_eq!(lines[0], "7/100 runs, 2 min 19 s left");
    }
}
