//! Divides a workload among generators.
//!
//! Connections, clients, offered rates, threads and the count that ends the window are divided
//! evenly; the first generators get the remainder. The parts add up to the whole, so that a plan
//! means the same load with any number of generators. (Threads are an exception: a generator has at
//! least one.) The row of each field says how it is divided.

use crate::workload::{Division, Field, Workload};

/// The part of each of `generators`, largest first. There are fewer parts than generators if there
/// is too little to divide; the other generators make no traffic. No part has the probe: the caller
/// decides who sends it.
pub fn parts(workload: &Workload, generators: usize) -> Vec<Workload> {
    let of = most_parts(workload).clamp(1, generators.max(1) as u64);
    (0..of).map(|idx| part(workload, Share { idx, of })).collect()
}

/// One of several equal parts.
#[derive(Clone, Copy)]
struct Share {
    idx: u64,
    of: u64,
}

impl Share {
    fn of_value(self, whole: u64) -> u64 {
        whole / self.of + u64::from(self.idx < whole % self.of)
    }

    fn of_field(self, field: &Field, whole: u64) -> u64 {
        match field.division {
            Division::Whole => whole,
            Division::Parts => self.of_value(whole),
            Division::AtLeastOne => self.of_value(whole).max(1),
        }
    }
}

/// The most parts of which none is empty. A kind without divided fields (`ping`) has one part.
fn most_parts(workload: &Workload) -> u64 {
    let values = workload.traffic.values().into_iter();
    let divided = values.filter(|(field, _)| field.division == Division::Parts);
    let most = divided.filter_map(|(_, value)| value).min().unwrap_or(1);
    workload.count.map_or(most, |count| count.min(most))
}

fn part(workload: &Workload, share: Share) -> Workload {
    let traffic = workload.traffic.with_values(|field, whole| share.of_field(field, whole));
    let count = workload.count.map(|count| share.of_value(count));
    Workload { traffic, count, probe: None, ..workload.clone() }
}

#[cfg(test)]
mod tests {
    use latput_units::{BitsPerSecond, Bytes, Nanos};

    use super::*;
    use crate::workload::{Arrivals, Distribution, Probe, Think, Traffic};

    #[test]
    fn connections_are_divided_with_remainder_first() {
        let stream = |connections, rate| Traffic::UdpStream {
            datagram_bytes: Bytes::new(1470),
            rate: Some(BitsPerSecond::new(rate)),
            connections,
            threads: 4,
            segmentation: true,
        };
        check(&stream(5, 1001), 2, &["3 connections, 501 bps", "2 connections, 500 bps"]);
        check(&stream(2, 7), 3, &["1 connections, 4 bps", "1 connections, 3 bps"]);
        check(&stream(9, 1), 2, &["9 connections, 1 bps"]);
    }

    #[test]
    fn division_adds_up_without_empty_parts() {
        let fetch =
            |connections| Traffic::Fetch { object_bytes: Bytes::new(1), connections, threads: 2 };
        for (connections, generators) in [(1, 1), (1, 4), (4, 4), (1000, 3), (10_000, 7)] {
            let whole = Workload { count: Some(50), ..Workload::plain("w", fetch(connections)) };
            let parts = parts(&whole, generators);
            let of = |part: &Workload| match part.traffic {
                Traffic::Fetch { connections, threads, .. } => (connections, threads),
                other => panic!("{other:?}"),
            };
            assert_eq!(parts.iter().map(|part| of(part).0).sum::<u32>(), connections);
            assert_eq!(parts.iter().filter_map(|part| part.count).sum::<u64>(), 50);
            assert!(parts.iter().all(|part| of(part).0 > 0 && of(part).1 > 0));
            assert!(parts.windows(2).all(|pair| of(&pair[0]).0 >= of(&pair[1]).0));
        }
    }

    #[test]
    fn one_generator_makes_the_whole() {
        let arrivals = Some(Arrivals { rate_per_s: 1000, gaps: Distribution::Fixed });
        for traffic in [
            Traffic::tcp_rr(16),
            Traffic::tcp_stream(Bytes::new(32768), 10),
            Traffic::Ping { rate_hz: 1000, payload_bytes: Bytes::new(56) },
            Traffic::RpcRead {
                clients: 3,
                outstanding: 8,
                read_bytes: Bytes::new(32768),
                think: Think { mean: Nanos::from_us(50), distribution: Distribution::Exponential },
            },
            Traffic::UdpRr {
                request_bytes: Bytes::new(1),
                response_bytes: Bytes::new(1),
                burst: 0,
                connections: 3,
                threads: 2,
                timeout: Nanos::from_ms(200),
                arrivals,
            },
        ] {
            let whole = Workload::plain("w", traffic);
            assert_eq!(parts(&whole, 1), std::slice::from_ref(&whole));
        }
    }

    #[test]
    fn probe_is_in_no_part() {
        let probe = Some(Probe { rate_hz: 1000 });
        let whole =
            Workload { probe, ..Workload::plain("w", Traffic::tcp_stream(Bytes::new(1), 4)) };
        assert!(parts(&whole, 2).iter().all(|part| part.probe.is_none()));
    }

    #[track_caller]
    fn check(traffic: &Traffic, generators: usize, expected: &[&str]) {
        let found: Vec<String> = parts(&Workload::plain("w", *traffic), generators)
            .iter()
            .map(|part| match part.traffic {
                Traffic::UdpStream { connections, rate: Some(rate), .. } => {
                    format!("{connections} connections, {} bps", rate.get())
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(found, expected);
    }
}
