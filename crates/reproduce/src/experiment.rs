//! Makes a simulated run of a row: its hosts, its loads and the figures that the published file
//! reports.

pub(crate) mod epoll_server;
pub(crate) mod fq_codel;
mod freebsd;
mod rr;
mod stream;

use latput_sim::epoll_server::EpollServer;
use latput_sim::outcome::HostOutcome;
use latput_sim::profile::{HostProfile, SystemProfile};
use latput_sim::scenario::{AdaptivePolicies, Host, Load, Network, Scenario};
use latput_sim::{InvalidValue, SimulationOutcome};
use latput_trial::observation::Role;
use latput_units::{Bytes, Nanos, SeededRng};

use crate::kind::ExperimentKind;
use crate::row::{CsvRow, RowError};
use crate::setting::ModerationSetting;
use crate::system::{PublishedMachine, SystemCatalog};

/// Buffer of a port of the switch between the hosts.
const SWITCH_BUFFER: Bytes = Bytes::new(10_000_000);
/// Index of the measured system in a scenario, and of the first load generator.
const SUT: usize = 0;
const OTHER: usize = 1;

/// Least number of periods of the slowest timer in a run.
const PERIODS: f64 = 40.0;
/// Most packets of a run, about a second.
const MOST_PACKETS: f64 = 1e6;

/// The experiment of one row, ready to be simulated.
#[derive(Clone, Debug)]
pub struct Experiment(SimulatedRun);

/// The simulation of a row.
#[derive(Clone, Debug)]
enum SimulatedRun {
    /// Hosts, NICs and the packets between them.
    Network(Box<NetworkExperiment>),
    /// A server whose threads wait in epoll.
    Epoll(Box<EpollServer>),
}

/// Hosts, NICs and the packets between them, and the figures to read.
#[derive(Clone, Debug)]
struct NetworkExperiment {
    scenario: Scenario,
    reading: ReportedFigures,
}

/// A figure of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimulatedFigure {
    /// The mean.
    pub value: f64,
    /// The range of nine in ten single samples of the run, if the published figure is one sample.
    pub within: Option<(f64, f64)>,
}

impl SimulatedFigure {
    /// A figure of a whole run.
    pub const fn from_value(value: f64) -> Self {
        Self { value, within: None }
    }
}

/// The figures that a row reports, in the order of [`ExperimentKind::measured_columns`].
#[derive(Clone, Debug, PartialEq)]
enum ReportedFigures {
    /// Transactions per second of all instances, and CPU per transaction at both ends.
    Transactions,
    /// Transactions per second of one of the instances (or all), and the CPU of the hosts.
    Instance(Option<usize>),
    /// Round trip of pings in milliseconds times this factor. A single ping lies in a range.
    Bytes,
    /// Round trip of pings, in milliseconds times this; a single ping lies in its band.
    Ping(f64),
    /// Idle time of the measured system in per cent.
    Idle,
    /// Stream payload rate in Mbit/s, times a factor.
    Payload(f64),
    /// The server's rate by `sar`, and the summary of an observer's pings.
    Matrix,
    /// One report of iperf, with `top` on one host.
    Iperf(freebsd::IperfReport),
}

impl Experiment {
    /// The experiment of a row.
    pub fn from_row(
        kind: ExperimentKind,
        row: &CsvRow<'_>,
        systems: &SystemCatalog,
    ) -> Result<Self, RowError> {
        for measured in kind.measured_columns() {
            row.parse_figure(measured.column)?;
        }
        let network = match kind {
            ExperimentKind::RrAggregate => rr::build_aggregate_experiment(row, systems),
            ExperimentKind::RrSingle => rr::build_single_experiment(row, systems),
            ExperimentKind::Stream => stream::build_stream_experiment(row, systems),
            ExperimentKind::Binding => stream::build_binding_experiment(row, systems),
            ExperimentKind::TwoConcurrent => rr::two_concurrent(row, systems),
            ExperimentKind::PingIdle => freebsd::ping_idle(row, systems),
            ExperimentKind::DevicePolling => freebsd::device_polling(row, systems),
            ExperimentKind::FqCodel => fq_codel::build_matrix_experiment(row, systems),
            ExperimentKind::IrqSuspension => {
                let server = epoll_server::build_server(row, systems)?;
                return Ok(Self(SimulatedRun::Epoll(Box::new(server))));
            }
        };
        Ok(Self(SimulatedRun::Network(Box::new(network?))))
    }

