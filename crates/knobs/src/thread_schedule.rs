//! How the scheduler treats a thread, as one number, which a checkpoint can hold.

use std::fmt;

/// Factor of a policy in the number.
const POLICY_FACTOR: u64 = 1000;
/// The level of nice 0: nice values begin at -20.
const NICE_ZERO: i32 = 20;
/// Factor of the nice value of a thread with a real-time policy, one more than its level. No such value stands for nice 0.
const NICE_FACTOR: u64 = 1_000_000;

/// How the scheduler treats a thread (sched(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadSchedule {
    /// `SCHED_OTHER` (0), `SCHED_FIFO` (1) ..., as in `include/uapi/linux/sched.h`.
    pub policy: i32,
    /// From 1 with a real-time policy; 0 with another.
    pub priority: i32,
    /// From -20 to 19. With a real-time policy it has no effect until the thread has another.
    pub nice: i32,
}

impl ThreadSchedule {
    /// The policy's number times 1000, and the priority or 20 more than the nice value. With a priority, a nice value other
    /// than 0 adds 21 more than itself, in millions.
    pub fn to_number(self) -> u64 {
        let Self { policy, priority, nice } = self;
        let whole = |number: i32| u64::try_from(number).unwrap_or(0);
        let of_policy = whole(policy) * POLICY_FACTOR;
        match (priority > 0, nice) {
            (false, nice) => of_policy + whole(nice + NICE_ZERO),
            (true, 0) => of_policy + whole(priority),
            (true, nice) => of_policy + whole(priority) + whole(nice + NICE_ZERO + 1) * NICE_FACTOR,
        }
    }

    /// The schedule of a number; `None` if it stands for none.
    pub fn from_number(number: u64) -> Option<Self> {
        let narrow = |number: u64| i32::try_from(number).ok();
        let policy = narrow(number % NICE_FACTOR / POLICY_FACTOR)?;
        let level = narrow(number % POLICY_FACTOR)?;
        let schedule = match (Self::is_real_time(policy), narrow(number / NICE_FACTOR)?) {
            (true, 0) => Self { policy, priority: level, nice: 0 },
            (true, code) => Self { policy, priority: level, nice: code - NICE_ZERO - 1 },
            (false, 0) => Self { policy, priority: 0, nice: level - NICE_ZERO },
            (false, _) => return None,
        };
        (-20..20).contains(&schedule.nice).then_some(schedule)
    }

    /// Whether threads of a policy have a priority: `SCHED_FIFO` and `SCHED_RR`.
    const fn is_real_time(policy: i32) -> bool {
        matches!(policy, 1 | 2)
    }
}

impl fmt::Display for ThreadSchedule {
    /// `SCHED_OTHER nice 0`, `SCHED_FIFO 42`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, priority, nice } = self;
        match policy {
            0 => write!(f, "SCHED_OTHER nice {nice}"),
            1 => write!(f, "SCHED_FIFO {priority}"),
            2 => write!(f, "SCHED_RR {priority}"),
            3 => write!(f, "SCHED_BATCH nice {nice}"),
            5 => write!(f, "SCHED_IDLE nice {nice}"),
            other => write!(f, "policy {other} nice {nice}"),
        }?;
        match (priority, nice) {
            (0, _) | (_, 0) => Ok(()),
            (_, nice) => write!(f, " nice {nice}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_survive_as_numbers() {
        for policy in [0, 3, 5] {
            for nice in -20..20 {
                check(ThreadSchedule { policy, priority: 0, nice });
            }
        }
        for policy in [1, 2] {
            for (priority, nice) in [(1, 0), (50, -20), (50, 19), (99, -3)] {
                check(ThreadSchedule { policy, priority, nice });
            }
        }
    }

    #[track_caller]
    fn check(schedule: ThreadSchedule) {
        assert_eq!(ThreadSchedule::from_number(schedule.to_number()), Some(schedule));
    }

    #[test]
    fn numbers_of_earlier_checkpoints_are_read() {
        let of = |number| ThreadSchedule::from_number(number).unwrap().to_string();
        assert_eq!(of(20), "SCHED_OTHER nice 0");
        assert_eq!(of(1042), "SCHED_FIFO 42");
        assert_eq!(of(3025), "SCHED_BATCH nice 5");
        assert_eq!(of(18_001_042), "SCHED_FIFO 42 nice -3");
    }

    #[test]
    fn numbers_of_no_schedule_are_refused() {
        for number in [u64::MAX, 999, 18_000_020, 80_001_042] {
            assert_eq!(ThreadSchedule::from_number(number), None, "{number}");
        }
    }
}
