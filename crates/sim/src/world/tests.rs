//! Invariants of every run: conservation, reproducibility, independence of other hosts' order.

#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "small draws")]

use latput_units::{BitsPerSecond, Bytes, Nanos, SeededRng};

use crate::Scenario;
use crate::bus::Bus;
use crate::machine::{BqlLimits, CongestionControl, CpuCosts, DriverMode, Qdisc, WakePlacement};
use crate::outcome::LoadOutcome;
use crate::scenario::{
    ArrivalProcess, GapDistribution, Host, Load, Network, TrafficKind, Transport,
};
use crate::vector::{Coalescing, InterruptDelay, Throttle};

#[test]
fn random_scenarios_lose_no_packet() {
    // `World::run_until` checks conservation as it goes; here at the end too.
    for seed in 0..300 {
        let scenario = random_scenario(seed);
        assert_eq!(scenario.check(), Ok(()), "seed {seed}");
        let mut world = super::build(&scenario);
        world.run_until(20_000_000);
        world.check_conservation();
        assert!(world.events > 0, "seed {seed}");
    }
}

#[test]
fn bus_loses_nothing_hosts_may_lag() {
    for seed in 0..300 {
        let mut scenario = random_scenario(seed);
        scenario.network.latency_jitter_ratio = 0.0;
        for (idx, host) in scenario.hosts.iter_mut().enumerate() {
            (host.nic.queues, host.nic.fifo) = (1, Bytes::new(0));
            if idx as u64 % 2 == seed % 2 {
                // Slow enough to fill the buffer, fast enough never to.
                let clock = Nanos::from_ns([1, 30, 200][(seed % 3) as usize]);
                host.nic.bus = Some(Bus { clock, ..Bus::default() });
                host.nic.fifo = Bytes::new(20_000);
            }
        }
        assert_eq!(scenario.check(), Ok(()), "seed {seed}");
        check_lazy(&scenario);
    }
}

#[test]
fn equal_seed_gives_equal_outcome() {
    for seed in [3, 4, 5] {
        let scenario = random_scenario(seed);
        let first = crate::run(&scenario).unwrap();
        assert_eq!(first, crate::run(&scenario).unwrap(), "seed {seed}");
        let other = Scenario { seed: seed + 1_000, ..scenario };
        assert_ne!(first, crate::run(&other).unwrap(), "seed {seed}");
    }
}

#[test]
fn what_waits_to_be_seen_changes_nothing() {
    for seed in 0..300 {
        let mut scenario = random_scenario(seed);
        for host in &mut scenario.hosts {
            if seed % 4 > 0 {
                host.nic.queues = 1;
            }
            host.nic.fifo = Bytes::new(0);
        }
        scenario.network.latency_jitter_ratio = 0.0;
        check_lazy(&scenario);
    }
}

#[test]
fn process_that_goes_ahead_changes_nothing() {
    let mut saved = 0;
    for seed in 0..300 {
        let mut scenario = random_scenario(seed);
        for host in &mut scenario.hosts {
            host.machine.costs.jitter_ratio = 0.0;
            host.nic.queues = 1;
            host.nic.fifo = Bytes::new(0);
        }
        scenario.network.latency_jitter_ratio = 0.0;
        for load in &mut scenario.loads {
            if let TrafficKind::Datagrams { size, rate_pps, spacing, group, receive_batch } =
                &mut load.traffic
            {
                (*spacing, *group) = (GapDistribution::Even, 1);
                // Some leave at whole nanoseconds, some fill the line, some receivers fall behind.
                *rate_pps = [2e5, 5e5, 1e6, *rate_pps][(seed % 4) as usize];
                *receive_batch = [1, 1, 3][(seed % 3) as usize];
                *size = Bytes::new(size.get() % 200 + 1);
            }
        }
        saved += check_lazy(&scenario);
    }
    assert!(saved > 300_000, "only {saved} events were saved");
}

