//! A key-value server under load, by the kernel's settings for polling, deferring and suspending interrupts.

use latput_sim::epoll_server::{EpollOutcome, EpollServer, EpollSettings, NapiSettings};
use latput_units::Nanos;

use super::{SimulatedFigure, figures_from_values};
use crate::row::{CsvRow, RowError};
use crate::system::SystemCatalog;

/// Connections of the agents (6 with 32 threads of 20 each) and of the host that directs them. Not published: rate
/// times mean latency is 4220 to 4380 in every closed loop.
pub(crate) const CONNECTIONS: u32 = 4_320;
/// The case whose server was changed so that it never sleeps.
const NEVER_SLEEPS: &str = "fullbusy";

/// The published interrupts are also counted while no load is offered. Share of that time, and the exchanges per second
/// that other programs then have: together they give the interrupts of the cases that defer them, which do not depend
/// on the load, and fall with the time of silence that ends a deferral (`gro_flush_timeout` times
/// `napi_defer_hard_irqs`).
pub(crate) const QUIET_SHARE: f64 = 0.092;
pub(crate) const QUIET_RATE_HZ: f64 = 1_350.0;
/// Length of its simulation.
const QUIET_DURATION: Nanos = Nanos::from_ms(1_000);

const OFFERED: std::ops::RangeInclusive<u32> = 1..=10_000_000;
const NANOSECONDS: std::ops::RangeInclusive<u32> = 0..=4_000_000_000;

/// A row of the file.
pub(super) fn build_server(
    row: &CsvRow<'_>,
    systems: &SystemCatalog,
) -> Result<EpollServer, RowError> {
    let profile = systems.expect_profile("memcached-mlx5");
    let generator = profile.generator.as_ref().unwrap_or(&profile.sut);
    let number = |column, range| Ok::<u32, RowError>(row.parse_whole(column, range)?.unwrap_or(0));
    let time = |column| Ok::<Nanos, RowError>(Nanos::from_ns(number(column, NANOSECONDS)?.into()));
    let rate_hz = match row.text("offered_per_s") {
        "max" => None,
        _ => Some(f64::from(row.parse_required_whole("offered_per_s", OFFERED)?)),
    };
    Ok(EpollServer {
        seed: 0,
        warmup: Nanos::from_ms(300),
        duration: Nanos::from_ms(600),
        machine: profile.sut.machine,
        nic: profile.sut.nic.clone(),
        napi: NapiSettings {
            defer_hard_irqs: number("napi_defer_hard_irqs", 0..=1_000_000)?,
            gro_flush_timeout: time("gro_flush_timeout_ns")?,
            irq_suspend_timeout: time("irq_suspend_timeout_ns")?,
        },
        epoll: EpollSettings {
            busy_poll: Nanos::from_us(number("epoll_busy_poll_us", 0..=10_000_000)?.into()),
            budget: row.parse_whole("epoll_busy_poll_budget", 1..=65_535)?.unwrap_or(8),
            prefers: number("epoll_prefer_busy_poll", 0..=1)? == 1,
            never_sleeps: row.text("case") == NEVER_SLEEPS,
        },
        latency: profile.network.latency,
        latency_jitter_ratio: profile.network.latency_jitter_ratio,
        client_hold: generator.nic.coalescing.rx.delay,
        connections: CONNECTIONS,
        rate_hz,
    })
}

/// The figures of one run, with the interrupts of the time without load.
pub(super) fn run(server: &EpollServer) -> Vec<Option<SimulatedFigure>> {
    let quiet =
        EpollServer { rate_hz: Some(QUIET_RATE_HZ), duration: QUIET_DURATION, ..server.clone() };
    read(&server.run(), &quiet.run())
}

/// Transactions per second, median and 99th percentile of the latency in microseconds, CPU use in per cent, and
/// interrupts per second.
fn read(outcome: &EpollOutcome, quiet: &EpollOutcome) -> Vec<Option<SimulatedFigure>> {
    if outcome.latency.is_empty() {
        return vec![None; 5];
    }
    let quantile = |q: f64| outcome.latency.quantile(q).map_or(0.0, Nanos::as_us_f64);
    let interrupts = |outcome: &EpollOutcome| outcome.per_second(outcome.counts.interrupts);
    figures_from_values([
        outcome.per_second(outcome.counts.transactions),
        quantile(0.5),
        quantile(0.99),
        100.0 * outcome.accounted_busy_ratio(),
        interrupts(outcome) + QUIET_SHARE * interrupts(quiet),
    ])
}
