//! The settings of a run: today's first, then those of the plan.

use std::collections::BTreeSet;

use latput_knobs::Knob;
use latput_units::IntoSet;

use super::Plan;
use crate::observation::Role;
use crate::results::LabelledSetting;
use crate::today::{HostToday, TODAY, has, shared};

impl Plan {
    /// The knobs of its factors.
    pub fn knobs(&self) -> BTreeSet<Knob> {
        let targets = self.factors.iter().flat_map(|factor| &factor.targets);
        targets.map(|target| target.knob).into_set()
    }

    /// The settings of a run on hosts with these values: today's first, then the plan's others. If the plan
    /// does not have today's, it is one more, which sets nothing that differs between hosts. Without any
    /// value of the hosts the settings are the plan's.
    pub fn settings_from(&self, today: &[HostToday]) -> Vec<LabelledSetting> {
        let mut settings = self.settings();
        if today.is_empty() {
            return settings;
        }
        let mut by_role = shared(today);
        for (role, set) in &mut by_role {
            set.retain(|knob, _| self.sets(*role, *knob));
        }
        by_role.retain(|_, set| !set.is_empty());
        let first = match settings.iter().position(|set| has(&by_role, &set.by_role)) {
            Some(listed) => settings.remove(listed),
            None => LabelledSetting { label: TODAY.to_owned(), by_role },
        };
        settings.insert(0, first);
        settings
    }

    fn sets(&self, role: Role, knob: Knob) -> bool {
        let mut targets = self.factors.iter().flat_map(|factor| &factor.targets);
        targets.any(|target| target.knob == knob && target.role.is_none_or(|only| only == role))
    }
}

#[cfg(test)]
mod tests {
    use latput_knobs::{Place, State, Value};

    use super::*;

    const PLAN: &str = "schema = 1\n[factors]\n\"sut.mtu\" = [1500, 9000]\ntxqueuelen = [100, 1000]\n\
                        [[workload]]\nkind = \"tcp_rr\"\n";

    #[test]
    fn present_setting_moves_to_the_front() {
        let labels =
            settings(&[host("a", Role::Sut, 9000, &[100]), host("b", Role::Generator, 1, &[100])]);
        assert_eq!(labels.len(), 4);
        assert_eq!(labels[0], "sut.mtu=9000 txqueuelen=100");
    }

    #[test]
    fn unlisted_today_becomes_one_more_setting() {
        let today = [host("a", Role::Sut, 1500, &[500]), host("b", Role::Generator, 1500, &[7])];
        assert_eq!(settings(&today)[0], TODAY);
        let plan = Plan::parse("p.toml", PLAN).unwrap();
        let first = plan.settings_from(&today).remove(0);
        assert_eq!(first.by_role[&Role::Sut][&Knob::Mtu], Value::Count(1500));
        assert_eq!(first.by_role[&Role::Sut][&Knob::Txqueuelen], Value::Count(500));
        assert_eq!(first.by_role[&Role::Generator][&Knob::Txqueuelen], Value::Count(7));
        assert!(
            !first.by_role[&Role::Generator].contains_key(&Knob::Mtu),
            "the plan leaves it alone"
        );
    }

    #[test]
    fn differing_hosts_keep_their_own_values() {
        let differ = [
            host("a", Role::Sut, 1500, &[100]),
            host("b", Role::Generator, 1500, &[100]),
            host("c", Role::Generator, 1500, &[1000]),
        ];
        assert!(!shared(&differ)[&Role::Generator].contains_key(&Knob::Txqueuelen));
        assert_eq!(settings(&differ)[0], TODAY);
        let places = [host("a", Role::Sut, 1500, &[100, 1000])];
        assert!(!shared(&places)[&Role::Sut].contains_key(&Knob::Txqueuelen));
        let mut lacking = [host("a", Role::Sut, 1500, &[100]), host("b", Role::Sut, 1500, &[])];
        lacking[1].values.forget(Knob::Txqueuelen);
        assert!(!shared(&lacking)[&Role::Sut].contains_key(&Knob::Txqueuelen));
    }

    #[test]
    fn without_values_the_settings_are_the_plans() {
        let plan = Plan::parse("p.toml", PLAN).unwrap();
        assert_eq!(plan.settings_from(&[]), plan.settings());
    }

    fn settings(today: &[HostToday]) -> Vec<String> {
        let plan = Plan::parse("p.toml", PLAN).unwrap();
        plan.settings_from(today).into_iter().map(|setting| setting.label).collect()
    }

    fn host(name: &str, role: Role, mtu: u64, lengths: &[u64]) -> HostToday {
        let mut values = State::default();
        values.0.insert((Knob::Mtu, Place::Device), Value::Count(mtu));
        for (queue, length) in (0..).zip(lengths) {
            values.0.insert((Knob::Txqueuelen, Place::TxQueue(queue)), Value::Count(*length));
        }
        HostToday { host: name.to_owned(), role, values }
    }
}
