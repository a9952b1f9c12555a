//! Runs a job for many hosts side by side, so that a slow or dead host delays no other.
//!
//! At most `parallel` hosts are worked on at a time. A host that is silent for a second no longer counts: its place
//! goes to another, and it is waited for beside them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How long a host may be silent and keep its place.
const PATIENCE: Duration = Duration::from_secs(1);
/// Most hosts that are waited for: each has three pipes, and a process may have 1024 open files.
pub const WAITED_FOR_MOST: usize = 200;
/// The same, for each place.
const WAITED_FOR_EACH: usize = 8;
/// Bytes of a thread's stack: it only waits.
const STACK_BYTES: usize = 512 << 10;

/// The places of hosts that are worked on.
#[derive(Debug)]
struct HostSlots {
    free: Mutex<usize>,
    freed: Condvar,
}

/// A host's place, until it is given up.
#[derive(Debug)]
pub(crate) struct HostSlot<'a>(Option<&'a HostSlots>);

impl HostSlots {
    fn take(&self) -> HostSlot<'_> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free == 0 {
            free = self.freed.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= 1;
        HostSlot(Some(self))
    }
}

impl HostSlot<'_> {
    /// Gives the place to another host once this one was waited for too long.
    pub(crate) fn has_waited(&mut self, waited: Duration) {
        if waited > PATIENCE {
            self.give_up();
        }
    }

    fn give_up(&mut self) {
        if let Some(places) = self.0.take() {
            *places.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            places.freed.notify_one();
        }
    }
}

impl Drop for HostSlot<'_> {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// Does `job` for so many, by their number, and returns the results in their order. Once `is_over`, no job begins, and
/// those that did not have no result.
pub(crate) fn side_by_side<R: Send>(
    jobs: usize,
    parallel: usize,
    is_over: impl Fn() -> bool + Sync,
    job: impl Fn(usize, &mut HostSlot<'_>) -> R + Sync,
) -> Vec<Option<R>> {
    let results: Vec<Mutex<Option<R>>> = (0..jobs).map(|_| Mutex::new(None)).collect();
    let places = HostSlots { free: Mutex::new(parallel), freed: Condvar::new() };
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let mut place = places.take();
            let idx = next.fetch_add(1, Ordering::Relaxed);
            if idx >= jobs || is_over() {
                break;
            }
            let result = job(idx, &mut place);
            *results[idx].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        }
    };
    let threads = (parallel * WAITED_FOR_EACH).min(WAITED_FOR_MOST).min(jobs);
    thread::scope(|scope| {
        for _ in 1..threads {
            let thread = thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work);
            if thread.is_err() {
                break; // those that are there do the work
            }
        }
        work();
    });
    let results = results.into_iter();
    results.map(|it| it.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn every_job_runs_within_limit() {
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let results = side_by_side(
            60,
            3,
            || false,
            |job, _| {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(1));
                now.fetch_sub(1, Ordering::SeqCst);
                job * 2
            },
        );
        let expected: Vec<Option<usize>> = (0..60).map(|job| Some(job * 2)).collect();
        assert_eq!(results, expected);
        assert!(most.into_inner() <= 3);
    }

    /// With one place, a job that waits for the last of the others would wait for ever.
    #[test]
    fn silent_host_delays_no_other() {
        let is_last_done = AtomicBool::new(false);
        let results = side_by_side(
            4,
            1,
            || false,
            |job, place| {
                while job == 0 && !is_last_done.load(Ordering::SeqCst) {
                    place.has_waited(PATIENCE + Duration::from_millis(1));
                    thread::sleep(Duration::from_millis(1));
                }
                is_last_done.fetch_or(job == 3, Ordering::SeqCst);
            },
        );
        assert_eq!(results, [Some(()); 4]);
    }

    #[test]
    fn stop_keeps_ended_jobs_and_starts_none() {
        let is_over = AtomicBool::new(false);
        let results = side_by_side(
            100,
            1,
            || is_over.load(Ordering::SeqCst),
            |job, _| {
                is_over.fetch_or(job == 4, Ordering::SeqCst);
                job
            },
        );
        assert_eq!(results.iter().flatten().count(), 5);
        assert_eq!(results[4], Some(4));
        assert!(side_by_side(0, 4, || false, |_, _| ()).is_empty());
    }
}
