//! Figures of an interface's path in a window, for a screen or a log: rates, CPU time, interrupts, losses by place, delay.

use schemars::JsonSchema;
use serde::Serialize;

use crate::evidence::{CpuShares, Evidence, InterruptGrowth};
use crate::measures::queues::count_queue_packets;

/// Places of losses, in the order of a packet's way from the card to the program.
const PLACES: [&str; 6] = ["nic", "ring", "backlog", "qdisc", "socket", "tcp"];

/// Figures between two looks. What a look lacks is absent, never 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct PathFigures {
    /// Seconds between the looks.
    pub window_s: Option<f64>,
    /// Packets received in a second.
    pub rx_pps: Option<f64>,
    /// Bits received in a second.
    pub rx_bps: Option<f64>,
    /// Packets sent in a second.
    pub tx_pps: Option<f64>,
    /// Bits sent in a second.
    pub tx_bps: Option<f64>,
    /// Interrupts of the interface in a second; absent where it has none of its own.
    pub interrupts_per_s: Option<f64>,
    /// Packets, both ways, for each of them.
    pub packets_per_interrupt: Option<f64>,
    /// The interface's interrupts, one for each queue on most cards.
    pub interrupts: Vec<QueueInterrupts>,
    /// The mean of all CPUs.
    pub cpu: Option<CpuKinds>,
    /// Each CPU.
    pub cpus: Vec<CpuTime>,
    /// Packets that were lost, by place, from the card to the program. Places that cannot be seen are absent.
    pub losses: Vec<PlaceLosses>,
    /// Segments that TCP sent again in a second, on all interfaces.
    pub tcp_retransmits_per_s: Option<f64>,
    /// Round trips of the connections that moved data.
    pub delay: Option<PathDelay>,
}

/// An interrupt's rate.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct QueueInterrupts {
    /// Its number.
    pub number: u32,
    /// The name of its handler.
    pub name: String,
    /// Interrupts in a second.
    pub per_s: f64,
    /// CPUs that handled it, the one with most first.
    pub cpus: Vec<u32>,
    /// Packets that its queue received for each of them, where the driver counts by queue.
    pub packets_per_interrupt: Option<f64>,
}

/// Parts of CPU time, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct CpuKinds {
    /// Programs.
    pub user_ratio: f64,
    /// The kernel on behalf of programs.
    pub system_ratio: f64,
    /// Interrupt handlers.
    pub irq_ratio: f64,
    /// Softirqs, in which packets are received.
    pub softirq_ratio: f64,
    /// Taken by the hypervisor for others.
    pub steal_ratio: f64,
    /// Idle.
    pub idle_ratio: f64,
}

impl CpuKinds {
    /// The parts with their names.
    pub fn named(self) -> [(&'static str, f64); 6] {
        [
            ("user", self.user_ratio),
            ("system", self.system_ratio),
            ("irq", self.irq_ratio),
            ("softirq", self.softirq_ratio),
            ("steal", self.steal_ratio),
            ("idle", self.idle_ratio),
        ]
    }
}

/// Time of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CpuTime {
    /// Its number.
    pub cpu: u32,
    /// Its parts.
    #[serde(flatten)]
    pub kinds: CpuKinds,
}

/// Losses at a place of the path.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PlaceLosses {
    /// `nic` (errors and drops of the interface), `ring`, `backlog`, `qdisc`, `socket` (UDP buffers) or `tcp` (queues of
    /// listening and of connected sockets). The last two are of all interfaces.
    pub place: &'static str,
    /// Packets lost in a second.
    pub per_s: f64,
}

/// Round trips of TCP connections, smoothed by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PathDelay {
    /// Connections that moved data.
    pub connections: u64,
    /// The median of their round trips.
    pub rtt_us_p50: f64,
    /// The longest.
    pub rtt_us_max: f64,
}

impl PathFigures {
    /// Reads the figures from the difference of two looks.
    pub fn from_evidence(evidence: &Evidence<'_>) -> Self {
        let window_s = evidence.window_s();
        let rate = |count: Option<u64>| Some(count? as f64 / window_s?);
        let bits = |name| rate(evidence.statistic(name)).map(|bytes| bytes * 8.0);
        let own = evidence.own_interrupts().filter(|own| !own.is_empty());
        let interrupts = own.as_ref().map(|own| own.iter().map(|line| line.total()).sum::<u64>());
        let cpus = read_cpus(evidence);
        Self {
            window_s,
            rx_pps: rate(evidence.received_packets()),
            rx_bps: bits("rx_bytes"),
            tx_pps: rate(evidence.sent_packets()),
            tx_bps: bits("tx_bytes"),
            interrupts_per_s: rate(interrupts),
            packets_per_interrupt: interrupts
                .filter(|count| *count > 0)
                .and_then(|count| Some(evidence.packets()? as f64 / count as f64)),
            interrupts: read_interrupts(evidence, own.unwrap_or_default(), window_s),
            cpu: mean_of(&cpus),
            cpus,
            losses: read_losses(evidence, window_s),
            tcp_retransmits_per_s: rate(evidence.protocol("Tcp.RetransSegs")),
            delay: read_delay(evidence),
        }
    }

