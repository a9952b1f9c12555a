//! Two looks at a host: the texts of its files and of the outputs of tools, by name.
//!
//! Names are those of a folder as a support ticket has it: a path without its first slash (`proc/net/softnet_stat`), or
//! the words of a command joined by `_` (`ethtool_-S_eth0`).

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::parse::counters::{parse_interfaces, parse_number};
use crate::parse::qdiscs::parse_qdiscs;
use crate::stages::StageRecord;

/// The version of the JSON document.
pub const SCHEMA: u32 = 1;
/// The most bytes of one text: `/proc/interrupts` of 512 CPUs with 2,000 vectors has some 12 MB.
pub const LARGEST_TEXT: usize = 16 << 20;
/// The most bytes of a document.
pub const LARGEST_DOCUMENT: usize = 100 << 20;
/// The interface of counters that name none, as help texts have it.
pub(crate) const UNNAMED: &str = "IFACE";
/// The part of the packets of several interfaces that makes one of them the one that is meant.
const ALMOST_ALL: f64 = 0.95;
/// The most texts of a look.
const MOST_TEXTS: usize = 20_000;

/// A snapshot that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The document is no JSON, is cut, or lacks a part.
    #[error("not a snapshot of latput: {0}")]
    Document(#[from] serde_json::Error),
    /// The document is of another version.
    #[error(
        "the snapshot has schema {0}, this latput reads {SCHEMA}: use the latput that made it, or a newer one"
    )]
    Schema(u32),
    /// A part is larger than any host makes it.
    #[error("{name} has {size} bytes, more than the {most} that are read")]
    Size {
        /// The text, or the document.
        name: String,
        /// Its bytes.
        size: usize,
        /// The limit.
        most: usize,
    },
    /// There are more texts than any host makes.
    #[error("the snapshot has {0} texts, more than {MOST_TEXTS}")]
    Count(usize),
    /// The folder has neither of the two looks.
    #[error("there are no folders `before` and `after`, and no counters in two files")]
    NoLooks,
    /// No text names an interface, or several do.
    #[error("{0}: name the interface with --interface")]
    Interface(String),
}

/// The texts of one look, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Look(BTreeMap<String, String>);

impl Look {
    /// Adds a text; names may begin with a slash.
    pub fn insert(&mut self, name: &str, text: String) {
        self.0.insert(name.trim_start_matches('/').to_owned(), text);
    }

    /// The text of this name.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The texts whose names begin so, with the rest of each name.
    pub fn texts_below<'a>(&'a self, start: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let from = self.0.range(start.to_owned()..);
        from.map_while(move |(name, text)| Some((name.strip_prefix(start)?, text.as_str())))
    }

    /// Whether nothing was seen.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn check_size(&self) -> Result<(), SnapshotError> {
        if self.0.len() > MOST_TEXTS {
            return Err(SnapshotError::Count(self.0.len()));
        }
        let large = self.0.iter().find(|(_, text)| text.len() > LARGEST_TEXT);
        large.map_or(Ok(()), |(name, text)| {
            Err(SnapshotError::Size { name: name.clone(), size: text.len(), most: LARGEST_TEXT })
        })
    }
}

/// Two looks at a host and one of its interfaces.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Snapshot {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The interface that is judged.
    pub interface: String,
    /// Seconds between the looks, by the clock of whoever took them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_s: Option<f64>,
    /// The look at the beginning.
    pub before: Look,
    /// The look at the end.
    pub after: Look,
    /// Waits of packets between the looks; absent where nobody traced them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stages: Option<StageRecord>,
}

impl Snapshot {
    /// Makes a snapshot of two looks. Without a name the interface is that of their only device (`device` in sysfs), of
    /// their only interface beside `lo`, of the only command that names one, or the only one that has traffic.
    pub fn from_looks(
        interface: Option<&str>,
        before: Look,
        after: Look,
    ) -> Result<Self, SnapshotError> {
        if before.is_empty() || after.is_empty() {
            return Err(SnapshotError::NoLooks);
        }
        let interface = interface
            .map_or_else(|| find_interface(&before, &after), |name| Ok(name.to_owned()))?;
        let made = Self { schema: SCHEMA, interface, window_s: None, before, after, stages: None };
        made.check_size()?;
        Ok(made)
    }

