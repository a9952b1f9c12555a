//! The way of a packet through this host: how long it waits at each stage.
//!
//! A stage is a wait between two points of the kernel. Those of the way in and out follow each other, so that their means
//! add up; a packet passes one of several alternatives (a softirq or a NAPI thread). What runs beside the request, such as
//! the wait for the card's completion, is in no sum.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A wait on the way of a packet.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Receive softirq raised until it runs.
    Softirq,
    /// NAPI thread woken until it runs.
    NapiThread,
    /// Softirq or thread runs until it hands the packet to the protocols.
    Poll,
    /// Protocols have the packet until it is in the socket.
    Protocol,
    /// Packet in the socket until its reader runs.
    Wakeup,
    /// Reader runs until it has taken the packet.
    Read,
    /// Packet in the socket of a reader that does not sleep, until it is taken.
    Socket,
    /// Packet taken by a program until that program's next packet is queued.
    Application,
    /// Packet queued until the driver gets it.
    Qdisc,
    /// Driver gets the packet until the card has sent it.
    Ring,
    /// Packet of a program queued until that program takes the next one.
    Turnaround,
}

/// Where a stage counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A request passes it on its way through this host.
    Path,
    /// A request waits there for the program.
    Program,
    /// It runs beside the request.
    Beside,
    /// It is the whole from sending to reading, with what is beyond this host.
    Whole,
}

/// A row of the table of stages.
#[derive(Clone, Copy, Debug)]
pub struct StageRow {
    /// The stage.
    pub stage: Stage,
    /// Its name in JSON and tables.
    pub name: &'static str,
    /// One sentence: from where to where.
    pub meaning: &'static str,
    /// Where it counts.
    pub part: Part,
    /// The stages of which a packet passes one: the packets that are followed here are as many as their counts.
    alternatives: &'static [Stage],
}

/// Every stage, in the order of the way; its waits are in nanoseconds.
pub const STAGES: &[StageRow; 11] = &[
    StageRow {
        stage: Stage::Softirq,
        name: "softirq",
        meaning: "The receive softirq is raised (by the interrupt, or a packet handed over), until it runs.",
        part: Part::Path,
        alternatives: &[Stage::Softirq, Stage::NapiThread],
    },
    StageRow {
        stage: Stage::NapiThread,
        name: "napi-thread",
        meaning: "The NAPI thread is woken, until it runs.",
        part: Part::Path,
        alternatives: &[Stage::Softirq, Stage::NapiThread],
    },
    StageRow {
        stage: Stage::Poll,
        name: "poll",
        meaning: "The softirq or thread runs, until this packet is handed to the protocols: packets before it, GRO.",
        part: Part::Path,
        alternatives: &[Stage::Poll],
    },
    StageRow {
        stage: Stage::Protocol,
        name: "protocol",
        meaning: "The protocols have the packet, until its data is in the socket.",
        part: Part::Path,
        alternatives: &[Stage::Protocol],
    },
    StageRow {
        stage: Stage::Wakeup,
        name: "wakeup",
        meaning: "The data is in the socket, until its sleeping reader runs.",
        part: Part::Path,
        alternatives: &[Stage::Wakeup, Stage::Socket],
    },
    StageRow {
        stage: Stage::Read,
        name: "read",
        meaning: "The reader runs, until it has taken the data.",
        part: Part::Path,
        alternatives: &[Stage::Wakeup, Stage::Socket],
    },
    StageRow {
        stage: Stage::Socket,
        name: "socket",
        meaning: "The data is in the socket of a reader that is awake, until it is taken.",
        part: Part::Path,
        alternatives: &[Stage::Wakeup, Stage::Socket],
    },
    StageRow {
        stage: Stage::Application,
        name: "application",
        meaning: "A program has taken data, until its next packet is queued: the program, and its call to send.",
        part: Part::Program,
        alternatives: &[Stage::Application],
    },
    StageRow {
        stage: Stage::Qdisc,
        name: "qdisc",
        meaning: "The packet is given to the queue discipline, until the driver gets it.",
        part: Part::Path,
        alternatives: &[Stage::Qdisc],
    },
    StageRow {
        stage: Stage::Ring,
        name: "ring",
        meaning: "The driver has the packet, until it frees it: sent by the card, and told so.",
        part: Part::Beside,
        alternatives: &[Stage::Ring],
    },
    StageRow {
        stage: Stage::Turnaround,
        name: "turnaround",
        meaning: "A program's packet is queued, until it takes the next: its wait for an answer, or for a request.",
        part: Part::Whole,
        alternatives: &[Stage::Turnaround],
    },
];

