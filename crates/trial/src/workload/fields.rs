//! Builds a workload from `field = text` pairs of plans and the command line.

use std::collections::BTreeMap;

use latput_units::{BitsPerSecond, Bytes, CpuSet, Nanos, spelling};

use super::facts::{KindFacts, TrafficMaker, TrafficProtocol};
use super::field::{Field, FieldError, FieldUnit};
use super::kinds::{COMMAND, LIVE, WorkloadKind};
use super::values::Values;
use super::{Binding, EpollBusyPoll, Probe, SocketOptions, Traffic, Workload};
use crate::live::Live;
use crate::program::Program;

/// Socket options at both ends; all kinds but `ping` have them.
pub const SOCKET_FIELDS: [Field; 7] = [
    Field::bytes("send_buffer_bytes", 0, (1, 1 << 30), "`SO_SNDBUF`").off_by_default(),
    Field::bytes("receive_buffer_bytes", 0, (1, 1 << 30), "`SO_RCVBUF`").off_by_default(),
    Field::time("busy_poll", Nanos::ZERO, (Nanos::from_ns(1), Nanos::from_s(1)), "`SO_BUSY_POLL`")
        .off_by_default(),
    Field::switch("prefer_busy_poll", false, "`SO_PREFER_BUSY_POLL`"),
    Field::time(
        "epoll_busy_poll",
        Nanos::ZERO,
        (Nanos::from_us(1), Nanos::from_s(1)),
        "time that epoll polls the device's queue; TCP only",
    )
    .off_by_default(),
    Field::count("epoll_busy_poll_budget", 8, (1, u16::MAX as u64), "packets of such a poll"),
    Field::switch("epoll_prefer_busy_poll", false, "such polls hold interrupts off"),
];

/// The window ends early after this many units.
pub const COUNT: Field =
    Field::count("count", 0, (1, u64::MAX >> 1), "units after which the window ends")
        .off_by_default();

/// ICMP echo beside the traffic.
pub const PROBE_HZ: Field = Field::per_second(
    "probe_hz",
    None,
    (1, 10_000),
    "ICMP echo requests per second beside the traffic",
);

/// Builds a workload from `field = text` pairs. Missing fields take their defaults.
///
/// # Errors
///
/// An unknown kind, a field that the kind does not have, or a value that is out of range.
pub fn from_fields(fields: &BTreeMap<String, String>) -> Result<Workload, FieldError> {
    workload(fields, Around::default())
}

/// Builds a workload that runs programs, from the other `field = text` pairs.
///
/// # Errors
///
/// As [`from_fields`]; or a command that no host could run.
pub fn build_program_workload(
    fields: &BTreeMap<String, String>,
    program: Program,
) -> Result<Workload, FieldError> {
    let mut fields = fields.clone();
    fields.entry("kind".to_owned()).or_insert_with(|| COMMAND.to_owned());
    workload(&fields, Around { program: Some(program), live: None })
}

/// Builds a workload that watches what flows anyway, from the other `field = text` pairs.
///
/// # Errors
///
/// As [`from_fields`]; or what no host could watch.
pub fn build_live_workload(
    fields: &BTreeMap<String, String>,
    live: Live,
) -> Result<Workload, FieldError> {
    let mut fields = fields.clone();
    fields.entry("kind".to_owned()).or_insert_with(|| LIVE.to_owned());
    workload(&fields, Around { program: None, live: Some(live) })
}

/// Parts of a workload beside its fields.
#[derive(Default)]
struct Around {
    program: Option<Program>,
    live: Option<Live>,
}

