//! Results without names and addresses, to be passed on.
//!
//! Hosts get the names of their roles and interfaces become IFACE. Of a host's facts only those
//! stay that `SHARED_FACTS` names. Every other text loses known names, addresses and paths. Each
//! field is named here, so that a new one does not compile before it was thought of.

mod name_filter;

use std::collections::BTreeMap;

use latput_trial::live::{GroupBy, LiveSlice, TcpGroup};
use latput_trial::observation::{HostObservation, Role, TcpObservation};
use latput_trial::results::{HostFacts, LabelledSetting};
use latput_trial::surroundings::OTHER_LOAD;
use latput_trial::{Check, Finding, HostToday, Observation, Results, Row, Workload};
use latput_units::IntoMap;

use name_filter::NameFilter;

/// The facts of a host that name nobody, by the beginning of their names.
const SHARED_FACTS: [&str; 18] = [
    "clocksource",
    "cpu ",
    "driver",
    "features on",
    "firmware",
    "hypervisor",
    "irqbalance",
    "isolated cpus",
    "kernel",
    "memory",
    "mtu",
    "napi instances",
    "net.",
    "numa node",
    "online cpus",
    "rx queues",
    "tx queues",
    "speed",
];
/// Further facts, by their whole names.
const OTHER_SHARED_FACTS: [&str; 4] =
    ["interface kind", "smt", "transparent huge pages", "interrupts"];

/// Names of testbeds that say nothing of hosts, whole and as beginnings.
const SHARED_TESTBEDS: [&str; 3] = ["lab", "loopback", "vm"];
const SHARED_KINDS: [&str; 3] = ["sim:", "vm:", "import:"];

/// The results without names and addresses. The kernel's release, models and drivers stay.
pub fn redact_results(results: &Results) -> Results {
    let names = build_name_filter(results);
    let Results {
        name,
        goal,
        confidence,
        half_width,
        testbed,
        latput_version,
        seed,
        hosts,
        settings,
        workloads,
        rows,
        planned_trials,
        notes,
        confirmed_from,
        source: _,
        today,
        findings,
        beside,
    } = results;
    let without_names = |text: &String| names.redact_text(text);
    Results {
        name: names.redact_text(name),
        goal: goal.as_ref().map(without_names),
        confidence: *confidence,
        half_width: *half_width,
        testbed: shared_testbed(testbed),
        latput_version: names.redact_text(latput_version),
        seed: *seed,
        hosts: hosts.iter().map(|host| shared_host(host, &names)).collect(),
        settings: settings.iter().map(|setting| shared_setting(setting, &names)).collect(),
        workloads: workloads
            .iter()
            // A command has paths, addresses and perhaps passwords, and live traffic has peers and an endpoint.
            .map(|load| Workload {
                name: names.redact_text(&load.name),
                program: None,
                live: None,
                ..load.clone()
            })
            .collect(),
        rows: rows.iter().map(|row| shared_row(row, &names)).collect(),
        planned_trials: *planned_trials,
        notes: notes.iter().map(without_names).collect(),
        confirmed_from: *confirmed_from,
        source: None,
        today: today
            .iter()
            .map(|host| HostToday {
                host: names.lookup_host(&host.host, host.role),
                ..host.clone()
            })
            .collect(),
        findings: findings.iter().map(|finding| shared_finding(finding, &names)).collect(),
        beside: *beside,
    }
}

/// The names of the results, each with its replacement.
fn build_name_filter(results: &Results) -> NameFilter {
    let mut names = NameFilter::default();
    for role in [Role::Sut, Role::Generator, Role::Observer] {
        let hosts: Vec<&HostFacts> =
            results.hosts.iter().filter(|host| host.role == role).collect();
        for (number, host) in (1..).zip(&hosts) {
            let number = if hosts.len() == 1 { String::new() } else { format!("-{number}") };
            names.rename_host(&host.host, &format!("{}{number}", role.name()));
            names.hide_name(&host.interface, "IFACE");
        }
    }
    if shared_testbed(&results.testbed) != results.testbed {
        let parts = results.testbed.split(|c: char| !(c.is_alphanumeric() || "-_.".contains(c)));
        parts.for_each(|part| names.hide_name(part, "NAME"));
    }
    names
}

