//! Every percentage, sign and arrow of the outputs is made of the figures printed beside it: generated results are
//! rendered, and each change is computed again from the text alone.

#[path = "support/recompute.rs"]
#[expect(dead_code, reason = "the tests of the command line use the rest of it")]
mod recompute;
#[path = "../../model/src/synthetic.rs"]
#[expect(dead_code, reason = "other tests use the rest of it")]
mod synthetic;

use latput_model::ResultsSummary;
use latput_model::compare::{CompareMethod, compare_settings};
use latput_report::{
    Gate, Screen, comparison, render_html, render_junit, render_ktap, render_markdown,
    render_terminal,
};
use latput_trial::{Metric, Results, Row};
use latput_units::SeededRng;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use recompute::{check_rows, check_sentences, check_verdicts, page_differences, plain_text};
use synthetic::{SyntheticFigures, build_results, noise_factor, rr_workload, stream_workload};

/// Wide enough for every sentence to stay on its line.
const SCREEN: Screen = Screen { columns: 1_000_000, is_styled: false };
const GOALS: &[&str] = &[
    "minimize latency_ns_p99",
    "maximize rate where latency_ns_p99 <= 1.1 best",
    "minimize latency_ns_p99 where throughput_bps >= 0.95 best",
    "maximize throughput_bps where probe_ns_p99 <= 40us",
    "maximize rate where rate >= 1.2 today",
];

#[derive(Clone, Debug)]
struct GeneratedCase {
    effects: Vec<f64>,
    blocks: u32,
    sd: f64,
    seed: u64,
    goal: usize,
    lost: bool,
}

fn case_strategy() -> impl Strategy<Value = GeneratedCase> {
    let effects = prop::collection::vec(-1.5..1.5_f64, 1..4);
    (effects, 1..13_u32, 0.0..0.7_f64, any::<u64>(), 0..GOALS.len(), any::<bool>()).prop_map(
        |(effects, blocks, sd, seed, goal, lost)| GeneratedCase {
            effects,
            blocks,
            sd,
            seed,
            goal,
            lost,
        },
    )
}

/// A run in which the settings differ by `effects`, on a logarithmic scale, with noise.
fn make_case_results(case: &GeneratedCase) -> Results {
    let labels: Vec<String> = (0..=case.effects.len()).map(|idx| format!("t={idx}us")).collect();
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    let mut rng = SeededRng::from_seed(case.seed);
    let workloads = [rr_workload("rr"), rr_workload("other"), stream_workload("stream")];
    let mut made = build_results(&labels, &workloads, case.blocks, |setting, _| {
        let effect = if setting == 0 { 1.0 } else { case.effects[setting - 1].exp() };
        SyntheticFigures {
            rate: 1e5 * effect * noise_factor(&mut rng, case.sd),
            p99_us: Some(50.0 / effect * noise_factor(&mut rng, case.sd)),
            service_demand_us: 2.0 * effect.sqrt() * noise_factor(&mut rng, case.sd),
        }
    });
    if case.lost {
        made.rows.retain(|row| (row.block as usize + row.setting * 3) % 5 != 4);
    }
    made.goal = Some(GOALS[case.goal].to_owned());
    made
}

/// The geometric mean, over blocks, of the ratio to the first setting; from six blocks on without the smallest and
/// the largest fifth, as scipy's `trim_mean(logs, 0.2)`.
fn paired_ratio(results: &Results, load: &str, label: &str, metric: Metric) -> Option<f64> {
    let load = results.workloads.iter().position(|it| it.name == load)?;
    let setting = results.settings.iter().position(|it| it.label == format!("t={label}"))?;
    let figure = |block: u32, setting: usize| {
        let is_it = |row: &&Row| (row.block, row.setting, row.workload) == (block, setting, load);
        let row = results.rows.iter().find(is_it)?;
        metric.value(&results.workloads[load].traffic, &row.observation)
    };
    let last = results.rows.iter().map(|row| row.block).max()?;
    let mut logs: Vec<f64> = (0..=last)
        .filter_map(|block| Some((figure(block, setting)? / figure(block, 0)?).ln()))
        .collect();
    logs.sort_by(f64::total_cmp);
    let cut = if logs.len() < 6 { 0 } else { logs.len() / 5 };
    let kept = &logs[cut..logs.len() - cut];
    (!kept.is_empty()).then(|| (kept.iter().sum::<f64>() / kept.len() as f64).exp())
}

