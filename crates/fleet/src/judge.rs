//! Judgement of a fleet's answers: each host is in one of a few states.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use latput_knobs::{Knob, Value};
use latput_units::IntoMap;
use latput_units::text::format_count;

use crate::inventory::FleetHost;
use crate::look::{HostLook, InterfaceLook, KnobLook, PlaceLook, UNREAD};
use crate::outcome::HostOutcome;

/// Answer of a host, or its state where it has none.
pub type HostAnswer = Result<HostLook, HostState>;

/// The state of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostState {
    /// Every wanted value is there.
    Same,
    /// These are not.
    Drifted(Vec<KnobDifference>),
    /// It is not the host or interface that the inventory means.
    Other(String),
    /// Its latput says that it cannot, and why.
    Failed(String),
    /// Nothing of latput was heard of, and why.
    Unreachable(String),
    /// It was not done in time.
    TimedOut(String),
    /// It was not asked, or not to the end: the command was interrupted.
    NotAsked,
}

/// A wanted value that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnobDifference {
    /// The knob.
    pub knob: Knob,
    /// Where: `device`, `rx-0`; empty if the knob could not be read at all.
    pub place: String,
    /// The wanted value.
    pub wanted: String,
    /// The value of now; `None` if it could not be read.
    pub value: Option<String>,
    /// Why it could not be read.
    pub problem: Option<String>,
}

/// A host with what is thought of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JudgedHost {
    /// The host.
    pub host: FleetHost,
    /// Its state.
    pub state: HostState,
    /// Its answer for the interface, if it is the one that is meant.
    pub look: Option<InterfaceLook>,
}

impl HostState {
    /// The outcome of every state, in the order of tables.
    pub const OUTCOMES: [HostOutcome; 7] = [
        HostOutcome::Same,
        HostOutcome::Drifted,
        HostOutcome::Other,
        HostOutcome::Failed,
        HostOutcome::Unreachable,
        HostOutcome::TimedOut,
        HostOutcome::NotAsked,
    ];

    /// The outcome of a look at such a host.
    pub const fn outcome(&self) -> HostOutcome {
        match self {
            Self::Same => HostOutcome::Same,
            Self::Drifted(_) => HostOutcome::Drifted,
            Self::Other(_) => HostOutcome::Other,
            Self::Failed(_) => HostOutcome::Failed,
            Self::Unreachable(_) => HostOutcome::Unreachable,
            Self::TimedOut(_) => HostOutcome::TimedOut,
            Self::NotAsked => HostOutcome::NotAsked,
        }
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.outcome().name()
    }

    /// The reason in a sentence; empty where there is nothing to say.
    pub fn explanation(&self) -> String {
        match self {
            Self::Same => String::new(),
            Self::Drifted(differences) => describe_differences(differences),
            Self::NotAsked => "the command was interrupted before it had answered".to_owned(),
            Self::Other(why) | Self::Failed(why) | Self::Unreachable(why) | Self::TimedOut(why) => {
                why.clone()
            }
        }
    }

    /// Its name with the reason.
    pub(crate) fn in_words(&self) -> String {
        format!("{}: {}", self.name(), self.explanation())
    }

    /// The outcome of a change that does not take the host in, with the reason. A host without an answer has the same one
    /// in every command.
    pub(crate) fn left_out(&self) -> (HostOutcome, String) {
        if self.is_unknown() {
            (self.outcome(), self.explanation())
        } else {
            (HostOutcome::LeftOut, self.in_words())
        }
    }

    /// Whether nothing is known of the host.
    pub const fn is_unknown(&self) -> bool {
        match self {
            Self::Failed(_) | Self::Unreachable(_) | Self::TimedOut(_) | Self::NotAsked => true,
            Self::Same | Self::Drifted(_) | Self::Other(_) => false,
        }
    }
}

