//! Receive queues: their interrupts and their packets.

use std::collections::BTreeMap;

use crate::evidence::{Evidence, InterruptGrowth};

/// Words in the labels of interrupts that announce no received packet.
const OTHER_PURPOSES: [&str; 8] =
    ["output", "config", "mgmnt", "async", "control", "misc", "event", "pages"];
/// Words in the labels of receive queues, by driver: Intel's and bnxt, ena, vmxnet3, virtio, mlx5, gve, bnx2x and qede.
const RECEIVE_WORDS: [&str; 8] =
    ["txrx", "tx-rx", "rxtx", "-rx-", "-input.", "mlx5_comp", "ntfy-bl", "-fp-"];
/// Beginnings of the names of interfaces that have no interrupts.
const VIRTUAL: [&str; 9] = ["veth", "br", "docker", "lo", "tun", "tap", "dummy", "wg", "vxlan"];
/// Counters of received packets by queue, as drivers name them; `#` is the queue.
const QUEUE_COUNTERS: [&str; 10] = [
    "rx_queue_#_packets",
    "rx#_packets",
    "rx-#.packets",
    "rx-#.rx_packets",
    "queue_#_rx_cnt",
    "[#]: rx_ucast_packets",
    "rx_packets[#]",
    "rxq#: rx_pkts",
    "Queue[#] InPackets",
    "rxq#_rcv_packets",
];

/// Whether the interface has no card: its packets come from another CPU of this host, not by interrupts.
pub(crate) fn is_virtual(evidence: &Evidence<'_>) -> bool {
    VIRTUAL.iter().any(|start| evidence.interface_name().starts_with(start))
        || evidence.driver(&["peer_ifindex"]).is_some()
}

/// The interrupts that announce received packets: of the interface, else those that look so if they are of one device.
pub(crate) fn find_receive_interrupts<'b>(
    evidence: &'b Evidence<'_>,
) -> Option<Vec<&'b InterruptGrowth>> {
    let mut own = evidence.own_interrupts()?;
    if own.is_empty() && !is_virtual(evidence) {
        own = guess_interrupts(evidence.interrupts()?);
    }
    own.retain(|line| announces_packets(&line.label));
    (!own.is_empty()).then_some(own)
}

fn announces_packets(label: &str) -> bool {
    let label = label.to_ascii_lowercase();
    let is_transmit = label.contains("-tx-") && !label.contains("rx");
    !is_transmit && !OTHER_PURPOSES.iter().any(|word| label.contains(word))
}

/// Whether an interrupt announces received packets only: the driver has others for those that are sent (virtio, tg3).
pub(crate) fn is_receive_only(label: &str) -> bool {
    let label = label.to_ascii_lowercase();
    ["-input.", "-rx-"].iter().any(|word| label.contains(word)) && !label.contains("tx-rx")
}

/// Interrupts with the labels of receive queues, if they are of one device only.
fn guess_interrupts(all: &[InterruptGrowth]) -> Vec<&InterruptGrowth> {
    let looks_so = |line: &&InterruptGrowth| {
        let label = line.label.to_ascii_lowercase();
        RECEIVE_WORDS.iter().any(|word| label.contains(word))
    };
    let found: Vec<&InterruptGrowth> = all.iter().filter(looks_so).collect();
    let device = |line: &InterruptGrowth| {
        let name = line.label.split_whitespace().last().unwrap_or_default();
        let (name, place) = name.split_once('@').unwrap_or((name, ""));
        format!("{}@{place}", name.trim_end_matches(|c: char| c.is_ascii_digit()))
    };
    let is_one = found.windows(2).all(|pair| device(pair[0]) == device(pair[1]));
    if is_one { found } else { Vec::new() }
}

/// Counts of these interrupts by CPU.
pub(crate) fn count_by_cpu(lines: &[&InterruptGrowth]) -> BTreeMap<u32, u64> {
    let mut counts = BTreeMap::new();
    for (cpu, count) in lines.iter().flat_map(|line| &line.counts) {
        *counts.entry(*cpu).or_default() += count;
    }
    counts
}

/// All counts of these interrupts.
pub(crate) fn count_all(lines: &[&InterruptGrowth]) -> u64 {
    lines.iter().map(|line| line.total()).sum()
}

