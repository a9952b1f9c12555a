//! Shards of a run: processes that each simulate every n-th trial of one plan, or of one block of a search.
//!
//! `docs/adr/014-shards-by-trial.md` says why trials are divided this way, and what cannot be.

use std::fmt;
use std::str::FromStr;

use latput_trial::Plan;

/// Most shards of a run.
pub const MOST_SHARDS: u32 = 10_000;
/// Begins the line that a shard adds to its plan's text.
const LINE: &str = "# --shard ";
/// Ends that line where the plan may ask for more than the fewest repetitions.
const MORE: &str = " of the fewest repetitions";
/// Comes before the block's number in the line of a shard of a search.
const OF_BLOCK: &str = " of block ";

/// One shard of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shard {
    number: u32,
    count: u32,
}

impl Shard {
    /// The shard `number`, counted from 1, of `count`.
    pub fn new(number: u32, count: u32) -> Option<Self> {
        let is_one = (1..=MOST_SHARDS).contains(&count) && (1..=count).contains(&number);
        is_one.then_some(Self { number, count })
    }

    /// Its number, counted from 1.
    pub const fn number(self) -> u32 {
        self.number
    }

    /// How many shards there are.
    pub const fn count(self) -> u32 {
        self.count
    }

    /// Whether the trial at this place of the run's order, counted from 0, is in this shard.
    pub const fn has_trial(self, place: u64) -> bool {
        place % self.count as u64 == self.number as u64 - 1
    }

    /// Number of its trials, of `trials` in the run.
    pub const fn count_trials(self, trials: u64) -> u64 {
        (trials + self.count as u64 - self.number as u64) / self.count as u64
    }

    /// The plan's text with the line that tells this shard from the others and from the whole run.
    pub fn plan_text(self, plan: &Plan, text: &str) -> String {
        let more = plan.method.repetitions_max > plan.method.repetitions_min;
        format!("{text}\n{LINE}{self}{}\n", if more { MORE } else { "" })
    }

    /// The text of a search with the line that tells this shard of this block.
    pub fn block_text(self, text: &str, block: u32) -> String {
        format!("{text}\n{LINE}{self}{OF_BLOCK}{block}\n")
    }

    /// The shard of such a text, if it is one, and what it is a shard of.
    pub fn of_plan_text(text: &str) -> Option<(Self, WholeRun<'_>)> {
        let (plan, line) = text.strip_suffix('\n')?.rsplit_once('\n')?;
        let line = line.strip_prefix(LINE)?;
        let (shard, is_least, block) = match (line.strip_suffix(MORE), line.split_once(OF_BLOCK)) {
            (Some(shard), _) => (shard, true, None),
            (None, Some((shard, block))) => (shard, false, Some(block.parse().ok()?)),
            (None, None) => (line, false, None),
        };
        Some((shard.parse().ok()?, WholeRun { plan, is_least, block }))
    }

    /// The remark in the results of a shard.
    pub fn result_note(self) -> String {
        format!(
            "shard {self} has the trials whose number modulo {} is {}; `latput merge` joins the shards",
            self.count,
            self.number - 1
        )
    }
}

/// The whole that a shard is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WholeRun<'a> {
    /// Text of the run's plan.
    pub plan: &'a str,
    /// Whether the run may go on after the trials of all shards, by its stopping rule.
    pub is_least: bool,
    /// The block of a search.
    pub block: Option<u32>,
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.count)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = |text: &str| {
            let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            is_plain.then(|| text.parse().ok()).flatten()
        };
        let (text, first) = match text.strip_prefix("index:") {
            Some(text) => (text, 0),
            None => (text, 1),
        };
        let numbers = text.split_once('/').map(|(number, count)| (parse(number), parse(count)));
        let shard = match numbers {
            Some((Some(number), Some(count))) => {
                u32::checked_add(number, 1 - first).and_then(|number| Self::new(number, count))
            }
            _ => None,
        };
        shard.ok_or_else(|| {
            format!(
                "must be NUMBER/COUNT, such as 3/16, with 1 <= NUMBER <= COUNT <= {MOST_SHARDS}; or \
                 index:INDEX/COUNT, counted from 0"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_are_divided_once_over_shards() {
        for count in [1, 2, 3, 7, 16] {
            let shards: Vec<Shard> =
                (1..=count).filter_map(|number| Shard::new(number, count)).collect();
            for trials in 0..40 {
                let mut seen = vec![0; shards.len()];
                for place in 0..trials {
                    let owners: Vec<usize> =
                        (0..shards.len()).filter(|&at| shards[at].has_trial(place)).collect();
                    assert_eq!(owners.len(), 1, "place {place} of {count} shards");
                    seen[owners[0]] += 1;
                }
                let shares: Vec<u64> = shards.iter().map(|it| it.count_trials(trials)).collect();
                assert_eq!(shares, seen, "{trials} trials in {count} shards");
            }
        }
    }

    #[test]
    fn what_is_no_shard_is_refused() {
        for text in [
            "",
            "3",
            "0/4",
            "5/4",
            "1/0",
            "1/10001",
            "-1/4",
            "+1/4",
            "1/4/4",
            "a/b",
            " 1/4",
            "index:4/4",
            "index:-1/4",
            "index:4294967295/4",
            "index:index:0/4",
        ] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
        for text in ["3/16", "index:2/16"] {
            assert_eq!(text.parse(), Ok(Shard { number: 3, count: 16 }));
        }
    }

    #[test]
    fn line_of_a_shard_comes_off_again() {
        let text = "schema = 1\n[[workload]]\nkind = \"tcp_rr\"\n";
        for (repetitions, is_least) in [("min = 2, max = 2", false), ("min = 2, max = 3", true)] {
            let text = format!("{text}[method]\nrepetitions = {{ {repetitions} }}\n");
            let plan = Plan::parse("p.toml", &text).unwrap();
            let shard: Shard = "3/16".parse().unwrap();
            let with_line = shard.plan_text(&plan, &text);
            assert_eq!(
                Shard::of_plan_text(&with_line),
                Some((shard, WholeRun { plan: &text, is_least, block: None }))
            );
            assert_eq!(Shard::of_plan_text(&text), None);
            let of_block = WholeRun { plan: &text, is_least: false, block: Some(7) };
            assert_eq!(Shard::of_plan_text(&shard.block_text(&text, 7)), Some((shard, of_block)));
        }
        for no_shard in ["5/4", "1/4 of block", "1/4 of block -1", "1/4 of block 4294967296"] {
            assert_eq!(
                Shard::of_plan_text(&format!("x\n# --shard {no_shard}\n")),
                None,
                "{no_shard}"
            );
        }
    }
}
