//! Runs jobs in parallel, and returns the results in order.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use latput_load::Stop;

/// Runs `job` for each of `jobs` on as many threads as there are CPUs; `done` is called after each. Once `stop` is
/// raised no job begins, and the result is `None`.
pub fn map<J: Sync, R: Send>(
    jobs: &[J],
    stop: &Stop,
    done: impl Fn() + Sync,
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
            done();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_job_order_or_stop() {
        let jobs: Vec<u32> = (0..100).collect();
        let count = AtomicUsize::new(0);
        let done = || {
            count.fetch_add(1, Ordering::Relaxed);
        };
        let doubled = map(&jobs, &Stop::new(), done, |job| 2 * job).unwrap();
        assert_eq!(doubled, jobs.iter().map(|job| 2 * job).collect::<Vec<_>>());
        assert_eq!(count.into_inner(), 100);
        let stop = Stop::new();
        stop.raise();
        assert_eq!(map(&jobs, &stop, || {}, |job| 2 * job), None);
    }
}
