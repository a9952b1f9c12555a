//! The knobs that delay an interface's interrupts or polls, changed together as one.

use latput_knobs::{Capability, KernelError, KernelRead, Knob, Place, Setting, State, Value};
use latput_units::{IntoMap, Nanos};

use crate::error::Error;

/// Many Intel drivers take values of `rx-usecs` below 10 for modes (e1000, e1000e, igb, igc, ixgbe).
const LEAST_COALESCING: Nanos = Nanos::from_us(10);
/// Each end of the timer is a poll, and with threaded NAPI a wake-up: shorter ones leave no time for the work. On a veth pair
/// with threaded NAPI one request in flight takes 17 us without a delay, 36 with 20 us, and 51 with 10.
const LEAST_DEFERRAL: Nanos = Nanos::from_us(20);
/// How long the timer alone keeps polling after the last packet. Then the interrupt is enabled again.
const DEFERRAL_LASTS: Nanos = Nanos::from_ms(1);
/// Assumed where a receive ring does not tell its size: veth's (`VETH_RING_SIZE`), and the default of
/// most drivers.
const RING: u32 = 256;

/// The knobs that set the delay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DelayKnob {
    /// The device's own interrupt coalescing: `rx-usecs`, and what goes with it.
    Coalescing {
        /// `tx-usecs`, if the device has it.
        has_tx: bool,
        /// The adaptive moderation of the driver that must be off meanwhile.
        adaptive: Vec<Knob>,
    },
    /// The timer of NAPI: `gro-flush-timeout` with `napi-defer-hard-irqs`.
    Deferral,
}

impl DelayKnob {
    /// Those of an interface that can be set, the device's own coalescing first.
    pub(crate) fn find_settable(
        kernel: &dyn KernelRead,
        interface: &str,
    ) -> Result<Vec<Self>, Error> {
        let obstacle = |knob: Knob| match kernel.capability(interface, knob) {
            Capability::Settable(_) => None,
            Capability::ReadOnly(reason) | Capability::Absent(reason) => Some((knob, reason)),
        };
        let can = |knob: &Knob| obstacle(*knob).is_none();
        let mut found = Vec::new();
        if can(&Knob::RxUsecs) {
            let adaptive = [Knob::AdaptiveRx, Knob::AdaptiveTx];
            found.push(Self::Coalescing {
                has_tx: can(&Knob::TxUsecs),
                adaptive: adaptive.into_iter().filter(can).collect(),
            });
        }
        if can(&Knob::GroFlushTimeout) && can(&Knob::NapiDeferHardIrqs) {
            found.push(Self::Deferral);
        }
        if found.is_empty() {
            let knobs = [Knob::RxUsecs, Knob::GroFlushTimeout, Knob::NapiDeferHardIrqs];
            let reasons = knobs.into_iter().filter_map(obstacle);
            let reasons: Vec<_> =
                reasons.map(|(knob, reason)| format!("{knob}: {reason}")).collect();
            let (interface, reasons) = (interface.to_owned(), reasons.join("; "));
            return Err(Error::NoDelayKnob { interface, reasons });
        }
        Ok(found)
    }

    /// The knob that holds the delay.
    pub(crate) fn main(&self) -> Knob {
        match self {
            Self::Coalescing { .. } => Knob::RxUsecs,
            Self::Deferral => Knob::GroFlushTimeout,
        }
    }

    /// All of its knobs.
    pub(crate) fn knobs(&self) -> Vec<Knob> {
        self.setting_for(Nanos::ZERO).into_keys().collect()
    }

    /// The shortest delay that is not none.
    pub(crate) fn min_delay(&self) -> Nanos {
        match self {
            Self::Coalescing { .. } => LEAST_COALESCING,
            Self::Deferral => LEAST_DEFERRAL,
        }
    }

    /// The setting of a delay.
    pub(crate) fn setting_for(&self, delay: Nanos) -> Setting {
        match self {
            Self::Coalescing { has_tx, adaptive } => {
                // Whole microseconds are what the knob can hold.
                let delay = Value::Time(Nanos::from_us(delay.as_ns() / 1000));
                let off = adaptive.iter().map(|knob| (*knob, Value::Switch(false)));
                let tx = has_tx.then(|| (Knob::TxUsecs, delay.clone()));
                off.chain([(Knob::RxUsecs, delay.clone())]).chain(tx).into_map()
            }
            Self::Deferral => {
                // Each poll that finds nothing uses up one deferral, each at the end of a delay.
                let polls = match delay.as_ns() {
                    0 => 0,
                    ns => DEFERRAL_LASTS.as_ns().div_ceil(ns).clamp(2, 100),
                };
                Setting::from([
                    (Knob::NapiDeferHardIrqs, Value::Count(polls)),
                    (Knob::GroFlushTimeout, Value::Time(delay)),
                ])
            }
        }
    }

