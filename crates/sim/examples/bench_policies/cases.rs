//! The loads that policies are compared on.

use latput_policy::Policy;
use latput_sim::machine::{CpuCosts, Machine};
use latput_sim::scenario::{
    GapDistribution, Host, Load, Network, Scenario, TrafficKind, Transport,
};
use latput_sim::vector::{Coalescing, Throttle};
use latput_units::{BitsPerSecond, Bytes, Nanos};

/// One load, or several that take turns.
pub(crate) struct BenchmarkCase {
    pub(crate) name: String,
    pub(crate) gbps: u64,
    pub(crate) mtu: u64,
    pub(crate) queues: u32,
    /// The loads, each with its name; with a step they take turns, without they run together.
    pub(crate) parts: Vec<CasePart>,
    pub(crate) step: Option<Nanos>,
    /// Left out of the quick run.
    pub(crate) slow: bool,
}

#[derive(Clone)]
pub(crate) struct CasePart {
    pub(crate) name: String,
    pub(crate) loads: Vec<Load>,
}

impl BenchmarkCase {
    fn new(parts: Vec<CasePart>, gbps: u64) -> Self {
        let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        let name = names.join(" + ");
        Self { name, gbps, mtu: 1500, queues: 1, parts, step: None, slow: false }
    }

    pub(crate) fn label(&self) -> String {
        let mtu = if self.mtu == 1500 { String::new() } else { format!(" mtu {}", self.mtu) };
        let queues = if self.queues == 1 { String::new() } else { format!(" {}q", self.queues) };
        let step = self.step.map_or_else(String::new, |step| format!(" every {step}"));
        format!("{}{step} {}G{mtu}{queues}", self.name, self.gbps)
    }

    /// Key of its figures, unique among all cases. The whole and a part alone may share a name.
    pub(crate) fn cache_key(&self) -> String {
        let parts: Vec<&str> = self.parts.iter().map(|part| part.name.as_str()).collect();
        let Self { gbps, mtu, queues, step, .. } = self;
        format!("{} {gbps}G {mtu} {queues}q {step:?}", parts.join(" + "))
    }

    fn with_alternating_loads(a: CasePart, b: CasePart, ms: u64) -> Self {
        let mut case = Self::new(vec![a, b], 10);
        case.name = case.name.replace(" + ", " / ");
        case.step = Some(Nanos::from_ms(ms));
        case.slow = ms > 500;
        case
    }

    /// One part alone and all the time: what its oracle is searched with.
    pub(crate) fn isolate_part(&self, part: usize) -> Self {
        let parts = vec![self.parts[part].clone()];
        Self { parts, step: None, name: self.name.clone(), ..*self }
    }

    /// The scenario, and to which part each of its loads belongs.
    pub(crate) fn build_scenario(&self, policy: &Policy, seed: u64) -> (Scenario, Vec<usize>) {
        let warmup = Nanos::from_ms(100);
        let turns = self.parts.len() as u64;
        let duration = match self.step {
            None => Nanos::from_ms(500),
            Some(step) => {
                let round = step.as_ns() * turns;
                Nanos::from_ns(round * (600_000_000_u64.div_ceil(round)).max(2))
            }
        };
        let mut sut = build_host(self.queues);
        sut.nic.coalescing = Coalescing {
            throttle: Throttle::HoldOff { interval: Nanos::ZERO },
            ..Coalescing::default()
        };
        sut.adaptive.throttle = Some(policy.clone());
        // Ours decides for the interface, as its daemon does; the drivers' decide for each vector.
        sut.adaptive.shares_throttle = matches!(policy, Policy::Response(_));
        let (mut loads, mut part_of) = (Vec::new(), Vec::new());
        for (idx, part) in self.parts.iter().enumerate() {
            for load in &part.loads {
                let first = loads.len();
                let spans = self.step.map_or_else(Vec::new, |step| {
                    let turn = (warmup + duration).as_ns() / step.as_ns() + 1;
                    let mine = (0..turn).filter(|n| n % turns == idx as u64);
                    mine.map(|n| (step.saturating_mul(n), step.saturating_mul(n + 1))).collect()
                });
                if spans.is_empty() {
                    loads.push(load.clone());
                    part_of.push(idx);
                }
                for (start, stop) in spans {
                    let counted_with = (loads.len() > first).then_some(first);
                    loads.push(Load { counted_with, ..load.clone().with_time_span(start, stop) });
                    part_of.push(idx);
                }
            }
        }
        let network = Network {
            rate: BitsPerSecond::new(self.gbps * 1_000_000_000),
            latency: Nanos::from_us(8),
            mtu: Bytes::new(self.mtu),
            ..Network::default()
        };
        let hosts = vec![build_host(self.queues), sut];
        (Scenario { seed, warmup, duration, hosts, network, loads }, part_of)
    }
}