/// The differences in one sentence; places of one knob that differ alike are told once.
pub fn describe_differences(differences: &[KnobDifference]) -> String {
    let mut said: Vec<String> = Vec::new();
    for KnobDifference { knob, wanted, value, problem, .. } in differences {
        let is = match (value, problem) {
            (Some(value), _) => format!("{knob} is {value}, wanted {wanted}"),
            (None, why) => {
                let why = why.as_deref().unwrap_or("it is not in the answer");
                format!("{knob} {UNREAD}, wanted {wanted}: {why}")
            }
        };
        if !said.contains(&is) {
            said.push(is);
        }
    }
    said.join("; ")
}

/// Judges every host by its answer, and by those of its group: hosts of one kind have one driver, and one host has one
/// name. Without a `driver` in the inventory it is that of more than half of the group's hosts that answered.
pub fn judge_hosts(hosts: &[FleetHost], answers: Vec<HostAnswer>) -> Vec<JudgedHost> {
    assert_eq!(hosts.len(), answers.len(), "an answer for each host");
    let drivers = usual_drivers(hosts, &answers);
    let mut seen: BTreeMap<(String, u64, u32), String> = BTreeMap::new();
    let mut judged = Vec::new();
    for (host, answer) in hosts.iter().zip(answers) {
        let (host, mut look) = (host.clone(), None);
        let state = match answer {
            Err(state) => state,
            Ok(HostLook { interface: None, others, .. }) => {
                HostState::Other(format_missing_interface(&host.interface, &others))
            }
            Ok(HostLook { boot_id, network_namespace, interface: Some(found), .. }) => {
                let wanted = host.driver.as_ref().or(drivers.get(host.group.as_str()));
                let key = (boot_id, network_namespace, found.index);
                let state = match (wanted, seen.get(&key)) {
                    (_, Some(other)) => {
                        HostState::Other(format!("it is the same host as {other}: name it once"))
                    }
                    (Some(wanted), _) if *wanted != found.driver => {
                        HostState::Other(other_driver(&host, &found.driver, wanted))
                    }
                    _ => compare_host(&host, &found),
                };
                seen.entry(key).or_insert_with(|| host.name.clone());
                look = Some(found);
                state
            }
        };
        judged.push(JudgedHost { host, state, look });
    }
    judged
}

/// Judges a host by its answer alone.
pub(crate) fn judge_host(host: &FleetHost, answer: HostAnswer) -> JudgedHost {
    let judged = judge_hosts(std::slice::from_ref(host), vec![answer]).pop();
    judged.expect("each host is judged")
}

fn format_missing_interface(wanted: &str, others: &[String]) -> String {
    let shown: Vec<&str> = others.iter().map(String::as_str).take(8).collect();
    let more = if others.len() > shown.len() { " and more" } else { "" };
    format!("it has no interface {wanted}; it has {}{more}", shown.join(", "))
}

fn other_driver(host: &FleetHost, found: &str, wanted: &str) -> String {
    let whose =
        if host.driver.is_some() { "the inventory wants" } else { "most of its group have" };
    format!(
        "{} is a different interface: its driver is {found}, and {whose} {wanted}",
        host.interface
    )
}

/// The driver of more than half of the hosts of each group that answered.
fn usual_drivers<'a>(hosts: &'a [FleetHost], answers: &[HostAnswer]) -> BTreeMap<&'a str, String> {
    let mut counts: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for (host, answer) in hosts.iter().zip(answers) {
        if let Ok(look) = answer
            && let Some(found) = &look.interface
        {
            let of_group = counts.entry(&host.group).or_default();
            *of_group.entry(&found.driver).or_default() += 1;
        }
    }
    let most = |drivers: BTreeMap<&str, usize>| {
        let all: usize = drivers.values().sum();
        drivers.into_iter().find(|(_, count)| 2 * count > all).map(|(name, _)| name.to_owned())
    };
    counts.into_iter().filter_map(|(group, drivers)| Some((group, most(drivers)?))).into_map()
}

