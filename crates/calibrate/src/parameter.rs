//! What a fit may move in a profile: a few costs, each standing for several fields that published
//! figures cannot tell apart.

use latput_sim::Profile;
use latput_sim::machine::Costs;
use latput_units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// Transmit completions cost this share of a received packet.
const COMPLETION_SHARE: f64 = 0.25;
/// What a received packet costs that ends in the protocol, an acknowledgement without data, as a share of one that
/// goes to a socket.
pub const BARE_SHARE: f64 = 0.5;
/// What a packet for a process elsewhere costs the interrupts' core, a message sent from elsewhere costs it twice.
pub const SENT_REMOTE_RATIO: f64 = 2.0;
/// An acknowledgement without data costs this share of a sent packet.
pub const ACK_SHARE: f64 = 0.7;

/// One free parameter of a fit, in nanoseconds unless it says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parameter {
    /// One interrupt.
    Interrupt,
    /// More for the first packet of a poll.
    RxFirst,
    /// One received packet with data; transmit completions and acknowledgements without data follow it.
    RxPacket,
    /// One packet handed to the stack, after GRO merged what it could.
    RxMerged,
    /// One poll of a queue.
    Poll,
    /// One interrupt of a timer.
    Timer,
    /// Setting a timer.
    TimerArm,
    /// One received packet, whatever it carries; transmit completions follow it.
    RxAny,
    /// More per received packet when its process last ran elsewhere.
    RxRemote,
    /// Both of them: [`Self::RxRemote`], and [`Self::TxRemote`] in proportion.
    Remote,
    /// More per message sent from another core, on the interrupts' core.
    TxRemote,
    /// One transaction in the process: two system calls and user code.
    App,
    /// One sent packet; acknowledgements follow it.
    TxPacket,
    /// One acknowledgement without data, where it does not follow sent packets.
    Ack,
    /// What an interrupt costs the process that it stops.
    Preempted,
    /// Putting a process on a core.
    Wake,
    /// Putting a process to sleep.
    Sleep,
    /// How long an idle core needs to start.
    IdleExit,
    /// More for a process that another core woke.
    WakeRemote,
    /// More per transaction away from the interrupts' core.
    CrossCore,
    /// Copying 1024 bytes.
    Copy,
    /// One way through the network, 1024 bytes or none.
    Latency,
    /// Costs of the generators as a multiple of the measured system's.
    Generator,
    /// What the measured system's throttle keeps between two interrupts.
    Throttle,
    /// What one of its connections may have in flight, in bytes: its send buffer.
    Window,
}

/// What becomes of the generators' costs while those of the measured system move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Generators {
    /// They follow, as the same multiple of each.
    #[default]
    Follow,
    /// They are as the profile has them: other machines, or hosts whose costs do not matter.
    Stay,
}

/// A cost that is given.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fixed {
    /// The cost.
    pub parameter: Parameter,
    /// Its value, in its unit.
    pub value: f64,
}

/// One free parameter.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Free {
    /// The cost.
    pub parameter: Parameter,
    /// Where searches begin, and the middle of its prior.
    pub start: f64,
}

impl Parameter {
    /// CPU time of things, as far as a live host of today has it.
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

