//! Systems to simulate: the shipped profiles, profiles in files, and what results say of them.

use std::path::Path;

use latput_knobs::{Knob, Setting, Value};
use latput_linux::files;
use latput_sim::Profile;
use latput_sim::machine::{Congestion, Driver, Machine, Nic, Qdisc, Stack};
use latput_sim::profile::HostProfile;
use latput_sim::scenario::Host;
use latput_sim::validate::Invalid;
use latput_sim::vector::{Delay, Throttle};
use latput_trial::observation::Role;
use latput_trial::overrun::ReceiveSide;
use latput_trial::results::HostFacts;
use latput_trial::{Traffic, Workload};
use latput_units::{Bytes, Nanos};

use super::INTERFACE;
use crate::error::Error;

/// The shipped profiles, by name.
const SHIPPED: &[(&str, &str)] = &[
    ("bl25p-tg3", include_str!("../../../../data/systems/bl25p-tg3.toml")),
    ("dragonfly-em", include_str!("../../../../data/systems/dragonfly-em.toml")),
    ("freebsd-em", include_str!("../../../../data/systems/freebsd-em.toml")),
    ("hs22-ixgbe", include_str!("../../../../data/systems/hs22-ixgbe.toml")),
    ("p4-e1000", include_str!("../../../../data/systems/p4-e1000.toml")),
    ("rx1600-e1000", include_str!("../../../../data/systems/rx1600-e1000.toml")),
    ("rx1600-tg3-2.6.12", include_str!("../../../../data/systems/rx1600-tg3-2.6.12.toml")),
    ("rx1600-tg3-2.6.8", include_str!("../../../../data/systems/rx1600-tg3-2.6.8.toml")),
    ("rx1620-e1000", include_str!("../../../../data/systems/rx1620-e1000.toml")),
    ("rx1620-e1000-7", include_str!("../../../../data/systems/rx1620-e1000-7.toml")),
    ("rx1620-s2io", include_str!("../../../../data/systems/rx1620-s2io.toml")),
    ("server-10g", include_str!("../../../../data/systems/server-10g.toml")),
];

/// The profile of a system: the name of a shipped one, or the path of a file.
pub(super) fn profile(system: &str) -> Result<Profile, Error> {
    let shipped = SHIPPED.iter().find(|(name, _)| *name == system);
    if let Some((name, text)) = shipped {
        return parse(name, text);
    }
    let is_path = system.contains('/') || Path::new(system).extension().is_some();
    if !is_path {
        let names: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
        return Err(Error::Simulator {
            testbed: format!("sim:{system}"),
            problem: format!(
                "no such system: there are {}; or name a profile, as in sim:./mine.toml",
                names.join(", ")
            ),
        });
    }
    let error = |problem: String| Error::TestbedFile { file: system.to_owned(), problem };
    let text = files::read_text(Path::new(system), files::TEXT_BYTES_MOST)
        .map_err(|e| error(e.problem))?;
    parse(system, &text)
}

fn parse(file: &str, text: &str) -> Result<Profile, Error> {
    let error = |problem: String| Error::TestbedFile { file: file.to_owned(), problem };
    let profile: Profile = toml::from_str(text).map_err(|e| error(e.to_string()))?;
    let is_word = |name: &str| (1..=40).contains(&name.len()) && !name.contains(char::is_control);
    if !is_word(&profile.name) {
        return Err(error(String::from("name must have 1 to 40 printable characters")));
    }
    profile.scenario(&any_workload(), 0, Nanos::from_ms(1)).map_err(|invalid| {
        let Invalid { key, found, wanted } = &invalid;
        let key = key_of_profile(&profile, key);
        error(format!("{key} is {found}, must be {wanted}"))
    })?;
    Ok(profile)
}

/// A scenario's key as profiles call it.
fn key_of_profile(profile: &Profile, key: &str) -> String {
    let generator = if profile.generator.is_some() { "generator." } else { "sut." };
    // The other generators are alike; what is wrong with the first is told first.
    let last = format!("host.{}.", profile.generators + 1);
    let unit = match key {
        "network.rate" => "_bps",
        "network.latency" => "_ns",
        "network.mtu" => "_bytes",
        _ => "",
    };
    let key = key.replace("host.0.", generator).replace("host.1.", "sut.");
    key.replace(&last, "observer.") + unit
}

