//! Splits round trips and CPU time under each setting into waiting, queueing and costs, each with
//! its interval or the reason why it is unknown.
//!
//! The cost model (`crate::fit`) splits CPU time. Settings and workloads that differ in one thing
//! split round trips: the same setting with less delay shows the wait for the timer, the same
//! workload with one request in flight shows the wait for other requests.

use std::collections::{BTreeMap, BTreeSet};

use latput_knobs::{Knob, Setting, Value};
use latput_stats::order;
use latput_trial::observation::Role;
use latput_trial::{Metric, Results};
use latput_units::{IntoMap, Nanos};

use crate::fit::{
    CellFigures, CostModel, CostObstacle, CostTerm, FitError, collect_role_cells, fit_cost_models,
};
use crate::runs::{RunTable, busy_cells};

/// The knobs that hold packets back, and those that depend on them.
const MODERATION: &[Knob] = &[
    Knob::InterruptThrottleRate,
    Knob::RxIntDelay,
    Knob::RxAbsIntDelay,
    Knob::TxIntDelay,
    Knob::TxAbsIntDelay,
    Knob::AdaptiveRx,
    Knob::AdaptiveTx,
    Knob::RxUsecs,
    Knob::RxFrames,
    Knob::TxUsecs,
    Knob::TxFrames,
    Knob::NapiDeferHardIrqs,
    Knob::GroFlushTimeout,
];

/// The parts of one setting's figures under one workload.
#[derive(Clone, Debug, PartialEq)]
pub struct CellExplanation {
    /// Index into the settings.
    pub setting: usize,
    /// Index into the workloads.
    pub workload: usize,
    /// Mean round trip in nanoseconds, median over runs; `None` where the workload has no round
    /// trips.
    pub round_trip_ns: Option<f64>,
    /// Parts of the round trip; empty without one.
    pub time: Vec<(RoundTripStage, TimePart)>,
    /// Busy CPU nanoseconds of the system under test per second.
    pub busy_ns_per_s: f64,
    /// Other work ran on its CPUs in most runs: the busy time is that work's as well.
    pub is_shared: bool,
    /// Utilisation of the busiest CPU of the system under test, 0 to 1, median over runs.
    pub busiest_cpu_ratio: Option<f64>,
    /// Parts of the CPU time of the system under test, in nanoseconds per second: one for each term
    /// with a known cost.
    pub cpu: Vec<(CostTerm, TimePart)>,
    /// Terms without a known cost, because the plan does not tell them apart. Their costs are in
    /// the unexplained part.
    pub not_told_apart: Vec<CostTerm>,
    /// Unexplained part of the CPU time, 0 to 1.
    pub unexplained_ratio: f64,
}

/// A stage of a round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RoundTripStage {
    /// Held back by interrupt moderation or deferred polls, at either end.
    Timer,
    /// Wait behind other requests in flight.
    Queueing,
    /// CPU time of both ends for one request alone.
    Cpu,
    /// The remainder: wire, wake-ups and other waits without CPU time.
    Rest,
}

impl RoundTripStage {
    /// The description in tables.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Timer => "moderation delay",
            Self::Queueing => "queueing behind other requests",
            Self::Cpu => "CPU time of both ends",
            Self::Rest => "wire, wake-ups, other",
        }
    }

    /// The name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Timer => "timer",
            Self::Queueing => "queueing",
            Self::Cpu => "cpu",
            Self::Rest => "rest",
        }
    }
}

