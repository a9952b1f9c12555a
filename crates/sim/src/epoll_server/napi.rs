//! The state of one NAPI instance as Linux 6.13 keeps it: who polls, and whether interrupts stay masked.
//!
//! Source: `net/core/dev.c` (`napi_schedule_prep`, `napi_complete_done`, `__napi_busy_loop`, `busy_poll_stop`,
//! `napi_watchdog`, `napi_suspend_irqs`, `napi_resume_irqs`). The settings are those of each NAPI instance.

use latput_units::Nanos;

use crate::agenda::{NEVER, Time};

/// The settings of a NAPI instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NapiSettings {
    /// `napi-defer-hard-irqs`: polls without packets, by timer, before interrupts come back.
    pub defer_hard_irqs: u32,
    /// `gro-flush-timeout`: time of the timer that polls instead of an interrupt.
    pub gro_flush_timeout: Nanos,
    /// `irq-suspend-timeout`: longest time without a poll by the application once its poll found packets.
    pub irq_suspend_timeout: Nanos,
}

/// The end of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PollEnd {
    /// The driver enables the interrupt.
    Rearm,
    /// The interrupt stays masked; a timer polls next.
    Masked,
    /// A cause came during the poll: the kernel polls once more.
    Again,
}

/// One NAPI instance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Napi {
    settings: NapiSettings,
    /// `NAPI_STATE_SCHED`: somebody owns the instance.
    is_scheduled: bool,
    /// `NAPI_STATE_IN_BUSY_POLL`: the owner is an application.
    is_busy_polled: bool,
    /// `NAPI_STATE_MISSED`.
    missed: bool,
    /// `defer_hard_irqs_count`.
    deferrals_left: u32,
    /// Expiry of the instance's timer.
    timer: Time,
}

impl Napi {
    pub(super) const fn new(settings: NapiSettings) -> Self {
        Self {
            settings,
            is_scheduled: false,
            is_busy_polled: false,
            missed: false,
            deferrals_left: 0,
            timer: NEVER,
        }
    }

    /// Expiry of the timer.
    pub(super) const fn timer_due(&self) -> Time {
        self.timer
    }

    /// `napi_schedule_prep`: whether the caller must start a poll. The owner learns of the cause otherwise.
    pub(super) fn schedule(&mut self) -> bool {
        self.missed |= self.is_scheduled;
        !std::mem::replace(&mut self.is_scheduled, true)
    }

    /// `napi_watchdog`: the timer expired. Whether a poll must start.
    pub(super) fn expire_timer(&mut self) -> bool {
        self.timer = NEVER;
        !std::mem::replace(&mut self.is_scheduled, true)
    }

    /// `napi_complete_done` after a poll that received `work` packets, less than its budget.
    pub(super) fn complete(&mut self, work: u32, now: Time) -> PollEnd {
        if self.is_busy_polled {
            return PollEnd::Masked;
        }
        let mut end = PollEnd::Rearm;
        let mut timeout = Nanos::ZERO;
        if work > 0 {
            self.deferrals_left = self.settings.defer_hard_irqs;
        }
        if self.deferrals_left > 0 {
            self.deferrals_left -= 1;
            timeout = self.settings.gro_flush_timeout;
            if timeout > Nanos::ZERO {
                end = PollEnd::Masked;
            }
        }
        if std::mem::take(&mut self.missed) {
            return PollEnd::Again;
        }
        self.is_scheduled = false;
        self.start_timer(timeout, now);
        end
    }

    /// The application takes the instance for its polls; false if the kernel owns it.
    pub(super) fn begin_busy_poll(&mut self) -> bool {
        if self.is_scheduled {
            return false;
        }
        (self.is_scheduled, self.is_busy_polled) = (true, true);
        true
    }

    /// `busy_poll_stop` up to its last poll; the caller polls once more, then calls [`Self::complete`], or
    /// [`Self::exhaust_busy_poll`] if that poll used its whole budget. Returns whether the timer, not the kernel,
    /// polls next in the latter case.
    pub(super) fn stop_busy_poll(&mut self, prefers: bool, now: Time) -> bool {
        (self.missed, self.is_busy_polled) = (false, false);
        if !prefers {
            return false;
        }
        self.deferrals_left = self.settings.defer_hard_irqs;
        let timeout = self.settings.gro_flush_timeout;
        let defers = self.deferrals_left > 0 && timeout > Nanos::ZERO;
        if defers {
            self.start_timer(timeout, now);
        }
        defers
    }

    /// `__busy_poll_stop`: more packets wait. Whether the kernel must poll, still as the owner.
    pub(super) fn exhaust_busy_poll(&mut self, timer_polls: bool) -> bool {
        self.is_scheduled = !timer_polls;
        !timer_polls
    }

    /// `napi_suspend_irqs`: the application takes events. The timer now guards against its silence.
    pub(super) fn suspend(&mut self, now: Time) {
        self.start_timer(self.settings.irq_suspend_timeout, now);
    }

