//! A twin: a simulator profile of a host pair, calibrated on a few measured rows.
//!
//! The twin takes CPUs, MTU, offloads and NAPI from the rows and fits a few costs by [`CostSearch`].
//! Module `figure` lists the fitted figures.

mod figure;

use std::collections::BTreeMap;

use latput_knobs::{Knob, Place, Setting, State, Value};
use latput_sim::SystemProfile;
use latput_sim::machine::Qdisc;
use latput_sim::profile::HostProfile;
use latput_stats::order::middle;
use latput_trial::observation::{HostObservation, Role};
use latput_trial::{Results, Workload};
use latput_units::text::format_count;
use latput_units::{BitsPerSecond, Bytes, IntoMap, Nanos};

use self::figure::FittedFigure;
use crate::parameter::{self, FreeParameter, GeneratorCosts, Parameter};
use crate::result::{CostCombination, ErrorSummary, FittedCost};
use crate::search::{CostSearch, OTHER_SEED, SearchEffort, WeightedResidual};

/// The rows for a calibration, as a plan for hosts with NAPI deferral.
pub const PLAN: &str = include_str!("../../../examples/twin.toml");
/// The start profile of a twin.
const BASE: &str = "server-10g";
/// Fitted costs, the most important first; at most three for five figures.
const FREE: &[Parameter] = &[
    Parameter::App,
    Parameter::Interrupt,
    Parameter::RxPacket,
    Parameter::Latency,
    Parameter::TxPacket,
    Parameter::Copy,
    Parameter::Wake,
    Parameter::Generator,
];
/// Fitted costs of hosts that hand packets over in memory: no wire, but sleeping threads and
/// timers.
const FREE_OF_HANDOVER: &[Parameter] = &[
    Parameter::App,
    Parameter::Wake,
    Parameter::Interrupt,
    Parameter::TxPacket,
    Parameter::Copy,
    Parameter::RxPacket,
    Parameter::Timer,
    Parameter::TimerArm,
    Parameter::Poll,
    Parameter::IdleExit,
    Parameter::Sleep,
    Parameter::RxMerged,
];
/// Simulated time of a full prediction, after [`WARMUP`].
const DURATION: Nanos = Nanos::from_ms(250);
/// Simulated time before a prediction.
const WARMUP: Nanos = Nanos::from_ms(20);
/// Rate of a link that is no limit.
const UNLIMITED: BitsPerSecond = BitsPerSecond::new(100_000_000_000);
/// Variation of the costs of a virtual machine, whose hypervisor runs its timers and wake-ups.
const UNSTEADY: f64 = 0.9;
/// Start value of the timer costs, before the rows scale it. The hypervisor programs the timer and
/// starts the CPU.
const TIMER: Nanos = Nanos::from_us(4);
const IDLE_EXIT: Nanos = Nanos::from_us(8);
/// Latency of a packet that is handed over in memory.
const IN_MEMORY: Nanos = Nanos::from_ns(500);
/// Weight of the prior. It is small, since live hosts differ widely.
const PRIOR_WEIGHT: f64 = 0.002;
/// `VETH_RING_SIZE` of the kernel's `drivers/net/veth.c`.
const VETH_RING: u32 = 256;
/// Bytes of data in a packet of Ethernet's usual MTU (RFC 879 less the timestamps of RFC 7323).
const FULL_PACKET: u64 = 1_448;
/// Most bytes of a profile's name.
const MOST_NAME: usize = 40;
/// Share of a link's rate above which the link may limit a row.
const FULL: f64 = 0.97;

/// One cell of the rows: setting, workload and measured figures.
#[derive(Clone, Debug)]
struct LiveCell {
    /// The setting and the workload in words.
    label: String,
    setting: BTreeMap<Role, Setting>,
    load: Workload,
    figures: Vec<(FittedFigure, f64, f64)>,
}

/// A simulation of one cell under a profile.
#[derive(Clone, Debug)]
pub struct SimulationJob {
    profile: SystemProfile,
    setting: BTreeMap<Role, Setting>,
    load: Workload,
    seed: u64,
    duration: Nanos,
}

