//! Moderation policies: code that is told what a queue did and answers how long its next interrupt
//! should be held back.
//!
//! Every policy is a pure `step`: no clock, no I/O, no randomness. The simulator and the live daemon
//! run the same code, so a policy can be proven on simulated loads before it touches a NIC.
//!
//! [`Policy`] covers interrupt moderation by traffic alone. Three control loops of the same kind have
//! their own observation: [`BudgetPolicy`] (moderation to a CPU budget), [`DevicePolling`] (packets per FreeBSD
//! poll) and [`ByteLimit`] (BQL).

pub mod aim;
pub mod budget;
pub mod byte_limit;
pub mod dim;
pub mod e1000;
pub mod ixgbe;
pub mod ladder;
pub mod polling;
pub mod response;

pub use aim::Aim;
pub use budget::BudgetPolicy;
pub use byte_limit::ByteLimit;
pub use dim::Dim;
pub use e1000::E1000;
pub use ixgbe::Ixgbe;
pub use ladder::DelayBounds;
use latput_units::{BitsPerSecond, Nanos};
pub use polling::DevicePolling;
pub use response::ResponsePolicy;

/// The counts of one interrupt vector since the previous step: drivers step once per completed poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueObservation {
    /// The time now.
    pub now: Nanos,
    /// Received since the previous step.
    pub rx: TrafficCounts,
    /// Transmit completions since the previous step.
    pub tx: TrafficCounts,
    /// How many of the received packets were [small](SMALL_BYTES).
    pub rx_small: u32,
    /// Whether only those were counted that the host answered: requests.
    pub are_requests: bool,
    /// How many of the transmitted packets were.
    pub tx_small: u32,
    /// Interrupts since the previous step.
    pub interrupts: u32,
    /// Which of the interface's vectors it is of, where one policy is told of all; 0 where a sample is of
    /// the whole interface.
    pub vector: u32,
    /// The link's rate.
    pub link: BitsPerSecond,
}

/// A packet of no more bytes is small: a request, an answer or an acknowledgement, and no part of bulk.
pub const SMALL_BYTES: u32 = 256;

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficCounts {
    /// How many packets.
    pub packets: u32,
    /// Their bytes, headers included.
    pub bytes: u32,
}

/// The values for a queue's moderation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moderation {
    /// The hold-off interval or delay, as the register can hold it; zero is no delay.
    pub delay: Nanos,
    /// Interrupt earlier once this many frames wait; `None` where the device has no such limit.
    pub frames: Option<u32>,
}

impl Moderation {
    /// A delay without a limit on frames.
    pub const fn from_delay(delay: Nanos) -> Self {
        Self { delay, frames: None }
    }
}

/// The answer of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Leave everything as it is.
    Keep,
    /// Set this.
    Change {
        /// The new moderation.
        target: Moderation,
        /// Why, in a few words, for the log.
        reason: &'static str,
    },
}

/// Any interrupt moderation policy.
#[derive(Clone, Debug, PartialEq)]
pub enum Policy {
    /// One value, for ever.
    Fixed(Moderation),
    /// The dynamic interrupt throttling of e1000 and e1000e.
    E1000(E1000),
    /// By mean frame size: igb, and FreeBSD's AIM.
    Aim(Aim),
    /// The per-ring sampling of ixgbe.
    Ixgbe(Ixgbe),
    /// Linux's dynamic interrupt moderation library, for one direction.
    Dim(Dim),
    /// Ours: the longest delay that does not slow the load down.
    Response(Box<ResponsePolicy>),
}

impl Policy {
    /// The moderation of the queue before the first step.
    pub fn initial_moderation(&self) -> Moderation {
        match self {
            Self::Fixed(moderation) => *moderation,
            Self::E1000(policy) => policy.current_moderation(),
            Self::Aim(policy) => policy.current_moderation(),
            Self::Ixgbe(policy) => policy.current_moderation(),
            Self::Dim(policy) => policy.current_moderation(),
            Self::Response(policy) => policy.current_moderation(),
        }
    }

    /// Takes in what the queue did since the previous step and decides what holds from now on.
    pub fn step(&mut self, observation: &QueueObservation) -> Decision {
        match self {
            Self::Fixed(_) => Decision::Keep,
            Self::E1000(policy) => policy.step(observation),
            Self::Aim(policy) => policy.step(observation),
            Self::Ixgbe(policy) => policy.step(observation),
            Self::Dim(policy) => policy.step(observation),
            Self::Response(policy) => policy.step(observation),
        }
    }
}

/// `Change` if `target` is not what already holds.
fn change_if_new(current: Moderation, target: Moderation, reason: &'static str) -> Decision {
    if target == current { Decision::Keep } else { Decision::Change { target, reason } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_policy_never_moves() {
        let moderation = Moderation { delay: Nanos::from_us(50), frames: Some(32) };
        let mut policy = Policy::Fixed(moderation);
        assert_eq!(policy.initial_moderation(), moderation);
        let busy = QueueObservation {
            rx: TrafficCounts { packets: 1000, bytes: 1_500_000 },
            interrupts: 1,
            ..QueueObservation::default()
        };
        assert_eq!(policy.step(&busy), Decision::Keep);
    }
}