/// Every host, in the order of observations.
pub(super) fn hosts(from: &str, profile: &Profile) -> Vec<HostFacts> {
    let scenario = profile.scenario(&any_workload(), 0, Nanos::from_ms(1));
    let hosts = scenario.map(|scenario| scenario.hosts).unwrap_or_default();
    let of = |role| match role {
        Role::Sut => &profile.sut,
        Role::Generator => profile.generator.as_ref().unwrap_or(&profile.sut),
        Role::Observer => profile.observer.as_ref().unwrap_or(&profile.sut),
    };
    let described = |host: &Host| HostFacts {
        host: host.name.clone(),
        role: host.role,
        interface: INTERFACE.to_owned(),
        facts: facts(from, profile, of(host.role)),
    };
    hosts.iter().map(described).collect()
}

/// Any workload shows whether a profile is possible.
fn any_workload() -> Workload {
    let traffic = Traffic::udp_stream(Bytes::new(64), latput_units::BitsPerSecond::new(1_000));
    Workload::plain(String::new(), traffic)
}

/// What each host can receive, in the order of observations.
pub(super) fn receive_sides(profile: &Profile) -> Vec<ReceiveSide> {
    let generator = profile.generator.as_ref().unwrap_or(&profile.sut);
    let side = |(role, host): (Role, &HostProfile)| {
        let mut today = Setting::from([
            (Knob::Mtu, Value::Count(profile.network.mtu.get())),
            (Knob::GroFlushTimeout, Value::Time(host.stack.gro_flush_timeout)),
            (Knob::NapiDeferHardIrqs, Value::Count(u64::from(host.stack.defer_hard_irqs))),
        ]);
        if !host.nic.handover {
            today.insert(Knob::RxRing, Value::Count(u64::from(host.nic.rx_ring)));
        }
        let link = (!host.nic.handover).then_some(profile.network.rate);
        ReceiveSide { host: role.name().to_owned(), role, link, today }
    };
    [(Role::Generator, generator), (Role::Sut, &profile.sut)].map(side).to_vec()
}

