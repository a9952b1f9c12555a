//! The rules of the page: what it shows, in which order, and with which marks.

#[path = "../examples/demo_report/results.rs"]
mod results;

use std::collections::BTreeMap;

use latput_model::ResultsSummary;
use latput_report::{Screen, render_html, render_terminal};
use latput_stats::{Estimate, Method};
use latput_trial::{Metric, Results, Traffic};

#[test]
fn tables_precede_pictures_with_contents() {
    let (results, summary) = build_demo();
    let page = render_html(&results, &summary, None);
    let place = |text: &str| page.find(text).unwrap_or_else(|| panic!("no {text}"));
    assert!(place("<table>") < place("<svg"));
    let contents = &page[place("<nav class=\"contents\"")..];
    let contents = &contents[..contents.find("</nav>").unwrap()];
    let links: Vec<&str> =
        contents.split("href=\"#").skip(1).filter_map(|link| link.split('"').next()).collect();
    assert!(links.len() > 5, "{links:?}");
    let places: Vec<usize> =
        links.iter().map(|link| place(&format!("<h2 id=\"{link}\""))).collect();
    assert!(places.is_sorted(), "{links:?}");
}

#[test]
fn no_text_of_the_page_has_a_backtick() {
    let (mut results, summary) = build_demo();
    results.source = Some("results.db".to_owned());
    let page = render_html(&results, &summary, None);
    let (head, rest) = page.split_once("<style>").unwrap();
    let (_, rest) = rest.split_once("</style>").unwrap();
    let (body, _) = rest.split_once("<script").unwrap();
    for text in [head, body] {
        assert!(!text.contains('`'), "{}", &text[text.find('`').unwrap()..][..80]);
    }
}

#[test]
fn one_setting_has_no_trade_off() {
    let (mut results, _) = build_demo();
    results.settings.truncate(1);
    results.rows.retain(|row| row.setting == 0);
    let summary = ResultsSummary::from_results(&results);
    let page = render_html(&results, &summary, None);
    let body = page.split_once("<body>").unwrap().1.split_once("<script").unwrap().0;
    assert!(body.contains("id=\"figures\""));
    for absent in ["id=\"trade-off\"", "data-panel", "class=\"legend\""] {
        assert!(!body.contains(absent), "{absent}");
    }
    let screen = Screen { columns: 100, is_styled: false };
    assert!(!render_terminal(&results, &summary, screen).contains("trade-off: none"));
}

#[test]
fn first_trade_off_has_the_largest_proven_differences() {
    let (results, mut summary) = build_demo();
    let bulk = results.workloads.iter().position(|it| it.traffic.is_bulk()).unwrap();
    let rr = results.workloads.iter().position(|it| it.traffic.is_transactional()).unwrap();
    for cell in &mut summary.cells {
        cell.against_first.clear();
        if cell.setting == 2 && cell.workload == bulk {
            cell.against_first.insert(Metric::SutServiceDemandUs, make_ratio(0.5));
        }
        if cell.setting == 2 && cell.workload == rr {
            cell.against_first.insert(Metric::LatencyNsP50, make_ratio(3.0));
            cell.against_first.insert(Metric::LatencyNsP99, make_ratio(1.5));
        }
    }
    let page = render_html(&results, &summary, None);
    let name = |workload: usize, metric: Metric| {
        format!(
            "<option value=\"0\">{}: {}</option>",
            results.workloads[workload].name,
            metric.column()
        )
    };
    for first in [name(bulk, Metric::SutServiceDemandUs), name(rr, Metric::LatencyNsP50)] {
        assert!(page.contains(&first), "{first}");
    }
}

#[test]
fn busy_cpu_mark_needs_demand() {
    let page_of = |demand: f64| {
        let (results, mut summary) = build_demo();
        for cell in &mut summary.cells {
            let ratios = [(Metric::SutCpuBusyRatio, 1.31), (Metric::SutServiceDemandUs, demand)];
            cell.against_first = ratios
                .into_iter()
                .map(|(metric, it)| (metric, make_ratio(it)))
                .collect::<BTreeMap<_, _>>();
        }
        render_html(&results, &summary, None)
    };
    let (more_traffic, more_cost) = (page_of(0.8), page_of(1.2));
    assert!(more_traffic.contains("<b>+31.0%</b>") && !more_traffic.contains("+31.0%<i>"));
    assert!(more_cost.contains("<b>+31.0%<i>✗</i></b>"));
}

#[test]
fn program_latency_is_told_as_its_own() {
    let (mut results, _) = build_demo();
    let histogram = "in a histogram";
    let page_of =
        |results: &Results| render_html(results, &ResultsSummary::from_results(results), None);
    let own = page_of(&results);
    assert!(own.contains(histogram) && !own.contains("as the program reports it"));
    for row in &mut results.rows {
        row.observation.traffic.latency = None;
    }
    assert!(!page_of(&results).contains(histogram));
    // A program's figures are known by the kind of its workload.
    let (mut results, summary) = build_demo();
    let told = summary.cells.iter().find(|cell| cell.metrics.contains_key(&Metric::LatencyNsP99));
    results.workloads[told.unwrap().workload].traffic = Traffic::Command;
    assert!(
        render_html(&results, &summary, None)
            .contains("as the program reports it, of its whole run")
    );
}

fn make_ratio(value: f64) -> Estimate {
    let method = Method::PairedLogRatio;
    Estimate { value, low: value * 0.99, high: value * 1.01, confidence: 0.99, method, runs: 6 }
}

fn build_demo() -> (Results, ResultsSummary) {
    let results = results::build_demo_results();
    let summary = ResultsSummary::from_results(&results);
    (results, summary)
}
