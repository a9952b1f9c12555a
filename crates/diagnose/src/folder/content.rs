//! Kinds of texts, by their content.

use crate::parse::counters::{parse_driver, parse_nstat, parse_protocols};
use crate::parse::cpus::{parse_softirqs, parse_softnet, parse_stat};
use crate::parse::interrupts::parse_interrupts;
use crate::parse::qdiscs::parse_qdiscs;

/// First lines of `ethtool`, up to the interface, with the option that prints them.
const ETHTOOL_HEADS: &[(&str, &str)] = &[
    ("Coalesce parameters for ", "-c"),
    ("Ring parameters for ", "-g"),
    ("Channel parameters for ", "-l"),
    ("Features for ", "-k"),
    ("Pause parameters for ", "-a"),
    ("RX flow hash indirection table for ", "-x"),
];

/// The kind of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TextKind {
    /// A file of the kernel or the output of a command, by its name in a look.
    Named(&'static str),
    /// The output of `ethtool` with an option, and the interface that it names.
    Ethtool(&'static str, Option<String>),
}

/// Tells by the first line and the whole whether a text is of a kind.
type Recogniser = fn(&str, &str) -> bool;

impl TextKind {
    /// Tells the kind of a text.
    pub(super) fn recognise(text: &str) -> Option<Self> {
        let first = text.lines().map(str::trim).find(|line| !line.is_empty())?;
        if let Some(kind) = recognise_ethtool(first) {
            return Some(kind);
        }
        let named: &[(&'static str, Recogniser)] = &[
            ("tc_-s_-j_qdisc", |first, text| {
                (first.starts_with('[') || first.starts_with("qdisc "))
                    && parse_qdiscs(text).is_some()
            }),
            ("ss_-tin", |first, _| first.starts_with("State ")),
            ("nstat_-az", |first, _| first.starts_with("#kernel")),
            ("proc/net/snmp6", |first, text| {
                first.starts_with("Ip6") && parse_nstat(text).is_some()
            }),
            ("proc/net/stat/nf_conntrack", |first, _| {
                first.starts_with("entries ") && first.contains(" early_drop")
            }),
            ("proc/net/netstat", |first, text| {
                is_netstat(first) && parse_protocols(text).is_some()
            }),
            ("proc/net/snmp", |_, text| parse_protocols(text).is_some()),
            ("proc/softirqs", |_, text| text.contains("NET_RX:") && parse_softirqs(text).is_some()),
            ("proc/interrupts", |_, text| parse_interrupts(text).is_some()),
            ("proc/stat", |first, text| first.starts_with("cpu") && parse_stat(text).is_some()),
            ("proc/net/softnet_stat", |_, text| is_softnet(text)),
            ("proc/uptime", |_, text| is_uptime(text)),
        ];
        let found = named.iter().find(|(_, fits)| fits(first, text));
        found
            .map(|(name, _)| Self::Named(name))
            .or_else(|| is_driver(text).then_some(Self::Ethtool("-S", None)))
    }
}

fn recognise_ethtool(first: &str) -> Option<TextKind> {
    if first == "NIC statistics:" {
        return Some(TextKind::Ethtool("-S", None));
    }
    ETHTOOL_HEADS.iter().find_map(|(head, option)| {
        let name = first.strip_prefix(head)?.split([' ', ':']).next()?;
        Some(TextKind::Ethtool(option, Some(name.to_owned())))
    })
}

fn is_netstat(first: &str) -> bool {
    ["TcpExt:", "IpExt:", "MPTcpExt:"].iter().any(|group| first.starts_with(group))
}

/// Whether a text is rows of at least nine numbers of eight hexadecimal digits.
fn is_softnet(text: &str) -> bool {
    let is_row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.len() >= 9 && words.iter().all(|word| word.len() == 8)
    };
    text.lines().all(is_row) && parse_softnet(text).is_some()
}

fn is_uptime(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.len() == 2 && words.iter().all(|word| word.contains('.') && word.parse::<f64>().is_ok())
}

/// Whether every line is a name and a count.
fn is_driver(text: &str) -> bool {
    let is_counter = |line: &str| {
        line.trim().is_empty()
            || line.rsplit_once(':').is_some_and(|(_, count)| count.trim().parse::<u64>().is_ok())
    };
    text.lines().all(is_counter) && parse_driver(text).is_some()
}

/// Keeps the TCP connections of an output of ss(8) for all kinds of sockets, whose first column is the kind.
pub(super) fn keep_tcp(text: String) -> String {
    if !text.starts_with("Netid") {
        return text;
    }
    let (mut kept, mut is_kept) = (String::new(), false);
    for (line, idx) in text.lines().zip(0..) {
        let is_detail = line.starts_with([' ', '\t']);
        if !is_detail {
            is_kept = idx == 0 || line.starts_with("tcp ");
        }
        if is_kept {
            let rest = if is_detail {
                line
            } else {
                line.split_once(' ').map_or("", |(_, rest)| rest.trim_start())
            };
            kept.push_str(rest);
            kept.push('\n');
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::sockets::parse_sockets;

    #[test]
    fn kinds_are_told_by_content() {
        for (text, name) in [
            ("TcpExt: A\nTcpExt: 1\n", "proc/net/netstat"),
            ("Ip: A\nIp: 1\nUdp: B\nUdp: 2\n", "proc/net/snmp"),
            ("          CPU0 CPU1\n NET_TX: 1 2\n NET_RX: 30 40\n", "proc/softirqs"),
            ("  CPU0\n 24: 5 PCI eth0\n", "proc/interrupts"),
            ("cpu  9 9 9 9 9 9 9 9\ncpu0 1 2 3 4 5 6 7 8 0 0\n", "proc/stat"),
            ("[{\"kind\":\"mq\",\"dev\":\"eth0\"}]", "tc_-s_-j_qdisc"),
            (
                "qdisc mq 0: dev eth0 root\n Sent 5 bytes 1 pkt (dropped 0, overlimits 0 requeues 0)\n",
                "tc_-s_-j_qdisc",
            ),
            ("State Recv-Q Send-Q Local Address:Port Peer Address:Port\n", "ss_-tin"),
            ("#kernel\nIpInReceives 9 0.0\n", "nstat_-az"),
            ("Ip6InReceives \t9\nUdp6InDatagrams \t9\n", "proc/net/snmp6"),
            ("1234.50 99.20\n", "proc/uptime"),
        ] {
            assert_eq!(TextKind::recognise(text), Some(TextKind::Named(name)), "{text}");
        }
    }

    #[test]
    fn ethtool_names_its_interface_or_not() {
        let of = |text: &str| TextKind::recognise(text);
        assert_eq!(
            of("Coalesce parameters for ens1:\nrx-usecs: 3\n"),
            Some(TextKind::Ethtool("-c", Some("ens1".into())))
        );
        let table = "RX flow hash indirection table for eth0 with 8 RX ring(s):\n 0: 0 1\n";
        assert_eq!(of(table), Some(TextKind::Ethtool("-x", Some("eth0".into()))));
        assert_eq!(of("NIC statistics:\n  rx: 5\n"), Some(TextKind::Ethtool("-S", None)));
        assert_eq!(of("rx_pause: 5\ntx_pause: 0\n"), Some(TextKind::Ethtool("-S", None)));
        assert_eq!(of("EvidenceSource: somewhere\n"), None);
        assert_eq!(of("\n"), None);
    }

    #[test]
    fn connections_of_all_sockets_are_kept() {
        let text = "Netid State Recv-Q Send-Q Local Address:Port Peer Address:Port\n\
            u_str ESTAB 0 0 * 5 * 6\nudp UNCONN 0 0 0.0.0.0:53 0.0.0.0:*\n\t skmem:(r0)\n\
            tcp   ESTAB 0 7 10.0.0.1:22 10.0.0.2:5000\n\t cubic rtt:3/1\n";
        let found = parse_sockets(&keep_tcp(text.to_owned())).unwrap();
        assert_eq!((found.len(), found[0].send_queue, found[0].figure("rtt")), (1, 7, Some(3.0)));
    }
}
