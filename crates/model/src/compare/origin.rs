//! Differences between two runs besides their settings: their days, latputs, testbeds and hosts.

use std::collections::BTreeMap;

use latput_knobs::Setting;
use latput_trial::observation::Role;
use latput_trial::results::HostFacts;
use latput_trial::{Results, today};
use latput_units::text::format_utc;

/// The facts of a host that move its figures, by their names in the results.
const FACTS: [&str; 10] = [
    "kernel",
    "kernel build",
    "kernel parameters",
    "cpu model",
    "online cpus",
    "cpu frequency governor",
    "driver",
    "driver version",
    "firmware",
    "speed",
];
/// Runs that began closer to each other than this are of one day.
const DAY_MS: u64 = 24 * 3_600 * 1_000;

/// One thing that differs between the runs of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginDifference {
    /// `date`, `latput`, `testbed` or `hosts`; or a fact of a host, such as `kernel of sut`.
    pub what: String,
    /// Its value in the first run.
    pub first: String,
    /// Its value in the second.
    pub second: String,
}

/// All that differs. A date differs if a day or more lies between the first trials. A fact that one of the runs has
/// not recorded is not compared.
pub(super) fn find_differences(first: &Results, second: &Results) -> Vec<OriginDifference> {
    let mut found = Vec::new();
    let mut compare = |what: String, first: &str, second: &str| {
        if first != second {
            found.push(OriginDifference {
                what,
                first: first.to_owned(),
                second: second.to_owned(),
            });
        }
    };
    if let (Some(began), Some(began_second)) = (began_ms(first), began_ms(second))
        && began.abs_diff(began_second) >= DAY_MS
    {
        compare("date".to_owned(), &format_utc(began / 1_000), &format_utc(began_second / 1_000));
    }
    compare("latput".to_owned(), &first.latput_version, &second.latput_version);
    compare("testbed".to_owned(), &first.testbed, &second.testbed);
    compare("hosts".to_owned(), &format_hosts(&first.hosts), &format_hosts(&second.hosts));
    for (host, other) in pair_hosts(first, second) {
        let role = host.role.name();
        if host.interface != other.interface {
            found.push(OriginDifference {
                what: format!("interface of {role}"),
                first: host.interface.clone(),
                second: other.interface.clone(),
            });
        }
        found.append(&mut compare_facts(host, other));
    }
    found
}

/// The values in which two settings of one label differ, in a sentence. A knob of which one of the runs does not know the
/// value is not compared.
pub(super) fn values(
    (first, of_first): (&Results, usize),
    (second, of_second): (&Results, usize),
) -> Option<String> {
    let label = &first.settings.get(of_first)?.label;
    if second.settings.get(of_second)?.label != *label {
        return None;
    }
    let (ours, theirs) = (values_of(first, of_first), values_of(second, of_second));
    let mut found = Vec::new();
    for (role, setting) in &ours {
        let others = theirs.get(role);
        for (knob, value) in setting {
            let Some(other) = others.and_then(|others| others.get(knob)) else { continue };
            // Each kernel numbers its queue disciplines itself, so that values are alike if they read alike.
            if !knob.spec().same(value, other) && value.to_string() != other.to_string() {
                found.push(format!("{knob} of {} is {value}, then {other}", role.name()));
            }
        }
    }
    let values = found.join("; ");
    (!found.is_empty()).then(|| format!("`{label}` is not the same setting in both runs: {values}"))
}

/// The values that the hosts of each role have under a setting, as far as they are known: those of today, and over them
/// its own.
fn values_of(results: &Results, setting: usize) -> BTreeMap<Role, Setting> {
    let mut values = today::shared(&results.today);
    for (role, own) in &results.settings[setting].by_role {
        let of_role = values.entry(*role).or_default();
        of_role.extend(own.iter().map(|(knob, value)| (*knob, value.clone())));
    }
    values
}

/// The facts in which hosts of the same role differ, that move figures.
pub(crate) fn differences_of_hosts(first: &Results, second: &Results) -> Vec<OriginDifference> {
    pair_hosts(first, second).flat_map(|(host, other)| compare_facts(host, other)).collect()
}

/// The hosts of both, in their order, up to the first of another role.
fn pair_hosts<'a>(
    first: &'a Results,
    second: &'a Results,
) -> impl Iterator<Item = (&'a HostFacts, &'a HostFacts)> {
    let both = first.hosts.iter().zip(&second.hosts);
    both.take_while(|(host, other)| host.role == other.role)
}

fn compare_facts(host: &HostFacts, other: &HostFacts) -> Vec<OriginDifference> {
    let role = host.role.name();
    let differs = |name: &str| {
        let (first, second) = (find_fact(host, name)?, find_fact(other, name)?);
        (first != second).then(|| OriginDifference {
            what: format!("{name} of {role}"),
            first: first.to_owned(),
            second: second.to_owned(),
        })
    };
    FACTS.into_iter().filter_map(differs).collect()
}

