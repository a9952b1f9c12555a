//! Faults planted into hosts that are healthy otherwise: each must be told first.

use super::{DELAYS, FEATURES, healthy_host, ids};
use crate::measures::fixture::Fixture;

const BULK: usize = 1;
const REQUESTS: usize = 2;
const IDLE: [u64; 5] = [3, 1, 0, 0, 0];
const CPU: &str = "sys/devices/system/cpu/cpu0";

fn host(load: usize) -> Fixture {
    healthy_host(load, 40, DELAYS[1])
}

fn delays(rx_usecs: u32) -> String {
    format!(
        "Adaptive RX: off  TX: off\nrx-usecs: {rx_usecs}\nrx-frames: 0\ntx-usecs: {rx_usecs}\ntx-frames: 0\n"
    )
}

/// Four queues on CPUs of their own.
fn each_interrupts(host: Fixture, count: u64) -> Fixture {
    host.interrupts(&[
        ("eth0-TxRx-0", &[count, 0, 0, 0]),
        ("eth0-TxRx-1", &[0, count, 0, 0]),
        ("eth0-TxRx-2", &[0, 0, count, 0]),
        ("eth0-TxRx-3", &[0, 0, 0, count]),
    ])
}

fn check(planted: Vec<(&str, Fixture)>) {
    let wrong: Vec<String> = planted
        .into_iter()
        .map(|(id, host)| (id, ids(host)))
        .filter(|(id, found)| found[0] != *id)
        .map(|(id, found)| format!("{id}: {found:?}"))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn faults_of_moderation_are_told_first() {
    let adaptive = |usecs: u32| format!("Adaptive RX: on  TX: on\nrx-usecs: {usecs}\n");
    let short = each_interrupts(host(BULK), 500_000).cpus(&[[5, 5, 10, 40, 0]; 4]);
    check(vec![
        (
            "moderation-too-long",
            each_interrupts(host(REQUESTS), 18_000).fixed("ethtool_-c_eth0", &delays(500)),
        ),
        ("moderation-too-short", short.fixed("ethtool_-c_eth0", &delays(0))),
        ("adaptive-flutter", host(REQUESTS).grown("ethtool_-c_eth0", &adaptive(8), &adaptive(256))),
        (
            "knob-ignored",
            each_interrupts(host(BULK), 300_000).fixed("ethtool_-c_eth0", &delays(200)),
        ),
    ]);
}

#[test]
fn faults_of_card_are_told_first() {
    let narrow = host(BULK)
        .sysfs("device/current_link_speed", "2.5 GT/s PCIe\n")
        .sysfs("device/current_link_width", "2\n");
    let lro = FEATURES.replace("large-receive-offload: off [fixed]", "large-receive-offload: on");
    let gro = FEATURES.replace("generic-receive-offload: on", "generic-receive-offload: off");
    let forwarding = [("ForwDatagrams", 900_000), ("FragFails", 90_000)];
    check(vec![
        ("ring-too-small", host(BULK).driver(&[("rx_missed_errors", 24_000)])),
        ("pause-by-peer", host(BULK).driver(&[("rx_flow_control_xoff", 9000)])),
        ("pause-by-us", host(BULK).driver(&[("tx_flow_control_xoff", 9000)])),
        ("pcie-limit", narrow),
        ("offload-off", host(BULK).fixed("ethtool_-k_eth0", &gro)),
        (
            "lro-forwarding",
            host(BULK).fixed("ethtool_-k_eth0", &lro).protocols("snmp", "Ip", &forwarding),
        ),
        ("cloud-allowance", host(BULK).driver(&[("pps_allowance_exceeded", 50_000)])),
    ]);
}

#[test]
fn faults_of_interrupts_are_told_first() {
    let on_one = host(BULK)
        .interrupts(&[("eth0-TxRx-0", &[50_000, 0, 0, 0]), ("eth0-TxRx-1", &[50_000, 0, 0, 0])])
        .softnet(&[[2_400_000, 0, 9], [0; 3], [0; 3], [0; 3]])
        .cpus(&[[5, 5, 10, 70, 0], IDLE, IDLE, IDLE]);
    let shared = host(REQUESTS)
        .interrupts(&[("eth0-TxRx-0", &[200_000, 0, 0, 0])])
        .softnet(&[[800_000, 0, 9], [0; 3], [0; 3], [0; 3]])
        .cpus(&[[45, 20, 5, 28, 0], IDLE, IDLE, IDLE]);
    let moved = host(BULK).interrupts(&[("eth0-TxRx-0", &[30_000, 30_000, 0, 0])]).grown(
        "proc/irq/24/effective_affinity_list",
        "0\n",
        "1\n",
    );
    let table =
        "| CPU | avl | man | mac | act | vectors\n 0 183 1 1 18 33-50\n 3 0 1 1 201 33-236\n";
    let no_vector = host(BULK)
        .fixed("proc/irq/24/smp_affinity_list", "3\n")
        .fixed("proc/irq/24/effective_affinity_list", "0\n")
        .fixed("sys/kernel/debug/irq/domains/VECTOR", &format!(" {table}"));
    check(vec![
        ("irq-on-one-cpu", on_one),
        ("irq-on-application-cpu", shared),
        ("irq-far-numa", host(BULK).sysfs("device/local_cpulist", "4-7\n")),
        ("irq-moved", moved),
        ("no-free-vector", no_vector),
    ]);
}

#[test]
fn faults_of_receive_are_told_first() {
    let uneven = host(BULK)
        .driver(&[
            ("rx_queue_0_packets", 2_300_000),
            ("rx_queue_1_packets", 100_000),
            ("rx_queue_2_packets", 0),
            ("rx_queue_3_packets", 0),
        ])
        .fixed("ethtool_-x_eth0", "RX flow hash indirection table for eth0:\n 0: 0 0 0 0 0 0 0 1\n")
        .softnet(&[[2_300_000, 0, 9], [100_000, 0, 0], [0; 3], [0; 3]])
        .cpus(&[[5, 5, 5, 80, 0], IDLE, IDLE, IDLE]);
    let hops = host(REQUESTS)
        .softnet_with_rps(&[[800_000, 0, 0, 0], [800_000, 0, 0, 800_000], [0; 4], [0; 4]])
        .cpus(&[[10, 5, 2, 10, 0], [10, 5, 2, 10, 0], IDLE, IDLE]);
    let full = host(BULK).cpus(&[IDLE, [2, 1, 5, 90, 0], IDLE, IDLE]);
    let starved = host(BULK)
        .sysfs("threaded", "1\n")
        .fixed("proc/812/comm", "napi/eth0-8193\n")
        .grown("proc/812/schedstat", "500 500 9\n", "2000000500 6000000500 900\n");
    let budget = host(BULK)
        .fixed("proc/sys/net/core/netdev_budget", "20\n")
        .softnet(&[[600_000, 0, 25_000]; 4]);
    check(vec![
        ("rss-imbalance", uneven),
        ("rps-only-hops", hops),
        ("cpu-full-of-softirq", full),
        ("napi-thread-starved", starved),
        ("softirq-budget", budget),
        ("backlog-drops", host(BULK).softnet(&[[600_000, 9000, 0]; 4])),
    ]);
}

#[test]
fn faults_of_cpus_are_told_first() {
    let quota = |grown: u64| {
        let [used, periods] = [5_000_000, 100].map(|by| 9_000_000 + by * grown);
        let [count, usecs] = [70, 5_000_000].map(|by| 4_000_000 + by * grown);
        format!(
            "usage_usec {used}\nnr_periods {periods}\nnr_throttled {count}\nthrottled_usec {usecs}\n"
        )
    };
    let asleep = host(REQUESTS)
        .fixed(&format!("{CPU}/cpuidle/state3/name"), "C6\n")
        .fixed(&format!("{CPU}/cpuidle/state3/latency"), "133\n")
        .grown(&format!("{CPU}/cpuidle/state3/usage"), "900\n", "20900\n");
    let slow = host(REQUESTS)
        .fixed(&format!("{CPU}/cpufreq/scaling_cur_freq"), "800000\n")
        .fixed(&format!("{CPU}/cpufreq/cpuinfo_max_freq"), "3900000\n")
        .fixed(&format!("{CPU}/cpufreq/scaling_governor"), "powersave\n");
    let spinning = host(REQUESTS).fixed("proc/sys/net/core/busy_poll", "50\n").cpus(&[
        [5, 90, 0, 2, 0],
        IDLE,
        IDLE,
        IDLE,
    ]);
    check(vec![
        ("cpu-quota", host(REQUESTS).grown("sys/fs/cgroup/web/cpu.stat", &quota(0), &quota(1))),
        ("steal", host(REQUESTS).cpus(&[[20, 10, 2, 10, 25]; 4])),
        ("idle-states", asleep),
        ("frequency", slow),
        ("busy-poll-waste", spinning),
        ("second-tuner", host(REQUESTS).grown("proc/sys/net/core/netdev_budget", "300\n", "600\n")),
    ]);
}
