//! All rules together: silence on healthy hosts, and the order of what is found.

use crate::diagnose;
use crate::measures::fixture::Fixture;

mod planted;

/// Packets and bytes of ten seconds at full load, received and sent.
const LOADS: [(&str, [u64; 2], [u64; 2]); 4] = [
    ("idle", [40, 4000], [30, 3000]),
    ("bulk", [6_000_000, 9_000_000_000], [2_000_000, 132_000_000]),
    ("requests", [2_000_000, 240_000_000], [2_000_000, 500_000_000]),
    ("mixed", [4_000_000, 3_000_000_000], [3_000_000, 1_500_000_000]),
];
const FEATURES: &str = "Features for eth0:\nrx-checksumming: on\ntx-checksumming: on\nscatter-gather: on\n\
    tcp-segmentation-offload: on\ngeneric-segmentation-offload: on\ngeneric-receive-offload: on\n\
    large-receive-offload: off [fixed]\n";
const RINGS: &str = "Ring parameters for eth0:\nPre-set maximums:\nRX: 4096\nTX: 4096\nCurrent hardware settings:\nRX: 512\nTX: 512\n";
const CHANNELS: &str = "Channel parameters for eth0:\nPre-set maximums:\nCombined: 8\nCurrent hardware settings:\nCombined: 4\n";
const DELAYS: [&str; 2] = [
    "Coalesce parameters for eth0:\nAdaptive RX: on  TX: on\nrx-usecs: 50\nrx-frames: n/a\ntx-usecs: 50\n",
    "Coalesce parameters for eth0:\nAdaptive RX: off  TX: off\nrx-usecs: 8\nrx-frames: 128\ntx-usecs: 8\ntx-frames: 128\n",
];

/// A host of four CPUs with a card of four queues and this part of a full load.
fn healthy_host(load: usize, percent: u64, delays: &str) -> Fixture {
    let (_, received, sent) = LOADS[load];
    let part = |counts: [u64; 2]| counts.map(|count| (count * percent / 100).max(30));
    let (received, sent) = (part(received), part(sent));
    let queue = received[0] / 4;
    let interrupts = queue / 8 + 9;
    let time =
        if load == 0 { [1, 1, 0, 0, 0] } else { [40, 20, 5, 30, 1].map(|of| of * percent / 100) };
    let lines: Vec<(String, [u64; 4])> = (0..4)
        .map(|at| {
            (
                format!("eth0-TxRx-{at}"),
                std::array::from_fn(|cpu| u64::from(cpu == at) * interrupts),
            )
        })
        .collect();
    let lines: Vec<(&str, &[u64])> =
        lines.iter().map(|(label, counts)| (label.as_str(), counts.as_slice())).collect();
    Fixture::new()
        .traffic(received, sent)
        .cpus(&[time; 4])
        .softnet(&[[queue, 0, queue / 50_000]; 4])
        .interrupts(&lines)
        .driver(&[
            ("rx_missed_errors", 0),
            ("rx_no_dma_resources", 0),
            ("rx_flow_control_xoff", percent / 10),
            ("tx_flow_control_xoff", 0),
            ("rx_queue_0_packets", queue),
            ("rx_queue_1_packets", queue + queue / 3),
            ("rx_queue_2_packets", queue - queue / 3),
            ("rx_queue_3_packets", queue),
        ])
        .fixed("ethtool_-c_eth0", delays)
        .fixed("ethtool_-g_eth0", RINGS)
        .fixed("ethtool_-l_eth0", CHANNELS)
        .fixed("ethtool_-k_eth0", FEATURES)
        .fixed("proc/sys/net/core/netdev_budget", "300\n")
        .fixed("proc/sys/net/core/netdev_max_backlog", "1000\n")
        .fixed("proc/sys/net/core/busy_poll", "0\n")
        .protocols("netstat", "TcpExt", &[("BusyPollRxPackets", 0)])
        .sysfs("speed", "25000\n")
        .sysfs("threaded", "0\n")
        .sysfs("device/numa_node", "0\n")
        .sysfs("device/local_cpulist", "0-3\n")
        .sysfs("device/current_link_speed", "8.0 GT/s PCIe\n")
        .sysfs("device/current_link_width", "8\n")
        .sysfs("device/max_link_speed", "16.0 GT/s PCIe\n")
        .sysfs("device/max_link_width", "8\n")
}

fn ids(host: Fixture) -> Vec<&'static str> {
    let diagnosis = diagnose(&host.into_snapshot());
    diagnosis.findings.into_iter().map(|ranked| ranked.finding.id).collect()
}

#[test]
fn healthy_hosts_have_no_finding() {
    for (load, (name, ..)) in LOADS.iter().enumerate() {
        for percent in [5, 25, 50, 75, 95] {
            for delays in DELAYS {
                let found = ids(healthy_host(load, percent, delays));
                let answer = ["idle", "no-fault"].contains(&found[0]);
                assert!(answer && found.len() == 1, "{name} at {percent}%: {found:?}");
            }
        }
    }
}

#[test]
fn causes_come_before_their_effects() {
    let on_one: &[(&str, &[u64])] =
        &[("eth0-TxRx-0", &[50_000, 0, 0, 0]), ("eth0-TxRx-1", &[50_000, 0, 0, 0])];
    let full: &[[u64; 5]] = &[[0, 0, 5, 93, 0], [5, 0, 0, 0, 0], [5, 0, 0, 0, 0], [5, 0, 0, 0, 0]];
    let host = || {
        Fixture::new()
            .traffic([2_000_000, 2_400_000_000], [9, 900])
            .interrupts(on_one)
            .cpus(full)
            .driver(&[("rx_missed_errors", 40_000)])
            .fixed("ethtool_-g_eth0", RINGS)
    };
    let expected = ["irq-on-one-cpu", "cpu-full-of-softirq", "ring-too-small"];
    assert_eq!(ids(host())[..3], expected);
    let spread: &[(&str, &[u64])] = &[("eth0-TxRx-0", &[50_000, 0]), ("eth0-TxRx-1", &[0, 50_000])];
    let roomy = host().interrupts(spread).cpus(&[[0, 0, 5, 40, 0], [5, 0, 5, 30, 0]]);
    assert_eq!(ids(roomy), ["ring-too-small"]);
}
