//! Queue disciplines with their counters.

use serde::Deserialize;

/// A queue discipline as `tc -s -j qdisc` prints it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct QdiscRow {
    /// Its kind, such as `fq_codel`.
    pub kind: String,
    /// Its handle, such as `8001:`.
    #[serde(default)]
    pub handle: String,
    /// The interface.
    #[serde(default)]
    pub dev: String,
    /// Whether it is the root.
    #[serde(default)]
    pub root: bool,
    /// The class above it.
    #[serde(default)]
    pub parent: Option<String>,
    /// Bytes sent.
    #[serde(default)]
    pub bytes: u64,
    /// Packets sent.
    #[serde(default)]
    pub packets: u64,
    /// Packets dropped.
    #[serde(default)]
    pub drops: u64,
    /// Times that its rate or limit stood against a packet.
    #[serde(default)]
    pub overlimits: u64,
    /// Packets that the driver gave back.
    #[serde(default)]
    pub requeues: u64,
    /// Bytes that wait now.
    #[serde(default)]
    pub backlog: u64,
    /// Packets that wait now.
    #[serde(default)]
    pub qlen: u64,
    /// Its options: `limit`, `rate`, `burst`.
    #[serde(default)]
    pub options: serde_json::Value,
}

/// Reads `tc -s -j qdisc`, or the text of `tc -s qdisc`.
pub(crate) fn parse_qdiscs(text: &str) -> Option<Vec<QdiscRow>> {
    if text.trim_start().starts_with('[') {
        return serde_json::from_str(text).ok();
    }
    let mut found: Vec<QdiscRow> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["qdisc", kind, handle, rest @ ..] => found.push(read_head(kind, handle, rest)),
            ["Sent", bytes, "bytes", packets, _, rest @ ..] => {
                let row = found.last_mut()?;
                row.bytes = bytes.parse().ok()?;
                row.packets = packets.parse().ok()?;
                let count = |name: &str| {
                    word_after(rest, name)?.trim_end_matches([',', ')']).parse::<u64>().ok()
                };
                row.drops = count("(dropped")?;
                row.overlimits = count("overlimits")?;
                row.requeues = count("requeues")?;
            }
            ["backlog", bytes, packets, ..] => {
                let row = found.last_mut()?;
                row.backlog = parse_size(bytes)?;
                row.qlen = packets.strip_suffix('p')?.parse().ok()?;
            }
            _ => {}
        }
    }
    (!found.is_empty()).then_some(found)
}

/// Reads `qdisc tbf 8001: dev eth0 root refcnt 2 rate 1Mbit limit 10Kb`.
fn read_head(kind: &str, handle: &str, rest: &[&str]) -> QdiscRow {
    let mut options = serde_json::Map::new();
    if let Some(rate) = word_after(rest, "rate") {
        options.insert("rate".to_owned(), rate.into());
    }
    let limit = word_after(rest, "limit");
    let limit = limit.and_then(|limit| parse_size(limit.strip_suffix('p').unwrap_or(limit)));
    if let Some(limit) = limit {
        options.insert("limit".to_owned(), limit.into());
    }
    QdiscRow {
        kind: kind.to_owned(),
        handle: handle.to_owned(),
        dev: word_after(rest, "dev").unwrap_or_default().to_owned(),
        root: rest.contains(&"root"),
        parent: word_after(rest, "parent").map(str::to_owned),
        options: options.into(),
        ..QdiscRow::default()
    }
}

fn word_after<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    let at = words.iter().position(|word| *word == name)?;
    words.get(at + 1).copied()
}

/// Bytes of a size such as `5b` or `12Kb`, or a bare number.
fn parse_size(text: &str) -> Option<u64> {
    let text = text.strip_suffix('b').unwrap_or(text);
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let shift = match unit {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_of_tc_is_read() {
        let text = r#"[{"kind":"tbf","handle":"8001:","dev":"eth0","root":true,"options":{"rate":1250000},"bytes":5,
            "packets":4,"drops":3,"overlimits":2,"requeues":1,"backlog":10,"qlen":6}]"#;
        let found = parse_qdiscs(text).unwrap();
        assert_eq!((found[0].kind.as_str(), found[0].drops, found[0].root), ("tbf", 3, true));
        assert_eq!(parse_qdiscs(&text[..40]), None);
    }

    #[test]
    fn text_of_tc_is_read() {
        let text = "qdisc mq 0: dev eth0 root \n Sent 9 bytes 8 pkt (dropped 7, overlimits 6 requeues 5) \n backlog 0b 0p requeues 5\n\
                    qdisc tbf 8001: dev eth0 parent :1 rate 10Mbit burst 32Kb lat 1.2s \n \
                    Sent 100 bytes 90 pkt (dropped 3, overlimits 20 requeues 0) \n backlog 12Kb 9p requeues 0\n";
        let found = parse_qdiscs(text).unwrap();
        assert_eq!((found[0].kind.as_str(), found[0].root, found[0].drops), ("mq", true, 7));
        assert_eq!((found[1].parent.as_deref(), found[1].overlimits), (Some(":1"), 20));
        assert_eq!((found[1].backlog, found[1].qlen), (12 << 10, 9));
        assert_eq!(found[1].options["rate"], "10Mbit");
        assert_eq!(parse_qdiscs("no qdisc here\n"), None);
    }
}
