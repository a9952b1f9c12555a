//! Names of settings without the part that all of them share.

use std::collections::BTreeSet;

use latput_trial::Results;
use latput_trial::observation::Role;
use latput_trial::today::TODAY;
use latput_units::IntoSet;

/// The shortest labels that tell the settings apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShortLabels {
    /// The knobs that every label names, or `setting` where they name different ones.
    pub knobs: String,
    /// One label for each setting of the results.
    pub labels: Vec<String>,
}

impl ShortLabels {
    /// Shortens the labels. Labels of the form `knob=value ...` lose the knobs if all of them name
    /// the same ones in the same order. Today's is told as such, with its values.
    pub fn from_results(results: &Results) -> Self {
        let own = usize::from(is_extra(results)); // today's, if the plan does not have it
        let plans = || results.settings.iter().skip(own).map(|setting| setting.label.as_str());
        let parts: Option<Vec<_>> = plans().map(knobs_and_values).collect();
        let shared = parts.filter(|parts| {
            let first = parts.first().map(|(knobs, _)| knobs);
            first.is_some_and(|first| !first.is_empty() && parts.iter().all(|(k, _)| k == first))
        });
        let (knobs, mut labels): (_, Vec<String>) = match &shared {
            Some(parts) => {
                (parts[0].0.join(", "), parts.iter().map(|(_, values)| values.join(", ")).collect())
            }
            None => ("setting".to_owned(), plans().map(str::to_owned).collect()),
        };
        if own > 0 {
            let values = match &shared {
                Some(parts) => parts[0].0.iter().map(|knob| value_of(results, knob)).collect(),
                None => None,
            };
            labels.insert(0, values.map_or_else(String::new, |all: Vec<String>| all.join(", ")));
        }
        if let Some(first) = labels.first_mut().filter(|_| !results.today.is_empty()) {
            *first = with_today(first);
        }
        Self { knobs, labels }
    }
}

/// The whole name of a setting; today's with its values.
pub fn full_label(results: &Results, setting: usize) -> Option<String> {
    let label = &results.settings.get(setting)?.label;
    if setting > 0 || results.today.is_empty() {
        return Some(label.clone());
    }
    if !is_extra(results) {
        return Some(with_today(label));
    }
    let mut values: Vec<String> = Vec::new();
    for (role, set) in &results.settings[setting].by_role {
        for (knob, value) in set {
            let name = knob.name();
            let is_shared =
                value_of(results, name).is_some_and(|shared| shared == value.to_string());
            let own = if is_shared { name.to_owned() } else { format!("{}.{name}", role.name()) };
            let text = format!("{own}={value}");
            if !values.contains(&text) {
                values.push(text);
            }
        }
    }
    Some(with_today(&values.join(" ")))
}

/// Whether the first setting is today's and none of the plan's.
fn is_extra(results: &Results) -> bool {
    let first = results.settings.first();
    !results.today.is_empty() && first.is_some_and(|first| first.label == TODAY)
}

fn with_today(values: &str) -> String {
    if values.is_empty() { TODAY.to_owned() } else { format!("{TODAY} ({values})") }
}

/// Today's value of a knob, `sut.mtu` or `mtu`; `None` if it is not known, or not the same everywhere.
fn value_of(results: &Results, name: &str) -> Option<String> {
    let (role, name) = name.split_once('.').map_or((None, name), |(role, knob)| (Some(role), knob));
    let by_role = &results.settings.first()?.by_role;
    let roles: BTreeSet<Role> = results.today.iter().map(|host| host.role).into_set();
    let asked = roles.into_iter().filter(|one| role.is_none_or(|role| role == one.name()));
    let values: Vec<Option<String>> = asked
        .map(|role| {
            let set = by_role.get(&role)?;
            set.iter().find(|(knob, _)| knob.name() == name).map(|(_, value)| value.to_string())
        })
        .collect();
    let (first, rest) = values.split_first()?;
    rest.iter().all(|value| value == first).then(|| first.clone())?
}

