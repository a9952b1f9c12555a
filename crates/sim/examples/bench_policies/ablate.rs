//! Gain by each constant of our policy: the loads once more for each field, with a value that removes its effect or
//! merges it with another field, against the values in use.

use std::time::Instant;

use latput_policy::response::ResponseParams;
use latput_policy::{Policy, ResponsePolicy};
use latput_units::Nanos;

use crate::cases::BenchmarkCase;
use crate::{
    BenchmarkRunner, MetricRatios, PolicyMetrics, build_bounds, compute_ratios, in_parallel,
    simulate_case,
};

/// One field with another value.
struct Ablation {
    field: &'static str,
    value: &'static str,
    set: fn(&mut ResponseParams),
}

const fn ablation(
    field: &'static str,
    value: &'static str,
    set: fn(&mut ResponseParams),
) -> Ablation {
    Ablation { field, value, set }
}

const FOREVER: Nanos = Nanos::from_s(3600);

/// `0`, `1` or `off` removes a field's effect, the name of a field merges the two.
const ABLATIONS: [Ablation; 50] = [
    ablation("slot_polls", "6", |p| p.slot_polls = 6),
    ablation("slot_least", "0", |p| p.slot_least = Nanos::ZERO),
    ablation("slot_most", "off", |p| p.slot_most = FOREVER),
    ablation("slot_most", "test_least", |p| p.slot_most = p.test_least),
    ablation("slot_scatter", "off", |p| p.slot_scatter = f64::INFINITY),
    ablation("slot_longest_ratio", "off", |p| p.slot_longest_ratio = f64::INFINITY),
    ablation("settling_polls", "0", |p| p.settling_polls = 0),
    ablation("settling_polls", "1", |p| p.settling_polls = 1),
    ablation("small_seen", "12, 12", |p| p.small_seen = [12, 12]),
    ablation("small_seen", "4, 4", |p| p.small_seen = [4, 4]),
    ablation("bulk_frame_bytes", "0", |p| p.bulk_frame_bytes = 0),
    ablation("bulk_frame_bytes", "off", |p| p.bulk_frame_bytes = 1 << 30),
    ablation("pause_least", "0", |p| p.pause_least = Nanos::ZERO),
    ablation("scatter_first", "0", |p| p.scatter_first = 0.0),
    ablation("jump_log", "0", |p| p.jump_log = [0.0; 2]),
    ablation("jump_log", "0.18, 0.18", |p| p.jump_log = [0.18; 2]),
    ablation("jump_log_first", "jump_log", |p| p.jump_log_first = p.jump_log),
    ablation("learnt_slots", "test_slots", |p| p.learnt_slots = p.test_slots),
    ablation("small_change_distance", "0", |p| p.small_change_distance = 0.0),
    ablation("slot_weight", "0", |p| p.slot_weight = 0.0),
    ablation("slot_weight", "requests_weight", |p| p.slot_weight = p.requests_weight),
    ablation("requests_weight", "slot_weight", |p| p.requests_weight = p.slot_weight),
    ablation("idle_after", "off", |p| p.idle_after = FOREVER),
    ablation("idle_ratio", "0", |p| p.idle_ratio = 0.0),
    ablation("sample_polls", "slot_polls", |p| p.sample_polls = p.slot_polls),
    ablation("test_slots", "2", |p| p.test_slots = 2),
    ablation("test_least", "0", |p| p.test_least = Nanos::ZERO),
    ablation("accept_errors", "0", |p| p.accept_errors = 0.0),
    ablation("climb_steps", "1", |p| p.climb_steps = 1),
    ablation("closed_loop_least", "0", |p| p.closed_loop_least = 0.0),
    ablation("closed_loop_least", "1", |p| p.closed_loop_least = 1.0),
    ablation("closed_loop_most", "1", |p| p.closed_loop_most = 1.0),
    ablation("prior_error_ratio", "off", |p| p.prior_error_ratio = 1e6),
    ablation("early_errors", "0", |p| p.early_errors = 0.0),
    ablation("neighbour_slots", "off", |p| p.neighbour_slots = u32::MAX),
    ablation("neighbour_slots", "restored_slots", |p| p.neighbour_slots = p.restored_slots),
    ablation("hold_slots_first", "hold_slots_most", |p| p.hold_slots_first = p.hold_slots_most),
    ablation("hold_slots_most", "hold_slots_first", |p| p.hold_slots_most = p.hold_slots_first),
    ablation("hold_slots_requests", "hold_slots_most", |p| {
        p.hold_slots_requests = p.hold_slots_most;
    }),
    ablation("memory_loads", "0", |p| p.memory_loads = 0),
    ablation("same_load_distance", "1", |p| p.same_load_distance = 1.0),
    ablation("restored_slots", "off", |p| p.restored_slots = u32::MAX),
    ablation("restored_slots", "neighbour_slots", |p| p.restored_slots = p.neighbour_slots),
    ablation("piece_least", "0", |p| p.piece_least = Nanos::ZERO),
    ablation("piece_log", "0", |p| p.piece_log = 0.0),
    ablation("piece_errors", "0", |p| p.piece_errors = 0.0),
    ablation("jump_pieces", "1", |p| p.jump_pieces = 1),
    ablation("jump_neg_log", "0", |p| p.jump_neg_log = 0.0),
    ablation("jitter_first", "0", |p| p.jitter_first = 0.0),
    ablation("jitter_weight", "0", |p| p.jitter_weight = 0.0),
];

