//! The stages in which a setting comes to a fleet: a few hosts first, then more, then all.

use std::fmt;
use std::str::FromStr;

/// How many hosts of each group have the setting after a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageStep {
    /// A number of hosts.
    Count(usize),
    /// A percentage of the hosts, rounded up.
    Percent(u8),
    /// All of them.
    All,
}

impl FromStr for StageStep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let step = match text.strip_suffix('%') {
            None if text == "all" => Some(Self::All),
            None => text.parse().ok().filter(|count| *count > 0).map(Self::Count),
            Some(percent) => {
                percent.parse().ok().filter(|it| (1..=100).contains(it)).map(Self::Percent)
            }
        };
        step.ok_or_else(|| "give a number of hosts, a share such as 10%, or `all`".to_owned())
    }
}

impl fmt::Display for StageStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
            Self::All => f.write_str("all"),
        }
    }
}

impl StageStep {
    /// Hosts of a group of `size`.
    fn host_count(self, size: usize) -> usize {
        match self {
            Self::Count(count) => count.min(size),
            Self::Percent(percent) => (size * usize::from(percent)).div_ceil(100),
            Self::All => size,
        }
    }
}

/// Refuses a step that is smaller than one of its kind before it, or that comes after all hosts.
pub fn check_steps(steps: &[StageStep]) -> Result<(), String> {
    let shrinks = steps.windows(2).find(|pair| match (pair[0], pair[1]) {
        (StageStep::Count(before), StageStep::Count(after)) => after < before,
        (StageStep::Percent(before), StageStep::Percent(after)) => after < before,
        (StageStep::All, after) => after != StageStep::All,
        (StageStep::Count(_), StageStep::Percent(_) | StageStep::All)
        | (StageStep::Percent(_), StageStep::Count(_) | StageStep::All) => false,
    });
    shrinks.map_or(Ok(()), |pair| {
        let (before, after) = (pair[0], pair[1]);
        Err(format!(
            "stage `{after}` is smaller than stage `{before}` before it: name growing stages"
        ))
    })
}

/// The hosts of each stage, as places in `groups`, which has the group of every host. A step is of each group, with the
/// hosts of earlier steps counted; stages without a host are left out.
pub fn plan_stages(groups: &[&str], steps: &[StageStep]) -> Vec<Vec<usize>> {
    let size = |group: &str| groups.iter().filter(|other| **other == group).count();
    let rank = |idx: usize| groups[..idx].iter().filter(|other| **other == groups[idx]).count();
    let places: Vec<(usize, usize)> =
        groups.iter().enumerate().map(|(idx, group)| (rank(idx), size(group))).collect();
    let mut is_taken = vec![false; groups.len()];
    let mut stages = Vec::new();
    for step in steps {
        let mut stage = Vec::new();
        for (idx, &(rank, size)) in places.iter().enumerate() {
            if !is_taken[idx] && rank < step.host_count(size) {
                is_taken[idx] = true;
                stage.push(idx);
            }
        }
        if !stage.is_empty() {
            stages.push(stage);
        }
    }
    stages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shrinking_stages_are_refused() {
        let check = |steps: &[&str]| {
            check_steps(&steps.iter().map(|step| step.parse().unwrap()).collect::<Vec<_>>())
        };
        assert_eq!(check(&["1", "10%", "all"]), Ok(()));
        assert_eq!(check(&["all", "all"]), Ok(()), "the default behind `--canary all`");
        for steps in [["50%", "10%"], ["3", "1"], ["all", "1"]] {
            let refused = check(&steps).unwrap_err();
            assert!(refused.starts_with(&format!("stage `{}`", steps[1])), "{refused}");
        }
    }

    #[test]
    fn step_is_a_number_a_share_or_all() {
        for (text, step) in [
            ("1", StageStep::Count(1)),
            ("10%", StageStep::Percent(10)),
            ("100%", StageStep::Percent(100)),
            ("all", StageStep::All),
        ] {
            assert_eq!(text.parse(), Ok(step));
            assert_eq!(step.to_string(), text);
        }
        for text in ["", "0", "-1", "0%", "101%", "1.5", concat!("10", " %"), "every", "%"] {
            assert!(text.parse::<StageStep>().is_err(), "{text}");
        }
    }

    #[test]
    fn every_group_has_one_canary() {
        let groups: Vec<&str> = [["db"; 3].as_slice(), &["web"; 21]].concat();
        let found =
            plan_stages(&groups, &[StageStep::Count(1), StageStep::Percent(10), StageStep::All]);
        assert_eq!(found[0], [0, 3]);
        assert_eq!(found[1], [4, 5], "3 of 21 are 10%, and 1 of 3 db");
        assert_eq!(found[2].len(), 20);
        let mut all = found.concat();
        all.sort_unstable();
        assert_eq!(all, (0..24).collect::<Vec<_>>());
    }

    #[test]
    fn empty_stages_are_left_out() {
        let groups = ["web"; 4];
        let found = plan_stages(
            &groups,
            &[StageStep::Count(2), StageStep::Percent(50), StageStep::Count(1)],
        );
        assert_eq!(found, [[0, 1]]);
        assert!(plan_stages(&[], &[StageStep::All]).is_empty());
    }
}
