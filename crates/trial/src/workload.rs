//! The traffic of a trial.

use std::collections::BTreeMap;
use std::str::FromStr;

use latput_units::{BitsPerSecond, Bytes};
use serde::{Deserialize, Serialize};

/// One load, and what observes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Short and unique in its plan: `tcp_rr burst=16`.
    pub name: String,
    /// What flows between the load generator and the system under test.
    pub traffic: Traffic,
    /// A latency probe beside the traffic.
    pub probe: Option<Probe>,
}

/// What flows between the load generator and the system under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Traffic {
    /// Request and response on TCP, closed loop: a response lets the next request go.
    TcpRr {
        /// Size of a request.
        request_bytes: Bytes,
        /// Size of a response.
        response_bytes: Bytes,
        /// Requests in flight on each connection beside the first (netperf's "first burst").
        burst: u32,
        /// Connections, all on one thread of each end.
        connections: u32,
        /// Whether `TCP_NODELAY` is set at both ends.
        nodelay: bool,
    },
    /// Bulk from the generator to the system under test on TCP.
    TcpStream {
        /// Size of one send.
        message_bytes: Bytes,
        /// Connections, all on one thread of each end.
        connections: u32,
    },
    /// Datagrams from the generator to the system under test, paced.
    UdpStream {
        /// Payload of one datagram.
        datagram_bytes: Bytes,
        /// Offered payload rate, evenly spaced.
        rate: BitsPerSecond,
    },
}

impl Traffic {
    /// The kinds there are, for errors and help.
    pub const KINDS: &[&str] = &["tcp_rr", "tcp_stream", "udp_stream"];

    /// The name that plans and the command line use.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::TcpRr { .. } => "tcp_rr",
            Self::TcpStream { .. } => "tcp_stream",
            Self::UdpStream { .. } => "udp_stream",
        }
    }
}

/// ICMP echo at a fixed rate beside the traffic, sent by the generator: latency under load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// Echo requests per second, evenly spaced whatever comes back.
    pub rate_hz: u32,
}

/// A field of a workload that is unknown, missing or impossible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct FieldError {
    /// The field.
    pub field: String,
    /// What is wrong with it and how to mend it.
    pub problem: String,
}

/// A workload from `field = text` pairs, as plans and the command line have them. Fields that a kind
/// has and that are not given take their defaults; a field that it does not have is an error.
pub fn from_fields(fields: &BTreeMap<String, String>) -> Result<Workload, FieldError> {
    let mut fields = Fields { rest: fields.clone(), label: String::new() };
    let kind = fields.text("kind").ok_or_else(|| FieldError {
        field: "kind".to_owned(),
        problem: format!("the workload has no `kind`: one of {}", Traffic::KINDS.join(", ")),
    })?;
    let given_name = fields.text("name");
    let traffic = match kind.as_str() {
        "tcp_rr" => Traffic::TcpRr {
            request_bytes: Bytes::new(fields.count("request_bytes", 1, 1..=1 << 24)?),
            response_bytes: Bytes::new(fields.count("response_bytes", 1, 1..=1 << 24)?),
            burst: fields.small_count("burst", 0, 0..=65_535)?,
            connections: fields.small_count("connections", 1, 1..=1_000)?,
            nodelay: fields.parsed("nodelay", true, "`true` or `false`")?,
        },
        "tcp_stream" => Traffic::TcpStream {
            message_bytes: Bytes::new(fields.count("message_bytes", 32_768, 1..=1 << 24)?),
            connections: fields.small_count("connections", 1, 1..=1_000)?,
        },
        "udp_stream" => Traffic::UdpStream {
            datagram_bytes: Bytes::new(fields.count("datagram_bytes", 1470, 64..=65_507)?),
            rate: fields.rate()?,
        },
        other => {
            let problem = format!(
                "no workload is of kind `{other}`: there are {}",
                Traffic::KINDS.join(", ")
            );
            return Err(FieldError { field: "kind".to_owned(), problem });
        }
    };
    let label = fields.label.clone(); // what is beside the traffic does not name it
    let probe = match fields.small_count("probe_hz", 0, 0..=10_000)? {
        0 => None,
        rate_hz => Some(Probe { rate_hz }),
    };
    if let Some((field, _)) = fields.rest.first_key_value() {
        let problem = format!("a `{kind}` workload has no field `{field}`");
        return Err(FieldError { field: field.clone(), problem });
    }
    let name = given_name.unwrap_or_else(|| format!("{kind}{label}"));
    if name.is_empty() || name.len() > 80 || name.chars().any(char::is_control) {
        let problem = "a `name` has 1 to 80 printable characters".to_owned();
        return Err(FieldError { field: "name".to_owned(), problem });
    }
    Ok(Workload { name, traffic, probe })
}

/// The fields not yet used, and the label that the ones off their default make.
struct Fields {
    rest: BTreeMap<String, String>,
    label: String,
}

impl Fields {
    fn text(&mut self, field: &str) -> Option<String> {
        self.rest.remove(field)
    }

    fn parsed<T: FromStr + PartialEq>(
        &mut self,
        field: &str,
        default: T,
        wanted: &str,
    ) -> Result<T, FieldError> {
        let Some(text) = self.text(field) else { return Ok(default) };
        let value = text.parse().map_err(|_| FieldError {
            field: field.to_owned(),
            problem: format!("`{field}` must be {wanted}, not `{text}`"),
        })?;
        if value != default {
            self.label.extend([" ", field, "=", &text]);
        }
        Ok(value)
    }

    fn count(
        &mut self,
        field: &str,
        default: u64,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<u64, FieldError> {
        let wanted = format!("a whole number from {} to {}", range.start(), range.end());
        let given = self.rest.get(field).cloned();
        let value = self.parsed(field, default, &wanted)?;
        if range.contains(&value) {
            return Ok(value);
        }
        let problem = format!("`{field}` must be {wanted}, not `{}`", given.unwrap_or_default());
        Err(FieldError { field: field.to_owned(), problem })
    }

    fn small_count(
        &mut self,
        field: &str,
        default: u32,
        range: std::ops::RangeInclusive<u32>,
    ) -> Result<u32, FieldError> {
        let range = u64::from(*range.start())..=u64::from(*range.end());
        let value = self.count(field, u64::from(default), range)?;
        Ok(u32::try_from(value).expect("checked against a range of u32"))
    }

    fn rate(&mut self) -> Result<BitsPerSecond, FieldError> {
        let error = |problem: String| FieldError { field: "rate".to_owned(), problem };
        let text = self.text("rate").ok_or_else(|| {
            error("a `udp_stream` workload needs a `rate`, such as `rate = \"200Mbps\"`".to_owned())
        })?;
        let rate: BitsPerSecond =
            text.parse().map_err(|problem| error(format!("`rate`: {problem}")))?;
        if !(1_000..=1_000_000_000_000).contains(&rate.get()) {
            return Err(error(format!("`rate` must be from 1kbps to 1000Gbps, not `{text}`")));
        }
        self.label.extend([" rate=", &rate.to_string()]);
        Ok(rate)
    }
}
