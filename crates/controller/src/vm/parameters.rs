//! The parameters of the guest's driver for a trial's setting.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use latput_knobs::{Knob, Setting, Tier, Value};
use latput_trial::observation::Role;
use latput_vm::E1000_PARAMETERS;

/// The cards in the order of the driver.
const CARDS: [Role; 2] = [Role::Sut, Role::Generator];

/// `InterruptThrottleRate=8000,3`: one word for each parameter of the setting, with a value for
/// each card. Values that the drivers would only warn of are errors.
pub(super) fn module_parameters(by_role: &BTreeMap<Role, Setting>) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    for &knob in Knob::ALL {
        let Some(name) = knob.module_parameter() else { continue };
        let Some((_, default)) = E1000_PARAMETERS.iter().find(|(known, _)| *known == name) else {
            continue;
        };
        let values =
            CARDS.map(|role| match by_role.get(&role).and_then(|setting| setting.get(&knob)) {
                Some(Value::Count(count)) => Some(*count),
                _ => None,
            });
        if values == [None, None] {
            continue;
        }
        let values = values.map(|value| value.unwrap_or(*default));
        for value in values {
            if let Some(taken) = knob.refused_at_load(value) {
                return Err(format!("{knob}={value}: the driver takes {taken}"));
            }
        }
        let mut word = name.to_owned();
        for (value, sign) in values.into_iter().zip(['=', ',']) {
            let _ = write!(word, "{sign}{value}");
        }
        words.push(word);
    }
    Ok(words)
}

/// Removes the knobs of [`module_parameters`] from a setting.
pub(super) fn remove_reload_knobs(by_role: &mut BTreeMap<Role, Setting>) {
    for setting in by_role.values_mut() {
        setting.retain(|knob, _| knob.spec().tier != Tier::Reload);
    }
}

#[cfg(test)]
mod tests {
    use latput_trial::Plan;

    use super::*;

    #[test]
    fn each_card_gets_its_value() {
        assert_parameters(
            "interrupt-throttle-rate = [8000]",
            Ok(&["InterruptThrottleRate=8000,8000"]),
        );
        assert_parameters(
            "\"sut.interrupt-throttle-rate\" = [8000]",
            Ok(&["InterruptThrottleRate=8000,3"]),
        );
        assert_parameters(
            "\"generator.rx-abs-int-delay\" = [32]\n\"sut.tx-int-delay\" = [0]",
            Ok(&["RxAbsIntDelay=8,32", "TxIntDelay=0,8"]),
        );
        assert_parameters("mtu = [1400]", Ok(&[]));
    }

    #[test]
    fn what_the_driver_would_not_take_is_refused() {
        assert_parameters(
            "interrupt-throttle-rate = [50]",
            Err("interrupt-throttle-rate=50: the driver takes"),
        );
        assert_parameters(
            "rx-int-delay = [70000]",
            Err("rx-int-delay=70000: the driver takes 0 to 65535"),
        );
    }

    #[track_caller]
    fn assert_parameters(factors: &str, expected: Result<&[&str], &str>) {
        let text = format!(
            "schema = 1\nname = \"x\"\n[factors]\n{factors}\n[[workload]]\nkind = \"tcp_rr\"\n"
        );
        let mut setting = Plan::parse("plan.toml", &text).unwrap().settings().remove(0).by_role;
        match (module_parameters(&setting), expected) {
            (Ok(words), Ok(expected)) => assert_eq!(words, expected),
            (Err(problem), Err(expected)) => assert!(problem.contains(expected), "{problem}"),
            (found, expected) => panic!("{found:?} and not {expected:?}"),
        }
        remove_reload_knobs(&mut setting);
        assert_eq!(module_parameters(&setting), Ok(Vec::new()));
    }
}