/// Effect of one change on all runs.
#[derive(Default)]
struct AblationEffect {
    is_reached: bool,
    /// Runs (a load with a seed) that got better and worse by more than noise.
    better: usize,
    worse: usize,
    /// Loads that got worse in the mean of their seeds.
    worse_loads: usize,
    /// The load that lost most, in the mean of its seeds.
    worst: Option<(String, MetricRatios)>,
}

/// Runs and prints the table. `fields`: only these, or all if empty.
pub(crate) fn run(bench: &BenchmarkRunner, cases: &[BenchmarkCase], fields: &[&str]) {
    let start = Instant::now();
    let wanted = |it: &&Ablation| fields.is_empty() || fields.contains(&it.field);
    let ablations: Vec<&Ablation> = ABLATIONS.iter().filter(wanted).collect();
    let base = in_parallel(cases, |case| by_seed(bench, case, &ResponseParams::DEFAULT));
    eprintln!("values in use: {:.0} s", start.elapsed().as_secs_f64());
    println!(
        "{} loads, seeds {:?}; rate, p99 and CPU beside the values in use, of the load that lost most (mean of seeds)",
        cases.len(),
        bench.seeds
    );
    println!(
        "{:<22} {:<17} {:>6} {:>6} {:>6}  {:<36} {:>5} {:>5} {:>5}  verdict",
        "field", "value", "better", "worse", "loads", "worst load", "rate", "p99", "cpu"
    );
    let effects = in_parallel(&ablations, |ablation| {
        let mut params = ResponseParams::DEFAULT;
        (ablation.set)(&mut params);
        let mut effect = AblationEffect::default();
        for (case, base) in cases.iter().zip(&base) {
            effect.take(case, base, &by_seed(bench, case, &params));
        }
        eprintln!("{} {}: {:.0} s", ablation.field, ablation.value, start.elapsed().as_secs_f64());
        effect
    });
    for (ablation, effect) in ablations.iter().zip(&effects) {
        print_effect(ablation, effect);
    }
}

fn by_seed(
    bench: &BenchmarkRunner,
    case: &BenchmarkCase,
    params: &ResponseParams,
) -> Vec<PolicyMetrics> {
    let policy =
        Policy::Response(Box::new(ResponsePolicy::with_params(build_bounds(case), *params)));
    bench.select_seeds(case).iter().map(|seed| simulate_case(case, &policy, *seed)).collect()
}

impl AblationEffect {
    fn take(&mut self, case: &BenchmarkCase, base: &[PolicyMetrics], found: &[PolicyMetrics]) {
        self.is_reached |= base != found;
        let same = MetricRatios { rate: 1.0, p99: 1.0, cpu: 1.0 };
        for (base, found) in base.iter().zip(found) {
            match compute_ratios(found, base).compare_with(same) {
                1 => self.better += 1,
                -1 => self.worse += 1,
                _ => {}
            }
        }
        let mean = compute_ratios(&crate::average_metrics(found), &crate::average_metrics(base));
        self.worse_loads += usize::from(mean.compare_with(same) < 0);
        if self.worst.as_ref().is_none_or(|(_, worst)| mean.log_gain() < worst.log_gain()) {
            self.worst = Some((case.label(), mean));
        }
    }

    fn verdict(&self) -> &'static str {
        match self {
            Self { is_reached: false, .. } => "not reached",
            Self { worse: 0, .. } => "earns nothing",
            Self { better, worse, .. } if better >= worse => "unclear",
            _ => "earns",
        }
    }
}

impl MetricRatios {
    /// Gain as a logarithm; the tail scatters five times as much as the rest, and counts a fifth.
    fn log_gain(self) -> f64 {
        self.rate.ln() - self.cpu.ln() - 0.2 * self.p99.ln()
    }
}

fn print_effect(ablation: &Ablation, effect: &AblationEffect) {
    let Ablation { field, value, .. } = ablation;
    let AblationEffect { better, worse, worse_loads, .. } = effect;
    print!("{field:<22} {value:<17} {better:>6} {worse:>6} {worse_loads:>6}  ");
    match &effect.worst {
        Some((label, MetricRatios { rate, p99, cpu })) => {
            print!("{label:<36} {rate:>5.2} {p99:>5.2} {cpu:>5.2}  ");
        }
        None => print!("{:<36} {:>5} {:>5} {:>5}  ", "-", "-", "-", "-"),
    }
    println!("{}", effect.verdict());
}
