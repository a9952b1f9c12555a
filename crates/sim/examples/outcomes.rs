//! Temporary: hashes of outcomes.
#![allow(warnings, clippy::all, clippy::pedantic)]
use latput_units::{BitsPerSecond, Bytes, Nanos, Rng};
use latput_sim::Scenario;
use latput_sim::machine::{Bql, Congestion, Costs, Driver, Placement, Qdisc};
use latput_sim::outcome::LoadOutcome;
use latput_sim::scenario::{Arrivals, Host, Load, Network, Spacing, Traffic, Transport};
use latput_sim::vector::{Coalescing, Delay, Throttle};

fn main() {
    let mut args = std::env::args().skip(1);
    let from: u64 = args.next().unwrap().parse().unwrap();
    let to: u64 = args.next().unwrap().parse().unwrap();
    for seed in from..to {
        for variant in 0..6 {
            let mut s = random(seed);
            if variant > 0 { vary(&mut s, seed, variant); }
            let mut o = match std::panic::catch_unwind(|| latput_sim::run(&s)) { Ok(Ok(o)) => o, Ok(Err(e)) => { println!("{seed} {variant} refused"); continue; } Err(_) => { println!("{seed} {variant} panic"); continue; } };
            let events = o.events; o.events = 0;
            let text = format!("{o:?}");
            let mut h: u64 = 0xcbf29ce484222325;
            for b in text.bytes() { h = (h ^ u64::from(b)).wrapping_mul(0x100000001b3); }
            if std::env::var("EVENTS").is_ok() { println!("{seed} {variant} {h:016x} {events}"); } else { println!("{seed} {variant} {h:016x}"); }
            if std::env::var("DUMP").is_ok() { println!("{o:#?}"); }
        }
    }
}
fn vary(s: &mut Scenario, seed: u64, variant: u64) {
    let mut rng = Rng::split(0x77, seed * 8 + variant);
    for host in &mut s.hosts {
        if variant != 4 { host.nic.queues = 1; }
        host.nic.fifo = Bytes::new(0);
        if variant >= 2 { host.machine.costs.jitter_ratio = 0.0; }
        if variant >= 3 && rng.below(2) == 0 { host.nic.driver = Driver::Napi; host.nic.tx_ring = 256; host.stack.threaded = false; host.stack.busy_poll = Nanos::ZERO; }
        if variant >= 3 && rng.below(2) == 0 { host.stack.bql = None; host.stack.rps_cores = Vec::new(); }
        if variant == 5 {
            // Round numbers: many things at the same nanosecond.
            let c = &mut host.machine.costs;
            for x in [&mut c.interrupt, &mut c.poll, &mut c.rx_packet, &mut c.rx_first, &mut c.rx_data, &mut c.rx_merged, &mut c.rx_remote, &mut c.tx_completion, &mut c.tx_remote, &mut c.tx_packet, &mut c.ack, &mut c.syscall, &mut c.user, &mut c.copy_per_kib, &mut c.wake, &mut c.wake_remote, &mut c.sleep, &mut c.cross_core, &mut c.preempted, &mut c.timer, &mut c.ipi, &mut c.backlog_packet] {
                *x = Nanos::from_ns([0, 0, 1000, 2000][rng.below(4)]);
            }
            host.machine.clock_ppm = 0;
        }
    }
    s.network.latency_jitter_ratio = 0.0;
    if variant == 5 { s.network.latency = Nanos::from_ns([0, 1000, 5000][rng.below(3)]); s.network.rate = BitsPerSecond::new([672_000_000, 8_000_000_000, 100_000_000_000][rng.below(3)]); }
    for load in &mut s.loads {
        if variant >= 2 {
            if let Traffic::Datagrams { size, rate_pps, spacing, group, receive_batch } = &mut load.traffic {
                if rng.below(2) == 0 {
                (*spacing, *group) = (Spacing::Even, [1, 1, 4][rng.below(3)]);
                *rate_pps = [2e5, 5e5, 1e6, *rate_pps][rng.below(4)];
                *receive_batch = [1, 1, 3][rng.below(3)];
                *size = Bytes::new(size.get() % 200 + 1);
                }
            }
        }
        if variant >= 3 {
            if let Traffic::RequestResponse { transport, think, burst, .. } = &mut load.traffic {
                if rng.below(3) > 0 { *think = Nanos::ZERO; }
                if rng.below(2) == 0 && load.form.connects == false {
                    *transport = Transport::Udp;
                    load.form.arrivals = Some(Arrivals { rate_hz: [1e4, 1e5, 2e5, 1e6][rng.below(4)], spacing: [Spacing::Even, Spacing::Even, Spacing::Poisson][rng.below(3)] });
                }
            }
        }
    }
}
/// A scenario in which anything may be switched on.
fn random(seed: u64) -> Scenario {
    let mut rng = Rng::split(0x51, seed);
    let hosts = 2 + rng.below(2);
    let switch =
        (hosts > 2 || rng.below(3) == 0).then(|| Bytes::new(20_000 + rng.below(200_000) as u64));
    let rate = [100_000_000, 1_000_000_000, 10_000_000_000][rng.below(3)];
    let hosts: Vec<Host> = (0..hosts).map(|_| random_host(&mut rng)).collect();
    let mut loads: Vec<Load> =
        (0..=rng.below(4)).map(|_| random_load(&mut rng, hosts.len())).collect();
    if rng.below(2) == 0 {
        loads.push(Load { counted_with: Some(0), ..loads[0] });
    }
    Scenario {
        seed,
        warmup: Nanos::from_ms(2),
        duration: Nanos::from_ms(15),
        hosts,
        network: Network {
            rate: BitsPerSecond::new(rate),
            latency: Nanos::from_ns(rng.below(20_000) as u64),
            latency_jitter_ratio: rng.below(2) as f64 / 2.0,
            mtu: Bytes::new([1_500, 9_000][rng.below(2)]),
            switch,
        },
        loads,
    }
}