/// Groups whose hosts that answered have several drivers, of which the inventory says nothing and no one is usual.
pub fn undecided_groups(judged: &[JudgedHost]) -> Vec<String> {
    let mut drivers: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for JudgedHost { host, look, .. } in judged.iter().filter(|judged| judged.host.driver.is_none())
    {
        if let Some(found) = look {
            let of_group = drivers.entry(&host.group).or_default();
            *of_group.entry(&found.driver).or_default() += 1;
        }
    }
    let is_undecided = |counts: &BTreeMap<&str, usize>| {
        let all: usize = counts.values().sum();
        counts.values().all(|count| 2 * count <= all)
    };
    drivers
        .into_iter()
        .filter(|(_, counts)| is_undecided(counts))
        .map(|(group, counts)| {
            let names: Vec<&str> = counts.into_keys().collect();
            format!("group `{group}` has interfaces of the drivers {}", names.join(" and "))
        })
        .collect()
}

/// Compares the wanted values with those of now.
fn compare_host(host: &FleetHost, found: &InterfaceLook) -> HostState {
    let differences = find_differences(host, found);
    if differences.is_empty() { HostState::Same } else { HostState::Drifted(differences) }
}

/// The wanted values that an interface does not have. A value that the device has rounded as its knob declares is there.
pub fn find_differences(host: &FleetHost, found: &InterfaceLook) -> Vec<KnobDifference> {
    let mut differences = Vec::new();
    for (&knob, wanted) in &host.setting {
        let difference = |place: &str, wanted: String, value: Option<&str>| KnobDifference {
            knob,
            place: place.to_owned(),
            wanted,
            value: value.map(str::to_owned),
            problem: None,
        };
        let Some(KnobLook { values, problem, .. }) =
            found.find_knob(knob).filter(|look| !look.values.is_empty())
        else {
            let problem = found.find_knob(knob).and_then(|look| look.problem.clone());
            let missing = difference("", wanted.to_string(), None);
            differences.push(KnobDifference { problem, ..missing });
            continue;
        };
        debug_assert!(problem.is_none(), "checked when it was read");
        for PlaceLook { place, value, word } in values {
            let wanted = match (wanted, word) {
                (Value::Named(_), Some(word)) => word.clone(),
                (wanted, _) => wanted.to_string(),
            };
            if !is_there(knob, &wanted, value) {
                differences.push(difference(place, wanted, Some(value)));
            }
        }
    }
    differences
}

fn is_there(knob: Knob, wanted: &str, value: &str) -> bool {
    if wanted == value {
        return true;
    }
    let values = (knob.parse_value(wanted), knob.parse_value(value));
    matches!(values, (Ok(wanted), Ok(value)) if knob.spec().takes(&wanted, &value))
}

