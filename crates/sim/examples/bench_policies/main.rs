//! Moderation policies side by side on simulated loads, the same seeds for all, and beside them the best
//! fixed delay of each phase (the oracle), found by search.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark talks to whoever runs it"
)]

mod ablate;
mod cases;
mod known;

use std::sync::Mutex;

use cases::BenchmarkCase;
use known::MetricsCache;
use latput_policy::e1000::ThrottleMode;
use latput_policy::{Aim, DelayBounds, Dim, E1000, Ixgbe, Moderation, Policy, ResponsePolicy, dim};
use latput_units::Nanos;

/// The fixed delays that the oracle chooses from, up to the longest of DIM's, which bounds ours too.
const LADDER_US: [u64; 10] = [0, 4, 8, 16, 32, 64, 100, 128, 200, 256];
/// Smallest ratio that counts as a difference between two policies.
const NOISE: f64 = 0.02;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let after = |flag: &str| {
        arguments.iter().find_map(|argument| argument.strip_prefix(flag)?.strip_prefix('='))
    };
    let bench = BenchmarkRunner {
        seeds: parse_seeds(after("--seeds"), has("--quick")),
        known: MetricsCache::open(after("--known").map(Into::into)),
    };
    let wanted: Vec<&String> = arguments.iter().filter(|a| !a.starts_with("--")).collect();
    let cases: Vec<BenchmarkCase> = cases::list_cases()
        .into_iter()
        .filter(|case| !(has("--quick") && case.slow))
        .filter(|case| {
            wanted.is_empty() || wanted.iter().any(|word| case.label().contains(word.as_str()))
        })
        .collect();
    if has("--ablate") || after("--ablate").is_some() {
        let fields: Vec<&str> =
            after("--ablate").into_iter().flat_map(|it| it.split(',')).collect();
        let is_short = |case: &BenchmarkCase| case.step.is_none_or(|step| step < Nanos::from_s(1));
        let cases: Vec<BenchmarkCase> = cases.into_iter().filter(is_short).collect();
        ablate::run(&bench, &cases, &fields);
        return;
    }
    let mut rows = in_parallel(&cases, |case| {
        let row = bench.measure_case(case);
        eprintln!("{}", row.label);
        row
    });
    // Losses first.
    rows.sort_by(|a, b| {
        a.own_policy_ratios().goal_distance().total_cmp(&b.own_policy_ratios().goal_distance())
    });
    print_table(&rows);
    if has("--frontier") {
        rows.iter().for_each(show_frontier);
    }
}

/// `work` on each item, on all CPUs; the results in the order of the items.
fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let queue = Mutex::new(items.iter().enumerate());
    let results = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().expect("no worker panics with it").next();
                    let Some((idx, item)) = next else { return };
                    let result = work(item);
                    results.lock().expect("no worker panics with it").push((idx, result));
                }
            });
        }
    });
    let mut results = results.into_inner().expect("all workers have ended");
    results.sort_by_key(|(idx, _)| *idx);
    results.into_iter().map(|(_, result)| result).collect()
}

/// The seeds that are named, `11,12,13`; else three, of which the quick run has the first.
fn parse_seeds(named: Option<&str>, is_quick: bool) -> Vec<u64> {
    match named {
        Some(named) => named.split(',').map(|seed| seed.parse().expect("a seed")).collect(),
        None if is_quick => vec![1],
        None => vec![1, 2, 3],
    }
}

/// Figures of one policy in one case.
#[derive(Clone, Debug, Default, PartialEq)]
struct PolicyMetrics {
    /// By part: units per second, over the whole run.
    rates: Vec<f64>,
    p99_us: Vec<f64>,
    cpu: f64,
    drops: f64,
}

/// Figures as shares of the oracle's: the worst part's rate and tail, and the CPU.
#[derive(Clone, Copy, Debug)]
struct MetricRatios {
    rate: f64,
    p99: f64,
    cpu: f64,
}

