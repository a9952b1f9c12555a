//! A thousand downloads from one server, with the pings of an observer.
//!
//! Simulated are the transmit queues in use, their queue discipline and BQL, completions with the
//! moderated interrupt, windows, and the observer. Not simulated is the collapse of service when
//! receive work is spread over all CPUs; a delay taken from those rows replaces it.
//! `crate::provenance` lists the rows that each constant was chosen to match.

use latput_sim::SimulationOutcome;
use latput_sim::machine::{BqlLimits, Qdisc};
use latput_sim::scenario::{Host, Load, Network, Scenario, TrafficKind};
use latput_sim::vector::Throttle;
use latput_trial::observation::Role;
use latput_units::{Bytes, CpuSet, Nanos};

use super::{NetworkExperiment, OTHER, ReportedFigures, SUT, SimulatedFigure, build_host};
use crate::row::{CsvRow, RowError, whole_number};
use crate::system::SystemCatalog;

/// Flows of both clients together.
const FLOWS: u32 = 1_000;
/// CPUs of the server.
const CORES: u32 = 16;
/// Receive work on more CPUs than this counts as spread.
const NARROW: usize = 8;
/// With spread receive work: bytes in flight of one flow, and the delay of its acknowledgements, by
/// whether the NIC's queue is a FIFO and whether RPS spreads too.
pub(crate) const SPREAD_WINDOW: Bytes = Bytes::new(28_000);
pub(crate) const SPREAD_FIFO: Nanos = Nanos::from_ms(180);
pub(crate) const SPREAD_FIFO_RPS: Nanos = Nanos::from_ms(75);
pub(crate) const SPREAD_FAIR: Nanos = Nanos::from_ms(90);
/// With spread receive work and a fair queue: delay of the server, by whether RPS spreads too.
pub(crate) const SPREAD_SERVER: Nanos = Nanos::from_us(2_500);
pub(crate) const SPREAD_SERVER_RPS: Nanos = Nanos::from_ms(12);

/// The FIFO in bytes, without and with a BQL limit. The real one holds 1000 packets, one chunk of
/// each flow. Published rate times ping gives chunks of 37 kB at the line rate (Q02), and of 17 kB
/// behind BQL (Q04; claim F11). Simulated flows send chunks of other sizes.
pub(crate) const FIFO_BYTES: Bytes = Bytes::new(34_000_000);
pub(crate) const FIFO_BEHIND_BQL_BYTES: Bytes = Bytes::new(17_000_000);
/// BQL's default `limit_max`.
const BQL_MAX: Bytes = Bytes::new(1_879_048_192);

/// The CPUs that do the protocol work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CpuMask {
    /// The driver's hint: one CPU for each queue.
    Hint,
    /// This number of CPUs.
    Cpus(usize),
}

fn parse_cpu_mask(row: &CsvRow<'_>, column: &str) -> Result<CpuMask, RowError> {
    let text = row.text(column);
    if text == "hint" {
        return Ok(CpuMask::Hint);
    }
    match CpuSet::from_hex_mask(text) {
        Ok(cpus) if cpus.iter().all(|cpu| cpu.0 < CORES) => Ok(CpuMask::Cpus(cpus.len())),
        _ => {
            let wanted = format!("must be `hint` or a hexadecimal mask of {CORES} CPUs");
            Err(row.field_error(column, format!("`{text}` {wanted}")))
        }
    }
}

