//! Hosts: processor and costs, NIC and bus, stack.

use latput_units::Nanos;

use super::{InvalidValue, LARGEST_RING, LINK_BPS, check_range, reject_value};
use crate::machine::{AdaptiveModeration, CpuCosts, Machine, NetworkStack, Nic};
use crate::scenario::{Host, Network};
use crate::vector::Coalescing;

pub(super) fn check_host(key: &str, host: &Host) -> Result<(), InvalidValue> {
    check_machine(&format!("{key}.machine"), &host.machine)?;
    check_nic(&format!("{key}.nic"), &host.nic, host.machine.cores)?;
    check_stack(&format!("{key}.stack"), &host.stack, host.machine.cores)?;
    check_range(
        &format!("{key}.adaptive.latency"),
        host.adaptive.latency,
        Nanos::ZERO..=Nanos::from_s(60),
    )
}

fn check_machine(key: &str, machine: &Machine) -> Result<(), InvalidValue> {
    check_range(&format!("{key}.cores"), machine.cores, 1..=1_024)?;
    check_range(&format!("{key}.idle_exit_ns"), machine.idle_exit, Nanos::ZERO..=Nanos::from_s(1))?;
    let slice = Nanos::from_ns(1)..=Nanos::from_s(10);
    check_range(&format!("{key}.time_slice_ns"), machine.time_slice, slice)?;
    let steal = machine.steal_after.unwrap_or(Nanos::ZERO);
    check_range(&format!("{key}.steal_after_ns"), steal, Nanos::ZERO..=Nanos::from_s(1))?;
    check_range(&format!("{key}.clock_ppm"), machine.clock_ppm, -100_000..=100_000)?;
    let costs = &machine.costs;
    check_range(&format!("{key}.costs.jitter_ratio"), costs.jitter_ratio, 0.0..=1.0)?;
    for (name, cost) in costs.named_costs() {
        check_range(&format!("{key}.costs.{name}"), cost, Nanos::ZERO..=Nanos::from_s(1))?;
    }
    Ok(())
}

impl CpuCosts {
    /// Every cost with the name that it has in profiles.
    pub fn named_costs(&self) -> [(&'static str, Nanos); 26] {
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
            ("rearm_ns", self.rearm),
            ("rx_socket_ns", self.rx_socket),
            ("read_cold_ns", self.read_cold),
            ("ipi_ns", self.ipi),
            ("backlog_packet_ns", self.backlog_packet),
        ]
    }
}

fn check_nic(key: &str, nic: &Nic, cores: u32) -> Result<(), InvalidValue> {
    check_range(&format!("{key}.queues"), nic.queues, 1..=1_024)?;
    check_range(&format!("{key}.rx_ring"), nic.rx_ring, 1..=LARGEST_RING)?;
    check_range(&format!("{key}.tx_ring"), nic.tx_ring, 2..=LARGEST_RING)?;
    check_range(&format!("{key}.fifo_bytes"), nic.fifo.get(), 0..=1 << 30)?;
    if let Some(link) = nic.link {
        check_range(&format!("{key}.link_bps"), link.get(), LINK_BPS)?;
    }
    for core in &nic.irq_cores {
        check_range(&format!("{key}.irq_cores"), *core, 0..=cores - 1)?;
    }
    let has_throttle = nic.coalescing.is_throttled();
    match nic.adaptation {
        Some(AdaptiveModeration::Dim) if has_throttle => {
            reject_value(&format!("{key}.adaptation"), "dim", "left out: the NIC has a throttle")?;
        }
        Some(AdaptiveModeration::E1000 | AdaptiveModeration::Igb | AdaptiveModeration::Ixgbe)
            if !has_throttle =>
        {
            let wanted = "dim or left out: the NIC has no throttle";
            reject_value(&format!("{key}.adaptation"), "of a throttle", wanted)?;
        }
        None if nic.adaptive_rx || nic.adaptive_tx => {
            reject_value(&format!("{key}.adaptation"), "absent", "set, since it is switched on")?;
        }
        _ => {}
    }
    check_coalescing(&format!("{key}.coalescing"), &nic.coalescing)
}

