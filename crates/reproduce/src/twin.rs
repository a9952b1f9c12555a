//! A twin: a simulator profile of a host pair, calibrated on a few rows that were measured there.
//!
//! What the rows show of the hosts (CPUs, MTU, offloads, NAPI) is taken over, and the few costs are fitted by
//! the search that published cells are fitted by.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use latput_knobs::{Knob, Place, Setting, State, Value};
use latput_sim::Profile;
use latput_sim::profile::HostProfile;
use latput_trial::observation::{HostObservation, Role};
use latput_trial::{Metric, Results, Workload};
use latput_units::{BitsPerSecond, Nanos};

use crate::calibrate::engine::{Engine, OTHER_SEED, Weighed};
use crate::calibrate::{Combination, Errors, FittedCost, Free, Parameter};

/// Which rows a twin is calibrated on, as a plan for hosts whose NAPI can be deferred.
pub const PLAN: &str = include_str!("../../../examples/twin.toml");
/// What a twin begins with.
const BASE: &str = include_str!("../../../data/systems/server-10g.toml");
/// The figures that are fitted, and what each weighs.
const FIGURES: [(Metric, f64); 5] = [
    (Metric::TransactionsPerS, 1.0),
    (Metric::ThroughputBps, 1.0),
    (Metric::LatencyNsP50, 0.5),
    (Metric::SutServiceDemandUs, 0.5),
    (Metric::GeneratorServiceDemandUs, 0.5),
];
/// The costs that are fitted, the most important first; as many as half of the figures.
const FREE: [Parameter; 8] = [
    Parameter::App,
    Parameter::Interrupt,
    Parameter::RxPacket,
    Parameter::Latency,
    Parameter::TxPacket,
    Parameter::Copy,
    Parameter::Wake,
    Parameter::Generator,
];
/// Simulated time of a whole prediction, after [`WARMUP`].
const DURATION: Nanos = Nanos::from_ms(100);
/// Simulated time before it.
const WARMUP: Nanos = Nanos::from_ms(5);
/// The network of hosts whose link is no limit.
const UNLIMITED: BitsPerSecond = BitsPerSecond::new(100_000_000_000);
/// A row at this share of a link's rate may be limited by it.
const FULL: f64 = 0.97;

/// One cell of the rows: what was set, what flowed and what was measured.
#[derive(Clone, Debug)]
pub struct LiveCell {
    /// The setting and the workload in a few words.
    pub label: String,
    setting: BTreeMap<Role, Setting>,
    load: Workload,
    figures: Vec<(Metric, f64, f64)>,
}

/// A cell under a profile, to be simulated.
#[derive(Clone, Debug)]
pub struct Job {
    profile: Profile,
    setting: BTreeMap<Role, Setting>,
    load: Workload,
    seed: u64,
    duration: Nanos,
}

impl Job {
    /// Simulates it: a figure for each metric that it has. `None` where the profile or the setting cannot be
    /// simulated.
    pub fn run(&self) -> Option<BTreeMap<Metric, f64>> {
        let mut profile = self.profile.clone();
        for (role, setting) in &self.setting {
            profile.set(*role, setting).ok()?;
        }
        let mut scenario = profile.scenario(&self.load, self.seed, self.duration).ok()?;
        scenario.warmup = WARMUP;
        let observation = latput_sim::run(&scenario).ok()?.observation(&scenario, 0);
        let figure =
            |metric: &Metric| Some((*metric, metric.value(&self.load.traffic, &observation)?));
        Some(FIGURES.iter().filter_map(|(metric, _)| figure(metric)).collect())
    }
}

/// Runs jobs, in any order or in parallel; results in theirs.
pub type RunJobs<'a> = &'a dyn Fn(&[Job]) -> Vec<Option<BTreeMap<Metric, f64>>>;

/// A calibrated profile and what it is worth.
#[derive(Clone, Debug)]
pub struct Twin {
    /// The profile.
    pub profile: Profile,
    /// Each cost with a 90 % interval.
    pub costs: Vec<FittedCost>,
    /// Which products of costs the rows fix, best known first.
    pub combinations: Vec<Combination>,
    /// Relative errors of the rates of the rows themselves.
    pub in_sample: Option<Errors>,
}

impl Twin {
    /// As a file of a profile.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        let mut text =
            String::from("# Made by `latput model twin`. Fitted, with 90 % intervals:\n");
        for FittedCost { parameter, value, low, high } in &self.costs {
            let (name, unit) = (parameter.name(), parameter.unit());
            let _ = writeln!(text, "#   {name:<11} {value:>9.2} {unit:<7} {low:.2} to {high:.2}");
        }
        Ok(text + &toml::to_string(&self.profile)?)
    }
}

/// Why there is no twin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TwinError {
    /// No row has both ends.
    #[error("no row has a generator and a system under test with CPUs of their own")]
    NoHosts,
    /// Too little to fit.
    #[error(
        "{figures} figures of {cells} settings under workloads; a twin needs at least 8: run the plan that \
         `latput plan twin` prints"
    )]
    TooFew {
        /// How many figures.
        figures: usize,
        /// Of how many cells.
        cells: usize,
    },
    /// Rows that the simulator cannot stand for.
    #[error("`{label}` cannot be simulated: leave it out of the rows")]
    Unsimulated {
        /// The cell.
        label: String,
    },
}

