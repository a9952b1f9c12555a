//! Traffic between the looks: packets, losses on this host, and connections.

use std::collections::BTreeMap;

use super::{Evidence, QdiscGrowth};
use crate::parse::sockets::TcpSocket;

/// Counters of drivers for packets that were lost on receipt for want of a descriptor, a buffer or time.
const LOST_ON_RECEIPT: &[&str] = &[
    "rx_missed_errors",      // e1000e, igb, ixgbe
    "rx_no_dma_resources",   // ixgbe
    "rx_queue_*_drops",      // igb, virtio_net
    "port.rx_discards",      // i40e
    "port.rx_dropped",       // i40e before 6.13
    "rx_dropped.nic",        // ice
    "rx_alloc_fail",         // i40e
    "rx_out_of_buffer",      // mlx5
    "rx_discards_phy",       // mlx5
    "rx_total_discard_pkts", // bnxt
    "rx_drops",              // ena
    "rx_queue_drop_cnt*",    // gve
    "pkts rx OOB",           // vmxnet3
    "rx buf alloc fail",     // vmxnet3
];

/// A direction's counter by driver: the first family that is there counts all of it.
type Families = &'static [&'static [&'static str]];

const RECEIVED_PACKETS: Families = &[
    &["rx_packets"],                          // most
    &["rx_ucast_packets"],                    // tg3, bnx2
    &["rx_unicast"],                          // ice, iavf
    &["rx_queue_*_packets", "vf_rx_packets"], // virtio_net, hv_netvsc
    &["queue_*_rx_cnt"],                      // ena
    &["[*]: rx_ucast_packets"],               // bnxt, bnx2x
    &["ucast pkts rx"],                       // vmxnet3
    &["rxq*: rx_pkts"],                       // be2net
];
const SENT_PACKETS: Families = &[
    &["tx_packets"],
    &["tx_ucast_packets"],
    &["tx_unicast"],
    &["tx_queue_*_packets", "vf_tx_packets"],
    &["queue_*_tx_cnt"],
    &["[*]: tx_ucast_packets"],
    &["ucast pkts tx"],
    &["txq*: tx_pkts"],
];
const RECEIVED_BYTES: Families = &[
    &["rx_bytes"],
    &["rx_octets"],
    &["rx_queue_*_bytes", "vf_rx_bytes"],
    &["queue_*_rx_bytes"],
    &["[*]: rx_ucast_bytes"],
    &["ucast bytes rx"],
    &["rxq*: rx_bytes"],
];
const SENT_BYTES: Families = &[
    &["tx_bytes"],
    &["tx_octets"],
    &["tx_queue_*_bytes", "vf_tx_bytes"],
    &["queue_*_tx_bytes"],
    &["[*]: tx_ucast_bytes"],
    &["ucast bytes tx"],
    &["txq*: tx_bytes"],
];

/// The least part of its busy time in which a limit must stand against a connection.
const LEAST_LIMITED: f64 = 0.3;
/// A round trip of more than this times the shortest one waits in a queue: a larger window would only lengthen that queue.
const MOST_QUEUED: f64 = 2.0;
/// A window of fewer bytes than one large packet (GSO) keeps no path busy, however short.
const SMALL_WINDOW: f64 = 65_536.0;

/// A round trip of this many times the shortest one, and this much longer (ms), is not the path's.
const LEAST_HELD: f64 = 20.0;
const LEAST_HELD_MS: f64 = 2.0;
/// Fewer segments on their way may wait for a delayed acknowledgement.
const LEAST_SEGMENTS_HELD: f64 = 8.0;

/// Round trips without a segment, from which on a window that data waits for is closed.
const LEAST_SILENT: f64 = 5.0;

/// The part of a whole, 0 of nothing.
pub(crate) fn share_of(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// A share in percent, with two digits that count.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent >= 10.0 {
        format!("{percent:.0}%")
    } else if percent >= 1.0 {
        format!("{percent:.1}%")
    } else {
        format!("{percent:.2}%")
    }
}

/// A number of connections in words.
pub(crate) fn count_connections(count: u64) -> String {
    if count == 1 { "1 connection".to_owned() } else { format!("{count} connections") }
}

/// Growth of a connection's figures. Of one that is new, all since it began.
#[derive(Clone, Copy, Debug)]
pub struct SocketGrowth<'a> {
    /// As it is at the end.
    pub now: &'a TcpSocket,
    /// As it was at the beginning, if it was there.
    pub then: Option<&'a TcpSocket>,
}