impl SimulationJob {
    /// Simulates the cell. `None` if the profile or the setting cannot be simulated.
    pub fn run(&self) -> Option<PredictedFigures> {
        let mut profile = self.profile.clone();
        for (role, setting) in &self.setting {
            profile.set_knobs(*role, setting).ok()?;
        }
        let mut scenario = profile.build_scenario(&self.load, self.seed, self.duration).ok()?;
        scenario.warmup = WARMUP;
        let observation = latput_sim::run(&scenario).ok()?.build_observation(&scenario, 0);
        let value = |(figure, _): (FittedFigure, f64)| {
            Some((figure, figure.predicted_value(&self.load, &observation)?))
        };
        Some(PredictedFigures(
            FittedFigure::for_traffic(&self.load.traffic).filter_map(value).into_map(),
        ))
    }
}

/// The predicted figures of a cell.
#[derive(Clone, Debug)]
pub struct PredictedFigures(BTreeMap<FittedFigure, f64>);

/// Runs jobs in any order or in parallel. Returns results in the order of the jobs.
type RunJobs<'a> = &'a dyn Fn(&[SimulationJob]) -> Vec<Option<PredictedFigures>>;

/// A calibrated profile with its costs and errors.
#[derive(Clone, Debug)]
pub struct Twin {
    /// The profile.
    pub profile: SystemProfile,
    /// Each cost with a 90% interval.
    pub costs: Vec<FittedCost>,
    /// Combinations of costs that the rows fix, best known first.
    pub combinations: Vec<CostCombination>,
    /// Relative errors of the rates of the fitted rows.
    pub in_sample: Option<ErrorSummary>,
}

impl Twin {
    /// The text of the profile's file.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        let mut text = String::from("# Made by `latput model twin`. Fitted, with 90% intervals:\n");
        text.extend(self.costs.iter().map(FittedCost::to_comment));
        Ok(text + &toml::to_string(&self.profile)?)
    }
}

/// A reason why no twin could be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TwinError {
    /// The profile cannot be called so.
    #[error("the name of a profile has 1 to {MOST_NAME} bytes and no control character")]
    Name,
    /// No row has observations of both hosts.
    #[error("no row has a generator and a system under test with CPUs of their own")]
    NoHosts,
    /// The rows have too few figures to fit.
    #[error(
        "{} of {} under workloads; a twin needs at least 8: run the plan that `latput plan twin` prints",
        format_count(*figures, "figure"), format_count(*cells, "setting")
    )]
    TooFew {
        /// Number of figures.
        figures: usize,
        /// Number of cells.
        cells: usize,
    },
    /// The simulator cannot simulate the rows.
    #[error("`{label}` cannot be simulated: leave it out of the rows")]
    Unsimulated {
        /// The cell.
        label: String,
    },
}

/// The cells of the rows; each figure is the median over its runs.
fn collect_cells(results: &Results) -> Vec<LiveCell> {
    let mut found = Vec::new();
    for (s, set) in results.settings.iter().enumerate() {
        for (w, load) in results.workloads.iter().enumerate() {
            let rows = || results.rows.iter().filter(|row| (row.setting, row.workload) == (s, w));
            let median = |(figure, weight): (FittedFigure, f64)| {
                let values = rows().filter_map(|row| figure.measured_value(load, &row.observation));
                Some((figure, middle(values)?, weight))
            };
            let figures: Vec<_> =
                FittedFigure::for_traffic(&load.traffic).filter_map(median).collect();
            if !figures.is_empty() {
                let label = format!("{} under {}", load.name, set.label);
                let (setting, load) = (set.by_role.clone(), load.clone());
                found.push(LiveCell { label, setting, load, figures });
            }
        }
    }
    found
}