/// A part with its interval, or why it is not known.
#[derive(Clone, Debug, PartialEq)]
pub enum TimePart {
    /// A known amount.
    Known {
        /// The amount, nanoseconds.
        ns: f64,
        /// Lower end of its interval.
        ns_low: f64,
        /// Upper end of its interval.
        ns_high: f64,
        /// The actual confidence of the interval.
        confidence: f64,
    },
    /// No such part, with the reason.
    None(&'static str),
    /// Unknown, with the reason and the remedy.
    Unknown(&'static str),
}

/// Why a part is not known where the runs give what cannot be.
const BELOW_NOTHING: &str = "trials differ by more than this cost. Raise `repetitions`, or measure settings further \
                             apart";
const ABOVE_THE_WHOLE: &str = "trials differ by more than the round trip. Raise `repetitions`";
const CPU_BESIDE: &str = "both ends use more CPU time than the round trip takes";
const TOO_MUCH_TOGETHER: &str = "the parts add up to more than the round trip. Raise `repetitions`";
const SAVES_TIME: &str = "the delay costs less time than its fewer interrupts save";
const SHORTER_QUEUE: &str = "only known for the smallest delay, where the queue is longer";
const OTHER_WORK: &str = "other programs ran on these CPUs (check `other-work`)";
const OTHER_COSTS: &str = "the fitted costs add up to more than was measured here";
/// Parts of medians may add up to so much of the median of the whole.
const MOST_TOGETHER: f64 = 1.1;

impl TimePart {
    const fn known_ns(&self) -> Option<f64> {
        match self {
            Self::Known { ns, .. } => Some(*ns),
            Self::None(_) => Some(0.0),
            Self::Unknown(_) => None,
        }
    }

    /// No part, for this reason, if all of its interval is below nothing.
    fn or_none_if_negative(self, reason: &'static str) -> Self {
        let is_negative = matches!(self, Self::Known { ns_high, .. } if ns_high < 0.0);
        if is_negative { Self::None(reason) } else { self }
    }

    /// The part, if it can be: not below nothing and not above the whole. The truth lies there, so that the interval
    /// is cut to it.
    fn clamp_to_whole(self, whole_ns: f64, above: &'static str) -> Self {
        let Self::Known { ns, ns_low, ns_high, confidence } = self else { return self };
        if ns < 0.0 {
            Self::Unknown(BELOW_NOTHING)
        } else if ns > whole_ns {
            Self::Unknown(above)
        } else {
            let [ns_low, ns_high] = [ns_low, ns_high].map(|end| end.clamp(0.0, whole_ns));
            Self::Known { ns, ns_low, ns_high, confidence }
        }
    }
}

/// The cost models of the system under test, by kind of workload: a packet of a one-byte request
/// costs other work than one of a stream.
pub fn fit_models(
    results: &Results,
    wanted: impl Fn(usize) -> bool,
) -> Result<BTreeMap<&'static str, CostModel>, FitError> {
    let kind = |load: usize| results.workloads[load].traffic.kind();
    let mut models = BTreeMap::new();
    for of in (0..results.workloads.len()).filter(|load| wanted(*load)).map(kind) {
        let fitted =
            fit_cost_models(results, |load| wanted(load) && kind(load) == of, results.confidence);
        let of_sut = match fitted {
            Err(FitError::NoHosts) => None, // a kind without rows yet
            fitted => fitted?.into_iter().find(|model| model.role == Role::Sut),
        };
        models.extend(of_sut.map(|model| (of, model)));
    }
    if models.is_empty() { Err(FitError::NoHosts) } else { Ok(models) }
}

/// Splits every cell of `results` by the cost models of the system under test.
pub fn explain_cells(
    results: &Results,
    models: &BTreeMap<&str, CostModel>,
) -> Vec<CellExplanation> {
    let runs = RunTable::from_all_rows(results);
    let busy = busy_cells(results);
    let figures: BTreeMap<(usize, usize), CellFigures> = collect_role_cells(results, Role::Sut)
        .into_iter()
        .map(|cell| ((cell.setting, cell.workload), cell))
        .into_map();
    let explained = |(setting, workload): (usize, usize)| {
        let figures = figures.get(&(setting, workload));
        let model = models.get(results.workloads[workload].traffic.kind());
        let is_shared = busy.contains(&(setting, workload));
        let cpu = split_cpu_time(model, figures, is_shared);
        let busy_ns_per_s = figures.map_or(0.0, |figures| figures.busy);
        let cell = CellContext { results, runs: &runs, busy: &busy, setting, workload };
        CellExplanation {
            setting,
            workload,
            round_trip_ns: cell.median_figure(setting, workload, Metric::LatencyNsMean),
            time: cell.split_round_trip(),
            busy_ns_per_s,
            is_shared,
            busiest_cpu_ratio: busiest_cpu_ratio(results, setting, workload),
            not_told_apart: model.map_or_else(Vec::new, find_indistinct_terms),
            unexplained_ratio: unexplained_share(&cpu, busy_ns_per_s),
            cpu,
        }
    };
    runs.cells().map(|(at, _)| explained(at)).collect()
}

/// The share of the busy time that the known parts leave; 0 for an idle host.
fn unexplained_share(parts: &[(CostTerm, TimePart)], busy_ns_per_s: f64) -> f64 {
    let known: f64 = parts.iter().filter_map(|(_, amount)| amount.known_ns()).sum();
    if busy_ns_per_s > 0.0 { 1.0 - known / busy_ns_per_s } else { 0.0 }
}

/// `is_shared`: the busy time is other work's as well.
fn split_cpu_time(
    model: Option<&CostModel>,
    figures: Option<&CellFigures>,
    is_shared: bool,
) -> Vec<(CostTerm, TimePart)> {
    let (Some(model), Some(figures)) = (model, figures) else { return Vec::new() };
    let part = |term: CostTerm| {
        let cost = model.cost(term)?;
        let count = figures.counts[term as usize]?;
        Some((term, [cost.ns, cost.ns_low, cost.ns_high].map(|cost| cost * count)))
    };
    let parts: Vec<(CostTerm, [f64; 3])> = CostTerm::ALL.into_iter().filter_map(part).collect();
    // The least that the costs allow must fit in the whole; then the parts themselves are at most that.
    let least: f64 = parts.iter().map(|(_, [_, low, _])| low).sum();
    let known = |(term, ends): (CostTerm, [f64; 3])| {
        let [ns, ns_low, ns_high] = ends.map(|ns| ns.min(figures.busy));
        (term, TimePart::Known { ns, ns_low, ns_high, confidence: model.confidence })
    };
    let unknown = |why| move |(term, _)| (term, TimePart::Unknown(why));
    let parts = parts.into_iter();
    match least <= figures.busy {
        _ if is_shared => parts.map(unknown(OTHER_WORK)).collect(),
        true => parts.map(known).collect(),
        false => parts.map(unknown(OTHER_COSTS)).collect(),
    }
}

fn find_indistinct_terms(model: &CostModel) -> Vec<CostTerm> {
    let refused = model.terms.iter().filter(|fitted| {
        let why = fitted.finding.as_ref().err().map(|refusal| refusal.why);
        !fitted.term.is_extra()
            && matches!(
                why,
                Some(
                    CostObstacle::MovesWith(_)
                        | CostObstacle::Uncertain
                        | CostObstacle::TooFewCells
                )
            )
    });
    refused.map(|fitted| fitted.term).collect()
}

fn busiest_cpu_ratio(results: &Results, setting: usize, workload: usize) -> Option<f64> {
    let rows = results.rows.iter().filter(|row| (row.setting, row.workload) == (setting, workload));
    let hosts = rows.flat_map(|row| &row.observation.hosts).filter(|host| host.role == Role::Sut);
    let busiest = |host: &latput_trial::observation::HostObservation| {
        let ratio = |time: latput_trial::observation::CpuTime| {
            let total = time.total().as_secs_f64();
            (total > 0.0).then(|| time.busy().as_secs_f64() / total)
        };
        host.cpus.iter().filter_map(|cpu| ratio(cpu.time)).max_by(f64::total_cmp)
    };
    order::middle(hosts.filter_map(busiest))
}

/// A cell and the results around it.
struct CellContext<'a> {
    results: &'a Results,
    runs: &'a RunTable<'a>,
    /// Cells whose CPUs were shared with other work.
    busy: &'a BTreeSet<(usize, usize)>,
    setting: usize,
    workload: usize,
}