    /// Reads the JSON document.
    pub fn parse(document: &str) -> Result<Self, SnapshotError> {
        if document.len() > LARGEST_DOCUMENT {
            return Err(SnapshotError::Size {
                name: "the document".to_owned(),
                size: document.len(),
                most: LARGEST_DOCUMENT,
            });
        }
        let Version { schema } = serde_json::from_str(document)?;
        if schema != SCHEMA {
            return Err(SnapshotError::Schema(schema));
        }
        let snapshot: Self = serde_json::from_str(document)?;
        snapshot.check_size()?;
        Ok(snapshot)
    }

    fn check_size(&self) -> Result<(), SnapshotError> {
        self.before.check_size()?;
        self.after.check_size()
    }
}

/// The part that every version of the document has.
#[derive(Deserialize)]
struct Version {
    schema: u32,
}

/// The interface of two looks that nobody named.
fn find_interface(before: &Look, look: &Look) -> Result<String, SnapshotError> {
    let mut named: BTreeMap<&str, bool> = BTreeMap::new();
    for (rest, _) in look.texts_below("sys/class/net/") {
        let Some((name, attribute)) = rest.split_once('/') else { continue };
        *named.entry(name).or_default() |= attribute.starts_with("device/");
    }
    for (rest, _) in look.texts_below("ethtool_") {
        if let Some((_, name)) = rest.split_once('_').filter(|(option, _)| option.starts_with('-'))
        {
            *named.entry(name).or_default() |= true;
        }
    }
    named.remove("lo");
    if named.is_empty()
        && let Some(only) = find_only_row(look)
    {
        return Ok(only);
    }
    let devices: Vec<&str> =
        named.iter().filter(|(_, is_device)| **is_device).map(|(name, _)| *name).collect();
    let all: Vec<&str> = named.keys().copied().collect();
    let candidates = if devices.is_empty() { &all } else { &devices };
    if let Some(busiest) = find_busiest(candidates, [before, look]) {
        return Ok(busiest.to_owned());
    }
    match (devices.as_slice(), all.as_slice()) {
        ([only], _) | (_, [only]) => Ok((*only).to_owned()),
        // Two files of counters name no interface, and need none.
        (_, []) => Ok(UNNAMED.to_owned()),
        (_, several) => Err(SnapshotError::Interface(format!(
            "the snapshot has {} interfaces ({})",
            several.len(),
            several.iter().take(5).copied().collect::<Vec<_>>().join(", ")
        ))),
    }
}

/// The only interface beside `lo` in the table of the kernel, or in that of the queue disciplines.
fn find_only_row(look: &Look) -> Option<String> {
    let rows = look.text("proc/net/dev").and_then(parse_interfaces).unwrap_or_default();
    let qdiscs = look.text("tc_-s_-j_qdisc").and_then(parse_qdiscs).unwrap_or_default();
    let tables: [BTreeSet<String>; 2] =
        [rows.into_keys().collect(), qdiscs.into_iter().map(|row| row.dev).collect()];
    tables.into_iter().find_map(|mut names| {
        names.retain(|name| !name.is_empty() && name != "lo");
        if names.len() == 1 { names.pop_first() } else { None }
    })
}

