//! Which runs count in comparisons, what disturbed the others, and what went on beside those that count.

use std::collections::{BTreeMap, BTreeSet};

use latput_trial::check::{CHECKS, CheckRow, OTHER_WORK};
use latput_trial::observation::{CpuSource, HostObservation, OtherProcess};
use latput_trial::{Results, Row};
use latput_units::text::{format_count, format_cpu_share, format_share_on_cpus, is_or_are};
use latput_units::{CpuSet, IntoMap, IntoSet};

use crate::recommend::{Headline, LARGEST_MISSED, SmallestEffect, missed_share};
use crate::words;

/// Most processes and causes that are named.
const MOST_NAMED: usize = 2;
/// Least share of a CPU that a condition names.
const NAMED_SHARE: f64 = 0.01;

/// How many trials count, and what disturbed the others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunFitness {
    /// Number of trials. A slice is one.
    pub runs: usize,
    /// Those that do not count.
    pub unfit: usize,
    /// Of each setting that ran: its runs that do not count, and all.
    pub by_setting: BTreeMap<usize, (usize, usize)>,
    /// The checks that took runs out, with the number of these, most first.
    pub causes: Vec<(&'static CheckRow, usize)>,
    /// The other processes on the hosts' CPUs, busiest first.
    pub disturbers: Vec<DisturbingProcess>,
    /// Condition of the answer, if the plan says that other work is part of the case and there was some: `beside 30% of
    /// other work on b`.
    pub condition: Option<String>,
    /// The hosts whose other work was not looked at, if the plan says that it is part of the case.
    unseen: BTreeSet<String>,
    /// Of each setting but the first, and workload: the pairs with the first one's runs that count, and all.
    pairs: BTreeMap<(usize, usize), (usize, usize)>,
    beside: bool,
}

/// A process that ran on a host's CPUs beside the trials.
#[derive(Clone, Debug, PartialEq)]
pub struct DisturbingProcess {
    /// The host.
    pub host: String,
    /// Its name; several of one name are one.
    pub name: String,
    /// Its share of a CPU, the mean over the trials or stints in which it was seen.
    pub cpu_ratio: f64,
    /// The host's CPUs that it ran on.
    pub cpus: CpuSet,
    /// Times that it gave up or lost a CPU, per second.
    pub switches_per_s: f64,
}

impl DisturbingProcess {
    /// `sha256sum 38% of CPU 1 on b`.
    fn describe(&self) -> String {
        let share = format_share_on_cpus(self.cpu_ratio, &self.cpus);
        format!("{} {share} on {}", self.name, self.host)
    }
}

impl RunFitness {
    /// Of all runs.
    pub fn from_results(results: &Results) -> Self {
        Self::of_workloads(results, |_| true)
    }

    /// Of all runs, with the pairs of those workloads that a goal reads.
    pub(crate) fn of_workloads(results: &Results, reads: impl Fn(usize) -> bool) -> Self {
        let beside = results.beside;
        let mut found = Self { beside, runs: results.rows.len(), ..Self::default() };
        let mut causes: BTreeMap<usize, usize> = BTreeMap::new();
        for row in &results.rows {
            let is_out = !row.observation.is_fit(beside);
            let of_setting = found.by_setting.entry(row.setting).or_default();
            of_setting.0 += usize::from(is_out);
            of_setting.1 += 1;
            found.unfit += usize::from(is_out);
            for (place, check) in CHECKS.iter().enumerate() {
                if check.voids_trial(beside) && row.observation.has_failed(check.name) {
                    *causes.entry(place).or_default() += 1;
                }
            }
        }
        found.causes = causes.into_iter().map(|(place, runs)| (&CHECKS[place], runs)).collect();
        found.causes.sort_by_key(|(_, runs)| std::cmp::Reverse(*runs));
        found.pairs = count_pairs(&results.rows, beside, reads);
        found.disturbers = collect_disturbers(&results.rows);
        found.condition = describe_condition(results);
        found.unseen = find_unseen_hosts(results);
        found
    }

