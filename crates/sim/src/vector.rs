//! One interrupt vector: computes when a NIC interrupts.
//!
//! Two stages, as in hardware. A *delay* per direction turns packets into a cause: at once, some time
//! after the first packet, some time after the last packet, or when enough frames wait. A *throttle*
//! then keeps interrupts apart: a hold-off since the last interrupt (EITR, ITR as documented), or a
//! gate that opens on a free-running clock (what published figures of the 8254x show).

use serde::{Deserialize, Serialize};

use latput_units::Nanos;

use crate::agenda::{NEVER, Time};

/// How packets of one direction become an interrupt cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InterruptDelay {
    /// From the first waiting packet, or from the last with `restarts` (`rx-usecs`, RADV, RDTR).
    #[serde(rename = "delay_ns")]
    pub delay: Nanos,
    /// Number of waiting frames that makes a cause at once; 0 for no limit (`rx-frames`).
    pub frames: u32,
    /// Whether each packet restarts the delay (RDTR, tg3).
    pub restarts: bool,
    /// With `restarts`: longest delay after the first packet (RADV); 0 for no limit.
    #[serde(rename = "absolute_ns")]
    pub absolute: Nanos,
    /// The delay while an interrupt is being served, until the end of its polls (`rx-usecs-irq`);
    /// the same delay if absent.
    #[serde(rename = "delay_irq_ns")]
    pub delay_irq: Option<Nanos>,
    /// The frame limit while an interrupt is being served (`rx-frames-irq`).
    pub frames_irq: Option<u32>,
}

impl InterruptDelay {
    /// The delay while an interrupt is being served.
    #[must_use]
    pub fn in_irq(self) -> Self {
        Self {
            delay: self.delay_irq.unwrap_or(self.delay),
            frames: self.frames_irq.unwrap_or(self.frames),
            ..self
        }
    }
}

/// The rule for the interval between interrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Throttle {
    /// No rule.
    #[default]
    None,
    /// At least this interval after the last interrupt; no delay on an idle line.
    HoldOff {
        /// The shortest time between two interrupts.
        #[serde(rename = "interval_ns")]
        interval: Nanos,
    },
    /// Interrupts only when a free-running clock of this period ticks.
    Gate {
        /// The clock's period.
        #[serde(rename = "interval_ns")]
        interval: Nanos,
    },
}

impl Throttle {
    /// The interval, zero without a throttle.
    pub const fn interval(&self) -> Nanos {
        match self {
            Self::None => Nanos::ZERO,
            Self::HoldOff { interval } | Self::Gate { interval } => *interval,
        }
    }

    /// The same kind of throttle with another interval.
    pub const fn with_interval(self, interval: Nanos) -> Self {
        match self {
            Self::None => Self::None,
            Self::HoldOff { .. } => Self::HoldOff { interval },
            Self::Gate { .. } => Self::Gate { interval },
        }
    }
}

/// The moderation of one vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Coalescing {
    /// Receive side.
    pub rx: InterruptDelay,
    /// Transmit completions.
    pub tx: InterruptDelay,
    /// The rule between interrupts of both directions.
    pub throttle: Throttle,
    /// Whether a cause that came while the vector was masked stays after the poll took its packets.
    /// The next interrupt then finds nothing (Intel's cause registers).
    pub latched: bool,
    /// Whether the host sees packets only through the status block, which the NIC writes at each
    /// coalescing event, masked or not (tg3).
    pub status_block: bool,
    /// The unit of the throttle's register. Intervals are rounded down to it; 0 for no rounding
    /// (256 ns of ITR, 1 us of igb's EITR, 2 us of ixgbe's).
    #[serde(rename = "throttle_unit_ns")]
    pub throttle_unit: Nanos,
    /// The unit of the delays' registers (1024 ns of RDTR and RADV).
    #[serde(rename = "delay_unit_ns")]
    pub delay_unit: Nanos,
}

/// One direction's cause.
#[derive(Clone, Copy, Debug)]
struct InterruptCause {
    due: Time,
    first: Time,
    frames: u32,
}

const NO_CAUSE: InterruptCause = InterruptCause { due: NEVER, first: NEVER, frames: 0 };

/// The state of one vector.
#[derive(Clone, Debug)]
pub(crate) struct InterruptVector {
    coalescing: Coalescing,
    /// The settings of `rx` and `tx` while an interrupt is being served.
    rx_in_irq: InterruptDelay,
    tx_in_irq: InterruptDelay,
    rx: InterruptCause,
    tx: InterruptCause,
    masked: bool,
    last_interrupt: Option<Time>,
    gate_phase: Time,
    /// Deviation of this NIC's clock.
    clock_ppm: i64,
}