    /// The figures of one run, in the order of [`ExperimentKind::measured_columns`]. Each seed has its own
    /// start phases, arrival order and costs.
    pub fn run(&self, seed: u64) -> Result<Vec<Option<SimulatedFigure>>, InvalidValue> {
        let seed = SeededRng::from_seed_and_index(seed, 0).next_u64();
        match &self.0 {
            SimulatedRun::Network(network) => network.run(seed),
            SimulatedRun::Epoll(server) => {
                let server = EpollServer { seed, ..(**server).clone() };
                Ok(epoll_server::run(&server))
            }
        }
    }

    /// Number of runs for `asked` runs. One run with a thousand flows averages more than others.
    pub const fn run_count(&self, asked: u64) -> u64 {
        match &self.0 {
            SimulatedRun::Network(network) => match network.reading {
                ReportedFigures::Matrix => asked.div_ceil(2),
                _ => asked,
            },
            SimulatedRun::Epoll(_) => asked.div_ceil(3),
        }
    }

    /// The experiment with a shorter run, for searches. Device polling keeps its length, since its
    /// burst adapts over many ticks.
    pub fn shorten_run(mut self, share: f64) -> Self {
        let (warmup, duration) = match &mut self.0 {
            SimulatedRun::Network(network) => {
                if matches!(network.reading, ReportedFigures::Iperf(_)) {
                    return self;
                }
                (&mut network.scenario.warmup, &mut network.scenario.duration)
            }
            SimulatedRun::Epoll(server) => (&mut server.warmup, &mut server.duration),
        };
        *warmup = scale_duration(*warmup, share);
        *duration = scale_duration(*duration, share);
        self
    }
}

impl NetworkExperiment {
    fn run(&self, seed: u64) -> Result<Vec<Option<SimulatedFigure>>, InvalidValue> {
        let mut scenario = self.scenario.clone();
        scenario.seed = seed;
        let mut outcome = latput_sim::run(&scenario)?;
        if let Some(times) = self.stretch_factor(&scenario, &outcome) {
            (scenario.warmup, scenario.duration) =
                (scale_duration(scenario.warmup, times), scale_duration(scenario.duration, times));
            outcome = latput_sim::run(&scenario)?;
        }
        Ok(self.read(&outcome))
    }

    /// Factor by which a run must be longer to cover enough periods of its slowest timer; a shorter
    /// run depends on their phases. `None` if it is long enough, or if frame limits act before the
    /// timer.
    fn stretch_factor(&self, scenario: &Scenario, outcome: &SimulationOutcome) -> Option<f64> {
        if matches!(self.reading, ReportedFigures::Matrix | ReportedFigures::Iperf(_)) {
            return None;
        }
        let slowest = scenario.hosts.iter().map(slowest_timer).max()?;
        let wanted = PERIODS * slowest.as_secs_f64() / scenario.duration.as_secs_f64();
        let nics = || outcome.hosts.iter().map(HostOutcome::nic_totals);
        let interrupts = nics().map(|nic| nic.interrupts).min()?;
        if wanted <= 1.0 || interrupts as f64 >= PERIODS {
            return None;
        }
        let packets: u64 = nics().map(|nic| nic.rx_packets).sum();
        Some(wanted.min(MOST_PACKETS / packets.max(1) as f64)).filter(|times| *times > 1.0)
    }

    fn read(&self, outcome: &SimulationOutcome) -> Vec<Option<SimulatedFigure>> {
        let busy = |host: usize| busy_ratio(&outcome.hosts[host]);
        let cores = |host: usize| outcome.hosts[host].cores.len() as f64;
        let rr_rate = |idx: usize| outcome.per_second(outcome.loads[idx].received);
        let all_rr = || (0..outcome.loads.len()).map(rr_rate).sum::<f64>();
        let payload = |idx: usize| 8e-6 * outcome.per_second(outcome.loads[idx].received_bytes);
        match &self.reading {
            ReportedFigures::Transactions => {
                let rate = all_rr();
                with_cpu(rate, [busy(SUT), busy(OTHER)], [cores(SUT), cores(OTHER)], rate)
            }
            ReportedFigures::Instance(which) => {
                let rate = which.map_or_else(all_rr, rr_rate);
                figures_from_values([rate, 100.0 * busy(SUT), 100.0 * busy(OTHER)])
            }
            ReportedFigures::Bytes => {
                let bytes: u64 = outcome.loads.iter().map(|load| load.received_bytes).sum();
                let per_second = outcome.per_second(bytes);
                let both = [busy(SUT), busy(OTHER)];
                with_cpu(8e-6 * per_second, both, [cores(SUT), cores(OTHER)], per_second / 1_024.0)
            }
            ReportedFigures::Ping(unit) => {
                vec![freebsd::summarize_pings(&outcome.loads[0].latency, *unit)]
            }
            ReportedFigures::Idle => figures_from_values([100.0 * (1.0 - busy(SUT))]),
            ReportedFigures::Payload(factor) => figures_from_values([payload(0) * factor]),
            ReportedFigures::Matrix => fq_codel::read(outcome),
            ReportedFigures::Iperf(report) => report.read(outcome),
        }
    }
}

