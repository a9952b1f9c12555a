//! Counts what an interface does for a while, to tell whether a moderation setting has an effect on it.

use std::collections::BTreeSet;
use std::fs;

use latput_knobs::State;
use latput_knobs::effect::{Events, Seen};
use latput_trial::observation::{HostObservation, Role};

use crate::counters::Sampler;
use crate::error::Error;
use crate::kernel::LinuxKernel;
use crate::process::online_cpus;

/// Counts interrupts of the interface's device, or NAPI polls where it has none, while `wait` waits.
/// The error says why neither can be counted.
pub fn watch(interface: &str, wait: impl FnOnce()) -> Result<Seen, Error> {
    let irqs = interrupts_of(interface)?;
    let mut sampler = Sampler::open(interface, &online_cpus()?)?;
    if irqs.is_empty()
        && let Some(obstacle) = sampler.napi_obstacle()
    {
        let text = format!("{interface} has no interrupts, and polls are not counted: {obstacle}");
        return Err(Error::Other(text));
    }
    let (first, interrupts) = (sampler.sample()?, count(&irqs)?);
    wait();
    let (second, later) = (sampler.sample()?, count(&irqs)?);
    let host = first.until(&second, interface, Role::Sut, State::default())?;
    let events = match host.napi {
        Some(napi) if irqs.is_empty() => Events::Polls { polls: napi.polls, packets: napi.packets },
        _ => Events::Interrupts(later.saturating_sub(interrupts)),
    };
    let HostObservation { window, interface, .. } = host;
    Ok(Seen { window, events, rx_packets: interface.rx_packets, tx_packets: interface.tx_packets })
}

/// None where there is no device behind the interface.
fn interrupts_of(interface: &str) -> Result<BTreeSet<u32>, Error> {
    let routes = LinuxKernel::open()?.interrupt_routes(interface);
    Ok(routes.unwrap_or_default().into_iter().map(|route| route.irq).collect())
}

fn count(irqs: &BTreeSet<u32>) -> Result<u64, Error> {
    if irqs.is_empty() {
        return Ok(0);
    }
    let path = "/proc/interrupts";
    let text =
        fs::read_to_string(path).map_err(|error| Error::system(format!("read {path}"), error))?;
    Ok(sum(&text, irqs))
}

/// The rows of these interrupts over all CPUs.
fn sum(text: &str, irqs: &BTreeSet<u32>) -> u64 {
    let rows = text.lines().filter_map(|line| line.split_once(':'));
    let is_ours = |name: &str| name.trim().parse::<u32>().is_ok_and(|irq| irqs.contains(&irq));
    let counts = rows.filter(|(name, _)| is_ours(name)).flat_map(|(_, counts)| {
        counts.split_whitespace().map_while(|word| word.parse::<u64>().ok())
    });
    counts.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_interfaces_own_interrupts_are_counted() {
        let text = "     CPU0 CPU1\n  4:  9 9 IO-APIC 4-edge ttyS0\n 24:  1 20 PCI-MSI 49152-edge eth0\n\
                    124: 7 7 PCI-MSI 1-edge eth1\nNMI: 5 5\n 25: 18446744073709551615 1 x\n";
        assert_eq!(sum(text, &[24].into()), 21);
        assert_eq!(sum(text, &[24, 25].into()), u64::MAX);
        assert_eq!(sum("", &[24].into()), 0);
    }
}
