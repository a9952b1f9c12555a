//! Connections that are told of together, beside all of them: those of a port, or of a peer.

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

/// Most groups beside [`TcpGroup::Others`]: those with the most payload.
pub const MOST_GROUPS: usize = 16;

/// Property by which TCP connections are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupBy {
    /// The service's port: this host's if it listens there, otherwise the other end's.
    Port,
    /// The other end's address.
    Peer,
}

/// Some of the TCP connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum TcpGroup {
    /// To a port that this host listens on.
    Local(u16),
    /// To a port of another host.
    Remote(u16),
    /// With this host.
    Peer(IpAddr),
    /// All that are in no group of their own.
    Others,
}

impl GroupBy {
    /// The name in plans and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Port => "port",
            Self::Peer => "peer",
        }
    }
}

impl FromStr for GroupBy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = [Self::Port, Self::Peer].into_iter().find(|by| by.name() == text);
        found.ok_or_else(|| "connections are told apart by `port` or by `peer`".to_owned())
    }
}

impl TcpGroup {
    /// Property by which it was made; `None` for the others.
    pub const fn by(self) -> Option<GroupBy> {
        match self {
            Self::Local(_) | Self::Remote(_) => Some(GroupBy::Port),
            Self::Peer(_) => Some(GroupBy::Peer),
            Self::Others => None,
        }
    }
}

impl fmt::Display for TcpGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(port) => write!(f, "local:{port}"),
            Self::Remote(port) => write!(f, "remote:{port}"),
            Self::Peer(address) => write!(f, "{address}"),
            Self::Others => f.write_str("others"),
        }
    }
}

impl FromStr for TcpGroup {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let port = |start: &str| text.strip_prefix(start)?.parse::<u16>().ok();
        let found = match (port("local:"), port("remote:")) {
            (Some(port), _) => Some(Self::Local(port)),
            (_, Some(port)) => Some(Self::Remote(port)),
            _ if text == "others" => Some(Self::Others),
            _ => text.parse().ok().map(Self::Peer),
        };
        found.ok_or_else(|| "no group of TCP connections".to_owned())
    }
}

impl TryFrom<String> for TcpGroup {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<TcpGroup> for String {
    fn from(group: TcpGroup) -> Self {
        group.to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn groups_round_trip_also_as_keys() {
        let groups = ["local:443", "remote:5432", "10.0.0.7", "fd00::1", "others"];
        let map: BTreeMap<TcpGroup, u8> = groups.map(|it| (it.parse().unwrap(), 1)).into();
        assert_eq!(map.keys().map(TcpGroup::to_string).collect::<Vec<_>>(), groups);
        let text = serde_json::to_string(&map).unwrap();
        assert_eq!(serde_json::from_str::<BTreeMap<TcpGroup, u8>>(&text).unwrap(), map);
        for wrong in ["", "443", "local:", "local:70000", "local:-1", "10.0.0.7:443", "Others"] {
            assert!(wrong.parse::<TcpGroup>().is_err(), "{wrong}");
        }
        assert_eq!("peer".parse(), Ok(GroupBy::Peer));
        assert!("host".parse::<GroupBy>().unwrap_err().contains("`port`"));
    }
}