/// The cells of some rows, each figure the median over its runs.
pub fn cells(results: &Results) -> Vec<LiveCell> {
    let mut found = Vec::new();
    for (s, set) in results.settings.iter().enumerate() {
        for (w, load) in results.workloads.iter().enumerate() {
            let rows = || results.rows.iter().filter(|row| (row.setting, row.workload) == (s, w));
            let figure = |(metric, weight): &(Metric, f64)| {
                let values = rows().filter_map(|row| metric.value(&load.traffic, &row.observation));
                let mut values: Vec<f64> = values.filter(|value| *value > 0.0).collect();
                values.sort_by(f64::total_cmp);
                let middle = values.get(values.len() / 2)?;
                Some((*metric, *middle, *weight))
            };
            let figures: Vec<_> = FIGURES.iter().filter_map(figure).collect();
            if !figures.is_empty() {
                let label = format!("{} under {}", load.name, set.label);
                let (setting, load) = (set.by_role.clone(), load.clone());
                found.push(LiveCell { label, setting, load, figures });
            }
        }
    }
    found
}

/// Calibrates a profile called `name` on the rows. `said` hears of progress.
pub fn twin(
    results: &Results,
    name: &str,
    run: RunJobs<'_>,
    said: &mut dyn FnMut(String),
) -> Result<Twin, TwinError> {
    let cells = cells(results);
    let figures: usize = cells.iter().map(|cell| cell.figures.len()).sum();
    if figures < 8 {
        return Err(TwinError::TooFew { figures, cells: cells.len() });
    }
    let base = base(results, name)?;
    let jobs = |profile: &Profile, seed: u64, effort: f64| -> Vec<Job> {
        let duration = Nanos::from_secs_f64(DURATION.as_secs_f64() * effort);
        let job = |cell: &LiveCell| Job {
            profile: profile.clone(),
            setting: cell.setting.clone(),
            load: cell.load.clone(),
            seed,
            duration,
        };
        cells.iter().map(job).collect()
    };
    let residuals = |profile: &Profile, seed: u64, effort: f64| {
        let predicted = run(&jobs(profile, seed, effort));
        let residuals = cells.iter().zip(predicted).flat_map(|(cell, predicted)| {
            let residual = |&(metric, measured, weight): &(Metric, f64, f64)| {
                let found = predicted.as_ref().and_then(|of| of.get(&metric)).copied();
                Weighed::of(found.unwrap_or(0.0), measured, weight)
            };
            cell.figures.iter().map(residual).collect::<Vec<_>>()
        });
        residuals.collect::<Vec<Weighed>>()
    };
    let first = run(&jobs(&base, 1, 0.1));
    if let Some((cell, _)) = cells.iter().zip(&first).find(|(_, found)| found.is_none()) {
        return Err(TwinError::Unsimulated { label: cell.label.clone() });
    }
    let free: Vec<Free> = FREE[..FREE.len().min(figures / 2)]
        .iter()
        .map(|&parameter| Free { parameter, start: parameter.get(&base) })
        .collect();
    let engine = Engine { base: &base, fixed: &[], free: &free, residuals: &residuals };
    let found = engine.best(None, (22, 40), said);
    let profile = engine.profile(&found.at);
    let whole = residuals(&profile, OTHER_SEED, 1.0);
    let (costs, combinations) = engine.uncertainty(&found.at, &whole);
    let metrics = cells.iter().flat_map(|cell| cell.figures.iter().map(|(metric, ..)| metric));
    let is_rate =
        |metric: &Metric| matches!(metric, Metric::TransactionsPerS | Metric::ThroughputBps);
    let rates = metrics.zip(&whole).filter(|(metric, _)| is_rate(metric));
    let in_sample = Errors::of(rates.map(|(_, it)| it.log.exp() - 1.0));
    Ok(Twin { profile, costs, combinations, in_sample })
}

/// A profile with what the rows show of their hosts, and costs to begin with.
fn base(results: &Results, name: &str) -> Result<Profile, TwinError> {
    let mut profile: Profile = toml::from_str(BASE).expect("a shipped profile, which tests read");
    name.clone_into(&mut profile.name);
    profile.source = format!(
        "calibrated on {} rows of `{}` on {}",
        results.rows.len(),
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
            describe(described, host);
        }
        let known = [Knob::Mtu, Knob::Gro, Knob::Tso, Knob::Threaded, Knob::RxUsecs, Knob::TxUsecs];
        for (knob, value) in
            known.into_iter().filter_map(|knob| Some((knob, read(&host.state, knob)?)))
        {
            // What is not simulated stays as the profile has it.
            let _unless_refused = profile.set(role, &Setting::from([(knob, value)]));
        }
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

/// Takes over what a host is made of.
fn describe(profile: &mut HostProfile, host: &HostObservation) {
    profile.machine.cores = u32::try_from(host.cpus.len()).unwrap_or(1).clamp(1, 1_024);
    let queues = host.state.0.keys().filter_map(|(_, place)| match place {
        Place::Napi(queue) | Place::RxQueue(queue) => Some(queue + 1),
        _ => None,
    });
    let nic = &mut profile.nic;
    nic.queues = queues.max().unwrap_or(1).clamp(1, profile.machine.cores);
    nic.irq_cores = (0..nic.queues).collect();
    if read(&host.state, Knob::RxUsecs).is_none() {
        // No interrupts that could be held back, as on a veth pair.
        nic.coalescing = latput_sim::vector::Coalescing::default();
    }
}

/// The value of a knob, wherever it is.
fn read(state: &State, knob: Knob) -> Option<Value> {
    state.0.iter().find(|((of, _), _)| *of == knob).map(|(_, value)| value.clone())
}