impl MetricRatios {
    /// Distance to the goal of 97% of the rate, 1.1 x the tail and 1.05 x the CPU; 0 if it is kept.
    fn goal_distance(self) -> f64 {
        (self.rate / 0.97).ln().min(0.0)
            + (1.1 / self.p99).ln().min(0.0)
            + (1.05 / self.cpu).ln().min(0.0)
    }

    fn keeps_the_goal(self) -> bool {
        self.goal_distance() >= 0.0
    }

    /// Better or worse than another policy by more than noise: by rate, and if that is alike by CPU, and
    /// if that is alike by the tail.
    fn compare_with(self, other: Self) -> i32 {
        let sign = |ratio: f64, noise: f64| {
            if ratio > 1.0 + noise { 1 } else { -i32::from(ratio < 1.0 - noise) }
        };
        let parts = [
            sign(self.rate / other.rate, NOISE),
            sign(other.cpu / self.cpu, NOISE),
            sign(other.p99 / self.p99, 5.0 * NOISE),
        ];
        parts.into_iter().find(|sign| *sign != 0).unwrap_or(0)
    }
}

struct ComparisonRow {
    label: String,
    oracle: String,
    drops: f64,
    policies: Vec<(&'static str, MetricRatios)>,
    /// Ratios of each fixed delay (microseconds) and of ours with each seed, with its drops.
    frontier: Vec<(String, MetricRatios, f64)>,
}

impl ComparisonRow {
    fn own_policy_ratios(&self) -> MetricRatios {
        self.policies.last().expect("ours is the last").1
    }
}

/// Bounds that ours is held to.
fn build_bounds(case: &BenchmarkCase) -> DelayBounds {
    let most = Nanos::from_us(LADDER_US[LADDER_US.len() - 1]);
    DelayBounds { most, vectors: case.queues, ..DelayBounds::default() }
}

fn list_policies(case: &BenchmarkCase) -> Vec<(&'static str, Policy)> {
    vec![
        ("e1000 1", Policy::E1000(E1000::new(ThrottleMode::Dynamic))),
        ("e1000 3", Policy::E1000(E1000::new(ThrottleMode::Conservative))),
        ("aim", Policy::Aim(Aim::new(latput_policy::aim::AimVariant::IgbConservative))),
        ("ixgbe", Policy::Ixgbe(Ixgbe::new(latput_policy::ixgbe::IxgbeVersion::Mainline))),
        ("dim", Policy::Dim(Dim::new(dim::DimProfile::RxEqe))),
        ("ours", Policy::Response(Box::new(ResponsePolicy::new(build_bounds(case))))),
    ]
}

/// Means that measure all cases.
struct BenchmarkRunner {
    seeds: Vec<u64>,
    known: MetricsCache,
}

impl BenchmarkRunner {
    fn measure_case(&self, case: &BenchmarkCase) -> ComparisonRow {
        let mut oracle = PolicyMetrics::default();
        let mut names = Vec::new();
        let share = if case.step.is_some() { 1.0 / case.parts.len() as f64 } else { 1.0 };
        // Loads that run together have one best setting, those that take turns one each.
        let alone: Vec<BenchmarkCase> = match case.step {
            None => {
                vec![BenchmarkCase { name: case.name.clone(), parts: case.parts.clone(), ..*case }]
            }
            Some(_) => (0..case.parts.len()).map(|part| case.isolate_part(part)).collect(),
        };
        for case in &alone {
            let (us, best) = self.best_fixed(case);
            names.push(us.to_string());
            oracle.rates.extend(best.rates.iter().map(|rate| rate * share));
            oracle.p99_us.extend(best.p99_us);
            oracle.cpu += best.cpu * share;
        }
        let mut drops = 0.0;
        let mut done = Vec::new();
        let singles = LADDER_US.map(|us| (us, self.measure_fixed_delay(case, us)));
        let singles = singles.map(|(us, found)| (us, compute_ratios(&found, &oracle), found.drops));
        if case.step.is_some() {
            let best = singles.iter().map(|(_, it, _)| *it);
            let best = best.max_by(|a, b| a.goal_distance().total_cmp(&b.goal_distance()));
            done.push(("single", best.expect("the ladder has rungs")));
        } else {
            done.push(("single", MetricRatios { rate: 1.0, p99: 1.0, cpu: 1.0 }));
        }
        let mut frontier: Vec<(String, MetricRatios, f64)> =
            singles.into_iter().map(|(us, it, drops)| (us.to_string(), it, drops)).collect();
        for (name, policy) in list_policies(case) {
            let mut by_seed = Vec::new();
            for seed in self.select_seeds(case) {
                by_seed.push(self.simulate_cached(case, name, &policy, *seed));
            }
            let found = average_metrics(&by_seed);
            if name == "ours" {
                for (seed, one) in self.select_seeds(case).iter().zip(&by_seed) {
                    frontier.push((
                        format!("seed {seed}"),
                        compute_ratios(one, &oracle),
                        one.drops,
                    ));
                }
            }
            drops = found.drops;
            done.push((name, compute_ratios(&found, &oracle)));
        }
        ComparisonRow {
            label: case.label(),
            oracle: names.join("/"),
            drops,
            policies: done,
            frontier,
        }
    }