impl CellContext<'_> {
    fn split_round_trip(&self) -> Vec<(RoundTripStage, TimePart)> {
        let whole = self.median_figure(self.setting, self.workload, Metric::LatencyNsMean);
        let Some(whole) = whole else { return Vec::new() };
        let least = self.least_delay();
        let timer = self.timer_part(least).or_none_if_negative(SAVES_TIME);
        let base = least.unwrap_or(self.setting);
        let single = self.single_request_workload();
        let queueing = match single {
            Some(single) if single == self.workload => TimePart::None("one request in flight"),
            // The queue is that without the delay, and there it is longer than here.
            Some(_) if timer == TimePart::None(SAVES_TIME) => TimePart::Unknown(SHORTER_QUEUE),
            Some(single) => self.round_trip_difference((base, self.workload), (base, single)),
            None => TimePart::Unknown("add this workload with one request in flight"),
        };
        let why = "add this workload with one request in flight";
        let unknown = (TimePart::Unknown(why), TimePart::Unknown(why));
        let (cpu, rest) = single.map_or(unknown, |single| self.split_cpu_and_rest(base, single));
        let [timer, queueing, rest] =
            [timer, queueing, rest].map(|part| part.clamp_to_whole(whole, ABOVE_THE_WHOLE));
        let parts = [timer, queueing, cpu.clamp_to_whole(whole, CPU_BESIDE), rest];
        let together: f64 = parts.iter().filter_map(TimePart::known_ns).sum();
        let is_too_much = together > MOST_TOGETHER * whole;
        let parts = parts.map(|part| {
            let is_known = matches!(part, TimePart::Known { .. });
            if is_known && is_too_much { TimePart::Unknown(TOO_MUCH_TOGETHER) } else { part }
        });
        [RoundTripStage::Timer, RoundTripStage::Queueing, RoundTripStage::Cpu, RoundTripStage::Rest]
            .into_iter()
            .zip(parts)
            .collect()
    }

    fn timer_part(&self, least: Option<usize>) -> TimePart {
        match (least, self.longest_delay(self.setting)) {
            (_, Some(Nanos::ZERO)) => TimePart::None("the setting has no delay"),
            (Some(least), held @ Some(_)) if self.longest_delay(least) < held => {
                self.round_trip_difference((self.setting, self.workload), (least, self.workload))
            }
            _ => TimePart::Unknown("add a setting that differs only by a smaller delay"),
        }
    }

    /// The setting that differs from this one only in having the least delay.
    fn least_delay(&self) -> Option<usize> {
        let others = |setting: usize| -> BTreeMap<Role, Setting> {
            let strip = |(role, setting): (&Role, &Setting)| {
                let kept = setting.iter().filter(|(knob, _)| !MODERATION.contains(knob));
                (*role, kept.map(|(knob, value)| (*knob, value.clone())).into_map())
            };
            self.results.settings[setting].by_role.iter().map(strip).into_map()
        };
        let alike =
            (0..self.results.settings.len()).filter(|it| others(*it) == others(self.setting));
        let timed = alike.filter_map(|it| Some((self.longest_delay(it)?, it)));
        timed.min().map(|(_, setting)| setting)
    }

    /// The longest time that a setting holds packets back at any host, by its own values and those
    /// that the hosts had beside it. `None` where neither gives one.
    fn longest_delay(&self, setting: usize) -> Option<Nanos> {
        let set = &self.results.settings[setting].by_role;
        let row = self.results.rows.iter().find(|row| row.setting == setting);
        let found = row.into_iter().flat_map(|row| &row.observation.hosts).filter_map(|host| {
            let values = host.state.0.iter().map(|((knob, _), value)| (*knob, value.clone()));
            find_longest_delay(&values.into_map())
        });
        set.values().filter_map(find_longest_delay).chain(found).max()
    }

    /// The workload that differs from this one only in having one request in flight.
    fn single_request_workload(&self) -> Option<usize> {
        let wanted = self.results.workloads[self.workload].traffic.with_one_request()?;
        let is_wanted = |idx: &usize| self.results.workloads[*idx].traffic == wanted;
        let mut found = (0..self.results.workloads.len()).filter(is_wanted);
        if is_wanted(&self.workload) { Some(self.workload) } else { found.next() }
    }

    /// CPU time of both ends per transaction, and the remainder of the round trip.
    fn split_cpu_and_rest(&self, setting: usize, workload: usize) -> (TimePart, TimePart) {
        if self.busy.contains(&(setting, workload)) {
            return (TimePart::Unknown(OTHER_WORK), TimePart::Unknown(OTHER_WORK));
        }
        let of = |metric| self.runs.figures(setting, workload, metric);
        let (sut, generator) =
            (of(Metric::SutServiceDemandUs), of(Metric::GeneratorServiceDemandUs));
        let trips: BTreeMap<u32, f64> = of(Metric::LatencyNsMean).into_map();
        let generator: BTreeMap<u32, f64> = generator.into_map();
        let both: BTreeMap<u32, f64> = sut
            .into_iter()
            .filter_map(|(block, us)| Some((block, 1e3 * (us + generator.get(&block)?))))
            .into_map();
        let rest = both.iter().filter_map(|(block, cpu)| Some(trips.get(block)? - cpu));
        let rest = rest.collect::<Vec<f64>>();
        let rest = self
            .median_part(&rest)
            .or_none_if_negative("both ends keep working after they have sent");
        (self.median_part(&both.into_values().collect::<Vec<f64>>()), rest)
    }

    /// Mean round trip of cell `of` minus that of cell `from`, paired within blocks.
    fn round_trip_difference(&self, of: (usize, usize), from: (usize, usize)) -> TimePart {
        let trips =
            |(setting, workload)| self.runs.figures(setting, workload, Metric::LatencyNsMean);
        let base: BTreeMap<u32, f64> = trips(from).into_map();
        let pairs = trips(of).into_iter().filter_map(|(block, ns)| Some(ns - base.get(&block)?));
        self.median_part(&pairs.collect::<Vec<f64>>())
    }

    fn median_part(&self, values: &[f64]) -> TimePart {
        match order::median(values, self.results.confidence) {
            Some(found) => TimePart::Known {
                ns: found.value,
                ns_low: found.low,
                ns_high: found.high,
                confidence: found.confidence,
            },
            None => TimePart::Unknown("no block has both"),
        }
    }

    fn median_figure(&self, setting: usize, workload: usize, metric: Metric) -> Option<f64> {
        let figures = self.runs.figures(setting, workload, metric);
        let values: Vec<f64> = figures.into_iter().map(|(_, value)| value).collect();
        Some(order::median(&values, self.results.confidence)?.value)
    }
}