/// A line for each group, and one for each host that is not as it is to be, or is not known.
pub fn render_states(judged: &[JudgedHost], wanted: bool) -> String {
    let mut groups: BTreeMap<&str, Vec<&JudgedHost>> = BTreeMap::new();
    for one in judged {
        groups.entry(&one.host.group).or_default().push(one);
    }
    let mut text = String::new();
    for (group, hosts) in groups {
        let parts = HostState::OUTCOMES.iter().filter_map(|outcome| {
            let count = hosts.iter().filter(|one| one.state.outcome() == *outcome).count();
            let is_read = *outcome == HostOutcome::Same && !wanted;
            let said = if is_read { "read" } else { outcome.name() };
            (count > 0).then(|| format!("{count} {said}"))
        });
        let parts: Vec<String> = parts.collect();
        let _ =
            writeln!(text, "{group}: {}: {}", format_count(hosts.len(), "host"), parts.join(", "));
        for JudgedHost { host, state, .. } in hosts {
            if *state != HostState::Same {
                let (name, why) = (state.name(), state.explanation());
                let _ = writeln!(text, "  {name:<12} {} {}: {why}", host.name, host.interface);
            }
        }
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use latput_knobs::Setting;

    use super::*;
    use crate::inventory;
    use crate::look::tests::sample_look;

    pub(crate) fn sample_host(name: &str, wanted: &[(Knob, &str)]) -> FleetHost {
        let value = |(knob, text): &(Knob, &str)| (*knob, knob.parse_value(text).unwrap());
        let host = inventory::tests::sample_host(name, &format!("ssh://{name}"), "eth0");
        FleetHost { setting: wanted.iter().map(value).collect::<Setting>(), ..host }
    }

    #[expect(clippy::unnecessary_wraps, reason = "a host may have no answer")]
    fn look_answer(namespace: u64, driver: &str, knob: Knob, value: &str) -> HostAnswer {
        let mut look = sample_look(knob, value);
        look.network_namespace = namespace;
        look.interface.as_mut().unwrap().driver = driver.to_owned();
        Ok(look)
    }

    #[test]
    fn each_host_gets_its_state() {
        let wanted = [(Knob::RxUsecs, "50us")];
        let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let hosts: Vec<FleetHost> = names.iter().map(|name| sample_host(name, &wanted)).collect();
        let nowhere = HostLook {
            interface: None,
            others: vec!["ens1".into()],
            ..sample_look(Knob::Mtu, "1")
        };
        let answers = vec![
            look_answer(1, "ice", Knob::RxUsecs, "50us"),
            look_answer(2, "ice", Knob::RxUsecs, "48us"),
            look_answer(3, "ice", Knob::RxUsecs, "8us"),
            look_answer(4, "veth", Knob::RxUsecs, "50us"),
            look_answer(1, "ice", Knob::RxUsecs, "50us"),
            Ok(nowhere),
            Err(HostState::TimedOut("20 s".into())),
            look_answer(5, "ice", Knob::RxUsecs, "50us"),
        ];
        let judged = judge_hosts(&hosts, answers);
        let states: Vec<&str> = judged.iter().map(|judged| judged.state.name()).collect();
        let expected = ["same", "same", "drifted", "other", "other", "other", "timed-out", "same"];
        assert_eq!(states, expected);
        let why = |idx: usize| judged[idx].state.explanation();
        assert_eq!(why(2), "rx-usecs is 8us, wanted 50us");
        assert!(
            why(3).contains("its driver is veth, and most of its group have ice"),
            "{}",
            why(3)
        );
        assert!(why(4).contains("the same host as a"), "{}", why(4));
        assert!(why(5).contains("no interface eth0; it has ens1"), "{}", why(5));
        assert!(judged[5].look.is_none());
    }

    #[test]
    fn inventory_driver_decides_over_usual_one() {
        let hosts = ["a", "b"].map(|name| sample_host(name, &[]));
        let answers = || {
            vec![
                look_answer(1, "ice", Knob::Mtu, "1500"),
                look_answer(2, "veth", Knob::Mtu, "1500"),
            ]
        };
        let judged = judge_hosts(&hosts, answers());
        assert!(judged.iter().all(|judged| judged.state == HostState::Same), "{judged:?}");
        assert_eq!(
            undecided_groups(&judged),
            ["group `web` has interfaces of the drivers ice and veth"]
        );
        let hosts = hosts.map(|host| FleetHost { driver: Some("veth".into()), ..host });
        let judged = judge_hosts(&hosts, answers());
        assert!(judged[0].state.explanation().contains("the inventory wants veth"), "{judged:?}");
        assert_eq!(judged[1].state, HostState::Same);
        assert!(undecided_groups(&judged).is_empty());
    }

    #[test]
    fn word_means_what_its_host_says() {
        let max = sample_host("a", &[(Knob::RxRing, "max"), (Knob::Gro, "on")]);
        let mut found = sample_look(Knob::RxRing, "512").interface.unwrap();
        let problem = Some("no such feature".to_owned());
        found.knobs.push(KnobLook { knob: "gro".into(), values: Vec::new(), problem });
        found.knobs[0].values[0].word = Some("4096".into());
        let said = describe_differences(&find_differences(&max, &found));
        assert_eq!(
            said,
            "rx-ring is 512, wanted 4096; gro cannot be read, wanted on: no such feature"
        );
        found.knobs[0].values[0].value = "4096".into();
        assert_eq!(find_differences(&max, &found).len(), 1);
        // A host that does not say what the word stands for has not what is wanted.
        found.knobs[0].values[0].word = None;
        assert_eq!(find_differences(&max, &found).len(), 2);
    }
}
