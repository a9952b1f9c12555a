//! The interfaces of the calling thread's namespace as somebody sees them who looks for one to measure:
//! what each is, which addresses it has, and what it lies on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use latput_units::{BitsPerSecond, Bytes};
use serde::{Deserialize, Serialize};

use crate::control::with_those_beneath;
use crate::error::Error;
use crate::facts;
use crate::route::{Link, Route};

/// One interface; also a part of what a host's agent tells its controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its driver; of a virtual one the kind (`veth`, `bond`, `vlan`).
    pub driver: String,
    /// The kind of virtual interface; `None` for hardware.
    pub kind: Option<String>,
    /// Whether it is administratively up, and has carrier as far as its driver says.
    pub is_up: bool,
    /// Largest packet.
    pub mtu: Bytes,
    /// Speed of its link, where the driver says it.
    pub speed: Option<BitsPerSecond>,
    /// Addresses by which another host can reach it, in the kernel's order.
    pub addresses: Vec<IpAddr>,
    /// The interfaces that it lies on: the ports of a bond or bridge, what a VLAN is on.
    pub beneath: BTreeSet<String>,
    /// Whether it is a virtual function of a card that somebody else owns.
    pub is_virtual_function: bool,
}

/// Every interface but the loopback.
pub fn collect() -> Result<Vec<Interface>, Error> {
    let route = Route::open()?;
    let mut addresses: BTreeMap<u32, Vec<IpAddr>> = BTreeMap::new();
    for found in route.addresses()?.into_iter().filter(|found| found.is_reachable) {
        addresses.entry(found.interface).or_default().push(found.address);
    }
    let links = route.links()?.into_iter().filter(|link| link.name != "lo");
    Ok(links.map(|link| interface(link, &mut addresses)).collect())
}

fn interface(link: Link, addresses: &mut BTreeMap<u32, Vec<IpAddr>>) -> Interface {
    let sys = Path::new("/sys");
    let mut beneath = with_those_beneath(sys, [link.name.clone()].into());
    beneath.remove(&link.name);
    Interface {
        driver: facts::driver(&link),
        is_up: link.is_up && link.has_carrier != Some(false),
        mtu: link.mtu,
        speed: facts::link_speed(&link.name),
        addresses: addresses.remove(&link.index).unwrap_or_default(),
        is_virtual_function: sys.join("class/net").join(&link.name).join("device/physfn").exists(),
        beneath,
        kind: link.kind,
        name: link.name,
    }
}

/// Describes an interface of this host, as [`Interface::describe_stacking`] does.
pub fn describe_stacking(name: &str) -> Option<String> {
    collect().ok()?.into_iter().find(|interface| interface.name == name)?.describe_stacking()
}

impl Interface {
    /// Describes an interface that lies on others, and which of them has the knobs, in a sentence; `None` for one that
    /// stands by itself.
    pub fn describe_stacking(&self) -> Option<String> {
        let Self { name, kind, beneath, is_virtual_function, .. } = self;
        if *is_virtual_function {
            return Some(format!(
                "{name} is a virtual function: its card, the link and part of the knobs belong to whoever has the \
                 physical function"
            ));
        }
        if beneath.is_empty() {
            return None;
        }
        let beneath: Vec<&str> = beneath.iter().map(String::as_str).collect();
        let beneath = beneath.join(", ");
        Some(format!(
            "{name} is a {} on {beneath}: queues, rings, coalescing and interrupts belong to {beneath}, and must be set \
             there; {name} has its own MTU, offloads and queueing discipline",
            kind.as_deref().unwrap_or("virtual interface")
        ))
    }
}

/// The share of the time of all CPUs that was not idle between two readings; `None` where they cannot be had.
pub fn busy_ratio(between: impl FnOnce()) -> Option<f64> {
    let before = cpu_times()?;
    between();
    let after = cpu_times()?;
    let all = after.0.checked_sub(before.0).filter(|all| *all > 0)?;
    let idle = after.1.saturating_sub(before.1).min(all);
    #[expect(clippy::cast_precision_loss, reason = "ticks of a fraction of a second are few")]
    Some((all - idle) as f64 / all as f64)
}

/// Ticks of all CPUs, and those of them that were idle (`/proc/stat`, proc(5)).
fn cpu_times() -> Option<(u64, u64)> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    // user nice system idle iowait irq softirq steal; guests are counted in user.
    let ticks: Vec<u64> =
        line.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some((ticks.iter().sum(), idle))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_interface_has_its_facts() {
        let found = collect().unwrap();
        assert!(
            found.iter().all(|interface| interface.name != "lo" && !interface.driver.is_empty())
        );
    }

    #[test]
    fn stacked_interface_names_lower_ones() {
        let named = |name: &str| Interface { name: name.to_owned(), ..Interface::default() };
        let beneath = ["eth0".to_owned(), "eth1".to_owned()].into();
        let bond = Interface { kind: Some("bond".to_owned()), beneath, ..named("bond0") };
        let bond = bond.describe_stacking().unwrap();
        assert!(bond.contains("bond0 is a bond on eth0, eth1"), "{bond}");
        assert_eq!(named("eth0").describe_stacking(), None);
        let function = Interface { is_virtual_function: true, ..named("eth0") };
        let function = function.describe_stacking().unwrap();
        assert!(function.contains("virtual function"), "{function}");
    }

    #[test]
    fn busy_share_is_a_share() {
        let share = busy_ratio(|| std::thread::sleep(Duration::from_millis(100))).unwrap();
        assert!((0.0..=1.0).contains(&share), "{share}");
    }
}