impl Stage {
    /// Its row of the table.
    pub const fn row(self) -> &'static StageRow {
        &STAGES[self as usize]
    }
}

/// Buckets of a histogram: four for each doubling, up to 17 seconds. The last one has what is longer.
pub const BUCKETS: usize = 128;

/// Where a bucket begins, in nanoseconds.
pub const fn bucket_start(bucket: usize) -> u64 {
    ((4 + (bucket as u64 & 3)) << (bucket >> 2)) - 4
}

/// The bucket of a wait.
pub fn find_bucket(ns: u64) -> usize {
    let shifted = ns.saturating_add(4);
    let doublings = 61 - shifted.leading_zeros();
    let bucket = doublings as usize * 4 + (shifted >> doublings & 3) as usize;
    bucket.min(BUCKETS - 1)
}

/// Waits at a stage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StageHistogram {
    /// How many.
    pub count: u64,
    /// Their sum in nanoseconds.
    pub sum_ns: u64,
    /// Where a bucket begins, in nanoseconds, and how many waits it has. Each doubling has four buckets.
    pub buckets: Vec<[u64; 2]>,
}

impl StageHistogram {
    /// Makes one of the counts of all [`BUCKETS`] and the sum of the waits.
    pub fn from_counts(counts: &[u64], sum_ns: u64) -> Self {
        let filled = counts.iter().take(BUCKETS).enumerate().filter(|(_, count)| **count > 0);
        Self {
            count: counts.iter().take(BUCKETS).fold(0_u64, |sum, count| sum.saturating_add(*count)),
            sum_ns,
            buckets: filled.map(|(bucket, &count)| [bucket_start(bucket), count]).collect(),
        }
    }

    /// The waits of several, such as those of each CPU.
    pub fn merge<'a>(parts: impl IntoIterator<Item = &'a Self>) -> Self {
        let (mut counts, mut sum_ns) = ([0_u64; BUCKETS], 0_u64);
        for part in parts {
            sum_ns = sum_ns.saturating_add(part.sum_ns);
            for [start, count] in &part.buckets {
                let counted = &mut counts[find_bucket(*start)];
                *counted = counted.saturating_add(*count);
            }
        }
        Self::from_counts(&counts, sum_ns)
    }

    /// The mean wait.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64)
    }

    /// The wait that this share of the waits does not exceed, interpolated within its bucket.
    pub fn quantile_ns(&self, share: f64) -> Option<f64> {
        let total: f64 = self.buckets.iter().map(|[_, count]| *count as f64).sum();
        let wanted = share.clamp(0.0, 1.0) * total;
        let mut before = 0.0;
        for [start, count] in &self.buckets {
            let count = *count as f64;
            if count > 0.0 && before + count >= wanted {
                let end = bucket_start(find_bucket(*start) + 1).max(*start) as f64;
                let start = *start as f64;
                return Some(start + (end - start) * (wanted - before) / count);
            }
            before += count;
        }
        None
    }
}

/// Waits at a stage on one CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CpuWaits {
    /// The CPU where the stage ended.
    pub cpu: u32,
    /// The stage.
    pub stage: Stage,
    /// Its waits.
    #[serde(flatten)]
    pub waits: StageHistogram,
}

/// The way of an interface's packets, as far as it was traced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StageRecord {
    /// Seconds of the window in which the kernel's tracepoints were followed: fewer, the more packets there are.
    pub traced_s: f64,
    /// Packets of the interface in those seconds, in both directions, of which some were followed.
    pub packets: u64,
    /// Parts that were not seen, with the reasons.
    #[serde(default)]
    pub unseen: Vec<String>,
    /// The waits, by CPU and stage.
    #[serde(default)]
    pub waits: Vec<CpuWaits>,
}