/// The action of a vector that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VectorAction {
    /// Interrupt the CPU and mask the vector.
    Interrupt,
    /// Write the status block: packets become visible, but the vector is masked.
    StatusOnly,
}

/// The effect of a packet that has not arrived yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArrivalEffect {
    /// No earlier due time.
    Nothing,
    /// The packet must be processed at its arrival.
    Heeded,
    /// The vector is due then, after the arrival.
    Due(Time),
}

impl ArrivalEffect {
    /// The time at which the packet, which arrives `at`, must be processed. Moves `due` to an
    /// earlier known time, if the queue `foresees` such times.
    #[inline]
    pub(crate) fn merge_due(self, foresees: bool, at: Time, due: &mut Time) -> Time {
        match self {
            Self::Nothing => NEVER,
            Self::Due(time) if foresees => {
                *due = time.min(*due);
                NEVER
            }
            Self::Due(_) | Self::Heeded => at,
        }
    }
}

impl InterruptVector {
    /// An unmasked vector without causes. `gate_phase` is the first tick of a gate's clock.
    pub(crate) fn new(coalescing: Coalescing, gate_phase: Time, clock_ppm: i64) -> Self {
        let mut vector = Self {
            coalescing,
            rx_in_irq: InterruptDelay::default(),
            tx_in_irq: InterruptDelay::default(),
            rx: NO_CAUSE,
            tx: NO_CAUSE,
            masked: false,
            last_interrupt: None,
            gate_phase,
            clock_ppm,
        };
        vector.set_coalescing(coalescing);
        vector
    }

    /// The current moderation, in the NIC's own clock.
    pub(crate) fn coalescing(&self) -> &Coalescing {
        &self.coalescing
    }

    /// Sets the moderation. Waiting causes keep their times.
    pub(crate) fn set_coalescing(&mut self, coalescing: Coalescing) {
        let scale =
            |span: Nanos, unit: Nanos| scale_by_ppm(round_down_to_unit(span, unit), self.clock_ppm);
        let (mut scaled, unit) = (coalescing, coalescing.delay_unit);
        for delay in [&mut scaled.rx, &mut scaled.tx] {
            delay.delay = scale(delay.delay, unit);
            delay.absolute = scale(delay.absolute, unit);
            delay.delay_irq = delay.delay_irq.map(|span| scale(span, unit));
        }
        let interval = scale(coalescing.throttle.interval(), coalescing.throttle_unit);
        scaled.throttle = coalescing.throttle.with_interval(interval);
        (self.rx_in_irq, self.tx_in_irq) = (scaled.rx.in_irq(), scaled.tx.in_irq());
        self.coalescing = scaled;
    }

    /// Adds received packets, each `at` its time. Returns whether [`Self::next_event`] may have
    /// changed.
    #[inline]
    pub(crate) fn add_received(&mut self, count: u32, at: impl Fn(u32) -> Time) -> bool {
        let delay = if self.masked { &self.rx_in_irq } else { &self.coalescing.rx };
        self.rx.add_all(delay, count, at) && self.is_active()
    }

    /// Adds transmit completions, each `at` its time. Returns whether [`Self::next_event`] may have
    /// changed.
    #[inline]
    pub(crate) fn add_completions(&mut self, count: u32, at: impl Fn(u32) -> Time) -> bool {
        let delay = if self.masked { &self.tx_in_irq } else { &self.coalescing.tx };
        self.tx.add_all(delay, count, at) && self.is_active()
    }

    /// The effect of the next received packet, which arrives `at`.
    #[inline]
    pub(crate) fn rx_ahead(&self, at: Time) -> ArrivalEffect {
        let delay = if self.masked { &self.rx_in_irq } else { &self.coalescing.rx };
        self.predict_effect(&self.rx, delay, at)
    }

    /// The effect of the next transmit completion, which comes `at`.
    #[inline]
    pub(crate) fn tx_ahead(&self, at: Time) -> ArrivalEffect {
        let delay = if self.masked { &self.tx_in_irq } else { &self.coalescing.tx };
        self.predict_effect(&self.tx, delay, at)
    }

    #[inline]
    fn predict_effect(
        &self,
        cause: &InterruptCause,
        delay: &InterruptDelay,
        at: Time,
    ) -> ArrivalEffect {
        if at == NEVER || !cause.heeds(delay) {
            return ArrivalEffect::Nothing;
        }
        let is_plain = cause.due == NEVER && delay.frames == 0 && !delay.restarts;
        if !is_plain || self.masked {
            return ArrivalEffect::Heeded;
        }
        let due = self.apply_throttle(at + delay.delay.as_ns());
        // An event at that very time keeps its order among others.
        if due > at { ArrivalEffect::Due(due) } else { ArrivalEffect::Heeded }
    }