    /// Adds what these figures lack from those of another window. Of losses that both know, the higher rate counts: a look at
    /// files alone does not see the driver's counters.
    pub fn completed_by(mut self, other: &Self) -> Self {
        self.delay = self.delay.or(other.delay);
        for queue in &mut self.interrupts {
            let same = other.interrupts.iter().find(|known| known.number == queue.number);
            let known = same.and_then(|known| known.packets_per_interrupt);
            queue.packets_per_interrupt = queue.packets_per_interrupt.or(known);
        }
        let all = |place: &'static str| {
            let both = self.losses.iter().chain(&other.losses);
            let rates = both.filter(|lost| lost.place == place).map(|lost| lost.per_s);
            Some(PlaceLosses { place, per_s: rates.reduce(f64::max)? })
        };
        self.losses = PLACES.into_iter().filter_map(all).collect();
        self
    }
}

fn read_interrupts(
    evidence: &Evidence<'_>,
    own: Vec<&InterruptGrowth>,
    window_s: Option<f64>,
) -> Vec<QueueInterrupts> {
    let Some(window_s) = window_s else { return Vec::new() };
    let packets = count_queue_packets(evidence).unwrap_or_default();
    let read = |line: &InterruptGrowth| {
        let name = line.label.split_whitespace().next_back().unwrap_or_default();
        let received = queue_of(name).and_then(|queue| packets.get(&queue));
        let mut cpus: Vec<(u32, u64)> =
            line.counts.iter().map(|(cpu, count)| (*cpu, *count)).collect();
        cpus.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        QueueInterrupts {
            number: line.number,
            name: name.to_owned(),
            per_s: line.total() as f64 / window_s,
            cpus: cpus.into_iter().map(|(cpu, _)| cpu).collect(),
            packets_per_interrupt: received
                .filter(|_| line.total() > 0)
                .map(|received| *received as f64 / line.total() as f64),
        }
    };
    own.into_iter().map(read).collect()
}

/// The queue that the name of a handler ends with, such as `eth0-TxRx-3` or `mlx5_comp3@pci:0000:03:00.0`.
fn queue_of(name: &str) -> Option<u32> {
    let name = name.split('@').next()?;
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    name[stem.len()..].parse().ok()
}

fn read_cpus(evidence: &Evidence<'_>) -> Vec<CpuTime> {
    let read = |(cpu, shares): (&u32, &CpuShares)| CpuTime {
        cpu: *cpu,
        kinds: CpuKinds {
            user_ratio: shares.user,
            system_ratio: (shares.programs - shares.user).max(0.0),
            irq_ratio: shares.interrupts,
            softirq_ratio: shares.softirqs,
            steal_ratio: shares.steal,
            idle_ratio: shares.idle,
        },
    };
    evidence.cpus().map(|cpus| cpus.iter().map(read).collect()).unwrap_or_default()
}

fn mean_of(cpus: &[CpuTime]) -> Option<CpuKinds> {
    let mean = |part: fn(&CpuKinds) -> f64| {
        cpus.iter().map(|time| part(&time.kinds)).sum::<f64>() / cpus.len() as f64
    };
    (!cpus.is_empty()).then(|| CpuKinds {
        user_ratio: mean(|kinds| kinds.user_ratio),
        system_ratio: mean(|kinds| kinds.system_ratio),
        irq_ratio: mean(|kinds| kinds.irq_ratio),
        softirq_ratio: mean(|kinds| kinds.softirq_ratio),
        steal_ratio: mean(|kinds| kinds.steal_ratio),
        idle_ratio: mean(|kinds| kinds.idle_ratio),
    })
}

