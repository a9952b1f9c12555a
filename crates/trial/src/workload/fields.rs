//! A workload from `field = text` pairs, as plans and the command line have them.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::str::FromStr;

use latput_units::{BitsPerSecond, Bytes, CpuSet, Nanos};

use super::{
    Arrivals, Binding, Direction, Distribution, Probe, SocketOptions, Think, Traffic, Workload,
};

/// Largest message on TCP.
const LARGEST_MESSAGE: u64 = 16 << 20;
/// Most connections of a workload.
const MOST_CONNECTIONS: u32 = 10_000;
/// Most threads of a workload at one end.
const MOST_THREADS: u32 = 256;
/// Largest UDP payload on IPv4: 65535 - 20 (IPv4 header) - 8 (UDP header).
const LARGEST_DATAGRAM: u64 = 65_507;

/// A field of a workload that is unknown, missing or impossible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct FieldError {
    /// The field.
    pub field: String,
    /// What is wrong with it and how to mend it.
    pub problem: String,
}

/// A workload from `field = text` pairs. Fields that a kind has and that are not given take their
/// defaults; a field that it does not have is an error.
pub fn from_fields(fields: &BTreeMap<String, String>) -> Result<Workload, FieldError> {
    let mut fields = Fields { rest: fields.clone(), label: String::new() };
    let kind = fields.text("kind").ok_or_else(|| FieldError {
        field: "kind".to_owned(),
        problem: format!("the workload has no `kind`: one of {}", Traffic::KINDS.join(", ")),
    })?;
    let given_name = fields.text("name");
    let traffic = traffic(&kind, &mut fields)?;
    let (sockets, binding, count) = match traffic {
        Traffic::Ping { .. } => Default::default(),
        _ => (fields.sockets(&traffic)?, fields.binding()?, fields.optional_count("count")?),
    };
    let label = fields.label.clone(); // what is beside the traffic does not name it
    let probe = match fields.small_count("probe_hz", 0, 0..=10_000)? {
        0 => None,
        rate_hz => Some(Probe { rate_hz }),
    };
    if let Some((field, _)) = fields.rest.first_key_value() {
        return Err(error(field, format!("a `{kind}` workload has no field `{field}`")));
    }
    let name = given_name.unwrap_or_else(|| format!("{kind}{label}"));
    if name.is_empty() || name.len() > 80 || name.chars().any(char::is_control) {
        return Err(error("name", "a `name` has 1 to 80 printable characters"));
    }
    Ok(Workload { name, traffic, sockets, binding, count, probe })
}

