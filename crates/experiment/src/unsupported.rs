//! Skips levels of knobs and workloads that a testbed does not support, and levels that it takes for another one, if the plan
//! has `on_unsupported = "skip"`, and reports each.

use std::collections::{BTreeMap, BTreeSet};

use latput_knobs::Setting;
use latput_load::Stop;
use latput_runner::Error;
use latput_runner::trials::{PlanPart, TrialRunner};
use latput_trial::Plan;
use latput_trial::observation::Role;
use latput_trial::results::LabelledSetting;

use crate::read_back;

/// How a level is found to be supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SupportCheckMethod {
    /// It is put in force.
    Setting,
    /// The host is asked for it.
    Asking,
}

impl SupportCheckMethod {
    /// How it is found before a run. Live traffic must not meet a level outside of a guarded slice.
    pub(crate) fn from_plan(plan: &Plan) -> Self {
        if plan.live().is_some() { Self::Asking } else { Self::Setting }
    }

    fn to_plan_part(self, by_role: &BTreeMap<Role, Setting>) -> PlanPart<'_> {
        match self {
            Self::Setting => PlanPart::Setting(by_role),
            Self::Asking => PlanPart::Rehearsed(by_role),
        }
    }
}

/// The plan without the parts that `runner` does not support, and a sentence for each skipped part.
/// A tried level may leave its knob changed: if anything is skipped, the caller opens the testbed
/// anew.
pub(crate) fn drop_unsupported_parts(
    plan: &Plan,
    runner: &mut dyn TrialRunner,
    by: SupportCheckMethod,
    stop: &Stop,
) -> Result<(Plan, Vec<String>), Error> {
    let mut reduced = plan.clone();
    let mut skipped = Vec::new();
    for factor in &mut reduced.factors {
        let name = factor.name();
        let mut refused: Vec<String> = Vec::new();
        let mut reason = None;
        let mut levels = Vec::new();
        let mut known = read_back::DistinctLevels::default();
        let labels: Vec<String> = factor.levels.iter().map(|level| factor.label(level)).collect();
        for (level, label) in std::mem::take(&mut factor.levels).into_iter().zip(labels) {
            let by_role = factor.setting(&level);
            match runner.explain_unsupported(by.to_plan_part(&by_role), &plan.method, stop)? {
                None if by == SupportCheckMethod::Setting => {
                    match known.take(label, &by_role, runner.read_tried_values(&by_role, stop)?) {
                        None => levels.push(level),
                        alike => skipped.extend(alike),
                    }
                }
                None => levels.push(level),
                Some(why) => {
                    refused.push(level.first().map_or_else(String::new, ToString::to_string));
                    reason.get_or_insert(why);
                }
            }
        }
        factor.levels = levels;
        let Some(reason) = reason else { continue };
        skipped.push(if factor.levels.is_empty() {
            format!("skipped: the factor `{name}`: {reason}")
        } else {
            format!("skipped: `{name}` = {}: {reason}", refused.join(", "))
        });
    }
    reduced.factors.retain(|factor| !factor.levels.is_empty());
    for load in &plan.workloads {
        if let Some(reason) =
            runner.explain_unsupported(PlanPart::Load(load), &plan.method, stop)?
        {
            reduced.workloads.retain(|kept| kept.name != load.name);
            skipped.push(format!("skipped: the workload `{}`: {reason}", load.name));
        }
    }
    if reduced.workloads.is_empty() {
        let problem = format!("this testbed supports no part of the plan; {}", skipped.join("; "));
        return Err(Error::Unsupported { problem });
    }
    Ok((reduced, skipped))
}

/// Asks for the settings and the workloads, and refuses those that are not supported.
pub(crate) fn refuse_unsupported(
    plan: &Plan,
    stop: &Stop,
    settings: &[LabelledSetting],
    runner: &mut dyn TrialRunner,
) -> Result<(), Error> {
    let Plan { method, workloads, .. } = plan;
    for setting in select_covering_settings(settings) {
        let found =
            runner.explain_unsupported(PlanPart::Rehearsed(&setting.by_role), method, stop)?;
        if let Some(why) = found {
            return Err(Error::Unsupported {
                problem: format!("setting `{}`: {why}", setting.label),
            });
        }
    }
    for load in workloads {
        if let Some(why) = runner.explain_unsupported(PlanPart::Load(load), method, stop)? {
            return Err(Error::Unsupported { problem: format!("workload `{}`: {why}", load.name) });
        }
    }
    Ok(())
}

