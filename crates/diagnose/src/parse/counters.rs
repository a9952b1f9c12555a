//! Counters by name.

use std::collections::BTreeMap;

/// Counters by name.
pub(crate) type Counters = BTreeMap<String, u64>;

/// The largest count that is believed, the largest whole number that a float has exactly: two days of bytes at 400 Gbit/s.
/// Texts that were edited have larger ones.
pub(crate) const MOST_COUNT: u64 = 1 << 53;

/// Reads `/proc/net/snmp` and `/proc/net/netstat`: pairs of lines, of names and of values. A counter's name is
/// `Udp.SndbufErrors`. Negative values (`Tcp.MaxConn`) are no counters.
pub(crate) fn parse_protocols(text: &str) -> Option<Counters> {
    let mut found = Counters::new();
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    while let Some(names) = lines.next() {
        let (group, names) = names.split_once(':')?;
        let (same, values) = lines.next()?.split_once(':')?;
        if group != same {
            return None;
        }
        let (names, values) = (names.split_whitespace(), values.split_whitespace());
        if names.clone().count() != values.clone().count() {
            return None;
        }
        for (name, value) in names.zip(values) {
            match value.parse() {
                Ok(count) => drop(found.insert(format!("{group}.{name}"), count)),
                Err(_) if value.parse::<i64>().is_ok() => {}
                Err(_) => return None,
            }
        }
    }
    (!found.is_empty()).then_some(found)
}

/// The groups of names in `nstat -az`, which joins group and name: longest first.
const NSTAT_GROUPS: [&str; 12] = [
    "TcpExt", "IpExt", "MPTcpExt", "UdpLite6", "UdpLite", "IcmpMsg", "Icmp6", "Icmp", "Udp6",
    "Ip6", "Tcp", "Udp",
];

/// Reads `nstat -az`: a name, a count, a rate. `UdpSndbufErrors` is `Udp.SndbufErrors`.
pub(crate) fn parse_nstat(text: &str) -> Option<Counters> {
    let mut found = Counters::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let (Some(name), Some(count)) = (words.next(), words.next()) else { continue };
        let group = NSTAT_GROUPS.into_iter().find(|group| name.starts_with(group)).unwrap_or("Ip");
        let name = name.strip_prefix(group).unwrap_or(name);
        found.insert(format!("{group}.{name}"), count.parse().ok()?);
    }
    (!found.is_empty()).then_some(found)
}

/// Reads `ethtool -S`: a heading, then `name: count`. Drivers indent as they like, and some names have spaces. Names that
/// come again (vmxnet3 has all of them for each queue) are added up.
pub(crate) fn parse_driver(text: &str) -> Option<Counters> {
    let mut found = Counters::new();
    for line in text.lines() {
        let Some((name, count)) = line.rsplit_once(':') else { continue };
        if let Ok(count) = count.trim().parse::<u64>() {
            let sum = found.entry(name.trim().to_owned()).or_default();
            *sum = sum.saturating_add(count);
        }
    }
    (!found.is_empty()).then_some(found)
}

/// Columns of `/proc/net/dev` by the names in `/sys/class/net/IFACE/statistics` (`dev_seq_printf_stats` of the kernel's
/// net/core/net-procfs.c); an empty name is a sum of several.
const DEVICE_COLUMNS: [&str; 16] = [
    "rx_bytes",
    "rx_packets",
    "rx_errors",
    "",
    "rx_fifo_errors",
    "",
    "rx_compressed",
    "multicast",
    "tx_bytes",
    "tx_packets",
    "tx_errors",
    "tx_dropped",
    "tx_fifo_errors",
    "collisions",
    "",
    "tx_compressed",
];