impl SocketGrowth<'_> {
    /// Growth of a figure. ss(8) leaves out those that are 0. One that fell belongs to another connection of this address.
    pub fn grown(&self, name: &str) -> f64 {
        let now = self.now.figure(name).unwrap_or(0.0);
        let then = self.then.and_then(|then| then.figure(name)).unwrap_or(0.0);
        if then > now { now } else { now - then }
    }

    /// Bytes that were received or acknowledged.
    pub fn moved_bytes(&self) -> f64 {
        self.grown("bytes_received") + self.grown("bytes_acked")
    }

    /// The looks that have it.
    pub fn seen(&self) -> impl Iterator<Item = &TcpSocket> {
        self.then.into_iter().chain([self.now])
    }

    /// Whether this host is the server, by the ports: 32768 is where those of clients begin (`ip_local_port_range`).
    pub fn is_server(&self) -> Option<bool> {
        let port = |address: &str| address.rsplit_once(':')?.1.parse::<u16>().ok();
        let is_of_client = |address: &str| port(address).map(|port| port >= 32_768);
        match (is_of_client(&self.now.local)?, is_of_client(&self.now.peer)?) {
            (false, true) => Some(true),
            (true, false) => Some(false),
            _ => None,
        }
    }

    /// Whether requests and answers take turns, as far as segments with data tell: neither side sends three times as many.
    pub fn takes_turns(&self) -> bool {
        let (sent, received) = (self.grown("data_segs_out"), self.grown("data_segs_in"));
        sent <= received * 3.0 && received <= sent * 3.0
    }

    /// Whether a larger window would send more: the round trip has no queue in it, or the window is small on any path.
    fn would_send_more(&self) -> bool {
        let times = self.now.figure("rtt").zip(self.now.figure("minrtt"));
        let is_queued = times.is_some_and(|(now, shortest)| now > shortest * MOST_QUEUED);
        let in_flight =
            |look: &TcpSocket| Some(look.figure("unacked").unwrap_or(0.0) * look.figure("mss")?);
        let is_small =
            self.seen().all(|look| in_flight(look).is_some_and(|bytes| bytes <= SMALL_WINDOW));
        !is_queued || is_small || self.has_closed_window()
    }

    /// Whether the peer's window was closed at a look: data waits to be sent, none is on its way, and none was sent for some
    /// round trips. Of a small window that is open nothing is on its way for a moment, too. The shortest round trip is the path's:
    /// a reader that opens its window late makes the mean one longer.
    pub fn has_closed_window(&self) -> bool {
        let figure = |look: &TcpSocket, name: &str| look.figure(name).unwrap_or(0.0);
        self.seen().any(|look| {
            let is_stuck = figure(look, "unacked") <= 0.0 && figure(look, "notsent") > 0.0;
            // ss(8) leaves out times of 0, and older ones all of them.
            let tells_times =
                ["lastsnd", "lastrcv", "lastack"].iter().any(|name| look.figure(name).is_some());
            let round_trip = look.figure("minrtt").unwrap_or_else(|| figure(look, "rtt"));
            let is_late = figure(look, "lastsnd") > round_trip * LEAST_SILENT;
            is_stuck && (!tells_times || is_late)
        })
    }

    /// Whether the peer holds what it is sent: at both looks the round trip is far longer than the path's, with more on its way
    /// than a delayed acknowledgement explains, or a closed window.
    pub fn is_held_by_peer(&self) -> bool {
        let is_held = |look: &TcpSocket| {
            let times = look.figure("rtt").zip(look.figure("minrtt"));
            let is_long = times.is_some_and(|(now, shortest)| {
                now >= shortest * LEAST_HELD && now - shortest >= LEAST_HELD_MS
            });
            let unacked = look.figure("unacked").unwrap_or(0.0);
            let waits = look.figure("notsent").is_some_and(|bytes| bytes > 0.0);
            is_long && waits && (unacked <= 0.0 || unacked >= LEAST_SEGMENTS_HELD)
        };
        self.then.is_some() && self.seen().all(is_held)
    }
}

/// Time in which connections had data to send, and in which a limit stood against it.
#[derive(Clone, Copy, Debug)]
pub struct LimitedTime<'a> {
    /// Milliseconds with data to send, of all connections.
    pub busy_ms: f64,
    /// Milliseconds of those in which the limit stood against it; only of connections that it harms.
    pub limited_ms: f64,
    /// The connections that it harms.
    pub connections: u64,
    /// The one with most of that time.
    pub worst: SocketGrowth<'a>,
}

impl LimitedTime<'_> {
    /// The limited part of the busy time.
    pub fn share(&self) -> f64 {
        (self.limited_ms / self.busy_ms.max(1.0)).min(1.0)
    }
}