/// Calibrates a profile called `name` on the rows. `said` receives progress texts.
pub fn calibrate_twin(
    results: &Results,
    name: &str,
    run: RunJobs<'_>,
    said: &mut dyn FnMut(String),
) -> Result<Twin, TwinError> {
    if !(1..=MOST_NAME).contains(&name.len()) || name.contains(char::is_control) {
        return Err(TwinError::Name);
    }
    let cells = collect_cells(results);
    let figures: usize = cells.iter().map(|cell| cell.figures.len()).sum();
    if figures < 8 {
        return Err(TwinError::TooFew { figures, cells: cells.len() });
    }
    let base = build_base_profile(results, name)?;
    let jobs = |profile: &SystemProfile, seed: u64, effort: f64| -> Vec<SimulationJob> {
        let duration = Nanos::from_secs_f64(DURATION.as_secs_f64() * effort);
        let job = |cell: &LiveCell| SimulationJob {
            profile: profile.clone(),
            setting: cell.setting.clone(),
            load: cell.load.clone(),
            seed,
            duration,
        };
        cells.iter().map(job).collect()
    };
    let residuals = |profile: &SystemProfile,
                     seed: u64,
                     effort: f64|
     -> Vec<(FittedFigure, WeightedResidual)> {
        let predicted = run(&jobs(profile, seed, effort));
        let residuals = cells.iter().zip(predicted).flat_map(|(cell, predicted)| {
            let residual = move |&(figure, measured, weight): &(FittedFigure, f64, f64)| {
                let found = predicted.as_ref().and_then(|of| of.0.get(&figure)).copied();
                (figure, WeightedResidual::new(found.unwrap_or(0.0), measured, weight))
            };
            cell.figures.iter().map(residual).collect::<Vec<_>>()
        });
        residuals.collect()
    };
    let first = run(&jobs(&base, 1, 0.1));
    if let Some((cell, _)) = cells.iter().zip(&first).find(|(_, found)| found.is_none()) {
        return Err(TwinError::Unsimulated { label: cell.label.clone() });
    }
    let base = scale_costs(base.clone(), &cells, &first);
    let order = if base.sut.nic.handover { FREE_OF_HANDOVER } else { FREE };
    let free: Vec<FreeParameter> = order[..order.len().min(figures * 3 / 5)]
        .iter()
        .map(|&parameter| FreeParameter { parameter, start: parameter.get(&base) })
        .collect();
    let weighed = |profile: &SystemProfile, seed, effort| {
        residuals(profile, seed, effort).into_iter().map(|(_, weighed)| weighed).collect()
    };
    let search = CostSearch {
        base: &base,
        fixed: &[],
        free: &free,
        generators: GeneratorCosts::Follow,
        residuals: &weighed,
        prior_weight: PRIOR_WEIGHT,
    };
    let found = search.find_optimum(None, SearchEffort::default(), said);
    let profile = search.build_profile(&found.at);
    let whole = residuals(&profile, OTHER_SEED, 1.0);
    let all: Vec<WeightedResidual> = whole.iter().map(|(_, weighed)| *weighed).collect();
    let (costs, combinations) = search.estimate_uncertainty(&found.at, &all);
    let of_rates = whole.iter().filter(|(figure, _)| *figure == FittedFigure::Rate);
    let in_sample = ErrorSummary::from_errors(of_rates.map(|(_, weighed)| weighed.log.exp() - 1.0));
    Ok(Twin { profile, costs, combinations, in_sample })
}

/// A start profile with the properties of the rows' hosts.
fn build_base_profile(results: &Results, name: &str) -> Result<SystemProfile, TwinError> {
    let mut profile: SystemProfile = SystemProfile::find_shipped(BASE).expect("it is shipped");
    name.clone_into(&mut profile.name);
    profile.source = format!(
        "calibrated on {} of `{}` on {}",
        format_count(results.rows.len(), "row"),
        results.name,
        results.testbed
    );
    profile.generator = Some(profile.sut.clone());
    for role in [Role::Sut, Role::Generator] {
        let hosts = || results.rows.iter().flat_map(|row| &row.observation.hosts);
        let host = hosts().find(|host| host.role == role && !host.cpus.is_empty());
        let host = host.ok_or(TwinError::NoHosts)?;
        let described = match role {
            Role::Sut => Some(&mut profile.sut),
            _ => profile.generator.as_mut(),
        };
        if let Some(described) = described {
            copy_host_properties(described, host);
        }
        let known = [Knob::Mtu, Knob::Gro, Knob::Tso, Knob::Threaded, Knob::RxUsecs, Knob::TxUsecs];
        for (knob, value) in
            known.into_iter().filter_map(|knob| Some((knob, read(&host.state, knob)?)))
        {
            // Settings that are not simulated stay as in the profile.
            let _unless_refused = profile.set_knobs(role, &Setting::from([(knob, value)]));
        }
    }
    if profile.sut.nic.handover {
        profile.network.latency = IN_MEMORY;
    }
    let fastest = results.rows.iter().filter_map(|row| {
        let load = results.workloads.get(row.workload)?;
        row.observation.traffic.goodput_bps(&load.traffic)
    });
    let fastest = fastest.fold(0.0, f64::max);
    if fastest > FULL * profile.network.rate.get() as f64 {
        profile.network.rate = UNLIMITED;
    }
    Ok(profile)
}