/// The longest time that a setting holds packets back; `None` where it sets no such knob.
fn find_longest_delay(setting: &Setting) -> Option<Nanos> {
    let deferred = setting.get(&Knob::NapiDeferHardIrqs) != Some(&Value::Count(0));
    let delays = setting.iter().filter_map(|(knob, value)| match (knob, value) {
        (Knob::GroFlushTimeout, Value::Time(_)) if !deferred => Some(Nanos::ZERO),
        (Knob::GroFlushTimeout | Knob::RxUsecs, Value::Time(time)) => Some(*time),
        // The driver counts in units of 1.024 us.
        (Knob::RxAbsIntDelay, Value::Count(units)) => {
            Some(Nanos::from_ns(units.saturating_mul(1_024)))
        }
        (Knob::InterruptThrottleRate, Value::Count(0)) => Some(Nanos::ZERO),
        (Knob::InterruptThrottleRate, Value::Count(hz)) if *hz > 4 => {
            Some(Nanos::from_ns(1_000_000_000 / hz))
        }
        _ => None,
    });
    delays.max()
}

#[cfg(test)]
mod parts;

#[cfg(test)]
mod tests {
    use latput_trial::observation::CpuTime;
    use latput_trial::{Traffic, Workload};

    use super::*;
    use crate::synthetic::{SyntheticFigures, build_results};

