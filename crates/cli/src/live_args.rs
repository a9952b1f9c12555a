//! The flags that make live traffic the workload.

use std::collections::BTreeMap;
use std::net::IpAddr;

use latput_knobs::Knob;
use latput_trial::live::{
    BUSY_AT_MOST_RANGE, Endpoint, EndpointFigure, GroupBy, Hours, Live, SAMPLES_CPU_RANGE,
};
use latput_trial::workload::build_live_workload;
use latput_trial::{Plan, Workload};
use latput_units::Nanos;

use crate::exit::CliError;
use crate::precision::parse_percent_flag;

/// The goal of live traffic where nobody says another.
const GOAL: &str = "minimize sut_packet_cpu_ns where tcp_rtt_ns_p99 <= 1.05 today";

/// Live traffic: what is watched of it, and what protects it.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
#[command(next_help_heading = "Live traffic")]
pub(crate) struct LiveArgs {
    /// Make no traffic. Compare settings on one named host under its own load, in short slices, each between two
    /// slices of today's setting.
    #[arg(long)]
    live: bool,
    /// Change nothing. Report how much the figures vary, and which differences could be proven in which time. It takes
    /// 20 blocks, some 90 s, or as many as `--budget` has room for.
    #[arg(long)]
    observe: bool,
    #[command(flatten)]
    watched: WatchedTraffic,
}

/// The live traffic that is watched, and the limits of what is tried on it.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
#[command(next_help_heading = "Live traffic")]
pub(crate) struct WatchedTraffic {
    /// A limit, such as `tcp_rtt_ns_p99 <= 1.2 today`. It is checked 20 times a second while a setting is tried. When
    /// it breaks, today's setting is put back at once. May be repeated.
    #[arg(long, value_name = "LIMIT")]
    guard: Vec<String>,
    /// Slices with a broken guard after which a setting is banned; by default 2.
    #[arg(long, value_name = "NUMBER")]
    strikes: Option<u32>,
    /// Only TCP connections with this port at either end count. May be repeated.
    #[arg(long, value_name = "PORT")]
    port: Vec<u16>,
    /// Only TCP connections to this address count. May be repeated.
    #[arg(long, value_name = "ADDRESS")]
    remote: Vec<IpAddr>,
    /// Also report TCP connections by `port` or by `peer`: the 16 with the most payload, and the others together.
    #[arg(long, value_name = "port|peer")]
    by: Option<GroupBy>,
    /// Length of a slice; by default 2 s.
    #[arg(long, value_name = "TIME", value_parser = Nanos::from_text_or_seconds)]
    slice: Option<Nanos>,
    /// Time between blocks, with today's setting.
    #[arg(long, value_name = "TIME", value_parser = Nanos::from_text_or_seconds)]
    pause: Option<Nanos>,
    /// Longest time that each setting is tried in the whole run.
    #[arg(long, value_name = "TIME", value_parser = Nanos::from_text_or_seconds)]
    most_per_setting: Option<Nanos>,
    /// Try settings only while the CPUs are at most this busy, such as `80%`.
    #[arg(long, value_name = "PERCENT")]
    busy_at_most: Option<String>,
    /// Largest share of a CPU that tracing of round-trip samples may take; by default `0.5%`. Above it, samples are
    /// traced part of the time.
    #[arg(long, value_name = "PERCENT")]
    samples_cpu: Option<String>,
    /// Hours of the day, such as `22:00-06:00 UTC`, outside of which latput waits with today's setting in force.
    #[arg(long, value_name = "HOURS", value_parser = Hours::parse)]
    hours: Option<Hours>,
    /// Allow changes of this knob of the plan although they disturb traffic. May be repeated.
    #[arg(long, value_name = "KNOB")]
    disruptive: Vec<Knob>,
    /// Where the application reports its figures: `http://127.0.0.1:9100/metrics` or `file:///run/app/metrics.prom`
    /// in the text format of Prometheus, or `statsd:///run/app.sock`, a Unix datagram socket that latput makes and
    /// removes. `exec:PROGRAM ARGUMENTS` is run on the host: it prints its figures repeatedly, each time with an
    /// empty line after them.
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// The user that runs the program of `--endpoint exec:...`; by default `nobody` if latput is root there.
    #[arg(long, value_name = "USER", requires = "endpoint")]
    endpoint_user: Option<String>,
    /// A figure of the endpoint: `NAME=counter SERIES`, `NAME=gauge SERIES` or `NAME=quantile 0.99 HISTOGRAM`.
    /// `/REGEX/`, `json:POINTER` and `csv:COLUMN:ROW` may replace the series of a counter or a gauge. May be
    /// repeated.
    #[arg(long, value_name = "NAME=SERIES", requires = "endpoint")]
    figure: Vec<String>,
}

impl LiveArgs {
    /// Whether any of them is given.
    pub(crate) fn is_given(&self) -> bool {
        *self != Self::default()
    }

    /// Whether they ask for live traffic, and to change nothing.
    pub(crate) const fn only_observes(&self) -> bool {
        self.live && self.observe
    }