    /// The fixed delay with the least CPU among those with (all but) the best rate and no drops.
    fn best_fixed(&self, case: &BenchmarkCase) -> (u64, PolicyMetrics) {
        let all: Vec<(u64, PolicyMetrics)> =
            LADDER_US.iter().map(|&us| (us, self.measure_fixed_delay(case, us))).collect();
        let parts = all[0].1.rates.len();
        let best_rate = |part: usize| all.iter().map(|(_, f)| f.rates[part]).fold(0.0, f64::max);
        let best: Vec<f64> = (0..parts).map(best_rate).collect();
        let keeps =
            |f: &PolicyMetrics| f.rates.iter().zip(&best).all(|(rate, best)| *rate >= 0.985 * best);
        let sum = |f: &PolicyMetrics| {
            f.rates.iter().zip(&best).map(|(rate, best)| rate / best.max(1.0)).sum()
        };
        let kept = all.iter().filter(|(_, f)| keeps(f)).min_by(|a, b| a.1.cpu.total_cmp(&b.1.cpu));
        // Parts that pull apart have no delay that is best for all: then the best on the whole.
        let on_the_whole = || {
            all.iter().max_by(|a, b| {
                let (a, b): (f64, f64) = (sum(&a.1), sum(&b.1));
                a.total_cmp(&b)
            })
        };
        kept.or_else(on_the_whole).expect("the ladder has rungs").clone()
    }

    fn measure_fixed_delay(&self, case: &BenchmarkCase, us: u64) -> PolicyMetrics {
        let policy = Policy::Fixed(Moderation::from_delay(Nanos::from_us(us)));
        let one = |seed: &u64| self.simulate_cached(case, &format!("fixed {us}"), &policy, *seed);
        average_metrics(&self.select_seeds(case).iter().map(one).collect::<Vec<_>>())
    }

    /// Runs of many seconds have one.
    fn select_seeds(&self, case: &BenchmarkCase) -> &[u64] {
        let is_long = case.step.is_some_and(|step| step >= Nanos::from_s(1));
        if is_long { &self.seeds[..1] } else { &self.seeds }
    }

