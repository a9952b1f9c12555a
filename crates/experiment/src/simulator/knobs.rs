//! Knobs of a plan in a profile, and a scenario's values as knobs.

use std::collections::BTreeMap;

use latput_knobs::profile::Point;
use latput_knobs::qdisc::Parameter;
use latput_knobs::{Knob, Place, Setting, State, Value};
use latput_sim::Profile;
use latput_sim::machine::{Adaptation, Driver, Qdisc};
use latput_sim::profile::HostProfile;
use latput_sim::scenario::{Host, Network};
use latput_sim::vector::Coalescing;
use latput_trial::observation::Role;
use latput_units::{Bytes, CpuId, Nanos};

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
        Knob::RpsCpus
            | Knob::Threaded
            | Knob::NapiDeferHardIrqs
            | Knob::GroFlushTimeout
            | Knob::IrqSuspendTimeout
            | Knob::BusyRead
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
    let (nic, stack) = (&host.nic, &host.stack);
    let count = |count: u32| Value::Count(u64::from(count));
    let mut values = BTreeMap::from([
        (Knob::Mtu, Value::Count(network.mtu.get())),
        (Knob::Gro, Value::Switch(stack.gro)),
        (Knob::Tso, Value::Switch(stack.tso)),
        (Knob::Qdisc, Value::Qdisc(qdisc(stack.qdisc))),
        (Knob::CombinedChannels, count(nic.queues)),
        (Knob::NetdevMaxBacklog, count(stack.backlog_packets)),
    ]);
    if let Qdisc::Pfifo { limit_packets } = stack.qdisc {
        values.insert(Knob::Txqueuelen, count(limit_packets));
    }
    if nic.fifo > Bytes::new(0) {
        values.insert(Knob::PauseTx, Value::Switch(nic.pause));
    }
    if !nic.handover {
        values.insert(Knob::RxRing, count(nic.rx_ring));
        values.insert(Knob::TxRing, count(nic.tx_ring));
        values.extend(moderation(&nic.coalescing));
    }
    if let Some(adaptation) = nic.adaptation {
        values.insert(Knob::AdaptiveRx, Value::Switch(nic.adaptive_rx));
        if adaptation == Adaptation::Dim {
            values.insert(Knob::AdaptiveTx, Value::Switch(nic.adaptive_tx));
            values.extend(points(Knob::RxProfile, nic.rx_points()));
            values.extend(points(Knob::TxProfile, nic.tx_points()));
        }
    }
    values.extend(nic.parameters.given().map(|(knob, value)| (knob, count(value))));
    if nic.driver == Driver::Napi {
        values.insert(Knob::BusyRead, Value::Time(stack.busy_poll));
    }
    let of_device = values.into_iter().map(|(knob, value)| ((knob, Place::Device), value));
    let mut values: BTreeMap<_, _> = of_device.collect();
    for queue in 0..nic.queues {
        values.extend(of_queue(queue, host));
    }
    State(values)
}

fn of_queue(queue: u32, host: &Host) -> Vec<((Knob, Place), Value)> {
    let stack = &host.stack;
    let mut values = Vec::new();
    if host.nic.driver != Driver::Polling {
        // One CPU each, of those that a mask allows.
        let cores = &host.nic.irq_cores;
        let core = cores.get(queue as usize % cores.len().max(1)).copied().unwrap_or(0);
        let cpu = Value::Cpus([CpuId(core)].into_iter().collect());
        values.push(((Knob::SmpAffinity, Place::Interrupt(queue)), cpu));
    }
    if let Some(bql) = stack.bql {
        let place = Place::TxQueue(queue);
        values.push(((Knob::BqlLimitMin, place), Value::Count(bql.least.get())));
        values.push(((Knob::BqlLimitMax, place), Value::Count(bql.most.get())));
    }
    if host.nic.driver == Driver::Napi {
        let rps = stack.rps_cores.iter().map(|core| CpuId(*core)).collect();
        values.push(((Knob::RpsCpus, Place::RxQueue(queue)), Value::Cpus(rps)));
        let deferrals = Value::Count(u64::from(stack.defer_hard_irqs));
        for (knob, value) in [
            (Knob::Threaded, Value::Switch(stack.threaded)),
            (Knob::NapiDeferHardIrqs, deferrals),
            (Knob::GroFlushTimeout, Value::Time(stack.gro_flush_timeout)),
            (Knob::IrqSuspendTimeout, Value::Time(stack.irq_suspend_timeout)),
        ] {
            values.push(((knob, Place::Napi(queue)), value));
        }
    }
    values
}

