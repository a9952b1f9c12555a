//! Converts a plan's workload to loads: one for each thread or flow, counted together.

#![warn(clippy::wildcard_enum_match_arm)]

use latput_trial::share;
use latput_trial::workload::{
    Arrivals as WantedArrivals, Direction, Distribution, SocketOptions, Think, Traffic as Wanted,
    TrafficProtocol, Workload,
};
use latput_units::{BitsPerSecond, Bytes, CpuSet, Nanos};

use crate::machine::{CongestionControl, NetworkStack};
use crate::scenario::{
    ArrivalProcess, GapDistribution, Load, TrafficKind, TrafficOptions, Transport,
};
use crate::validate::InvalidValue;

/// Host indices in a scenario of a profile.
pub(crate) const GENERATOR: usize = 0;
pub(crate) const SUT: usize = 1;

/// Datagrams that latput's receiver takes per call.
const RECEIVE_BATCH: u32 = 32;
/// Datagrams that latput's sender sends per call without a rate.
const LARGEST_GROUP: u32 = 64;
/// Size of a request for an object or a read: about an HTTP or `NFSv3` request with its headers.
const REQUEST: Bytes = Bytes::new(128);

/// The loads of a workload, divided among the generators, and its probe, which the observer sends
/// if there is one.
pub(crate) fn build_loads(
    workload: &Workload,
    generators: &[usize],
    observer: Option<usize>,
) -> Result<Vec<Load>, InvalidValue> {
    if workload.count == Some(0) {
        return Err(invalid_option("count", "0", "at least 1"));
    }
    if !workload.traffic.is_of_latput() {
        let wanted = "traffic of latput's own, since a simulated host runs no programs and has no live traffic: use hosts";
        return Err(invalid_option("workload", &workload.name, wanted));
    }
    let prober = observer.unwrap_or(GENERATOR);
    let mut loads = Vec::new();
    for (part, &generator) in share::parts(workload, generators.len()).iter().zip(generators) {
        let mut own = convert_traffic(&part.traffic);
        bind_threads(&mut own, workload);
        let is_echo = part.traffic.is_echo();
        let place = |host| match host {
            GENERATOR if is_echo => prober,
            GENERATOR => generator,
            other => other,
        };
        for load in &mut own {
            (load.from, load.to) = (place(load.from), place(load.to));
        }
        loads.append(&mut own);
    }
    for load in &mut loads[1..] {
        load.counted_with = Some(0);
    }
    loads[0].form.count = workload.count;
    if let Some(probe) = workload.probe {
        let traffic = TrafficKind::Probe { rate_hz: f64::from(probe.rate_hz) };
        loads.push(Load::new(prober, SUT, traffic));
    }
    Ok(loads)
}

/// Sets a host's stack to the workload's socket options.
pub(crate) fn set_options(
    stack: &mut NetworkStack,
    options: &SocketOptions,
    traffic: &Wanted,
) -> Result<(), InvalidValue> {
    // The kernel doubles a requested size. TCP uses half for overhead (`tcp_adv_win_scale` 1);
    // datagrams are counted with their overhead.
    let is_udp = traffic.facts().protocol == Some(TrafficProtocol::Udp);
    let given = |asked: Bytes| if is_udp { Bytes::new(2 * asked.get()) } else { asked };
    if let Some(asked) = options.send_buffer {
        stack.send_buffer = given(asked);
    }
    if let Some(asked) = options.receive_buffer {
        stack.receive_buffer = given(asked);
    }
    match options.congestion.as_deref() {
        None => {}
        Some("reno") => stack.congestion = CongestionControl::Reno,
        Some("cubic") => stack.congestion = CongestionControl::Cubic,
        Some(other) => return Err(invalid_option("congestion", other, "`reno` or `cubic`")),
    }
    if let Some(busy_poll) = options.busy_poll {
        stack.busy_poll = busy_poll;
    }
    stack.prefer_busy_poll |= options.prefer_busy_poll;
    if let Some(polling) = options.epoll_busy_poll {
        let found = polling.time.to_string();
        return Err(invalid_option(
            "epoll_busy_poll",
            &found,
            "left out: the simulator has `busy_poll`",
        ));
    }
    Ok(())
}

