//! The head of the page: when, where and on what was measured, and what must be known before a
//! figure is read.

use std::collections::BTreeMap;

use latput_trial::observation::{CpuSource, HostObservation, Role};
use latput_trial::results::HostFacts;
use latput_trial::{Results, Row};
use latput_units::text;
use serde::Serialize;

use super::prose::{Pieces, code_and_prose};
use crate::format;
use crate::next::SIMULATED;
use crate::printable::make_printable;

/// Kinds of failed checks that a banner names.
const NAMED_CHECKS: usize = 3;

#[derive(Debug, Serialize)]
pub(crate) struct PageHead {
    /// `2026-11-24 02:30 UTC, 4 min`; `None` if no trial has a time.
    when: Option<String>,
    testbed: String,
    /// Titles of the facts of hosts: of those that at least one host has.
    columns: Vec<&'static str>,
    hosts: Vec<HeadHost>,
    banners: Vec<Banner>,
}

/// One host in a line.
#[derive(Debug, Serialize)]
struct HeadHost {
    /// Empty where the name says it.
    role: &'static str,
    name: String,
    /// One for each column.
    facts: Vec<String>,
}

/// Something to know before a figure is read.
#[derive(Debug, Serialize)]
struct Banner {
    title: &'static str,
    text: Pieces,
}

impl Banner {
    fn new(title: &'static str, text: &str) -> Self {
        Self { title, text: code_and_prose(text) }
    }
}

/// The facts of a host in the head.
const COLUMNS: [&str; 3] = ["NIC", "kernel", "CPU"];

impl PageHead {
    pub(crate) fn new(results: &Results) -> Self {
        let banners =
            [not_measured_banner(results), imported_banner(results), failed_checks_banner(results)];
        let facts: Vec<[String; 3]> =
            results.hosts.iter().map(|host| collect_facts(results, host)).collect();
        let known: Vec<usize> =
            (0..COLUMNS.len()).filter(|&idx| facts.iter().any(|of| !of[idx].is_empty())).collect();
        let host = |(host, facts): (&HostFacts, &[String; 3])| HeadHost {
            role: describe_role(host),
            name: make_printable(&host.host),
            facts: known.iter().map(|&idx| facts[idx].clone()).collect(),
        };
        Self {
            when: format_time_span(results),
            testbed: make_printable(&results.testbed),
            columns: known.iter().map(|&idx| COLUMNS[idx]).collect(),
            hosts: results.hosts.iter().zip(&facts).map(host).collect(),
            banners: banners.into_iter().flatten().collect(),
        }
    }
}

/// The start of the first trial and the time until the end of the last one.
fn format_time_span(results: &Results) -> Option<String> {
    let starts = || results.rows.iter().map(|row| row.started_unix_ms).filter(|ms| *ms > 0);
    let (first, last) = (starts().min()?, starts().max()?);
    let is_last = |row: &&Row| row.started_unix_ms == last;
    let window = results.rows.iter().find(is_last)?.observation.traffic.sender_window;
    let seconds = (last - first) / 1000 + window.as_ns() / 1_000_000_000;
    let date = text::format_utc(first / 1000);
    Some(format!("{date}, {}", format_duration(seconds)))
}

/// `45 s`, `4 min`, `3 h 20 min`.
fn format_duration(seconds: u64) -> String {
    let minutes = (seconds + 30) / 60;
    match seconds {
        0..100 => format!("{seconds} s"),
        100..6000 => format!("{minutes} min"),
        _ => format!("{} h {} min", minutes / 60, minutes % 60),
    }
}

/// The role of a host in words; empty where its name is its role.
fn describe_role(host: &HostFacts) -> &'static str {
    if host.host == host.role.name() {
        return "";
    }
    match host.role {
        Role::Sut => "system under test",
        Role::Generator => "generator",
        Role::Observer => "observer",
    }
}

/// NIC (`eth2: ice, 25 Gbit/s`), kernel and CPU; empty where unknown. A simulated host has no interface.
fn collect_facts(results: &Results, host: &HostFacts) -> [String; 3] {
    let fact = |name: &str| {
        let fact = host.facts.iter().find(|(key, _)| key == name);
        fact.map(|(_, value)| make_printable(value)).filter(|value| value != "unknown")
    };
    let details: Vec<String> = ["driver", "speed"].into_iter().filter_map(fact).collect();
    let interface = Some(make_printable(&host.interface)).filter(|_| !is_simulator(results));
    let details = Some(details.join(", ")).filter(|details| !details.is_empty());
    let nic: Vec<String> =
        interface.into_iter().chain(details).filter(|it| !it.is_empty()).collect();
    [nic.join(": "), fact("kernel").unwrap_or_default(), fact("cpu model").unwrap_or_default()]
}

fn is_simulator(results: &Results) -> bool {
    results.testbed.starts_with(SIMULATED)
}

/// Whether the CPU times of a trial are a simulator's.
fn is_simulated(row: &Row) -> bool {
    let simulated = |host: &HostObservation| host.accounting.source == CpuSource::Simulated;
    row.observation.hosts.iter().any(simulated)
}

fn not_measured_banner(results: &Results) -> Option<Banner> {
    if results.rows.iter().any(is_simulated) || is_simulator(results) {
        let text =
            "The simulator predicted every figure. Measure your hosts before you change them.";
        return Some(Banner::new("Simulated", text));
    }
    let program = results.other_program()?;
    let text = format!(
        "Every figure is from a file of {}, not measured by latput.",
        make_printable(program)
    );
    Some(Banner::new("Imported", &text))
}

fn imported_banner(results: &Results) -> Option<Banner> {
    let text = "These trials are from a report and may have been edited.";
    results.is_imported().then(|| Banner::new("Imported from a report", text))
}

fn failed_checks_banner(results: &Results) -> Option<Banner> {
    let mut by_name: BTreeMap<&str, usize> = BTreeMap::new();
    let mut trials = 0;
    for row in &results.rows {
        let failed = row.observation.checks.iter().filter(|check| !check.passed);
        let mut names: Vec<&str> = failed.map(|check| check.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        trials += usize::from(!names.is_empty());
        for name in names {
            *by_name.entry(name).or_default() += 1;
        }
    }
    let mut names: Vec<(&str, usize)> = by_name.into_iter().collect();
    names.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let told = names.iter().take(NAMED_CHECKS);
    let told: Vec<String> =
        told.map(|(name, count)| format!("{} in {count}", make_printable(name))).collect();
    let more = names.len().saturating_sub(NAMED_CHECKS);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let text = format!(
        "{trials} of {}: {}{more}. See Warnings below.",
        format::format_count(results.rows.len(), "trial"),
        told.join(", "),
    );
    (trials > 0).then(|| Banner::new("Checks failed", &text))
}
