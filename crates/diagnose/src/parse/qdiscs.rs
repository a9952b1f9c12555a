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

/// Reads the JSON of `tc -s -j qdisc`.
pub(crate) fn parse_qdiscs(text: &str) -> Option<Vec<QdiscRow>> {
    serde_json::from_str(text).ok()
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
}