    /// Results of one request in flight and of seventeen, under delays of 0 and 50 us.
    fn delayed_results(
        blocks: u32,
        figures: impl FnMut(usize, usize) -> SyntheticFigures,
    ) -> Results {
        let loads = [
            Workload::plain("one", Traffic::tcp_rr(0)),
            Workload::plain("many", Traffic::tcp_rr(16)),
        ];
        let mut made = build_results(&["0", "50"], &loads, blocks, figures);
        for (idx, set) in made.settings.iter_mut().enumerate() {
            let value = Value::Time(Nanos::from_us(50 * idx as u64));
            set.by_role.insert(Role::Sut, Setting::from([(Knob::RxUsecs, value)]));
        }
        made
    }

    #[test]
    fn round_trip_is_split_into_four_parts() {
        let made = delayed_results(6, |setting, workload| SyntheticFigures {
            rate: 1000.0,
            // The mean of the made-up round trips is 0.51 of their 99th percentile.
            p99_us: Some((20.0 + 50.0 * setting as f64 + 30.0 * workload as f64) / 0.51),
            service_demand_us: 5.0,
        });
        let explained = explain_cells(&made, &BTreeMap::new());
        let many = explained.iter().find(|it| (it.setting, it.workload) == (1, 1)).unwrap();
        check_stage(many, RoundTripStage::Timer, Some(50_000.0));
        check_stage(many, RoundTripStage::Queueing, Some(30_000.0));
        // The made-up results have no generator.
        check_stage(many, RoundTripStage::Cpu, None);
        let one = explained.iter().find(|it| (it.setting, it.workload) == (0, 0)).unwrap();
        check_stage(one, RoundTripStage::Timer, Some(0.0));
        let queue = one.time.iter().find(|(stage, _)| *stage == RoundTripStage::Queueing).unwrap();
        assert!(matches!(queue.1, TimePart::None(why) if why.contains("one request")), "{queue:?}");
    }

