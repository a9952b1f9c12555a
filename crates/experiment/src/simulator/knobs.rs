//! Knobs of a plan in a scenario, and the scenario's values as knobs.

use std::collections::BTreeMap;

use latput_knobs::{Knob, Place, Setting, State, Value};
use latput_sim::machine::{Driver, Qdisc};
use latput_sim::scenario::{Host, Network, Scenario};
use latput_trial::observation::Role;
use latput_units::{Bytes, CpuId};

/// What the simulator has under the kernel's names.
const MODELLED: &[Knob] = &[
    Knob::Mtu,
    Knob::Txqueuelen,
    Knob::Gro,
    Knob::Tso,
    Knob::RpsCpus,
    Knob::Threaded,
    Knob::NapiDeferHardIrqs,
    Knob::GroFlushTimeout,
];

/// Brings a scenario to a setting, or says which knob or value it has no model of.
pub(super) fn apply(
    by_role: &BTreeMap<Role, Setting>,
    scenario: &mut Scenario,
) -> Result<(), String> {
    for host in &mut scenario.hosts {
        let Some(setting) = by_role.get(&host.role) else { continue };
        for (knob, value) in setting.iter().filter(|(knob, _)| **knob != Knob::Mtu) {
            set(host, *knob, value)?;
        }
        holds_without_deferral(host)?;
    }
    set_mtu(by_role, &mut scenario.network)
}

fn set(host: &mut Host, knob: Knob, value: &Value) -> Result<(), String> {
    needs_napi(host, knob)?;
    let stack = &mut host.stack;
    match (knob, value) {
        (Knob::Gro, Value::Switch(on)) => stack.gro = *on,
        (Knob::Tso, Value::Switch(on)) => stack.tso = *on,
        (Knob::Threaded, Value::Switch(on)) => stack.threaded = *on,
        (Knob::GroFlushTimeout, Value::Time(timeout)) => stack.gro_flush_timeout = *timeout,
        (Knob::NapiDeferHardIrqs, Value::Count(polls)) => {
            stack.defer_hard_irqs = whole(knob, *polls)?;
        }
        (Knob::Txqueuelen, Value::Count(packets)) => match &mut stack.qdisc {
            Qdisc::Pfifo { limit_packets } if *packets > 0 => {
                *limit_packets = whole(knob, *packets)?;
            }
            Qdisc::Pfifo { .. } => {
                return Err(String::from("`txqueuelen` is simulated from 1 packet on, not 0"));
            }
            Qdisc::FqCodel { .. } => {
                return Err(String::from(
                    "`txqueuelen` does nothing here: the profile's queue discipline is fq_codel, \
                     which has a limit of its own; leave the knob out",
                ));
            }
        },
        (Knob::RpsCpus, Value::Cpus(cpus)) => {
            let cores = host.machine.cores;
            if let Some(cpu) = cpus.iter().find(|cpu| cpu.0 >= cores) {
                return Err(format!(
                    "`rps-cpus` names CPU {cpu}: the profile's {} has CPUs 0 to {}",
                    host.role.name(),
                    cores - 1
                ));
            }
            stack.rps_cores = cpus.iter().map(|cpu| cpu.0).collect();
        }
        _ => {
            let names: Vec<&str> = MODELLED.iter().map(|knob| knob.name()).collect();
            return Err(format!(
                "the simulator has no model of `{knob}`: leave it out; it has {}",
                names.join(", ")
            ));
        }
    }
    Ok(())
}

/// What the simulator does only in a NAPI driver's poll.
fn needs_napi(host: &Host, knob: Knob) -> Result<(), String> {
    let is_of_napi = matches!(
        knob,
        Knob::RpsCpus | Knob::Threaded | Knob::NapiDeferHardIrqs | Knob::GroFlushTimeout
    );
    if is_of_napi && host.nic.driver != Driver::Napi {
        return Err(format!("`{knob}`: the profile's driver does not use NAPI; leave it out"));
    }
    Ok(())
}