    /// `napi_resume_irqs`: the application found no events. Whether a poll of the kernel must start.
    pub(super) fn resume(&mut self) -> bool {
        self.settings.irq_suspend_timeout > Nanos::ZERO && self.schedule()
    }

    fn start_timer(&mut self, timeout: Nanos, now: Time) {
        if timeout > Nanos::ZERO {
            self.timer = now + timeout.as_ns();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Time = 20_000;
    const SUSPEND: Time = 20_000_000;

    fn new_napi(defer: u32, suspend: Time) -> Napi {
        Napi::new(NapiSettings {
            defer_hard_irqs: defer,
            gro_flush_timeout: Nanos::from_ns(if defer > 0 { TIMEOUT } else { 0 }),
            irq_suspend_timeout: Nanos::from_ns(suspend),
        })
    }

    /// The timer's polls until interrupts come back.
    fn count_empty_polls(napi: &mut Napi) -> u32 {
        for polls in 1..1_000 {
            let now = napi.timer_due();
            assert!(napi.expire_timer());
            if napi.complete(0, now) == PollEnd::Rearm {
                return polls;
            }
        }
        panic!("interrupts never come back");
    }

    #[test]
    fn deferral_rearms_the_timer_n_times() {
        let mut napi = new_napi(3, 0);
        assert!(napi.schedule());
        assert_eq!(napi.complete(5, 1_000), PollEnd::Masked);
        assert_eq!(napi.timer_due(), 1_000 + TIMEOUT);
        // The poll with packets took one of three; two timers defer again, the third one ends it.
        assert_eq!(count_empty_polls(&mut napi), 3);
        assert_eq!(napi.timer_due(), NEVER);
    }

    #[test]
    fn packets_start_the_deferral_again() {
        let mut napi = new_napi(2, 0);
        assert!(napi.schedule());
        assert_eq!(napi.complete(1, 0), PollEnd::Masked);
        assert!(napi.expire_timer());
        assert_eq!(napi.complete(1, TIMEOUT), PollEnd::Masked);
        assert_eq!(count_empty_polls(&mut napi), 2);
    }

    #[test]
    fn preferred_busy_poll_keeps_interrupts_masked() {
        for (defer, prefers, end) in
            [(100, true, PollEnd::Masked), (100, false, PollEnd::Rearm), (0, true, PollEnd::Rearm)]
        {
            let mut napi = new_napi(defer, 0);
            assert!(napi.begin_busy_poll());
            assert_eq!(
                napi.complete(7, 0),
                PollEnd::Masked,
                "polls of the application end nothing"
            );
            napi.stop_busy_poll(prefers, 1_000);
            assert_eq!(napi.complete(0, 1_000), end, "{defer} {prefers}");
            assert_eq!(napi.timer_due() == 1_000 + TIMEOUT, end == PollEnd::Masked);
        }
    }

    #[test]
    fn suspension_ends_when_the_application_is_silent() {
        let mut napi = new_napi(2, SUSPEND);
        assert!(napi.schedule());
        assert_eq!(napi.complete(1, 0), PollEnd::Masked);
        napi.suspend(10_000);
        assert_eq!(napi.timer_due(), 10_000 + SUSPEND, "it replaces the deferral's timer");
        assert_eq!(count_empty_polls(&mut napi), 2);
    }

    #[test]
    fn empty_poll_resumes_interrupts_by_deferral() {
        let mut napi = new_napi(2, SUSPEND);
        napi.suspend(0);
        assert!(napi.begin_busy_poll());
        napi.stop_busy_poll(true, 1_000);
        assert_eq!(napi.complete(0, 1_000), PollEnd::Masked);
        assert!(napi.resume(), "the kernel polls at once");
        assert_eq!(napi.complete(0, 2_000), PollEnd::Masked);
        assert_eq!(napi.timer_due(), 2_000 + TIMEOUT);
        assert!(!new_napi(2, 0).resume(), "without a suspension there is nothing to resume");
    }

    #[test]
    fn cause_during_a_poll_is_polled_again() {
        let mut napi = new_napi(0, 0);
        assert!(napi.schedule());
        assert!(!napi.schedule());
        assert_eq!(napi.complete(3, 0), PollEnd::Again);
        assert_eq!(napi.complete(0, 0), PollEnd::Rearm);
        assert!(napi.schedule());
    }

    #[test]
    fn busy_poll_leaves_full_rings_to_timer() {
        let mut napi = new_napi(100, 0);
        assert!(napi.begin_busy_poll());
        let timer_polls = napi.stop_busy_poll(true, 0);
        assert!(timer_polls && !napi.exhaust_busy_poll(timer_polls));
        assert!(napi.expire_timer());
        let mut napi = new_napi(0, 0);
        assert!(napi.begin_busy_poll());
        let timer_polls = napi.stop_busy_poll(true, 0);
        assert!(!timer_polls && napi.exhaust_busy_poll(timer_polls));
        assert!(!napi.begin_busy_poll(), "the kernel owns it");
    }
}
