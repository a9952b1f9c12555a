//! From an interface's running counters to what a policy is told.

use latput_linux::Glance;
use latput_moderate::{Counts, Observation};
use latput_units::Nanos;

/// The counters as they were at the last sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    last: Glance,
}

/// What happened between two samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    pub(crate) observation: Observation,
    pub(crate) elapsed: Nanos,
    pub(crate) dropped: u64,
}

impl Meter {
    pub(crate) fn new(first: Glance) -> Self {
        Self { last: first }
    }

    /// Begins anew: what was before belongs to another delay.
    pub(crate) fn rebase(&mut self, now: Glance) {
        self.last = now;
    }

    /// What happened since the last sample under `delay`; nothing if a counter went back, as it does
    /// when a driver is reset.
    pub(crate) fn advance(&mut self, now: Glance, delay: Nanos) -> Option<Sample> {
        let last = std::mem::replace(&mut self.last, now);
        let elapsed = now.at.saturating_sub(last.at);
        let (a, b) = (last.interface, now.interface);
        let rx =
            counts(b.rx_packets.checked_sub(a.rx_packets)?, b.rx_bytes.checked_sub(a.rx_bytes)?);
        let tx =
            counts(b.tx_packets.checked_sub(a.tx_packets)?, b.tx_bytes.checked_sub(a.tx_bytes)?);
        // Polls are not counted for us without more privilege: at most one a packet, one a delay.
        let polls = elapsed.as_ns() / delay.as_ns().max(1_000);
        let interrupts = rx.packets.min(u32::try_from(polls).unwrap_or(u32::MAX));
        let observation = Observation { now: now.at, rx, tx, interrupts, ..Observation::default() };
        let dropped = b.rx_dropped.saturating_sub(a.rx_dropped);
        Some(Sample { observation, elapsed, dropped })
    }
}

fn counts(packets: u64, bytes: u64) -> Counts {
    let narrow = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    Counts { packets: narrow(packets), bytes: narrow(bytes) }
}

#[cfg(test)]
mod tests {
    use latput_trial::observation::InterfaceCounters;

    use super::*;

    #[test]
    fn samples_are_differences() {
        let mut meter = Meter::new(glance(0, 0));
        let sample = meter.advance(glance(50, 500), Nanos::from_us(100)).unwrap();
        assert_eq!(sample.observation.rx, Counts { packets: 500, bytes: 50_000 });
        assert_eq!(sample.observation.interrupts, 500, "50 ms hold 500 delays of 100 us");
        let sample = meter.advance(glance(100, 100_500), Nanos::from_us(100)).unwrap();
        assert_eq!(sample.observation.interrupts, 500);
    }

    #[test]
    fn counters_that_start_again_are_no_sample() {
        let mut meter = Meter::new(glance(0, 1000));
        assert_eq!(meter.advance(glance(50, 10), Nanos::ZERO), None);
        assert!(meter.advance(glance(100, 20), Nanos::ZERO).is_some());
    }

    #[test]
    fn a_fast_link_does_not_overflow() {
        let mut meter = Meter::new(glance(0, 0));
        let sample = meter.advance(glance(50, u64::MAX / 200), Nanos::ZERO).unwrap();
        assert_eq!(sample.observation.rx.bytes, u32::MAX);
    }

    fn glance(at_ms: u64, packets: u64) -> Glance {
        let interface = InterfaceCounters {
            rx_packets: packets,
            rx_bytes: packets * 100,
            ..InterfaceCounters::default()
        };
        Glance { at: Nanos::from_ms(at_ms), interface }
    }
}