/// Without deferred interrupts the kernel's timer only tells GRO how long to hold packets between
/// polls, and here GRO holds nothing longer than a poll.
fn holds_without_deferral(host: &Host) -> Result<(), String> {
    let stack = &host.stack;
    let is_timer_alone = stack.gro_flush_timeout.as_ns() > 0 && stack.defer_hard_irqs == 0;
    if is_timer_alone && stack.gro {
        return Err(String::from(
            "the simulator has no model of `gro-flush-timeout` without `napi-defer-hard-irqs`: move \
             them together, as \"gro-flush-timeout + napi-defer-hard-irqs\" = [[\"0us\", 0], \
             [\"50us\", 100]]",
        ));
    }
    Ok(())
}

fn set_mtu(by_role: &BTreeMap<Role, Setting>, network: &mut Network) -> Result<(), String> {
    let of = |role| by_role.get(&role).and_then(|setting| setting.get(&Knob::Mtu));
    let (sut, generator) = (of(Role::Sut), of(Role::Generator));
    if sut != generator {
        return Err(String::from(
            "the simulator has one `mtu` for both hosts: set it on both, without `sut.` or \
             `generator.`",
        ));
    }
    if let Some(Value::Count(bytes)) = sut {
        network.mtu = Bytes::new(*bytes);
    }
    Ok(())
}

fn whole(knob: Knob, value: u64) -> Result<u32, String> {
    u32::try_from(value).map_err(|_| format!("`{knob}` is simulated to {} at most", u32::MAX))
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

#[cfg(test)]
mod tests {
    use latput_units::Nanos;

    use super::*;

    #[test]
    fn every_knob_is_either_set_and_read_back_or_refused_by_name() {
        for knob in Knob::ALL {
            let value = knob.parse_value(knob.spec().example).unwrap();
            let mut setting = Setting::from([(*knob, value.clone())]);
            if *knob == Knob::GroFlushTimeout {
                setting.insert(Knob::NapiDeferHardIrqs, Value::Count(100));
            }
            let mut scenario = scenario();
            let by_role = [Role::Sut, Role::Generator].map(|role| (role, setting.clone()));
            let applied = apply(&BTreeMap::from(by_role), &mut scenario);
            if !MODELLED.contains(knob) {
                assert!(applied.unwrap_err().contains(knob.name()));
                continue;
            }
            applied.unwrap();
            for host in &scenario.hosts {
                let state = state(host, &scenario.network);
                let read = state.0.iter().find(|((read, _), _)| read == knob).unwrap();
                assert_eq!(*read.1, value, "{knob}");
            }
        }
    }

    #[test]
    fn a_role_is_set_alone() {
        let mut scenario = scenario();
        let setting = Setting::from([(Knob::Threaded, Value::Switch(true))]);
        apply(&BTreeMap::from([(Role::Sut, setting)]), &mut scenario).unwrap();
        let threaded = |host: &Host| (host.role, host.stack.threaded);
        assert_eq!(
            scenario.hosts.iter().map(threaded).collect::<Vec<_>>(),
            [(Role::Generator, false), (Role::Sut, true)]
        );
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
    fn check(wanted: (Knob, Value), expected: &str, prepare: fn(&mut Host)) {
        let mut scenario = scenario();
        prepare(&mut scenario.hosts[1]);
        let by_role = BTreeMap::from([(Role::Sut, Setting::from([wanted.clone()]))]);
        let refusal = apply(&by_role, &mut scenario).unwrap_err();
        assert!(refusal.contains(expected) && refusal.contains(wanted.0.name()), "{refusal}");
    }

    fn scenario() -> Scenario {
        let mut host = Host::default();
        host.machine.cores = 4;
        Scenario {
            seed: 1,
            warmup: Nanos::ZERO,
            duration: Nanos::from_ms(1),
            hosts: vec![Host { role: Role::Generator, ..host.clone() }, host],
            network: Network::default(),
            loads: Vec::new(),
        }
    }
}
