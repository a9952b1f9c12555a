//! The goals of moderation: how much of the rate or of the CPU a delay may cost.

use latput_policy::{DelayBounds, ladder};
use latput_units::Nanos;

/// A goal by name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NamedGoal {
    /// Its name. `latput tune` has other goals under other names: it compares measured settings, and the
    /// daemon only bounds what a delay costs.
    pub name: &'static str,
    /// Its name in releases before, which is refused with the new one.
    old_name: &'static str,
    /// The share of the load's rate that the delay may cost; `None`: there is no delay.
    pub max_loss_ratio: Option<f64>,
    /// The longest delay, unless `--max-delay` says otherwise.
    pub max_delay: Nanos,
}

/// Every goal that has a name; the last one is the default.
pub const NAMED: [NamedGoal; 4] = [
    NamedGoal {
        name: "no-delay",
        old_name: "latency",
        max_loss_ratio: None,
        max_delay: Nanos::ZERO,
    },
    NamedGoal {
        name: "keep-rate",
        old_name: "throughput",
        max_loss_ratio: Some(0.005),
        max_delay: Nanos::from_us(100),
    },
    NamedGoal {
        name: "save-cpu",
        old_name: "cpu",
        max_loss_ratio: Some(0.05),
        max_delay: Nanos::from_us(200),
    },
    NamedGoal {
        name: "standard",
        old_name: "balanced",
        max_loss_ratio: Some(0.02),
        max_delay: Nanos::from_us(100),
    },
];

/// The goal without a name.
pub const DEFAULT: &NamedGoal = &NAMED[3];

impl NamedGoal {
    fn from_name(name: &str) -> Result<&'static Self, GoalError> {
        if let Some(found) = NAMED.iter().find(|goal| goal.name == name) {
            return Ok(found);
        }
        if let Some(renamed) = NAMED.iter().find(|goal| goal.old_name == name) {
            return Err(GoalError::Renamed { old: renamed.old_name, new: renamed.name });
        }
        Err(GoalError::Unknown { name: name.chars().take(80).collect() })
    }

    /// The limits that it stands for, with a longest delay of `max_delay`.
    fn describe_limits(&self, max_delay: Nanos) -> String {
        self.max_loss_ratio.map_or_else(
            || "no delay, whatever it costs".to_owned(),
            |loss| {
                let percent = loss * 100.0;
                format!(
                    "the longest delay that costs at most {percent}% of the rate, at most {max_delay}"
                )
            },
        )
    }
}

/// The names of all goals, for messages.
pub fn names() -> String {
    NAMED.map(|goal| goal.name).join(", ")
}

/// A line for each goal, for help: its name, what it stands for, which is the default.
pub fn help_text() -> String {
    let line = |goal: NamedGoal| {
        let default = if goal == *DEFAULT { " (the default)" } else { "" };
        format!("  {:<11}{}{default}", goal.name, goal.describe_limits(goal.max_delay))
    };
    NAMED.map(line).join("\n")
}

/// A goal that contradicts nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// In words, for the log and the status.
    pub text: String,
    pub(crate) aim: GoalKind,
    /// The longest delay, whatever the load.
    pub(crate) most: Nanos,
}

/// The bound that decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum GoalKind {
    /// No delay.
    LeastDelay,
    /// The longest delay that costs at most this share of the rate.
    FullRate { loss_ratio: f64 },
    /// The least delay with which the host uses at most this share of its CPU time.
    CpuBudget { ratio: f64 },
}

/// Why options make no goal.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GoalError {
    /// No such name.
    #[error("there is no goal `{name}`: choose one of {}", names())]
    Unknown {
        /// The unknown name.
        name: String,
    },
    /// The name of a release before.
    #[error("the goal `{old}` of `latput moderate` is called `{new}` now")]
    Renamed {
        /// The former name.
        old: &'static str,
        /// Its name now.
        new: &'static str,
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
    #[error("--goal no-delay has no delay, so that --max-delay bounds nothing: give one of them")]
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
    #[error("a CPU budget of {percent}%: must be over 0% and below 100% of the host's CPU time")]
    Budget {
        /// As given.
        percent: f64,
    },
}

impl Goal {
    /// A goal by name, a longest delay and a CPU budget as a share of all CPU time of the host. A budget
    /// stands alone; without it and without a name the goal is [`DEFAULT`].
    pub fn new(
        name: Option<&str>,
        max_delay: Option<Nanos>,
        cpu_budget_ratio: Option<f64>,
    ) -> Result<Self, GoalError> {
        if let Some(most) = max_delay {
            let least = DelayBounds::default().least;
            let greatest = ladder::GREATEST;
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
                format!("the least delay within {:.1}% of the CPU, at most {most}", ratio * 100.0);
            return Ok(Self { text, aim: GoalKind::CpuBudget { ratio }, most });
        }
        let named = name.map_or(Ok(DEFAULT), NamedGoal::from_name)?;
        let most = max_delay.unwrap_or(named.max_delay);
        let aim = match named.max_loss_ratio {
            None if max_delay.is_some() => return Err(GoalError::NoDelay),
            None => GoalKind::LeastDelay,
            Some(loss_ratio) => GoalKind::FullRate { loss_ratio },
        };
        Ok(Self { text: format!("{}: {}", named.name, named.describe_limits(most)), aim, most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_bounds_and_budgets_make_a_goal() {
        check_goal(
            None,
            None,
            None,
            Ok("standard: the longest delay that costs at most 2% of the rate, at most 100us"),
        );
        check_goal(
            Some("save-cpu"),
            Some(50),
            None,
            Ok("save-cpu: the longest delay that costs at most 5% of the rate, at most 50us"),
        );
        check_goal(Some("no-delay"), None, None, Ok("no-delay: no delay, whatever it costs"));
        check_goal(
            None,
            Some(80),
            Some(0.3),
            Ok("the least delay within 30.0% of the CPU, at most 80us"),
        );
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        check_goal(Some("save-cpu"), None, Some(0.3), Err("give one of them"));
        check_goal(Some("no-delay"), Some(50), None, Err("bounds nothing"));
        check_goal(Some("speed"), None, None, Err("no-delay, keep-rate, save-cpu, standard"));
        check_goal(Some("balanced"), None, None, Err("is called `standard` now"));
        check_goal(None, Some(0), None, Err("must be from"));
        check_goal(None, Some(1_000_000), None, Err("must be from"));
        for ratio in [0.0, -0.1, 1.0, 30.0, f64::NAN, f64::INFINITY] {
            check_goal(None, None, Some(ratio), Err("must be over 0%"));
        }
    }

    #[track_caller]
    fn check_goal(
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
