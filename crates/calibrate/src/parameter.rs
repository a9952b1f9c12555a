//! The parameters of a fit: a few costs. Each stands for several fields that published figures
//! cannot distinguish.

use std::fmt;

use latput_sim::SystemProfile;
use latput_sim::machine::CpuCosts;
use latput_units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// Cost of a transmit completion, as a share of a received packet's.
const COMPLETION_SHARE: f64 = 0.25;
/// Cost of a received acknowledgement without data, as a share of the cost of a packet for a
/// socket.
pub const BARE_SHARE: f64 = 0.5;
/// Cost to the interrupts' core of a message sent from another core, as a multiple of that of a
/// packet received for another core.
pub const SENT_REMOTE_RATIO: f64 = 2.0;
/// Cost of an acknowledgement without data, as a share of a sent packet's.
pub const ACK_SHARE: f64 = 0.7;

/// One parameter of a fit; in nanoseconds unless its description names a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parameter {
    /// One interrupt.
    Interrupt,
    /// Extra cost of the first packet of a poll.
    RxFirst,
    /// One received packet with data. The costs of transmit completions and acknowledgements
    /// without data follow it.
    RxPacket,
    /// One packet handed to the stack, after GRO merged what it could.
    RxMerged,
    /// One poll of a queue.
    Poll,
    /// One timer interrupt.
    Timer,
    /// Setting a timer.
    TimerArm,
    /// One received packet of any content. The cost of transmit completions follows it.
    RxAny,
    /// Extra cost of a received packet when its process last ran on another core.
    RxRemote,
    /// Both [`Self::RxRemote`] and, in proportion, [`Self::TxRemote`].
    Remote,
    /// Extra cost, on the interrupts' core, of a message sent from another core.
    TxRemote,
    /// One transaction in the process: two system calls and user code.
    App,
    /// One sent packet. The cost of acknowledgements follows it.
    TxPacket,
    /// One acknowledgement without data, if it does not follow the cost of sent packets.
    Ack,
    /// Extra cost to a process that an interrupt stops.
    Preempted,
    /// Putting a process on a core.
    Wake,
    /// Putting a process to sleep.
    Sleep,
    /// Wake-up time of an idle core.
    IdleExit,
    /// Enabling interrupts at the end of a poll.
    Rearm,
    /// Extra cost of a received packet of another socket than the one before.
    RxSocket,
    /// Extra cost of reading from a socket that has left the cache.
    ReadCold,
    /// Time for which a client's NIC holds back an answer that follows another one closely.
    ClientHold,
    /// Extra cost for a process that another core woke.
    WakeRemote,
    /// Extra cost of a transaction away from the interrupts' core.
    CrossCore,
    /// Copying 1024 bytes.
    Copy,
    /// One-way network latency.
    Latency,
    /// Costs of the generators as a multiple of the measured system's.
    Generator,
    /// Shortest interval between two interrupts of the measured system's throttle.
    Throttle,
    /// Most bytes in flight on one connection of the measured system: its send buffer.
    Window,
}

/// Treatment of the generators' costs while those of the measured system change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GeneratorCosts {
    /// They follow: each stays the same multiple.
    #[default]
    Follow,
    /// They stay as in the profile: other machines, or hosts whose costs do not matter.
    Stay,
}

/// A fixed parameter.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FixedParameter {
    /// The parameter.
    pub parameter: Parameter,
    /// Its value, in its unit.
    pub value: f64,
}

/// One free parameter.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FreeParameter {
    /// The parameter.
    pub parameter: Parameter,
    /// Start value of searches, and the centre of its prior.
    pub start: f64,
}

impl fmt::Display for Parameter {
    /// The name in files.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl Parameter {
    /// CPU costs that a fit to a live host uses.
    pub(crate) const ALL_COSTS: [Self; 11] = [
        Self::App,
        Self::Interrupt,
        Self::Poll,
        Self::Timer,
        Self::TimerArm,
        Self::RxPacket,
        Self::RxMerged,
        Self::TxPacket,
        Self::Copy,
        Self::Wake,
        Self::Sleep,
    ];