fn invalid_option(key: &str, found: &str, wanted: &str) -> InvalidValue {
    InvalidValue { key: key.to_owned(), found: found.to_owned(), wanted: wanted.to_owned() }
}

/// Binds thread n of each end to the n-th CPU of its set, in turn.
fn bind_threads(loads: &mut [Load], workload: &Workload) {
    let nth = |cpus: &Option<CpuSet>, idx: usize| {
        let cpus: Vec<u32> = cpus.iter().flat_map(CpuSet::iter).map(|cpu| cpu.0).collect();
        (!cpus.is_empty()).then(|| cpus[idx % cpus.len()])
    };
    let binding = &workload.binding;
    for (idx, load) in loads.iter_mut().enumerate() {
        let (sut, generator) = (nth(&binding.sut, idx), nth(&binding.generator, idx));
        let is_from_sut = load.from == SUT;
        (load.from_core, load.to_core) =
            if is_from_sut { (sut, generator) } else { (generator, sut) };
    }
}

#[expect(clippy::too_many_lines, reason = "one arm for each kind")]
fn convert_traffic(wanted: &Wanted) -> Vec<Load> {
    let requests = |transport, request, response, burst, think, form: TrafficOptions| {
        move |connections: u32| {
            let traffic = TrafficKind::RequestResponse {
                transport,
                request,
                response,
                burst,
                connections,
                think,
            };
            Load { form, ..Load::new(GENERATOR, SUT, traffic) }
        }
    };
    let (now, plain) = (Nanos::ZERO, TrafficOptions::default());
    match *wanted {
        Wanted::TcpRr {
            request_bytes,
            response_bytes,
            burst,
            connections,
            threads,
            nodelay,
            arrivals,
        } => {
            let tcp = Transport::Tcp { nodelay };
            spread_over_threads(connections, threads, |some| {
                let form = TrafficOptions {
                    arrivals: share_arrivals(arrivals, some, connections),
                    ..plain
                };
                requests(tcp, request_bytes, response_bytes, burst, now, form)(some)
            })
        }
        Wanted::TcpCrr { request_bytes, response_bytes, connections, threads, nodelay } => {
            let form = TrafficOptions { connects: true, ..plain };
            let tcp = Transport::Tcp { nodelay };
            let load = requests(tcp, request_bytes, response_bytes, 0, now, form);
            spread_over_threads(connections, threads, load)
        }
        Wanted::UdpRr {
            request_bytes,
            response_bytes,
            burst,
            connections,
            threads,
            timeout,
            arrivals,
        } => spread_over_threads(connections, threads, |some| {
            let form = TrafficOptions {
                arrivals: share_arrivals(arrivals, some, connections),
                timeout,
                ..plain
            };
            requests(Transport::Udp, request_bytes, response_bytes, burst, now, form)(some)
        }),
        Wanted::Fetch { object_bytes, connections, threads } => {
            let tcp = Transport::Tcp { nodelay: true };
            spread_over_threads(
                connections,
                threads,
                requests(tcp, REQUEST, object_bytes, 0, now, plain),
            )
        }
        Wanted::RpcRead {
            clients,
            outstanding,
            read_bytes,
            think: Think { mean, distribution },
        } => {
            let form =
                TrafficOptions { think_varies: distribution == Distribution::Exponential, ..plain };
            let tcp = Transport::Tcp { nodelay: true };
            spread_over_threads(
                clients,
                clients,
                requests(tcp, REQUEST, read_bytes, outstanding - 1, mean, form),
            )
        }
        Wanted::TcpBulk { direction, message_bytes, connections, threads, rate, .. } => {
            build_bulk_loads(direction, message_bytes, connections, threads, rate)
        }
        Wanted::UdpStream { datagram_bytes, rate, connections, .. } => {
            let load = |_| build_datagram_load(datagram_bytes, rate, connections);
            spread_over_threads(connections, connections, load)
        }
        Wanted::Ping { rate_hz, payload_bytes } => {
            let form = TrafficOptions { payload: Some(payload_bytes), ..plain };
            let traffic = TrafficKind::Probe { rate_hz: f64::from(rate_hz) };
            vec![Load { form, ..Load::new(GENERATOR, SUT, traffic) }]
        }
        Wanted::Command | Wanted::Live => Vec::new(), // refused by `loads`
    }
}