/// Scales the costs of `base` by the error of its first predictions, since a search that begins a
/// factor of ten away does not converge. Transactions scale the costs of wake-ups; bulk scales
/// those of packets and bytes.
fn scale_costs(
    mut base: SystemProfile,
    cells: &[LiveCell],
    first: &[Option<PredictedFigures>],
) -> SystemProfile {
    let factor = |is_bulk: bool| {
        let own = cells.iter().zip(first);
        let own = own.filter(|(cell, _)| cell.load.traffic.is_transactional() != is_bulk);
        let logs = own.flat_map(|(cell, predicted)| {
            let of_cpu = cell.figures.iter().filter(|(figure, ..)| {
                matches!(figure, FittedFigure::Cpu(_) | FittedFigure::OwnCpu(_))
            });
            let log = |(figure, measured, _): &(FittedFigure, f64, f64)| {
                let found = predicted.as_ref()?.0.get(figure).filter(|found| **found > 0.0)?;
                Some((measured / found).ln())
            };
            of_cpu.filter_map(log).collect::<Vec<f64>>()
        });
        let logs: Vec<f64> = logs.collect();
        let mean = logs.iter().sum::<f64>() / logs.len().max(1) as f64;
        mean.exp().clamp(0.1, 30.0)
    };
    let (of_wakes, of_bytes) = (factor(false), factor(true));
    let free = Parameter::ALL_COSTS.iter().map(|&parameter| {
        let factor = match parameter {
            Parameter::RxPacket | Parameter::RxMerged | Parameter::TxPacket | Parameter::Copy => {
                of_bytes
            }
            _ => of_wakes,
        };
        (parameter, factor * parameter.get(&base))
    });
    let free: Vec<(Parameter, f64)> = free.collect();
    parameter::set_all(&mut base, &free, GeneratorCosts::Follow);
    base
}

/// Copies the properties of an observed host.
fn copy_host_properties(profile: &mut HostProfile, host: &HostObservation) {
    profile.machine.cores = u32::try_from(host.cpus.len()).unwrap_or(1).clamp(1, 1_024);
    let queues = host.state.0.keys().filter_map(|(_, place)| match place {
        Place::Napi(queue) | Place::RxQueue(queue) => Some(queue + 1),
        _ => None,
    });
    let nic = &mut profile.nic;
    nic.queues = queues.max().unwrap_or(1).clamp(1, profile.machine.cores);
    nic.irq_cores = (0..nic.queues).collect();
    if read(&host.state, Knob::RxUsecs).is_none() {
        hand_over(profile);
    }
}

/// Sets up a veth pair, which has no interrupts to moderate.
fn hand_over(profile: &mut HostProfile) {
    let HostProfile { machine, nic, stack } = profile;
    nic.coalescing = latput_sim::vector::Coalescing::default();
    nic.adaptation = None;
    nic.handover = true;
    nic.rx_ring = VETH_RING;
    // A sender that overflows the ring loses packets, and then keeps as many in flight as the ring
    // holds. The simulated TCP has no SACK and would collapse instead. So its window equals the
    // ring, and PAUSE stops the rest.
    stack.receive_buffer = Bytes::new(u64::from(VETH_RING) * FULL_PACKET);
    nic.fifo = Bytes::new(65_536);
    nic.pause = true;
    stack.bql = None;
    stack.qdisc = Qdisc::Pfifo { limit_packets: 10_000 };
    machine.costs.sleep = machine.costs.wake;
    machine.costs.jitter_ratio = UNSTEADY;
    (machine.costs.timer, machine.costs.timer_arm, machine.idle_exit) = (TIMER, TIMER, IDLE_EXIT);
}

/// The value of a knob at any place.
fn read(state: &State, knob: Knob) -> Option<Value> {
    state.0.iter().find(|((of, _), _)| *of == knob).map(|(_, value)| value.clone())
}
