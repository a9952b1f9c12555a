//! How long settings hold packets back.

use std::collections::BTreeMap;

use latput_knobs::{Knob, Setting, Value};
use latput_trial::Results;
use latput_trial::observation::Role;
use latput_units::{IntoMap, Nanos};

/// The knobs that hold packets back, and those that depend on them.
const MODERATION: &[Knob] = &[
    Knob::InterruptThrottleRate,
    Knob::RxIntDelay,
    Knob::RxAbsIntDelay,
    Knob::TxIntDelay,
    Knob::TxAbsIntDelay,
    Knob::AdaptiveRx,
    Knob::AdaptiveTx,
    Knob::RxUsecs,
    Knob::RxFrames,
    Knob::TxUsecs,
    Knob::TxFrames,
    Knob::NapiDeferHardIrqs,
    Knob::GroFlushTimeout,
];

/// The setting that differs from this one only in having the least delay.
pub(super) fn find_least_delay(results: &Results, setting: usize) -> Option<usize> {
    let others = |setting: usize| -> BTreeMap<Role, Setting> {
        let strip = |(role, setting): (&Role, &Setting)| {
            let kept = setting.iter().filter(|(knob, _)| !MODERATION.contains(knob));
            (*role, kept.map(|(knob, value)| (*knob, value.clone())).into_map())
        };
        results.settings[setting].by_role.iter().map(strip).into_map()
    };
    let alike = (0..results.settings.len()).filter(|it| others(*it) == others(setting));
    let timed = alike.filter_map(|it| Some((longest_delay(results, it)?, it)));
    timed.min().map(|(_, setting)| setting)
}

/// The longest time that a setting holds packets back at any host, by its own values and those
/// that the hosts had beside it. `None` where neither gives one.
pub(super) fn longest_delay(results: &Results, setting: usize) -> Option<Nanos> {
    let set = &results.settings[setting].by_role;
    let row = results.rows.iter().find(|row| row.setting == setting);
    let found = row.into_iter().flat_map(|row| &row.observation.hosts).filter_map(|host| {
        let values = host.state.0.iter().map(|((knob, _), value)| (*knob, value.clone()));
        find_longest_delay(&values.into_map())
    });
    set.values().filter_map(find_longest_delay).chain(found).max()
}

/// The longest time that a setting holds packets back; `None` where it sets no such knob.
fn find_longest_delay(setting: &Setting) -> Option<Nanos> {
    let deferred = setting.get(&Knob::NapiDeferHardIrqs) != Some(&Value::Count(0));
    let delays = setting.iter().filter_map(|(knob, value)| match (knob, value) {
        (Knob::GroFlushTimeout, Value::Time(_)) if !deferred => Some(Nanos::ZERO),
        (Knob::GroFlushTimeout | Knob::RxUsecs, Value::Time(time)) => Some(*time),
        // The driver counts in units of 1.024 us.
        (Knob::RxAbsIntDelay, Value::Count(units)) => {
            Some(Nanos::from_ns(units.saturating_mul(1_024)))
        }
        (Knob::InterruptThrottleRate, Value::Count(0)) => Some(Nanos::ZERO),
        (Knob::InterruptThrottleRate, Value::Count(hz)) if *hz > 4 => {
            Some(Nanos::from_ns(1_000_000_000 / hz))
        }
        _ => None,
    });
    delays.max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_is_of_the_knob_that_holds() {
        let time = |us| Value::Time(Nanos::from_us(us));
        let of = |set: &[(Knob, Value)]| find_longest_delay(&set.iter().cloned().collect());
        let deferred = (Knob::NapiDeferHardIrqs, Value::Count(100));
        let at_once = (Knob::NapiDeferHardIrqs, Value::Count(0));
        let flush = (Knob::GroFlushTimeout, time(20));
        assert_eq!(of(&[flush.clone(), deferred]), Some(Nanos::from_us(20)));
        assert_eq!(of(&[flush, at_once]), Some(Nanos::ZERO));
        assert_eq!(
            of(&[(Knob::InterruptThrottleRate, Value::Count(8_000))]),
            Some(Nanos::from_us(125))
        );
        assert_eq!(of(&[(Knob::RxAbsIntDelay, Value::Count(50))]), Some(Nanos::from_ns(51_200)));
        // 1 to 4 are modes of the driver and no rates.
        assert_eq!(of(&[(Knob::InterruptThrottleRate, Value::Count(3))]), None);
        assert_eq!(of(&[(Knob::InterruptThrottleRate, Value::Count(4))]), None);
        assert_eq!(
            of(&[(Knob::InterruptThrottleRate, Value::Count(5))]),
            Some(Nanos::from_ms(200))
        );
        assert_eq!(of(&[(Knob::InterruptThrottleRate, Value::Count(0))]), Some(Nanos::ZERO));
        assert_eq!(of(&[(Knob::Mtu, Value::Count(1_500))]), None);
    }
}
