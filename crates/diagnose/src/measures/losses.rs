//! Packets that were lost on this host, by place.

use crate::evidence::Evidence;

/// The fewest lost among a million packets that are harm: of one in 10,000 a TCP stream in a data centre notices nothing.
pub(crate) const LEAST_PER_MILLION: f64 = 100.0;

/// Counters of packets that found no free descriptor, by driver. Counters of a family are added up; families may count
/// the same packets, so that the largest counts.
const RING_COUNTERS: &[&[&str]] = &[
    // e1000e, igb, ixgbe, i40e: no descriptor, or the card's own buffer was full meanwhile.
    &["rx_missed_errors"],
    &["rx_no_dma_resources"],
    // igb counts by queue.
    &["rx_queue_*_drops"],
    // iavf, tg3; bnxt by queue; i40e of the port, as the kernel's rx_missed_errors has it.
    &["rx_discards"],
    &["port.rx_dropped", "port.rx_discards"],
    &["*: rx_discards"],
    &["rx_total_discard_pkts"],
    // ice.
    &["rx_dropped.nic"],
    // mlx5.
    &["rx_out_of_buffer"],
    // ena.
    &["rx_overruns"],
    &["rx_drops"],
    // virtio_net, as the kernel's queue statistics name it.
    &["*hw_drop_overruns", "*hw-drop-overruns"],
    &["pkts rx OOB", "*pkts rx OOB"],
    // gve, r8169, be2net, sfc, stmmac.
    &["rx_no_buffers_posted*", "rx_queue_drop_cnt*"],
    &["rx_missed"],
    &["rx_drops_no_pbuf"],
    &["*rx_nodesc_drops"],
    &["mmc_rx_fifo_overflow"],
    // enic, qede, dpaa2.
    &["rx_no_bufs"],
    &["no_buff_discards"],
    &["[hw] rx nobuffer discards"],
];

/// Counters of i40e and ice beside their `rx_dropped`, which is the queues' lack of descriptors. That of other drivers has
/// the kernel's drops in it, of packets that nobody wants.
const COUNTERS_BESIDE_DROPPED: &[&str] = &["rx_dropped.nic", "port.rx_dropped", "port.rx_discards"];

/// Packets for which the receive ring had no free descriptor.
pub(crate) fn count_ring_drops(evidence: &Evidence<'_>) -> Option<u64> {
    let kernel = ["rx_missed_errors", "rx_fifo_errors", "rx_over_errors"];
    let by_kernel = kernel.iter().filter_map(|name| evidence.statistic(name)).max();
    let by_driver = RING_COUNTERS.iter().filter_map(|family| evidence.driver(family)).max();
    let has_own = evidence.driver(COUNTERS_BESIDE_DROPPED).is_some();
    let by_queues = has_own.then(|| evidence.driver(&["rx_dropped"])).flatten();
    by_kernel.max(by_driver).max(by_queues)
}

/// Packets that the card's own buffer had no room for, though descriptors were free: the slot was too slow (mlx5).
pub(crate) fn count_port_discards(evidence: &Evidence<'_>) -> Option<u64> {
    let port = evidence.driver(&["rx_discards_phy"]);
    port.max(evidence.driver(&["outbound_pci_buffer_overflow"]))
}

/// Packets for which a CPU's backlog had no room.
pub(crate) fn count_backlog_drops(evidence: &Evidence<'_>) -> Option<u64> {
    Some(evidence.softnet()?.values().map(|row| row.dropped).sum())
}

/// Fewer lost packets are no harm of a host that hardly has traffic.
const LEAST_LOST: u64 = 10;

/// Whether so many of the packets are harm. Where nobody counts packets, a hundred are.
pub(crate) fn is_harm(lost: u64, packets: Option<u64>) -> bool {
    match packets {
        Some(packets) => {
            lost >= LEAST_LOST && lost as f64 * 1e6 >= LEAST_PER_MILLION * (packets + lost) as f64
        }
        None => lost >= 100,
    }
}

/// Whether the receive ring loses packets to the application's harm.
pub(crate) fn loses_in_ring(evidence: &Evidence<'_>) -> bool {
    count_ring_drops(evidence).is_some_and(|drops| is_harm(drops, evidence.received_packets()))
}

/// The part of the received packets that was lost. Where nobody counts packets: the least that is harm.
pub(crate) fn loss_rate(evidence: &Evidence<'_>, lost: u64) -> f64 {
    let received = evidence.received_packets();
    received
        .map_or(LEAST_PER_MILLION / 1e6, |received| lost as f64 / (received + lost).max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::fixture::Fixture;

    #[test]
    fn losses_are_counted_once_by_place() {
        let snapshot = Fixture::new()
            .driver(&[
                ("rx_missed_errors", 300),
                ("rx_no_dma_resources", 100),
                ("rx_dropped", 9000),
            ])
            .softnet(&[[1000, 100, 0]])
            .into_snapshot();
        let evidence = Evidence::from_snapshot(&snapshot);
        assert_eq!(count_ring_drops(&evidence), Some(300), "the same packets are counted once");
        let ice = Fixture::new().driver(&[("rx_dropped", 9000), ("rx_dropped.nic", 0)]);
        let ice = ice.into_snapshot();
        assert_eq!(count_ring_drops(&Evidence::from_snapshot(&ice)), Some(9000));
        assert_eq!(count_backlog_drops(&evidence), Some(100));
        assert!((loss_rate(&evidence, 250) - 0.2).abs() < 1e-9, "of 1000 that were received");
        assert!(is_harm(100, Some(999_900)) && !is_harm(99, Some(999_901)));
        assert!(is_harm(100, None) && !is_harm(9, Some(1000)));
    }
}
