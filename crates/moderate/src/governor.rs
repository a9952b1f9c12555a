//! The policy behind a goal, fed by samples and by looks at the CPU.

use latput_policy::{BudgetPolicy, Decision, DelayBounds, QueueObservation, ResponsePolicy};
use latput_units::Nanos;

use crate::goal::{Goal, GoalKind};
use crate::meter::MeterSample;

/// The policy that a goal asks for.
#[derive(Clone, Debug)]
pub(crate) enum Governor {
    /// No delay, for ever.
    LeastDelay,
    /// The longest delay that does not slow the load down.
    FullRate(Box<ResponsePolicy>),
    /// The least delay within a CPU budget, with the packets since the last look.
    CpuBudget { policy: Box<BudgetPolicy>, packets: QueueObservation },
}

impl Governor {
    pub(crate) fn new(goal: &Goal, least: Nanos, ring: u32) -> Self {
        let bounds = DelayBounds { least, most: goal.most, ring, ..DelayBounds::default() };
        match goal.aim {
            GoalKind::LeastDelay => Self::LeastDelay,
            GoalKind::FullRate { loss_ratio } => {
                Self::FullRate(Box::new(ResponsePolicy::new(DelayBounds { loss_ratio, ..bounds })))
            }
            GoalKind::CpuBudget { ratio } => Self::CpuBudget {
                policy: Box::new(BudgetPolicy::new(bounds, ratio)),
                packets: QueueObservation::default(),
            },
        }
    }

    /// The delay that it wants now.
    pub(crate) fn wanted_delay(&self) -> Nanos {
        match self {
            Self::LeastDelay => Nanos::ZERO,
            Self::FullRate(policy) => policy.current_moderation().delay,
            Self::CpuBudget { policy, .. } => policy.current_moderation().delay,
        }
    }

    /// Takes in one sample.
    pub(crate) fn observe_sample(&mut self, sample: &MeterSample) -> Decision {
        match self {
            Self::LeastDelay => Decision::Keep,
            Self::FullRate(policy) => policy.step(&sample.observation),
            Self::CpuBudget { packets, .. } => {
                let new = sample.observation.rx;
                packets.rx.packets = packets.rx.packets.saturating_add(new.packets);
                packets.rx.bytes = packets.rx.bytes.saturating_add(new.bytes);
                Decision::Keep
            }
        }
    }

    /// Says that a new delay holds from `now` on.
    pub(crate) fn mark_change(&mut self, now: Nanos) {
        if let Self::FullRate(policy) = self {
            // An empty step marks the time; what it decides, the next sample decides again.
            let _ = policy.step(&QueueObservation { now, ..QueueObservation::default() });
        }
    }

    /// Whether the delay of now is on trial: the sooner it is seen to do harm, the better.
    pub(crate) fn is_on_trial(&self) -> bool {
        matches!(self, Self::FullRate(policy) if policy.is_on_trial())
    }

    /// Takes in how busy the host was since the last look.
    pub(crate) fn observe_cpu(&mut self, elapsed: Nanos, busy_ratio: f64) -> Decision {
        match self {
            Self::CpuBudget { policy, packets } => {
                let packets = std::mem::take(packets);
                policy.step(&packets, elapsed, busy_ratio)
            }
            _ => Decision::Keep,
        }
    }

    /// Whether a CPU budget was kept at the last look.
    pub(crate) fn is_budget_met(&self) -> Option<bool> {
        match self {
            Self::CpuBudget { policy, .. } => Some(policy.is_met()),
            _ => None,
        }
    }

    /// The CPU share that each delay was last seen with.
    pub(crate) fn frontier(&self) -> Vec<(Nanos, f64)> {
        match self {
            Self::CpuBudget { policy, .. } => {
                policy.frontier().map(|(moderation, cpu)| (moderation.delay, cpu)).collect()
            }
            _ => Vec::new(),
        }
    }
}