/// The waits at a stage on all CPUs, in short.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StageSummary {
    /// The stage.
    pub stage: Stage,
    /// How many packets were followed through it.
    pub count: u64,
    /// The mean wait.
    pub mean_ns: f64,
    /// The median.
    pub p50_ns: f64,
    /// The 99th percentile.
    pub p99_ns: f64,
    /// Its share of what a packet waits in this host and its program; absent for what is beside or the whole.
    pub share: Option<f64>,
}

/// The whole from sending to reading, and the stages of this host on the way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WaySum {
    /// Mean of the whole ([`Stage::Turnaround`]).
    pub whole_ns: f64,
    /// Sum of the stages of this host.
    pub here_ns: f64,
}

impl WaySum {
    /// How far the parts may exceed the whole: they are means of different packets.
    const TOLERANCE: f64 = 1.1;

    /// Whether the parts are no more than the whole.
    pub fn is_plausible(self) -> bool {
        self.here_ns <= self.whole_ns * Self::TOLERANCE
    }
}

impl StageRecord {
    /// A record of nothing, for this reason.
    pub fn new_unseen(reason: String) -> Self {
        Self { unseen: vec![reason], ..Self::default() }
    }

    /// Each stage that was passed, in the order of the way.
    pub fn summarise(&self) -> Vec<StageSummary> {
        let merged = self.merge_cpus();
        let is_shared = |part: Part| matches!(part, Part::Path | Part::Program);
        let whole: f64 = merged
            .keys()
            .filter(|stage| is_shared(stage.row().part))
            .map(|&stage| weigh(&merged, stage))
            .sum();
        let summary = |(&stage, waits): (&Stage, &StageHistogram)| {
            let share = is_shared(stage.row().part) && whole > 0.0;
            Some(StageSummary {
                stage,
                count: waits.count,
                mean_ns: waits.mean_ns()?,
                p50_ns: waits.quantile_ns(0.5)?,
                p99_ns: waits.quantile_ns(0.99)?,
                share: share.then(|| weigh(&merged, stage) / whole),
            })
        };
        merged.iter().filter_map(summary).collect()
    }

    /// The check of the parts against the whole; `None` where no program both sent and read.
    pub fn sum_way(&self) -> Option<WaySum> {
        let merged = self.merge_cpus();
        let whole_ns = merged.get(&Stage::Turnaround)?.mean_ns()?;
        let path = merged.keys().filter(|stage| stage.row().part == Part::Path);
        let here_ns = path.map(|&stage| weigh(&merged, stage)).sum();
        Some(WaySum { whole_ns, here_ns })
    }

    /// The stages that were passed.
    fn merge_cpus(&self) -> BTreeMap<Stage, StageHistogram> {
        let merge = |row: &StageRow| {
            let own = self.waits.iter().filter(|it| it.stage == row.stage).map(|it| &it.waits);
            (row.stage, StageHistogram::merge(own))
        };
        STAGES.iter().map(merge).filter(|(_, waits)| waits.count > 0).collect()
    }
}