/// Settings that together have every level of every knob: asking for all of a large plan would take long.
fn select_covering_settings(
    settings: &[LabelledSetting],
) -> impl Iterator<Item = &LabelledSetting> {
    let mut known = BTreeSet::new();
    settings.iter().filter(move |setting| {
        let levels = setting.by_role.iter().flat_map(|(role, of_role)| {
            of_role.iter().map(move |(knob, value)| (*role, *knob, value.clone()))
        });
        levels.filter(|level| known.insert(level.clone())).count() > 0
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use latput_knobs::{Knob, Place, State, Value};
    use latput_runner::trials::{Trial, TrialProgress};
    use latput_trial::plan::Method;
    use latput_trial::results::HostFacts;
    use latput_trial::{HostToday, Observation, Surroundings};
    use latput_units::{IntoMap, Nanos};

    use super::*;

    const PLAN: &str = r#"
        schema = 1
        [factors]
        mtu = [1500, 9000]
        rps-cpus = ["0", "7"]
        rx-usecs = ["10us", "20us"]
        [[workload]]
        kind = "tcp_rr"
        [[workload]]
        kind = "tcp_stream"
        sut_cpus = "7"
        [method]
        on_unsupported = "skip"
    "#;

    #[test]
    fn what_is_lacking_is_skipped_and_said() {
        let mut bed = FakeTestbed::with_missing(&["rx-usecs", "7"]);
        let plan = Plan::parse("p.toml", PLAN).unwrap();
        let (reduced, said) =
            drop_unsupported_parts(&plan, &mut bed, SupportCheckMethod::Setting, &Stop::new())
                .unwrap();
        let labels: Vec<String> = reduced.settings().into_iter().map(|set| set.label).collect();
        assert_eq!(labels, ["mtu=1500 rps-cpus=0", "mtu=9000 rps-cpus=0"]);
        assert_eq!(reduced.workloads.len(), 1);
        let said = said.join("\n");
        for words in ["`rps-cpus` = 7: no 7", "the factor `rx-usecs`", "the workload `tcp_stream"] {
            assert!(said.contains(words), "{said}");
        }
    }

    #[test]
    fn level_that_another_stands_for_is_skipped() {
        let plan = Plan::parse("p.toml", PLAN).unwrap();
        for (by, settings, words) in [
            (
                SupportCheckMethod::Setting,
                4,
                "skipped: `mtu=9000`: the host keeps 1500, the same as with `mtu=1500`",
            ),
            (SupportCheckMethod::Asking, 8, ""),
        ] {
            let (reduced, said) = drop_unsupported_parts(
                &plan,
                &mut FakeTestbed { lacks: &[], mtu_most: Some(1500) },
                by,
                &Stop::new(),
            )
            .unwrap();
            assert_eq!((reduced.settings().len(), said.join("\n").as_str()), (settings, words));
        }
    }

    #[test]
    fn testbed_that_supports_everything_skips_nothing() {
        let plan = Plan::parse("p.toml", PLAN).unwrap();
        let (reduced, said) = drop_unsupported_parts(
            &plan,
            &mut FakeTestbed::with_missing(&[]),
            SupportCheckMethod::Setting,
            &Stop::new(),
        )
        .unwrap();
        assert_eq!((reduced, said), (plan, Vec::new()));
    }

    #[test]
    fn plan_with_nothing_supported_is_refused() {
        let plan = Plan::parse("p.toml", PLAN).unwrap();
        let refusal = drop_unsupported_parts(
            &plan,
            &mut FakeTestbed::with_missing(&["tcp"]),
            SupportCheckMethod::Setting,
            &Stop::new(),
        )
        .unwrap_err();
        assert!(refusal.to_string().contains("supports no part of the plan"), "{refusal}");
    }

    #[test]
    fn field_takes_one_of_two_words() {
        let error = Plan::parse("p.toml", &PLAN.replace("skip", "sometimes")).unwrap_err();
        assert!(error.problem.contains("must be `refuse` or `skip`"), "{error}");
    }

    #[test]
    fn few_settings_cover_every_level() {
        let text = "schema = 1\n[factors]\nmtu = [1500, 9000]\nrx-usecs = [\"10us\", \"20us\", \"50us\"]\n\
                    [[workload]]\nkind = \"tcp_rr\"\n";
        let settings = Plan::parse("p.toml", text).unwrap().settings();
        let labels: Vec<&str> =
            select_covering_settings(&settings).map(|set| set.label.as_str()).collect();
        assert!(settings.len() == 6 && labels.len() == 4, "{labels:?}");
        for level in ["mtu=1500", "mtu=9000", "=10us", "=20us", "=50us"] {
            assert!(labels.iter().any(|label| label.contains(level)), "{level} of {labels:?}");
        }
    }

    struct FakeTestbed {
        /// It lacks whatever has one of these words.
        lacks: &'static [&'static str],
        /// It takes any MTU, and cuts it to this.
        mtu_most: Option<u64>,
    }

    impl FakeTestbed {
        const fn with_missing(lacks: &'static [&'static str]) -> Self {
            Self { lacks, mtu_most: None }
        }
    }

    impl TrialRunner for FakeTestbed {
        fn explain_unsupported(
            &mut self,
            wanted: PlanPart<'_>,
            _: &Method,
            _: &Stop,
        ) -> Result<Option<String>, Error> {
            let text = match wanted {
                PlanPart::Setting(by_role) | PlanPart::Rehearsed(by_role) => {
                    let knobs = by_role.values().flatten();
                    let texts = knobs.map(|(knob, value)| format!("{knob}={value}"));
                    texts.collect::<Vec<_>>().join(" ")
                }
                PlanPart::Load(load) => load.name.clone(),
            };
            Ok(self.lacks.iter().find(|word| text.contains(*word)).map(|word| format!("no {word}")))
        }
        fn read_tried_values(
            &mut self,
            by_role: &BTreeMap<Role, Setting>,
            _: &Stop,
        ) -> Result<Vec<HostToday>, Error> {
            let held = |value: &Value| match (value, self.mtu_most) {
                (Value::Count(mtu), Some(most)) => Value::Count(most.min(*mtu)),
                (value, _) => value.clone(),
            };
            let of_host = |(role, setting): (&Role, &Setting)| {
                let place = |(knob, value): (&Knob, &Value)| ((*knob, Place::Device), held(value));
                let values = State(setting.iter().map(place).into_map());
                HostToday { host: role.name().to_owned(), role: *role, values }
            };
            Ok(by_role.iter().map(of_host).collect())
        }
        fn host_facts(&self) -> Vec<HostFacts> {
            Vec::new()
        }
        fn machine_id(&self) -> String {
            String::new()
        }
        fn notes(&self) -> Vec<String> {
            Vec::new()
        }
        fn is_simulated(&self) -> bool {
            true
        }
        fn read_knob_values(
            &mut self,
            _: &BTreeSet<Knob>,
            _: &Stop,
        ) -> Result<Vec<HostToday>, Error> {
            Ok(Vec::new())
        }
        fn watch_surroundings(&mut self, _: Nanos, _: &Stop) -> Result<Vec<Surroundings>, Error> {
            Ok(Vec::new())
        }
        fn measure_trial(
            &mut self,
            _: &Trial,
            _: &Method,
            _: &Stop,
            _: &mut dyn TrialProgress,
        ) -> Result<Observation, Error> {
            Ok(Observation::default())
        }
        fn close(self: Box<Self>, _: &Stop, _: &mut dyn FnMut(&str)) -> Result<(), Error> {
            Ok(())
        }
        fn abort_run(self: Box<Self>, cause: Error, _: &Stop, _: &mut dyn FnMut(&str)) -> Error {
            cause
        }
    }
}
