//! A metric that a plan defines, from the results file to every output.

#[path = "../examples/demo_report/results.rs"]
mod results;

use latput_model::compare::{CompareMethod, ComparisonVerdict, compare_settings};
use latput_model::{Goal, Headline, ResultsSummary};
use latput_report::history::{self, HistoryRun};
use latput_report::{
    Screen, comparison, html_with_trials, read_report, redact_results, render_brief, render_csv,
    render_html, render_json, render_markdown, render_terminal,
};
use latput_trial::metric::{CustomMetric, Definition, PreferredDirection, Unit};
use latput_trial::{Check, Metric, Results, metric};

const SCREEN: Screen = Screen { columns: 160, is_styled: false };

fn define_metric(name: &str, unit: Unit, better: PreferredDirection) -> CustomMetric {
    let summary = metric::Summary::Mean;
    CustomMetric::define(&Definition { name: name.to_owned(), unit, better, summary })
        .expect("a definition")
}

/// The demo with two figures of an application: settings 1 and 2 serve 20% and 40% more, and setting 2 is too slow.
fn make_custom_results() -> Results {
    let mut made = results::build_demo_results();
    let queries = define_metric("app_queries", Unit::PerS, PreferredDirection::Higher);
    let delay = define_metric("app_delay", Unit::Nanoseconds, PreferredDirection::Lower);
    for row in &mut made.rows {
        let noise = 1.0 + 0.002 * f64::from((row.block * 7) % 5);
        let gain = [1.0, 1.2, 1.4, 1.0, 0.9][row.setting];
        let slow = [1.0, 1.05, 2.0, 1.0, 1.0][row.setting];
        row.observation.figures.insert(queries, 5e4 * gain * noise);
        row.observation.figures.insert(delay, 2e6 * slow * noise);
    }
    made.goal = Some("maximize app_queries where app_delay <= 1.2 today".to_owned());
    // As from a file.
    let kept = serde_json::to_string(&made).expect("results are JSON");
    serde_json::from_str(&kept).expect("results are read back")
}

#[test]
fn goal_names_it_and_the_recommendation_follows_it() {
    let made = make_custom_results();
    let summary = ResultsSummary::from_results(&made);
    assert!(
        matches!(&summary.recommendation.as_ref().unwrap().headline, Headline::Set { .. }),
        "{summary:?}"
    );
    let text = render_terminal(&made, &summary, SCREEN);
    assert!(text.contains("Recommended: set"), "{text}");
    assert!(text.contains("gro-flush-timeout=20us"), "{text}");
    let error = Goal::parse("maximize app_querys").unwrap_err().to_string();
    assert!(error.contains("`app_queries`"), "{error}");
}

#[test]
fn every_output_has_it() {
    let made = make_custom_results();
    let summary = ResultsSummary::from_results(&made);
    for (name, text) in [
        ("terminal", render_terminal(&made, &summary, SCREEN)),
        ("markdown", render_markdown(&made, &summary)),
        ("html", render_html(&made, &summary, None)),
        ("csv", render_csv(&made)),
        ("json", render_json(&made, &summary)),
    ] {
        assert!(text.contains("app_queries"), "{name}: {text}");
    }
    let document: serde_json::Value = serde_json::from_str(&render_json(&made, &summary)).unwrap();
    assert!(document["runs"][0]["metrics"]["app_queries"].as_f64().is_some_and(|it| it > 1e4));
    assert!(document["cells"][0]["metrics"]["app_delay"]["value"].is_number(), "{document}");
    let defined = &document["plan_metrics"][1];
    assert_eq!((&defined["name"], &defined["unit"]), (&"app_queries".into(), &"1/s".into()));
    let lines = render_csv(&made);
    let header: Vec<&str> = lines.lines().next().unwrap().split(',').collect();
    assert_eq!(header[header.len() - 2..], ["app_delay", "app_queries"]);
    let page = render_html(&made, &summary, None);
    assert!(page.contains("that the plan defines"), "the page defines its columns");
}

