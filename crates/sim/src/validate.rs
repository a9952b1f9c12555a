//! Whether a scenario can be simulated: every value in its range, and an end in sight.

use std::fmt::Display;
use std::ops::RangeInclusive;

use latput_units::Nanos;

use crate::agenda::{FARTHEST_AHEAD, LONGEST, MOST_SLOTS};
use crate::frame::{Kind, most_payload};
use crate::machine::{Adaptation, Costs, Machine, Nic, Stack};
use crate::scenario::{Host, Load, Network, Scenario, Traffic};
use crate::vector::Coalescing;

/// More packets than this take days.
const MOST_PACKETS: f64 = 1e11;
/// Rates that a link may have.
const LINK_BPS: RangeInclusive<u64> = 10_000..=10_000_000_000_000;
/// On the wire, in packets with their headers.
const LARGEST_CHUNK: u64 = 80_000;
/// What a run may need.
const MOST_MEMORY_BYTES: f64 = 8e9;

/// A value that cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} is {found}, must be {wanted}")]
pub struct Invalid {
    /// Which, as a path: `host.0.nic.rx_ring`.
    pub key: String,
    /// What it is.
    pub found: String,
    /// What it may be.
    pub wanted: String,
}

/// What a run will take, at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Packets over all links, warm-up included.
    pub packets: f64,
    /// Memory of the run.
    pub memory_bytes: f64,
}

impl Scenario {
    /// What this run takes, at most: loads without a rate of their own are taken to fill the link.
    pub fn demand(&self) -> Demand {
        let seconds = (self.warmup.as_secs_f64()) + self.duration.as_secs_f64();
        let line_pps = |payload: u64| self.network.rate.get() as f64 / 8.0 / (payload + 90) as f64;
        let mut packets = 0.0;
        let mut connections = 0.0;
        for load in &self.loads {
            let (rate_pps, count) = match load.traffic {
                Traffic::Datagrams { size, .. } if load.form.floods => (line_pps(size.get()), 1.0),
                Traffic::Datagrams { rate_pps, .. } => (rate_pps, 1.0),
                Traffic::Probe { rate_hz } => (2.0 * rate_hz, 1.0),
                Traffic::RequestResponse { request, connections, .. } => {
                    (2.0 * line_pps(request.get()), f64::from(connections))
                }
                Traffic::Stream { connections, .. } => {
                    (1.5 * line_pps(self.network.mtu.get()), f64::from(connections))
                }
                Traffic::Compute => (0.0, 0.0),
            };
            packets += rate_pps * seconds;
            connections += count;
        }
        let rings = self.hosts.iter().map(|host| {
            let nic = &host.nic;
            f64::from(nic.queues)
                * (f64::from(nic.rx_ring) + f64::from(nic.tx_ring) + 1_000.0)
                * 48.0
        });
        // A connection's two ends take less than 2 KiB each, a histogram 200 KiB, and what depends on
        // nothing a MB (`tests/memory.rs`).
        let fixed = 1e6 + self.loads.len() as f64 * 2e5;
        Demand { packets, memory_bytes: connections * 4_096.0 + rings.sum::<f64>() + fixed }
    }

    /// Whether this can be simulated; names the first value that cannot.
    pub fn check(&self) -> Result<(), Invalid> {
        within("duration", self.duration, Nanos::from_ns(1)..=LONGEST)?;
        within("warmup", self.warmup, Nanos::ZERO..=LONGEST.saturating_sub(self.duration))?;
        within("hosts", self.hosts.len(), 1..=MOST_SLOTS / 8)?;
        if self.network.switch.is_none() && self.hosts.len() > 2 {
            return invalid("hosts", self.hosts.len(), "at most 2 without a switch");
        }
        check_network(&self.network)?;
        for (idx, host) in self.hosts.iter().enumerate() {
            check_host(&format!("host.{idx}"), host)?;
        }
        for (idx, load) in self.loads.iter().enumerate() {
            self.check_load(&format!("load.{idx}"), load)?;
        }
        self.check_size()
    }