    /// Number of runs left out, with the reasons: `31 of 240 trials are out: other programs used the hosts' CPUs (sha256sum 38% of CPU 1 on b)`.
    /// `None` if every run counts.
    pub fn describe_unfit(&self) -> Option<String> {
        if self.unfit == 0 {
            return None;
        }
        let Self { unfit, runs, .. } = self;
        Some(format!(
            "{unfit} of {} {} out: {}",
            format_count(*runs, "trial"),
            is_or_are(*unfit),
            self.causes_in_words()
        ))
    }

    fn causes_in_words(&self) -> String {
        let words = self.causes.iter().take(MOST_NAMED).map(|(check, runs)| {
            let who = if check.name == OTHER_WORK { self.describe_disturbers() } else { None };
            let who = who.map_or_else(String::new, |who| format!(" ({who})"));
            let times = if self.causes.len() > 1 { format!(", in {runs}") } else { String::new() };
            format!("{}{who}{times}", check.meaning)
        });
        words.collect::<Vec<_>>().join("; ")
    }

    /// The busiest other processes.
    pub fn describe_disturbers(&self) -> Option<String> {
        let named: Vec<String> =
            self.disturbers.iter().take(MOST_NAMED).map(DisturbingProcess::describe).collect();
        (!named.is_empty()).then(|| named.join(", "))
    }

    /// The shares of runs that are out under each setting, where they are not all alike; a share that depends on the
    /// setting is a reason for doubt.
    pub fn by_setting_in_words(&self, labels: &[String]) -> Option<String> {
        if self.unfit == 0 {
            return None;
        }
        let of_setting = |(setting, (unfit, runs)): (&usize, &(usize, usize))| {
            let label = labels.get(*setting)?;
            Some(format!("{unfit} of {runs} with `{label}`"))
        };
        let words: Vec<String> = self.by_setting.iter().filter_map(of_setting).collect();
        Some(words.join(", "))
    }

    /// The headline of results whose goal cannot be judged.
    pub(crate) fn unjudged_headline(&self, why: &str) -> Headline {
        if self.is_unfit_for(None) {
            return Headline::NotQuiet(self.describe_noise());
        }
        Headline::NoAnswer(why.to_owned())
    }

    /// Whether fewer than half of the pairs count: of all, or of a setting in some workload.
    pub(crate) fn is_unfit_for(&self, setting: Option<usize>) -> bool {
        let is_less_than_half = |(fit, all): (usize, usize)| 2 * fit < all;
        let of_setting = self.pairs.iter().filter(|((one, _), _)| Some(*one) == setting);
        is_less_than_half(self.all_pairs())
            || of_setting.into_iter().any(|(_, pairs)| is_less_than_half(*pairs))
    }

    /// The pairs that count, and all; of results of one setting its runs.
    fn all_pairs(&self) -> (usize, usize) {
        if self.pairs.is_empty() {
            return (self.runs - self.unfit, self.runs);
        }
        self.pairs.values().fold((0, 0), |sum, pairs| (sum.0 + pairs.0, sum.1 + pairs.1))
    }

    /// Whether results without an answer would have one if all of their pairs counted: the smallest effect falls with the
    /// square root of their number.
    pub(crate) fn may_have_cost_the_answer(&self, smallest: &[SmallestEffect]) -> bool {
        let (fit, all) = self.all_pairs();
        if fit == all {
            return false;
        }
        let Some(objective) = smallest.iter().find(|one| one.limit.is_none()) else { return true };
        missed_share(objective.ratio.powf((fit as f64 / all as f64).sqrt())) <= LARGEST_MISSED
    }

