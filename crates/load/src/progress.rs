//! How far traffic has come, for whoever wants to look while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Units done so far in the window: transactions, messages, datagrams, objects or reads. Clones look at
/// the same traffic. Each thread stores to a place of its own, so looking disturbs nobody.
#[derive(Clone, Debug)]
pub struct Progress(Arc<[Lane]>);

/// Alone on its cache lines: 64 byte each, and x86 fetches them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Lane(AtomicU64);

impl Progress {
    pub(crate) fn new(threads: usize) -> Self {
        Self((0..threads).map(|_| Lane::default()).collect())
    }

    /// Units done by all threads.
    pub fn units(&self) -> u64 {
        self.0.iter().map(|lane| lane.0.load(Ordering::Relaxed)).sum()
    }

    /// `thread` has done `units` so far.
    #[inline]
    pub(crate) fn store(&self, thread: usize, units: u64) {
        self.0[thread].0.store(units, Ordering::Relaxed);
    }
}
