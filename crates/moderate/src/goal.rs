//! What an interface is to be held at.

use latput_policy::{Bounds, ladder};
use latput_units::Nanos;

/// The goals by name, with what they stand for; the names are those of `latput tune`.
pub const NAMED: &[(&str, &str)] = &[
    ("latency", "no delay at all, whatever it costs"),
    ("throughput", "the longest delay that costs no throughput (0.5 %), at most 100us"),
    (
        "cpu",
        "the least CPU at full rate: the longest delay that costs at most 5 % of it, at most 200us",
    ),
    (
        "balanced",
        "the longest delay that costs at most 2 % of the rate, at most 100us (the default)",
    ),
];

/// A goal that contradicts nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// In words, for the log and the status.
    pub text: String,
    pub(crate) aim: Aim,
    /// The longest delay, whatever the load.
    pub(crate) most: Nanos,
}

/// What decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Aim {
    /// No delay.
    LeastDelay,
    /// The longest delay that costs at most this share of the rate.
    FullRate { loss_ratio: f64 },
    /// The least delay with which the host uses at most this share of its CPU time.
    CpuBudget { ratio: f64 },
}

/// A goal that says nothing, or two things.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GoalError {
    /// No such name.
    #[error("there is no goal `{name}`: take latency, throughput, cpu or balanced")]
    Unknown {
        /// What was written.
        name: String,
    },
    /// A CPU budget beside a goal that has another idea of CPU.
    #[error(
        "--cpu-budget asks for the least delay that keeps the CPU within it, and --goal {name} for something else: \
         give one of them"
    )]
    Two {
        /// The goal.
        name: String,
    },
    /// A bound on no delay.
    #[error("--goal latency holds no delay, so that --max-delay bounds nothing: give one of them")]
    NoDelay,
    /// A longest delay that leaves nothing to choose, or too much.
    #[error("--max-delay {most}: must be from {least} to {greatest}")]
    MostDelay {
        /// As given.
        most: Nanos,
        /// The least useful.
        least: Nanos,
        /// The longest that is ever tried.
        greatest: Nanos,
    },
    /// Not a share.
    #[error("a CPU budget of {percent} %: must be over 0 % and below 100 % of the host's CPU time")]
    Budget {
        /// As given.
        percent: f64,
    },
}

impl Goal {
    /// A goal by name, a longest delay and a CPU budget as a share of all CPU time of the host. A budget
    /// stands alone; without it the goal is `balanced` unless named.
    pub fn new(
        name: Option<&str>,
        max_delay: Option<Nanos>,
        cpu_budget_ratio: Option<f64>,
    ) -> Result<Self, GoalError> {
        if let Some(most) = max_delay {
            let (least, greatest) = (Bounds::default().least, ladder::GREATEST);
            if !(least..=greatest).contains(&most) {
                return Err(GoalError::MostDelay { most, least, greatest });
            }
        }
        if let Some(ratio) = cpu_budget_ratio {
            if let Some(name) = name {
                return Err(GoalError::Two { name: name.to_owned() });
            }
            if !(ratio > 0.0 && ratio < 1.0) {
                return Err(GoalError::Budget { percent: ratio * 100.0 });
            }
            let most = max_delay.unwrap_or(Nanos::from_us(200));
            let text =
                format!("the least delay within {:.1} % of the CPU, at most {most}", ratio * 100.0);
            return Ok(Self { text, aim: Aim::CpuBudget { ratio }, most });
        }
        let name = name.unwrap_or("balanced");
        let (loss_ratio, usual) = match name {
            "latency" if max_delay.is_some() => return Err(GoalError::NoDelay),
            "latency" => {
                let text = "latency: no delay".to_owned();
                return Ok(Self { text, aim: Aim::LeastDelay, most: Nanos::ZERO });
            }
            "throughput" => (0.005, Nanos::from_us(100)),
            "cpu" => (0.05, Nanos::from_us(200)),
            "balanced" => (0.02, Nanos::from_us(100)),
            _ => return Err(GoalError::Unknown { name: name.chars().take(80).collect() }),
        };
        let most = max_delay.unwrap_or(usual);
        let loss = loss_ratio * 100.0;
        let text = format!(
            "{name}: the longest delay that costs at most {loss} % of the rate, at most {most}"
        );
        Ok(Self { text, aim: Aim::FullRate { loss_ratio }, most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_bounds_and_budgets_make_a_goal() {
        check(
            None,
            None,
            None,
            Ok("balanced: the longest delay that costs at most 2 % of the rate, at most 100us"),
        );
        check(
            Some("cpu"),
            Some(50),
            None,
            Ok("cpu: the longest delay that costs at most 5 % of the rate, at most 50us"),
        );
        check(Some("latency"), None, None, Ok("latency: no delay"));
        check(
            None,
            Some(80),
            Some(0.3),
            Ok("the least delay within 30.0 % of the CPU, at most 80us"),
        );
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        check(Some("cpu"), None, Some(0.3), Err("give one of them"));
        check(Some("latency"), Some(50), None, Err("bounds nothing"));
        check(Some("speed"), None, None, Err("no goal `speed`"));
        check(None, Some(0), None, Err("must be from"));
        check(None, Some(1_000_000), None, Err("must be from"));
        for ratio in [0.0, -0.1, 1.0, 30.0, f64::NAN, f64::INFINITY] {
            check(None, None, Some(ratio), Err("must be over 0 %"));
        }
    }

    #[track_caller]
    fn check(
        name: Option<&str>,
        us: Option<u64>,
        budget: Option<f64>,
        expected: Result<&str, &str>,
    ) {
        match (Goal::new(name, us.map(Nanos::from_us), budget), expected) {
            (Ok(goal), Ok(text)) => assert_eq!(goal.text, text),
            (Err(error), Err(words)) => {
                assert!(error.to_string().contains(words), "{error}");
            }
            (found, _) => panic!("{found:?}"),
        }
    }
}
