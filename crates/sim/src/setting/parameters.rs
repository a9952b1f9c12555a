//! Load-time parameters of Intel's drivers for gigabit NICs (e1000, e1000e, em).
//!
//! `Documentation/networking/device_drivers/ethernet/intel/e1000.rst` describes them.

use latput_knobs::{Knob, Value};
use latput_policy::e1000::{ThrottleMode, throttle_interval};
use latput_units::Nanos;

use super::{invalid_value, require_u32};
use crate::machine::{AdaptiveModeration, DriverParameters, Nic};
use crate::validate::InvalidValue;
use crate::vector::{InterruptDelay, Throttle};

/// The unit of the delay registers.
const UNIT_NS: u64 = 1_024;

impl DriverParameters {
    /// The algorithm of the dynamic throttle; mode 3 by default.
    pub(crate) const fn throttle_mode(&self) -> ThrottleMode {
        match self.interrupt_throttle_rate {
            Some(1) => ThrottleMode::Dynamic,
            Some(4) => ThrottleMode::Simplified,
            _ => ThrottleMode::Conservative,
        }
    }

    /// The parameters that were given.
    pub fn given_parameters(&self) -> impl Iterator<Item = (Knob, u32)> {
        [
            (Knob::InterruptThrottleRate, self.interrupt_throttle_rate),
            (Knob::RxIntDelay, self.rx_int_delay),
            (Knob::RxAbsIntDelay, self.rx_abs_int_delay),
            (Knob::TxIntDelay, self.tx_int_delay),
            (Knob::TxAbsIntDelay, self.tx_abs_int_delay),
        ]
        .into_iter()
        .filter_map(|(knob, value)| Some((knob, value?)))
    }
}

impl Nic {
    /// Whether its driver has the parameters: its throttle is a free-running clock, or e1000's
    /// algorithm adapts it.
    fn has_parameters(&self) -> bool {
        let is_gated = matches!(self.coalescing.throttle, Throttle::Gate { .. });
        let given = self.parameters.interrupt_throttle_rate.is_some();
        is_gated || given || self.adaptation == Some(AdaptiveModeration::E1000)
    }

    /// Sets the NIC as a driver loaded with this parameter would.
    pub(super) fn load_with(&mut self, knob: Knob, value: &Value) -> Result<(), InvalidValue> {
        if !self.has_parameters() {
            let wanted = "left out: the driver of the profile's NIC has no such parameter";
            return Err(invalid_value(knob, value, wanted));
        }
        let number = require_u32(knob, value)?;
        if let Some(taken) = knob.refused_at_load(u64::from(number)) {
            return Err(invalid_value(knob, value, taken));
        }
        if knob == Knob::InterruptThrottleRate {
            self.set_throttle_rate(number);
            return Ok(());
        }
        let span = Nanos::from_ns(u64::from(number) * UNIT_NS);
        let (given, delay) = match knob {
            Knob::RxIntDelay => (&mut self.parameters.rx_int_delay, &mut self.coalescing.rx),
            Knob::RxAbsIntDelay => (&mut self.parameters.rx_abs_int_delay, &mut self.coalescing.rx),
            Knob::TxIntDelay => (&mut self.parameters.tx_int_delay, &mut self.coalescing.tx),
            _ => (&mut self.parameters.tx_abs_int_delay, &mut self.coalescing.tx),
        };
        if matches!(knob, Knob::RxIntDelay | Knob::TxIntDelay) {
            *delay = InterruptDelay { delay: span, restarts: number > 0, ..*delay };
        } else if delay.delay == Nanos::ZERO && number > 0 {
            let (wanted, of) = ("only with", knob.name().replace("-abs", ""));
            return Err(invalid_value(
                knob,
                value,
                &format!("{wanted} `{of}` above 0, which it limits"),
            ));
        } else {
            delay.absolute = span;
        }
        *given = Some(number);
        Ok(())
    }

    fn set_throttle_rate(&mut self, number: u32) {
        let is_mode = matches!(number, 1 | 3 | 4);
        self.parameters.interrupt_throttle_rate = Some(number);
        self.adaptive_rx = is_mode;
        if is_mode {
            self.adaptation = Some(AdaptiveModeration::E1000);
            return;
        }
        self.adaptation = None;
        self.coalescing.throttle = match self.coalescing.throttle {
            // A clock without a period does not tick, so nothing is delayed.
            _ if number == 0 => Throttle::None,
            throttle => throttle.with_interval(throttle_interval(number)),
        };
    }
}

#[cfg(test)]
mod tests {
    use latput_knobs::Setting;
    use latput_trial::observation::Role;

    use super::*;
    use crate::SystemProfile;

    #[test]
    fn gigabit_nic_takes_what_its_driver_takes() {
        let nic = load_parameters(&[(Knob::InterruptThrottleRate, 8_000)]).unwrap();
        let interval = Nanos::from_ns(124_928);
        assert_eq!(nic.coalescing.throttle, Throttle::Gate { interval });
        let nic = load_parameters(&[(Knob::InterruptThrottleRate, 0)]).unwrap();
        assert_eq!(nic.coalescing.throttle, Throttle::None);
        let nic = load_parameters(&[(Knob::InterruptThrottleRate, 4)]).unwrap();
        assert_eq!((nic.adaptation, nic.adaptive_rx), (Some(AdaptiveModeration::E1000), true));
        assert_eq!(nic.parameters.throttle_mode(), ThrottleMode::Simplified);
        let nic = load_parameters(&[(Knob::RxIntDelay, 100), (Knob::RxAbsIntDelay, 200)]).unwrap();
        let rx = nic.coalescing.rx;
        let expected = (Nanos::from_ns(102_400), true, Nanos::from_ns(204_800));
        assert_eq!((rx.delay, rx.restarts, rx.absolute), expected);
    }

    #[test]
    fn what_a_driver_only_warns_of_is_refused() {
        assert_refused(&[(Knob::InterruptThrottleRate, 50)], "0, 1, 3, 4 and 100 to 100000");
        assert_refused(&[(Knob::RxIntDelay, 65_536)], "0 to 65535");
        assert_refused(&[(Knob::RxAbsIntDelay, 8)], "only with `rx-int-delay` above 0");
    }

    #[test]
    fn other_nics_have_no_such_parameters() {
        let mut profile = load_profile();
        profile.sut.nic.coalescing.throttle = Throttle::HoldOff { interval: Nanos::from_us(50) };
        let setting = Setting::from([(Knob::InterruptThrottleRate, Value::Count(8_000))]);
        let error = profile.set_knobs(Role::Sut, &setting).unwrap_err().to_string();
        assert!(error.contains("no such parameter"), "{error}");
    }

    #[track_caller]
    fn assert_refused(parameters: &[(Knob, u64)], expected: &str) {
        let error = load_parameters(parameters).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains(parameters[0].0.name()), "{error}");
    }

    fn load_parameters(parameters: &[(Knob, u64)]) -> Result<Nic, InvalidValue> {
        let mut profile = load_profile();
        let setting = parameters.iter().map(|(knob, value)| (*knob, Value::Count(*value)));
        profile.set_knobs(Role::Sut, &setting.collect::<Setting>())?;
        Ok(profile.sut.nic)
    }

    fn load_profile() -> SystemProfile {
        let text = include_str!("../../../../data/systems/rx1620-e1000.toml");
        toml::from_str(text).unwrap()
    }
}