/// The start of the first trial, in milliseconds since 1970. 0 is a trial without a time.
fn began_ms(results: &Results) -> Option<u64> {
    results.rows.iter().map(|row| row.started_unix_ms).filter(|ms| *ms > 0).min()
}

/// Every host with its role, in the order of the observations.
fn format_hosts(hosts: &[HostFacts]) -> String {
    let name = |host: &HostFacts| format!("{} ({})", host.host, host.role.name());
    hosts.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn find_fact<'a>(host: &'a HostFacts, name: &str) -> Option<&'a str> {
    host.facts.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests {
    use latput_knobs::{Place, State, parse_assignment};
    use latput_trial::today::HostToday;
    use latput_units::IntoMap;

    use super::*;
    use crate::synthetic::{SyntheticFigures, build_results, rr_workload};

    #[test]
    fn differences_are_named_with_both_values() {
        let (first, mut second) = (run(1_000), run(1_000 + DAY_MS - 1));
        assert_eq!(find_differences(&first, &second), []);
        second.rows[0].started_unix_ms += 1;
        second.latput_version = "0.9.0".to_owned();
        second.testbed = "rack.toml".to_owned();
        second.hosts[1].facts[0].1 = "6.12.5".to_owned();
        second.hosts[1].interface = "eth9".to_owned();
        // Of facts that only one has nothing is known; of others a figure does not depend.
        second.hosts[0].facts[1].0 = "firmware".to_owned();
        second.hosts[0].facts[2].1 = "32 GiB".to_owned();
        let found = find_differences(&first, &second);
        let found: Vec<(&str, &str, &str)> =
            found.iter().map(|it| (&*it.what, &*it.first, &*it.second)).collect();
        assert_eq!(
            found,
            [
                ("date", "1970-01-01 00:00:01 UTC", "1970-01-02 00:00:01 UTC"),
                ("latput", "0", "0.9.0"),
                ("testbed", "none", "rack.toml"),
                ("interface of generator", "eth0", "eth9"),
                ("kernel of generator", "6.1.0", "6.12.5"),
            ]
        );
    }

    #[test]
    fn hosts_of_other_roles_are_not_compared() {
        let (first, mut second) = (run(1_000), run(1_000));
        second.hosts.remove(0);
        second.hosts[0].facts[0].1 = "6.12.5".to_owned();
        let found = find_differences(&first, &second);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((&*found[0].what, &*found[0].second), ("hosts", "two (generator)"),);
    }

    #[test]
    fn values_of_one_label_are_compared() {
        let set = |text: &str| -> BTreeMap<Role, Setting> {
            let setting = text.split(' ').map(|word| parse_assignment(word).unwrap());
            BTreeMap::from([(Role::Sut, setting.into_map())])
        };
        let with = |values: &str, today: &str| {
            let mut made = run(1_000);
            made.settings[0].by_role = set(values);
            let state = set(today).remove(&Role::Sut).unwrap();
            let state = state.into_iter().map(|(knob, value)| ((knob, Place::Device), value));
            let values = State(state.into_map());
            made.today = vec![HostToday { host: "one".to_owned(), role: Role::Sut, values }];
            made
        };
        let said = |first: &Results, second: &Results| values((first, 0), (second, 0));
        let first = with("rx-usecs=50us", "gro=on rx-usecs=3us mtu=1500");
        assert_eq!(said(&first, &first.clone()), None);
        // The setting's own value counts before today's, and of a knob that one run lacks nothing is known.
        let second = with("rx-usecs=60us", "gro=off rx-usecs=3us");
        let expected = "`off` is not the same setting in both runs: gro of sut is on, then off; rx-usecs of sut is \
                        50us, then 60us";
        assert_eq!(said(&first, &second).as_deref(), Some(expected));
        let mut other = second;
        other.settings[0].label = "other".to_owned();
        assert_eq!(said(&first, &other), None, "the labels tell them apart");
    }

    /// One trial that began then, on two hosts.
    fn run(began_ms: u64) -> Results {
        let host = |name: &str, role| HostFacts {
            host: name.to_owned(),
            role,
            interface: "eth0".to_owned(),
            facts: [("kernel", "6.1.0"), ("driver", "ice"), ("memory", "16 GiB")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .to_vec(),
        };
        let mut run =
            build_results(&["off"], &[rr_workload("rr")], 1, |_, _| SyntheticFigures::default());
        run.hosts = vec![host("one", Role::Sut), host("two", Role::Generator)];
        run.rows[0].started_unix_ms = began_ms;
        run
    }

    #[test]
    fn run_begins_with_its_first_dated_trial() {
        let mut made =
            build_results(&["off"], &[rr_workload("rr")], 3, |_, _| SyntheticFigures::default());
        assert_eq!(began_ms(&made), None);
        (made.rows[1].started_unix_ms, made.rows[2].started_unix_ms) = (7_000, 5_000);
        assert_eq!(began_ms(&made), Some(5_000));
    }
}
