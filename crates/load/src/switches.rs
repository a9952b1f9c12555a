//! The context switches of the calling thread.
#![allow(unsafe_code, reason = "getrusage of a thread has no safe wrapper")]

use latput_trial::observation::ContextSwitches;

/// The switches of the calling thread since it began; `None` where the kernel does not tell.
pub(crate) fn thread_switches() -> Option<ContextSwitches> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is room for one `rusage`, which the kernel fills.
    if unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: it was zeroed, and any bits are a valid `rusage`.
    let usage = unsafe { usage.assume_init() };
    Some(ContextSwitches {
        waits: u64::try_from(usage.ru_nvcsw).ok()?,
        preemptions: u64::try_from(usage.ru_nivcsw).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn sleep_is_a_wait() {
        let before = thread_switches().unwrap();
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(thread_switches().unwrap().since(before).waits >= 5);
    }
}