#[test]
fn serial_requests_on_held_cores_change_nothing() {
    let mut saved = 0;
    for seed in 0..300 {
        let mut scenario = random_scenario(seed);
        let mut rng = SeededRng::from_seed_and_index(0x77, seed);
        for host in &mut scenario.hosts {
            let costs = &mut host.machine.costs;
            (costs.jitter_ratio, costs.sleep) =
                (0.0, Nanos::from_ns(rng.next_below(2) as u64 * 500));
            costs.tx_remote = Nanos::ZERO;
            (host.nic.queues, host.nic.fifo) = (1, Bytes::new(0));
            if seed % 3 > 0 {
                (host.nic.driver, host.stack.busy_poll) = (DriverMode::Napi, Nanos::ZERO);
            }
        }
        scenario.network.latency_jitter_ratio = 0.0;
        for load in &mut scenario.loads {
            if let TrafficKind::RequestResponse { transport, think, .. } = &mut load.traffic {
                (*transport, *think) = (Transport::Udp, Nanos::ZERO);
                let rate_hz = [1e4, 1e5, 2e5, 1e6][rng.next_below(4)];
                load.form.connects = false;
                load.form.arrivals =
                    Some(ArrivalProcess { rate_hz, spacing: GapDistribution::Even });
            }
        }
        saved += check_lazy(&scenario);
    }
    assert!(saved > 100_000, "only {saved} events were saved");
}

#[test]
fn round_robin_reader_changes_nothing() {
    let mut saved = 0;
    for seed in 0..60 {
        let mut scenario = random_scenario(seed);
        let mut rng = SeededRng::from_seed_and_index(0x78, seed);
        for host in &mut scenario.hosts {
            let mut cost = |most: usize| Nanos::from_ns(rng.next_below(most) as u64);
            host.machine.costs = CpuCosts {
                interrupt: cost(1_000),
                rx_packet: cost(300),
                tx_packet: cost(300),
                ack: cost(300),
                syscall: cost(300),
                user: cost(100),
                wake: cost(500),
                cross_core: cost(100),
                ..CpuCosts::default()
            };
            (host.nic.queues, host.nic.fifo) = (1, Bytes::new(0));
            host.stack.acks_when_read = rng.next_below(2) == 0;
            host.stack.receive_buffer = Bytes::new([4_000, 20_000, 212_992][rng.next_below(3)]);
        }
        scenario.network.latency_jitter_ratio = 0.0;
        let message = Bytes::new(1_000 + rng.next_below(60_000) as u64);
        let connections = 2 + rng.next_below(100) as u32;
        let stream = TrafficKind::Stream { message, connections };
        scenario.loads = vec![Load::new(0, 1, stream), Load::new(1, 0, stream)];
        saved += check_against(&scenario, |world| world.is_eager = true);
        check_lazy(&scenario);
    }
    assert!(saved > 1_000, "only {saved} events were saved");
}

/// The same outcome with every packet and item handled by itself; gives how many events that costs.
#[track_caller]
fn check_lazy(scenario: &Scenario) -> u64 {
    check_against(scenario, super::World::handle_each_by_itself)
}

/// The same outcome in a world that was changed before the start; gives how many events that costs.
#[track_caller]
fn check_against(scenario: &Scenario, change: fn(&mut super::World)) -> u64 {
    let lazy = crate::run(scenario).unwrap();
    let mut simulation = crate::Simulation::new(scenario).unwrap();
    change(&mut simulation.world);
    simulation.advance(scenario.warmup);
    let mut eager = simulation.advance(scenario.duration);
    simulation.drain_in_flight(&mut eager);
    assert!(lazy.events <= eager.events);
    let saved = eager.events - lazy.events;
    assert_eq!(
        crate::SimulationOutcome { events: 0, ..lazy },
        crate::SimulationOutcome { events: 0, ..eager },
        "seed {}",
        scenario.seed
    );
    saved
}

