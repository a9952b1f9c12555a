//! A `live` workload: traffic that is not latput's, on a host as it is. What is watched of it, what protects it, and how much
//! it may be disturbed.

use core::net::IpAddr;

use latput_knobs::Knob;
use latput_units::Nanos;
use latput_units::text::written_share;
use serde::{Deserialize, Serialize};

use crate::program::ProgramCommand;

mod endpoint;
mod group;
mod hours;
mod series;
mod slice;

pub use self::endpoint::{
    Endpoint, EndpointAt, EndpointFigure, FigurePlace, FigureSource, is_socket_path,
};
pub use self::group::{GroupBy, MOST_GROUPS, TcpGroup};
pub use self::hours::Hours;
pub use self::series::{MetricSeries, SeriesUnit};
pub use self::slice::{BrokenGuard, LiveSlice};

/// The check that a slice fails in which a guard was broken.
pub const GUARD_CHECK: &str = "guard";
/// The check that a slice fails after which its setting is not tried again, and is never recommended.
pub const BAN_CHECK: &str = "banned";

/// Most guards, ports and peers of a workload.
const MOST: usize = 16;
/// Limits of a slice. In a shorter one no percentile is known; a longer one exposes the traffic to a bad setting for long.
const SLICES: std::ops::RangeInclusive<Nanos> = Nanos::from_ms(200)..=Nanos::from_s(60);
/// Most time of today's setting between slices.
const LONGEST_PAUSE: Nanos = Nanos::from_s(3600);

/// Most share of a CPU that round-trip samples take, unless another is asked for: whose traffic it is has not asked for a
/// slower host.
pub const SAMPLES_CPU: f64 = 0.005;
/// The range of that share.
pub const SAMPLES_CPU_RANGE: (f64, f64) = (0.001, 0.1);

/// The range of the share up to which CPUs may be busy. Below it a host is idle.
pub const BUSY_AT_MOST_RANGE: (f64, f64) = (0.01, 1.0);

/// Scope and limits of a `live` workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Live {
    /// Connections count if either port is one of these; empty means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
    /// Connections count if the other end is one of these; empty means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<IpAddr>,
    /// Property by which the connections that count are grouped, beside all of them together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<GroupBy>,
    /// Limits in the words of a goal: `tcp_rtt_ns_p99 <= 1.2 today`. A broken one puts today's setting back at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guards: Vec<String>,
    /// Slices with a broken guard after which a setting is banned. Each puts today's setting back at once.
    #[serde(default = "default_strikes")]
    pub strikes: u32,
    /// Measured part of a setting's slice.
    pub slice: Nanos,
    /// Time of today's setting after each slice of another, beside what the comparison needs.
    #[serde(default)]
    pub pause: Nanos,
    /// Most time that each setting other than today's may be in force, over the whole run; `None` sets no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_per_setting: Option<Nanos>,
    /// A slice of another setting begins only while the CPUs' busy share is at most this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_at_most: Option<f64>,
    /// Most share of a CPU that tracing round-trip samples takes: where all of them would take more, they are traced in parts of
    /// the time.
    #[serde(default = "default_samples_cpu")]
    pub samples_cpu: f64,
    /// Hours of the day outside of which nothing is tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hours: Option<Hours>,
    /// Knobs that disturb traffic when they change, and that may be changed all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disruptive: Vec<Knob>,
    /// Only today's setting is watched: how much noise there is, and what could be proven in which time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub observe: bool,
    /// Where the application tells its own figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Endpoint>,
}

impl Default for Live {
    /// All connections, no guard, slices of 2 s.
    fn default() -> Self {
        Self {
            ports: Vec::new(),
            peers: Vec::new(),
            by: None,
            guards: Vec::new(),
            strikes: default_strikes(),
            slice: Nanos::from_s(2),
            pause: Nanos::ZERO,
            most_per_setting: None,
            busy_at_most: None,
            samples_cpu: SAMPLES_CPU,
            hours: None,
            disruptive: Vec::new(),
            observe: false,
            endpoint: None,
        }
    }
}

/// The noise of a busy host has outliers: two in a row are no accident.
const fn default_strikes() -> u32 {
    2
}