#[expect(clippy::too_many_lines, reason = "a table: one arm to a kind")]
fn traffic(kind: &str, fields: &mut Fields) -> Result<Traffic, FieldError> {
    let bulk = |direction, fields: &mut Fields| {
        let traffic = Traffic::TcpBulk {
            direction,
            message_bytes: fields.message("message_bytes", 32_768)?,
            connections: fields.connections()?,
            threads: fields.threads()?,
            rate: fields.rate()?,
            vectored: fields.yes_or_no("vectored", true)?,
        };
        Ok(traffic)
    };
    Ok(match kind {
        "tcp_rr" => Traffic::TcpRr {
            request_bytes: fields.message("request_bytes", 1)?,
            response_bytes: fields.message("response_bytes", 1)?,
            burst: fields.small_count("burst", 0, 0..=65_535)?,
            connections: fields.connections()?,
            threads: fields.threads()?,
            nodelay: fields.yes_or_no("nodelay", true)?,
            arrivals: fields.arrivals()?,
        },
        "tcp_crr" => Traffic::TcpCrr {
            request_bytes: fields.message("request_bytes", 1)?,
            response_bytes: fields.message("response_bytes", 1)?,
            connections: fields.connections()?,
            threads: fields.threads()?,
            nodelay: fields.yes_or_no("nodelay", true)?,
        },
        "tcp_stream" => return bulk(Direction::ToSut, fields),
        "tcp_maerts" => return bulk(Direction::FromSut, fields),
        "tcp_bidir" => return bulk(Direction::Both, fields),
        "udp_stream" => Traffic::UdpStream {
            datagram_bytes: Bytes::new(fields.count(
                "datagram_bytes",
                1448,
                64..=LARGEST_DATAGRAM,
            )?),
            rate: fields.rate()?,
            connections: fields.connections()?,
            threads: fields.threads()?,
            segmentation: fields.yes_or_no("segmentation", true)?,
        },
        "udp_rr" => Traffic::UdpRr {
            request_bytes: Bytes::new(fields.count("request_bytes", 64, 32..=LARGEST_DATAGRAM)?),
            response_bytes: Bytes::new(fields.count(
                "response_bytes",
                64,
                32..=LARGEST_DATAGRAM,
            )?),
            burst: fields.small_count("burst", 0, 0..=1023)?,
            connections: fields.connections()?,
            threads: fields.threads()?,
            timeout: fields.time(
                "timeout",
                Nanos::from_ms(200),
                Nanos::from_ms(1)..=Nanos::from_s(10),
            )?,
            arrivals: fields.arrivals()?,
        },
        "fetch" => Traffic::Fetch {
            object_bytes: Bytes::new(fields.count("object_bytes", 1_000_000, 1..=1 << 40)?),
            connections: fields.connections()?,
            threads: fields.threads()?,
        },
        "rpc_read" => Traffic::RpcRead {
            clients: fields.small_count("clients", 3, 1..=MOST_THREADS)?,
            outstanding: fields.small_count("outstanding", 8, 1..=1024)?,
            read_bytes: fields.message("read_bytes", 32_768)?,
            think: Think {
                mean: fields.time("think", Nanos::ZERO, Nanos::ZERO..=Nanos::from_s(1))?,
                distribution: fields.distribution("think_distribution")?,
            },
        },
        "ping" => Traffic::Ping {
            rate_hz: fields.small_count("rate_hz", 1000, 1..=10_000)?,
            payload_bytes: Bytes::new(fields.count("payload_bytes", 56, 16..=LARGEST_DATAGRAM)?),
        },
        other => {
            let kinds = Traffic::KINDS.join(", ");
            let problem = format!("no workload is of kind `{other}`: there are {kinds}");
            return Err(error("kind", problem));
        }
    })
}

