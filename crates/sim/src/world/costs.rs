//! What things cost on a host, as the running simulation looks at it.

use latput_units::Nanos;

use crate::agenda::Time;
use crate::machine;

/// CPU costs in plain nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    pub(super) interrupt: Time,
    pub(super) poll: Time,
    pub(super) rx_packet: Time,
    pub(super) rx_merged: Time,
    pub(super) rx_first: Time,
    pub(super) rx_data: Time,
    pub(super) rx_remote: Time,
    pub(super) tx_completion: Time,
    pub(super) tx_remote: Time,
    pub(super) tx_packet: Time,
    pub(super) ack: Time,
    pub(super) syscall: Time,
    pub(super) user: Time,
    pub(super) copy_per_kib: Time,
    pub(super) wake: Time,
    pub(super) wake_remote: Time,
    pub(super) sleep: Time,
    pub(super) cross_core: Time,
    pub(super) preempted: Time,
    pub(super) timer: Time,
    pub(super) timer_arm: Time,
    pub(super) ipi: Time,
    pub(super) backlog_packet: Time,
    /// Of 65536.
    pub(super) jitter: u64,
}

impl From<&machine::Costs> for Costs {
    fn from(costs: &machine::Costs) -> Self {
        Self {
            interrupt: costs.interrupt.as_ns(),
            poll: costs.poll.as_ns(),
            rx_packet: costs.rx_packet.as_ns(),
            rx_merged: costs.rx_merged.as_ns(),
            rx_first: costs.rx_first.as_ns(),
            rx_data: costs.rx_data.as_ns(),
            rx_remote: costs.rx_remote.as_ns(),
            tx_completion: costs.tx_completion.as_ns(),
            tx_remote: costs.tx_remote.as_ns(),
            tx_packet: costs.tx_packet.as_ns(),
            ack: costs.ack.as_ns(),
            syscall: costs.syscall.as_ns(),
            user: costs.user.as_ns(),
            copy_per_kib: costs.copy_per_kib.as_ns(),
            wake: costs.wake.as_ns(),
            wake_remote: costs.wake_remote.as_ns(),
            sleep: costs.sleep.as_ns(),
            cross_core: costs.cross_core.as_ns(),
            preempted: costs.preempted.as_ns(),
            timer: costs.timer.as_ns(),
            timer_arm: costs.timer_arm.as_ns(),
            ipi: costs.ipi.as_ns(),
            backlog_packet: costs.backlog_packet.as_ns(),
            jitter: Nanos::from_secs_f64(costs.jitter_ratio * 65_536e-9).as_ns(),
        }
    }
}