fn random_host(rng: &mut Rng) -> Host {
    let mut host = Host::default();
    let mut cost = |most: usize| Nanos::from_ns(rng.below(most) as u64);
    host.machine.costs = Costs {
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
        ipi: cost(1_000),
        backlog_packet: cost(500),
        jitter_ratio: 0.25,
    };
    host.machine.cores = 1 + rng.below(3) as u32;
    host.machine.idle_exit = Nanos::from_ns(rng.below(3) as u64 * 5_000);
    host.machine.clock_ppm = rng.below(200) as i32 - 100;
    host.machine.placement =
        [Placement::InterruptCoreFirst, Placement::LastCoreFirst][rng.below(2)];
    host.nic.driver =
        [Driver::Napi, Driver::Napi, Driver::Interrupt, Driver::Polling][rng.below(4)];
    host.nic.queues = 1 + rng.below(3) as u32;
    host.nic.irq_cores = (0..host.machine.cores).collect();
    host.nic.rx_ring = [16, 256][rng.below(2)];
    host.nic.tx_ring = [4, 256][rng.below(2)];
    host.nic.fifo = Bytes::new([0, 16_384][rng.below(2)]);
    host.nic.pause = rng.below(2) == 0;
    host.nic.coalescing = random_coalescing(rng);
    let stack = &mut host.stack;
    stack.delivery_batch = [1, 8][rng.below(2)];
    stack.gro = rng.below(2) == 0;
    stack.tso = rng.below(2) == 0;
    stack.threaded = rng.below(4) == 0;
    stack.busy_poll = Nanos::from_us([0, 0, 50][rng.below(3)]);
    stack.prefer_busy_poll = rng.below(2) == 0;
    stack.irq_suspend_timeout = Nanos::from_us([0, 0, 500][rng.below(3)]);
    stack.defer_hard_irqs = [0, 0, 2, 100][rng.below(4)];
    stack.gro_flush_timeout = Nanos::from_us(rng.below(3) as u64 * 20);
    stack.qdisc = [
        Qdisc::PFIFO_FAST,
        Qdisc::Pfifo { limit_packets: 10 },
        Qdisc::FQ_CODEL,
        Qdisc::FqCodel {
            limit_packets: 20,
            target: Nanos::from_us(50),
            interval: Nanos::from_us(500),
        },
    ][rng.below(4)];
    stack.bql =
        (rng.below(2) == 0).then_some(Bql { least: Bytes::new(0), most: Bytes::new(1_000_000) });
    stack.congestion = [Congestion::Reno, Congestion::Cubic][rng.below(2)];
    stack.rps_cores =
        if rng.below(3) == 0 { (0..host.machine.cores).collect() } else { Vec::new() };
    host
}