/// The mean wait of a packet at a stage, of which it passes that one or an alternative.
fn weigh(merged: &BTreeMap<Stage, StageHistogram>, stage: Stage) -> f64 {
    let passed = stage.row().alternatives.iter().filter_map(|it| merged.get(it));
    let passed: f64 = passed.map(|waits| waits.count as f64).sum();
    let sum = merged.get(&stage).map_or(0.0, |waits| waits.sum_ns as f64);
    if passed > 0.0 { sum / passed } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(stage: Stage, each: u64, count: u64) -> CpuWaits {
        let mut counts = [0; BUCKETS];
        counts[find_bucket(each)] = count;
        CpuWaits { cpu: 0, stage, waits: StageHistogram::from_counts(&counts, each * count) }
    }

    fn record(waits: Vec<CpuWaits>) -> StageRecord {
        StageRecord { traced_s: 1.0, packets: 100, unseen: Vec::new(), waits }
    }

    #[test]
    fn table_has_each_stage_at_its_place() {
        for (place, row) in STAGES.iter().enumerate() {
            assert_eq!(row.stage as usize, place);
            let name = serde_json::to_value(row.stage).unwrap();
            assert_eq!(name.as_str(), Some(row.name));
            assert!(row.alternatives.contains(&row.stage) || row.stage == Stage::Read);
            assert!(row.meaning.ends_with('.'), "{}", row.meaning);
        }
    }

    #[test]
    fn buckets_are_a_quarter_of_a_doubling() {
        assert_eq!([0, 1, 2, 3, 4, 5, 8].map(bucket_start), [0, 1, 2, 3, 4, 6, 12]);
        for bucket in 0..BUCKETS {
            let (start, end) = (bucket_start(bucket), bucket_start(bucket + 1));
            assert!(start < end && (end - start) * 4 <= start + 4, "{bucket}: {start} to {end}");
            assert_eq!((find_bucket(start), find_bucket(end - 1)), (bucket, bucket));
        }
        assert_eq!(find_bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_lie_within_their_bucket() {
        let mut counts = [0; BUCKETS];
        for ns in 1..=1000 {
            counts[find_bucket(ns * 1000)] += 1;
        }
        let histogram = StageHistogram::from_counts(&counts, 500_500_000);
        assert_eq!((histogram.count, histogram.mean_ns()), (1000, Some(500_500.0)));
        for share in [0.01, 0.1, 0.5, 0.9, 0.99] {
            let found = histogram.quantile_ns(share).unwrap();
            assert!((found / (share * 1e6) - 1.0).abs() < 0.05, "{share}: {found}");
        }
        assert_eq!(StageHistogram::default().quantile_ns(0.5), None);
        assert_eq!(StageHistogram::default().mean_ns(), None);
    }

    #[test]
    fn merged_histograms_have_the_waits_of_both() {
        let [one, other] =
            [(10, 3), (5000, 2)].map(|(each, count)| waits(Stage::Poll, each, count));
        let both = StageHistogram::merge([&one.waits, &other.waits, &other.waits]);
        assert_eq!((both.count, both.sum_ns, both.buckets.len()), (7, 30 + 20_000, 2));
        assert_eq!(both.buckets.iter().map(|[_, count]| count).sum::<u64>(), 7);
    }

    #[test]
    fn shares_count_alternatives_once() {
        // Half of the packets wake their reader, which takes 30 us; the others are taken after 10 us.
        let made = record(vec![
            waits(Stage::Softirq, 5000, 100),
            waits(Stage::Wakeup, 25_000, 50),
            waits(Stage::Read, 5000, 50),
            waits(Stage::Socket, 10_000, 50),
            waits(Stage::Application, 75_000, 100),
            waits(Stage::Ring, 900_000, 100),
            waits(Stage::Turnaround, 200_000, 100),
        ]);
        let shares: Vec<Option<f64>> = made.summarise().iter().map(|row| row.share).collect();
        let expected = [0.05, 0.125, 0.025, 0.05, 0.75].map(Some);
        assert_eq!(shares, [&expected[..], &[None, None]].concat());
        let sum = made.sum_way().unwrap();
        assert_eq!(sum, WaySum { whole_ns: 200_000.0, here_ns: 25_000.0 });
        assert!(sum.is_plausible());
        assert!(!WaySum { whole_ns: 20_000.0, ..sum }.is_plausible());
    }

    #[test]
    fn nothing_traced_has_no_summary() {
        let nothing = StageRecord::new_unseen("no right".to_owned());
        assert_eq!((nothing.summarise(), nothing.sum_way()), (Vec::new(), None));
        let text = serde_json::to_string(&nothing).unwrap();
        assert_eq!(serde_json::from_str::<StageRecord>(&text).unwrap(), nothing);
        let absurd = r#"{"traced_s":1,"packets":1,"waits":[{"cpu":0,"stage":"poll","count":0,"sum_ns":5,"buckets":[[7,0]]}]}"#;
        assert_eq!(serde_json::from_str::<StageRecord>(absurd).unwrap().summarise(), []);
    }
}
