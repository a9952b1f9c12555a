//! The head of the page: when, where and on what was measured, and what must be known before a
//! figure is read.

use std::collections::BTreeMap;

use latput_trial::observation::{CpuSource, HostObservation, Role};
use latput_trial::results::HostFacts;
use latput_trial::{Results, Row};
use latput_units::text;
use serde::Serialize;

use crate::format;
use crate::printable::printable;

/// Kinds of failed checks that a banner names.
const NAMED_CHECKS: usize = 3;

#[derive(Debug, Serialize)]
pub(crate) struct Head {
    /// `2026-11-24 02:30 UTC, 4 min`; `None` if no trial has a time.
    when: Option<String>,
    testbed: String,
    hosts: Vec<HeadHost>,
    banners: Vec<Banner>,
}

/// One host in a line.
#[derive(Debug, Serialize)]
struct HeadHost {
    role: &'static str,
    name: String,
    /// `eth2: ice, 25 Gbit/s`.
    nic: String,
    kernel: String,
    cpu: String,
}

/// Something to know before a figure is read.
#[derive(Debug, Serialize)]
struct Banner {
    title: &'static str,
    text: String,
}

impl Head {
    pub(crate) fn new(results: &Results) -> Self {
        let banners = [not_measured(results), imported(results), failed_checks(results)];
        Self {
            when: when(results),
            testbed: printable(&results.testbed),
            hosts: results.hosts.iter().map(head_host).collect(),
            banners: banners.into_iter().flatten().collect(),
        }
    }
}

/// The start of the first trial and the time until the end of the last one.
fn when(results: &Results) -> Option<String> {
    let starts = || results.rows.iter().map(|row| row.started_unix_ms).filter(|ms| *ms > 0);
    let (first, last) = (starts().min()?, starts().max()?);
    let is_last = |row: &&Row| row.started_unix_ms == last;
    let window = results.rows.iter().find(is_last)?.observation.traffic.sender_window;
    let seconds = (last - first) / 1000 + window.as_ns() / 1_000_000_000;
    let date = text::utc(first / 1000);
    Some(format!("{date}, {}", duration(seconds)))
}

/// `45 s`, `4 min`, `3 h 20 min`.
fn duration(seconds: u64) -> String {
    let minutes = (seconds + 30) / 60;
    match seconds {
        0..100 => format!("{seconds} s"),
        100..6000 => format!("{minutes} min"),
        _ => format!("{} h {} min", minutes / 60, minutes % 60),
    }
}

fn head_host(host: &HostFacts) -> HeadHost {
    let fact = |name: &str| {
        let fact = host.facts.iter().find(|(key, _)| key == name);
        fact.map(|(_, value)| printable(value)).filter(|value| value != "unknown")
    };
    let known = |parts: [Option<String>; 2]| parts.into_iter().flatten().collect::<Vec<_>>();
    let nic = known([fact("driver"), fact("speed")]).join(", ");
    let interface = printable(&host.interface);
    HeadHost {
        role: match host.role {
            Role::Sut => "system under test",
            Role::Generator => "generator",
            Role::Observer => "observer",
        },
        name: printable(&host.host),
        nic: [interface, nic]
            .into_iter()
            .filter(|it| !it.is_empty())
            .collect::<Vec<_>>()
            .join(": "),
        kernel: fact("kernel").unwrap_or_default(),
        cpu: fact("cpu model").unwrap_or_default(),
    }
}

/// Whether the CPU times of a trial are a simulator's.
fn is_simulated(row: &Row) -> bool {
    let simulated = |host: &HostObservation| host.accounting.source == CpuSource::Simulated;
    row.observation.hosts.iter().any(simulated)
}

fn not_measured(results: &Results) -> Option<Banner> {
    if results.rows.iter().any(is_simulated) || results.testbed.starts_with("sim:") {
        let text = "No host was measured. Every figure is a prediction of the simulator: measure before \
                    a host is changed.";
        return Some(Banner { title: "Simulated", text: text.to_owned() });
    }
    let program = results.testbed.strip_prefix("import:")?;
    let text = format!(
        "latput measured nothing: every figure is what a file of {} said.",
        printable(program)
    );
    Some(Banner { title: "Imported", text })
}

fn imported(results: &Results) -> Option<Banner> {
    let text = "These trials came out of a report, and anybody can have edited them. Nothing was measured \
                here.";
    results.is_imported().then(|| Banner { title: "Imported from a report", text: text.to_owned() })
}

fn failed_checks(results: &Results) -> Option<Banner> {
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
        told.map(|(name, count)| format!("{} in {count}", printable(name))).collect();
    let more = names.len().saturating_sub(NAMED_CHECKS);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let text = format!(
        "{trials} of {}: {}{more}. What they mean is below, under \"What to be careful about\".",
        format::count(results.rows.len(), "trial"),
        told.join(", "),
    );
    (trials > 0).then_some(Banner { title: "Checks failed", text })
}
