//! Looks at a simulated host: texts as the kernel and its tools would print them, for `latput diagnose`.
//!
//! Only what the model counts or sets is there. TCP's sockets, counters of TCP and the backlogs of CPUs are not.

use std::collections::BTreeMap;

use latput_knobs::{Knob, Place, Value};
use latput_trial::observation::CpuTime;
use latput_units::Nanos;

use crate::facts::INTERFACE;
use crate::machine::{DriverMode, Qdisc};
use crate::outcome::{HostOutcome, QueueOutcome, SimulationOutcome};
use crate::scenario::{Host, Network, Scenario, TrafficKind};
use crate::setting::read_knob_state;
use crate::validate::LARGEST_RING;

/// Texts by name, as in the folder of a support ticket.
pub type LookTexts = BTreeMap<String, String>;

/// A tick of `/proc/stat` (`USER_HZ` is 100).
const TICK_NS: u64 = 10_000_000;
/// Number of the first queue's interrupt.
const FIRST_INTERRUPT: usize = 24;
/// Knobs of moderation in the order of `ethtool -c`, which has the same names.
const MODERATION: [Knob; 8] = [
    Knob::RxUsecs,
    Knob::RxFrames,
    Knob::RxUsecsIrq,
    Knob::RxFramesIrq,
    Knob::TxUsecs,
    Knob::TxFrames,
    Knob::TxUsecsIrq,
    Knob::TxFramesIrq,
];

impl SimulationOutcome {
    /// Two looks at a host of the scenario: at the beginning of the window, where its counters are 0, and at the end.
    pub fn build_looks(&self, scenario: &Scenario, host: usize) -> [LookTexts; 2] {
        let (described, end) = (&scenario.hosts[host], &self.hosts[host]);
        let begin_queue = |queue: &QueueOutcome| QueueOutcome {
            waiting_packets: [queue.waiting_packets[0]; 2],
            waiting_bytes: [queue.waiting_bytes[0]; 2],
            ..QueueOutcome::default()
        };
        let begin = HostOutcome {
            cores: vec![CpuTime::default(); end.cores.len()],
            queues: end.queues.iter().map(begin_queue).collect(),
            ..HostOutcome::default()
        };
        let datagrams = self.count_datagrams(scenario, host);
        let none = datagrams.map(|_| [0; 2]);
        [(&begin, none), (end, datagrams)].map(|(counted, datagrams)| {
            let mut look = read_settings(described, &scenario.network);
            add_counters(&mut look, described, counted);
            if let Some([received, dropped]) = datagrams {
                let text = format!("Udp: InDatagrams RcvbufErrors\nUdp: {received} {dropped}\n");
                look.insert("proc/net/snmp".to_owned(), text);
            }
            look
        })
    }

    /// Datagrams that the processes of a host received, and those that its full sockets dropped; `None` where nobody sends it
    /// any.
    fn count_datagrams(&self, scenario: &Scenario, host: usize) -> Option<[u64; 2]> {
        let loads = scenario.loads.iter().zip(&self.loads);
        let received = loads.filter_map(|(load, outcome)| {
            let is_received =
                load.to == host && matches!(load.traffic, TrafficKind::Datagrams { .. });
            is_received.then_some(outcome.received)
        });
        let received = received.reduce(u64::saturating_add)?;
        Some([received, self.socket_drops(scenario, host)])
    }
}

/// The name of a file of the interface in sysfs.
fn name_in_sysfs(attribute: &str) -> String {
    format!("sys/class/net/{INTERFACE}/{attribute}")
}

fn add_counters(look: &mut LookTexts, host: &Host, counted: &HostOutcome) {
    let nic = counted.nic_totals();
    let dropped = if host.nic.handover { "rx_dropped" } else { "rx_missed_errors" };
    for (name, count) in [
        ("rx_packets", nic.rx_packets),
        ("rx_bytes", nic.rx_bytes),
        (dropped, nic.rx_dropped),
        ("tx_packets", nic.tx_packets),
        ("tx_bytes", nic.tx_bytes),
    ] {
        look.insert(name_in_sysfs(&format!("statistics/{name}")), format!("{count}\n"));
    }
    look.insert("proc/stat".to_owned(), format_cpu_times(&counted.cores));
    look.insert("tc_-s_-j_qdisc".to_owned(), format_qdiscs(host.stack.qdisc, &counted.queues));
    if host.nic.handover {
        return;
    }
    look.insert(format!("ethtool_-S_{INTERFACE}"), format_queues(&counted.queues));
    if host.nic.driver != DriverMode::Polling {
        look.insert("proc/interrupts".to_owned(), format_interrupts(host, counted));
        for queue in 0..counted.queues.len() {
            let name = format!("proc/irq/{}/effective_affinity_list", FIRST_INTERRUPT + queue);
            look.insert(name, format!("{}\n", host.nic.interrupt_core(queue)));
        }
    }
}

