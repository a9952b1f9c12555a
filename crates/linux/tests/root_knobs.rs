//! Every knob on a real kernel: set, read back, refused, put back; and moderation does moderate.
//! Needs root.
#![allow(clippy::unwrap_used, reason = "a failure in a helper is a failed test")]

mod common;

use std::time::Duration;

use latput_knobs::{
    Capability, Device, KernelError, KernelErrorKind, KernelRead, KernelWrite, Knob, Limits, Place,
    Value, Whereabouts, WritePermit,
};
use latput_linux::ethtool::Ethtool;
use latput_linux::{Lab, LabOptions, LinuxKernel, lab};
use latput_testkit::{conformance, needs, write};
use latput_units::Nanos;

/// Knobs that can be set on a veth of two CPUs, besides GRO and those of its NAPIs.
const ON_EVERY_VETH: &[Knob] = &[
    Knob::RxChannels,
    Knob::TxChannels,
    Knob::Mtu,
    Knob::RxChecksum,
    Knob::TxChecksum,
    Knob::Sg,
    Knob::Gso,
    Knob::Tso,
    Knob::TxUdpSegmentation,
    Knob::RxGroList,
    Knob::RxUdpGroForwarding,
    Knob::RxVlan,
    Knob::TxVlan,
    Knob::TxNocacheCopy,
    Knob::GsoMaxSize,
    Knob::GsoIpv4MaxSize,
    Knob::GroMaxSize,
    Knob::GroIpv4MaxSize,
    Knob::Txqueuelen,
    Knob::Qdisc,
    Knob::RpsCpus,
    Knob::RpsFlowCnt,
    Knob::XpsCpus,
    Knob::XpsRxqs,
    // Those of each network namespace; the others belong to the first.
    Knob::TcpRmem,
    Knob::TcpWmem,
    Knob::TcpNotsentLowat,
    Knob::TcpLimitOutputBytes,
    Knob::TcpAutocorking,
    Knob::TcpCongestionControl,
];

/// Knobs that come with a NAPI instance, and so with GRO.
const NAPI: &[Knob] =
    &[Knob::Threaded, Knob::NapiDeferHardIrqs, Knob::GroFlushTimeout, Knob::IrqSuspendTimeout];

#[needs("root")]
#[test]
fn real_kernel_conforms_while_gro_stays_on() {
    let lab = Lab::build(&LabOptions::default()).unwrap();
    lab.b
        .run_in(|| {
            // Switching GRO off takes the NAPI instance away, and with it three knobs.
            let mut kernel = Without { kernel: LinuxKernel::open().unwrap(), knob: Knob::Gro };
            let set = conformance(&mut kernel, lab::INTERFACE);
            let [before, after] = [ON_EVERY_VETH, NAPI];
            assert_eq!(set, [before, after].concat());
        })
        .unwrap();
}

#[needs("root")]
#[test]
fn real_kernel_conforms_without_a_napi_instance() {
    let lab = Lab::build(&LabOptions::default()).unwrap();
    lab.b
        .run_in(|| {
            let mut kernel = LinuxKernel::open().unwrap();
            write(&mut kernel, lab::INTERFACE, Knob::Gro, Place::Device, &Value::Switch(false))
                .unwrap();
            let mut kernel = Without { kernel, knob: Knob::Gro };
            let set = conformance(&mut kernel, lab::INTERFACE);
            assert_eq!(set, ON_EVERY_VETH);
        })
        .unwrap();
}

#[needs("root")]
#[test]
fn napi_knobs_need_gro_and_say_so() {
    let lab = Lab::build(&LabOptions::default()).unwrap();
    lab.b
        .run_in(|| {
            let mut kernel = LinuxKernel::open().unwrap();
            write(&mut kernel, lab::INTERFACE, Knob::Gro, Place::Device, &Value::Switch(false))
                .unwrap();
            // The device's value is there for NAPIs to come, so that it can be put back.
            let values = kernel.read(lab::INTERFACE, Knob::GroFlushTimeout).unwrap();
            assert_eq!(values, [(Place::Device, Value::Time(Nanos::ZERO))]);
            let capability = kernel.capability(lab::INTERFACE, Knob::GroFlushTimeout);
            let Capability::ReadOnly(reason) = capability else { panic!("{capability:?}") };
            assert!(reason.contains("switch gro on"), "{reason}");
            let error = kernel.read(lab::INTERFACE, Knob::IrqSuspendTimeout).unwrap_err();
            assert_eq!(error.kind, KernelErrorKind::Unsupported);
            assert!(error.reason.contains("switch gro on"), "{error}");
            let threaded = Value::Switch(false);
            let error =
                write(&mut kernel, lab::INTERFACE, Knob::Threaded, Place::Device, &threaded)
                    .unwrap_err();
            assert_eq!(error.kind, KernelErrorKind::Unsupported, "{error}");
            let capability = kernel.capability(lab::INTERFACE, Knob::Threaded);
            assert!(matches!(capability, Capability::ReadOnly(_)), "{capability:?}");
            write(&mut kernel, lab::INTERFACE, Knob::Gro, Place::Device, &Value::Switch(true))
                .unwrap();
            let values = kernel.read(lab::INTERFACE, Knob::GroFlushTimeout).unwrap();
            assert!(values.iter().any(|(place, _)| *place == Place::Napi(0)), "{values:?}");
        })
        .unwrap();
}

