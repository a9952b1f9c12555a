//! A completion queue of the NIC: when it raises the interrupt of its vector, as mlx5 moderates it.
//!
//! A queue raises one interrupt after it was armed. The period counts from the last interrupt (EQE mode) or from each
//! completion (CQE mode). The driver arms the queue at the end of a poll that leaves interrupts on.

use latput_policy::dim::DimProfile;
use latput_policy::{Decision, Dim, Moderation, QueueObservation};

use crate::agenda::{NEVER, Time};

/// Time that DIM's worker takes to set the device.
const DIM_LATENCY: Time = 50_000;

/// One completion queue with its moderation.
#[derive(Clone, Debug)]
pub(super) struct CompletionQueue {
    is_armed: bool,
    /// Whether each completion restarts the period (CQE mode).
    restarts: bool,
    period: Time,
    frames: u32,
    /// Completions that the driver has not taken.
    waiting: u32,
    /// Completions since the last interrupt. The device does not see which of them the driver took.
    since_event: u32,
    last_event: Time,
    due: Time,
    /// Interrupts since the last sample of DIM.
    events: u32,
    dim: Option<Dim>,
    /// A decision of DIM and the time at which the device has it.
    change: Option<(Time, Moderation)>,
}

impl CompletionQueue {
    /// A queue that DIM moderates between `points` if `is_adaptive`, else as `fixed`.
    pub(super) fn new(
        profile: DimProfile,
        points: [(u32, u32); 5],
        is_adaptive: bool,
        fixed: Moderation,
    ) -> Self {
        let dim = is_adaptive.then(|| Dim::with_points(profile, points));
        let start = dim.as_ref().map_or(fixed, Dim::current_moderation);
        Self {
            is_armed: true,
            restarts: matches!(profile, DimProfile::RxCqe | DimProfile::TxCqe),
            period: start.delay.as_ns(),
            frames: start.frames.unwrap_or(0),
            waiting: 0,
            since_event: 0,
            last_event: 0,
            due: NEVER,
            events: 0,
            dim,
            change: None,
        }
    }

    /// The time of the next interrupt without further completions.
    pub(super) const fn due(&self) -> Time {
        self.due
    }

    /// One completion.
    #[inline]
    pub(super) fn complete(&mut self, now: Time) {
        self.waiting += 1;
        self.since_event += 1;
        if self.is_armed {
            self.moderate(now);
        }
    }

    fn moderate(&mut self, now: Time) {
        if self.frames > 0 && self.since_event >= self.frames {
            self.due = now;
        } else if self.restarts {
            self.due = now + self.period;
        } else if self.due == NEVER {
            self.due = now.max(self.last_event + self.period);
        }
    }

    /// The driver took all completions up to now.
    #[inline]
    pub(super) fn consume(&mut self, count: u32) {
        self.waiting -= count;
    }

    /// The interrupt is raised.
    pub(super) fn raise(&mut self, now: Time) {
        (self.is_armed, self.due, self.last_event) = (false, NEVER, now);
        self.since_event = 0;
        self.events += 1;
    }

    /// The driver arms the queue. Completions that it has not taken count as new.
    pub(super) fn arm(&mut self, now: Time) {
        if let Some((at, moderation)) = self.change
            && at <= now
        {
            self.change = None;
            self.period = moderation.delay.as_ns();
            self.frames = moderation.frames.unwrap_or(0);
        }
        if !std::mem::replace(&mut self.is_armed, true) && self.waiting > 0 {
            self.moderate(now);
        }
    }

    /// One sample of DIM: what the queue did since the last one.
    pub(super) fn adapt(&mut self, mut observation: QueueObservation) {
        let Some(dim) = &mut self.dim else { return };
        observation.interrupts = std::mem::take(&mut self.events);
        if let Decision::Change { target, .. } = dim.step(&observation) {
            self.change = Some((observation.now.as_ns() + DIM_LATENCY, target));
        }
    }
}

#[cfg(test)]
mod tests {
    use latput_units::Nanos;

    use super::*;

    fn new_queue(profile: DimProfile) -> CompletionQueue {
        let fixed = Moderation { delay: Nanos::from_us(8), frames: Some(3) };
        CompletionQueue::new(profile, profile.points(), false, fixed)
    }

    #[test]
    fn cqe_mode_restarts_period_with_each_completion() {
        let mut queue = new_queue(DimProfile::RxCqe);
        queue.complete(100_000);
        assert_eq!(queue.due(), 108_000);
        queue.complete(105_000);
        assert_eq!(queue.due(), 113_000);
        queue.complete(106_000);
        assert_eq!(queue.due(), 106_000, "enough frames");
    }

    #[test]
    fn eqe_mode_counts_period_from_last_interrupt() {
        let mut queue = new_queue(DimProfile::TxEqe);
        queue.complete(100_000);
        assert_eq!(queue.due(), 100_000);
        queue.raise(100_000);
        queue.consume(1);
        queue.arm(101_000);
        queue.complete(102_000);
        queue.complete(103_000);
        assert_eq!(queue.due(), 108_000);
    }

    #[test]
    fn unarmed_queue_raises_nothing_until_armed() {
        let mut queue = new_queue(DimProfile::RxCqe);
        queue.complete(0);
        queue.raise(8_000);
        queue.complete(9_000);
        assert_eq!(queue.due(), NEVER);
        queue.arm(10_000);
        assert_eq!(queue.due(), 18_000);
    }
}