fn format_cpu_times(cores: &[CpuTime]) -> String {
    let ticks = |time: Nanos| (time.as_ns() + TICK_NS / 2) / TICK_NS;
    let line = |(core, time): (usize, &CpuTime)| {
        let CpuTime { user, system, irq, softirq, steal, idle, iowait } = *time;
        let columns = [user, Nanos::ZERO, system, idle, iowait, irq, softirq, steal];
        format!("cpu{core} {}\n", columns.map(|time| ticks(time).to_string()).join(" "))
    };
    cores.iter().enumerate().map(line).collect::<Vec<_>>().concat()
}

fn format_interrupts(host: &Host, counted: &HostOutcome) -> String {
    let cores = 0..counted.cores.len();
    let head: Vec<String> = cores.clone().map(|core| format!("CPU{core}")).collect();
    let mut lines = vec![head.join(" ")];
    for (number, queue) in counted.queues.iter().enumerate() {
        let target = host.nic.interrupt_core(number) as usize;
        let count = |core| if core == target { queue.interrupts } else { 0 };
        let counts: Vec<String> = cores.clone().map(|core| count(core).to_string()).collect();
        let line = FIRST_INTERRUPT + number;
        lines.push(format!("{line}: {} PCI-MSI {INTERFACE}-TxRx-{number}", counts.join(" ")));
    }
    lines.join("\n") + "\n"
}

/// Counters of the queues as igb names them.
fn format_queues(queues: &[QueueOutcome]) -> String {
    let lines = queues.iter().enumerate().map(|(number, queue)| {
        format!(
            "     rx_queue_{number}_packets: {}\n     rx_queue_{number}_bytes: {}\n     rx_queue_{number}_drops: {}\n     \
             tx_queue_{number}_packets: {}\n     tx_queue_{number}_bytes: {}\n",
            queue.rx_packets, queue.rx_bytes, queue.rx_dropped, queue.tx_packets, queue.tx_bytes
        )
    });
    format!("NIC statistics:\n{}", lines.collect::<Vec<_>>().concat())
}