impl Evidence<'_> {
    /// Packets received: by the interface, else by its driver, else by the softirqs of all CPUs.
    pub fn received_packets(&self) -> Option<u64> {
        let counted = self.counted("rx_packets", RECEIVED_PACKETS);
        counted.or_else(|| Some(self.softnet()?.values().map(|row| row.processed).sum()))
    }

    /// Packets sent: by the interface, else by its driver.
    pub fn sent_packets(&self) -> Option<u64> {
        self.counted("tx_packets", SENT_PACKETS)
    }

    /// Bytes received: by the interface, else by its driver.
    pub fn received_bytes(&self) -> Option<u64> {
        self.counted("rx_bytes", RECEIVED_BYTES)
    }

    /// Bytes sent: by the interface, else by its driver.
    pub fn sent_bytes(&self) -> Option<u64> {
        self.counted("tx_bytes", SENT_BYTES)
    }

    /// A counter of the interface, else the first family of its driver.
    fn counted(&self, statistic: &str, families: Families) -> Option<u64> {
        let by_driver = || {
            families.iter().find_map(|family| {
                let counters = family.iter().flat_map(|pattern| self.driver_counters(pattern));
                // Those of XDP are a part of all.
                let own = counters.filter(|(name, _)| !name.contains("_xdp_"));
                own.map(|(_, count)| count).reduce(u64::saturating_add)
            })
        };
        self.statistic(statistic).or_else(by_driver)
    }

    /// Packets both ways: of the interface, else of the protocols. `None` where nothing tells.
    pub fn packets(&self) -> Option<u64> {
        let seen = [self.received_packets(), self.sent_packets()];
        let seen = seen.into_iter().flatten().reduce(u64::saturating_add);
        seen.or_else(|| self.protocol_sum(&["Ip.InReceives", "Ip.OutRequests"])).or_else(|| {
            self.protocol_sum(&["Udp.InDatagrams", "Udp.OutDatagrams", "Tcp.InSegs", "Tcp.OutSegs"])
        })
    }

    /// Growth of counters of the protocols, added up; `None` where none of them is there.
    pub fn protocol_sum(&self, names: &[&str]) -> Option<u64> {
        names.iter().filter_map(|name| self.protocol(name)).reduce(u64::saturating_add)
    }

    /// Segments that TCP sent again although their first copies had arrived, as the peers' second acknowledgements (DSACK)
    /// tell. One of those may tell of many segments, which newer kernels (5.10) count.
    pub fn needless_retransmits(&self) -> Option<u64> {
        let told = self.protocol_sum(&["TcpExt.TCPDSACKRecv", "TcpExt.TCPDSACKOfoRecv"]);
        told.max(self.protocol("TcpExt.TCPDSACKRecvSegs"))
    }

    /// The TCP connections of the last look, with their growth.
    pub fn connections(&self) -> Option<Vec<SocketGrowth<'_>>> {
        let [before, after] = self.sockets.as_ref()?;
        let known: BTreeMap<_, _> =
            before.iter().map(|socket| ((&socket.local, &socket.peer), socket)).collect();
        let grown = |now| SocketGrowth { now, then: known.get(&(&now.local, &now.peer)).copied() };
        Some(after.iter().map(grown).collect())
    }

    /// Connections that both looks have.
    pub fn lasting_connections(&self) -> Option<Vec<SocketGrowth<'_>>> {
        let all = self.connections()?;
        Some(all.into_iter().filter(|connection| connection.then.is_some()).collect())
    }

    /// Connections that moved data between the looks.
    pub fn active_connections(&self) -> Option<Vec<SocketGrowth<'_>>> {
        let all = self.connections()?;
        Some(all.into_iter().filter(|connection| connection.moved_bytes() > 0.0).collect())
    }

    /// Time in which this limit of ss(8) (`rwnd_limited`, `sndbuf_limited`) stood against connections that would otherwise
    /// have sent more. `None` where no connection had data to send.
    pub fn limited_time(&self, limit: &str) -> Option<LimitedTime<'_>> {
        let all = self.connections()?;
        let is_harmed = |connection: &SocketGrowth<'_>| {
            connection.would_send_more() || (limit == "rwnd_limited" && self.is_held(connection))
        };
        let mut busy_ms = 0.0;
        let mut limited: Vec<(f64, SocketGrowth<'_>)> = Vec::new();
        for connection in all {
            let (busy, time) = (connection.grown("busy"), connection.grown(limit));
            busy_ms += busy;
            if busy > 0.0 && time / busy >= LEAST_LIMITED && is_harmed(&connection) {
                limited.push((time, connection));
            }
        }
        let (_, worst) = *limited.iter().max_by(|one, other| one.0.total_cmp(&other.0))?;
        Some(LimitedTime {
            busy_ms,
            limited_ms: limited.iter().map(|(time, _)| time).sum(),
            connections: limited.len() as u64,
            worst,
        })
    }

    /// Whether the peer holds what a connection sends, and no queue of this host does.
    pub fn is_held(&self, connection: &SocketGrowth<'_>) -> bool {
        let stands = |row: &QdiscGrowth| row.now.backlog.min(row.backlog_before) > 0;
        connection.is_held_by_peer() && !self.qdiscs().is_some_and(|rows| rows.iter().any(stands))
    }

    /// Packets that this host lost on receipt before any protocol saw them: in the ring and in backlogs.
    pub fn lost_on_receipt(&self) -> u64 {
        self.lost_in_ring().unwrap_or(0).saturating_add(self.lost_in_backlogs().unwrap_or(0))
    }

    /// Packets that were lost on receipt for want of a descriptor, a buffer or time: by the driver or the interface.
    pub fn lost_in_ring(&self) -> Option<u64> {
        let by_interface = ["rx_missed_errors", "rx_fifo_errors"].map(|name| self.statistic(name));
        let by_interface = by_interface.into_iter().flatten().reduce(u64::saturating_add);
        self.driver(LOST_ON_RECEIPT).max(by_interface)
    }

    /// Packets for which the backlogs of the CPUs had no room.
    pub fn lost_in_backlogs(&self) -> Option<u64> {
        Some(self.softnet()?.values().map(|row| row.dropped).sum())
    }

    /// Packets that the queue disciplines of the interface dropped. A parent counts the drops of its children or not,
    /// depending on kind and kernel: the larger of both sums.
    pub fn dropped_by_qdiscs(&self) -> Option<u64> {
        let rows = self.qdiscs()?;
        let sum = |of_root: bool| -> u64 {
            rows.iter().filter(|row| row.now.root == of_root).map(|row| row.drops).sum()
        };
        Some(sum(true).max(sum(false)))
    }

    /// The part of the CPUs' busy time that programs used, and the busy part of all time.
    pub fn program_share(&self) -> Option<(f64, f64)> {
        let cpus = self.cpus()?;
        let busy: f64 = cpus.values().map(super::CpuShares::busy).sum();
        let programs: f64 = cpus.values().map(|cpu| cpu.programs).sum();
        Some((programs / busy.max(1e-9), busy / cpus.len() as f64))
    }
}

