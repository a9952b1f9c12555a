//! Packets and bytes of the interface over the window.

use crate::evidence::Evidence;

/// Mean bytes from which on most packets are full. Requests, answers and acknowledgements have less.
const BULK_BYTES: f64 = 900.0;
/// Fewer bits a second of full packets are large answers to requests.
const BULK_BITS_PER_S: f64 = 100e6;

/// Packets and bytes that the interface received and sent; absent where nobody counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct InterfaceTraffic {
    pub(crate) received: Option<u64>,
    pub(crate) sent: Option<u64>,
    received_bytes: Option<u64>,
    sent_bytes: Option<u64>,
    window_s: Option<f64>,
}

impl InterfaceTraffic {
    pub(crate) fn from_evidence(evidence: &Evidence<'_>) -> Self {
        Self {
            received: evidence.received_packets(),
            sent: evidence.sent_packets(),
            received_bytes: evidence.received_bytes(),
            sent_bytes: evidence.sent_bytes(),
            window_s: evidence.window_s(),
        }
    }

    /// Whether no packet came or went. Where nobody counts them there may be some.
    pub(crate) fn is_idle(&self) -> bool {
        self.received == Some(0) && self.sent.unwrap_or(0) == 0
    }

    /// Packets in both directions.
    pub(crate) fn packets(&self) -> Option<u64> {
        self.received.map(|received| received + self.sent.unwrap_or(0))
    }

    pub(crate) fn received_per_s(&self) -> Option<f64> {
        Some(self.received? as f64 / self.window_s?)
    }

    pub(crate) fn sent_per_s(&self) -> Option<f64> {
        Some(self.sent? as f64 / self.window_s?)
    }

    /// The larger of both directions.
    pub(crate) fn bits_per_s(&self) -> Option<f64> {
        let bytes = self.received_bytes.max(self.sent_bytes)?;
        Some(bytes as f64 * 8.0 / self.window_s?)
    }

    pub(crate) fn mean_received_bytes(&self) -> Option<f64> {
        Some(self.received_bytes? as f64 / self.received?.max(1) as f64)
    }

    /// Whether bytes are counted, so that bulk is told from requests.
    pub(crate) fn has_bytes(&self) -> bool {
        self.received_bytes.is_some() && self.received.is_some()
    }

    /// Whether most received packets are full ones.
    pub(crate) fn is_bulk_received(&self) -> bool {
        is_bulk(self.received_bytes, self.received, self.window_s)
    }

    /// Whether most sent packets are full ones.
    pub(crate) fn is_bulk_sent(&self) -> bool {
        is_bulk(self.sent_bytes, self.sent, self.window_s)
    }

    /// Whether one direction carries bulk; the other may carry its acknowledgements.
    pub(crate) fn is_bulk(&self) -> bool {
        self.is_bulk_received() || self.is_bulk_sent()
    }
}

fn is_bulk(bytes: Option<u64>, packets: Option<u64>, window_s: Option<f64>) -> bool {
    let (Some(bytes), Some(packets)) = (bytes, packets) else { return false };
    let rate = window_s.map(|window| bytes as f64 * 8.0 / window);
    bytes as f64 >= BULK_BYTES * packets.max(1) as f64
        && rate.is_none_or(|rate| rate >= BULK_BITS_PER_S)
}

/// The median round-trip time, in microseconds, of the TCP connections that received something.
pub(crate) fn median_round_trip_us(evidence: &Evidence<'_>) -> Option<f64> {
    let connections = evidence.lasting_connections()?;
    let alive = connections.iter().filter(|connection| connection.grown("segs_in") > 0.0);
    let mut times: Vec<f64> = alive.filter_map(|alive| alive.now.figure("rtt")).collect();
    times.sort_by(f64::total_cmp);
    let median = times.get(times.len() / 2)?;
    (*median > 0.0).then_some(median * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::fixture::Fixture;

    #[test]
    fn bulk_has_full_packets_and_many() {
        let judge = |received, sent| {
            let snapshot = Fixture::new().traffic(received, sent).into_snapshot();
            let traffic = InterfaceTraffic::from_evidence(&Evidence::from_snapshot(&snapshot));
            (traffic.is_bulk_received(), traffic.is_bulk_sent(), traffic.is_idle())
        };
        assert_eq!(judge([1_000_000, 1_500_000_000], [400_000, 26_400_000]), (true, false, false));
        assert_eq!(judge([1000, 1_500_000], [1000, 1_500_000]), (false, false, false));
        assert_eq!(judge([0, 0], [0, 0]), (false, false, true));
    }

    #[test]
    fn round_trip_is_of_live_connections() {
        let text = |segments: [u32; 2]| {
            let line = |port: u32, segments: u32, rtt: f64| {
                format!(
                    "ESTAB 0 0 10.0.0.1:{port} 10.0.0.2:5000\n\t rtt:{rtt}/0.1 segs_in:{segments}\n"
                )
            };
            format!(
                "State Recv-Q Send-Q Local Peer\n{}{}",
                line(1, segments[0], 0.25),
                line(2, segments[1], 40.0)
            )
        };
        let snapshot =
            Fixture::new().grown("ss_-tin", &text([5, 5]), &text([900, 5])).into_snapshot();
        let evidence = Evidence::from_snapshot(&snapshot);
        assert_eq!(median_round_trip_us(&evidence), Some(250.0));
    }
}
