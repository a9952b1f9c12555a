//! From an interface's running counters to what a policy is told.

use latput_linux::{CounterSnapshot, Protocols};
use latput_policy::{QueueObservation, TrafficCounts};
use latput_units::{Bytes, Nanos};

/// Bytes that drivers count of a frame beside its packet, at most: Ethernet header, VLAN tag, check sequence and
/// padding.
const AROUND_BYTES: f64 = 26.0;
/// Fewer packets in a sample are no bulk beside which there could be requests.
const MANY: u64 = 100;
/// GRO merges up to so many bytes (`GRO_LEGACY_MAX_SIZE`, include/linux/netdevice.h), if it is not told to merge more.
const MERGED_BYTES: u64 = 65536;

/// The counters as they were at the last sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrafficMeter {
    last: CounterSnapshot,
    /// The protocol counters at the last read; `None` if they cannot be read.
    protocols: Option<Protocols>,
    mtu: Bytes,
    /// The longest mean frame seen so far in each direction, from the MTU upwards: drivers differ in what
    /// they count.
    full_bytes: [f64; 2],
}

/// The traffic between two samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct MeterSample {
    pub(crate) observation: QueueObservation,
    pub(crate) elapsed: Nanos,
    pub(crate) dropped: u64,
}

impl TrafficMeter {
    pub(crate) fn new(first: CounterSnapshot, protocols: Option<Protocols>, mtu: Bytes) -> Self {
        Self { last: first, protocols, mtu, full_bytes: [mtu.get() as f64; 2] }
    }

    /// Another MTU has other full frames.
    pub(crate) fn set_mtu(&mut self, mtu: Bytes) {
        if mtu != self.mtu {
            *self = Self::new(self.last, self.protocols, mtu);
        }
    }

    /// Begins anew: what was before belongs to another delay.
    pub(crate) fn rebase(&mut self, now: CounterSnapshot, protocols: Option<Protocols>) {
        self.last = now;
        self.protocols = protocols.or(self.protocols);
    }

    /// Whether enough has come since the last sample that requests among it are to be told from the rest.
    pub(crate) fn is_worth_a_look(&self, now: &CounterSnapshot) -> bool {
        let packets = now.interface.rx_packets.saturating_sub(self.last.interface.rx_packets);
        packets >= MANY
    }

    /// The sample since the last one under `delay`; `None` if a counter went back, as it does when a driver is reset.
    pub(crate) fn take_sample(
        &mut self,
        now: CounterSnapshot,
        protocols: Option<Protocols>,
        delay: Nanos,
    ) -> Option<MeterSample> {
        let before = protocols.and_then(|now| self.protocols.replace(now));
        let last = std::mem::replace(&mut self.last, now);
        let elapsed = now.at.saturating_sub(last.at);
        let a = last.interface;
        let b = now.interface;
        let rx = saturating_counts(
            b.rx_packets.checked_sub(a.rx_packets)?,
            b.rx_bytes.checked_sub(a.rx_bytes)?,
        );
        let tx = saturating_counts(
            b.tx_packets.checked_sub(a.tx_packets)?,
            b.tx_bytes.checked_sub(a.tx_bytes)?,
        );
        // Polls are not counted for us without more privilege: at most one a packet, one a delay.
        let polls = elapsed.as_ns() / delay.as_ns().max(1_000);
        let interrupts = rx.packets.min(u32::try_from(polls).unwrap_or(u32::MAX));
        let rx_small = self.count_small_packets(0, rx);
        let tx_small = self.count_small_packets(1, tx);
        let answered =
            before.zip(protocols).and_then(|(before, now)| count_answered(before, now, rx));
        let observation = QueueObservation {
            now: now.at,
            rx,
            tx,
            rx_small: answered.map_or(rx_small, |answered| rx_small.min(answered)),
            are_requests: answered.is_some(),
            tx_small,
            interrupts,
            ..QueueObservation::default()
        };
        let dropped = b.rx_dropped.saturating_sub(a.rx_dropped);
        Some(MeterSample { observation, elapsed, dropped })
    }

    /// How many packets were small: those that full frames alone would not have needed for these bytes.
    /// None where frames are longer than the link's, because packets were merged before they were
    /// counted.
    fn count_small_packets(&mut self, way: usize, counts: TrafficCounts) -> u32 {
        let packets = f64::from(counts.packets);
        let bytes = f64::from(counts.bytes);
        let full = &mut self.full_bytes[way];
        let mean = bytes / packets.max(1.0);
        if mean > self.mtu.get() as f64 + AROUND_BYTES {
            return 0;
        }
        *full = full.max(mean);
        counts.packets.saturating_sub(saturating_count((bytes / *full).ceil()))
    }
}

/// How many packets the host's own sockets answered; `None` where most of what was received is not theirs: it is
/// forwarded, or belongs to another namespace. Segments that were merged count as one.
fn count_answered(before: Protocols, now: Protocols, rx: TrafficCounts) -> Option<u32> {
    let received = now.received.checked_sub(before.received)?;
    let answered = now.answered.checked_sub(before.answered)?;
    let at_most = received.saturating_mul(2 * MERGED_BYTES);
    (at_most >= u64::from(rx.bytes)).then(|| u32::try_from(answered).unwrap_or(u32::MAX))
}