fn error(field: &str, problem: impl Into<String>) -> FieldError {
    FieldError { field: field.to_owned(), problem: problem.into() }
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
        Ok(match self.optional(field, wanted)? {
            Some((value, text)) => {
                if value != default {
                    self.label.extend([" ", field, "=", &text]);
                }
                value
            }
            None => default,
        })
    }

    fn optional<T: FromStr>(
        &mut self,
        field: &str,
        wanted: &str,
    ) -> Result<Option<(T, String)>, FieldError> {
        let Some(text) = self.text(field) else { return Ok(None) };
        match text.parse() {
            Ok(value) => Ok(Some((value, text))),
            Err(_) => Err(error(field, format!("`{field}` must be {wanted}, not `{text}`"))),
        }
    }

    fn count(
        &mut self,
        field: &str,
        default: u64,
        range: RangeInclusive<u64>,
    ) -> Result<u64, FieldError> {
        let wanted = format!("a whole number from {} to {}", range.start(), range.end());
        let given = self.rest.get(field).cloned();
        let value = self.parsed(field, default, &wanted)?;
        if range.contains(&value) {
            return Ok(value);
        }
        let given = given.unwrap_or_default();
        Err(error(field, format!("`{field}` must be {wanted}, not `{given}`")))
    }

    fn small_count(
        &mut self,
        field: &str,
        default: u32,
        range: RangeInclusive<u32>,
    ) -> Result<u32, FieldError> {
        let range = u64::from(*range.start())..=u64::from(*range.end());
        let value = self.count(field, u64::from(default), range)?;
        Ok(u32::try_from(value).expect("checked against a range of u32"))
    }

    fn optional_count(&mut self, field: &str) -> Result<Option<u64>, FieldError> {
        match self.count(field, 0, 0..=u64::MAX >> 1)? {
            0 => Ok(None),
            count => Ok(Some(count)),
        }
    }

    fn connections(&mut self) -> Result<u32, FieldError> {
        self.small_count("connections", 1, 1..=MOST_CONNECTIONS)
    }

    fn threads(&mut self) -> Result<u32, FieldError> {
        self.small_count("threads", 1, 1..=MOST_THREADS)
    }

    fn message(&mut self, field: &str, default: u64) -> Result<Bytes, FieldError> {
        self.count(field, default, 1..=LARGEST_MESSAGE).map(Bytes::new)
    }

    fn yes_or_no(&mut self, field: &str, default: bool) -> Result<bool, FieldError> {
        self.parsed(field, default, "`true` or `false`")
    }

    fn time(
        &mut self,
        field: &str,
        default: Nanos,
        range: RangeInclusive<Nanos>,
    ) -> Result<Nanos, FieldError> {
        let (low, high) = (range.start(), range.end());
        let wanted = format!("a time from {low} to {high}, such as `50us`");
        let given = self.rest.get(field).cloned();
        let value = self.parsed(field, default, &wanted)?;
        if range.contains(&value) {
            return Ok(value);
        }
        let given = given.unwrap_or_default();
        Err(error(field, format!("`{field}` must be {wanted}, not `{given}`")))
    }

    fn distribution(&mut self, field: &str) -> Result<Distribution, FieldError> {
        let Some(text) = self.text(field) else { return Ok(Distribution::default()) };
        let distribution = match text.as_str() {
            "exponential" => return Ok(Distribution::Exponential),
            "fixed" => Distribution::Fixed,
            _ => {
                let problem = format!("`{field}` must be `exponential` or `fixed`, not `{text}`");
                return Err(error(field, problem));
            }
        };
        self.label.extend([" ", field, "=", &text]);
        Ok(distribution)
    }

    /// An open loop, if there is a `rate_per_s`.
    fn arrivals(&mut self) -> Result<Option<Arrivals>, FieldError> {
        let has_burst = self.label.contains(" burst=");
        let has_gaps = self.rest.contains_key("gaps");
        let rate_per_s = self.small_count("rate_per_s", 0, 0..=100_000_000)?;
        let gaps = self.distribution("gaps")?;
        match rate_per_s {
            0 if has_gaps => Err(error("gaps", "`gaps` is about an open loop: give `rate_per_s`")),
            0 => Ok(None),
            _ if has_burst => {
                let problem = "`burst` is about a closed loop: leave out `burst` or `rate_per_s`";
                Err(error("burst", problem))
            }
            _ => Ok(Some(Arrivals { rate_per_s, gaps })),
        }
    }

    /// A payload rate; none, or `max`: as fast as it goes.
    fn rate(&mut self) -> Result<Option<BitsPerSecond>, FieldError> {
        let Some(text) = self.text("rate") else { return Ok(None) };
        if text == "max" {
            return Ok(None);
        }
        let rate: BitsPerSecond =
            text.parse().map_err(|problem| error("rate", format!("`rate`: {problem}")))?;
        if !(1_000..=1_000_000_000_000).contains(&rate.get()) {
            let problem = format!("`rate` must be `max` or from 1kbps to 1000Gbps, not `{text}`");
            return Err(error("rate", problem));
        }
        self.label.extend([" rate=", &rate.to_string()]);
        Ok(Some(rate))
    }

    fn sockets(&mut self, traffic: &Traffic) -> Result<SocketOptions, FieldError> {
        let is_tcp = !matches!(traffic, Traffic::UdpStream { .. } | Traffic::UdpRr { .. });
        Ok(SocketOptions {
            send_buffer: self.buffer("send_buffer_bytes")?,
            receive_buffer: self.buffer("receive_buffer_bytes")?,
            congestion: if is_tcp { self.congestion()? } else { None },
            busy_poll: match self.time("busy_poll", Nanos::ZERO, Nanos::ZERO..=Nanos::from_s(1))? {
                Nanos::ZERO => None,
                time => Some(time),
            },
            prefer_busy_poll: self.yes_or_no("prefer_busy_poll", false)?,
        })
    }

    fn buffer(&mut self, field: &str) -> Result<Option<Bytes>, FieldError> {
        Ok(match self.count(field, 0, 0..=1 << 30)? {
            0 => None,
            bytes => Some(Bytes::new(bytes)),
        })
    }

    fn congestion(&mut self) -> Result<Option<String>, FieldError> {
        /// `TCP_CA_NAME_MAX` of `include/net/tcp.h`, with its end.
        const NAME_MAX: usize = 16;
        let Some(text) = self.text("congestion") else { return Ok(None) };
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if text.is_empty() || text.len() >= NAME_MAX || !text.chars().all(is_name) {
            let problem = format!(
                "`congestion` must be the name of a congestion control, such as `cubic`, not `{text}`"
            );
            return Err(error("congestion", problem));
        }
        self.label.extend([" congestion=", &text]);
        Ok(Some(text))
    }

    fn binding(&mut self) -> Result<Binding, FieldError> {
        Ok(Binding { sut: self.cpus("sut_cpus")?, generator: self.cpus("generator_cpus")? })
    }

    fn cpus(&mut self, field: &str) -> Result<Option<CpuSet>, FieldError> {
        let given: Option<(CpuSet, String)> = self.optional(field, "CPUs such as `0-3,8`")?;
        let Some((cpus, text)) = given else { return Ok(None) };
        if cpus.is_empty() {
            return Err(error(field, format!("`{field}` must name at least one CPU")));
        }
        self.label.extend([" ", field, "=", &text]);
        Ok(Some(cpus))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_defaults_and_its_own_name() {
        for kind in Traffic::KINDS {
            let workload = parsed(&format!("kind={kind}")).unwrap();
            assert_eq!((workload.traffic.kind(), workload.name.as_str()), (*kind, *kind));
        }
    }

    #[test]
    fn fields_off_their_default_name_the_workload() {
        check_name(
            "kind=tcp_rr burst=16 connections=100 threads=2",
            "tcp_rr burst=16 connections=100 threads=2",
        );
        check_name("kind=tcp_rr rate_per_s=9000 gaps=fixed", "tcp_rr rate_per_s=9000 gaps=fixed");
        check_name("kind=tcp_maerts connections=1 rate=1Gbps", "tcp_maerts rate=1Gbps");
        check_name(
            "kind=tcp_stream congestion=reno sut_cpus=0-1",
            "tcp_stream congestion=reno sut_cpus=0-1",
        );
        check_name("kind=udp_stream rate=max connections=10", "udp_stream connections=10");
        check_name(
            "kind=rpc_read think=50us think_distribution=fixed",
            "rpc_read think=50us think_distribution=fixed",
        );
        check_name("kind=fetch connections=500 probe_hz=1000", "fetch connections=500");
        check_name("kind=tcp_bidir vectored=false", "tcp_bidir vectored=false");
        check_name("kind=tcp_stream send_buffer_bytes=131072 count=9 name=mine", "mine");
    }

    #[test]
    fn what_a_kind_lacks_or_cannot_be_is_refused_by_field() {
        check_bad("kind=tcp_rr message_bytes=1", "message_bytes");
        check_bad("kind=tcp_rr connections=0", "connections");
        check_bad("kind=fetch connections=10001", "connections");
        check_bad("kind=tcp_crr burst=1", "burst");
        check_bad("kind=tcp_rr rate_per_s=5 burst=2", "burst");
        check_bad("kind=udp_rr timeout=1us", "timeout");
        check_bad("kind=udp_rr congestion=cubic", "congestion");
        check_bad("kind=tcp_stream congestion=../../etc", "congestion");
        check_bad("kind=tcp_stream generator_cpus=none", "generator_cpus");
        check_bad("kind=ping sut_cpus=1", "sut_cpus");
        check_bad("kind=udp_stream rate=10bps", "rate");
        check_bad("kind=tcp_stream vectored=maybe", "vectored");
        check_bad("kind=fetch vectored=true", "vectored");
        check_bad("kind=rpc_read think_distribution=normal", "think_distribution");
    }

    fn parsed(text: &str) -> Result<Workload, FieldError> {
        let fields = text.split(' ').map(|pair| pair.split_once('=').unwrap());
        from_fields(&fields.map(|(k, v)| (k.to_owned(), v.to_owned())).collect())
    }

    #[track_caller]
    fn check_name(text: &str, name: &str) {
        assert_eq!(parsed(text).unwrap().name, name);
    }

    #[track_caller]
    fn check_bad(text: &str, field: &str) {
        assert_eq!(parsed(text).unwrap_err().field, field);
    }
}