#[test]
fn order_of_hosts_and_loads_changes_nothing() {
    for seed in 0..100 {
        let scenario = random_scenario(seed);
        let mut rng = SeededRng::from_seed_and_index(0x0d, seed);
        let hosts = shuffle_indices(scenario.hosts.len(), &mut rng);
        let mut loads = shuffle_indices(scenario.loads.len(), &mut rng);
        // A load that is counted with another one comes after it.
        loads.sort_by_key(|idx| scenario.loads[*idx].counted_with.is_some());
        let place = |order: &[usize], idx: usize| order.iter().position(|it| *it == idx).unwrap();
        let other = Scenario {
            hosts: hosts.iter().map(|idx| scenario.hosts[*idx].clone()).collect(),
            loads: loads
                .iter()
                .map(|idx| &scenario.loads[*idx])
                .map(|load| Load {
                    from: place(&hosts, load.from),
                    to: place(&hosts, load.to),
                    counted_with: load.counted_with.map(|head| place(&loads, head)),
                    ..*load
                })
                .collect(),
            ..scenario.clone()
        };
        let outcome = crate::run(&scenario).unwrap();
        let swapped = crate::run(&other).unwrap();
        for (at, idx) in hosts.iter().enumerate() {
            assert_eq!(outcome.hosts[*idx], swapped.hosts[at], "seed {seed}, host {idx}");
        }
        // Loads that are alike are interchangeable.
        let of_load = |idx: usize, outcome: &LoadOutcome| {
            let load = Load { counted_with: None, ..scenario.loads[idx] };
            format!("{load:?} {outcome:?}")
        };
        let mut first: Vec<_> =
            (0..loads.len()).map(|idx| of_load(idx, &outcome.loads[idx])).collect();
        let mut second: Vec<_> =
            loads.iter().zip(&swapped.loads).map(|(idx, seen)| of_load(*idx, seen)).collect();
        first.sort_unstable();
        second.sort_unstable();
        assert_eq!(first, second, "seed {seed}");
        assert_eq!(outcome.events, swapped.events, "seed {seed}");
    }
}

#[test]
fn interrupts_are_never_closer_than_the_hold_off() {
    let interval = Nanos::from_us(50);
    for seed in 0..10 {
        let mut scenario = random_scenario(seed);
        scenario.warmup = Nanos::ZERO;
        scenario.duration = Nanos::from_ms(20);
        for host in &mut scenario.hosts {
            host.nic.coalescing.throttle = Throttle::HoldOff { interval };
            host.machine.clock_ppm = 0;
        }
        for host in crate::run(&scenario).unwrap().hosts {
            for queue in host.queues {
                assert!(queue.interrupts <= 20_000 / 50 + 1, "seed {seed}: {queue:?}");
            }
        }
    }
}

#[test]
fn core_time_adds_up_to_window() {
    for seed in 0..20 {
        let scenario = random_scenario(seed);
        let outcome = crate::run(&scenario).unwrap();
        for core in outcome.hosts.iter().flat_map(|host| &host.cores) {
            assert_eq!(core.total(), scenario.duration, "seed {seed}");
        }
    }
}

fn shuffle_indices(count: usize, rng: &mut SeededRng) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    rng.shuffle(&mut order);
    order
}

/// A scenario in which anything may be switched on.
fn random_scenario(seed: u64) -> Scenario {
    let mut rng = SeededRng::from_seed_and_index(0x51, seed);
    let hosts = 2 + rng.next_below(2);
    let switch = (hosts > 2 || rng.next_below(3) == 0)
        .then(|| Bytes::new(20_000 + rng.next_below(200_000) as u64));
    let rate = [100_000_000, 1_000_000_000, 10_000_000_000][rng.next_below(3)];
    let mut hosts: Vec<Host> = (0..hosts).map(|_| random_host(&mut rng)).collect();
    // As drawn, seed 185 has two things at one nanosecond, of which the order differs.
    if !seed.is_multiple_of(3) {
        for host in &mut hosts {
            host.machine.costs.timer_arm = Nanos::ZERO;
        }
    }
    let mut loads: Vec<Load> =
        (0..=rng.next_below(4)).map(|_| random_load(&mut rng, hosts.len())).collect();
    if rng.next_below(2) == 0 {
        loads.push(Load { counted_with: Some(0), ..loads[0] });
    }
    Scenario {
        seed,
        warmup: Nanos::from_ms(2),
        duration: Nanos::from_ms(15),
        hosts,
        network: Network {
            rate: BitsPerSecond::new(rate),
            latency: Nanos::from_ns(rng.next_below(20_000) as u64),
            latency_jitter_ratio: rng.next_below(2) as f64 / 2.0,
            mtu: Bytes::new([1_500, 9_000][rng.next_below(2)]),
            switch,
        },
        loads,
    }
}

