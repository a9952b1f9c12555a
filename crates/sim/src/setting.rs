//! Knobs on a simulated host: the same settings that a real host takes, by the same names.

use latput_knobs::qdisc::Parameter;
use latput_knobs::{Knob, Setting, Value};
use latput_trial::observation::Role;
use latput_units::{Bytes, CpuSet, Nanos};

use crate::machine::{Bql, Nic, Qdisc};
use crate::profile::{HostProfile, Profile};
use crate::validate::Invalid;
use crate::vector::Throttle;

impl Profile {
    /// Sets the knobs of the hosts with this role; refuses what this simulator does not model. Ranges
    /// are checked with the scenario.
    pub fn set(&mut self, role: Role, setting: &Setting) -> Result<(), Invalid> {
        // From here on the hosts may differ.
        self.generator.get_or_insert_with(|| self.sut.clone());
        for (&knob, value) in setting {
            if knob == Knob::Mtu {
                self.network.mtu = Bytes::new(count(knob, value)?);
                continue;
            }
            let host = match role {
                Role::Sut => &mut self.sut,
                Role::Generator | Role::Observer => {
                    self.generator.get_or_insert_with(|| self.sut.clone())
                }
            };
            host.set(knob, value)?;
        }
        Ok(())
    }
}

impl HostProfile {
    fn set(&mut self, knob: Knob, value: &Value) -> Result<(), Invalid> {
        let (stack, nic) = (&mut self.stack, &mut self.nic);
        match knob {
            Knob::RxUsecs => nic.set_rx_delay(time(knob, value)?),
            Knob::RxFrames => nic.coalescing.rx.frames = small(knob, value)?,
            Knob::TxUsecs => nic.coalescing.tx.delay = time(knob, value)?,
            Knob::TxFrames => nic.coalescing.tx.frames = small(knob, value)?,
            Knob::RxRing => nic.rx_ring = small(knob, value)?,
            Knob::TxRing => nic.tx_ring = small(knob, value)?,
            Knob::SmpAffinity => {
                nic.irq_cores = cpus(knob, value)?.iter().map(|cpu| cpu.0).collect();
            }
            Knob::Qdisc => stack.qdisc = qdisc(knob, value)?,
            Knob::BqlLimitMax => {
                let most = Bytes::new(count(knob, value)?);
                let Some(Bql { least, .. }) = stack.bql else {
                    return Err(wrong(knob, value, "left out: the profile's driver has no BQL"));
                };
                stack.bql = Some(Bql { least: least.min(most), most });
            }
            Knob::Txqueuelen => {
                let length = small(knob, value)?;
                if let Qdisc::Pfifo { limit_packets } = &mut stack.qdisc {
                    *limit_packets = length;
                }
            }
            Knob::Gro => stack.gro = switch(knob, value)?,
            Knob::Tso => stack.tso = switch(knob, value)?,
            Knob::Threaded => stack.threaded = switch(knob, value)?,
            Knob::RpsCpus => stack.rps_cores = cpus(knob, value)?.iter().map(|cpu| cpu.0).collect(),
            Knob::NapiDeferHardIrqs => stack.defer_hard_irqs = small(knob, value)?,
            Knob::GroFlushTimeout => stack.gro_flush_timeout = time(knob, value)?,
            other => return Err(wrong(other, value, "left out: the simulator does not model it")),
        }
        Ok(())
    }
}

impl Nic {
    /// `rx-usecs` as the driver takes it: the interval of the throttle where the NIC has one (Intel),
    /// otherwise the delay from the first packet (tg3 and others).
    fn set_rx_delay(&mut self, delay: Nanos) {
        let coalescing = &mut self.coalescing;
        match coalescing.throttle {
            Throttle::None => coalescing.rx.delay = delay,
            // A clock without a period does not tick: nothing is held back.
            Throttle::Gate { .. } if delay == Nanos::ZERO => coalescing.throttle = Throttle::None,
            throttle => coalescing.throttle = throttle.with_interval(delay),
        }
    }