/// A NIC on a bus needs room for what waits for its turn: at least a packet that comes and one under way.
pub(super) fn check_bus(key: &str, nic: &Nic, network: &Network) -> Result<(), InvalidValue> {
    let Some(bus) = nic.bus else {
        return Ok(());
    };
    if nic.handover {
        let wanted = "left out: packets are handed over in memory";
        return reject_value(&format!("{key}.bus"), "set", wanted);
    }
    let clock = Nanos::from_ns(1)..=Nanos::from_us(1);
    check_range(&format!("{key}.bus.clock_ns"), bus.clock, clock)?;
    check_range(&format!("{key}.bus.width_bytes"), bus.width.get(), 1..=1_024)?;
    check_range(&format!("{key}.bus.write_clocks"), bus.write_clocks, 0..=1_000)?;
    check_range(&format!("{key}.bus.read_clocks"), bus.read_clocks, 0..=1_000)?;
    let least = 2 * (network.mtu.get() + 100);
    check_range(&format!("{key}.fifo_bytes"), nic.fifo.get(), least..=1 << 30)
}

pub(crate) fn check_coalescing(key: &str, coalescing: &Coalescing) -> Result<(), InvalidValue> {
    let span = Nanos::ZERO..=Nanos::from_s(60);
    for (side, delay) in [("rx", &coalescing.rx), ("tx", &coalescing.tx)] {
        check_range(&format!("{key}.{side}.delay_ns"), delay.delay, span.clone())?;
        check_range(&format!("{key}.{side}.absolute_ns"), delay.absolute, span.clone())?;
        let in_irq = delay.delay_irq.unwrap_or(Nanos::ZERO);
        check_range(&format!("{key}.{side}.delay_irq_ns"), in_irq, span.clone())?;
    }
    let unit = Nanos::ZERO..=Nanos::from_ms(1);
    check_range(&format!("{key}.throttle_unit_ns"), coalescing.throttle_unit, unit.clone())?;
    check_range(&format!("{key}.delay_unit_ns"), coalescing.delay_unit, unit)?;
    check_range(&format!("{key}.throttle.interval_ns"), coalescing.throttle.interval(), span)
}

fn check_stack(key: &str, stack: &NetworkStack, cores: u32) -> Result<(), InvalidValue> {
    check_range(&format!("{key}.napi_weight"), stack.napi_weight, 1..=65_536)?;
    check_range(&format!("{key}.softirq_packets"), stack.softirq_packets, 1..=1 << 30)?;
    check_range(
        &format!("{key}.softirq_time_ns"),
        stack.softirq_time,
        Nanos::from_us(1)..=Nanos::from_s(10),
    )?;
    check_range(&format!("{key}.delivery_batch"), stack.delivery_batch, 1..=stack.napi_weight)?;
    check_range(&format!("{key}.defer_hard_irqs"), stack.defer_hard_irqs, 0..=i32::MAX as u32)?;
    let timeout = stack.gro_flush_timeout;
    check_range(&format!("{key}.gro_flush_timeout_ns"), timeout, Nanos::ZERO..=Nanos::from_s(60))?;
    let suspend = stack.irq_suspend_timeout;
    check_range(
        &format!("{key}.irq_suspend_timeout_ns"),
        suspend,
        Nanos::ZERO..=Nanos::from_s(60),
    )?;
    check_range(&format!("{key}.busy_poll_ns"), stack.busy_poll, Nanos::ZERO..=Nanos::from_s(60))?;
    for core in &stack.rps_cores {
        check_range(&format!("{key}.rps_cores"), *core, 0..=cores - 1)?;
    }
    check_range(&format!("{key}.backlog_packets"), stack.backlog_packets, 1..=1 << 24)?;
    // At least two full segments of the largest MTU.
    check_range(
        &format!("{key}.receive_buffer_bytes"),
        stack.receive_buffer.get(),
        2_048..=1 << 30,
    )?;
    check_range(&format!("{key}.send_buffer_bytes"), stack.send_buffer.get(), 2_048..=1 << 30)?;
    if let Some(bql) = stack.bql {
        check_range(&format!("{key}.bql.least_bytes"), bql.least.get(), 0..=bql.most.get())?;
    }
    check_range(&format!("{key}.polling.hz"), stack.polling.hz, 1..=1_000_000)?;
    check_range(&format!("{key}.polling.each_burst"), stack.polling.each_burst, 1..=1_000)?;
    check_range(&format!("{key}.polling.burst_max"), stack.polling.burst_max, 1..=100_000)?;
    check_range(&format!("{key}.polling.user_frac"), stack.polling.user_frac, 1..=99)
}
