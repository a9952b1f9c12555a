//! The fitted figures of a cell: rate, latency, CPU cost of each end, and poll rate of each end.

use latput_trial::observation::{HostObservation, Role};
use latput_trial::workload::PayloadFlow;
use latput_trial::{Metric, Observation, Traffic, Workload};
use latput_units::Nanos;

/// One figure of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FittedFigure {
    /// Transactions or bits of payload per second.
    Rate,
    /// The median round trip.
    Latency,
    /// CPU time of a host per unit of work.
    Cpu(Role),
    /// CPU time of the traffic's own threads and the threads that poll for them, which replaces
    /// [`Self::Cpu`] where threads poll. The scheduler times threads exactly, while a tick samples
    /// the time of a CPU, which includes other work.
    OwnCpu(Role),
    /// Polls per second of a host.
    Polls(Role),
}

/// Every figure with its weight. Poll rates show the cost of polls and timers. Bulk traffic leaves
/// them out, since its poll rates depend on which thread gets the core.
const FIGURES: [(FittedFigure, f64); 8] = [
    (FittedFigure::Rate, 1.0),
    (FittedFigure::Latency, 0.5),
    (FittedFigure::Cpu(Role::Sut), 0.5),
    (FittedFigure::Cpu(Role::Generator), 0.5),
    (FittedFigure::OwnCpu(Role::Sut), 0.5),
    (FittedFigure::OwnCpu(Role::Generator), 0.5),
    (FittedFigure::Polls(Role::Sut), 0.3),
    (FittedFigure::Polls(Role::Generator), 0.3),
];

impl FittedFigure {
    /// The figures of a workload, each with its weight.
    pub(super) fn for_traffic(traffic: &Traffic) -> impl Iterator<Item = (Self, f64)> {
        let is_transactional = traffic.is_transactional();
        let is_fit = move |(figure, _): &(Self, f64)| {
            is_transactional || !matches!(figure, Self::Latency | Self::Polls(_))
        };
        FIGURES.into_iter().filter(is_fit)
    }

    /// The measured value; `None` if it was not measured or includes other work.
    pub(super) fn measured_value(self, load: &Workload, observation: &Observation) -> Option<f64> {
        let is_other = |check: &latput_trial::Check| check.name == "other-work" && !check.passed;
        let is_told = match self {
            Self::Cpu(role) => {
                own_cpu_us(role, load, observation).is_none()
                    && !observation.checks.iter().any(is_other)
            }
            _ => true,
        };
        self.predicted_value(load, observation).filter(|value| is_told && *value > 0.0)
    }

    /// The value in a simulated trial.
    pub(super) fn predicted_value(self, load: &Workload, observation: &Observation) -> Option<f64> {
        let value = |metric: Metric| metric.value(&load.traffic, observation);
        match self {
            Self::Rate => value(Metric::TransactionsPerS).or_else(|| value(Metric::ThroughputBps)),
            Self::Latency => value(Metric::LatencyNsP50),
            Self::Cpu(Role::Sut) => value(Metric::SutServiceDemandUs),
            Self::Cpu(_) => value(Metric::GeneratorServiceDemandUs),
            Self::OwnCpu(role) => own_cpu_us(role, load, observation),
            Self::Polls(role) => {
                let host = find_host(role, observation)?;
                per_second(host.napi?.polls as f64, host.window)
            }
        }
    }
}

/// CPU time in microseconds per transaction or per KB. `None` if soft interrupts poll, since their
/// time includes other traffic's.
fn own_cpu_us(role: Role, load: &Workload, observation: &Observation) -> Option<f64> {
    let host = find_host(role, observation)?;
    let flow = &observation.traffic;
    let generator_sends = load.traffic.facts().payload != PayloadFlow::FromSut;
    let is_sender = generator_sends == (role == Role::Generator);
    let traffic = if is_sender { flow.sender_cpu } else { flow.receiver_cpu };
    let busy = traffic.saturating_add(host.napi_threads_cpu?);
    let metric = |metric: Metric| metric.value(&load.traffic, observation);
    let units_per_s = metric(Metric::TransactionsPerS)
        .or_else(|| Some(metric(Metric::ThroughputBps)? / (8.0 * 1024.0)))?;
    let units = units_per_s * host.window.as_secs_f64();
    (units > 0.0).then(|| busy.as_us_f64() / units)
}

fn find_host(role: Role, observation: &Observation) -> Option<&HostObservation> {
    observation.hosts.iter().find(|host| host.role == role)
}

fn per_second(count: f64, window: Nanos) -> Option<f64> {
    (window > Nanos::ZERO).then(|| count / window.as_secs_f64())
}