    #[test]
    fn inert_delay_has_no_length() {
        let made = delayed_results(6, |_, workload| SyntheticFigures {
            rate: 1000.0,
            p99_us: Some([20.0, 80.0][workload] / 0.51),
            service_demand_us: 5.0,
        });
        let explained = explain_cells(&made, &BTreeMap::new());
        let many = explained.iter().find(|it| (it.setting, it.workload) == (1, 1)).unwrap();
        check_stage(many, RoundTripStage::Timer, Some(0.0));
        check_stage(many, RoundTripStage::Queueing, Some(60_000.0));
    }

    #[test]
    fn busiest_cpu_is_of_the_middle_run() {
        let loads = [Workload::plain("one", Traffic::tcp_rr(0))];
        let figures =
            SyntheticFigures { rate: 1000.0, p99_us: Some(100.0), service_demand_us: 5.0 };
        let mut made = build_results(&["as it is"], &loads, 5, |_, _| figures);
        for row in &mut made.rows {
            let cpus = &mut row.observation.hosts[0].cpus;
            let system = Nanos::from_ms(100 * u64::from(row.block + 1));
            let idle = Nanos::from_s(1).saturating_sub(system);
            cpus[0].time = CpuTime { system, idle, ..CpuTime::default() };
        }
        let busiest = |made: &Results| explain_cells(made, &BTreeMap::new())[0].busiest_cpu_ratio;
        assert!((busiest(&made).unwrap() - 0.3).abs() < 1e-9);
        for row in &mut made.rows {
            row.observation.hosts[0].cpus[0].time = CpuTime::default();
        }
        assert_eq!(busiest(&made), None);
    }