const fn default_samples_cpu() -> f64 {
    SAMPLES_CPU
}

impl Live {
    /// Refuses what no host could do.
    ///
    /// # Errors
    ///
    /// The field, and its problem with the remedy.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let lists = [
            ("ports", self.ports.len()),
            ("peers", self.peers.len()),
            ("guard", self.guards.len()),
            ("disruptive", self.disruptive.len()),
        ];
        if let Some((field, _)) = lists.into_iter().find(|(_, count)| *count > MOST) {
            return Err((field, format!("`{field}` lists more than {MOST}")));
        }
        if self.ports.contains(&0) {
            return Err(("ports", "a port is from 1 to 65535".to_owned()));
        }
        if !(1..=10).contains(&self.strikes) {
            return Err(("strikes", "`strikes` is from 1 to 10".to_owned()));
        }
        if !SLICES.contains(&self.slice) {
            let (least, most) = (SLICES.start(), SLICES.end());
            return Err(("slice", format!("`slice` must be from {least} to {most}")));
        }
        if self.pause > LONGEST_PAUSE {
            return Err(("pause", format!("`pause` is at most {LONGEST_PAUSE}")));
        }
        if self.most_per_setting.is_some_and(|most| most < self.slice) {
            let problem = "`most_per_setting` is shorter than one `slice`".to_owned();
            return Err(("most_per_setting", problem));
        }
        let shares = [
            ("busy_at_most", self.busy_at_most, BUSY_AT_MOST_RANGE),
            ("samples_cpu", Some(self.samples_cpu), SAMPLES_CPU_RANGE),
        ];
        for (field, share, (least, most)) in shares {
            if share.is_some_and(|share| !(least..=most).contains(&share)) {
                let [least, most] = [least, most].map(written_share);
                return Err((field, format!("`{field}` is a share from {least} to {most}")));
            }
        }
        self.endpoint.as_ref().map_or(Ok(()), |it| it.check().map_err(|why| ("endpoint", why)))
    }

    /// The command that tells the application's figures.
    pub fn command(&self) -> Option<&ProgramCommand> {
        match &self.endpoint.as_ref()?.at {
            EndpointAt::Exec(command) => Some(command),
            _ => None,
        }
    }

    /// Whether a connection counts.
    pub fn counts(&self, ports: [u16; 2], peer: IpAddr) -> bool {
        (self.ports.is_empty() || ports.iter().any(|port| self.ports.contains(port)))
            && (self.peers.is_empty() || self.peers.contains(&peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_counts_by_port_and_peer() {
        let [near, far] = ["10.0.0.1", "10.0.0.2"].map(|it| it.parse().unwrap());
        let all = Live::default();
        assert!(all.counts([1, 2], far));
        let some = Live { ports: vec![443], peers: vec![far], ..Live::default() };
        assert!(some.counts([443, 50_000], far) && some.counts([50_000, 443], far));
        assert!(!some.counts([80, 50_000], far) && !some.counts([443, 50_000], near));
    }

    #[test]
    fn impossible_fields_are_refused_by_name() {
        let plain = Live::default;
        for (live, field) in [
            (Live { ports: vec![0], ..plain() }, "ports"),
            (Live { ports: vec![1; 17], ..plain() }, "ports"),
            (Live { strikes: 0, ..plain() }, "strikes"),
            (Live { slice: Nanos::from_ms(1), ..plain() }, "slice"),
            (Live { pause: Nanos::from_s(3601), ..plain() }, "pause"),
            (Live { most_per_setting: Some(Nanos::from_s(1)), ..plain() }, "most_per_setting"),
            (Live { busy_at_most: Some(0.0), ..plain() }, "busy_at_most"),
            (Live { busy_at_most: Some(f64::NAN), ..plain() }, "busy_at_most"),
            (Live { samples_cpu: 0.0, ..plain() }, "samples_cpu"),
            (Live { samples_cpu: f64::NAN, ..plain() }, "samples_cpu"),
        ] {
            assert_eq!(live.check().unwrap_err().0, field, "{live:?}");
        }
        assert_eq!(plain().check(), Ok(()));
    }
}