fn scale_duration(span: Nanos, times: f64) -> Nanos {
    Nanos::from_secs_f64(span.as_secs_f64() * times)
}

/// Longest delay of an interrupt by a host's NIC.
fn slowest_timer(host: &Host) -> Nanos {
    let coalescing = &host.nic.coalescing;
    let waits = [coalescing.rx, coalescing.tx].map(|delay| match delay.frames {
        1 => Nanos::ZERO,
        _ => delay.delay,
    });
    waits.into_iter().fold(coalescing.throttle.interval(), Nanos::max)
}

/// A rate, the utilisation of both hosts in per cent, and their CPU time in microseconds per unit.
/// `None` without any units: the run was too short, or a sender waited for lost data.
fn with_cpu(
    rate: f64,
    busy: [f64; 2],
    cores: [f64; 2],
    units: f64,
) -> Vec<Option<SimulatedFigure>> {
    if units <= 0.0 {
        return vec![None; 5];
    }
    let demand = |host: usize| busy[host] * cores[host] * 1e6 / units;
    figures_from_values([rate, 100.0 * busy[0], 100.0 * busy[1], demand(0), demand(1)])
}

fn figures_from_values<const N: usize>(values: [f64; N]) -> Vec<Option<SimulatedFigure>> {
    values.map(|value| Some(SimulatedFigure::from_value(value))).to_vec()
}

fn busy_ratio(host: &HostOutcome) -> f64 {
    let cpu = host.cpu_totals();
    let busy = (cpu.user + cpu.system + cpu.irq + cpu.softirq).as_secs_f64();
    busy / (busy + cpu.idle.as_secs_f64())
}

/// The measured host and one load generator, with the row's setting.
fn build_hosts(
    row: &CsvRow<'_>,
    (machine, profile): (&PublishedMachine, &SystemProfile),
    is_bulk: bool,
) -> Result<[Host; 2], RowError> {
    let mut moderation = ModerationSetting::from_row(row)?;
    let generator = profile.generator.as_ref().unwrap_or(&profile.sut);
    let mut sut = build_host("sut", Role::Sut, &profile.sut);
    let mut other = build_host("generator", Role::Generator, generator);
    if moderation.throttle.is_none() {
        moderation.throttle = machine.default_throttle();
    }
    if let Some(delay) = machine.default_tx {
        for host in [&mut sut, &mut other] {
            host.nic.coalescing.tx = delay;
        }
    }
    moderation.apply_to_host(&mut sut, is_bulk);
    if moderation.on_both.unwrap_or(machine.set_alike) {
        moderation.apply_to_host(&mut other, is_bulk);
    } else if let Some(frames) = machine.others_rx_frames
        && moderation.rx_delay.is_some_and(|delay| delay != profile.sut.nic.coalescing.rx.delay)
    {
        other.nic.coalescing.rx.frames = frames;
    }
    Ok([sut, other])
}

pub(crate) fn build_host(name: &str, role: Role, profile: &HostProfile) -> Host {
    Host {
        name: name.to_owned(),
        role,
        machine: profile.machine,
        nic: profile.nic.clone(),
        stack: profile.stack.clone(),
        adaptive: AdaptivePolicies::default(),
    }
}

/// The hosts at one switch. The profile's latency is that between hosts.
fn behind_switch(profile: &SystemProfile, hosts: Vec<Host>, loads: Vec<Load>) -> Scenario {
    Scenario {
        seed: 0,
        warmup: Nanos::from_ms(30),
        duration: Nanos::from_ms(150),
        hosts,
        network: Network {
            rate: profile.network.rate,
            latency: Nanos::from_ns(profile.network.latency.as_ns() / 2),
            latency_jitter_ratio: profile.network.latency_jitter_ratio,
            mtu: profile.network.mtu,
            switch: Some(SWITCH_BUFFER),
        },
        loads,
    }
}