    /// What waits in a transmit ring has its time to leave in the agenda: the last must fit.
    fn check_rings(&self) -> Result<(), Invalid> {
        for (idx, host) in self.hosts.iter().enumerate() {
            let largest = if host.stack.tso { LARGEST_CHUNK } else { self.network.mtu.get() };
            let bytes = f64::from(host.nic.tx_ring) * (largest + 100) as f64;
            let rate = host.nic.link.unwrap_or(self.network.rate);
            let seconds = bytes * 8.0 / rate.get() as f64;
            if seconds > FARTHEST_AHEAD.as_secs_f64() / 2.0 {
                let wanted =
                    "smaller, or the link faster: to send it once would take more than a day";
                return invalid(&format!("host.{idx}.nic.tx_ring"), host.nic.tx_ring, wanted);
            }
        }
        Ok(())
    }

    fn check_size(&self) -> Result<(), Invalid> {
        self.check_rings()?;
        let parts = |host: &Host| host.machine.cores + 2 * host.nic.queues + 8;
        let slots = self.hosts.iter().map(parts).sum::<u32>() as usize + self.loads.len();
        if slots > MOST_SLOTS {
            return invalid("components", slots, &format!("at most {MOST_SLOTS}"));
        }
        let demand = self.demand();
        if demand.packets > MOST_PACKETS {
            let wanted = format!("at most {MOST_PACKETS:e}: shorten the run or slow the link");
            return invalid("packets to simulate", format!("{:.1e}", demand.packets), &wanted);
        }
        if demand.memory_bytes > MOST_MEMORY_BYTES {
            let wanted = format!("at most {MOST_MEMORY_BYTES:e}: fewer connections or descriptors");
            return invalid("memory in bytes", format!("{:.1e}", demand.memory_bytes), &wanted);
        }
        Ok(())
    }

    fn check_load(&self, key: &str, load: &Load) -> Result<(), Invalid> {
        let last = self.hosts.len() - 1;
        within(&format!("{key}.from"), load.from, 0..=last)?;
        within(&format!("{key}.to"), load.to, 0..=last)?;
        if load.from == load.to && load.traffic != Traffic::Compute {
            return invalid(&format!("{key}.to"), load.to, "another host than `from`");
        }
        for (end, host, core) in
            [("from", load.from, load.from_core), ("to", load.to, load.to_core)]
        {
            let cores = self.hosts[host].machine.cores;
            within(&format!("{key}.{end}_core"), core.unwrap_or(0), 0..=cores - 1)?;
        }
        within(&format!("{key}.start"), load.start, Nanos::ZERO..=LONGEST)?;
        within(&format!("{key}.stop"), load.stop.unwrap_or(LONGEST), load.start..=LONGEST)?;
        let datagram = u64::from(most_payload(Kind::Udp, mtu(&self.network)));
        self.check_form(key, load, datagram)?;
        match load.traffic {
            Traffic::Datagrams { size, group, receive_batch, .. } if load.form.floods => {
                within(&format!("{key}.group"), group, 1..=1_024)?;
                within(&format!("{key}.receive_batch"), receive_batch, 1..=1_024)?;
                within(&format!("{key}.size"), size.get(), 1..=datagram)
            }
            Traffic::Datagrams { size, rate_pps, group, receive_batch, .. } => {
                within(&format!("{key}.group"), group, 1..=1_024)?;
                within(&format!("{key}.receive_batch"), receive_batch, 1..=1_024)?;
                within(&format!("{key}.size"), size.get(), 1..=datagram)?;
                within(&format!("{key}.rate_pps"), rate_pps, 1e-3..=1e9)
            }
            Traffic::Probe { rate_hz } => within(&format!("{key}.rate_hz"), rate_hz, 1e-3..=1e6),
            Traffic::RequestResponse {
                transport,
                request,
                response,
                burst,
                connections,
                think,
            } => {
                let most = match transport {
                    crate::scenario::Transport::Udp => datagram,
                    crate::scenario::Transport::Tcp { .. } => 1 << 30,
                };
                within(&format!("{key}.request"), request.get(), 1..=most)?;
                within(&format!("{key}.response"), response.get(), 1..=most)?;
                within(&format!("{key}.think"), think, Nanos::ZERO..=Nanos::from_s(60))?;
                within(&format!("{key}.burst"), burst, 0..=100_000)?;
                within(&format!("{key}.connections"), connections, 1..=100_000)?;
                let in_flight = u64::from(burst + 1) * u64::from(connections);
                within(&format!("{key}.burst x connections"), in_flight, 1..=10_000_000)
            }
            Traffic::Stream { message, connections } => {
                within(&format!("{key}.message"), message.get(), 1..=1 << 30)?;
                within(&format!("{key}.connections"), connections, 1..=100_000)
            }
            Traffic::Compute => Ok(()),
        }
    }
}