/// Costs of a random host, without those of an epoll server.
fn random_costs(rng: &mut SeededRng) -> CpuCosts {
    let mut cost = |most: usize| Nanos::from_ns(rng.next_below(most) as u64);
    CpuCosts {
        interrupt: cost(3_000),
        poll: cost(500),
        rx_packet: cost(2_000),
        rx_first: cost(1_000),
        rx_data: cost(1_000),
        rx_merged: cost(500),
        rx_remote: cost(300),
        tx_completion: cost(300),
        tx_remote: cost(300),
        tx_packet: cost(1_000),
        ack: cost(500),
        syscall: cost(1_000),
        user: cost(1_000),
        copy_per_kib: cost(100),
        wake: cost(2_000),
        wake_remote: cost(1_000),
        sleep: cost(1_000),
        cross_core: cost(1_000),
        preempted: cost(1_000),
        timer: cost(1_000),
        timer_arm: cost(1_000),
        ipi: cost(1_000),
        backlog_packet: cost(500),
        jitter_ratio: 0.25,
        ..CpuCosts::default()
    }
}

fn random_host(rng: &mut SeededRng) -> Host {
    let mut host = Host::default();
    host.machine.costs = random_costs(rng);
    host.machine.cores = 1 + rng.next_below(3) as u32;
    host.machine.idle_exit = Nanos::from_ns(rng.next_below(3) as u64 * 5_000);
    host.machine.clock_ppm = rng.next_below(200) as i32 - 100;
    host.machine.placement =
        [WakePlacement::InterruptCoreFirst, WakePlacement::LastCoreFirst][rng.next_below(2)];
    host.machine.steal_after = (host.machine.cores == 3).then_some(Nanos::from_us(20));
    host.nic.driver =
        [DriverMode::Napi, DriverMode::Napi, DriverMode::Interrupt, DriverMode::Polling]
            [rng.next_below(4)];
    host.nic.queues = 1 + rng.next_below(3) as u32;
    host.nic.irq_cores = (0..host.machine.cores).collect();
    host.nic.rx_ring = [16, 256][rng.next_below(2)];
    host.nic.tx_ring = [4, 256][rng.next_below(2)];
    host.nic.fifo = Bytes::new([0, 16_384][rng.next_below(2)]);
    host.nic.pause = rng.next_below(2) == 0;
    host.nic.coalescing = random_coalescing(rng);
    let stack = &mut host.stack;
    stack.delivery_batch = [1, 8][rng.next_below(2)];
    stack.gro = rng.next_below(2) == 0;
    stack.tso = rng.next_below(2) == 0;
    stack.threaded = rng.next_below(4) == 0;
    stack.busy_poll = Nanos::from_us([0, 0, 50][rng.next_below(3)]);
    stack.prefer_busy_poll = rng.next_below(2) == 0;
    stack.irq_suspend_timeout = Nanos::from_us([0, 0, 500][rng.next_below(3)]);
    stack.defer_hard_irqs = [0, 0, 2, 100][rng.next_below(4)];
    stack.gro_flush_timeout = Nanos::from_us(rng.next_below(3) as u64 * 20);
    stack.qdisc = [
        Qdisc::PFIFO_FAST,
        Qdisc::Pfifo { limit_packets: 10 },
        Qdisc::FQ_CODEL,
        Qdisc::FqCodel {
            limit_packets: 20,
            target: Nanos::from_us(50),
            interval: Nanos::from_us(500),
        },
    ][rng.next_below(4)];
    stack.bql = (rng.next_below(2) == 0)
        .then_some(BqlLimits { least: Bytes::new(0), most: Bytes::new(1_000_000) });
    stack.congestion = [CongestionControl::Reno, CongestionControl::Cubic][rng.next_below(2)];
    stack.rps_cores =
        if rng.next_below(3) == 0 { (0..host.machine.cores).collect() } else { Vec::new() };
    host
}