/// One load for each thread that has a connection. The first threads have one more if the division
/// leaves a rest.
fn spread_over_threads(connections: u32, threads: u32, load: impl Fn(u32) -> Load) -> Vec<Load> {
    let threads = threads.min(connections).max(1);
    (0..threads)
        .map(|thread| connections / threads + u32::from(thread < connections % threads))
        .map(load)
        .collect()
}

/// The part of the arrivals for a thread with `some` of `all` connections.
fn share_arrivals(arrivals: Option<WantedArrivals>, some: u32, all: u32) -> Option<ArrivalProcess> {
    arrivals.map(|arrivals| ArrivalProcess {
        rate_hz: f64::from(arrivals.rate_per_s) * f64::from(some) / f64::from(all),
        spacing: match arrivals.gaps {
            Distribution::Fixed => GapDistribution::Even,
            Distribution::Exponential => GapDistribution::Poisson,
        },
    })
}

fn build_bulk_loads(
    direction: Direction,
    message: Bytes,
    connections: u32,
    threads: u32,
    rate: Option<BitsPerSecond>,
) -> Vec<Load> {
    let ways: &[(usize, usize)] = match direction {
        Direction::ToSut => &[(GENERATOR, SUT)],
        Direction::FromSut => &[(SUT, GENERATOR)],
        Direction::Both => &[(GENERATOR, SUT), (SUT, GENERATOR)],
    };
    let load = |some: u32, (from, to): (usize, usize)| {
        let arrivals = rate.map(|rate| {
            let messages = rate.get() as f64 / 8.0 / message.get() as f64;
            let rate_hz = messages * f64::from(some) / f64::from(connections);
            ArrivalProcess { rate_hz, spacing: GapDistribution::Even }
        });
        let traffic = TrafficKind::Stream { message, connections: some };
        Load {
            form: TrafficOptions { arrivals, ..TrafficOptions::default() },
            ..Load::new(from, to, traffic)
        }
    };
    ways.iter()
        .flat_map(|way| spread_over_threads(connections, threads, |some| load(some, *way)))
        .collect()
}

/// The load of one of `senders`.
fn build_datagram_load(size: Bytes, rate: Option<BitsPerSecond>, senders: u32) -> Load {
    let rate_pps =
        rate.map_or(1.0, |rate| rate.get() as f64 / 8.0 / size.get() as f64 / f64::from(senders));
    let traffic = TrafficKind::Datagrams {
        size,
        rate_pps,
        spacing: GapDistribution::Even,
        group: if rate.is_some() { send_group_size(rate_pps) } else { LARGEST_GROUP },
        receive_batch: RECEIVE_BATCH,
    };
    let form = TrafficOptions { floods: rate.is_none(), ..TrafficOptions::default() };
    Load { form, ..Load::new(GENERATOR, SUT, traffic) }
}

/// Datagrams that latput's sender sends together: those due in 50 us, at most 64.
#[expect(clippy::cast_possible_truncation, reason = "clamped")]
fn send_group_size(rate_pps: f64) -> u32 {
    (rate_pps * 50e-6).clamp(1.0, f64::from(LARGEST_GROUP)) as u32
}