/// All of them.
pub(crate) fn list_cases() -> Vec<BenchmarkCase> {
    let mut cases = Vec::new();
    for gbps in [1, 10] {
        for (burst, connections) in [(0, 1), (4, 1), (16, 1), (64, 1), (128, 1), (0, 8), (16, 8)] {
            cases.push(BenchmarkCase::new(vec![build_rr_load(burst, connections)], gbps));
        }
        for connections in [1, 3, 10] {
            cases.push(BenchmarkCase::new(vec![build_bulk_load(connections)], gbps));
        }
        cases.push(BenchmarkCase::new(vec![build_udp_load(50_000.0)], gbps));
        cases.push(BenchmarkCase::new(vec![build_read_load()], gbps));
        cases.push(BenchmarkCase::new(vec![build_rr_load(0, 1), build_bulk_load(1)], gbps));
    }
    cases.push(BenchmarkCase { mtu: 9000, ..BenchmarkCase::new(vec![build_bulk_load(3)], 10) });
    cases.push(BenchmarkCase { mtu: 9000, ..BenchmarkCase::new(vec![build_rr_load(16, 1)], 10) });
    cases.push(BenchmarkCase { queues: 8, ..BenchmarkCase::new(vec![build_rr_load(4, 8)], 10) });
    cases.push(BenchmarkCase { queues: 8, ..BenchmarkCase::new(vec![build_bulk_load(10)], 10) });
    cases.push(BenchmarkCase {
        queues: 8,
        slow: true,
        ..BenchmarkCase::new(vec![build_bulk_load(10)], 100)
    });
    cases.push(BenchmarkCase {
        queues: 8,
        slow: true,
        ..BenchmarkCase::new(vec![build_rr_load(0, 1000)], 10)
    });
    cases
        .push(BenchmarkCase { slow: true, ..BenchmarkCase::new(vec![build_rr_load(0, 1000)], 10) });
    let kinds = [
        build_rr_load(0, 1),
        build_bulk_load(3),
        build_udp_load(50_000.0),
        build_rr_load(64, 1),
        build_read_load(),
    ];
    let with_later = |(idx, a)| kinds.iter().skip(idx + 1).map(move |b: &CasePart| (a, b));
    let pairs: Vec<(&CasePart, &CasePart)> =
        kinds.iter().enumerate().flat_map(with_later).collect();
    for (a, b) in &pairs {
        cases.push(BenchmarkCase::with_alternating_loads((*a).clone(), (*b).clone(), 300));
    }
    for ms in [50, 100, 1000, 2000, 10_000] {
        cases.push(BenchmarkCase::with_alternating_loads(
            build_rr_load(0, 1),
            build_bulk_load(3),
            ms,
        ));
    }
    // The others at the shortest step: requests and bulk, the first pair, are above.
    for (a, b) in &pairs[1..] {
        cases.push(BenchmarkCase {
            slow: true,
            ..BenchmarkCase::with_alternating_loads((*a).clone(), (*b).clone(), 50)
        });
    }
    cases.push(BenchmarkCase::with_alternating_loads(
        build_rr_load(0, 1),
        build_udp_load(50_000.0),
        10_000,
    ));
    for ms in [10, 100] {
        let nothing = CasePart { name: "nothing".to_owned(), loads: Vec::new() };
        cases.push(BenchmarkCase::with_alternating_loads(build_udp_load(100_000.0), nothing, ms));
    }
    cases
}

fn build_rr_load(burst: u32, connections: u32) -> CasePart {
    // Few connections are processes of their own; a thousand are not.
    let processes = if connections > 16 { 4 } else { connections };
    let traffic = TrafficKind::RequestResponse {
        transport: Transport::Tcp { nodelay: true },
        request: Bytes::new(1),
        response: Bytes::new(1),
        burst,
        connections: connections / processes,
        think: Nanos::ZERO,
    };
    let load = Load::new(0, 1, traffic);
    let name = match connections {
        1 => format!("rr b{burst}"),
        _ => format!("rr b{burst} x{connections}"),
    };
    CasePart { name, loads: vec![load; processes as usize] }
}

fn build_bulk_load(connections: u32) -> CasePart {
    let traffic = TrafficKind::Stream { message: Bytes::new(32_768), connections };
    CasePart { name: format!("bulk {connections}"), loads: vec![Load::new(0, 1, traffic)] }
}

/// Ten senders, together a Poisson stream.
fn build_udp_load(rate_pps: f64) -> CasePart {
    let traffic = TrafficKind::Datagrams {
        size: Bytes::new(1470),
        rate_pps: rate_pps / 10.0,
        spacing: GapDistribution::Poisson,
        group: 1,
        receive_batch: 32,
    };
    let name = format!("udp {:.0}k", rate_pps / 1e3);
    CasePart { name, loads: vec![Load::new(0, 1, traffic); 10] }
}

/// NFS-like: eight clients, a small request each, 32 KiB back, four in flight.
fn build_read_load() -> CasePart {
    let traffic = TrafficKind::RequestResponse {
        transport: Transport::Tcp { nodelay: true },
        request: Bytes::new(128),
        response: Bytes::new(32_768),
        burst: 3,
        connections: 8,
        think: Nanos::from_us(100),
    };
    CasePart { name: "reads".to_owned(), loads: vec![Load::new(0, 1, traffic)] }
}

fn build_host(queues: u32) -> Host {
    let mut host = Host {
        machine: Machine {
            cores: if queues > 1 { queues } else { 2 },
            costs: CpuCosts {
                interrupt: Nanos::from_ns(1500),
                poll: Nanos::from_ns(300),
                rx_packet: Nanos::from_ns(450),
                tx_completion: Nanos::from_ns(80),
                tx_packet: Nanos::from_ns(500),
                ack: Nanos::from_ns(300),
                syscall: Nanos::from_ns(400),
                user: Nanos::from_ns(200),
                copy_per_kib: Nanos::from_ns(60),
                wake: Nanos::from_ns(1000),
                jitter_ratio: 0.2,
                ..CpuCosts::default()
            },
            ..Machine::default()
        },
        ..Host::default()
    };
    host.nic.queues = queues;
    host
}