#[cfg(test)]
mod tests {
    use crate::evidence::Evidence;
    use crate::rules::testing::PlantedLooks;

    const HEAD: &str = "State Recv-Q Send-Q Local Address:Port Peer Address:Port\n";

    #[test]
    fn packets_need_a_counter() {
        let none = PlantedLooks::new().same("proc/uptime", "5 5\n").snapshot();
        assert_eq!(Evidence::from_snapshot(&none).packets(), None);
        let only_sent = "sys/class/net/eth0/statistics/tx_packets";
        let sent = PlantedLooks::new().text(only_sent, "5\n", "9\n").snapshot();
        assert_eq!(Evidence::from_snapshot(&sent).packets(), Some(4));
        let udp =
            PlantedLooks::new().udp(&[("InDatagrams", 5, 8), ("OutDatagrams", 1, 3)]).snapshot();
        assert_eq!(Evidence::from_snapshot(&udp).packets(), Some(5));
    }

    #[test]
    fn new_connection_grows_from_zero() {
        let old = "ESTAB 0 0 10.0.0.1:22 10.0.0.2:50000\n\t cubic bytes_received:500\n";
        let new = "ESTAB 0 0 10.0.0.1:22 10.0.0.2:50001\n\t cubic bytes_received:70\n";
        let later = old.replace("received:500", "received:900");
        let looks = PlantedLooks::new().text(
            "ss_-tin",
            &format!("{HEAD}{old}"),
            &format!("{HEAD}{later}{new}"),
        );
        let snapshot = looks.snapshot();
        let evidence = Evidence::from_snapshot(&snapshot);
        let grown: Vec<f64> =
            evidence.connections().unwrap().iter().map(|one| one.grown("bytes_received")).collect();
        assert!((grown[0] - 400.0).abs() < 1e-9 && (grown[1] - 70.0).abs() < 1e-9, "{grown:?}");
        assert_eq!(evidence.connections().unwrap()[0].is_server(), Some(true));
    }

    #[test]
    fn qdisc_drops_are_counted_once() {
        let rows = |drops: u64| {
            format!(
                r#"[{{"kind":"mq","dev":"eth0","root":true,"drops":{drops}}},
                {{"kind":"fq_codel","dev":"eth0","parent":":1","drops":{drops}}}]"#
            )
        };
        let looks = PlantedLooks::new().text("tc_-s_-j_qdisc", &rows(5), &rows(9)).snapshot();
        assert_eq!(Evidence::from_snapshot(&looks).dropped_by_qdiscs(), Some(4));
    }

    #[test]
    fn percent_has_digits_that_count() {
        let told = [0.5, 0.044, 0.0012].map(super::percent);
        assert_eq!(told, ["50%", "4.4%", "0.12%"]);
    }
}