    /// Whether the next transmit completion has an effect at its time.
    #[inline]
    pub(crate) fn heeds_tx(&self) -> bool {
        let delay = if self.masked { &self.tx_in_irq } else { &self.coalescing.tx };
        self.is_active() && self.tx.heeds(delay)
    }

    /// Whether a cause has an effect now.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        !self.masked || self.coalescing.status_block
    }

    /// When to call [`Self::fire`], if nothing else happens; [`NEVER`] if not at all.
    #[inline]
    pub(crate) fn next_event(&self, now: Time) -> Time {
        let due = self.rx.due.min(self.tx.due);
        if due == NEVER || !self.is_active() {
            return NEVER;
        }
        if self.masked { due.max(now) } else { self.apply_throttle(due.max(now)) }
    }

    /// The first allowed interrupt time from `due` on.
    fn apply_throttle(&self, due: Time) -> Time {
        match self.coalescing.throttle {
            Throttle::None => due,
            Throttle::HoldOff { interval } => {
                self.last_interrupt.map_or(due, |last| due.max(last + interval.as_ns()))
            }
            Throttle::Gate { interval } if interval == Nanos::ZERO => due,
            Throttle::Gate { interval } => {
                let since = due.saturating_sub(self.gate_phase);
                self.gate_phase + since.div_ceil(interval.as_ns()) * interval.as_ns()
            }
        }
    }

    /// Handles a vector that is due.
    #[inline]
    pub(crate) fn fire(&mut self, now: Time) -> VectorAction {
        self.rx = NO_CAUSE;
        self.tx = NO_CAUSE;
        if self.masked {
            return VectorAction::StatusOnly;
        }
        self.last_interrupt = Some(now);
        self.masked = true;
        VectorAction::Interrupt
    }

    /// Unmasks the vector. With `is_drained` the rings are empty, so an unlatched cause disappears.
    #[inline]
    pub(crate) fn unmask(&mut self, is_drained: bool) {
        self.masked = false;
        if is_drained && !self.coalescing.latched {
            self.rx = NO_CAUSE;
            self.tx = NO_CAUSE;
        }
    }

    /// Masks the vector (device polling).
    pub(crate) fn mask(&mut self) {
        self.masked = true;
    }
}

impl InterruptCause {
    #[inline]
    fn heeds(&self, delay: &InterruptDelay) -> bool {
        // A cause that waits for the delay of a served interrupt yields to an immediate one.
        let overtakes = delay.delay == Nanos::ZERO && self.first != NEVER;
        self.due == NEVER || delay.frames > 0 || delay.restarts || overtakes
    }

    #[inline]
    fn add_all(&mut self, delay: &InterruptDelay, count: u32, at: impl Fn(u32) -> Time) -> bool {
        if !self.heeds(delay) {
            self.frames = self.frames.saturating_add(count);
            return false;
        }
        if count == 1 {
            return self.add(delay, at(0));
        }
        self.add_heeded(delay, count, at)
    }

    #[inline(never)]
    fn add_heeded(&mut self, delay: &InterruptDelay, count: u32, at: impl Fn(u32) -> Time) -> bool {
        let mut changed = false;
        let mut idx = 0;
        while idx < count && self.heeds(delay) {
            changed |= self.add(delay, at(idx));
            idx += 1;
        }
        self.frames = self.frames.saturating_add(count - idx);
        changed
    }

    fn add(&mut self, delay: &InterruptDelay, now: Time) -> bool {
        let before = self.due;
        self.frames = self.frames.saturating_add(1);
        if delay.delay == Nanos::ZERO || (delay.frames > 0 && self.frames >= delay.frames) {
            self.due = self.due.min(now);
        } else if self.due == NEVER {
            self.first = now;
            self.due = now + delay.delay.as_ns();
        } else if delay.restarts && self.due > now {
            let latest = match delay.absolute.as_ns() {
                0 => NEVER,
                absolute => self.first + absolute,
            };
            self.due = latest.min(now + delay.delay.as_ns());
        }
        self.due != before
    }
}

/// Rounds a span down to a register's unit.
fn round_down_to_unit(span: Nanos, unit: Nanos) -> Nanos {
    match span.as_ns().checked_rem(unit.as_ns()) {
        Some(rest) => Nanos::from_ns(span.as_ns() - rest),
        None => span,
    }
}

/// Converts a span of a NIC's clock to true time.
fn scale_by_ppm(span: Nanos, ppm: i64) -> Nanos {
    let scaled = i128::from(span.as_ns()) * i128::from(1_000_000 + ppm) / 1_000_000;
    Nanos::from_ns(u64::try_from(scaled).unwrap_or(0))
}

#[cfg(test)]
mod tests;