fn random_coalescing(rng: &mut SeededRng) -> Coalescing {
    let mut delay = || InterruptDelay {
        delay: Nanos::from_us([0, 20, 100][rng.next_below(3)]),
        frames: [0, 5][rng.next_below(2)],
        restarts: rng.next_below(2) == 0,
        absolute: Nanos::from_us([0, 200][rng.next_below(2)]),
        delay_irq: [None, Some(Nanos::from_us(5))][rng.next_below(2)],
        frames_irq: [None, Some(3)][rng.next_below(2)],
    };
    let (rx, tx) = (delay(), delay());
    let interval = Nanos::from_us(50);
    let throttle = [Throttle::None, Throttle::HoldOff { interval }, Throttle::Gate { interval }]
        [rng.next_below(3)];
    let (latched, status_block) = (rng.next_below(2) == 0, rng.next_below(4) == 0);
    Coalescing { rx, tx, throttle, latched, status_block, ..Coalescing::default() }
}

fn random_load(rng: &mut SeededRng, hosts: usize) -> Load {
    let from = rng.next_below(hosts);
    let to = (from + 1 + rng.next_below(hosts - 1)) % hosts;
    let connections = 1 + rng.next_below(5) as u32;
    let traffic = match rng.next_below(5) {
        0 => TrafficKind::Datagrams {
            size: Bytes::new(1 + rng.next_below(1_400) as u64),
            rate_pps: 1e4 + 1e6 * rng.next_uniform(),
            spacing: [GapDistribution::Even, GapDistribution::Poisson][rng.next_below(2)],
            group: [1, 16, 200][rng.next_below(3)],
            receive_batch: [1, 32][rng.next_below(2)],
        },
        1 => TrafficKind::Stream {
            message: Bytes::new(1 + rng.next_below(100_000) as u64),
            connections,
        },
        2 => TrafficKind::Probe { rate_hz: 1e4 },
        3 => TrafficKind::Compute,
        _ => TrafficKind::RequestResponse {
            transport: [
                Transport::Udp,
                Transport::Tcp { nodelay: true },
                Transport::Tcp { nodelay: false },
            ][rng.next_below(3)],
            request: Bytes::new(1 + rng.next_below(1_400) as u64),
            response: Bytes::new([1, 1_400][rng.next_below(2)]),
            burst: rng.next_below(20) as u32,
            connections,
            think: Nanos::from_us([0, 0, 50][rng.next_below(3)]),
        },
    };
    let mut load = Load::new(from, to, traffic);
    let arrivals = Some(ArrivalProcess {
        rate_hz: 1e5 * rng.next_uniform() + 1.0,
        spacing: GapDistribution::Poisson,
    });
    match (traffic, rng.next_below(4)) {
        (TrafficKind::RequestResponse { transport: Transport::Udp, .. }, 0) => {
            load.form.timeout = Nanos::from_ms(1);
        }
        (TrafficKind::RequestResponse { .. } | TrafficKind::Stream { .. }, 1) => {
            load.form.arrivals = arrivals;
        }
        (TrafficKind::RequestResponse { transport: Transport::Tcp { .. }, .. }, 2) => {
            load.form.connects = true;
            if let TrafficKind::RequestResponse { burst, .. } = &mut load.traffic {
                *burst = 0;
            }
        }
        (TrafficKind::RequestResponse { .. }, 3) => load.form.think_varies = true,
        (TrafficKind::Datagrams { .. }, 0) => load.form.floods = true,
        _ => {}
    }
    if rng.next_below(3) == 0 {
        load.with_time_span(Nanos::from_ms(3), Nanos::from_ms(12))
    } else {
        load
    }
}