    /// As files call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "interrupt",
            Self::RxFirst => "rx_first",
            Self::RxPacket => "rx_packet",
            Self::RxMerged => "rx_merged",
            Self::Poll => "poll",
            Self::Timer => "timer",
            Self::TimerArm => "timer_arm",
            Self::RxAny => "rx_any",
            Self::RxRemote => "rx_remote",
            Self::Remote => "remote",
            Self::TxRemote => "tx_remote",
            Self::App => "app",
            Self::TxPacket => "tx_packet",
            Self::Ack => "ack",
            Self::Preempted => "preempted",
            Self::Wake => "wake",
            Self::Sleep => "sleep",
            Self::IdleExit => "idle_exit",
            Self::WakeRemote => "wake_remote",
            Self::CrossCore => "cross_core",
            Self::Copy => "copy",
            Self::Latency => "latency",
            Self::Generator => "generator",
            Self::Throttle => "throttle",
            Self::Window => "window",
        }
    }

    /// The unit of its value.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Generator => "x",
            Self::Copy => "ns/KiB",
            Self::Window => "B",
            _ => "ns",
        }
    }

    /// Whether it sets something that `earlier`, set before it, has set: that one would have no effect.
    pub fn sets_again(self, earlier: Self) -> bool {
        match earlier {
            Self::RxPacket | Self::RxAny => matches!(self, Self::RxPacket | Self::RxAny),
            Self::RxRemote | Self::TxRemote => self == earlier || self == Self::Remote,
            Self::Remote => matches!(self, Self::Remote | Self::RxRemote | Self::TxRemote),
            Self::Ack => matches!(self, Self::Ack | Self::TxPacket),
            _ => self == earlier,
        }
    }

    /// Its value in a profile.
    pub fn get(self, profile: &Profile) -> f64 {
        let costs = &profile.sut.machine.costs;
        let ns = |time: Nanos| time.as_ns() as f64;
        match self {
            Self::Interrupt => ns(costs.interrupt),
            Self::RxFirst => ns(costs.rx_first),
            Self::RxPacket | Self::RxAny => ns(costs.rx_packet) + ns(costs.rx_data),
            Self::RxRemote | Self::Remote => ns(costs.rx_remote),
            Self::RxMerged => ns(costs.rx_merged),
            Self::Poll => ns(costs.poll),
            Self::Timer => ns(costs.timer),
            Self::TimerArm => ns(costs.timer_arm),
            Self::TxRemote => ns(costs.tx_remote),
            Self::App => 2.0 * ns(costs.syscall) + ns(costs.user),
            Self::TxPacket => ns(costs.tx_packet),
            Self::Ack => ns(costs.ack),
            Self::Preempted => ns(costs.preempted),
            Self::Wake => ns(costs.wake),
            Self::Sleep => ns(costs.sleep),
            Self::IdleExit => ns(profile.sut.machine.idle_exit),
            Self::WakeRemote => ns(costs.wake_remote),
            Self::CrossCore => ns(costs.cross_core),
            Self::Copy => ns(costs.copy_per_kib),
            Self::Latency => ns(profile.network.latency),
            Self::Generator => {
                let generator = profile.generator.as_ref().unwrap_or(&profile.sut);
                ns(generator.machine.costs.interrupt) / ns(costs.interrupt).max(1.0)
            }
            Self::Throttle => ns(profile.sut.nic.coalescing.throttle.interval()),
            Self::Window => profile.sut.stack.send_buffer.get() as f64,
        }
    }

    fn set_cost(self, costs: &mut Costs, value: f64) {
        match self {
            Self::Interrupt => costs.interrupt = nanos(value),
            Self::RxFirst => costs.rx_first = nanos(value),
            Self::RxPacket => {
                costs.rx_packet = nanos(value * BARE_SHARE);
                costs.rx_data = nanos(value * (1.0 - BARE_SHARE));
                costs.tx_completion = nanos(value * COMPLETION_SHARE);
            }
            Self::RxAny => {
                costs.rx_packet = nanos(value);
                costs.rx_data = Nanos::ZERO;
                costs.tx_completion = nanos(value * COMPLETION_SHARE);
            }
            Self::RxMerged => costs.rx_merged = nanos(value),
            Self::Poll => costs.poll = nanos(value),
            Self::Timer => costs.timer = nanos(value),
            Self::TimerArm => costs.timer_arm = nanos(value),
            Self::Sleep => costs.sleep = nanos(value),
            Self::RxRemote => costs.rx_remote = nanos(value),
            Self::Remote => {
                costs.rx_remote = nanos(value);
                costs.tx_remote = nanos(value * SENT_REMOTE_RATIO);
            }
            Self::TxRemote => costs.tx_remote = nanos(value),
            Self::App => {
                costs.syscall = nanos(value * 0.43);
                costs.user = nanos(value * 0.14);
            }
            Self::TxPacket => {
                costs.tx_packet = nanos(value);
                costs.ack = nanos(value * ACK_SHARE);
            }
            Self::Ack => costs.ack = nanos(value),
            Self::Preempted => costs.preempted = nanos(value),
            Self::Wake => costs.wake = nanos(value),
            Self::WakeRemote => costs.wake_remote = nanos(value),
            Self::CrossCore => costs.cross_core = nanos(value),
            Self::Copy => costs.copy_per_kib = nanos(value),
            Self::Latency | Self::Generator | Self::IdleExit | Self::Throttle | Self::Window => {}
        }
    }
}

/// Sets these parameters, in their order.
pub(crate) fn set_all(profile: &mut Profile, values: &[(Parameter, f64)], generators: Generators) {
    let mut ratio = Parameter::Generator.get(profile);
    for &(parameter, value) in values {
        match parameter {
            Parameter::Latency => profile.network.latency = nanos(value),
            Parameter::IdleExit => {
                profile.sut.machine.idle_exit = nanos(value);
                if let Some(generator) = &mut profile.generator {
                    generator.machine.idle_exit = nanos(value);
                }
            }
            Parameter::Generator => ratio = value,
            Parameter::Throttle => {
                let throttle = &mut profile.sut.nic.coalescing.throttle;
                *throttle = throttle.with_interval(nanos(value));
            }
            Parameter::Window => profile.sut.stack.send_buffer = Bytes::new(whole(value)),
            _ => parameter.set_cost(&mut profile.sut.machine.costs, value),
        }
    }
    if generators == Generators::Stay {
        return;
    }
    if let Some(generator) = &mut profile.generator {
        generator.machine.costs = scaled(&profile.sut.machine.costs, ratio);
    }
}

fn scaled(costs: &Costs, ratio: f64) -> Costs {
    let times = |time: Nanos| nanos(time.as_ns() as f64 * ratio);
    Costs {
        interrupt: times(costs.interrupt),
        poll: times(costs.poll),
        rx_packet: times(costs.rx_packet),
        rx_merged: times(costs.rx_merged),
        rx_first: times(costs.rx_first),
        rx_data: times(costs.rx_data),
        rx_remote: times(costs.rx_remote),
        tx_completion: times(costs.tx_completion),
        tx_remote: times(costs.tx_remote),
        tx_packet: times(costs.tx_packet),
        ack: times(costs.ack),
        syscall: times(costs.syscall),
        user: times(costs.user),
        copy_per_kib: times(costs.copy_per_kib),
        wake: times(costs.wake),
        wake_remote: times(costs.wake_remote),
        sleep: times(costs.sleep),
        cross_core: times(costs.cross_core),
        preempted: times(costs.preempted),
        timer: times(costs.timer),
        timer_arm: times(costs.timer_arm),
        ipi: times(costs.ipi),
        backlog_packet: times(costs.backlog_packet),
        ..*costs
    }
}

fn nanos(value: f64) -> Nanos {
    Nanos::from_ns(whole(value))
}

/// Bounded, so that no step of a search makes an impossible profile.
#[expect(clippy::cast_possible_truncation, reason = "clamped")]
fn whole(value: f64) -> u64 {
    value.clamp(0.0, 1e8).round() as u64
}