fn knobs_and_values(label: &str) -> Option<(Vec<&str>, Vec<&str>)> {
    let parts: Option<Vec<_>> = label.split_whitespace().map(|part| part.split_once('=')).collect();
    Some(parts?.into_iter().unzip())
}

#[cfg(test)]
mod tests {
    use latput_knobs::{Knob, Setting, State, Value};
    use latput_trial::HostToday;

    use super::*;
    use crate::synthetic::{SyntheticFigures, build_results};

    #[test]
    fn shared_knobs_are_named_once() {
        check_labels(&["t=0us", "t=20us"], "t", &["0us", "20us"]);
        check_labels(
            &["t=0us mtu=1500", "t=20us mtu=9000"],
            "t, mtu",
            &["0us, 1500", "20us, 9000"],
        );
        check_labels(&["t=0us", "mtu=1500"], "setting", &["t=0us", "mtu=1500"]);
        check_labels(&["as found", "t=20us"], "setting", &["as found", "t=20us"]);
        check_labels(&["", ""], "setting", &["", ""]);
        check_labels(&[], "setting", &[]);
    }

    #[test]
    fn todays_first_setting_is_extra() {
        for (label, was_read, expected) in
            [(TODAY, true, true), (TODAY, false, false), ("mtu=1500", true, false)]
        {
            let mut made = build_results(&[label], &[], 1, |_, _| SyntheticFigures::default());
            if was_read {
                let (host, role) = ("b".to_owned(), Role::Sut);
                made.today = vec![HostToday { host, role, values: State::default() }];
            }
            assert_eq!(is_extra(&made), expected, "{label} {was_read}");
        }
    }

    #[test]
    fn today_is_told_with_its_values() {
        let both = |sut: u64, generator: u64| [(Role::Sut, sut), (Role::Generator, generator)];
        let label = |of_plan: &[&str], values: &[(Role, u64)]| {
            let mut made = build_results(of_plan, &[], 1, |_, _| SyntheticFigures::default());
            let knob = Knob::Txqueuelen;
            made.today = [(Role::Sut, "b"), (Role::Generator, "a")]
                .map(|(role, host)| HostToday { host: host.into(), role, values: State::default() })
                .to_vec();
            for (role, value) in values {
                let setting = Setting::from([(knob, Value::Count(*value))]);
                made.settings[0].by_role.insert(*role, setting);
            }
            (
                ShortLabels::from_results(&made).labels,
                full_label(&made, 0).unwrap(),
                full_label(&made, 1),
            )
        };
        let (short, full, other) = label(&["txqueuelen=7", "txqueuelen=9"], &both(7, 7));
        assert_eq!(
            (short, full.as_str()),
            (vec!["today (7)".into(), "9".into()], "today (txqueuelen=7)")
        );
        assert_eq!(other.as_deref(), Some("txqueuelen=9"));
        let (short, full, _) = label(&[TODAY, "txqueuelen=9"], &both(7, 7));
        assert_eq!(
            (short, full.as_str()),
            (vec!["today (7)".into(), "9".into()], "today (txqueuelen=7)")
        );
        let (short, full, _) = label(&[TODAY, "txqueuelen=9"], &both(7, 8));
        let own = "today (sut.txqueuelen=7 generator.txqueuelen=8)";
        assert_eq!((short, full.as_str()), (vec!["today".into(), "9".into()], own));
        let (short, full, _) = label(&[TODAY, "sut.txqueuelen=9"], &[(Role::Sut, 7)]);
        assert_eq!((short[0].as_str(), full.as_str()), ("today (7)", "today (sut.txqueuelen=7)"));
        let (short, full, _) = label(&[TODAY, "txqueuelen=9"], &[]);
        assert_eq!((short[0].as_str(), full.as_str()), ("today", "today"));
    }

    #[track_caller]
    fn check_labels(labels: &[&str], knobs: &str, short: &[&str]) {
        let found = ShortLabels::from_results(&build_results(labels, &[], 1, |_, _| {
            SyntheticFigures::default()
        }));
        assert_eq!(
            (found.knobs.as_str(), found.labels.as_slice()),
            (knobs, &*short.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>())
        );
    }
}
