//! Synthetic results for tests: a closure gives each run's figures, with seeded noise.

use std::collections::BTreeMap;

use latput_stats::Histogram;
use latput_trial::metric::{CustomMetric, Definition, PreferredDirection, Summary, Unit};
use latput_trial::observation::{
    CpuObservation, CpuTime, HostObservation, ProbeObservation, Role, TrafficObservation,
};
use latput_trial::results::LabelledSetting;
use latput_trial::{Metric, Observation, Probe, Results, Row, Traffic, Workload};
use latput_units::{BitsPerSecond, Bytes, CpuId, Nanos, SeededRng};

/// The figures of one synthetic run; 0 and `None` are not measured.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SyntheticFigures {
    /// Transactions per second, or bits per second for the other kinds.
    pub(crate) rate: f64,
    /// 99th percentile of the round trip, or of the probe's beside bulk. The median is half of it.
    pub(crate) p99_us: Option<f64>,
    /// CPU microseconds of the system under test per unit of work.
    pub(crate) service_demand_us: f64,
}

/// `blocks` runs of every setting under every workload, at 99% and +/- 2.5%.
pub(crate) fn build_results(
    settings: &[&str],
    workloads: &[Workload],
    blocks: u32,
    mut figures: impl FnMut(usize, usize) -> SyntheticFigures,
) -> Results {
    let mut rows = Vec::new();
    for block in 0..blocks {
        for setting in 0..settings.len() {
            for (workload, spec) in workloads.iter().enumerate() {
                let observation = build_observation(spec, figures(setting, workload));
                rows.push(Row { block, setting, workload, started_unix_ms: 0, observation });
            }
        }
    }
    let labelled =
        |label: &&str| LabelledSetting { label: (*label).to_owned(), by_role: BTreeMap::new() };
    Results {
        name: "made up".to_owned(),
        confidence: 0.99,
        half_width: 0.025,
        testbed: "none".to_owned(),
        latput_version: "0".to_owned(),
        settings: settings.iter().map(labelled).collect(),
        workloads: workloads.to_vec(),
        planned_trials: rows.len() as u64,
        rows,
        ..Results::default()
    }
}

/// Runs that report these values and nothing else, of the settings `a`, `b` and so on under `workloads`: each setting's
/// values by block, from the first again where there are more blocks. NaN is not measured.
pub(crate) fn reported_results(
    workloads: &[Workload],
    blocks: u32,
    figures: &[(Metric, &[&[f64]])],
) -> Results {
    let labels = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
    let settings = figures.iter().map(|(_, values)| values.len()).max().unwrap_or(0);
    let mut made =
        build_results(&labels[..settings], workloads, blocks, |_, _| SyntheticFigures::default());
    for row in &mut made.rows {
        row.observation = Observation::default();
        for (metric, values) in figures {
            let values = values[row.setting];
            let value = values[row.block as usize % values.len()];
            row.observation.reported_metrics.insert(*metric, value);
        }
    }
    made
}

/// A plan's own metric, a plain number. Of each name there is one in the process.
pub(crate) fn own_metric(name: &str, better: PreferredDirection, summary: Summary) -> CustomMetric {
    let name = name.to_owned();
    CustomMetric::define(&Definition { name, unit: Unit::Number, better, summary })
        .expect("one definition for each name")
}

/// One-byte request/response.
pub(crate) fn rr_workload(name: &str) -> Workload {
    let traffic = Traffic::tcp_rr(0);
    Workload::plain(name, traffic)
}

/// Bulk with a probe beside it.
pub(crate) fn stream_workload(name: &str) -> Workload {
    let traffic = Traffic::tcp_stream(Bytes::new(32_768), 1);
    Workload { probe: Some(Probe { rate_hz: 1000 }), ..Workload::plain(name, traffic) }
}

/// Paced datagrams.
pub(crate) fn udp_workload(name: &str) -> Workload {
    let rate = BitsPerSecond::new(100_000_000);
    let traffic = Traffic::udp_stream(Bytes::new(1470), rate);
    Workload::plain(name, traffic)
}

/// A factor whose logarithm is normal around 0 with standard deviation `sd`.
pub(crate) fn noise_factor(rng: &mut SeededRng, sd: f64) -> f64 {
    (sd * rng.next_normal()).exp()
}

/// An observation over one second that has `figures`.
pub(crate) fn build_observation(workload: &Workload, figures: SyntheticFigures) -> Observation {
    let second = Nanos::from_s(1);
    let is_rr = workload.traffic.is_transactional();
    let count = Nanos::from_secs_f64(figures.rate / 1e9).as_ns();
    let units = if is_rr { figures.rate } else { figures.rate / 8.0 / 1024.0 };
    let rtt = figures.p99_us.map(round_trips);
    let busy = Nanos::from_secs_f64(figures.service_demand_us * units / 1e6);
    let time = CpuTime {
        system: busy,
        idle: Nanos::from_s(1000).saturating_sub(busy),
        ..CpuTime::default()
    };
    Observation {
        traffic: TrafficObservation {
            sender_window: second,
            receiver_window: second,
            received_bytes: if is_rr { 0 } else { count / 8 },
            transactions: is_rr.then_some(count),
            latency: rtt.clone().filter(|_| is_rr),
            ..TrafficObservation::default()
        },
        probe: rtt.filter(|_| !is_rr).map(|rtt| ProbeObservation { sent: 100, received: 100, rtt }),
        hosts: vec![HostObservation {
            role: Role::Sut,
            window: second,
            cpus: vec![CpuObservation { cpu: CpuId(0), time }],
            ..HostObservation::default()
        }],
        ..Observation::default()
    }
}

/// A hundred round trips with the given 99th percentile and half of it as the median.
fn round_trips(p99_us: f64) -> Histogram {
    let mut rtt = Histogram::new();
    rtt.record_n(Nanos::from_secs_f64(p99_us / 2e6), 98);
    rtt.record_n(Nanos::from_secs_f64(p99_us / 1e6), 2);
    rtt.pack();
    rtt
}