    /// Why there is no answer, in a sentence.
    pub(crate) fn describe_noise(&self) -> String {
        let out = self.describe_unfit().unwrap_or_else(|| "too few trials count".to_owned());
        let (fit, all) = self.all_pairs();
        let pairs = format_count(all, "pair");
        let left = format!("{fit} of {pairs} with today's setting {} left", is_or_are(fit));
        let is_forgiven = self.causes.iter().any(|(check, _)| !check.voids_trial(true));
        let part =
            if is_forgiven { ", or with `--beside` if that is part of the case" } else { "" };
        format!("{out}; {left}: run again on quiet hosts{part}")
    }

    /// Reason of a recommendation from hosts that were not quiet.
    pub(crate) fn disturbed_reason() -> Vec<String> {
        vec!["Disturbed trials do not justify a change.".to_owned()]
    }

    /// Other work beside the runs, where that is part of the case: who, how much, and how often it switched; and where it was
    /// not looked at.
    pub fn beside_in_words(&self) -> Option<String> {
        let unseen = (!self.unseen.is_empty()).then(|| {
            let hosts: Vec<&str> = self.unseen.iter().map(String::as_str).collect();
            format!("other work on {} was not looked at", hosts.join(" and "))
        });
        let holds = self.condition.as_ref().map(|condition| {
            let named = self.disturbers.iter().take(MOST_NAMED);
            let named: Vec<String> = named
                .map(|one| format!("{} ({:.0} switches/s)", one.describe(), one.switches_per_s))
                .collect();
            let who =
                if named.is_empty() { String::new() } else { format!(": {}", named.join(", ")) };
            format!("the answer holds only {condition}{who}")
        });
        let said: Vec<String> = holds.into_iter().chain(unseen).collect();
        (!said.is_empty()).then(|| said.join("; "))
    }
}

/// The pairs of each other setting and workload with the first one's runs of the same block.
fn count_pairs(
    rows: &[Row],
    beside: bool,
    reads: impl Fn(usize) -> bool,
) -> BTreeMap<(usize, usize), (usize, usize)> {
    let firsts: BTreeMap<(usize, u32), bool> = rows
        .iter()
        .filter(|row| row.setting == 0)
        .map(|row| ((row.workload, row.block), row.observation.is_fit(beside)))
        .into_map();
    let mut pairs: BTreeMap<_, (usize, usize)> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.setting != 0 && reads(row.workload)) {
        let Some(first) = firsts.get(&(row.workload, row.block)) else { continue };
        let of_cell = pairs.entry((row.setting, row.workload)).or_default();
        of_cell.0 += usize::from(*first && row.observation.is_fit(beside));
        of_cell.1 += 1;
    }
    pairs
}

fn collect_disturbers(rows: &[Row]) -> Vec<DisturbingProcess> {
    let mut found: BTreeMap<(&str, &str), (BTreeSet<usize>, DisturbingProcess)> = BTreeMap::new();
    for (place, row) in rows.iter().enumerate() {
        for host in &row.observation.hosts {
            for OtherProcess { name, cpu_ratio, cpus, switches_per_s, .. } in &host.others {
                let new = || {
                    let none = DisturbingProcess {
                        host: host.host.clone(),
                        name: sanitize_name(name),
                        cpu_ratio: 0.0,
                        cpus: CpuSet::new(),
                        switches_per_s: 0.0,
                    };
                    (BTreeSet::new(), none)
                };
                let (places, sum) = found.entry((&host.host, name)).or_insert_with(new);
                places.insert(place);
                sum.cpu_ratio += cpu_ratio;
                sum.switches_per_s += switches_per_s;
                sum.cpus = sum.cpus.iter().chain(cpus.iter()).collect();
            }
        }
    }
    let mean = |(places, sum): (BTreeSet<usize>, DisturbingProcess)| {
        let times = places.len() as f64;
        let cpu_ratio = sum.cpu_ratio / times;
        (
            times * cpu_ratio,
            DisturbingProcess { cpu_ratio, switches_per_s: sum.switches_per_s / times, ..sum },
        )
    };
    let mut found: Vec<(f64, DisturbingProcess)> = found.into_values().map(mean).collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.into_iter().map(|(_, one)| one).collect()
}