fn shared_testbed(testbed: &str) -> String {
    let is_plain = testbed.chars().all(|c| c.is_ascii_alphanumeric() || ":-_".contains(c));
    let is_known = SHARED_TESTBEDS.contains(&testbed)
        || SHARED_KINDS.iter().any(|kind| testbed.starts_with(kind));
    if is_known && is_plain {
        return testbed.to_owned();
    }
    let kind = SHARED_KINDS.iter().find(|kind| testbed.starts_with(**kind));
    kind.map_or_else(|| "hosts".to_owned(), |kind| format!("{kind}other"))
}

fn shared_host(host: &HostFacts, names: &NameFilter) -> HostFacts {
    let HostFacts { host: name, role, interface: _, facts } = host;
    let is_shared = |(key, _): &&(String, String)| is_shared_fact(key);
    let shared = facts.iter().filter(is_shared);
    HostFacts {
        host: names.lookup_host(name, *role),
        role: *role,
        interface: "IFACE".to_owned(),
        facts: shared.map(|(key, value)| (key.clone(), names.redact_text(value))).collect(),
    }
}

/// Whether a fact of this name is passed on.
pub fn is_shared_fact(name: &str) -> bool {
    OTHER_SHARED_FACTS.contains(&name) || SHARED_FACTS.iter().any(|start| name.starts_with(start))
}

fn shared_setting(setting: &LabelledSetting, names: &NameFilter) -> LabelledSetting {
    let LabelledSetting { label, by_role } = setting;
    LabelledSetting { label: names.redact_text(label), by_role: by_role.clone() }
}

fn shared_row(row: &Row, names: &NameFilter) -> Row {
    let Observation { traffic, probe, hosts, checks, reported_metrics, figures, programs, live } =
        &row.observation;
    let host = |host: &HostObservation| HostObservation {
        host: names.lookup_host(&host.host, host.role),
        tcp_groups: keep_port_groups(&host.tcp_groups),
        others: Vec::new(), // names of somebody's programs
        ..host.clone()
    };
    let check = |check: &Check| Check {
        name: names.redact_text(&check.name),
        passed: check.passed,
        detail: names.redact_text(&check.detail),
    };
    let observation = Observation {
        traffic: traffic.clone(),
        probe: probe.clone(),
        hosts: hosts.iter().map(host).collect(),
        checks: checks.iter().map(check).collect(),
        reported_metrics: reported_metrics.clone(),
        figures: figures.clone(),
        programs: programs.clone(),
        live: live.as_ref().map(|slice| LiveSlice {
            banned: slice.banned.as_ref().map(|why| names.redact_text(why)),
            ..slice.clone()
        }),
    };
    Row { observation, ..row.clone() }
}

/// The groups of connections without those of peers, which are addresses.
fn keep_port_groups(
    groups: &BTreeMap<TcpGroup, TcpObservation>,
) -> BTreeMap<TcpGroup, TcpObservation> {
    let kept = groups.iter().filter(|(group, _)| group.by() != Some(GroupBy::Peer));
    kept.map(|(group, seen)| (*group, seen.clone())).into_map()
}

fn shared_finding(finding: &Finding, names: &NameFilter) -> Finding {
    let Finding { name, hosts, seen, meaning, remedy } = finding;
    // Behind the figure are names of somebody's programs.
    let figure = seen.split(" (").next().unwrap_or_default();
    let seen: &str = if name == OTHER_LOAD { figure } else { seen };
    Finding {
        name: names.redact_text(name),
        hosts: hosts.iter().map(|host| names.lookup_host(host, Role::Sut)).collect(),
        seen: names.redact_text(seen),
        meaning: names.redact_text(meaning),
        remedy: names.redact_text(remedy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_a_busy_host_are_not_shared() {
        let host = latput_trial::Surroundings {
            busy_ratio: 0.5,
            others: vec![latput_trial::observation::OtherProcess {
                name: "secret-project".to_owned(),
                pid: 7,
                cpu_ratio: 0.5,
                cpus: "1".parse().unwrap(),
                switches_per_s: 0.0,
            }],
            ..latput_trial::Surroundings::default()
        };
        let found = latput_trial::surroundings::collect_findings(&[host]);
        assert!(found[0].seen.contains("secret-project"), "{found:?}");
        let shared = shared_finding(&found[0], &NameFilter::default());
        assert_eq!(shared.seen, "its CPUs are 50% busy before any traffic");
    }
}