fn facts(from: &str, profile: &Profile, host: &HostProfile) -> Vec<(String, String)> {
    let HostProfile { machine, nic, stack } = host;
    let network = &profile.network;
    [
        ("simulated", "no host was measured: these are figures of a model".to_owned()),
        ("simulator", format!("latput {}", env!("CARGO_PKG_VERSION"))),
        ("profile", profile.name.clone()),
        ("profile from", from.to_owned()),
        ("source of its figures", profile.source.clone()),
        ("cpu cores", machine.cores.to_string()),
        ("cpu costs", costs(machine)),
        ("nic", nic_in_words(nic)),
        ("interrupt moderation", moderation(nic)),
        ("network stack", stack_in_words(stack)),
        ("link", format!("{}, {} one way, MTU {}", network.rate, network.latency, network.mtu)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

fn costs(machine: &Machine) -> String {
    let named = machine.costs.named().into_iter().filter(|(_, cost)| *cost > Nanos::ZERO);
    let costs: Vec<String> = named.map(|(name, cost)| format!("{name} {}", cost.as_ns())).collect();
    let jitter = machine.costs.jitter_ratio * 100.0;
    if costs.is_empty() { "none".to_owned() } else { format!("{} ±{jitter}%", costs.join(", ")) }
}

fn nic_in_words(nic: &Nic) -> String {
    let driver = match nic.driver {
        Driver::Napi => "NAPI",
        Driver::Interrupt => "an interrupt handler without NAPI",
        Driver::Polling => "FreeBSD's device polling",
    };
    let queues = nic.queues;
    if nic.handover {
        return format!(
            "{driver}; queues: {queues}, each hands over up to {} packets in memory",
            nic.rx_ring
        );
    }
    format!(
        "{driver}; queues: {queues}, each with {} receive and {} transmit descriptors",
        nic.rx_ring, nic.tx_ring
    )
}

fn moderation(nic: &Nic) -> String {
    let coalescing = &nic.coalescing;
    let throttle = match coalescing.throttle {
        Throttle::None => "no throttle".to_owned(),
        Throttle::HoldOff { interval } => format!("at least {interval} between interrupts"),
        Throttle::Gate { interval } => format!("interrupts at ticks of {interval}"),
    };
    let delay = |name: &str, delay: &Delay| {
        let start = if delay.restarts { "last" } else { "first" };
        let irq = match (delay.delay_irq, delay.frames_irq) {
            (None, None) => String::new(),
            (span, frames) => format!(
                " ({}, {} frames while an interrupt is served)",
                span.unwrap_or(delay.delay),
                frames.unwrap_or(delay.frames)
            ),
        };
        format!("{name}: {} from the {start} packet, {} frames{irq}", delay.delay, delay.frames)
    };
    format!("{throttle}; {}; {}", delay("rx", &coalescing.rx), delay("tx", &coalescing.tx))
}

fn stack_in_words(stack: &Stack) -> String {
    let qdisc = match stack.qdisc {
        Qdisc::Pfifo { limit_packets } => format!("pfifo of {limit_packets} packets"),
        Qdisc::Bfifo { limit_bytes } => format!("bfifo of {limit_bytes}"),
        Qdisc::FqCodel { limit_packets, target, interval } => {
            format!("fq_codel of {limit_packets} packets, target {target}, interval {interval}")
        }
    };
    let congestion = match stack.congestion {
        Congestion::Reno => "reno",
        Congestion::Cubic => "cubic",
    };
    format!("{qdisc}; TCP {congestion}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulator::Simulator;

    #[test]
    fn every_profile_of_the_tree_is_shipped_under_its_name() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/systems");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().display().to_string())
            .collect();
        files.sort();
        let names: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
        assert_eq!(files, names);
        for name in names {
            assert_eq!(profile(name).unwrap().name, name);
            assert_eq!(Simulator::of(name).unwrap().name(), format!("sim:{name}"));
        }
        assert!(profile(Simulator::EXAMPLE).is_ok());
    }

    #[test]
    fn a_profile_that_cannot_be_is_refused_with_file_key_and_range() {
        check("cores = 4", "cores = 0", "sut.machine.cores is 0, must be 1 to 1024");
        check("cores = 4", "cores = -4", "-4");
        check("wake_ns = 900", "wake_us = 1", "wake_us");
        check("latency_ns = 5000", "latency_ns = 99000000000000", "network.latency_ns is ");
        check("schema = 1", "schema = 9", "schema is 9, must be 1");
        check("[network]", "[net]", "net");
        check("name = \"server-10g\"", "name = \"\"", "name must have");
        check("schema = 1", "schema = ", "line 3");
    }

    #[test]
    fn more_hosts_stand_around_a_switch() {
        let (_, good) = SHIPPED.iter().find(|(name, _)| *name == "server-10g").unwrap();
        let more = format!("generators = 3\n{good}\nswitch_buffer_bytes = 200_000\n[observer]\n");
        let profile = parse("rack.toml", &more).unwrap();
        let facts = hosts("rack.toml", &profile);
        let names: Vec<&str> = facts.iter().map(|facts| facts.host.as_str()).collect();
        assert_eq!(names, ["generator", "sut", "generator-2", "generator-3", "observer"]);
        check("schema = 1", "schema = 1\ngenerators = 2", "network.switch_buffer_bytes is absent");
        check("schema = 1", "schema = 1\ngenerators = 0", "generators is 0, must be 1 to 64");
    }

    #[track_caller]
    fn check(from: &str, to: &str, expected: &str) {
        let (_, good) = SHIPPED.iter().find(|(name, _)| *name == "server-10g").unwrap();
        assert!(good.contains(from));
        let problem = parse("mine.toml", &good.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(problem.contains(expected) && problem.starts_with("mine.toml: "), "{problem}");
    }
}