fn workload(fields: &BTreeMap<String, String>, around: Around) -> Result<Workload, FieldError> {
    let mut fields = Fields { rest: fields.clone(), label: String::new() };
    let name = fields.text("kind").ok_or_else(|| {
        let kinds = Traffic::KINDS.join(", ");
        error("kind", format!("the workload has no `kind`: one of {kinds}"))
    })?;
    let kind = WorkloadKind::find(&name)?;
    let given_name = fields.text("name");
    let traffic = fields.traffic(kind)?;
    let KindFacts { maker, protocol, .. } = kind.facts;
    let (sockets, binding) = match protocol.filter(|protocol| protocol.has_sockets()) {
        Some(protocol) => (fields.sockets(protocol)?, fields.binding()?),
        None => Default::default(),
    };
    let is_countable = match maker {
        TrafficMaker::Latput => !traffic.is_echo(),
        TrafficMaker::Programs => true,
        TrafficMaker::Host => false,
    };
    let count = if is_countable { fields.number(&COUNT)? } else { None };
    let label = fields.label.clone(); // the probe does not name the workload
    let probe = fields.number(&PROBE_HZ)?.map(|rate_hz| Probe { rate_hz: small(rate_hz) });
    if let Some((field, _)) = fields.rest.first_key_value() {
        let names: Vec<&str> = kind.fields.iter().map(|field| field.name).collect();
        let all = names.iter().copied().chain(fields_of_all());
        let meant = spelling::nearest_name(field, all)
            .map_or(String::new(), |meant| format!(": did you mean `{meant}`?"));
        let problem = format!(
            "a `{}` workload has no field `{field}`{meant}; its own are {}",
            kind.name,
            names.join(", ")
        );
        return Err(error(field, problem));
    }
    let live = live(maker, around.live, probe)?;
    let program = match (maker == TrafficMaker::Programs, around.program) {
        (true, Some(program)) => {
            program.check(count).map_err(|(field, problem)| error(field, problem))?;
            if probe.is_some() && !program.runs_by_time() {
                let problem = "a probe has the length of the window: tell the command how long to run, by {duration_s}";
                return Err(error(PROBE_HZ.name, problem));
            }
            Some(Box::new(program))
        }
        (true, None) => {
            let problem = "a `command` workload has no `command`: on the command line give `--command 'wrk ...'`, in a \
                           plan `command = [\"wrk\", ...]`";
            return Err(error("command", problem));
        }
        (false, None) => None,
        (false, Some(_)) => {
            let problem = format!("only `kind = \"command\"` has a `command`, not `{}`", kind.name);
            return Err(error("kind", problem));
        }
    };
    let kind_name = program.as_ref().map_or(kind.name, |program| program.name());
    let name = given_name.unwrap_or_else(|| format!("{kind_name}{label}"));
    if name.is_empty() || name.len() > 80 || name.chars().any(char::is_control) {
        return Err(error("name", "a `name` has 1 to 80 printable characters"));
    }
    Ok(Workload { name, traffic, sockets, binding, count, probe, program, live })
}

/// Scope of a live workload; `None` for any other.
fn live(
    maker: TrafficMaker,
    live: Option<Live>,
    probe: Option<Probe>,
) -> Result<Option<Box<Live>>, FieldError> {
    if maker != TrafficMaker::Host {
        return match live {
            None => Ok(None),
            Some(_) => Err(error("kind", "only `kind = \"live\"` watches existing traffic")),
        };
    }
    if probe.is_some() {
        let problem = "a `live` workload has no probe: latput makes no traffic beside it";
        return Err(error(PROBE_HZ.name, problem));
    }
    let live = live.unwrap_or_default();
    live.check().map_err(|(field, problem)| error(field, problem))?;
    Ok(Some(Box::new(live)))
}

/// The fields that a workload has beside those of its kind.
fn fields_of_all() -> impl Iterator<Item = &'static str> {
    let named = ["name", "congestion", "sut_cpus", "generator_cpus", COUNT.name, PROBE_HZ.name];
    SOCKET_FIELDS.iter().map(|field| field.name).chain(named)
}

fn small(value: u64) -> u32 {
    u32::try_from(value).expect("the field's range is within 32 bits")
}

fn error(field: &str, problem: impl Into<String>) -> FieldError {
    FieldError::new(field, problem)
}

/// The unused fields, and the label made of those with other values than their defaults.
struct Fields {
    rest: BTreeMap<String, String>,
    label: String,
}

impl Fields {
    fn text(&mut self, field: &str) -> Option<String> {
        self.rest.remove(field)
    }

    /// The field's value; `None` where it is off.
    fn number(&mut self, field: &Field) -> Result<Option<u64>, FieldError> {
        let Some(text) = self.text(field.name) else { return Ok(field.default) };
        let value = field.parse(&text)?;
        if value != field.default {
            let text = match (field.unit, value) {
                (FieldUnit::BitRate, Some(rate)) => BitsPerSecond::new(rate).to_string(),
                _ => text,
            };
            self.label.extend([" ", field.name, "=", &text]);
        }
        Ok(value)
    }

