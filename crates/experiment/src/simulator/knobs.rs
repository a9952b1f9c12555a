//! Knobs of a plan in a profile, and a scenario's values as knobs.

use std::collections::BTreeMap;

use latput_knobs::qdisc::Parameter;
use latput_knobs::{Knob, Place, Setting, State, Value};
use latput_sim::Profile;
use latput_sim::machine::{Driver, Qdisc};
use latput_sim::profile::HostProfile;
use latput_sim::scenario::{Host, Network};
use latput_trial::observation::Role;
use latput_units::{CpuId, Nanos};

/// Brings a profile to a setting, or says which knob or value has no model.
pub(super) fn apply(
    by_role: &BTreeMap<Role, Setting>,
    profile: &mut Profile,
) -> Result<(), String> {
    // From here on the hosts may differ.
    profile.generator.get_or_insert_with(|| profile.sut.clone());
    let of = |role| by_role.get(&role).and_then(|setting| setting.get(&Knob::Mtu));
    if of(Role::Sut) != of(Role::Generator) {
        return Err(String::from(
            "the simulator has one `mtu` for both hosts: set it on both, without `sut.` or \
             `generator.`",
        ));
    }
    for (role, setting) in by_role {
        for (knob, value) in setting {
            refuse(*role, host(profile, *role), *knob, value)?;
        }
        profile.set(*role, setting).map_err(|invalid| invalid.to_string())?;
        needs_deferral(host(profile, *role))?;
    }
    Ok(())
}

fn host(profile: &Profile, role: Role) -> &HostProfile {
    match role {
        Role::Sut => &profile.sut,
        Role::Generator | Role::Observer => profile.generator.as_ref().unwrap_or(&profile.sut),
    }
}