/// A process has any name that it likes.
fn sanitize_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect()
}

/// Other work beside the runs that count, by host.
fn describe_condition(results: &Results) -> Option<String> {
    if !results.beside {
        return None;
    }
    let fit = || results.rows.iter().filter(|row| row.observation.is_fit(true));
    let hosts: BTreeSet<&str> =
        fit().flat_map(|row| &row.observation.hosts).map(|host| host.host.as_str()).into_set();
    let mean = |name: &str, of: &dyn Fn(&HostObservation) -> Option<f64>| {
        let own = fit().flat_map(|row| &row.observation.hosts).filter(|host| host.host == name);
        let shares: Vec<f64> = own.filter_map(of).collect();
        shares.iter().sum::<f64>() / shares.len().max(1) as f64
    };
    let mut parts = Vec::new();
    for name in hosts {
        let work = mean(name, &|host| {
            let window = host.window.as_secs_f64();
            Some(host.other_work_cpu?.as_secs_f64() / window).filter(|share| share.is_finite())
        });
        let stolen = mean(name, &|host| {
            let time = host.cpu();
            Some(time.steal.as_secs_f64() / time.total().as_secs_f64())
                .filter(|share| share.is_finite())
        });
        if work >= NAMED_SHARE {
            let is_several = work >= 1.05;
            let share =
                if is_several { format_cpu_share(work) } else { format_share(work.min(1.0)) };
            parts.push(format!("{share} of other work on {name}"));
        }
        if stolen >= NAMED_SHARE {
            parts.push(format!("{} of {name}'s time stolen", format_share(stolen)));
        }
    }
    (!parts.is_empty()).then(|| format!("beside {}", parts.join(" and ")))
}

/// The hosts of runs that count whose processes could not be told apart, if other work is part of the case.
fn find_unseen_hosts(results: &Results) -> BTreeSet<String> {
    let rows = results.rows.iter().filter(|row| results.beside && row.observation.is_fit(true));
    let hosts = rows.flat_map(|row| &row.observation.hosts);
    let unseen = hosts.filter(|host| {
        host.other_work_cpu.is_none() && host.accounting.source != CpuSource::Simulated
    });
    unseen.map(|host| host.host.clone()).into_set()
}

fn format_share(share: f64) -> String {
    words::format_percent((share * 100.0).round() / 100.0)
}

#[cfg(test)]
mod tests {
    use latput_trial::Check;
    use latput_trial::check::{KNOB_DRIFT, STEAL};
    use latput_units::{CpuId, Nanos, SeededRng};

    use super::*;
    use crate::ResultsSummary;
    use crate::synthetic::{SyntheticFigures, build_results, noise_factor, rr_workload};

    /// Forty blocks in which `20us` is a half worse, but looks three times as good as `off` where other work disturbs both.
    fn faked_results(seed: u64, share: f64) -> Results {
        let mut rng = SeededRng::from_seed(seed);
        let mut made = build_results(&["off", "20us"], &[rr_workload("rr")], 40, |setting, _| {
            SyntheticFigures {
                rate: 1e5,
                p99_us: Some([60.0, 90.0][setting] * noise_factor(&mut rng, 0.05)),
                service_demand_us: 2.0,
            }
        });
        for row in &mut made.rows {
            if SeededRng::from_seed_and_index(seed, u64::from(row.block)).next_uniform() < share {
                let p99_us = [3000.0, 1000.0][row.setting] * noise_factor(&mut rng, 0.05);
                let figures =
                    SyntheticFigures { rate: 1e5, p99_us: Some(p99_us), service_demand_us: 2.0 };
                row.observation = crate::synthetic::build_observation(&rr_workload("rr"), figures);
                disturb_row(row, OTHER_WORK);
            }
        }
        made.goal = Some("latency".to_owned());
        made
    }

