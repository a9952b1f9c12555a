//! One finished trial in the document.

use std::collections::BTreeMap;

use latput_stats as stats;
use latput_trial::live::{BrokenGuard, LiveSlice};
use latput_trial::observation::{HostObservation, Observation, ProgramCpu};
use latput_trial::results::Row;
use latput_trial::{Metric, Results, Traffic, metric};
use latput_units::{IntoMap, Nanos};

use super::groups::collect_run_groups;
use super::{
    Estimate, KnobReading, RunCheck, RunDocument, RunGuard, RunHost, RunLive, RunProgram,
    convert_estimate, finite_or_none,
};
use crate::view::{CPU_PARTS, cpu_shares};

pub(super) fn run(results: &Results, row: &Row) -> RunDocument {
    let traffic = results.workloads.get(row.workload).map(|workload| workload.traffic);
    let value = |metric: Metric| {
        let value = metric.value(&traffic?, &row.observation)?;
        value.is_finite().then(|| (metric.name().to_owned(), value))
    };
    let (passed, failed): (Vec<_>, Vec<_>) =
        row.observation.checks.iter().partition(|check| check.passed);
    RunDocument {
        block: row.block,
        setting: row.setting,
        workload: row.workload,
        started_unix_ms: row.started_unix_ms,
        metrics: row.observation.metrics().filter_map(value).into_map(),
        percentiles_within_run: compute_percentiles(&row.observation, results.confidence),
        hosts: run_hosts(traffic.as_ref(), &row.observation),
        checks_passed: passed.iter().map(|check| check.name.clone()).collect(),
        checks_failed: failed
            .iter()
            .map(|check| RunCheck { name: check.name.clone(), detail: check.detail.clone() })
            .collect(),
        metrics_given: row
            .observation
            .reported_metrics
            .keys()
            .map(|metric| metric.name().to_owned())
            .collect(),
        programs: row.observation.programs.iter().filter_map(run_program).collect(),
        live: row.observation.live.as_ref().map(run_live),
        tcp_groups: collect_run_groups(traffic.as_ref(), &row.observation),
    }
}

fn run_live(slice: &LiveSlice) -> RunLive {
    let guard = |broken: &BrokenGuard| {
        Some(RunGuard {
            guard: broken.guard.clone(),
            value: finite_or_none(broken.value)?,
            today: broken.today.and_then(finite_or_none),
            after_ns: broken.after.as_ns(),
            until_back_ns: broken.until_back.as_ns(),
        })
    };
    RunLive {
        change_ns: slice.change.as_ns(),
        change_back_ns: slice.change_back.as_ns(),
        cut_ns: slice.cut.as_ns(),
        guard_broken: slice.broken.as_ref().and_then(guard),
        banned: slice.banned.clone(),
    }
}

fn run_program(told: &ProgramCpu) -> Option<RunProgram> {
    told.busy_ratio.is_finite().then(|| RunProgram {
        role: told.role.name().to_owned(),
        program: told.program.clone(),
        method: told.method.describe().to_owned(),
        busy_ratio: told.busy_ratio,
    })
}

fn compute_percentiles(observation: &Observation, confidence: f64) -> BTreeMap<String, Estimate> {
    let of = |metric: &Metric| {
        let probe = observation.probe.as_ref().map(|probe| &probe.rtt);
        let is_probe = metric.is_of_probe();
        let histogram = if is_probe { probe } else { observation.traffic.latency.as_ref() };
        let found = stats::order::quantile_within(histogram?, metric.quantile()?, confidence)?;
        Some((metric.name().to_owned(), convert_estimate(&found)?))
    };
    Metric::ALL.iter().filter_map(of).into_map()
}

fn run_hosts(traffic: Option<&Traffic>, observation: &Observation) -> Vec<RunHost> {
    let demand = |host: &HostObservation| {
        metric::service_demand_us(traffic?, observation, [host]).and_then(finite_or_none)
    };
    let cpu_ratio = |host: &HostObservation| {
        let shares = cpu_shares(&host.cpu()).into_iter().flatten();
        CPU_PARTS.iter().map(|part| (*part).to_owned()).zip(shares).into_map()
    };
    let knobs = |host: &HostObservation| {
        let state = host.state.0.iter();
        state
            .map(|((knob, place), value)| KnobReading {
                knob: knob.to_string(),
                place: place.to_string(),
                value: value.to_string(),
            })
            .collect()
    };
    observation
        .hosts
        .iter()
        .map(|host| RunHost {
            host: host.host.clone(),
            role: host.role.name().to_owned(),
            window_started_unix_ns: host.window_started_unix_ns,
            window_ns: host.window.as_ns(),
            cpu_source: host.accounting.source.name().to_owned(),
            cpu_ratio: cpu_ratio(host),
            service_demand_us: demand(host),
            sampling_cpu_ns: host.sampling_cpu.as_ns(),
            tracing_cpu_ns: host.tracing_cpu.map(Nanos::as_ns),
            traced_beside_ns: host.accounting.traced.map(Nanos::as_ns),
            rx_packets_count: host.interface.rx_packets,
            tx_packets_count: host.interface.tx_packets,
            rx_dropped_count: host.interface.rx_dropped,
            tx_dropped_count: host.interface.tx_dropped,
            softirqs_count: host.softirqs,
            interrupts_count: host.interrupts,
            knobs: knobs(host),
        })
        .collect()
}