/// Packets received by each queue, by the driver's counters.
pub(crate) fn count_queue_packets(evidence: &Evidence<'_>) -> Option<BTreeMap<u32, u64>> {
    let mut packets = BTreeMap::new();
    for (name, count) in evidence.driver_counters("*") {
        let Some(start) = name.find(|c: char| c.is_ascii_digit()) else { continue };
        let digits = name[start..].find(|c: char| !c.is_ascii_digit());
        let end = digits.map_or(name.len(), |digits| start + digits);
        let form = format!("{}#{}", &name[..start], &name[end..]);
        if QUEUE_COUNTERS.contains(&form.as_str())
            && let Ok(queue) = name[start..end].parse()
        {
            packets.insert(queue, count);
        }
    }
    (!packets.is_empty()).then_some(packets)
}

/// Receive queues that the interface has, and the most that it could have.
pub(crate) fn count_channels(evidence: &Evidence<'_>) -> Option<(u64, Option<u64>)> {
    let is_some = |found: &(u64, Option<u64>)| found.0 > 0;
    let combined = evidence.limit("-l", "Combined").filter(is_some);
    combined.or_else(|| evidence.limit("-l", "RX").filter(is_some))
}

/// Entries of the indirection table by queue, as `ethtool -x` prints them: `    8:      0     1     2`.
pub(crate) fn count_table_entries(evidence: &Evidence<'_>) -> Option<BTreeMap<u32, u64>> {
    let mut entries = BTreeMap::new();
    for line in evidence.ethtool_text("-x")?.lines() {
        let Some((index, queues)) = line.split_once(':') else { continue };
        if index.trim().parse::<u32>().is_err() {
            continue;
        }
        for queue in queues.split_whitespace() {
            *entries.entry(queue.parse().ok()?).or_default() += 1;
        }
    }
    (!entries.is_empty()).then_some(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::fixture::Fixture;

    fn labels(lines: &[(&str, &[u64])]) -> Option<usize> {
        let snapshot = Fixture::new().interrupts(lines).into_snapshot();
        let evidence = Evidence::from_snapshot(&snapshot);
        find_receive_interrupts(&evidence).map(|found| found.len())
    }

    #[test]
    fn receive_interrupts_are_known_by_label() {
        assert_eq!(
            labels(&[("eth0-Tx-Rx-0", &[5]), ("eth0-tx-1", &[5]), ("nvme0q1", &[5])]),
            Some(1)
        );
        let virtio: &[(&str, &[u64])] =
            &[("virtio0-config", &[0]), ("virtio0-input.0", &[9]), ("virtio0-output.0", &[9])];
        assert_eq!(labels(virtio), Some(1));
        let mlx5: &[(&str, &[u64])] = &[
            ("mlx5_async0@pci:0000:3b:00.0", &[1]),
            ("mlx5_comp0@pci:0000:3b:00.0", &[9]),
            ("mlx5_comp1@pci:0000:3b:00.0", &[9]),
        ];
        assert_eq!(labels(mlx5), Some(2));
        assert_eq!(labels(&[("virtio0-input.0", &[9]), ("virtio1-input.0", &[9])]), None);
    }

    #[test]
    fn queue_counters_of_drivers_are_known() {
        for name in ["rx_queue_3_packets", "rx3_packets", "queue_3_rx_cnt", "[3]: rx_ucast_packets"]
        {
            let snapshot = Fixture::new().driver(&[(name, 7), ("rx_packets", 9)]).into_snapshot();
            let found = count_queue_packets(&Evidence::from_snapshot(&snapshot));
            assert_eq!(found, Some(BTreeMap::from([(3, 7)])), "{name}");
        }
    }

    #[test]
    fn table_entries_are_counted_by_queue() {
        let text = "RX flow hash indirection table for eth0 with 4 RX ring(s):\n    0:      0     1     0     0\n    8:      0     0\nRSS hash key:\n4d:5a\n";
        let snapshot = Fixture::new().fixed("ethtool_-x_eth0", text).into_snapshot();
        let found = count_table_entries(&Evidence::from_snapshot(&snapshot));
        assert_eq!(found, Some(BTreeMap::from([(0, 5), (1, 1)])));
    }
}
