//! Plans whose workload is live traffic.

use latput_knobs::{Knob, Tier};

use super::{Design, Plan};
use crate::live::Live;
use crate::observation::Role;

impl Plan {
    /// The live traffic that is watched; `None` if the plan makes its own.
    pub fn live(&self) -> Option<&Live> {
        self.workloads.iter().find_map(|load| load.live.as_deref())
    }

    /// Refuses what cannot be done on live traffic. Its knobs are then those of the one host that there is. A plan that only
    /// observes has no factors then. Nothing is done to a plan that makes its own traffic.
    ///
    /// # Errors
    ///
    /// The problem and the remedy.
    pub fn fit_live(&mut self) -> Result<(), String> {
        let Some(live) = self.live() else { return Ok(()) };
        let observes = live.observe;
        if self.workloads.len() > 1 {
            return Err(
                "a `live` workload must be the only one: latput makes no traffic beside it"
                    .to_owned(),
            );
        }
        if observes {
            // Whoever changes nothing asks for no setting.
            self.factors.clear();
            return Ok(());
        }
        if !matches!(self.method.design, None | Some(Design::Blocks)) {
            return Err(
                "live traffic alternates each setting with today's: leave out `design`".to_owned()
            );
        }
        let targets = || self.factors.iter().flat_map(|factor| &factor.targets);
        if let Some(target) = targets().find(|target| target.role == Some(Role::Generator)) {
            return Err(format!(
                "live traffic has one host, the system under test: `generator.{}` is for another",
                target.knob
            ));
        }
        let is_refused =
            |knob: &Knob| knob.spec().tier != Tier::Hitless && !live.disruptive.contains(knob);
        if let Some(knob) = targets().map(|target| target.knob).find(is_refused) {
            return Err(format!(
                "a change of `{knob}` disturbs live traffic ({}): leave it out, or name it a second time by `disruptive = \
                 [\"{knob}\"]` in the workload, or `--disruptive {knob}`",
                knob.spec().tier
            ));
        }
        let targets = self.factors.iter_mut().flat_map(|factor| &mut factor.targets);
        targets.for_each(|target| target.role = Some(Role::Sut));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str =
        "schema = 1\n[factors]\nrx-ring = [256, 512]\n[[workload]]\nkind = \"live\"\n";

    #[test]
    fn observing_plan_has_no_factors() {
        let refused = Plan::parse("live.toml", PLAN).unwrap_err();
        assert!(refused.to_string().contains("disturbs live traffic"), "{refused}");
        let plan = Plan::parse("live.toml", &format!("{PLAN}observe = true\n")).unwrap();
        assert!(plan.factors.is_empty() && plan.settings().len() == 1, "{plan:?}");
    }
}
