//! Addresses of third-party programs, and one trial with them.

use std::fmt;
use std::net::SocketAddr;

use latput_load::{Stop, Window};
use latput_trial::Workload;
use latput_units::Nanos;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::outcome::PeerResult;
pub use crate::program::PeerProgram;
use crate::{iperf3, netperf, support};

/// A third-party program that serves tests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    program: PeerProgram,
    host: String,
    port: u16,
}

impl Peer {
    /// Parses `iperf3://HOST[:PORT]` or `netperf://HOST[:PORT]`; `None` for other texts.
    pub fn parse(text: &str) -> Option<Result<Self, Error>> {
        let programs = [PeerProgram::Iperf3, PeerProgram::Netperf];
        let (program, rest) = programs.into_iter().find_map(|program| {
            Some((program, text.strip_prefix(program.name())?.strip_prefix("://")?))
        })?;
        let wrong = |problem| Error::Url { text: text.to_owned(), problem };
        let parsed = split_port(rest.strip_suffix('/').unwrap_or(rest)).map_err(wrong).map(
            |(host, port)| Self { program, host, port: port.unwrap_or(program.default_port()) },
        );
        Some(parsed)
    }

    /// The program.
    pub const fn program(&self) -> PeerProgram {
        self.program
    }

    /// Refuses a workload that the program cannot do.
    pub fn check_workload(&self, workload: &Workload) -> Result<(), Error> {
        support::check_workload(self.program, workload)
    }

    /// The first address of the host.
    pub fn resolve(&self) -> Result<SocketAddr, Error> {
        let found = latput_names::resolve(&self.host)
            .map_err(|source| Error::Resolve { host: self.host.clone(), source })?;
        Ok(SocketAddr::new(found[0], self.port))
    }

    /// Negotiates a trial with the program at `address` and opens its connections.
    pub fn open(
        &self,
        address: SocketAddr,
        workload: &Workload,
        warmup: Nanos,
        duration: Nanos,
        stop: &Stop,
    ) -> Result<PeerSession, Error> {
        self.check_workload(workload)?;
        Ok(match self.program {
            PeerProgram::Iperf3 => PeerSession::Iperf3(iperf3::Iperf3Session::open(
                address, workload, warmup, duration, stop,
            )?),
            PeerProgram::Netperf => PeerSession::Netperf(netperf::NetperfSession::open(
                address, workload, warmup, duration, stop,
            )?),
        })
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{}://{open}{}{close}:{}", self.program.name(), self.host, self.port)
    }
}

/// A trial that the peer is ready for.
#[derive(Debug)]
pub enum PeerSession {
    /// With an iperf3 server.
    Iperf3(iperf3::Iperf3Session),
    /// With a netserver.
    Netperf(netperf::NetperfSession),
}

impl PeerSession {
    /// Length of the warm-up. Some programs use whole seconds only.
    pub const fn warmup(&self) -> Nanos {
        match self {
            Self::Iperf3(session) => session.warmup(),
            Self::Netperf(session) => session.warmup(),
        }
    }

    /// Runs the traffic until the end of `window`, then gets the peer's results.
    pub fn run(self, window: Window, stop: &Stop) -> Result<PeerResult, Error> {
        match self {
            Self::Iperf3(session) => session.run(window, stop),
            Self::Netperf(session) => session.run(window, stop),
        }
    }
}

fn split_port(text: &str) -> Result<(String, Option<u16>), &'static str> {
    const PORT: &str = "the port must be a number from 1 to 65535";
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or("the `]` is missing")?;
            (host, if after.is_empty() { None } else { Some(after.strip_prefix(':').ok_or(PORT)?) })
        }
        None if text.matches(':').count() > 1 => return Err("an IPv6 address needs `[` and `]`"),
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() || host.len() > 255 || host.contains(['/', '@', '?', '#', ' ']) {
        return Err("a host must follow `://`");
    }
    let port = port.map(|port| port.parse().ok().filter(|port| *port != 0).ok_or(PORT));
    Ok((host.to_owned(), port.transpose()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_has_program_host_and_port() {
        check_parse("iperf3://sut", Ok("iperf3://sut:5201"));
        check_parse("netperf://192.0.2.7", Ok("netperf://192.0.2.7:12865"));
        check_parse("netperf://192.0.2.7:99/", Ok("netperf://192.0.2.7:99"));
        check_parse("iperf3://[2001:db8::7]:7", Ok("iperf3://[2001:db8::7]:7"));
        check_parse("iperf3://[::1]", Ok("iperf3://[::1]:5201"));
    }

    #[test]
    fn broken_peer_is_refused_others_pass() {
        for other in ["lab", "rack.toml", "iperf3", "iperf://host", "sim:x", "http://host"] {
            assert!(Peer::parse(other).is_none(), "{other}");
        }
        check_parse("iperf3://", Err("a host must follow"));
        check_parse("iperf3://a/b", Err("a host must follow"));
        check_parse("iperf3://host:0", Err("from 1 to 65535"));
        check_parse("iperf3://host:70000", Err("from 1 to 65535"));
        check_parse("iperf3://[::1", Err("`]` is missing"));
        check_parse("iperf3://[::1]x", Err("from 1 to 65535"));
        check_parse("iperf3://::1", Err("needs `[`"));
    }

    #[track_caller]
    fn check_parse(text: &str, expected: Result<&str, &str>) {
        match (Peer::parse(text).unwrap(), expected) {
            (Ok(peer), Ok(shown)) => assert_eq!(peer.to_string(), shown),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
            (peer, _) => panic!("{text}: {peer:?}"),
        }
    }
}
