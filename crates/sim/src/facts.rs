//! Facts about a simulated system for results: its hosts, and the receive capacity of each.

use latput_knobs::{Knob, Setting, Value};
use latput_trial::HostToday;
use latput_trial::observation::Role;
use latput_trial::overrun::ReceiveSide;
use latput_trial::results::HostFacts;
use latput_units::Nanos;

use crate::machine::{CongestionControl, DriverMode, Machine, NetworkStack, Nic, Qdisc};
use crate::profile::text::minimal_workload;
use crate::profile::{HostProfile, SystemProfile};
use crate::scenario::Host;
use crate::setting::read_knob_state;
use crate::vector::{InterruptDelay, Throttle};

/// Interface name in the commands of a report. There is no real interface.
pub const INTERFACE: &str = "IFACE";

/// All hosts in the order of observations. `from` is the name or the file of the profile.
pub fn describe_hosts(from: &str, profile: &SystemProfile) -> Vec<HostFacts> {
    let scenario = profile.build_scenario(&minimal_workload(), 0, Nanos::from_ms(1));
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
        facts: describe_host(from, profile, of(host.role)),
    };
    hosts.iter().map(described).collect()
}

/// The receive capacity of each host, in the order of observations.
pub fn receive_sides(profile: &SystemProfile) -> Vec<ReceiveSide> {
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

/// The values of every knob that the hosts have, in the order of observations.
pub fn list_current_values(profile: &SystemProfile) -> Vec<HostToday> {
    let scenario = profile.build_scenario(&minimal_workload(), 0, Nanos::from_ms(1));
    let Ok(scenario) = scenario else { return Vec::new() };
    let set = scenario.hosts.iter().filter(|host| host.role != Role::Observer);
    set.map(|host| HostToday {
        host: host.name.clone(),
        role: host.role,
        values: read_knob_state(host, &scenario.network),
    })
    .collect()
}

fn describe_host(from: &str, profile: &SystemProfile, host: &HostProfile) -> Vec<(String, String)> {
    let HostProfile { machine, nic, stack } = host;
    let network = &profile.network;
    [
        ("simulated", "no host was measured: these are figures of a model".to_owned()),
        ("simulator", format!("latput {}", env!("CARGO_PKG_VERSION"))),
        ("profile", profile.name.clone()),
        ("profile from", from.to_owned()),
        ("source of its figures", profile.source.clone()),
        ("cpu cores", machine.cores.to_string()),
        ("cpu costs", describe_costs(machine)),
        ("nic", nic_in_words(nic)),
        ("interrupt moderation", describe_moderation(nic)),
        ("network stack", stack_in_words(stack)),
        ("link", format!("{}, {} one way, MTU {}", network.rate, network.latency, network.mtu)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

fn describe_costs(machine: &Machine) -> String {
    let named = machine.costs.named_costs().into_iter().filter(|(_, cost)| *cost > Nanos::ZERO);
    let costs: Vec<String> = named.map(|(name, cost)| format!("{name} {}", cost.as_ns())).collect();
    let jitter = machine.costs.jitter_ratio * 100.0;
    if costs.is_empty() { "none".to_owned() } else { format!("{} ±{jitter}%", costs.join(", ")) }
}

fn nic_in_words(nic: &Nic) -> String {
    let driver = match nic.driver {
        DriverMode::Napi => "NAPI",
        DriverMode::Interrupt => "an interrupt handler without NAPI",
        DriverMode::Polling => "FreeBSD's device polling",
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

fn describe_moderation(nic: &Nic) -> String {
    let coalescing = &nic.coalescing;
    let throttle = match coalescing.throttle {
        Throttle::None => "no throttle".to_owned(),
        Throttle::HoldOff { interval } => format!("at least {interval} between interrupts"),
        Throttle::Gate { interval } => format!("interrupts at ticks of {interval}"),
    };
    let delay = |name: &str, delay: &InterruptDelay| {
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

fn stack_in_words(stack: &NetworkStack) -> String {
    let qdisc = match stack.qdisc {
        Qdisc::Pfifo { limit_packets } => format!("pfifo of {limit_packets} packets"),
        Qdisc::Bfifo { limit_bytes } => format!("bfifo of {limit_bytes}"),
        Qdisc::FqCodel { limit_packets, target, interval } => {
            format!("fq_codel of {limit_packets} packets, target {target}, interval {interval}")
        }
    };
    let congestion = match stack.congestion {
        CongestionControl::Reno => "reno",
        CongestionControl::Cubic => "cubic",
    };
    format!("{qdisc}; TCP {congestion}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_hosts_stand_around_a_switch() {
        let mut profile = SystemProfile::find_shipped("server-10g").unwrap();
        profile.generators = 3;
        profile.network.switch_buffer = Some(latput_units::Bytes::new(200_000));
        profile.observer = Some(HostProfile::default());
        let facts = describe_hosts("rack.toml", &profile);
        let names: Vec<&str> = facts.iter().map(|facts| facts.host.as_str()).collect();
        assert_eq!(names, ["generator", "sut", "generator-2", "generator-3", "observer"]);
    }
}