/// The moderation knobs that a NIC of this kind has.
fn moderation(coalescing: &Coalescing) -> Vec<(Knob, Value)> {
    if coalescing.is_throttled() {
        return vec![(Knob::RxUsecs, Value::Time(coalescing.throttle.interval()))];
    }
    let (rx, tx) = (&coalescing.rx, &coalescing.tx);
    let count = |count: u32| Value::Count(u64::from(count));
    vec![
        (Knob::RxUsecs, Value::Time(rx.delay)),
        (Knob::RxFrames, count(rx.frames)),
        (Knob::RxUsecsIrq, Value::Time(rx.in_irq().delay)),
        (Knob::RxFramesIrq, count(rx.in_irq().frames)),
        (Knob::TxUsecs, Value::Time(tx.delay)),
        (Knob::TxFrames, count(tx.frames)),
        (Knob::TxUsecsIrq, Value::Time(tx.in_irq().delay)),
        (Knob::TxFramesIrq, count(tx.in_irq().frames)),
    ]
}

/// The points that DIM moves between.
fn points(knob: Knob, points: [(u32, u32); 5]) -> Option<(Knob, Value)> {
    let point = |(delay_us, frames)| Point {
        delay: Some(Nanos::from_us(u64::from(delay_us))),
        packets: Some(frames).filter(|frames| *frames > 0),
        completions: None,
    };
    let profile = latput_knobs::profile::Profile::new(points.map(point).to_vec())?;
    Some((knob, Value::Profile(profile)))
}

fn qdisc(simulated: Qdisc) -> latput_knobs::Qdisc {
    match simulated {
        Qdisc::Pfifo { limit_packets } => {
            let mut qdisc = latput_knobs::Qdisc::of_kind("pfifo");
            qdisc.set("limit", Parameter::Count(u64::from(limit_packets)));
            qdisc
        }
        Qdisc::Bfifo { limit_bytes } => {
            let mut qdisc = latput_knobs::Qdisc::of_kind("bfifo");
            qdisc.set("limit", Parameter::Count(limit_bytes.get()));
            qdisc
        }
        Qdisc::FqCodel { limit_packets, target, interval } => {
            let mut qdisc = latput_knobs::Qdisc::of_kind("fq_codel");
            qdisc.set("limit", Parameter::Count(u64::from(limit_packets)));
            qdisc.set("target", Parameter::Time(target));
            qdisc.set("interval", Parameter::Time(interval));
            qdisc
        }
    }
}