    /// The unit of its value.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Generator => "x",
            Self::Copy => "ns/KiB",
            Self::Window => "B",
            _ => "ns",
        }
    }

    /// Whether it overwrites `earlier`, which was set before it.
    pub fn sets_again(self, earlier: Self) -> bool {
        match earlier {
            Self::RxPacket | Self::RxAny => matches!(self, Self::RxPacket | Self::RxAny),
            Self::RxRemote | Self::TxRemote => self == earlier || self == Self::Remote,
            Self::Remote => matches!(self, Self::Remote | Self::RxRemote | Self::TxRemote),
            Self::Ack => matches!(self, Self::Ack | Self::TxPacket),
            _ => self == earlier,
        }
    }

    /// The value in a profile, in the parameter's unit.
    pub fn get(self, profile: &SystemProfile) -> f64 {
        let mut costs = profile.sut.machine.costs;
        let ns = |time: Nanos| time.as_ns() as f64;
        match self {
            Self::RxPacket | Self::RxAny => ns(costs.rx_packet) + ns(costs.rx_data),
            Self::App => 2.0 * ns(costs.syscall) + ns(costs.user),
            Self::IdleExit => ns(profile.sut.machine.idle_exit),
            Self::Latency => ns(profile.network.latency),
            Self::Generator => {
                let generator = profile.generator.as_ref().unwrap_or(&profile.sut);
                ns(generator.machine.costs.interrupt) / ns(costs.interrupt).max(1.0)
            }
            Self::Throttle => ns(profile.sut.nic.coalescing.throttle.interval()),
            Self::Window => profile.sut.stack.send_buffer.get() as f64,
            Self::ClientHold => {
                ns(profile.generator.as_ref().unwrap_or(&profile.sut).nic.coalescing.rx.delay)
            }
            _ => ns(*self.own_cost(&mut costs).expect("the arms above are all that have none")),
        }
    }

    /// The cost that equals the parameter; `None` if the parameter is no cost or is divided among
    /// several.
    const fn own_cost(self, costs: &mut CpuCosts) -> Option<&mut Nanos> {
        Some(match self {
            Self::Interrupt => &mut costs.interrupt,
            Self::RxFirst => &mut costs.rx_first,
            Self::RxRemote | Self::Remote => &mut costs.rx_remote,
            Self::RxMerged => &mut costs.rx_merged,
            Self::Poll => &mut costs.poll,
            Self::Timer => &mut costs.timer,
            Self::TimerArm => &mut costs.timer_arm,
            Self::TxRemote => &mut costs.tx_remote,
            Self::Ack => &mut costs.ack,
            Self::Preempted => &mut costs.preempted,
            Self::Wake => &mut costs.wake,
            Self::Sleep => &mut costs.sleep,
            Self::Rearm => &mut costs.rearm,
            Self::RxSocket => &mut costs.rx_socket,
            Self::ReadCold => &mut costs.read_cold,
            Self::WakeRemote => &mut costs.wake_remote,
            Self::CrossCore => &mut costs.cross_core,
            Self::Copy => &mut costs.copy_per_kib,
            Self::TxPacket => &mut costs.tx_packet,
            Self::RxPacket
            | Self::RxAny
            | Self::App
            | Self::IdleExit
            | Self::Latency
            | Self::Generator
            | Self::Throttle
            | Self::ClientHold
            | Self::Window => return None,
        })
    }

    fn set_cost(self, costs: &mut CpuCosts, value: f64) {
        if let Some(cost) = self.own_cost(costs) {
            *cost = to_nanos(value);
        }
        match self {
            Self::RxPacket => {
                costs.rx_packet = to_nanos(value * BARE_SHARE);
                costs.rx_data = to_nanos(value * (1.0 - BARE_SHARE));
                costs.tx_completion = to_nanos(value * COMPLETION_SHARE);
            }
            Self::RxAny => {
                costs.rx_packet = to_nanos(value);
                costs.rx_data = Nanos::ZERO;
                costs.tx_completion = to_nanos(value * COMPLETION_SHARE);
            }
            Self::Remote => costs.tx_remote = to_nanos(value * SENT_REMOTE_RATIO),
            Self::App => {
                costs.syscall = to_nanos(value * 0.43);
                costs.user = to_nanos(value * 0.14);
            }
            Self::TxPacket => costs.ack = to_nanos(value * ACK_SHARE),
            _ => {}
        }
    }
}

/// Sets parameters in their order.
pub(crate) fn set_all(
    profile: &mut SystemProfile,
    values: &[(Parameter, f64)],
    generators: GeneratorCosts,
) {
    let mut ratio = Parameter::Generator.get(profile);
    for &(parameter, value) in values {
        match parameter {
            Parameter::Latency => profile.network.latency = to_nanos(value),
            Parameter::IdleExit => {
                profile.sut.machine.idle_exit = to_nanos(value);
                if let Some(generator) = &mut profile.generator {
                    generator.machine.idle_exit = to_nanos(value);
                }
            }
            Parameter::Generator => ratio = value,
            Parameter::Throttle => {
                let throttle = &mut profile.sut.nic.coalescing.throttle;
                *throttle = throttle.with_interval(to_nanos(value));
            }
            Parameter::ClientHold => {
                if let Some(generator) = &mut profile.generator {
                    generator.nic.coalescing.rx.delay = to_nanos(value);
                }
            }
            Parameter::Window => profile.sut.stack.send_buffer = Bytes::new(round_clamped(value)),
            _ => parameter.set_cost(&mut profile.sut.machine.costs, value),
        }
    }
    if generators == GeneratorCosts::Stay {
        return;
    }
    if let Some(generator) = &mut profile.generator {
        let scaled = |cost: Nanos| to_nanos(cost.as_ns() as f64 * ratio);
        generator.machine.costs = profile.sut.machine.costs.map(scaled);
    }
}

fn to_nanos(value: f64) -> Nanos {
    Nanos::from_ns(round_clamped(value))
}

/// Rounds and limits a value, so that no step of a search makes an invalid profile.
#[expect(clippy::cast_possible_truncation, reason = "clamped")]
fn round_clamped(value: f64) -> u64 {
    value.clamp(0.0, 1e8).round() as u64
}
