//! The fuse: kills the process under test at a chosen step, as `kill -9` would.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the steps of a process that the world can see: writes to the kernel, and saves and removals
/// in the store. Shared by the fakes that live in one world.
///
/// When the fuse has burnt, the step does not happen, and neither does any later read, write or
/// save, so that destructors of the process under test cannot touch the world, just as they could not
/// in a killed one. [`renew`](Self::renew) is the next start of the process.
#[derive(Clone, Debug)]
pub struct Fuse(Arc<AtomicU64>);

/// The process is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burnt;

impl Default for Fuse {
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(u64::MAX)))
    }
}

impl Fuse {
    /// Lets `steps` more steps happen, and none after them.
    pub fn burn_after(&self, steps: u64) {
        self.0.store(steps, Ordering::SeqCst);
    }

    /// A new process: steps without end.
    pub fn renew(&self) {
        self.burn_after(u64::MAX);
    }

    /// Whether the process is dead.
    pub fn is_burnt(&self) -> bool {
        self.check_alive().is_err()
    }

    /// Fails when the process is dead; for what leaves no trace.
    pub fn check_alive(&self) -> Result<(), Burnt> {
        if self.0.load(Ordering::SeqCst) == 0 { Err(Burnt) } else { Ok(()) }
    }

    /// Takes one step, or fails when the process is dead.
    pub fn step(&self) -> Result<(), Burnt> {
        self.0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| match left {
                0 => None,
                u64::MAX => Some(u64::MAX),
                left => Some(left - 1),
            })
            .map(|_| ())
            .map_err(|_| Burnt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuse_blows_after_its_steps() {
        let fuse = Fuse::default();
        let shared = fuse.clone();
        shared.burn_after(2);
        assert_eq!([fuse.step(), fuse.step(), fuse.step()], [Ok(()), Ok(()), Err(Burnt)]);
        assert!(fuse.is_burnt() && shared.check_alive().is_err());
        fuse.renew();
        assert!((0..1000).all(|_| shared.step().is_ok()));
    }
}