    /// What `rx-usecs` is.
    pub fn rx_delay(&self) -> Nanos {
        match self.coalescing.throttle {
            Throttle::None => self.coalescing.rx.delay,
            throttle => throttle.interval(),
        }
    }
}

/// A discipline that is modelled, with its parameters; what is not named is Linux's default.
fn qdisc(knob: Knob, value: &Value) -> Result<Qdisc, Invalid> {
    const MODELLED: &str = "pfifo_fast, pfifo limit=N, or fq_codel with limit, target and interval";
    let Value::Qdisc(wanted) = value else { return Err(wrong(knob, value, MODELLED)) };
    let limit = match wanted.parameter("limit") {
        Some(Parameter::Count(limit)) => {
            Some(u32::try_from(limit).map_err(|_| wrong(knob, value, "a limit to 4294967295"))?)
        }
        _ => None,
    };
    let time = |name: &str, default: Nanos| match wanted.parameter(name) {
        Some(Parameter::Time(time)) => time,
        _ => default,
    };
    match (wanted.kind(), Qdisc::FQ_CODEL) {
        ("pfifo_fast" | "pfifo", _) => {
            Ok(limit.map_or(Qdisc::PFIFO_FAST, |limit_packets| Qdisc::Pfifo { limit_packets }))
        }
        ("fq_codel", Qdisc::FqCodel { limit_packets, target, interval }) => Ok(Qdisc::FqCodel {
            limit_packets: limit.unwrap_or(limit_packets),
            target: time("target", target),
            interval: time("interval", interval),
        }),
        _ => Err(wrong(knob, value, MODELLED)),
    }
}

fn time(knob: Knob, value: &Value) -> Result<Nanos, Invalid> {
    match value {
        Value::Time(time) => Ok(*time),
        _ => Err(wrong(knob, value, "a duration")),
    }
}

fn count(knob: Knob, value: &Value) -> Result<u64, Invalid> {
    match value {
        Value::Count(count) => Ok(*count),
        _ => Err(wrong(knob, value, "a number")),
    }
}

fn small(knob: Knob, value: &Value) -> Result<u32, Invalid> {
    u32::try_from(count(knob, value)?).map_err(|_| wrong(knob, value, "0 to 4294967295"))
}

fn switch(knob: Knob, value: &Value) -> Result<bool, Invalid> {
    match value {
        Value::Switch(on) => Ok(*on),
        _ => Err(wrong(knob, value, "on or off")),
    }
}

fn cpus(knob: Knob, value: &Value) -> Result<CpuSet, Invalid> {
    match value {
        Value::Cpus(cpus) => Ok(cpus.clone()),
        _ => Err(wrong(knob, value, "a set of CPUs")),
    }
}

fn wrong(knob: Knob, value: &Value, wanted: &str) -> Invalid {
    Invalid { key: knob.to_string(), found: value.to_string(), wanted: wanted.to_owned() }
}

#[cfg(test)]
mod tests {
    use latput_units::{BitsPerSecond, CpuId, Nanos};

    use super::*;
    use crate::profile::NetworkProfile;

    #[test]
    fn every_modelled_knob_reaches_its_field() {
        let mut profile = profile();
        let cpus: CpuSet = [CpuId(0), CpuId(1)].into_iter().collect();
        let setting = Setting::from([
            (Knob::Mtu, Value::Count(9_000)),
            (Knob::Txqueuelen, Value::Count(50)),
            (Knob::Gro, Value::Switch(true)),
            (Knob::Tso, Value::Switch(true)),
            (Knob::Threaded, Value::Switch(true)),
            (Knob::RpsCpus, Value::Cpus(cpus)),
            (Knob::NapiDeferHardIrqs, Value::Count(100)),
            (Knob::GroFlushTimeout, Value::Time(Nanos::from_us(50))),
        ]);
        profile.set(Role::Sut, &setting).unwrap();
        let stack = &profile.sut.stack;
        assert_eq!(profile.network.mtu, Bytes::new(9_000));
        assert_eq!(stack.qdisc, Qdisc::Pfifo { limit_packets: 50 });
        assert!(stack.gro && stack.tso && stack.threaded);
        assert_eq!(stack.rps_cores, [0, 1]);
        assert_eq!((stack.defer_hard_irqs, stack.gro_flush_timeout), (100, Nanos::from_us(50)));
        assert_eq!(profile.generator, Some(HostProfile::default()), "the generator is left alone");
    }