    fn simulate_cached(
        &self,
        case: &BenchmarkCase,
        name: &str,
        policy: &Policy,
        seed: u64,
    ) -> PolicyMetrics {
        if matches!(policy, Policy::Response(_)) {
            return simulate_case(case, policy, seed); // what is worked on
        }
        let key = format!("{} seed {seed} {name}", case.cache_key());
        self.known.or_make(&key, || simulate_case(case, policy, seed))
    }
}

/// The mean over seeds.
fn average_metrics(all: &[PolicyMetrics]) -> PolicyMetrics {
    let weight = 1.0 / all.len() as f64;
    let mean = |pick: &dyn Fn(&PolicyMetrics) -> f64| all.iter().map(pick).sum::<f64>() * weight;
    let parts = 0..all[0].rates.len();
    PolicyMetrics {
        rates: parts.clone().map(|part| mean(&|one| one.rates[part])).collect(),
        p99_us: parts.map(|part| mean(&|one| one.p99_us[part])).collect(),
        cpu: mean(&|one| one.cpu),
        drops: mean(&|one| one.drops),
    }
}

fn simulate_case(case: &BenchmarkCase, policy: &Policy, seed: u64) -> PolicyMetrics {
    let parts = case.parts.len();
    let mut figures = PolicyMetrics {
        rates: vec![0.0; parts],
        p99_us: vec![0.0; parts],
        ..PolicyMetrics::default()
    };
    let (scenario, part_of) = case.build_scenario(policy, seed);
    let out = latput_sim::run(&scenario).expect("a sound scenario");
    for (load, part) in out.loads.iter().zip(&part_of) {
        let units = load.received_bytes.max(load.received);
        figures.rates[*part] += out.per_second(units);
        let p99 = load.latency.quantile(0.99).map_or(0.0, Nanos::as_us_f64);
        figures.p99_us[*part] = figures.p99_us[*part].max(p99);
    }
    let busy = out.hosts[1].cpu_totals().busy().as_secs_f64();
    figures.cpu = 100.0 * busy / out.window.as_secs_f64();
    figures.drops = out.hosts[1].nic_totals().rx_dropped as f64;
    figures
}

fn compute_ratios(found: &PolicyMetrics, oracle: &PolicyMetrics) -> MetricRatios {
    let pairs = |a: &[f64], b: &[f64]| -> Vec<f64> {
        a.iter().zip(b).filter(|(_, b)| **b > 0.0).map(|(a, b)| a / b).collect()
    };
    let worst = |ratios: Vec<f64>, pick: fn(f64, f64) -> f64| {
        ratios.into_iter().reduce(pick).unwrap_or(1.0)
    };
    MetricRatios {
        rate: worst(pairs(&found.rates, &oracle.rates), f64::min),
        p99: worst(pairs(&found.p99_us, &oracle.p99_us), f64::max),
        cpu: found.cpu / oracle.cpu.max(1e-9),
    }
}

fn print_table(rows: &[ComparisonRow]) {
    let Some(first) = rows.first() else {
        println!("no such load");
        return;
    };
    println!(
        "each cell: rate, p99 and CPU as shares of the per-phase oracle's; worst for ours first"
    );
    print!("{:<30} {:>9}", "load", "oracle us");
    for (name, _) in &first.policies {
        print!(" {name:^16}");
    }
    println!("  drops");
    for row in rows {
        print!("{:<30} {:>9}", row.label, row.oracle);
        for (_, ratios) in &row.policies {
            let mark = if ratios.keeps_the_goal() { '*' } else { ' ' };
            print!(" {:>4.2} {:>5.2} {:>4.2}{mark}", ratios.rate, ratios.p99, ratios.cpu);
        }
        println!("  {:.0}", row.drops);
    }
    println!("\n* keeps the goal: 97% of the rate, 1.1 x the p99, 1.05 x the CPU");
    for (idx, (name, _)) in first.policies.iter().enumerate() {
        let kept = rows.iter().filter(|row| row.policies[idx].1.keeps_the_goal()).count();
        let against = |sign: i32| {
            let rows = rows
                .iter()
                .filter(|row| row.own_policy_ratios().compare_with(row.policies[idx].1) == sign);
            rows.map(|row| row.label.as_str()).collect::<Vec<_>>()
        };
        let (better, alike, worse) = (against(1).len(), against(0).len(), against(-1));
        println!(
            "{name:<9} keeps the goal on {kept} of {}; ours is better on {better}, alike on {alike}, worse on {}: {}",
            rows.len(),
            worse.len(),
            worse.join(", ")
        );
    }
}

/// The fixed delays of a load, and ours with each seed.
fn show_frontier(row: &ComparisonRow) {
    println!("\n{}: the oracle takes {} us", row.label, row.oracle);
    for (name, ratios, drops) in &row.frontier {
        let mark = if ratios.keeps_the_goal() { '*' } else { ' ' };
        let MetricRatios { rate, p99, cpu } = ratios;
        println!("  {name:>8} {rate:>6.3} {p99:>6.3} {cpu:>6.3}{mark} {drops:.0}");
    }
}