    fn traffic(&mut self, kind: &WorkloadKind) -> Result<Traffic, FieldError> {
        let has_gaps = self.rest.contains_key("gaps");
        let mut values = Values::default();
        for field in kind.fields {
            values.0.insert(field.name, self.number(field)?);
        }
        let traffic = (kind.build)(&values);
        let has_burst = values.0.get("burst").is_some_and(|burst| *burst != Some(0));
        match traffic.arrivals() {
            None if has_gaps && values.0.contains_key("gaps") => {
                Err(error("gaps", "`gaps` is for an open loop: give `rate_per_s`"))
            }
            Some(_) if has_burst => {
                let problem = "`burst` is for a closed loop: leave out `burst` or `rate_per_s`";
                Err(error("burst", problem))
            }
            _ => Ok(traffic),
        }
    }

    fn sockets(&mut self, protocol: TrafficProtocol) -> Result<SocketOptions, FieldError> {
        let is_tcp = protocol == TrafficProtocol::Tcp;
        let [send, receive, busy_poll, prefer, epoll @ ..] = &SOCKET_FIELDS;
        Ok(SocketOptions {
            epoll_busy_poll: self.epoll_busy_poll(epoll, is_tcp)?,
            send_buffer: self.number(send)?.map(Bytes::new),
            receive_buffer: self.number(receive)?.map(Bytes::new),
            congestion: if is_tcp { self.congestion()? } else { None },
            busy_poll: self.number(busy_poll)?.map(Nanos::from_ns),
            prefer_busy_poll: self.number(prefer)? == Some(1),
        })
    }

    fn epoll_busy_poll(
        &mut self,
        [time, budget, prefer]: &[Field; 3],
        is_tcp: bool,
    ) -> Result<Option<EpollBusyPoll>, FieldError> {
        let given = [time, budget, prefer].map(|field| self.rest.contains_key(field.name));
        let Some(nanos) = self.number(time)? else {
            return match [budget, prefer].into_iter().zip(&given[1..]).find(|(_, given)| **given) {
                Some((field, _)) => {
                    Err(error(field.name, format!("`{}` needs `{}`", field.name, time.name)))
                }
                None => Ok(None),
            };
        };
        if !is_tcp {
            let problem =
                "only the threads of TCP workloads wait by epoll: `busy_poll` is for sockets";
            return Err(error(time.name, problem));
        }
        let budget = self.number(budget)?.and_then(|budget| u16::try_from(budget).ok());
        Ok(Some(EpollBusyPoll {
            time: Nanos::from_ns(nanos),
            budget: budget.unwrap_or(8),
            prefers: self.number(prefer)? == Some(1),
        }))
    }

    fn congestion(&mut self) -> Result<Option<String>, FieldError> {
        /// `TCP_CA_NAME_MAX` of `include/net/tcp.h`, with the final NUL.
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
        let Some(text) = self.text(field) else { return Ok(None) };
        let cpus: CpuSet = text.parse().map_err(|_| {
            error(field, format!("`{field}` must be CPUs such as `0-3,8`, not `{text}`"))
        })?;
        if cpus.is_empty() {
            return Err(error(field, format!("`{field}` must name at least one CPU")));
        }
        self.label.extend([" ", field, "=", &text]);
        Ok(Some(cpus))
    }
}

#[cfg(test)]
mod tests {
    use super::super::KINDS;
    use super::*;

    #[test]
    fn every_kind_has_defaults_and_name() {
        for kind in KINDS.iter().filter(|kind| kind.name != COMMAND) {
            let workload = parsed(&format!("kind={}", kind.name)).unwrap();
            assert_eq!((workload.traffic.kind(), workload.name.as_str()), (kind.name, kind.name));
            workload.traffic.check().unwrap();
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
    fn foreign_field_is_refused_by_name() {
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
        check_bad("kind=udp_stream rate=0bps datagram_bytes=17", "datagram_bytes");
        check_bad("kind=udp_stream rate=2000Gbps", "rate");
        check_bad("kind=tcp_stream vectored=maybe", "vectored");
        check_bad("kind=fetch vectored=true", "vectored");
        check_bad("kind=rpc_read think_distribution=normal", "think_distribution");
    }

    #[test]
    fn misspelt_field_or_kind_gets_the_nearest() {
        for (text, meant) in [
            ("kind=tcp_rr bursts=16", "did you mean `burst`?"),
            ("kind=tcp_stream send_bufer_bytes=9", "did you mean `send_buffer_bytes`?"),
            ("kind=tcp_rr probe-hz=9", "did you mean `probe_hz`?"),
            ("kind=tcp-rr", "did you mean `tcp_rr`?"),
        ] {
            let error = parsed(text).unwrap_err().to_string();
            assert!(error.contains(meant), "{error}");
        }
        let error = parsed("kind=tcp_rr colour=1").unwrap_err().to_string();
        assert!(!error.contains("did you mean"), "{error}");
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