/// Reads `/proc/net/dev`: two lines of headings, then a row for each interface.
pub(crate) fn parse_interfaces(text: &str) -> Option<BTreeMap<String, Counters>> {
    let mut found = BTreeMap::new();
    for line in text.lines().filter(|line| !line.contains('|')) {
        let (name, counts) = line.split_once(':')?;
        let counts: Vec<u64> =
            counts.split_whitespace().map(str::parse::<u64>).collect::<Result<_, _>>().ok()?;
        if counts.len() < DEVICE_COLUMNS.len() {
            return None;
        }
        let named = DEVICE_COLUMNS.iter().zip(counts).filter(|(column, _)| !column.is_empty());
        let row = named.map(|(column, count)| ((*column).to_owned(), count)).collect();
        found.insert(name.trim().to_owned(), row);
    }
    (!found.is_empty()).then_some(found)
}

/// Reads a file with one number.
pub(crate) fn parse_number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// Reads lines of a name and a count, as `cpu.stat` of a control group has them.
pub(crate) fn parse_pairs(text: &str) -> Option<Counters> {
    let pairs = text.lines().map(|line| {
        let (name, count) = line.split_once(' ')?;
        Some((name.to_owned(), count.trim().parse().ok()?))
    });
    let found = pairs.collect::<Option<Counters>>()?;
    (!found.is_empty()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_are_pairs_of_lines() {
        let text = "Tcp: RtoMin MaxConn RetransSegs\nTcp: 200 -1 7\nUdp: SndbufErrors\nUdp: 4100\n";
        let found = parse_protocols(text).unwrap();
        assert_eq!(found["Tcp.RetransSegs"], 7);
        assert_eq!(found["Udp.SndbufErrors"], 4100);
        assert!(!found.contains_key("Tcp.MaxConn"));
        assert_eq!(parse_protocols("Tcp: A B\nTcp: 1\n"), None, "a value is missing");
        assert_eq!(parse_protocols("Tcp: A\n"), None, "cut");
        assert_eq!(parse_protocols("Tcp: A\nUdp: 1\n"), None);
        assert_eq!(parse_protocols("Tcp: A\nTcp: x\n"), None);
        assert_eq!(parse_protocols(""), None);
    }

    #[test]
    fn device_rows_are_named_as_in_sysfs() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes    packets errs |bytes\n    lo: 9 9 0 0 0 0 0 0 9 9 0 0 0 0 0 0\n\
                    eth0:500 4 3 2 1 0 0 7 600 8 0 5 0 0 0 0\n";
        let found = parse_interfaces(text).unwrap();
        let eth0 = &found["eth0"];
        assert_eq!((eth0["rx_bytes"], eth0["rx_packets"], eth0["tx_packets"]), (500, 4, 8));
        assert_eq!((eth0["rx_fifo_errors"], eth0["tx_dropped"], eth0.len()), (1, 5, 13));
        assert_eq!(parse_interfaces("eth0: 5 4\n"), None, "cut");
    }

    #[test]
    fn nstat_names_are_split_by_group() {
        let text =
            "#kernel\nIpInReceives 9 0.0\nUdpSndbufErrors 4 0.0\nTcpExtListenOverflows 3 0.0\n";
        let found = parse_nstat(text).unwrap();
        assert_eq!(found["Ip.InReceives"], 9);
        assert_eq!(found["Udp.SndbufErrors"], 4);
        assert_eq!(found["TcpExt.ListenOverflows"], 3);
        let of_ipv6 = parse_nstat("Ip6InReceives \t9\nUdp6RcvbufErrors \t2\n").unwrap();
        assert_eq!((of_ipv6["Ip6.InReceives"], of_ipv6["Udp6.RcvbufErrors"]), (9, 2));
    }

    #[test]
    fn driver_counters_are_read_with_or_without_heading() {
        let text = "NIC statistics:\n     rx_pause_ctrl_phy: 141\n     [3]: rx_drops: 2\n";
        let found = parse_driver(text).unwrap();
        assert_eq!(found["rx_pause_ctrl_phy"], 141);
        assert_eq!(found["[3]: rx_drops"], 2);
        let by_queue = "Rx Queue#: 0\n  pkts rx OOB: 5\nRx Queue#: 1\n  pkts rx OOB: 4\n";
        assert_eq!(parse_driver(by_queue).unwrap()["pkts rx OOB"], 9);
        assert_eq!(parse_driver("no stats available\n"), None);
    }
}