/// Refuses what would be taken and then do nothing, or something else than on a host.
fn refuse(role: Role, host: &HostProfile, knob: Knob, value: &Value) -> Result<(), String> {
    let is_of_napi = matches!(
        knob,
        Knob::RpsCpus | Knob::Threaded | Knob::NapiDeferHardIrqs | Knob::GroFlushTimeout
    );
    if is_of_napi && host.nic.driver != Driver::Napi {
        return Err(format!("`{knob}`: the profile's driver does not use NAPI; leave it out"));
    }
    match (value, host.stack.qdisc) {
        (Value::Count(_), Qdisc::FqCodel { .. }) if knob == Knob::Txqueuelen => Err(format!(
            "`{knob}` does nothing here: the profile's queue discipline is fq_codel, which has a \
             limit of its own; leave the knob out"
        )),
        (Value::Count(0), _) if knob == Knob::Txqueuelen => {
            Err(format!("`{knob}` is simulated from 1 packet on, not 0"))
        }
        (Value::Cpus(cpus), _) => match cpus.iter().find(|cpu| cpu.0 >= host.machine.cores) {
            Some(cpu) => Err(format!(
                "`{knob}` names CPU {cpu}: the profile's {} has CPUs 0 to {}",
                role.name(),
                host.machine.cores.saturating_sub(1)
            )),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Without deferred interrupts the kernel's timer only tells GRO how long to hold packets between
/// polls, and here GRO holds nothing longer than a poll.
fn needs_deferral(host: &HostProfile) -> Result<(), String> {
    let stack = &host.stack;
    let is_timer_alone = stack.gro_flush_timeout > Nanos::ZERO && stack.defer_hard_irqs == 0;
    if is_timer_alone && stack.gro {
        return Err(String::from(
            "the simulator has no model of `gro-flush-timeout` without `napi-defer-hard-irqs`: move \
             them together, as \"gro-flush-timeout + napi-defer-hard-irqs\" = [[\"0us\", 0], \
             [\"50us\", 100]]",
        ));
    }
    Ok(())
}

/// A host's values of every knob that it has.
pub(super) fn state(host: &Host, network: &Network) -> State {
    let stack = &host.stack;
    let mut values = BTreeMap::new();
    let mut put = |knob, place, value| values.insert((knob, place), value);
    put(Knob::Mtu, Place::Device, Value::Count(network.mtu.get()));
    put(Knob::Gro, Place::Device, Value::Switch(stack.gro));
    put(Knob::Tso, Place::Device, Value::Switch(stack.tso));
    if let Qdisc::Pfifo { limit_packets } = stack.qdisc {
        put(Knob::Txqueuelen, Place::Device, Value::Count(u64::from(limit_packets)));
    }
    put(Knob::Qdisc, Place::Device, Value::Qdisc(qdisc(stack.qdisc)));
    let nic = &host.nic;
    let (rx, tx) = (nic.coalescing.rx, nic.coalescing.tx);
    put(Knob::RxRing, Place::Device, Value::Count(u64::from(nic.rx_ring)));
    put(Knob::TxRing, Place::Device, Value::Count(u64::from(nic.tx_ring)));
    if nic.driver != Driver::Polling {
        put(Knob::RxUsecs, Place::Device, Value::Time(nic.rx_delay()));
        put(Knob::RxFrames, Place::Device, Value::Count(u64::from(rx.frames)));
        put(Knob::TxUsecs, Place::Device, Value::Time(tx.delay));
        put(Knob::TxFrames, Place::Device, Value::Count(u64::from(tx.frames)));
        // One CPU each, of those that a mask allows.
        let cores = nic.irq_cores.iter().copied().cycle().chain([0]);
        for (queue, core) in (0..nic.queues).zip(cores) {
            put(
                Knob::SmpAffinity,
                Place::Interrupt(queue),
                Value::Cpus([CpuId(core)].into_iter().collect()),
            );
        }
    }
    if let Some(bql) = stack.bql {
        for queue in 0..nic.queues {
            put(Knob::BqlLimitMax, Place::TxQueue(queue), Value::Count(bql.most.get()));
        }
    }
    for queue in (0..host.nic.queues).filter(|_| host.nic.driver == Driver::Napi) {
        let rps = stack.rps_cores.iter().map(|core| CpuId(*core)).collect();
        put(Knob::RpsCpus, Place::RxQueue(queue), Value::Cpus(rps));
        let napi = Place::Napi(queue);
        put(Knob::Threaded, napi, Value::Switch(stack.threaded));
        put(Knob::NapiDeferHardIrqs, napi, Value::Count(u64::from(stack.defer_hard_irqs)));
        put(Knob::GroFlushTimeout, napi, Value::Time(stack.gro_flush_timeout));
    }
    State(values)
}

/// As tc names it.
fn qdisc(qdisc: Qdisc) -> latput_knobs::qdisc::Qdisc {
    let (kind, parameters) = match qdisc {
        Qdisc::Pfifo { limit_packets } => ("pfifo", vec![("limit", count(limit_packets))]),
        Qdisc::FqCodel { limit_packets, target, interval } => {
            let times = [("target", target), ("interval", interval)];
            let times = times.map(|(name, time)| (name, Parameter::Time(time)));
            ("fq_codel", [("limit", count(limit_packets))].into_iter().chain(times).collect())
        }
    };
    let mut named = latput_knobs::qdisc::Qdisc::of_kind(kind);
    for (name, value) in parameters {
        named.set(name, value);
    }
    named
}

fn count(count: u32) -> Parameter {
    Parameter::Count(u64::from(count))
}

#[cfg(test)]
mod tests {
    use latput_trial::{Traffic, Workload};

    use super::*;

    #[test]
    fn every_knob_is_either_set_and_read_back_or_refused_by_name() {
        let mut refused = Vec::new();
        for knob in Knob::ALL {
            let value = knob.parse_value(knob.spec().example).unwrap();
            let mut setting = Setting::from([(*knob, value.clone())]);
            setting.entry(Knob::NapiDeferHardIrqs).or_insert(Value::Count(100));
            let mut profile = profile();
            let by_role = [Role::Sut, Role::Generator].map(|role| (role, setting.clone()));
            if let Err(refusal) = apply(&BTreeMap::from(by_role), &mut profile) {
                assert!(refusal.contains(knob.name()), "{refusal}");
                refused.push(*knob);
                continue;
            }
            for state in states(&profile) {
                let read = state.0.iter().find(|((read, _), _)| read == knob).unwrap();
                // A mask allows several CPUs, and an interrupt takes one of them.
                let is_part = matches!(
                    (read.1, &value),
                    (Value::Cpus(one), Value::Cpus(of)) if one.iter().all(|cpu| of.contains(cpu))
                );
                assert!(is_part || knob.spec().takes(&value, read.1), "{knob}: {}", read.1);
            }
        }
        let simulated = [Knob::Mtu, Knob::Gro, Knob::RpsCpus, Knob::GroFlushTimeout, Knob::RxUsecs];
        assert!(simulated.iter().all(|knob| !refused.contains(knob)), "{refused:?}");
        assert!(refused.contains(&Knob::Gso) && refused.contains(&Knob::InterruptThrottleRate));
    }

    #[test]
    fn a_role_is_set_alone() {
        for (role, threaded) in [(Role::Generator, [true, false]), (Role::Sut, [false, true])] {
            let mut profile = profile();
            let setting = Setting::from([(Knob::Threaded, Value::Switch(true))]);
            apply(&BTreeMap::from([(role, setting)]), &mut profile).unwrap();
            let is_threaded =
                |state: &State| state.0[&(Knob::Threaded, Place::Napi(0))] == Value::Switch(true);
            assert_eq!(states(&profile).map(|state| is_threaded(&state)), threaded);
        }
    }

    #[test]
    fn what_would_silently_do_something_else_is_refused() {
        let timer = (Knob::GroFlushTimeout, Value::Time(Nanos::from_us(20)));
        check(timer, "napi-defer-hard-irqs", |host| host.stack.gro = true);
        check((Knob::Mtu, Value::Count(9000)), "both hosts", |_| {});
        check((Knob::Txqueuelen, Value::Count(0)), "from 1 packet", |_| {});
        check((Knob::Txqueuelen, Value::Count(10)), "fq_codel", |host| {
            host.stack.qdisc = Qdisc::FQ_CODEL;
        });
        check((Knob::RpsCpus, Value::Cpus("7".parse().unwrap())), "CPU 7", |_| {});
        check((Knob::Threaded, Value::Switch(true)), "does not use NAPI", |host| {
            host.nic.driver = Driver::Interrupt;
        });
    }

    /// `wanted`, set on the system under test alone, is refused with `expected`.
    #[track_caller]
    fn check(wanted: (Knob, Value), expected: &str, prepare: fn(&mut HostProfile)) {
        let mut profile = profile();
        prepare(&mut profile.sut);
        let by_role = BTreeMap::from([(Role::Sut, Setting::from([wanted.clone()]))]);
        let refusal = apply(&by_role, &mut profile).unwrap_err();
        assert!(refusal.contains(expected) && refusal.contains(wanted.0.name()), "{refusal}");
    }

    /// What the generator's and the system's knobs are read back as.
    fn states(profile: &Profile) -> [State; 2] {
        let traffic = Traffic::tcp_stream(latput_units::Bytes::new(1), 1);
        let workload = Workload::plain(String::new(), traffic);
        let scenario = profile.scenario(&workload, 1, Nanos::from_ms(1)).unwrap();
        [0, 1].map(|host| state(&scenario.hosts[host], &scenario.network))
    }

    /// One with a pfifo.
    fn profile() -> Profile {
        let mut profile = super::super::system::profile("rx1620-e1000").unwrap();
        profile.sut.machine.cores = 4;
        profile.generator.as_mut().unwrap().machine.cores = 4;
        profile
    }
}
