//! The flag that ends traffic early, after Ctrl-C or when an agent lost its controller.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A stop flag, which can be raised twice: the second time asks not to wait for cleanup. Clones
/// share the flag. Traffic ends within 50 ms of the first raise.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<Flags>);

#[derive(Debug, Default)]
struct Flags {
    raised: Arc<AtomicBool>,
    again: AtomicBool,
    /// A signal that no check has seen yet.
    signalled: Arc<AtomicBool>,
}

impl Stop {
    /// A flag that is not raised.
    pub fn new() -> Self {
        Self::default()
    }

    /// Raises the flag, which ends the traffic.
    pub fn raise(&self) {
        if self.0.raised.swap(true, Ordering::Relaxed) {
            self.0.again.store(true, Ordering::Relaxed);
        }
    }

    /// The flag for a signal handler that stores `true`. Any number of signals raises it once.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0.raised)
    }

    /// The flag for a signal handler that stores `true`. The first signal raises it, a later one
    /// raises it again. Signals between two checks of the flag count as one.
    pub fn on_signal(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0.signalled)
    }

    /// Whether the flag was raised.
    pub fn is_raised(&self) -> bool {
        self.take_signal();
        self.0.raised.load(Ordering::Relaxed)
    }

    /// Whether the flag was raised twice.
    pub fn is_raised_again(&self) -> bool {
        self.take_signal();
        self.0.again.load(Ordering::Relaxed)
    }

    fn take_signal(&self) {
        let signalled = &self.0.signalled;
        if signalled.load(Ordering::Relaxed) && signalled.swap(false, Ordering::Relaxed) {
            self.raise();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_signal_is_told_from_the_first() {
        let stop = Stop::new();
        let (seen_elsewhere, signal) = (stop.clone(), stop.on_signal());
        assert!(!stop.is_raised() && !stop.is_raised_again());
        signal.store(true, Ordering::Relaxed);
        assert!(seen_elsewhere.is_raised() && !stop.is_raised_again());
        assert!(stop.is_raised() && !stop.is_raised_again(), "a look takes it once");
        stop.flag().store(true, Ordering::Relaxed);
        assert!(!stop.is_raised_again(), "this one does not count");
        signal.store(true, Ordering::Relaxed);
        assert!(seen_elsewhere.is_raised_again() && stop.is_raised_again() && stop.is_raised());
    }
}
