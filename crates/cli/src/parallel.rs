//! Runs simulations in parallel, and returns the results in order.

use std::io::{self, IsTerminal};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use latput_load::Stop;

/// Runs `job` for each of `jobs` on as many threads as there are CPUs. Once `stop` is raised no job
/// begins, and the result is `None`.
pub(crate) fn map<J: Sync, R: Send>(
    jobs: &[J],
    stop: &Stop,
    bar: Option<&ProgressBar>,
    job: impl Fn(&J) -> R + Sync,
) -> Option<Vec<R>> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<R>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        while !stop.is_raised() {
            let idx = next.fetch_add(1, Ordering::Relaxed);
            let Some(one) = jobs.get(idx) else { break };
            let result = job(one);
            *results[idx].lock().expect("no job panics while it holds its own result") =
                Some(result);
            if let Some(bar) = bar {
                bar.inc(1);
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, std::num::NonZero::get).min(jobs.len());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let results = results.into_iter().map(|it| it.into_inner().unwrap_or_default());
    results.collect()
}

/// A progress bar with the time left; `None` without a terminal.
pub(crate) fn bar(count: usize, what: &str) -> Option<ProgressBar> {
    io::stderr().is_terminal().then(|| {
        let bar = ProgressBar::with_draw_target(
            Some(count as u64),
            ProgressDrawTarget::stderr_with_hz(5),
        );
        let template = format!("{{bar:30}} {{pos}}/{{len}} {what}, {{eta}} left");
        let style = ProgressStyle::with_template(&template)
            .expect("the template is made of constants that indicatif accepts");
        bar.set_style(style.progress_chars("=> "));
        bar
    })
}