#[cfg(test)]
mod tests {
    use latput_sim::vector::Throttle;
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
                match (read.1, &value) {
                    (Value::Qdisc(read), Value::Qdisc(value)) => assert!(read.same(value)),
                    // A mask allows several CPUs, and an interrupt takes one of them.
                    (Value::Cpus(one), Value::Cpus(of)) if *knob == Knob::SmpAffinity => {
                        assert!(one.iter().all(|cpu| of.contains(cpu)), "{one} of {of}");
                    }
                    (read, value) => assert_eq!(read, value, "{knob}"),
                }
            }
        }
        let simulated = [Knob::Mtu, Knob::Gro, Knob::Tso, Knob::RpsCpus, Knob::GroFlushTimeout];
        let delays = [
            Knob::AdaptiveRx,
            Knob::AdaptiveTx,
            Knob::RxUsecs,
            Knob::TxFrames,
            Knob::RxUsecsIrq,
            Knob::IrqSuspendTimeout,
        ];
        assert!(delays.iter().all(|knob| !refused.contains(knob)), "{refused:?}");
        assert!(simulated.iter().all(|knob| !refused.contains(knob)), "{refused:?}");
        assert!(refused.contains(&Knob::Gso) && refused.contains(&Knob::InterruptThrottleRate));
    }

    #[test]
    fn what_a_gigabit_driver_was_loaded_with_is_read_back() {
        let given = [
            (Knob::InterruptThrottleRate, 4_000),
            (Knob::RxIntDelay, 16),
            (Knob::RxAbsIntDelay, 64),
            (Knob::TxIntDelay, 0),
        ];
        let setting: Setting =
            given.into_iter().map(|(knob, number)| (knob, Value::Count(number))).collect();
        let mut profile = super::super::system::profile("rx1620-e1000").unwrap();
        apply(&BTreeMap::from([(Role::Sut, setting.clone())]), &mut profile).unwrap();
        let [_, sut] = states(&profile);
        for (knob, value) in &setting {
            assert_eq!(&sut.0[&(*knob, Place::Device)], value, "{knob}");
        }
        let mut modern = super::super::system::profile("server-10g").unwrap();
        let refusal = apply(&BTreeMap::from([(Role::Sut, setting)]), &mut modern).unwrap_err();
        assert!(refusal.contains("interrupt-throttle-rate"), "{refusal}");
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

    #[test]
    fn a_nic_with_one_interval_has_no_delay_of_each_direction() {
        let throttled = |host: &mut HostProfile| {
            host.nic.coalescing.throttle = Throttle::HoldOff { interval: Nanos::from_us(50) };
            host.nic.adaptation = Some(Adaptation::Ixgbe);
        };
        check((Knob::AdaptiveTx, Value::Switch(true)), "no DIM", throttled);
        let plain = |host: &mut HostProfile| host.nic.adaptation = None;
        check((Knob::AdaptiveRx, Value::Switch(true)), "has none", plain);
        for knob in [Knob::TxUsecs, Knob::RxUsecsIrq] {
            check((knob, Value::Time(Nanos::from_us(20))), "`rx-usecs` for both", throttled);
        }
        check((Knob::RxFrames, Value::Count(4)), "`rx-usecs` for both", throttled);
        check((Knob::RxUsecs, Value::Time(Nanos::from_us(3))), "it means a mode", throttled);
        let mut profile = profile();
        throttled(&mut profile.sut);
        let setting = Setting::from([(Knob::RxUsecs, Value::Time(Nanos::from_us(125)))]);
        apply(&BTreeMap::from([(Role::Sut, setting.clone())]), &mut profile).unwrap();
        let [_, sut] = states(&profile);
        assert_eq!(sut.0[&(Knob::RxUsecs, Place::Device)], setting[&Knob::RxUsecs]);
        check((Knob::BqlLimitMax, Value::Count(1)), "no BQL", |host| host.stack.bql = None);
        let qdisc = Value::Qdisc("fq_codel limit=100 flows=5".parse().unwrap());
        check((Knob::Qdisc, qdisc), "without flows", |_| {});
        check((Knob::PauseTx, Value::Switch(true)), "no buffer", |_| {});
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

    /// One with a pfifo, and a NIC that delays each direction.
    fn profile() -> Profile {
        let mut profile = super::super::system::profile("rx1620-e1000").unwrap();
        for nic in [&mut profile.sut.nic, &mut profile.generator.as_mut().unwrap().nic] {
            nic.coalescing.throttle = Throttle::None;
            nic.adaptation = Some(Adaptation::Dim);
        }
        profile.sut.machine.cores = 4;
        profile.generator.as_mut().unwrap().machine.cores = 4;
        profile
    }
}
