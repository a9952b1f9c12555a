//! Checks of scenarios: every value must be in its range, and the run must end in reasonable time.

mod host;
mod load;

use std::fmt::Display;
use std::ops::RangeInclusive;

use latput_units::Nanos;

use crate::agenda::{FARTHEST_AHEAD, LONGEST, MOST_SLOTS};
use crate::scenario::{Host, Network, Scenario, TrafficKind};
pub(crate) use host::check_coalescing;
use host::{check_bus, check_host};

/// Most packets of a run. More would take days.
const MOST_PACKETS: f64 = 1e11;
/// Rates that a link may have.
const LINK_BPS: RangeInclusive<u64> = 10_000..=10_000_000_000_000;
/// Most descriptors of a ring.
pub(crate) const LARGEST_RING: u32 = 1 << 20;
/// Largest chunk on the wire, in packets with their headers.
const LARGEST_CHUNK: u64 = 80_000;
/// Most memory of a run.
const MOST_MEMORY_BYTES: f64 = 8e9;

/// A value that cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} is {found}, must be {wanted}")]
pub struct InvalidValue {
    /// The key as a path: `host.0.nic.rx_ring`.
    pub key: String,
    /// The value.
    pub found: String,
    /// The valid values.
    pub wanted: String,
}

/// Upper bounds of a run's resources.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResourceDemand {
    /// Packets over all links, warm-up included.
    pub packets: f64,
    /// Memory of the run.
    pub memory_bytes: f64,
}

impl Scenario {
    /// The upper bounds of this run. A load without a rate counts as filling the link.
    pub fn estimate_demand(&self) -> ResourceDemand {
        let seconds = (self.warmup.as_secs_f64()) + self.duration.as_secs_f64();
        let line_pps = |payload: u64| self.network.rate.get() as f64 / 8.0 / (payload + 90) as f64;
        let mut packets = 0.0;
        let mut connections = 0.0;
        for load in &self.loads {
            let (rate_pps, count) = match load.traffic {
                TrafficKind::Datagrams { size, .. } if load.form.floods => {
                    (line_pps(size.get()), 1.0)
                }
                TrafficKind::Datagrams { rate_pps, .. } => (rate_pps, 1.0),
                TrafficKind::Probe { rate_hz } => (2.0 * rate_hz, 1.0),
                TrafficKind::RequestResponse { request, connections, .. } => {
                    (2.0 * line_pps(request.get()), f64::from(connections))
                }
                TrafficKind::Stream { connections, .. } => {
                    (1.5 * line_pps(self.network.mtu.get()), f64::from(connections))
                }
                TrafficKind::Compute => (0.0, 0.0),
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
        // The two ends of a connection take less than 2 KiB each, a histogram 200 KiB, and constant
        // parts a MB (`tests/memory.rs`).
        let fixed = 1e6 + self.loads.len() as f64 * 2e5;
        ResourceDemand { packets, memory_bytes: connections * 4_096.0 + rings.sum::<f64>() + fixed }
    }

    /// Checks the scenario. The error names the first invalid value.
    pub fn check(&self) -> Result<(), InvalidValue> {
        check_range("duration", self.duration, Nanos::from_ns(1)..=LONGEST)?;
        check_range("warmup", self.warmup, Nanos::ZERO..=LONGEST.saturating_sub(self.duration))?;
        check_range("hosts", self.hosts.len(), 1..=MOST_SLOTS / 8)?;
        if self.network.switch.is_none() && self.hosts.len() > 2 {
            return reject_value("hosts", self.hosts.len(), "at most 2 without a switch");
        }
        check_network(&self.network)?;
        for (idx, host) in self.hosts.iter().enumerate() {
            check_host(&format!("host.{idx}"), host)?;
            check_bus(&format!("host.{idx}.nic"), &host.nic, &self.network)?;
        }
        for (idx, load) in self.loads.iter().enumerate() {
            self.check_load(&format!("load.{idx}"), load)?;
        }
        self.check_size()
    }

    /// The departure times of a full transmit ring must fit the agenda.
    fn check_rings(&self) -> Result<(), InvalidValue> {
        for (idx, host) in self.hosts.iter().enumerate() {
            let largest = if host.stack.tso { LARGEST_CHUNK } else { self.network.mtu.get() };
            let bytes = f64::from(host.nic.tx_ring) * (largest + 100) as f64;
            let rate = host.nic.link.unwrap_or(self.network.rate);
            let seconds = bytes * 8.0 / rate.get() as f64;
            if seconds > FARTHEST_AHEAD.as_secs_f64() / 2.0 {
                let wanted =
                    "smaller, or the link faster: to send it once would take more than a day";
                return reject_value(&format!("host.{idx}.nic.tx_ring"), host.nic.tx_ring, wanted);
            }
        }
        Ok(())
    }

    fn check_size(&self) -> Result<(), InvalidValue> {
        self.check_rings()?;
        let parts = |host: &Host| host.machine.cores + 2 * host.nic.queues + 8;
        let slots = self.hosts.iter().map(parts).sum::<u32>() as usize + self.loads.len();
        if slots > MOST_SLOTS {
            return reject_value("components", slots, &format!("at most {MOST_SLOTS}"));
        }
        let demand = self.estimate_demand();
        if demand.packets > MOST_PACKETS {
            let wanted = format!("at most {MOST_PACKETS:e}: shorten the run or slow the link");
            return reject_value("packets to simulate", format!("{:.1e}", demand.packets), &wanted);
        }
        if demand.memory_bytes > MOST_MEMORY_BYTES {
            let wanted = format!("at most {MOST_MEMORY_BYTES:e}: fewer connections or descriptors");
            return reject_value(
                "memory in bytes",
                format!("{:.1e}", demand.memory_bytes),
                &wanted,
            );
        }
        Ok(())
    }
}

fn mtu_bytes(network: &Network) -> u32 {
    u32::try_from(network.mtu.get()).unwrap_or(u32::MAX)
}

fn check_network(network: &Network) -> Result<(), InvalidValue> {
    check_range("network.rate", network.rate.get(), LINK_BPS)?;
    check_range("network.latency", network.latency, Nanos::ZERO..=Nanos::from_s(10))?;
    check_range("network.latency_jitter_ratio", network.latency_jitter_ratio, 0.0..=10.0)?;
    check_range("network.mtu", network.mtu.get(), 576..=65_535)?;
    let buffer = network.switch.map_or(1 << 20, latput_units::Bytes::get);
    check_range("network.switch", buffer, 1_600..=1 << 40)
}

fn check_range<T: PartialOrd + Display>(
    key: &str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<(), InvalidValue> {
    if range.contains(&value) {
        return Ok(());
    }
    reject_value(key, value, &format!("{} to {}", range.start(), range.end()))
}

fn reject_value<T: Display>(key: &str, found: T, wanted: &str) -> Result<(), InvalidValue> {
    Err(InvalidValue { key: key.to_owned(), found: found.to_string(), wanted: wanted.to_owned() })
}

#[cfg(test)]
mod tests;
