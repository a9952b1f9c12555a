//! Every knob is either set and read back, or refused by name.

use std::collections::BTreeMap;

use latput_knobs::{Knob, Place, Setting, State, Value};
use latput_trial::observation::Role;
use latput_trial::{Traffic, Workload};
use latput_units::{BitsPerSecond, Bytes, CpuId, CpuSet, Nanos};

use super::state::read_knob_state;
use crate::machine::{AdaptiveModeration, DriverMode, Qdisc};
use crate::profile::{HostProfile, NetworkProfile, SystemProfile};
use crate::vector::Throttle;

#[test]
fn every_knob_is_set_or_refused() {
    let mut refused = Vec::new();
    for knob in Knob::ALL {
        let value = knob.parse_value(knob.spec().example).unwrap();
        let mut setting = Setting::from([(*knob, value.clone())]);
        setting.entry(Knob::NapiDeferHardIrqs).or_insert(Value::Count(100));
        let mut profile = build_dim_profile();
        let by_role = [Role::Sut, Role::Generator].map(|role| (role, setting.clone()));
        if let Err(refusal) = profile.apply_settings(&BTreeMap::from(by_role)) {
            let refusal = refusal.to_string();
            assert!(refusal.contains(knob.name()), "{refusal}");
            refused.push(*knob);
            continue;
        }
        for state in read_states(&profile) {
            let read = state.0.iter().find(|((read, _), _)| read == knob).unwrap();
            match (read.1, &value) {
                (Value::Qdisc(read), Value::Qdisc(value)) => assert!(read.is_same(value)),
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
fn gigabit_driver_parameters_are_read_back() {
    let given = [
        (Knob::InterruptThrottleRate, 4_000),
        (Knob::RxIntDelay, 16),
        (Knob::RxAbsIntDelay, 64),
        (Knob::TxIntDelay, 0),
    ];
    let setting: Setting =
        given.into_iter().map(|(knob, number)| (knob, Value::Count(number))).collect();
    let mut profile = SystemProfile::find_shipped("rx1620-e1000").unwrap();
    profile.apply_settings(&BTreeMap::from([(Role::Sut, setting.clone())])).unwrap();
    let [_, sut] = read_states(&profile);
    for (knob, value) in &setting {
        assert_eq!(&sut.0[&(*knob, Place::Device)], value, "{knob}");
    }
    let mut modern = SystemProfile::find_shipped("server-10g").unwrap();
    let refusal =
        modern.apply_settings(&BTreeMap::from([(Role::Sut, setting)])).unwrap_err().to_string();
    assert!(refusal.contains("interrupt-throttle-rate"), "{refusal}");
}

#[test]
fn role_is_set_alone() {
    for (role, threaded) in [(Role::Generator, [true, false]), (Role::Sut, [false, true])] {
        let mut profile = build_dim_profile();
        let setting = Setting::from([(Knob::Threaded, Value::Switch(true))]);
        profile.apply_settings(&BTreeMap::from([(role, setting)])).unwrap();
        let is_threaded =
            |state: &State| state.0[&(Knob::Threaded, Place::Napi(0))] == Value::Switch(true);
        assert_eq!(read_states(&profile).map(|state| is_threaded(&state)), threaded);
    }
}

#[test]
fn misleading_knob_is_refused() {
    let timer = (Knob::GroFlushTimeout, Value::Time(Nanos::from_us(20)));
    assert_refused(timer, "napi-defer-hard-irqs", |host| host.stack.gro = true);
    assert_refused((Knob::Mtu, Value::Count(9000)), "both hosts", |_| {});
    assert_refused((Knob::Txqueuelen, Value::Count(0)), "from 1 packet", |_| {});
    assert_refused((Knob::Txqueuelen, Value::Count(10)), "fq_codel", |host| {
        host.stack.qdisc = Qdisc::FQ_CODEL;
    });
    assert_refused((Knob::RpsCpus, Value::Cpus("7".parse().unwrap())), "CPU 7", |_| {});
    assert_refused((Knob::Threaded, Value::Switch(true)), "does not use NAPI", |host| {
        host.nic.driver = DriverMode::Interrupt;
    });
}

#[test]
fn single_interval_nic_has_one_delay() {
    let throttled = |host: &mut HostProfile| {
        host.nic.coalescing.throttle = Throttle::HoldOff { interval: Nanos::from_us(50) };
        host.nic.adaptation = Some(AdaptiveModeration::Ixgbe);
    };
    assert_refused((Knob::AdaptiveTx, Value::Switch(true)), "no DIM", throttled);
    let plain = |host: &mut HostProfile| host.nic.adaptation = None;
    assert_refused((Knob::AdaptiveRx, Value::Switch(true)), "has none", plain);
    for knob in [Knob::TxUsecs, Knob::RxUsecsIrq] {
        assert_refused((knob, Value::Time(Nanos::from_us(20))), "`rx-usecs` for both", throttled);
    }
    assert_refused((Knob::RxFrames, Value::Count(4)), "`rx-usecs` for both", throttled);
    assert_refused((Knob::RxUsecs, Value::Time(Nanos::from_us(3))), "it means a mode", throttled);
    let mut profile = build_dim_profile();
    throttled(&mut profile.sut);
    let setting = Setting::from([(Knob::RxUsecs, Value::Time(Nanos::from_us(125)))]);
    profile.apply_settings(&BTreeMap::from([(Role::Sut, setting.clone())])).unwrap();
    let [_, sut] = read_states(&profile);
    assert_eq!(sut.0[&(Knob::RxUsecs, Place::Device)], setting[&Knob::RxUsecs]);
    assert_refused((Knob::BqlLimitMax, Value::Count(1)), "no BQL", |host| host.stack.bql = None);
    let qdisc = Value::Qdisc("fq_codel limit=100 flows=5".parse().unwrap());
    assert_refused((Knob::Qdisc, qdisc), "without flows", |_| {});
    assert_refused((Knob::PauseTx, Value::Switch(true)), "no buffer", |_| {});
}

/// `wanted`, set on the system under test alone, is refused with `expected`.
#[track_caller]
fn assert_refused(wanted: (Knob, Value), expected: &str, prepare: fn(&mut HostProfile)) {
    let mut profile = build_dim_profile();
    prepare(&mut profile.sut);
    let by_role = BTreeMap::from([(Role::Sut, Setting::from([wanted.clone()]))]);
    let refusal = profile.apply_settings(&by_role).unwrap_err().to_string();
    assert!(refusal.contains(expected) && refusal.contains(wanted.0.name()), "{refusal}");
}

/// The generator's and the system's knobs, read back.
fn read_states(profile: &SystemProfile) -> [State; 2] {
    let traffic = Traffic::tcp_stream(Bytes::new(1), 1);
    let workload = Workload::plain(String::new(), traffic);
    let scenario = profile.build_scenario(&workload, 1, Nanos::from_ms(1)).unwrap();
    [0, 1].map(|host| read_knob_state(&scenario.hosts[host], &scenario.network))
}

/// One with a pfifo, and a NIC that delays each direction.
fn build_dim_profile() -> SystemProfile {
    let mut profile = SystemProfile::find_shipped("rx1620-e1000").unwrap();
    for nic in [&mut profile.sut.nic, &mut profile.generator.as_mut().unwrap().nic] {
        nic.coalescing.throttle = Throttle::None;
        nic.adaptation = Some(AdaptiveModeration::Dim);
    }
    profile.sut.machine.cores = 4;
    profile.generator.as_mut().unwrap().machine.cores = 4;
    profile
}

#[test]
fn every_modelled_knob_reaches_its_field() {
    let mut profile = plain_profile();
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
    profile.set_knobs(Role::Sut, &setting).unwrap();
    let stack = &profile.sut.stack;
    assert_eq!(profile.network.mtu, Bytes::new(9_000));
    assert_eq!(stack.qdisc, Qdisc::Pfifo { limit_packets: 50 });
    assert!(stack.gro && stack.tso && stack.threaded);
    assert_eq!(stack.rps_cores, [0, 1]);
    assert_eq!((stack.defer_hard_irqs, stack.gro_flush_timeout), (100, Nanos::from_us(50)));
    assert_eq!(profile.generator, Some(HostProfile::default()), "the generator is left alone");
}

#[test]
fn generator_gets_its_own_settings() {
    let mut profile = plain_profile();
    profile.set_knobs(Role::Generator, &Setting::from([(Knob::Gro, Value::Switch(true))])).unwrap();
    assert!(!profile.sut.stack.gro);
    assert!(profile.generator.unwrap().stack.gro);
}

#[test]
fn unmodelled_knob_is_refused_by_name() {
    check_not_set(Knob::Gso, Value::Switch(true), "gso is on, must be left out");
    check_not_set(Knob::Gro, Value::Count(1), "gro is 1, must be on or off");
    check_not_set(Knob::NapiDeferHardIrqs, Value::Count(1 << 40), "must be 0 to 4294967295");
    check_not_set(
        Knob::GroFlushTimeout,
        Value::Count(5),
        "gro-flush-timeout is 5, must be a duration",
    );
}

#[track_caller]
fn check_not_set(knob: Knob, value: Value, message: &str) {
    let error = plain_profile().set_knobs(Role::Sut, &Setting::from([(knob, value)])).unwrap_err();
    assert!(error.to_string().contains(message), "{error}");
}

fn plain_profile() -> SystemProfile {
    SystemProfile {
        schema: 1,
        name: String::from("test"),
        source: String::from("none"),
        sut: HostProfile::default(),
        generator: None,
        generators: 1,
        observer: None,
        network: NetworkProfile {
            rate: BitsPerSecond::new(1_000_000_000),
            latency: Nanos::ZERO,
            latency_jitter_ratio: 0.0,
            mtu: Bytes::new(1_500),
            switch_buffer: None,
        },
    }
}