/// A row of the matrix.
pub(super) fn build_matrix_experiment(
    row: &CsvRow<'_>,
    systems: &SystemCatalog,
) -> Result<NetworkExperiment, RowError> {
    let profile = systems.expect_profile("hs22-ixgbe");
    let is_fair = match row.text("codel") {
        "on" => true,
        "off" => false,
        other => return Err(row.field_error("codel", format!("`{other}` must be `on` or `off`"))),
    };
    let limit = match row.text("bql") {
        "max" => None,
        text => match whole_number(text) {
            Some(bytes) if (1..=1 << 30).contains(&bytes) => Some(Bytes::new(bytes)),
            _ => {
                let wanted = "must be `max` or a limit from 1 to 1073741824 byte";
                return Err(row.field_error("bql", format!("`{text}` {wanted}")));
            }
        },
    };
    let (affinity, rps) = (parse_cpu_mask(row, "smp_affinity")?, parse_cpu_mask(row, "rps")?);
    // Acknowledgements release data on the CPU that handles them, which uses its own transmit
    // queue. An interrupt with several CPUs in its mask goes to the first of them.
    #[expect(clippy::match_same_arms, reason = "the order of the arms decides")]
    let (queues, is_spread) = match (affinity, rps) {
        (CpuMask::Cpus(0), _) => {
            return Err(row.field_error("smp_affinity", "is an empty mask; name at least one CPU"));
        }
        (_, CpuMask::Hint) => (CORES as usize, true),
        (_, CpuMask::Cpus(cpus)) if cpus > NARROW => (CORES as usize, true),
        (_, CpuMask::Cpus(cpus)) if cpus > 0 => (cpus, false),
        (CpuMask::Hint, _) => (CORES as usize, true),
        (CpuMask::Cpus(_), _) => (1, false),
    };
    let mut server = build_host("server", Role::Sut, &profile.sut);
    server.nic.queues = u32::try_from(queues).unwrap_or(CORES);
    server.nic.irq_cores = (0..server.nic.queues).collect();
    server.stack.qdisc = match (is_fair, limit) {
        (true, _) => Qdisc::FQ_CODEL,
        (false, None) => Qdisc::Bfifo { limit_bytes: FIFO_BYTES },
        (false, Some(_)) => Qdisc::Bfifo { limit_bytes: FIFO_BEHIND_BQL_BYTES },
    };
    // Late completions would make the dynamic limit the only queue. It is left out where they
    // replace another effect.
    let most = limit.or((is_fair || !is_spread).then_some(BQL_MAX));
    server.stack.bql = most.map(|most| BqlLimits { least: Bytes::new(0), most });
    let generator = profile.generator.as_ref().unwrap_or(&profile.sut);
    let mut client = build_host("clients", Role::Generator, generator);
    if is_spread {
        let wide_rps = !matches!(rps, CpuMask::Cpus(0));
        server.stack.send_buffer = SPREAD_WINDOW;
        let (late, interval) = match (is_fair, wide_rps) {
            (true, _) => (&mut client, SPREAD_FAIR),
            (false, false) => (&mut server, SPREAD_FIFO),
            (false, true) => (&mut server, SPREAD_FIFO_RPS),
        };
        late.nic.coalescing.throttle = Throttle::Gate { interval };
        if is_fair {
            // Each CPU has its own delay, so their released data does not leave together.
            client.nic.queues = CORES;
            client.nic.rx_ring /= CORES;
            client.nic.tx_ring /= CORES;
            let interval = if wide_rps { SPREAD_SERVER_RPS } else { SPREAD_SERVER };
            server.nic.coalescing.throttle = Throttle::Gate { interval };
        }
    }
    let observer = build_host("observer", Role::Observer, generator);
    Ok(NetworkExperiment {
        scenario: build_scenario(profile, vec![server, client, observer]),
        reading: ReportedFigures::Matrix,
    })
}

fn build_scenario(profile: &latput_sim::SystemProfile, hosts: Vec<Host>) -> Scenario {
    let download = TrafficKind::Stream { message: Bytes::new(65_536), connections: FLOWS };
    Scenario {
        seed: 0,
        warmup: Nanos::from_ms(700),
        duration: Nanos::from_ms(500),
        hosts,
        network: Network {
            rate: profile.network.rate,
            latency: profile.network.latency,
            latency_jitter_ratio: profile.network.latency_jitter_ratio,
            mtu: profile.network.mtu,
            switch: Some(Bytes::new(200_000_000)),
        },
        loads: vec![
            Load::new(SUT, OTHER, download),
            Load::new(OTHER + 1, SUT, TrafficKind::Probe { rate_hz: 1_000.0 }),
        ],
    }
}

/// The rate of `sar` (transmitted kbyte/s with headers), and ping's summary in milliseconds.
pub(super) fn read(outcome: &SimulationOutcome) -> Vec<Option<SimulatedFigure>> {
    let bytes = outcome.hosts[SUT].nic_totals().tx_bytes;
    let ping = &outcome.loads[1].latency;
    let ms = |ns: f64| Some(SimulatedFigure::from_value(ns * 1e-6));
    let at = |q: f64| ms(ping.quantile(q)?.as_ns() as f64);
    vec![
        Some(SimulatedFigure::from_value(outcome.per_second(bytes) / 1_024.0)),
        at(0.0),
        ping.mean_ns().and_then(ms),
        at(1.0),
        ping.stdev_ns().and_then(ms),
    ]
}