#[needs("root", "ethtool")]
#[test]
fn tso_round_trip_keeps_every_feature() {
    let lab = Lab::build(&LabOptions::default()).unwrap();
    lab.b
        .run_in(|| {
            let mut kernel = LinuxKernel::open().unwrap();
            let ethtool = Ethtool::open().unwrap();
            let mut switch = |knob, on| {
                write(&mut kernel, lab::INTERFACE, knob, Place::Device, &Value::Switch(on))
                    .unwrap();
                ethtool.features(lab::INTERFACE).unwrap()
            };
            switch(Knob::Gso, true);
            switch(Knob::Tso, true);
            // Most hardware drivers start like this.
            common::ethtool(&["-K", lab::INTERFACE, "tx-tcp-mangleid-segmentation", "off"]);
            let before = ethtool.features(lab::INTERFACE).unwrap();
            assert!(before["tx-tcp-ecn-segmentation"].is_active);
            let off = switch(Knob::Tso, false);
            assert!(!off["tx-tcp-ecn-segmentation"].is_active);
            assert_eq!(switch(Knob::Tso, true), before);
        })
        .unwrap();
}

#[needs("root")]
#[test]
fn refused_write_has_its_error_kind() {
    let lab = Lab::build(&LabOptions::default()).unwrap();
    lab.b
        .run_in(|| {
            let mut kernel = LinuxKernel::open().unwrap();
            let mut check = |knob, place, value: Value, kind| {
                let error = write(&mut kernel, lab::INTERFACE, knob, place, &value).unwrap_err();
                assert_eq!(error.kind, kind, "{error}");
                assert!(error.to_string().starts_with("lat0: "), "{error}");
                println!("{error}");
            };
            let napi = Place::Napi(0);
            check(Knob::Mtu, Place::Device, Value::Count(70_000), KernelErrorKind::Refused);
            check(Knob::Mtu, Place::Device, Value::Count(1 << 40), KernelErrorKind::Refused);
            check(Knob::Txqueuelen, Place::Device, Value::Count(1 << 40), KernelErrorKind::Refused);
            let polls = Value::Count(1 << 31);
            check(Knob::NapiDeferHardIrqs, napi, polls, KernelErrorKind::Refused);
            let polls = Value::Count(1 << 40);
            check(Knob::NapiDeferHardIrqs, napi, polls, KernelErrorKind::Refused);
            check(Knob::Mtu, Place::Device, Value::Switch(true), KernelErrorKind::Refused);
            let device = Place::Device;
            let time = Value::Time(Nanos::from_us(1));
            check(Knob::IrqSuspendTimeout, device, time, KernelErrorKind::Refused);
            let cpus = Value::Cpus("0-999".parse().unwrap());
            check(Knob::RpsCpus, Place::RxQueue(0), cpus, KernelErrorKind::Refused);
        })
        .unwrap();
}

#[needs("root")]
#[test]
fn deferral_holds_packets_back() {
    let lab = Lab::build(&LabOptions::default()).unwrap();
    let (mut moderated, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..8 {
        plain.extend(round_trips(&lab, Nanos::ZERO));
        moderated.extend(round_trips(&lab, Nanos::from_us(500)));
    }
    // The first percentile, because on a busy machine most round trips are spent waiting for a CPU
    // (several milliseconds), and only the undisturbed ones show the timer.
    let percentile = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 100]
    };
    let (moderated, plain) = (percentile(&mut moderated), percentile(&mut plain));
    let ratio = moderated.as_secs_f64() / plain.as_secs_f64();
    println!("a round trip takes {plain:?} without and {moderated:?} with 500us: {ratio:.1} times");
    assert!(ratio > 2.0, "{ratio}");
}

/// A hundred round-trip times of a datagram with this `gro-flush-timeout` on both hosts.
fn round_trips(lab: &Lab, timeout: Nanos) -> Vec<Duration> {
    for host in lab.hosts() {
        host.run_in(|| {
            let mut kernel = LinuxKernel::open().unwrap();
            let polls = if timeout == Nanos::ZERO { 0 } else { 100 };
            let place = Place::Napi(0);
            let polls = Value::Count(polls);
            write(&mut kernel, lab::INTERFACE, Knob::NapiDeferHardIrqs, place, &polls).unwrap();
            let timeout = Value::Time(timeout);
            write(&mut kernel, lab::INTERFACE, Knob::GroFlushTimeout, place, &timeout).unwrap();
        })
        .unwrap();
    }
    common::ping_pong(lab, 100, Duration::from_secs(20))
}

/// A kernel one of whose knobs may not be set.
struct Without {
    kernel: LinuxKernel,
    knob: Knob,
}

impl KernelRead for Without {
    fn read(&self, interface: &str, knob: Knob) -> Result<Vec<(Place, Value)>, KernelError> {
        self.kernel.read(interface, knob)
    }

    fn capability(&self, interface: &str, knob: Knob) -> Capability {
        if knob == self.knob {
            return Capability::ReadOnly("the test leaves it alone".to_owned());
        }
        self.kernel.capability(interface, knob)
    }

    fn limits(&self, interface: &str, knob: Knob) -> Limits {
        self.kernel.limits(interface, knob)
    }

    fn device(&self, interface: &str) -> Result<Device, KernelError> {
        self.kernel.device(interface)
    }

    fn find(&self, device: &Device) -> Result<Whereabouts, KernelError> {
        self.kernel.find(device)
    }
}

impl KernelWrite for Without {
    fn write(
        &mut self,
        permit: &WritePermit,
        interface: &str,
        knob: Knob,
        place: Place,
        value: &Value,
    ) -> Result<(), KernelError> {
        self.kernel.write(permit, interface, knob, place, value)
    }
}