    fn disturb_row(row: &mut Row, check: &str) {
        row.observation.checks.push(Check {
            name: check.to_owned(),
            passed: false,
            detail: String::new(),
        });
        let host = &mut row.observation.hosts[0];
        host.host = "b".to_owned();
        host.other_work_cpu = Some(Nanos::from_ms(300));
        host.others = vec![OtherProcess {
            name: "sha\u{1b}sum".to_owned(),
            pid: 7,
            cpu_ratio: 0.3,
            cpus: [CpuId(1)].into_iter().collect(),
            switches_per_s: 120.0,
        }];
    }

    fn find_headline(results: &Results) -> Headline {
        ResultsSummary::from_results(results).headline.unwrap()
    }

    #[test]
    fn disturbance_that_fakes_an_answer_never_sets_it() {
        for seed in 0..20 {
            for share in [0.1, 0.3, 0.45, 0.6, 0.9, 1.0] {
                let made = faked_results(seed, share);
                let found = find_headline(&made);
                let fitness = RunFitness::from_results(&made);
                if 2 * fitness.unfit > fitness.runs {
                    assert!(matches!(found, Headline::NotQuiet(_)), "{seed} {share}: {found:?}");
                } else {
                    assert!(matches!(found, Headline::Stay(_)), "{seed} {share}: {found:?}");
                }
            }
        }
        // The same runs without the check are what the check is for.
        let mut unchecked = faked_results(1, 0.9);
        unchecked.rows.iter_mut().for_each(|row| row.observation.checks.clear());
        assert!(matches!(find_headline(&unchecked), Headline::Set(_)));
    }

    #[test]
    fn disturber_share_and_remedy_are_told() {
        let Headline::NotQuiet(sentence) = find_headline(&faked_results(1, 1.0)) else { panic!() };
        let expected = "80 of 80 trials are out: other programs used the hosts' CPUs (sha?sum 30% of CPU 1 on b); 0 of \
                        40 pairs with today's setting are left: run again on quiet hosts, or with `--beside` if that is \
                        part of the case";
        assert_eq!(sentence, expected);
    }

    #[test]
    fn answer_beside_other_work_says_so() {
        let made = Results { beside: true, ..faked_results(1, 1.0) };
        assert!(matches!(find_headline(&made), Headline::Set(_)));
        let fitness = ResultsSummary::from_results(&made).fitness;
        assert_eq!(fitness.condition.as_deref(), Some("beside 30% of other work on b"));
        let words = fitness.beside_in_words().unwrap();
        assert!(words.ends_with("b: sha?sum 30% of CPU 1 on b (120 switches/s)"), "{words}");
        let quiet = Results { beside: true, ..faked_results(1, 0.0) };
        assert_eq!(RunFitness::from_results(&quiet).condition, None);
    }

    #[test]
    fn work_nobody_looked_at_is_said_once() {
        let mut made = Results { beside: true, ..faked_results(1, 1.0) };
        for row in &mut made.rows {
            let host = &mut row.observation.hosts[0];
            (host.other_work_cpu, host.others) = (None, Vec::new());
        }
        let said = |made: &Results| RunFitness::from_results(made).beside_in_words();
        assert_eq!(said(&made).as_deref(), Some("other work on b was not looked at"));
        assert_eq!(said(&Results { beside: false, ..made }), None, "it is not part of the case");
    }

    #[test]
    fn load_beyond_one_cpu_is_told_in_cpus() {
        let mut made = Results { beside: true, ..faked_results(1, 1.0) };
        for row in &mut made.rows {
            let host = &mut row.observation.hosts[0];
            host.other_work_cpu = Some(Nanos::from_ms(1750));
            host.others[0].cpu_ratio = 1.75;
            host.others[0].cpus = [CpuId(0), CpuId(1)].into_iter().collect();
        }
        let fitness = RunFitness::from_results(&made);
        assert_eq!(fitness.condition.as_deref(), Some("beside 1.8 CPUs of other work on b"));
        let who = fitness.describe_disturbers().unwrap();
        assert_eq!(who, "sha?sum 1.8 CPUs (CPUs 0-1) on b");
    }