/// A whole number that is not negative.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates here")]
fn saturating_count(number: f64) -> u32 {
    number as u32
}

fn saturating_counts(packets: u64, bytes: u64) -> TrafficCounts {
    let narrow = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    TrafficCounts { packets: narrow(packets), bytes: narrow(bytes) }
}

#[cfg(test)]
mod tests {
    use latput_trial::observation::InterfaceCounters;

    use super::*;

    #[test]
    fn samples_are_differences() {
        let mut meter = make_meter();
        let sample = meter.take_sample(make_snapshot(50, 500), None, Nanos::from_us(100)).unwrap();
        assert_eq!(sample.observation.rx, TrafficCounts { packets: 500, bytes: 50_000 });
        assert_eq!(sample.observation.interrupts, 500, "50 ms hold 500 delays of 100 us");
        let sample =
            meter.take_sample(make_snapshot(100, 100_500), None, Nanos::from_us(100)).unwrap();
        assert_eq!(sample.observation.interrupts, 500);
    }

    #[test]
    fn counters_that_start_again_are_no_sample() {
        let mut meter = TrafficMeter::new(make_snapshot(0, 1000), None, Bytes::new(1500));
        assert_eq!(meter.take_sample(make_snapshot(50, 10), None, Nanos::ZERO), None);
        assert!(meter.take_sample(make_snapshot(100, 20), None, Nanos::ZERO).is_some());
    }

    #[test]
    fn fast_link_does_not_overflow() {
        let mut meter = make_meter();
        let sample =
            meter.take_sample(make_snapshot(50, u64::MAX / 200), None, Nanos::ZERO).unwrap();
        assert_eq!(sample.observation.rx.bytes, u32::MAX);
    }

    #[test]
    fn small_packets_exceed_full_frames() {
        let mut meter = make_meter();
        let mut small =
            |packets, bytes| meter.count_small_packets(0, TrafficCounts { packets, bytes });
        assert_eq!(small(1000, 1000 * 66), 956);
        assert_eq!(small(1000, 1000 * 1500), 0);
        // This driver counts the Ethernet header.
        assert_eq!(small(1000, 1000 * 1514), 0);
        assert_eq!(small(1100, 1000 * 1514 + 100 * 66), 95);
        // Merged, and no traffic at all.
        assert_eq!(small(1000, 1000 * 9000), 0);
        assert_eq!(small(0, 0), 0);
        meter.set_mtu(Bytes::new(9000));
        assert_eq!(
            meter.count_small_packets(0, TrafficCounts { packets: 1000, bytes: 1000 * 9000 }),
            0
        );
        assert_eq!(
            meter.count_small_packets(1, TrafficCounts { packets: u32::MAX, bytes: 0 }),
            u32::MAX
        );
    }

    #[test]
    fn requests_are_answered_small_packets() {
        let protocols = |received, answered| Some(Protocols { received, answered });
        let mut meter = TrafficMeter::new(bulk_snapshot(0, 0, 0), None, Bytes::new(1500));
        let mut next = |at, packets, small, protocols| {
            let sample = meter
                .take_sample(bulk_snapshot(at, packets, small), protocols, Nanos::ZERO)
                .unwrap();
            (sample.observation.rx_small, sample.observation.are_requests)
        };
        assert_eq!(next(50, 1000, 40, protocols(7, 9)), (40, false), "the first reading");
        assert_eq!(next(100, 2000, 80, protocols(1000, 39)), (30, true));
        assert_eq!(next(150, 3000, 120, protocols(1020, 39)), (0, true), "ends of messages");
        assert_eq!(next(200, 4000, 160, protocols(3000, 900)), (40, true), "another interface's");
        assert_eq!(next(250, 5000, 200, protocols(3005, 930)), (40, false), "it is forwarded");
        assert_eq!(next(300, 6000, 240, None), (40, false));
        assert_eq!(next(350, 7000, 280, protocols(0, 0)), (40, false), "they began anew");
    }

    fn make_meter() -> TrafficMeter {
        TrafficMeter::new(make_snapshot(0, 0), None, Bytes::new(1500))
    }

    /// Full frames, and small ones beside them.
    fn bulk_snapshot(at_ms: u64, full: u64, small: u64) -> CounterSnapshot {
        received_snapshot(at_ms, full + small, full * 1500)
    }

    fn make_snapshot(at_ms: u64, packets: u64) -> CounterSnapshot {
        received_snapshot(at_ms, packets, packets * 100)
    }

    fn received_snapshot(at_ms: u64, rx_packets: u64, rx_bytes: u64) -> CounterSnapshot {
        let interface = InterfaceCounters { rx_packets, rx_bytes, ..InterfaceCounters::default() };
        CounterSnapshot { at: Nanos::from_ms(at_ms), interface }
    }
}