    #[test]
    fn time_saving_delay_is_no_part() {
        // Under many requests in flight the delay of 50 us shortens the round trip from 80 to 60 us.
        let made = delayed_results(6, |setting, workload| SyntheticFigures {
            rate: 1000.0,
            p99_us: Some([[20.0, 80.0], [70.0, 60.0]][setting][workload] / 0.51),
            service_demand_us: 5.0,
        });
        let explained = explain_cells(&made, &BTreeMap::new());
        let many = explained.iter().find(|it| (it.setting, it.workload) == (1, 1)).unwrap();
        check_stage(many, RoundTripStage::Timer, Some(0.0));
        check_stage(many, RoundTripStage::Queueing, None);
        let without = explained.iter().find(|it| (it.setting, it.workload) == (0, 1)).unwrap();
        check_stage(without, RoundTripStage::Queueing, Some(60_000.0));
    }

    #[test]
    fn no_part_exceeds_the_whole() {
        let mut rng = latput_units::SeededRng::from_seed(7);
        let (mut known, mut unknown) = (0, 0);
        for seed in 0..60 {
            let blocks = 1 + seed % 6;
            let made = delayed_results(blocks, |_, _| SyntheticFigures {
                rate: 1000.0,
                p99_us: Some(100.0 * crate::synthetic::noise_factor(&mut rng, 0.8)),
                service_demand_us: 5.0 * crate::synthetic::noise_factor(&mut rng, 2.0),
            });
            let models = fit_models(&made, |_| true).unwrap();
            for it in explain_cells(&made, &models) {
                let time = it.time.iter().map(|(_, amount)| (amount, it.round_trip_ns.unwrap()));
                let cpu = it.cpu.iter().map(|(_, amount)| (amount, it.busy_ns_per_s));
                for (amount, whole) in time.chain(cpu) {
                    let TimePart::Known { ns, ns_low, ns_high, .. } = *amount else {
                        unknown += usize::from(amount.known_ns().is_none());
                        continue;
                    };
                    known += 1;
                    let ends = [0.0, ns_low, ns, ns_high, whole];
                    assert!(ends.is_sorted(), "{amount:?} of {whole}");
                }
            }
        }
        assert!(known > 50 && unknown > 50, "the test does not test: {known} {unknown}");
    }

    #[test]
    fn unvaried_parts_are_unknown() {
        let loads = [Workload::plain("many", Traffic::tcp_rr(16))];
        let figures =
            SyntheticFigures { rate: 1000.0, p99_us: Some(100.0), service_demand_us: 5.0 };
        let made = build_results(&["as it is"], &loads, 3, |_, _| figures);
        let explained = explain_cells(&made, &BTreeMap::new());
        for stage in [
            RoundTripStage::Timer,
            RoundTripStage::Queueing,
            RoundTripStage::Cpu,
            RoundTripStage::Rest,
        ] {
            check_stage(&explained[0], stage, None);
        }
        assert!(explained[0].cpu.is_empty());
    }

    #[test]
    fn cpu_time_shared_by_others_is_unknown() {
        let loads = [Workload::plain("one", Traffic::tcp_rr(0))];
        let figures =
            SyntheticFigures { rate: 1000.0, p99_us: Some(100.0), service_demand_us: 5.0 };
        let mut made = build_results(&["as it is"], &loads, 4, |_, _| figures);
        for row in &mut made.rows {
            let (name, detail) = ("other-work".to_owned(), String::new());
            let passed = row.block == 0;
            row.observation.checks.push(latput_trial::Check { name, passed, detail });
        }
        let explained = explain_cells(&made, &BTreeMap::new());
        let cpu =
            explained[0].time.iter().find(|(stage, _)| *stage == RoundTripStage::Cpu).unwrap();
        assert!(matches!(cpu.1, TimePart::Unknown(why) if why.contains("other-work")), "{cpu:?}");
        assert!(explained[0].is_shared);
    }