    #[test]
    fn run_leaves_with_its_pair_only() {
        let mut made = build_results(&["off", "on", "up"], &[rr_workload("rr")], 10, |_, _| {
            SyntheticFigures { rate: 1e5, p99_us: Some(50.0), service_demand_us: 2.0 }
        });
        disturb_row(&mut made.rows[0], STEAL); // `off` in block 0
        disturb_row(&mut made.rows[4], KNOB_DRIFT); // `on` in block 1
        let fitness = RunFitness::from_results(&made);
        assert_eq!((fitness.unfit, fitness.runs), (2, 30));
        assert_eq!(fitness.pairs, BTreeMap::from([((1, 0), (8, 10)), ((2, 0), (9, 10))]));
        let labels = ["off", "on", "up"].map(str::to_owned);
        let words = fitness.by_setting_in_words(&labels).unwrap();
        assert_eq!(words, "1 of 10 with `off`, 1 of 10 with `on`, 0 of 10 with `up`");
        let cells = ResultsSummary::from_results(&made).cells;
        assert_eq!(cells.iter().map(|cell| cell.runs).collect::<Vec<_>>(), [9, 9, 10]);
        let p99 = latput_trial::Metric::LatencyNsP99;
        assert_eq!(cells[1].against_first[&p99].runs, 8);
    }

    #[test]
    fn run_with_half_its_trials_is_judged() {
        let judged = |out: u32| {
            let mut made = faked_results(3, 0.0);
            for row in made.rows.iter_mut().filter(|row| row.block < out) {
                disturb_row(row, STEAL);
            }
            find_headline(&made).kind()
        };
        assert_eq!((judged(20), judged(21)), ("stay", "no_answer"));
    }

    #[test]
    fn void_cpu_time_leaves_the_other_figures() {
        let mut made = faked_results(1, 0.0);
        for row in &mut made.rows {
            row.observation.checks.push(Check {
                name: "cpu-parts-add-up".to_owned(),
                passed: false,
                detail: String::new(),
            });
        }
        assert!(matches!(find_headline(&made), Headline::Stay(_)));
        let of_cpu = Results { goal: Some("cpu".to_owned()), ..made };
        let summary = ResultsSummary::from_results(&of_cpu);
        assert!(matches!(summary.headline, Some(Headline::NoAnswer(_))), "{:?}", summary.headline);
        let demand = latput_trial::Metric::SutServiceDemandUs;
        assert!(summary.cells[1].metrics.contains_key(&demand), "tables show it");
        assert!(!summary.cells[1].against_first.contains_key(&demand));
    }

    #[test]
    fn noise_is_not_blamed_on_disturbance() {
        let noisy = |out: u32| {
            let mut rng = SeededRng::from_seed(4);
            let mut made =
                build_results(&["off", "20us"], &[rr_workload("rr")], 8, |_, _| SyntheticFigures {
                    rate: 1e5,
                    p99_us: Some(50.0 * noise_factor(&mut rng, 1.5)),
                    service_demand_us: 2.0,
                });
            made.rows
                .iter_mut()
                .filter(|row| row.block < out)
                .for_each(|row| disturb_row(row, STEAL));
            made.goal = Some("latency".to_owned());
            find_headline(&made)
        };
        assert!(matches!(noisy(0), Headline::TooNoisy(_)));
        assert!(matches!(noisy(1), Headline::TooNoisy(_)), "eight would not have been enough");
        assert!(matches!(noisy(7), Headline::NotQuiet(_)));
    }
}
