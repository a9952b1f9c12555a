//! How far traffic has come, for whoever wants to look while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use latput_units::Nanos;

/// Units done so far in the window: transactions, messages, datagrams, objects or reads. Clones look at
/// the same traffic. Each thread stores to a place of its own, so looking disturbs nobody.
#[derive(Clone, Debug)]
pub struct Progress(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    goal: Option<u64>,
    lanes: Box<[Lane]>,
    /// When the window ended early; `u64::MAX` if it did not.
    ended_at_ns: AtomicU64,
}

/// Alone on its cache lines: 64 byte each, and x86 fetches them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Lane(AtomicU64);

impl Progress {
    pub(crate) fn new(threads: usize, goal: Option<u64>) -> Self {
        let lanes = (0..threads).map(|_| Lane::default()).collect();
        Self(Arc::new(Shared { goal, lanes, ended_at_ns: AtomicU64::new(u64::MAX) }))
    }

    /// Units done by all threads; at a reflector always none, since the generator counts.
    pub fn units(&self) -> u64 {
        self.0.lanes.iter().map(|lane| lane.0.load(Ordering::Relaxed)).sum()
    }

    /// Units that end the window early, if the workload counts them.
    pub fn goal(&self) -> Option<u64> {
        self.0.goal
    }

    /// When the window ended because so many units were done as were asked for.
    pub fn ended_early(&self) -> Option<Nanos> {
        match self.0.ended_at_ns.load(Ordering::Relaxed) {
            u64::MAX => None,
            at => Some(Nanos::from_ns(at)),
        }
    }

    /// `thread` has done `units` so far.
    #[inline]
    pub(crate) fn store(&self, thread: usize, units: u64) {
        self.0.lanes[thread].0.store(units, Ordering::Relaxed);
    }

    /// The first to say so counts.
    pub(crate) fn end_early(&self, at: Nanos) {
        self.0.ended_at_ns.fetch_min(at.as_ns(), Ordering::Relaxed);
    }
}
