//! Simulations in parallel, with a progress bar.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use latput_experiment::parallel;
use latput_load::Stop;

use crate::output;

/// As [`parallel::map`], with a bar that is moved after each job.
pub(crate) fn map<J: Sync, R: Send>(
    jobs: &[J],
    stop: &Stop,
    bar: Option<&ProgressBar>,
    job: impl Fn(&J) -> R + Sync,
) -> Option<Vec<R>> {
    let done = || bar.into_iter().for_each(|bar| bar.inc(1));
    parallel::map(jobs, stop, done, job)
}

/// A progress bar with the time left; `None` without a terminal.
pub(crate) fn bar(count: usize, what: &str) -> Option<ProgressBar> {
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