/// Computes the changes of a goal for a tail again, and counts them.
fn recomputed_changes(results: &Results, summary: &ResultsSummary) -> usize {
    let advice = summary.recommendation.as_ref();
    let changes = advice.filter(|advice| advice.goal.starts_with("minimize latency_ns_p99"));
    let mut counted = 0;
    for change in changes.iter().flat_map(|advice| &advice.changes) {
        let Some(ratio) = &change.ratio else { continue };
        let label =
            results.settings[change.setting].label.strip_prefix("t=").expect("a label of `made`");
        let mut product = 1.0;
        for (&workload, shown) in &change.by_workload {
            let name = &results.workloads[workload].name;
            let again =
                paired_ratio(results, name, label, Metric::LatencyNsP99).expect("both were run");
            assert!((shown / again - 1.0).abs() < 1e-9, "{name} {label}: {shown} {again}");
            product *= again;
            counted += 1;
        }
        let mean = product.powf(1.0 / change.by_workload.len() as f64);
        assert!((ratio.value / mean - 1.0).abs() < 1e-9, "{label}: {ratio:?} {mean}");
    }
    counted
}

#[test]
fn change_is_made_of_the_figures_beside_it() {
    // More are tried with PROPTEST_CASES.
    let cases = std::env::var_os("PROPTEST_CASES").map_or(16, |_| Config::default().cases);
    let mut runner =
        TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let counts = std::cell::Cell::new(CheckCounts::default());
    let checked = runner.run(&self::case_strategy(), |case| {
        let results = make_case_results(&case);
        let summary = ResultsSummary::from_results(&results);
        let mut found = counts.get();
        found.changes += recomputed_changes(&results, &summary);
        // Of every case once with a goal whose changes are computed again, so that none runs without.
        let of_tail = make_case_results(&GeneratedCase { goal: 0, lost: false, ..case.clone() });
        found.changes += recomputed_changes(&of_tail, &ResultsSummary::from_results(&of_tail));
        let page = render_html(&results, &summary, None);
        for text in [
            render_terminal(&results, &summary, SCREEN),
            render_markdown(&results, &summary).replace('\\', ""),
            plain_text(&page),
        ] {
            found.sentences += check_sentences(&text);
        }
        found.cells += page_differences(&page, |load, label, metric| {
            paired_ratio(&results, load, label, metric)
        });
        let method = CompareMethod { confidence: 0.9, smallest_effect: 0.01 };
        let again = make_case_results(&GeneratedCase { seed: case.seed ^ 1, ..case.clone() });
        let other = Results { seed: 1, ..again };
        let all: Vec<(usize, usize)> = (0..results.settings.len()).map(|it| (it, it)).collect();
        for compared in [
            compare_settings(&results, &results, &[(0, 1)], method),
            compare_settings(&results, &other, &all, method),
        ] {
            found.rows += check_rows(&comparison::render_terminal(&compared, &results, SCREEN));
            found.rows +=
                check_rows(&comparison::render_markdown(&compared, &results).replace('\\', ""));
            let gate = Gate::Worse;
            for text in
                [render_junit(&compared, &results, gate), render_ktap(&compared, &results, gate)]
            {
                found.verdicts += check_verdicts(&text);
            }
        }
        counts.set(found);
        Ok(())
    });
    if let Err(error) = checked {
        panic!("{error}");
    }
    let CheckCounts { sentences, rows, verdicts, cells, changes } = counts.get();
    println!(
        "{sentences} sentences, {rows} rows, {verdicts} verdicts and {cells} cells were computed again"
    );
    let least = cases as usize;
    assert!(
        sentences > least
            && rows > 30 * least
            && verdicts > 30 * least
            && cells > least
            && changes > least,
        "{sentences} {rows} {verdicts} {cells} {changes}"
    );
}

#[derive(Clone, Copy, Default)]
struct CheckCounts {
    sentences: usize,
    rows: usize,
    verdicts: usize,
    cells: usize,
    changes: usize,
}