    #[test]
    fn remainder_excludes_cpu_of_both_ends() {
        let loads = [Workload::plain("one", Traffic::tcp_rr(0))];
        let figures =
            SyntheticFigures { rate: 1000.0, p99_us: Some(100.0 / 0.51), service_demand_us: 12.0 };
        let mut made = build_results(&["as it is"], &loads, 6, |_, _| figures);
        for row in &mut made.rows {
            let mut generator = row.observation.hosts[0].clone();
            generator.role = Role::Generator;
            // 8 us of each transaction: 8 ms of a second.
            generator.cpus[0].time.system = Nanos::from_ms(8);
            row.observation.hosts.push(generator);
        }
        let explained = explain_cells(&made, &BTreeMap::new());
        check_stage(&explained[0], RoundTripStage::Cpu, Some(20_000.0));
        check_stage(&explained[0], RoundTripStage::Rest, Some(80_000.0));
        // Of a CPU that counts a thousand seconds in the window, 12 ms are busy.
        let busiest = explained[0].busiest_cpu_ratio.unwrap();
        assert!((busiest - 0.012 / 1000.0).abs() < 1e-9, "{busiest}");
    }

    #[test]
    fn what_the_costs_leave_is_unexplained() {
        let term = |term, ns: f64, count: f64| {
            let part = ns * count;
            (term, TimePart::Known { ns: part, ns_low: part, ns_high: part, confidence: 0.99 })
        };
        let parts = [term(CostTerm::Packet, 900.0, 1000.0), term(CostTerm::Poll, 500.0, 1000.0)];
        assert!((unexplained_share(&parts, 2e6) - 0.3).abs() < 1e-12);
        assert!((unexplained_share(&[], 2e6) - 1.0).abs() < 1e-12);
        assert!(unexplained_share(&parts, 0.0).abs() < 1e-12);
    }

    #[test]
    fn delay_is_of_the_knob_that_holds() {
        let time = |us| Value::Time(Nanos::from_us(us));
        let of = |set: &[(Knob, Value)]| find_longest_delay(&set.iter().cloned().collect());
        let deferred = (Knob::NapiDeferHardIrqs, Value::Count(100));
        let at_once = (Knob::NapiDeferHardIrqs, Value::Count(0));
        let flush = (Knob::GroFlushTimeout, time(20));
        assert_eq!(of(&[flush.clone(), deferred]), Some(Nanos::from_us(20)));
        assert_eq!(of(&[flush, at_once]), Some(Nanos::ZERO));
        assert_eq!(
            of(&[(Knob::InterruptThrottleRate, Value::Count(8_000))]),
            Some(Nanos::from_us(125))
        );
        assert_eq!(of(&[(Knob::RxAbsIntDelay, Value::Count(50))]), Some(Nanos::from_ns(51_200)));
        // 1 to 4 are modes of the driver and no rates.
        assert_eq!(of(&[(Knob::InterruptThrottleRate, Value::Count(3))]), None);
        assert_eq!(of(&[(Knob::InterruptThrottleRate, Value::Count(0))]), Some(Nanos::ZERO));
        assert_eq!(of(&[(Knob::Mtu, Value::Count(1_500))]), None);
    }

    #[track_caller]
    fn check_stage(explained: &CellExplanation, stage: RoundTripStage, wanted: Option<f64>) {
        let (_, amount) = explained.time.iter().find(|(of, _)| *of == stage).unwrap();
        match wanted {
            None => assert!(matches!(amount, TimePart::Unknown(_)), "{amount:?}"),
            Some(ns) => {
                let found = amount.known_ns().unwrap();
                assert!((found - ns).abs() <= 0.05 * ns, "{stage:?}: {found} instead of {ns}");
            }
        }
    }
}