fn random_coalescing(rng: &mut Rng) -> Coalescing {
    let mut delay = || Delay {
        delay: Nanos::from_us([0, 20, 100][rng.below(3)]),
        frames: [0, 5][rng.below(2)],
        restarts: rng.below(2) == 0,
        absolute: Nanos::from_us([0, 200][rng.below(2)]),
        delay_irq: [None, Some(Nanos::from_us(5))][rng.below(2)],
        frames_irq: [None, Some(3)][rng.below(2)],
    };
    let (rx, tx) = (delay(), delay());
    let interval = Nanos::from_us(50);
    let throttle =
        [Throttle::None, Throttle::HoldOff { interval }, Throttle::Gate { interval }][rng.below(3)];
    let (latched, status_block) = (rng.below(2) == 0, rng.below(4) == 0);
    Coalescing { rx, tx, throttle, latched, status_block, ..Coalescing::default() }
}

fn random_load(rng: &mut Rng, hosts: usize) -> Load {
    let from = rng.below(hosts);
    let to = (from + 1 + rng.below(hosts - 1)) % hosts;
    let connections = 1 + rng.below(5) as u32;
    let traffic = match rng.below(5) {
        0 => Traffic::Datagrams {
            size: Bytes::new(1 + rng.below(1_400) as u64),
            rate_pps: 1e4 + 1e6 * rng.uniform(),
            spacing: [Spacing::Even, Spacing::Poisson][rng.below(2)],
            group: [1, 16, 200][rng.below(3)],
            receive_batch: [1, 32][rng.below(2)],
        },
        1 => Traffic::Stream { message: Bytes::new(1 + rng.below(100_000) as u64), connections },
        2 => Traffic::Probe { rate_hz: 1e4 },
        3 => Traffic::Compute,
        _ => Traffic::RequestResponse {
            transport: [
                Transport::Udp,
                Transport::Tcp { nodelay: true },
                Transport::Tcp { nodelay: false },
            ][rng.below(3)],
            request: Bytes::new(1 + rng.below(1_400) as u64),
            response: Bytes::new([1, 1_400][rng.below(2)]),
            burst: rng.below(20) as u32,
            connections,
            think: Nanos::from_us([0, 0, 50][rng.below(3)]),
        },
    };
    let mut load = Load::new(from, to, traffic);
    let arrivals = Some(Arrivals { rate_hz: 1e5 * rng.uniform() + 1.0, spacing: Spacing::Poisson });
    match (traffic, rng.below(4)) {
        (Traffic::RequestResponse { transport: Transport::Udp, .. }, 0) => {
            load.form.timeout = Nanos::from_ms(1);
        }
        (Traffic::RequestResponse { .. } | Traffic::Stream { .. }, 1) => {
            load.form.arrivals = arrivals;
        }
        (Traffic::RequestResponse { transport: Transport::Tcp { .. }, .. }, 2) => {
            load.form.connects = true;
            if let Traffic::RequestResponse { burst, .. } = &mut load.traffic {
                *burst = 0;
            }
        }
        (Traffic::RequestResponse { .. }, 3) => load.form.think_varies = true,
        (Traffic::Datagrams { .. }, 0) => load.form.floods = true,
        _ => {}
    }
    if rng.below(3) == 0 { load.between(Nanos::from_ms(3), Nanos::from_ms(12)) } else { load }
}
