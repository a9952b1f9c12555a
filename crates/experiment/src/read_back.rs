//! Levels of a factor that the hosts take for one and the same. A driver that rounds a value, or cuts it off, shows so when it
//! is read back: the two would be one setting that is measured twice.

use std::collections::BTreeMap;

use latput_knobs::{Knob, Place, Setting, Value};
use latput_trial::HostToday;
use latput_trial::observation::Role;

/// A level that is in force, as the hosts read it back.
pub(crate) struct ReadBackLevel {
    label: String,
    values: Vec<HostToday>,
}

/// The levels of a factor that differ.
#[derive(Default)]
pub(crate) struct DistinctLevels(Vec<ReadBackLevel>);

impl DistinctLevels {
    /// Takes a level of which the hosts hold `values`. If an earlier one reads alike, it is told and left out: gives the sentence.
    pub(crate) fn take(
        &mut self,
        label: String,
        by_role: &BTreeMap<Role, Setting>,
        values: Vec<HostToday>,
    ) -> Option<String> {
        if !is_settled(by_role, &values) {
            return None;
        }
        if let Some(earlier) = self.0.iter().find(|level| is_same(&level.values, &values)) {
            let held = describe_values(by_role, &values);
            return Some(format!(
                "skipped: `{label}`: the host keeps {held}, the same as with `{}`",
                earlier.label
            ));
        }
        self.0.push(ReadBackLevel { label, values });
        None
    }
}

/// Whether every value of the setting is known on each host and stays as it is: one that adaptive moderation or the other end of the
/// link moves reads alike by chance.
fn is_settled(by_role: &BTreeMap<Role, Setting>, values: &[HostToday]) -> bool {
    let is_known = |host: &HostToday, knob: Knob| {
        let adaptive = knob.spec().overruled_by;
        let moves = adaptive.is_some_and(|it| {
            host.values.0.get(&(it, Place::Device)) == Some(&Value::Switch(true))
        });
        !moves && !knob.spec().is_negotiated && host.values.0.keys().any(|(it, _)| *it == knob)
    };
    let of_role = |role: Role| values.iter().filter(move |host| host.role == role);
    by_role.iter().all(|(role, setting)| {
        of_role(*role).all(|host| setting.keys().all(|knob| is_known(host, *knob)))
    }) && by_role.keys().any(|role| of_role(*role).next().is_some())
}

fn is_same(one: &[HostToday], other: &[HostToday]) -> bool {
    let alike = |(one, other): (&HostToday, &HostToday)| {
        let has = |((knob, place), value): (&(Knob, Place), &Value)| {
            let there = other.values.0.get(&(*knob, *place));
            there.is_some_and(|there| knob.spec().same(value, there))
        };
        one.host == other.host
            && one.values.0.len() == other.values.0.len()
            && one.values.0.iter().all(has)
    };
    one.len() == other.len() && one.iter().zip(other).all(alike)
}

/// The values of a setting's knobs as they are in force: `64us`, `64us and off`.
fn describe_values(by_role: &BTreeMap<Role, Setting>, values: &[HostToday]) -> String {
    let is_named = |host: &HostToday, knob: Knob| {
        by_role.get(&host.role).is_some_and(|setting| setting.contains_key(&knob))
    };
    let mut found: Vec<String> = Vec::new();
    for host in values {
        for ((knob, _), value) in &host.values.0 {
            let value = value.to_string();
            if is_named(host, *knob) && !found.contains(&value) {
                found.push(value);
            }
        }
    }
    found.join(" and ")
}

#[cfg(test)]
mod tests {
    use latput_knobs::{State, parse_assignment};
    use latput_units::IntoMap;

    use super::*;

    /// The sentence for the last of these levels; `/` is between what is asked for and what is read back.
    fn take_levels(levels: &[&str]) -> Option<String> {
        let mut known = DistinctLevels::default();
        let mut said = None;
        for level in levels {
            let (asked, held) = level.split_once('/').unwrap();
            let of = |text: &str| -> Setting {
                text.split_whitespace().map(|it| parse_assignment(it).unwrap()).collect()
            };
            let place = |(knob, value)| ((knob, Place::Device), value);
            let values = State(of(held).into_iter().map(place).into_map());
            let host = HostToday { host: "a".to_owned(), role: Role::Sut, values };
            let by_role = BTreeMap::from([(Role::Sut, of(asked))]);
            said = known.take(asked.to_owned(), &by_role, vec![host]);
        }
        said
    }

    #[test]
    fn level_that_reads_as_another_is_told() {
        let said = take_levels(&[
            "rx-usecs=16us/rx-usecs=16us adaptive-rx=off",
            "rx-usecs=64us/rx-usecs=64us adaptive-rx=off",
            "rx-usecs=80us/rx-usecs=64us adaptive-rx=off",
        ]);
        let words =
            "skipped: `rx-usecs=80us`: the host keeps 64us, the same as with `rx-usecs=64us`";
        assert_eq!(said.as_deref(), Some(words));
    }

    #[test]
    fn what_differs_moves_or_is_unknown_stays() {
        for levels in [
            ["rx-usecs=64us/rx-usecs=64us", "rx-usecs=80us/rx-usecs=72us"],
            ["rx-usecs=64us/rx-usecs=64us", "rx-usecs=80us/"],
            ["rx-usecs=64us/", "rx-usecs=80us/"],
            // Adaptive moderation moves it.
            [
                "rx-usecs=64us/rx-usecs=9us adaptive-rx=on",
                "rx-usecs=80us/rx-usecs=9us adaptive-rx=on",
            ],
            // One of two knobs reads alike.
            [
                "rx-usecs=64us rx-frames=8/rx-usecs=64us rx-frames=8",
                "rx-usecs=80us rx-frames=9/rx-usecs=64us rx-frames=9",
            ],
            // The link's other end decides.
            ["pause-rx=on/pause-rx=off", "pause-rx=off/pause-rx=off"],
        ] {
            assert_eq!(take_levels(&levels), None, "{levels:?}");
        }
    }
}