impl Scenario {
    /// What a load has beyond its plain form must belong to its traffic.
    fn check_form(&self, key: &str, load: &Load, datagram: u64) -> Result<(), Invalid> {
        let form = &load.form;
        let is_rr = matches!(load.traffic, Traffic::RequestResponse { .. });
        let is_tcp = !matches!(
            load.traffic,
            Traffic::RequestResponse { transport: crate::scenario::Transport::Udp, .. }
        );
        let is_stream = matches!(load.traffic, Traffic::Stream { .. });
        let only = |present: bool, fits: bool, name: &str, of: &str| {
            if present && !fits {
                return invalid(&format!("{key}.form.{name}"), "set", &format!("left out: {of}"));
            }
            Ok(())
        };
        only(form.arrivals.is_some(), is_rr || is_stream, "arrivals", "only requests and streams")?;
        only(form.connects, is_rr && is_tcp, "connects", "only requests on TCP")?;
        only(form.connects, form.arrivals.is_none(), "connects", "not with arrivals")?;
        let has_burst = matches!(load.traffic, Traffic::RequestResponse { burst: 1.., .. });
        only(form.connects, !has_burst, "connects", "not with a burst")?;
        only(form.timeout > Nanos::ZERO, is_rr && !is_tcp, "timeout", "only requests on UDP")?;
        let is_datagrams = matches!(load.traffic, Traffic::Datagrams { .. });
        only(form.floods, is_datagrams, "floods", "only datagrams")?;
        within(&format!("{key}.form.timeout"), form.timeout, Nanos::ZERO..=Nanos::from_s(600))?;
        if let Some(arrivals) = form.arrivals {
            within(&format!("{key}.form.arrivals.rate_hz"), arrivals.rate_hz, 1e-3..=1e9)?;
        }
        if let Some(payload) = form.payload {
            within(&format!("{key}.form.payload"), payload.get(), 0..=datagram)?;
        }
        match load.counted_with {
            Some(other) => {
                let is_earlier = self.loads.get(other).is_some_and(|earlier| {
                    earlier.counted_with.is_none() && !std::ptr::eq(earlier, load)
                });
                let wanted = "the number of an earlier load that is counted by itself";
                if is_earlier {
                    Ok(())
                } else {
                    invalid(&format!("{key}.counted_with"), other, wanted)
                }
            }
            None => Ok(()),
        }
    }
}

fn mtu(network: &Network) -> u32 {
    u32::try_from(network.mtu.get()).unwrap_or(u32::MAX)
}

fn check_network(network: &Network) -> Result<(), Invalid> {
    within("network.rate", network.rate.get(), LINK_BPS)?;
    within("network.latency", network.latency, Nanos::ZERO..=Nanos::from_s(10))?;
    within("network.latency_jitter_ratio", network.latency_jitter_ratio, 0.0..=10.0)?;
    within("network.mtu", network.mtu.get(), 576..=65_535)?;
    let buffer = network.switch.map_or(1 << 20, latput_units::Bytes::get);
    within("network.switch", buffer, 1_600..=1 << 40)
}

fn check_host(key: &str, host: &Host) -> Result<(), Invalid> {
    check_machine(&format!("{key}.machine"), &host.machine)?;
    check_nic(&format!("{key}.nic"), &host.nic, host.machine.cores)?;
    check_stack(&format!("{key}.stack"), &host.stack, host.machine.cores)?;
    within(
        &format!("{key}.adaptive.latency"),
        host.adaptive.latency,
        Nanos::ZERO..=Nanos::from_s(60),
    )
}