/// The interface that has almost all packets of these between the looks: hosts have ports without a cable.
fn find_busiest<'a>(names: &[&'a str], looks: [&Look; 2]) -> Option<&'a str> {
    let rows =
        looks.map(|look| look.text("proc/net/dev").and_then(parse_interfaces).unwrap_or_default());
    let packets = |name: &str| {
        let count = |at: usize, counter: &str| {
            let of_row = || rows[at].get(name)?.get(counter).copied();
            looks[at]
                .text(&format!("sys/class/net/{name}/statistics/{counter}"))
                .and_then(parse_number)
                .or_else(of_row)
        };
        let grown = |counter| count(1, counter)?.checked_sub(count(0, counter)?);
        ["rx_packets", "tx_packets"].into_iter().filter_map(grown).fold(0, u64::saturating_add)
    };
    let counted: Vec<(u64, &str)> = names.iter().map(|name| (packets(name), *name)).collect();
    let all = counted.iter().map(|(count, _)| *count).fold(0, u64::saturating_add);
    let (most, busiest) = counted.into_iter().max_by_key(|(count, _)| *count)?;
    (most > 0 && most as f64 >= all as f64 * ALMOST_ALL).then_some(busiest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(names: &[&str]) -> Look {
        let mut look = Look::default();
        for name in names {
            look.insert(name, "1\n".to_owned());
        }
        look
    }

    #[test]
    fn document_survives_a_round_trip() {
        let names = ["/proc/net/softnet_stat", "sys/class/net/eth0/mtu"];
        let mut made = Snapshot::from_looks(None, look(&names), look(&names)).unwrap();
        made.window_s = Some(30.0);
        let text = serde_json::to_string(&made).unwrap();
        assert_eq!(Snapshot::parse(&text).unwrap(), made);
        assert_eq!(made.before.text("proc/net/softnet_stat"), Some("1\n"));
        assert!(Snapshot::parse(&text[..text.len() / 2]).is_err(), "a cut document");
        let newer = text.replace("\"schema\":1", "\"schema\":2");
        assert!(Snapshot::parse(&newer).unwrap_err().to_string().contains("schema 2"));
    }

    #[test]
    fn interface_is_found_or_asked_for() {
        let found = |names: &[&str]| {
            Snapshot::from_looks(None, look(names), look(names)).map(|made| made.interface)
        };
        assert_eq!(found(&["sys/class/net/lo/mtu", "sys/class/net/eth0/mtu"]).unwrap(), "eth0");
        let device = "sys/class/net/eth1/device/numa_node";
        assert_eq!(found(&["sys/class/net/br0/mtu", device]).unwrap(), "eth1");
        assert_eq!(found(&["ethtool_-S_ens1"]).unwrap(), "ens1");
        assert_eq!(found(&["proc/stat"]).unwrap(), UNNAMED);
        let mut copies = Look::default();
        let row = "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0";
        copies.insert("proc/net/dev", format!("lo: {row}\nens3: {row}\n"));
        let copies = Snapshot::from_looks(None, copies.clone(), copies).unwrap();
        assert_eq!(copies.interface, "ens3");
        let mut queues = Look::default();
        queues.insert(
            "tc_-s_-j_qdisc",
            r#"[{"kind":"noqueue","dev":"lo"},{"kind":"mq","dev":"p1"}]"#.to_owned(),
        );
        assert_eq!(Snapshot::from_looks(None, queues.clone(), queues).unwrap().interface, "p1");
        let several = found(&["sys/class/net/a/mtu", "sys/class/net/b/mtu"]).unwrap_err();
        assert!(several.to_string().contains("2 interfaces (a, b)"), "{several}");
        assert!(Snapshot::from_looks(None, look(&[]), look(&["x"])).is_err());
    }

    #[test]
    fn only_interface_with_traffic_is_taken() {
        let counted = |counts: [u32; 2]| {
            let mut look = look(&[]);
            for (name, count) in ["eth0", "eth1"].into_iter().zip(counts) {
                let path = format!("sys/class/net/{name}/statistics/rx_packets");
                look.insert(&path, format!("{count}\n"));
            }
            look
        };
        let found = |after: [u32; 2]| Snapshot::from_looks(None, counted([5, 5]), counted(after));
        assert_eq!(found([9, 900]).unwrap().interface, "eth1");
        assert!(found([900, 900]).is_err() && found([5, 5]).is_err());
    }

    #[test]
    fn huge_text_is_refused_by_name() {
        let mut huge = look(&["sys/class/net/eth0/mtu"]);
        huge.insert("proc/interrupts", "x".repeat(LARGEST_TEXT + 1));
        let refused = Snapshot::from_looks(None, huge.clone(), huge).unwrap_err();
        assert!(refused.to_string().starts_with("proc/interrupts has"), "{refused}");
    }
}
