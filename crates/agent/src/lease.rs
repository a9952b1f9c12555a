//! The lease of a line between two processes: who is silent for so long is taken to be gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use latput_protocol::control::LEASE;
use latput_units::Nanos;

/// Parts of a lease. It counts only while this process runs: a stopped process has not lost the other end.
const PARTS: u32 = 20;
/// Beats in a lease of an end that has nothing else to say.
const BEATS: u32 = 6;
/// Interval at which a sleep looks for the end and for another length.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A lease, and whether the other end was heard. Clones are of the same line.
#[derive(Clone, Debug)]
pub(crate) struct KeepaliveLease(Arc<KeepaliveState>);

#[derive(Debug)]
struct KeepaliveState {
    length_ns: AtomicU64,
    heard: AtomicBool,
    is_over: AtomicBool,
}

impl KeepaliveLease {
    pub(crate) fn new() -> Self {
        Self(Arc::new(KeepaliveState {
            length_ns: AtomicU64::new(LEASE.as_ns()),
            heard: AtomicBool::new(true),
            is_over: AtomicBool::new(false),
        }))
    }

    pub(crate) fn set_length(&self, length: Nanos) {
        self.0.length_ns.store(length.as_ns(), Ordering::Relaxed);
    }

    fn length(&self) -> Nanos {
        Nanos::from_ns(self.0.length_ns.load(Ordering::Relaxed))
    }

    /// The other end has said something.
    pub(crate) fn renew(&self) {
        self.0.heard.store(true, Ordering::Relaxed);
    }

    /// The line has ended, and nobody is waited for.
    pub(crate) fn end_lease(&self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.0.is_over.load(Ordering::Relaxed)
    }

    /// Waits until nothing was heard for the lease, and returns it; `None` if the line has ended before.
    pub(crate) fn wait_for_expiry(&self) -> Option<Nanos> {
        let mut silent_parts = 0;
        while silent_parts < PARTS {
            thread::sleep(self.length().as_duration() / PARTS);
            if self.is_over() {
                return None;
            }
            let has_heard = self.0.heard.swap(false, Ordering::Relaxed);
            silent_parts = if has_heard { 0 } else { silent_parts + 1 };
        }
        Some(self.length())
    }

    /// Calls `beat` several times in each lease until it fails or the line has ended.
    pub(crate) fn run_heartbeats(&self, mut beat: impl FnMut() -> bool) {
        while !self.is_over() && beat() {
            let begun = Instant::now();
            // The lease may become shorter meanwhile.
            while !self.is_over() && begun.elapsed() < self.length().as_duration() / BEATS {
                thread::sleep(LOOK_EVERY);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortened_lease_is_kept_by_beats() {
        let lease = KeepaliveLease::new();
        let (kept, beats) = (lease.clone(), Arc::new(AtomicU64::new(0)));
        let heard = Arc::clone(&beats);
        let beating = thread::spawn(move || {
            kept.run_heartbeats(|| {
                kept.renew();
                heard.fetch_add(1, Ordering::Relaxed) < 7
            });
        });
        lease.set_length(Nanos::from_ms(800));
        assert_eq!(lease.wait_for_expiry(), Some(Nanos::from_ms(800)));
        assert_eq!(beats.load(Ordering::Relaxed), 8, "for longer than a lease");
        beating.join().unwrap();
        lease.end_lease();
        assert_eq!(lease.wait_for_expiry(), None);
    }
}
