//! Which part of a workload each generator makes.
//!
//! What can be divided - connections, clients, offered rates, threads, the count that ends the window -
//! is divided evenly, and what is left over goes to the first ones. The parts add up to the whole, so
//! that a plan means the same load however many generators a testbed has. (Threads are the exception: a
//! generator has at least one.)

use latput_units::BitsPerSecond;

use crate::workload::{Arrivals, Traffic, Workload};

/// The part of each of `generators`, the first with the most. There are fewer parts than generators
/// where there is too little to divide: the others make no traffic. The probe stays with no part: who
/// sends it is not decided here.
pub fn parts(workload: &Workload, generators: usize) -> Vec<Workload> {
    let most = most_parts(workload).max(1);
    let of = u32::try_from(generators.max(1)).map_or(most, |generators| most.min(generators));
    (0..of).map(|idx| part(workload, Share { idx, of })).collect()
}

/// One of several equal parts.
#[derive(Clone, Copy)]
struct Share {
    idx: u32,
    of: u32,
}

impl Share {
    fn of_u32(self, whole: u32) -> u32 {
        whole / self.of + u32::from(self.idx < whole % self.of)
    }

    fn of_u64(self, whole: u64) -> u64 {
        let (of, idx) = (u64::from(self.of), u64::from(self.idx));
        whole / of + u64::from(idx < whole % of)
    }

    fn of_threads(self, whole: u32) -> u32 {
        self.of_u32(whole).max(1)
    }

    fn of_rate(self, rate: Option<BitsPerSecond>) -> Option<BitsPerSecond> {
        rate.map(|rate| BitsPerSecond::new(self.of_u64(rate.get())))
    }

    fn of_arrivals(self, arrivals: Option<Arrivals>) -> Option<Arrivals> {
        arrivals
            .map(|arrivals| Arrivals { rate_per_s: self.of_u32(arrivals.rate_per_s), ..arrivals })
    }
}

/// How many parts there can be of which none is empty.
fn most_parts(workload: &Workload) -> u32 {
    let rate = |rate: Option<BitsPerSecond>| {
        rate.map_or(u32::MAX, |rate| u32::try_from(rate.get()).unwrap_or(u32::MAX))
    };
    let per_s = |arrivals: Option<Arrivals>| arrivals.map_or(u32::MAX, |open| open.rate_per_s);
    let of_traffic = match workload.traffic {
        Traffic::TcpRr { connections, arrivals, .. }
        | Traffic::UdpRr { connections, arrivals, .. } => connections.min(per_s(arrivals)),
        Traffic::TcpCrr { connections, .. } | Traffic::Fetch { connections, .. } => connections,
        Traffic::TcpBulk { connections, rate: offered, .. }
        | Traffic::UdpStream { connections, rate: offered, .. } => connections.min(rate(offered)),
        Traffic::RpcRead { clients, .. } => clients,
        Traffic::Ping { .. } => 1, // one echo stream at a fixed rate is what `ping` means
    };
    let count = workload.count.map_or(u32::MAX, |count| u32::try_from(count).unwrap_or(u32::MAX));
    of_traffic.min(count)
}

fn part(workload: &Workload, share: Share) -> Workload {
    let mut traffic = workload.traffic;
    match &mut traffic {
        Traffic::TcpRr { connections, threads, arrivals, .. }
        | Traffic::UdpRr { connections, threads, arrivals, .. } => {
            *connections = share.of_u32(*connections);
            *threads = share.of_threads(*threads);
            *arrivals = share.of_arrivals(*arrivals);
        }
        Traffic::TcpCrr { connections, threads, .. }
        | Traffic::Fetch { connections, threads, .. } => {
            *connections = share.of_u32(*connections);
            *threads = share.of_threads(*threads);
        }
        Traffic::TcpBulk { connections, threads, rate, .. }
        | Traffic::UdpStream { connections, threads, rate, .. } => {
            *connections = share.of_u32(*connections);
            *threads = share.of_threads(*threads);
            *rate = share.of_rate(*rate);
        }
        Traffic::RpcRead { clients, .. } => *clients = share.of_u32(*clients),
        Traffic::Ping { .. } => {}
    }
    let count = workload.count.map(|count| share.of_u64(count));
    Workload { traffic, count, probe: None, ..workload.clone() }
}

#[cfg(test)]
mod tests {
    use latput_units::{Bytes, Nanos};

    use super::*;
    use crate::workload::{Distribution, Probe, Think};

    #[test]
    fn connections_and_rates_are_divided_evenly_and_the_first_gets_the_rest() {
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
    fn what_is_divided_adds_up_and_every_part_has_some() {
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
    fn the_probe_is_in_no_part() {
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