/// A discipline for each queue; below `mq` where there are several.
fn format_qdiscs(qdisc: Qdisc, queues: &[QueueOutcome]) -> String {
    let (kind, options) = match qdisc {
        Qdisc::Pfifo { limit_packets } => ("pfifo", format!(r#""limit":{limit_packets}"#)),
        Qdisc::Bfifo { limit_bytes } => ("bfifo", format!(r#""limit":{}"#, limit_bytes.get())),
        Qdisc::FqCodel { limit_packets, target, interval } => {
            let [target, interval] = [target, interval].map(|time| time.as_ns() / 1000);
            let times = format!(r#""target":{target},"interval":{interval}"#);
            ("fq_codel", format!(r#""limit":{limit_packets},{times}"#))
        }
    };
    let format_row = |place: &str, kind: &str, options: &str, queue: &QueueOutcome| {
        let QueueOutcome { tx_bytes, tx_packets, tx_dropped, .. } = queue;
        let counts = format!(
            r#""bytes":{tx_bytes},"packets":{tx_packets},"drops":{tx_dropped},"backlog":{},"qlen":{}"#,
            queue.waiting_bytes[1], queue.waiting_packets[1]
        );
        format!(
            r#"{{"kind":"{kind}","dev":"{INTERFACE}",{place},"options":{{{options}}},{counts}}}"#
        )
    };
    let rows = match queues {
        [only] => vec![format_row(r#""handle":"8001:","root":true"#, kind, &options, only)],
        several => {
            let place = |number: usize| format!(r#""handle":"0:","parent":":{number:x}""#);
            let leaves = several.iter().zip(1..);
            let leaves = leaves.map(|(queue, at)| format_row(&place(at), kind, &options, queue));
            let sum = HostOutcome { queues: several.to_vec(), ..HostOutcome::default() };
            let root = r#""handle":"1:","root":true"#;
            let root = format_row(root, "mq", "", &sum.nic_totals());
            std::iter::once(root).chain(leaves).collect()
        }
    };
    format!("[{}]\n", rows.join(","))
}

/// Settings as ethtool and sysfs print them.
fn read_settings(host: &Host, network: &Network) -> LookTexts {
    let (nic, stack) = (&host.nic, &host.stack);
    let mut look = LookTexts::new();
    let switch = |is_on: bool| if is_on { "on" } else { "off" };
    let features = format!(
        "Features for {INTERFACE}:\ngeneric-receive-offload: {}\ntcp-segmentation-offload: {}\n",
        switch(stack.gro),
        switch(stack.tso)
    );
    look.insert(format!("ethtool_-k_{INTERFACE}"), features);
    look.insert(name_in_sysfs("mtu"), format!("{}\n", network.mtu.get()));
    if nic.driver == DriverMode::Napi {
        let timeout_ns = stack.gro_flush_timeout.as_ns();
        look.insert(name_in_sysfs("gro_flush_timeout"), format!("{timeout_ns}\n"));
        let deferrals = stack.defer_hard_irqs;
        look.insert(name_in_sysfs("napi_defer_hard_irqs"), format!("{deferrals}\n"));
    }
    let limits = |title: &str, rows: &[(&str, [u32; 2])]| {
        let part = |at: usize| {
            let lines: Vec<String> =
                rows.iter().map(|(name, values)| format!("{name}: {}\n", values[at])).collect();
            lines.concat()
        };
        let (most, now) = (part(0), part(1));
        format!(
            "{title} for {INTERFACE}:\nPre-set maximums:\n{most}Current hardware settings:\n{now}"
        )
    };
    // A queue beyond the cores has no core of its own.
    let channels = [nic.queues.max(host.machine.cores), nic.queues];
    let text = limits("Channel parameters", &[("Combined", channels)]);
    look.insert(format!("ethtool_-l_{INTERFACE}"), text);
    if nic.handover {
        return look;
    }
    let rings = [("RX", [LARGEST_RING, nic.rx_ring]), ("TX", [LARGEST_RING, nic.tx_ring])];
    look.insert(format!("ethtool_-g_{INTERFACE}"), limits("Ring parameters", &rings));
    look.insert(format!("ethtool_-c_{INTERFACE}"), format_moderation(host, network));
    let rate = nic.link.unwrap_or(network.rate);
    look.insert(name_in_sysfs("speed"), format!("{}\n", rate.get() / 1_000_000));
    look
}

fn format_moderation(host: &Host, network: &Network) -> String {
    let state = read_knob_state(host, network);
    let value = |knob: Knob| state.0.get(&(knob, Place::Device));
    let adaptive = |knob: Knob| match value(knob) {
        Some(Value::Switch(true)) => "on",
        Some(Value::Switch(false)) => "off",
        _ => "n/a",
    };
    let (rx, tx) = (adaptive(Knob::AdaptiveRx), adaptive(Knob::AdaptiveTx));
    let mut lines = vec![format!("Adaptive RX: {rx}  TX: {tx}\n")];
    for knob in MODERATION {
        let number = match value(knob) {
            Some(Value::Time(delay)) => delay.as_ns() / 1000,
            Some(Value::Count(frames)) => *frames,
            _ => continue,
        };
        lines.push(format!("{}: {number}\n", knob.name()));
    }
    format!("Coalesce parameters for {INTERFACE}:\n{}", lines.concat())
}

#[cfg(test)]
mod tests {
    use latput_trial::{Traffic, Workload};
    use latput_units::Bytes;

    use super::*;
    use crate::SystemProfile;

    fn look_at_server(change: impl FnOnce(&mut SystemProfile)) -> [LookTexts; 2] {
        look_at_server_for(Nanos::from_ms(50), change)
    }

    fn look_at_server_for(
        window: Nanos,
        change: impl FnOnce(&mut SystemProfile),
    ) -> [LookTexts; 2] {
        let mut profile = SystemProfile::find_shipped("server-10g").unwrap();
        change(&mut profile);
        let load = Workload::plain("bulk", Traffic::tcp_stream(Bytes::new(65_536), 4));
        let scenario = profile.build_scenario(&load, 1, window).unwrap();
        crate::run(&scenario).unwrap().build_looks(&scenario, 1)
    }

    fn count_of(look: &LookTexts, name: &str) -> u64 {
        look[&name_in_sysfs(name)].trim().parse().unwrap()
    }

    #[test]
    fn looks_have_same_names_and_grow() {
        let [before, after] = look_at_server(|_| {});
        assert!(before.keys().eq(after.keys()));
        assert_eq!(count_of(&before, "statistics/rx_packets"), 0);
        assert!(count_of(&after, "statistics/rx_packets") > 1000);
        assert_eq!(after["proc/stat"].lines().count(), 4);
        assert!(after["proc/interrupts"].contains("IFACE-TxRx-3"));
        assert!(after["ethtool_-c_IFACE"].contains("rx-usecs: 50\n"));
    }

    #[test]
    fn small_ring_is_told_with_losses() {
        // Some timeouts of TCP, which has lost what it sent at once.
        let window = Nanos::from_ms(1000);
        let [_, after] = look_at_server_for(window, |profile| profile.sut.nic.rx_ring = 8);
        assert!(count_of(&after, "statistics/rx_missed_errors") > 0);
        assert!(after["ethtool_-g_IFACE"].ends_with("settings:\nRX: 8\nTX: 1024\n"));
    }

    #[test]
    fn handed_over_packets_have_no_interrupts() {
        let [_, after] = look_at_server(|profile| {
            profile.sut.nic.handover = true;
            profile.sut.nic.coalescing = crate::vector::Coalescing::default();
            profile.sut.nic.adaptation = None;
        });
        assert!(!after.contains_key("proc/interrupts") && !after.contains_key("ethtool_-c_IFACE"));
    }
}
