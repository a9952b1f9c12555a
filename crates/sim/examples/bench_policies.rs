//! Moderation policies side by side on simulated loads, the same seeds for all.
#![allow(clippy::print_stdout, reason = "a benchmark talks to whoever runs it")]

use latput_moderate::e1000::Mode;
use latput_moderate::{Aim, Bounds, Dim, E1000, Elastic, Ixgbe, Moderation, Policy, dim};
use latput_sim::machine::{Costs, Machine};
use latput_sim::scenario::{Host, Load, Network, Scenario, Spacing, Traffic, Transport};
use latput_sim::vector::{Coalescing, Throttle};
use latput_units::{BitsPerSecond, Bytes, Nanos};

const WINDOW: Nanos = Nanos::from_ms(600);

fn main() {
    println!(
        "{:<22} {:<9} {:>10} {:>9} {:>9} {:>8}",
        "load", "policy", "rate", "p99 us", "cpu %", "irq/s"
    );
    for gbps in [1, 10] {
        for (name, loads) in loads() {
            if std::env::args().nth(1).is_some_and(|wanted| !wanted.split(',').any(|w| w == name)) {
                continue;
            }
            let name = format!("{name} {gbps}G");
            let fixed: Vec<(u64, Figures)> = LADDER_US
                .iter()
                .map(|&us| {
                    (
                        us,
                        figures(
                            &loads,
                            gbps,
                            &Policy::Fixed(Moderation::delay(Nanos::from_us(us))),
                        ),
                    )
                })
                .collect();
            let best_rate = fixed.iter().map(|(_, f)| f.rate).fold(0.0, f64::max);
            let oracle = fixed
                .iter()
                .filter(|(_, f)| f.rate >= 0.985 * best_rate)
                .min_by(|a, b| a.1.cpu.total_cmp(&b.1.cpu))
                .expect("the best rate is one of them");
            show(&name, &format!("best {}", oracle.0), &oracle.1);
            for (label, policy) in policies() {
                show(&name, label, &figures(&loads, gbps, &policy));
            }
        }
    }
}

const LADDER_US: [u64; 8] = [0, 4, 8, 16, 32, 64, 80, 100];

#[derive(Clone, Copy)]
struct Figures {
    rate: f64,
    p99: f64,
    cpu: f64,
    interrupts: f64,
}

fn show(load: &str, policy: &str, f: &Figures) {
    println!(
        "{load:<22} {policy:<9} {:>10.0} {:>9.1} {:>9.2} {:>8.0}",
        f.rate, f.p99, f.cpu, f.interrupts
    );
}

fn policies() -> Vec<(&'static str, Policy)> {
    vec![
        ("fixed 50", Policy::Fixed(Moderation::delay(Nanos::from_us(50)))),
        ("e1000 1", Policy::E1000(E1000::new(Mode::Dynamic))),
        ("e1000 3", Policy::E1000(E1000::new(Mode::Conservative))),
        ("aim", Policy::Aim(Aim::new(latput_moderate::aim::Flavour::IgbConservative))),
        ("ixgbe", Policy::Ixgbe(Ixgbe::new(latput_moderate::ixgbe::Version::Mainline))),
        ("dim", Policy::Dim(Dim::new(dim::Profile::RxEqe))),
        ("elastic", Policy::Elastic(Box::new(Elastic::new(Bounds::default())))),
    ]
}

fn loads() -> Vec<(String, Vec<Load>)> {
    let rr = |burst, connections| {
        Load::new(
            0,
            1,
            Traffic::RequestResponse {
                transport: Transport::Tcp { nodelay: true },
                request: Bytes::new(1),
                response: Bytes::new(1),
                burst,
                connections,
                think: Nanos::ZERO,
            },
        )
    };
    let bulk =
        |connections| Load::new(0, 1, Traffic::Stream { message: Bytes::new(32_768), connections });
    let mut loads = Vec::new();
    for burst in [0, 4, 16, 64, 128] {
        loads.push((format!("rr b{burst}"), vec![rr(burst, 1)]));
    }
    loads.push(("rr b16 x8".into(), (0..8).map(|_| rr(16, 1)).collect()));
    loads.push(("bulk 1".into(), vec![bulk(1)]));
    loads.push(("bulk 10".into(), vec![bulk(10)]));
    loads.push((
        "udp".into(),
        vec![Load::new(
            0,
            1,
            Traffic::Datagrams {
                size: Bytes::new(1470),
                rate_pps: 50_000.0,
                spacing: Spacing::Poisson,
                group: 1,
                receive_batch: 32,
            },
        )],
    ));
    loads.push(("rr + bulk".into(), vec![rr(0, 1), bulk(1)]));
    loads
}

fn figures(loads: &[Load], gbps: u64, policy: &Policy) -> Figures {
    let mut sum = Figures { rate: 0.0, p99: 0.0, cpu: 0.0, interrupts: 0.0 };
    let seeds = 3;
    for seed in 0..seeds {
        let out = latput_sim::run(&scenario(loads, gbps, policy, seed)).expect("a sound scenario");
        let first = out.loads.first().expect("a load");
        let rate: f64 =
            out.loads.iter().map(|l| out.per_second(l.received_bytes.max(l.received))).sum();
        sum.rate += rate / seeds as f64;
        sum.p99 += first.latency.quantile(0.99).map_or(0.0, Nanos::as_us_f64) / seeds as f64;
        let cpu = out.hosts[1].cpu();
        sum.cpu += 100.0 * cpu.busy().as_secs_f64() / out.window.as_secs_f64() / seeds as f64;
        sum.interrupts += out.per_second(out.hosts[1].nic().interrupts) / seeds as f64;
    }
    sum
}

fn scenario(loads: &[Load], gbps: u64, policy: &Policy, seed: u64) -> Scenario {
    let mut sut = host();
    sut.nic.coalescing = Coalescing {
        throttle: Throttle::HoldOff { interval: Nanos::ZERO },
        ..Coalescing::default()
    };
    sut.adaptive.throttle = Some(policy.clone());
    Scenario {
        seed,
        warmup: Nanos::from_ms(100),
        duration: WINDOW,
        hosts: vec![host(), sut],
        network: Network {
            rate: BitsPerSecond::new(gbps * 1_000_000_000),
            latency: Nanos::from_us(8),
            ..Network::default()
        },
        loads: loads.to_vec(),
    }
}

fn host() -> Host {
    Host {
        machine: Machine {
            cores: 2,
            costs: Costs {
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
                ..Costs::default()
            },
            ..Machine::default()
        },
        ..Host::default()
    }
}