    #[test]
    fn rx_usecs_is_the_throttle_where_there_is_one_and_the_delay_elsewhere() {
        let set = |throttle, us| {
            let mut profile = profile();
            profile.sut.nic.coalescing.throttle = throttle;
            let value = Value::Time(Nanos::from_us(us));
            profile.set(Role::Sut, &Setting::from([(Knob::RxUsecs, value)])).unwrap();
            assert_eq!(profile.sut.nic.rx_delay(), Nanos::from_us(us));
            profile.sut.nic.coalescing
        };
        let interval = |us| Nanos::from_us(us);
        let gate = Throttle::Gate { interval: interval(125) };
        let hold_off = Throttle::HoldOff { interval: interval(125) };
        assert_eq!(set(Throttle::None, 20).rx.delay, interval(20));
        assert_eq!(set(gate, 20).throttle, Throttle::Gate { interval: interval(20) });
        assert_eq!(set(gate, 0).throttle, Throttle::None);
        assert_eq!(set(hold_off, 20).throttle, Throttle::HoldOff { interval: interval(20) });
    }

    #[test]
    fn what_leaves_the_host_is_queued_as_the_setting_says() {
        let mut profile = profile();
        let mut set = |knob: Knob, text: &str| {
            let value = knob.parse_value(text).unwrap();
            profile.set(Role::Sut, &Setting::from([(knob, value)])).map(|()| profile.sut.clone())
        };
        let fq_codel = set(Knob::Qdisc, "fq_codel target=1ms").unwrap().stack.qdisc;
        let target = Nanos::from_ms(1);
        let (limit_packets, interval) = (10_240, Nanos::from_ms(100));
        assert_eq!(fq_codel, Qdisc::FqCodel { limit_packets, target, interval });
        assert_eq!(set(Knob::Qdisc, "pfifo_fast").unwrap().stack.qdisc, Qdisc::PFIFO_FAST);
        assert!(set(Knob::Qdisc, "fq").unwrap_err().to_string().contains("fq_codel with limit"));
        assert!(set(Knob::BqlLimitMax, "3028").unwrap_err().to_string().contains("no BQL"));
        assert_eq!(set(Knob::SmpAffinity, "0,2-3").unwrap().nic.irq_cores, [0, 2, 3]);
    }

    #[test]
    fn a_generator_that_was_like_the_system_under_test_gets_its_own_settings() {
        let mut profile = profile();
        profile.set(Role::Generator, &Setting::from([(Knob::Gro, Value::Switch(true))])).unwrap();
        assert!(!profile.sut.stack.gro);
        assert!(profile.generator.unwrap().stack.gro);
    }

    #[test]
    fn what_is_not_modelled_or_of_another_kind_is_refused_by_name() {
        check(Knob::Gso, Value::Switch(true), "gso is on, must be left out");
        check(Knob::Gro, Value::Count(1), "gro is 1, must be on or off");
        check(Knob::NapiDeferHardIrqs, Value::Count(1 << 40), "must be 0 to 4294967295");
        check(Knob::GroFlushTimeout, Value::Count(5), "gro-flush-timeout is 5, must be a duration");
    }

    #[track_caller]
    fn check(knob: Knob, value: Value, message: &str) {
        let error = profile().set(Role::Sut, &Setting::from([(knob, value)])).unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    }

    fn profile() -> Profile {
        Profile {
            schema: 1,
            name: String::from("test"),
            source: String::from("none"),
            sut: HostProfile::default(),
            generator: None,
            network: NetworkProfile {
                rate: BitsPerSecond::new(1_000_000_000),
                latency: Nanos::ZERO,
                latency_jitter_ratio: 0.0,
                mtu: Bytes::new(1_500),
            },
        }
    }
}