    /// Puts live traffic in the place of the plan's workloads; flags go before what a live plan says. A plan of latput's own
    /// gets a goal for it.
    pub(crate) fn replace_workloads(
        &self,
        plan: &mut Plan,
        is_own_plan: bool,
    ) -> Result<(), CliError> {
        if !self.is_given() {
            return Ok(());
        }
        let was_live = plan.live().cloned();
        let is_new = was_live.is_none();
        if is_new && !self.live {
            return Err(CliError::usage(
                "the flags of live traffic need --live, or a plan whose workload is `live`",
            ));
        }
        let live = self.watched.override_live(was_live.unwrap_or_default())?;
        let observe = self.observe || live.observe;
        plan.workloads = vec![build_workload(Live { observe, ..live })?];
        if is_new {
            plan.method.design = None;
        }
        if is_own_plan && is_new && !self.observe {
            plan.goal = Some(GOAL.to_owned());
        }
        plan.fit_live().map_err(CliError::usage)
    }

    /// Lines of a plan's text that keep the flags, so that other flags are another run.
    pub(crate) fn plan_lines(&self) -> String {
        if !self.is_given() {
            return String::new();
        }
        let flags = format!("{self:?}").replace(['\n', '\r'], " ");
        format!("# --live {flags}\n")
    }
}

impl WatchedTraffic {
    /// Whether any of them is given.
    pub(crate) fn is_given(&self) -> bool {
        *self != Self::default()
    }

    /// Puts these flags before what a plan of live traffic says. Knobs that disturb it may be changed if they are in `allowed`.
    pub(crate) fn apply_to_plan(&self, plan: &mut Plan, allowed: &[Knob]) -> Result<(), CliError> {
        let mut live = self.override_live(plan.live().cloned().unwrap_or_default())?;
        live.disruptive.extend(allowed);
        plan.workloads = vec![build_workload(live)?];
        plan.fit_live().map_err(CliError::usage)
    }

    /// The knobs that may be changed although they disturb traffic.
    pub(crate) fn disruptive_knobs(&self) -> &[Knob] {
        &self.disruptive
    }

    /// Live traffic with these flags in the place of what a plan says.
    fn override_live(&self, plain: Live) -> Result<Live, CliError> {
        fn non_empty_or<T: Clone>(given: &[T], plain: Vec<T>) -> Vec<T> {
            if given.is_empty() { plain } else { given.to_vec() }
        }
        Ok(Live {
            ports: non_empty_or(&self.port, plain.ports),
            peers: non_empty_or(&self.remote, plain.peers),
            by: self.by.or(plain.by),
            guards: non_empty_or(&self.guard, plain.guards),
            strikes: self.strikes.unwrap_or(plain.strikes),
            slice: self.slice.unwrap_or(plain.slice),
            pause: self.pause.unwrap_or(plain.pause),
            most_per_setting: self.most_per_setting.or(plain.most_per_setting),
            busy_at_most: parse_share(
                "--busy-at-most",
                self.busy_at_most.as_deref(),
                BUSY_AT_MOST_RANGE,
            )?
            .or(plain.busy_at_most),
            samples_cpu: parse_share(
                "--samples-cpu",
                self.samples_cpu.as_deref(),
                SAMPLES_CPU_RANGE,
            )?
            .unwrap_or(plain.samples_cpu),
            hours: self.hours.or(plain.hours),
            disruptive: non_empty_or(&self.disruptive, plain.disruptive),
            observe: plain.observe,
            endpoint: self.parse_endpoint()?.or(plain.endpoint),
        })
    }

    fn parse_endpoint(&self) -> Result<Option<Endpoint>, CliError> {
        let Some(url) = &self.endpoint else { return Ok(None) };
        let figure = |text: &String| {
            let (name, source) = text
                .split_once('=')
                .ok_or_else(|| format!("`{text}`: write `NAME=counter SERIES`"))?;
            EndpointFigure::parse(name, source)
        };
        let figures = self.figure.iter().map(figure).collect::<Result<Vec<_>, String>>();
        let figures = figures.map_err(|why| CliError::usage(format!("--figure: {why}")))?;
        let endpoint = Endpoint::parse(url, figures);
        let endpoint = match &self.endpoint_user {
            Some(user) => endpoint.and_then(|endpoint| endpoint.run_as(user.clone())),
            None => endpoint,
        };
        endpoint.map(Some).map_err(|why| CliError::usage(format!("--endpoint: {why}")))
    }
}

fn build_workload(live: Live) -> Result<Workload, CliError> {
    build_live_workload(&BTreeMap::new(), live)
        .map_err(|error| CliError::usage(format!("--{}: {error}", error.field)))
}

/// The share that a flag gives.
fn parse_share(
    flag: &str,
    text: Option<&str>,
    (low, high): (f64, f64),
) -> Result<Option<f64>, CliError> {
    text.map(|text| parse_percent_flag(flag, text, 100.0 * low, 100.0 * high)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_in_flags_are_bounded_percentages() {
        let busy = |text: &str| {
            let flags =
                WatchedTraffic { busy_at_most: Some(text.to_owned()), ..WatchedTraffic::default() };
            flags.override_live(Live::default()).map(|live| live.busy_at_most)
        };
        assert!(busy("80%").is_ok_and(|share| share == Some(0.8)));
        for refused in ["0.8", "80", "0%", "101%", "much"] {
            let error = busy(refused).err().map(|refusal| refusal.error.to_string());
            assert!(error.is_some_and(|text| text.contains("--busy-at-most")), "{refused}");
        }
    }
}
