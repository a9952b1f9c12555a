//! Counts what an interface does for a while, to tell whether a moderation setting has an effect on it.

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
    let kernel = LinuxKernel::open()?;
    let mut sampler = Sampler::open(interface, &online_cpus()?)?;
    sampler.start_tracing();
    if kernel.interrupt_count(interface).is_none()
        && let Some(obstacle) = sampler.napi_obstacle()
    {
        let text = format!("{interface} has no interrupts, and polls are not counted: {obstacle}");
        return Err(Error::Other(text));
    }
    let first = sampler.sample()?;
    let before = kernel.interrupt_count(interface);
    wait();
    let second = sampler.sample()?;
    let after = kernel.interrupt_count(interface);
    let host = first.until(&second, interface, Role::Sut, State::default())?;
    let events = match (before.zip(after), host.napi) {
        (Some((before, after)), _) => Events::Interrupts(after.saturating_sub(before)),
        (None, Some(napi)) => {
            Events::Polls { polls: napi.polls, packets: napi.packets, empty: napi.empty_polls }
        }
        (None, None) => {
            let text = format!("{interface}: neither interrupts nor polls were counted");
            return Err(Error::Other(text));
        }
    };
    let HostObservation { window, interface, .. } = host;
    Ok(Seen { window, events, rx_packets: interface.rx_packets, tx_packets: interface.tx_packets })
}