fn read_losses(evidence: &Evidence<'_>, window_s: Option<f64>) -> Vec<PlaceLosses> {
    let Some(window_s) = window_s else { return Vec::new() };
    let statistics = ["rx_errors", "tx_errors", "rx_dropped", "tx_dropped"];
    let by_interface = statistics.iter().filter_map(|name| evidence.statistic(name));
    let counts = [
        by_interface.reduce(u64::saturating_add),
        evidence.lost_in_ring(),
        evidence.lost_in_backlogs(),
        evidence.dropped_by_qdiscs(),
        evidence.protocol_sum(&[
            "Udp.RcvbufErrors",
            "Udp.SndbufErrors",
            "Udp6.RcvbufErrors",
            "Udp6.SndbufErrors",
        ]),
        evidence.protocol_sum(&[
            "TcpExt.ListenDrops",
            "TcpExt.TCPBacklogDrop",
            "TcpExt.TCPRcvQDrop",
            "TcpExt.TCPZeroWindowDrop",
        ]),
    ];
    let seen = PLACES.into_iter().zip(counts);
    seen.filter_map(|(place, count)| Some(PlaceLosses { place, per_s: count? as f64 / window_s }))
        .collect()
}

fn read_delay(evidence: &Evidence<'_>) -> Option<PathDelay> {
    let active = evidence.active_connections()?;
    let mut times: Vec<f64> =
        active.iter().filter_map(|one| Some(one.now.figure("rtt")? * 1000.0)).collect();
    times.sort_by(f64::total_cmp);
    Some(PathDelay {
        connections: times.len() as u64,
        rtt_us_p50: *times.get(times.len() / 2)?,
        rtt_us_max: *times.last()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::testing::PlantedLooks;

    fn figures(looks: &PlantedLooks) -> PathFigures {
        PathFigures::from_evidence(&Evidence::from_snapshot(&looks.snapshot()))
    }

    fn statistic(name: &str) -> String {
        format!("sys/class/net/eth0/statistics/{name}")
    }

    #[test]
    fn rates_are_of_the_window() {
        let looks = PlantedLooks::new()
            .seconds(2)
            .text(&statistic("rx_packets"), "100\n", "300\n")
            .text(&statistic("rx_bytes"), "1000\n", "3000\n");
        let found = figures(&looks);
        assert_eq!((found.rx_pps, found.rx_bps), (Some(100.0), Some(8000.0)));
        assert_eq!((found.tx_pps, found.interrupts_per_s, found.delay), (None, None, None));
    }

    #[test]
    fn interrupts_are_told_by_queue() {
        let looks = PlantedLooks::new()
            .seconds(1)
            .text(&statistic("rx_packets"), "0\n", "600\n")
            .text("ethtool_-S_eth0", "rx_queue_1_packets: 10\n", "rx_queue_1_packets: 210\n")
            .text(
                "proc/interrupts",
                "  CPU0 CPU1\n 9: 0 0 PCI eth0-TxRx-1\n",
                "  CPU0 CPU1\n 9: 10 90 PCI eth0-TxRx-1\n",
            );
        let found = figures(&looks);
        assert_eq!(found.packets_per_interrupt, Some(6.0));
        let queue = &found.interrupts[0];
        assert_eq!((queue.number, queue.per_s, queue.packets_per_interrupt), (9, 100.0, Some(2.0)));
        assert_eq!((queue.cpus.as_slice(), queue.name.as_str()), (&[1, 0][..], "eth0-TxRx-1"));
    }

    #[test]
    fn losses_stay_in_the_packets_order() {
        let light = PlantedLooks::new().seconds(1).udp(&[("RcvbufErrors", 0, 5)]).text(
            &statistic("rx_missed_errors"),
            "0\n",
            "0\n",
        );
        let full =
            light.clone().text("ethtool_-S_eth0", "rx_missed_errors: 1\n", "rx_missed_errors: 8\n");
        let both = figures(&light).completed_by(&figures(&full));
        let told: Vec<(&str, f64)> =
            both.losses.iter().map(|lost| (lost.place, lost.per_s)).collect();
        assert_eq!(told, [("ring", 7.0), ("socket", 5.0)]);
    }

    #[test]
    fn delay_is_of_connections_that_moved_data() {
        let row = |port: u32, bytes: u32, rtt: &str| {
            format!(
                "ESTAB 0 0 10.0.0.1:22 10.0.0.2:{port}\n\t cubic rtt:{rtt}/1 bytes_received:{bytes}\n"
            )
        };
        let before = row(5000, 10, "9") + &row(5001, 10, "9");
        let after = row(5000, 20, "0.5") + &row(5001, 10, "9");
        let found =
            figures(&PlantedLooks::new().seconds(1).sockets(&before, &after)).delay.unwrap();
        assert_eq!((found.connections, found.rtt_us_p50, found.rtt_us_max), (1, 500.0, 500.0));
    }
}