    /// The present values of all its knobs.
    pub(crate) fn read(
        &self,
        kernel: &dyn KernelRead,
        interface: &str,
    ) -> Result<State, KernelError> {
        let knobs = self.knobs();
        let mut state = State::default();
        for (&knob, values) in knobs.iter().zip(kernel.read_many(interface, &knobs)) {
            state.0.extend(values?.into_iter().map(|(place, value)| ((knob, place), value)));
        }
        Ok(state)
    }

    /// The knobs that are released together with one that somebody else has set: adaptive moderation,
    /// put back on, would override his value.
    pub(crate) fn released_with(&self, knob: Knob) -> Vec<Knob> {
        let group: &[Knob] = match knob {
            Knob::RxUsecs | Knob::AdaptiveRx => &[Knob::RxUsecs, Knob::AdaptiveRx],
            Knob::TxUsecs | Knob::AdaptiveTx => &[Knob::TxUsecs, Knob::AdaptiveTx],
            _ => return vec![knob],
        };
        let ours = self.knobs();
        group.iter().copied().filter(|knob| ours.contains(knob)).collect()
    }
}

/// The longest delay in a state, over all places.
pub(crate) fn delay_in(delay_knob: &DelayKnob, state: &State) -> Nanos {
    let of_main = state.0.iter().filter(|((knob, _), _)| *knob == delay_knob.main());
    let delays = of_main.filter_map(|(_, value)| match value {
        Value::Time(delay) => Some(*delay),
        _ => None,
    });
    delays.max().unwrap_or(Nanos::ZERO)
}

/// The receive descriptors of a queue.
pub(crate) fn read_ring_size(kernel: &dyn KernelRead, interface: &str) -> u32 {
    let values = kernel.read(interface, Knob::RxRing).unwrap_or_default();
    match values.first() {
        Some((Place::Device, Value::Count(count))) if *count > 0 => {
            u32::try_from(*count).unwrap_or(u32::MAX)
        }
        _ => RING,
    }
}

#[cfg(test)]
mod tests {
    use latput_testkit::{FakeInterface, FakeKernel};

    use super::*;

    #[test]
    fn interface_without_coalescing_uses_napi_timer() {
        let whole = FakeInterface::veth_without_device_values(1);
        let kernel = FakeKernel::with_interface("eth0", whole.clone());
        let both = DelayKnob::find_settable(&kernel, "eth0").unwrap();
        assert!(
            matches!(both[..], [DelayKnob::Coalescing { .. }, DelayKnob::Deferral]),
            "{both:?}"
        );
        let kernel = FakeKernel::with_interface("eth0", whole.without_knob(Knob::RxUsecs));
        assert_eq!(DelayKnob::find_settable(&kernel, "eth0").unwrap(), [DelayKnob::Deferral]);
        let error = DelayKnob::find_settable(&kernel, "eth9").unwrap_err().to_string();
        assert!(error.contains("rx-usecs") && error.contains("gro-flush-timeout"), "{error}");
    }

    #[test]
    fn deferral_ends_a_millisecond_after_the_last_packet() {
        check_deferral_polls(0, 0);
        check_deferral_polls(4_000, 100);
        check_deferral_polls(50_000, 20);
        check_deferral_polls(100_000, 10);
        check_deferral_polls(3_000_000, 2);
    }

    #[test]
    fn coalescing_switches_adaptive_moderation_off_by_name() {
        let adaptive = vec![Knob::AdaptiveRx];
        let delay_knob = DelayKnob::Coalescing { has_tx: true, adaptive };
        let setting = delay_knob.setting_for(Nanos::from_ns(12_500));
        let expected = [
            (Knob::AdaptiveRx, Value::Switch(false)),
            (Knob::RxUsecs, Value::Time(Nanos::from_us(12))),
            (Knob::TxUsecs, Value::Time(Nanos::from_us(12))),
        ];
        assert_eq!(setting, Setting::from(expected));
        assert_eq!(delay_knob.released_with(Knob::RxUsecs), [Knob::RxUsecs, Knob::AdaptiveRx]);
        assert_eq!(delay_knob.released_with(Knob::TxUsecs), [Knob::TxUsecs]);
    }

    #[track_caller]
    fn check_deferral_polls(delay_ns: u64, polls: u64) {
        let setting = DelayKnob::Deferral.setting_for(Nanos::from_ns(delay_ns));
        assert_eq!(setting[&Knob::NapiDeferHardIrqs], Value::Count(polls));
    }
}