#[test]
fn report_gives_it_back() {
    let made = redact_results(&make_custom_results());
    let page = html_with_trials(&made, &ResultsSummary::from_results(&made));
    let read = read_report(page.as_bytes()).unwrap();
    let figures = |results: &Results| results.rows[0].observation.figures.clone();
    assert_eq!(figures(&read), figures(&made));
    assert_eq!(read.custom_metrics().len(), 2);
}

#[test]
fn two_settings_are_compared_by_it() {
    let made = make_custom_results();
    let method = CompareMethod { confidence: 0.99, smallest_effect: 0.01 };
    let found = compare_settings(&made, &made, &[(0, 1)], method);
    let figure = found[0].figures.iter().find(|it| it.metric.name() == "app_queries").unwrap();
    assert_eq!(figure.verdict, ComparisonVerdict::Better, "{figure:?}");
    let text = comparison::render_terminal(&found, &made, SCREEN);
    assert!(text.contains("app_queries"), "{text}");
}

#[test]
fn history_and_a_single_measurement_show_it() {
    let mut made = make_custom_results();
    let wanted: Metric = "app_queries".parse().unwrap();
    let run = HistoryRun::new("f#1".to_owned(), 0, &made, &[wanted], |_, _| true);
    assert!(history::render_csv(&[run]).contains("app_queries"));
    let all = HistoryRun::new("f#1".to_owned(), 0, &made, &[], |_, _| true);
    assert!(history::render_csv(&[all]).contains("app_delay"));
    made.rows.retain(|row| (row.setting, row.workload) == (0, 0));
    made.settings.truncate(1);
    made.workloads.truncate(1);
    made.planned_trials = made.rows.len() as u64;
    made.goal = None;
    let text = render_brief(&made, &ResultsSummary::from_results(&made), SCREEN);
    assert!(text.contains("figures  app_delay 2007 us"), "{text}");
}

#[test]
fn marks_stand_beside_the_rate() {
    let mut made = results::build_demo_results();
    made.workloads.truncate(1);
    made.rows.retain(|row| row.workload == 0);
    // Before the others by name, as the errors that a benchmark counts.
    let errors = define_metric("app_errors", Unit::Number, PreferredDirection::Lower);
    for row in &mut made.rows {
        row.observation.figures.insert(errors, 0.0);
        if row.setting == 1 {
            let name = "program-errors".to_owned();
            row.observation.checks.push(Check { name, passed: false, detail: String::new() });
        }
    }
    let text = render_terminal(&made, &ResultsSummary::from_results(&made), SCREEN);
    let row = text.lines().find(|line| line.contains(" 20us ") && line.contains('!')).unwrap();
    // The errors come first, then the rate with its interval and its mark.
    let before = row.split('!').next().unwrap();
    assert_eq!(before.matches('±').count(), 2, "{row}");
}

#[test]
fn duplicate_column_name_is_changed() {
    let mut made = results::build_demo_results();
    let setting = define_metric("setting", Unit::Number, PreferredDirection::Neither);
    made.rows[0].observation.figures.insert(setting, 1.0);
    let text = render_csv(&made);
    assert!(text.lines().next().unwrap().ends_with(",figure_setting"), "{text}");
}

/// The stopping rule asks for narrow intervals of the plan's own rates where there is no other rate.
#[test]
fn custom_figures_alone_are_enough() {
    let mut made = make_custom_results();
    for row in &mut made.rows {
        row.observation.traffic = latput_trial::observation::TrafficObservation::default();
    }
    made.half_width = 0.05;
    let summary = ResultsSummary::from_results(&made);
    let wide = |cell: &&latput_model::CellSummary| {
        cell.too_wide
            .iter()
            .any(|metric| *metric == Metric::TransactionsPerS || metric.name() == "app_queries")
    };
    assert_eq!(summary.cells.iter().filter(wide).count(), 0, "{:?}", summary.cells[0].too_wide);
    made.half_width = 0.000_1;
    let summary = ResultsSummary::from_results(&made);
    assert_eq!(summary.cells.iter().filter(wide).count(), summary.cells.len());
}
