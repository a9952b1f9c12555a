//! The status of a running daemon.

use latput_units::Nanos;
use latput_units::text::format_count;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The version of the stored form of [`Status`].
pub const SCHEMA: u32 = 2;

/// The status of a running daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// Version of this document's shape: 2.
    pub schema: u32,
    /// The interface, by the name it has now.
    pub interface: String,
    /// The process.
    pub pid: u32,
    /// The daemon's state.
    pub state: State,
    /// The goal, in words.
    pub goal: String,
    /// The knobs it moves.
    pub knobs: Vec<String>,
    /// The delay that holds.
    pub delay_ns: u64,
    /// The longest delay that the goal allows.
    pub max_delay_ns: u64,
    /// Receive descriptors of a queue: half of them must hold what comes during the delay.
    pub ring: u32,
    /// How long it has been running.
    pub uptime_s: f64,
    /// Samples on which the policy decided.
    pub decisions: u64,
    /// Changes made.
    pub changes: u64,
    /// Changes that an observer would have made. One that it would make again is not counted again.
    #[serde(default)]
    pub proposals: u64,
    /// Changes that failed and were rolled back.
    pub failures: u64,
    /// The last change, with its reason.
    pub last_change: Option<Change>,
    /// The last change that an observer would have made.
    #[serde(default)]
    pub last_proposal: Option<Change>,
    /// Packets in per second, in the last look.
    pub rx_pps: f64,
    /// Bits in per second.
    pub rx_bps: f64,
    /// Packets out per second.
    pub tx_pps: f64,
    /// Bits out per second.
    pub tx_bps: f64,
    /// Packets dropped on the way in since the start.
    pub rx_dropped: u64,
    /// Interrupts per second, where the interface has some of its own.
    pub interrupts_per_s: Option<f64>,
    /// The share of the machine's CPU time that was used.
    pub busy_ratio: Option<f64>,
    /// Whether the CPU budget is kept, if there is one.
    pub is_budget_met: Option<bool>,
    /// With a CPU budget: the share that each delay was last seen with.
    pub frontier: Vec<FrontierPoint>,
    /// The knobs that somebody else has set, and that latput released.
    pub released: Vec<String>,
}

/// The state of a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It moderates the interface.
    Holding,
    /// It only reports what it would change.
    Observing,
    /// The interface is down.
    Waiting,
    /// Somebody else has set a knob: latput changes nothing more.
    Released,
}

impl State {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Holding => "holding",
            Self::Observing => "observing",
            Self::Waiting => "waiting",
            Self::Released => "released",
        }
    }
}

/// One change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// When, in milliseconds since 1970.
    pub unix_ms: u64,
    /// The delay before.
    pub from_ns: u64,
    /// The delay after.
    pub to_ns: u64,
    /// Why.
    pub reason: String,
}

/// One delay and what it cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FrontierPoint {
    /// The delay.
    pub delay_ns: u64,
    /// The share of the machine's CPU time that was used with it.
    pub busy_ratio: f64,
}

impl Status {
    /// As text for people.
    pub fn to_text(&self) -> String {
        let delay = |ns: u64| Nanos::from_ns(ns).to_string();
        let mut lines = vec![
            format!("{}: {} (pid {})", self.interface, self.state.name(), self.pid),
            format!("goal       {}", self.goal),
            format!(
                "delay      {} of at most {}, by {}",
                delay(self.delay_ns),
                delay(self.max_delay_ns),
                self.knobs.join(", ")
            ),
            format!(
                "load       in {:.0} packets/s, {:.1} Mbit/s; out {:.0} packets/s, {:.1} Mbit/s",
                self.rx_pps,
                self.rx_bps / 1e6,
                self.tx_pps,
                self.tx_bps / 1e6
            ),
        ];
        if let Some(rate) = self.interrupts_per_s {
            lines.push(format!("interrupts {rate:.0}/s"));
        }
        if let Some(busy) = self.busy_ratio {
            let met = match self.is_budget_met {
                Some(true) => ", within the budget",
                Some(false) => ", OVER the budget",
                None => "",
            };
            lines.push(format!("cpu        {:.1}% of the machine{met}", busy * 100.0));
        }
        if self.is_budget_met == Some(false) {
            let points = self.frontier.iter();
            let points: Vec<String> = points
                .map(|point| format!("{} {:.1}%", delay(point.delay_ns), point.busy_ratio * 100.0))
                .collect();
            lines.push(format!("frontier   {}", points.join(", ")));
        }
        for (done, change) in [("changed", &self.last_change), ("would", &self.last_proposal)] {
            let Some(change) = change else { continue };
            lines.push(format!(
                "{done:<10} from {} to {}: {}",
                delay(change.from_ns),
                delay(change.to_ns),
                change.reason
            ));
        }
        for what in &self.released {
            lines.push(format!("released   {what}"));
        }
        let proposed = match self.state {
            State::Observing => format!(" ({} would have been made)", self.proposals),
            _ => String::new(),
        };
        lines.push(format!(
            "since      {:.0} s: {}, {}{}, {} failed, {} dropped",
            self.uptime_s,
            format_count(self.decisions, "decision"),
            format_count(self.changes, "change"),
            proposed,
            self.failures,
            format_count(self.rx_dropped, "packet")
        ));
        lines.join("\n")
    }
}
