//! How it was measured: order, intervals and the meaning of the main figures.

use latput_trial::observation::Role;
use latput_trial::workload::TrafficMaker;

use super::prose::{Pieces, code_and_prose};
use crate::format;
use crate::printable::make_printable;
use crate::view::{ReportView, cpu_sources};

/// The lines of the section, each with its name.
pub(super) fn build_method_section(view: &ReportView<'_>) -> Vec<(&'static str, Pieces)> {
    let results = view.results;
    let mut lines = vec![
        (
            "Order",
            format!(
                "{} of {} in {}. The order within a block is random, with seed {}",
                results.rows.len(),
                format::format_count(results.planned_trials, "planned trial"),
                format::format_count(view.count_blocks(), "block"),
                results.seed
            ),
        ),
        (
            "Intervals",
            format!(
                "{} confidence. Means have Student's t intervals. Percentiles are medians over trials with \
                 order-statistic intervals. Wanted: ±{} of a rate",
                format::format_percent(results.confidence),
                format::format_percent(results.half_width)
            ),
        ),
    ];
    lines.extend(explain_figures(view));
    if view.shares_kernel() {
        lines.push((
            "Hosts on one kernel",
            "each host has its own CPUs, which are counted as its CPU time; the check `cpu-parts-add-up` \
             compares the sum with the machine's total in every trial"
                .to_owned(),
        ));
    }
    for host in &results.hosts {
        let role = match host.role {
            Role::Sut => "SUT",
            Role::Generator => "generator",
            Role::Observer => "observer",
        };
        if let Some(ratio) = view.sampling_ratio(&host.host) {
            let text = format!(
                "{} of one CPU on {} ({role})",
                format::format_percent(ratio),
                make_printable(&host.host)
            );
            lines.push(("Cost of sampling", text));
        }
    }
    lines.push(("latput", make_printable(&results.latput_version)));
    lines.into_iter().map(|(name, text)| (name, code_and_prose(&text))).collect()
}

/// Explanations of the figures.
fn explain_figures(view: &ReportView<'_>) -> Vec<(&'static str, String)> {
    let differences =
        "ratios to the first setting, paired within blocks; the interval is on their logarithms";
    let source = cpu_sources(view.results).map_or_else(String::new, |source| format!(", {source}"));
    let busy = format!(
        "user + system + irq + softirq of all CPUs of a host{source}. Stolen time is left out. Kernel threads \
         count as system"
    );
    let demand = "busy CPU time of the whole host per transaction, or per KB (1024 byte) of goodput; netperf's \
                  own figure, from clock ticks, is `sut_netperf_demand_us`";
    let mut lines = vec![
        ("Differences", differences.to_owned()),
        ("Busy CPU", busy),
        ("Service demand", demand.to_owned()),
    ];
    lines.extend(describe_latency(view).map(|text| ("Latency", text)));
    lines
}

/// Names the program that measured the latency, and how; `None` where none did.
fn describe_latency(view: &ReportView<'_>) -> Option<String> {
    let rows = &view.results.rows;
    let has_own = rows.iter().any(|row| row.observation.traffic.latency.is_some());
    let of_latput = "every transaction of the measurement window, after the warm-up, in a histogram whose buckets \
                     are at most 0.1% wide";
    let programs: Vec<String> = view
        .measured_workloads()
        .filter(|(_, workload)| workload.traffic.facts().maker == TrafficMaker::Programs)
        .filter(|(idx, _)| {
            view.workload_metrics(*idx).iter().any(|metric| metric.name().starts_with("latency_"))
        })
        .map(|(idx, _)| {
            format!("`{}`: as the program reports it, of its whole run", view.workload_name(idx))
        })
        .collect();
    let parts = has_own.then(|| of_latput.to_owned()).into_iter().chain(programs);
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}
