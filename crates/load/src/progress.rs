//! Progress of traffic, readable while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use latput_units::Nanos;

/// Units done so far in the window: transactions, messages, datagrams, objects or reads. Clones
/// share the same traffic. Each thread stores to its own cache lines, so reading does not slow the
/// traffic.
#[derive(Clone, Debug)]
pub struct Progress(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    goal: Option<u64>,
    lanes: Box<[Lane]>,
    /// When the window ended early; `u64::MAX` if it did not.
    ended_at_ns: AtomicU64,
}

/// Aligned to its own cache lines: 64 bytes each, and x86 fetches them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Lane(AtomicU64);

impl Progress {
    pub(crate) fn new(threads: usize, goal: Option<u64>) -> Self {
        let lanes = (0..threads).map(|_| Lane::default()).collect();
        Self(Arc::new(Shared { goal, lanes, ended_at_ns: AtomicU64::new(u64::MAX) }))
    }

    /// Units done by all threads; 0 at a reflector, since the generator counts.
    pub fn units(&self) -> u64 {
        self.0.lanes.iter().map(|lane| lane.0.load(Ordering::Relaxed)).sum()
    }

    /// Units that end the window early, if the workload has a count.
    pub fn goal(&self) -> Option<u64> {
        self.0.goal
    }

    /// When the window ended because the workload's count was reached.
    pub fn ended_early(&self) -> Option<Nanos> {
        match self.0.ended_at_ns.load(Ordering::Relaxed) {
            u64::MAX => None,
            at => Some(Nanos::from_ns(at)),
        }
    }

    /// Stores the units that `thread` has done so far.
    #[inline]
    pub(crate) fn store(&self, thread: usize, units: u64) {
        self.0.lanes[thread].0.store(units, Ordering::Relaxed);
    }

    /// Ends the window early. Only the first call counts.
    pub(crate) fn end_early(&self, at: Nanos) {
        self.0.ended_at_ns.fetch_min(at.as_ns(), Ordering::Relaxed);
    }
}