fn check_machine(key: &str, machine: &Machine) -> Result<(), Invalid> {
    within(&format!("{key}.cores"), machine.cores, 1..=1_024)?;
    within(&format!("{key}.idle_exit_ns"), machine.idle_exit, Nanos::ZERO..=Nanos::from_s(1))?;
    let slice = Nanos::from_ns(1)..=Nanos::from_s(10);
    within(&format!("{key}.time_slice_ns"), machine.time_slice, slice)?;
    let steal = machine.steal_after.unwrap_or(Nanos::ZERO);
    within(&format!("{key}.steal_after_ns"), steal, Nanos::ZERO..=Nanos::from_s(1))?;
    within(&format!("{key}.clock_ppm"), machine.clock_ppm, -100_000..=100_000)?;
    let costs = &machine.costs;
    within(&format!("{key}.costs.jitter_ratio"), costs.jitter_ratio, 0.0..=1.0)?;
    for (name, cost) in costs.named() {
        within(&format!("{key}.costs.{name}"), cost, Nanos::ZERO..=Nanos::from_s(1))?;
    }
    Ok(())
}

impl Costs {
    /// Every cost with the name that it has in profiles.
    pub fn named(&self) -> [(&'static str, Nanos); 23] {
        [
            ("interrupt_ns", self.interrupt),
            ("poll_ns", self.poll),
            ("rx_packet_ns", self.rx_packet),
            ("rx_merged_ns", self.rx_merged),
            ("rx_first_ns", self.rx_first),
            ("rx_data_ns", self.rx_data),
            ("rx_remote_ns", self.rx_remote),
            ("tx_completion_ns", self.tx_completion),
            ("tx_remote_ns", self.tx_remote),
            ("tx_packet_ns", self.tx_packet),
            ("ack_ns", self.ack),
            ("syscall_ns", self.syscall),
            ("user_ns", self.user),
            ("copy_ns_per_kib", self.copy_per_kib),
            ("wake_ns", self.wake),
            ("wake_remote_ns", self.wake_remote),
            ("sleep_ns", self.sleep),
            ("cross_core_ns", self.cross_core),
            ("preempted_ns", self.preempted),
            ("timer_ns", self.timer),
            ("timer_arm_ns", self.timer_arm),
            ("ipi_ns", self.ipi),
            ("backlog_packet_ns", self.backlog_packet),
        ]
    }
}

fn check_nic(key: &str, nic: &Nic, cores: u32) -> Result<(), Invalid> {
    within(&format!("{key}.queues"), nic.queues, 1..=1_024)?;
    within(&format!("{key}.rx_ring"), nic.rx_ring, 1..=1 << 20)?;
    within(&format!("{key}.tx_ring"), nic.tx_ring, 2..=1 << 20)?;
    within(&format!("{key}.fifo_bytes"), nic.fifo.get(), 0..=1 << 30)?;
    if let Some(link) = nic.link {
        within(&format!("{key}.link_bps"), link.get(), LINK_BPS)?;
    }
    for core in &nic.irq_cores {
        within(&format!("{key}.irq_cores"), *core, 0..=cores - 1)?;
    }
    let has_throttle = nic.coalescing.is_throttled();
    match nic.adaptation {
        Some(Adaptation::Dim) if has_throttle => {
            invalid(&format!("{key}.adaptation"), "dim", "left out: the NIC has a throttle")?;
        }
        Some(Adaptation::E1000 | Adaptation::Igb | Adaptation::Ixgbe) if !has_throttle => {
            let wanted = "dim or left out: the NIC has no throttle";
            invalid(&format!("{key}.adaptation"), "of a throttle", wanted)?;
        }
        None if nic.adaptive_rx || nic.adaptive_tx => {
            invalid(&format!("{key}.adaptation"), "absent", "set, since it is switched on")?;
        }
        _ => {}
    }
    check_coalescing(&format!("{key}.coalescing"), &nic.coalescing)
}

pub(crate) fn check_coalescing(key: &str, coalescing: &Coalescing) -> Result<(), Invalid> {
    let span = Nanos::ZERO..=Nanos::from_s(60);
    for (side, delay) in [("rx", &coalescing.rx), ("tx", &coalescing.tx)] {
        within(&format!("{key}.{side}.delay_ns"), delay.delay, span.clone())?;
        within(&format!("{key}.{side}.absolute_ns"), delay.absolute, span.clone())?;
        let in_irq = delay.delay_irq.unwrap_or(Nanos::ZERO);
        within(&format!("{key}.{side}.delay_irq_ns"), in_irq, span.clone())?;
    }
    let unit = Nanos::ZERO..=Nanos::from_ms(1);
    within(&format!("{key}.throttle_unit_ns"), coalescing.throttle_unit, unit.clone())?;
    within(&format!("{key}.delay_unit_ns"), coalescing.delay_unit, unit)?;
    within(&format!("{key}.throttle.interval_ns"), coalescing.throttle.interval(), span)
}

fn check_stack(key: &str, stack: &Stack, cores: u32) -> Result<(), Invalid> {
    within(&format!("{key}.napi_weight"), stack.napi_weight, 1..=65_536)?;
    within(&format!("{key}.softirq_packets"), stack.softirq_packets, 1..=1 << 30)?;
    within(
        &format!("{key}.softirq_time_ns"),
        stack.softirq_time,
        Nanos::from_us(1)..=Nanos::from_s(10),
    )?;
    within(&format!("{key}.delivery_batch"), stack.delivery_batch, 1..=stack.napi_weight)?;
    within(&format!("{key}.defer_hard_irqs"), stack.defer_hard_irqs, 0..=i32::MAX as u32)?;
    let timeout = stack.gro_flush_timeout;
    within(&format!("{key}.gro_flush_timeout_ns"), timeout, Nanos::ZERO..=Nanos::from_s(60))?;
    let suspend = stack.irq_suspend_timeout;
    within(&format!("{key}.irq_suspend_timeout_ns"), suspend, Nanos::ZERO..=Nanos::from_s(60))?;
    within(&format!("{key}.busy_poll_ns"), stack.busy_poll, Nanos::ZERO..=Nanos::from_s(60))?;
    for core in &stack.rps_cores {
        within(&format!("{key}.rps_cores"), *core, 0..=cores - 1)?;
    }
    within(&format!("{key}.backlog_packets"), stack.backlog_packets, 1..=1 << 24)?;
    // At least two full segments of the largest MTU.
    within(&format!("{key}.receive_buffer_bytes"), stack.receive_buffer.get(), 2_048..=1 << 30)?;
    within(&format!("{key}.send_buffer_bytes"), stack.send_buffer.get(), 2_048..=1 << 30)?;
    if let Some(bql) = stack.bql {
        within(&format!("{key}.bql.least_bytes"), bql.least.get(), 0..=bql.most.get())?;
    }
    within(&format!("{key}.polling.hz"), stack.polling.hz, 1..=1_000_000)?;
    within(&format!("{key}.polling.each_burst"), stack.polling.each_burst, 1..=1_000)?;
    within(&format!("{key}.polling.burst_max"), stack.polling.burst_max, 1..=100_000)?;
    within(&format!("{key}.polling.user_frac"), stack.polling.user_frac, 1..=99)
}

fn within<T: PartialOrd + Display>(
    key: &str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<(), Invalid> {
    if range.contains(&value) {
        return Ok(());
    }
    invalid(key, value, &format!("{} to {}", range.start(), range.end()))
}

fn invalid<T: Display>(key: &str, found: T, wanted: &str) -> Result<(), Invalid> {
    Err(Invalid { key: key.to_owned(), found: found.to_string(), wanted: wanted.to_owned() })
}

#[cfg(test)]
mod tests {
    use latput_units::{BitsPerSecond, Bytes};

    use super::*;
    use crate::scenario::Spacing;

    #[test]
    fn a_plain_scenario_passes() {
        assert_eq!(plain().check(), Ok(()));
    }

    #[test]
    fn every_impossible_value_is_named_with_its_range() {
        check("duration", |s| s.duration = Nanos::ZERO);
        check("warmup", |s| s.warmup = Nanos::from_s(60 * 86_400));
        check("hosts", |s| s.hosts.push(Host::default()));
        check("network.rate", |s| s.network.rate = BitsPerSecond::new(0));
        check("network.mtu", |s| s.network.mtu = Bytes::new(20));
        check("host.1.machine.cores", |s| s.hosts[1].machine.cores = 0);
        check("host.0.machine.costs.jitter_ratio", |s| {
            s.hosts[0].machine.costs.jitter_ratio = f64::NAN;
        });
        check("host.0.machine.costs.wake_ns", |s| s.hosts[0].machine.costs.wake = Nanos::from_s(2));
        check("host.0.nic.queues", |s| s.hosts[0].nic.queues = 0);
        check("host.0.nic.rx_ring", |s| s.hosts[0].nic.rx_ring = 0);
        check("host.0.nic.irq_cores", |s| s.hosts[0].nic.irq_cores = vec![1]);
        check("host.0.stack.delivery_batch", |s| s.hosts[0].stack.delivery_batch = 65);
        check("host.0.stack.rps_cores", |s| s.hosts[0].stack.rps_cores = vec![7]);
        check("load.0.to", |s| s.loads[0].to = 0);
        check("load.0.from", |s| s.loads[0].from = 2);
        check("load.0.to_core", |s| s.loads[0].to_core = Some(1));
        check("load.0.size", |s| s.loads[0].traffic = datagrams(1_473, 1e5));
        check("load.0.rate_pps", |s| s.loads[0].traffic = datagrams(64, f64::INFINITY));
    }

    #[test]
    fn a_run_without_an_end_in_sight_is_refused_with_its_estimate() {
        let mut scenario = plain();
        scenario.duration = Nanos::from_s(30 * 86_400);
        let error = scenario.check().unwrap_err();
        assert_eq!(
            error.to_string(),
            "packets to simulate is 2.6e11, must be at most 1e11: shorten the run or slow the link"
        );
    }

    #[test]
    fn no_time_that_a_run_plans_leaves_the_clock() {
        let mut scenario = plain();
        scenario.network.rate = BitsPerSecond::new(10_000);
        scenario.network.mtu = Bytes::new(65_535);
        assert_eq!(scenario.check(), Ok(()));
        scenario.hosts[1].nic.tx_ring = 1 << 20;
        assert_eq!(scenario.check().unwrap_err().key, "host.1.nic.tx_ring");
        let mut scenario = plain();
        scenario.duration = Nanos::from_ns(crate::agenda::NEVER - 1);
        assert_eq!(scenario.check().unwrap_err().key, "duration");
    }

    #[test]
    fn a_run_that_would_not_fit_in_memory_is_refused_with_its_estimate() {
        let mut scenario = plain();
        scenario.hosts[0].nic.rx_ring = 1 << 20;
        scenario.hosts[0].nic.queues = 1_000;
        assert!(scenario.check().unwrap_err().to_string().starts_with("memory in bytes is 5.0e10"));
    }

    #[track_caller]
    fn check(key: &str, spoil: fn(&mut Scenario)) {
        let mut scenario = plain();
        spoil(&mut scenario);
        assert_eq!(scenario.check().unwrap_err().key, key);
    }

    fn plain() -> Scenario {
        Scenario {
            seed: 1,
            warmup: Nanos::ZERO,
            duration: Nanos::from_s(1),
            hosts: vec![Host::default(), Host::default()],
            network: Network::default(),
            loads: vec![Load::new(0, 1, datagrams(64, 1e5))],
        }
    }

    fn datagrams(size: u64, rate_pps: f64) -> Traffic {
        let size = Bytes::new(size);
        Traffic::Datagrams { size, rate_pps, spacing: Spacing::Even, group: 1, receive_batch: 1 }
    }
}
