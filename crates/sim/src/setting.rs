//! Knobs on a simulated host: the same settings that a real host takes, by the same names.

use latput_knobs::{Knob, Setting, Value};
use latput_trial::observation::Role;
use latput_units::{Bytes, CpuSet};

use crate::machine::Qdisc;
use crate::profile::{HostProfile, Profile};
use crate::validate::Invalid;

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
        let stack = &mut self.stack;
        match knob {
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
            Knob::GroFlushTimeout => match value {
                Value::Time(timeout) => stack.gro_flush_timeout = *timeout,
                _ => return Err(wrong(knob, value, "a duration")),
            },
            other => return Err(wrong(other, value, "left out: the simulator does not model it")),
        }
        Ok(())
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
