//! Figures of each simulated host under every setting, computed once.

use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use latput_sim::SystemProfile;
use latput_trial::Plan;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cases::{self, CaseSet, FIGURES, GoalTerms};

/// The cost of a setting may be so much above the best one's for it to count as found.
pub(crate) const NEAR: f64 = 1.03;
/// A limit that is missed by this share counts as kept: noise cannot tell it.
const SLACK: f64 = 0.01;

/// One system under one workload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FigureTable {
    pub(crate) system: String,
    pub(crate) workload: String,
    /// Rate, tail and CPU cost of each setting, by the plan's order.
    pub(crate) figures: Vec<[f64; FIGURES]>,
}

/// The answer to a goal by a whole table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TrueAnswer {
    /// Of each setting.
    pub(crate) cost: Vec<f64>,
    /// The least rate of the goal, if it has one.
    pub(crate) least_rate: Option<f64>,
    /// The least cost of a setting that keeps the limit.
    pub(crate) best: f64,
    /// Settings whose cost is within [`NEAR`] of the best one's that keeps the limit.
    pub(crate) near: Vec<bool>,
}

impl FigureTable {
    /// The costs and the best of them by a goal.
    pub(crate) fn compute_answer(&self, wanted: &GoalTerms) -> TrueAnswer {
        let cost: Vec<f64> = self
            .figures
            .iter()
            .map(|figures| wanted.cost.iter().map(|at| figures[*at]).product())
            .collect();
        let best_rate = self.figures.iter().map(|figures| figures[0]).fold(0.0, f64::max);
        let least_rate = wanted
            .limit
            .map(|limit| limit.share * if limit.of_best { best_rate } else { self.figures[0][0] });
        let keeps = |setting: usize, slack: f64| {
            least_rate.is_none_or(|least| self.figures[setting][0] >= least * (1.0 - slack))
        };
        let all = 0..cost.len();
        let best = all.clone().filter(|at| keeps(*at, 0.0)).map(|at| cost[at]);
        let best = best.fold(f64::INFINITY, f64::min);
        let near = all.map(|at| keeps(at, SLACK) && cost[at] <= NEAR * best).collect();
        TrueAnswer { cost, least_rate, best, near }
    }
}

impl TrueAnswer {
    /// The cost of a setting as a ratio to the best one's; `None` where it breaks the limit.
    pub(crate) fn cost_ratio(&self, table: &FigureTable, setting: usize) -> Option<f64> {
        let least = self.least_rate.unwrap_or(0.0) * (1.0 - SLACK);
        (table.figures[setting][0] >= least).then(|| self.cost[setting] / self.best)
    }
}

/// Adds to `file` the tables that it lacks, one line each.
pub(crate) fn write_tables(set: CaseSet, file: &str) {
    let known = read(file);
    for system in set.systems() {
        for (workload, text) in set.workloads() {
            if known.iter().any(|one| one.system == system.name && one.workload == *workload) {
                continue;
            }
            let table = FigureTable {
                system: system.name.to_owned(),
                workload: (*workload).to_owned(),
                figures: every_setting(system, text),
            };
            let line = serde_json::to_string(&table).expect("tables are plain figures");
            let open = std::fs::File::options().create(true).append(true).open(file);
            let mut open = open.expect("the tables can be written");
            writeln!(open, "{line}").expect("the tables can be written");
            eprintln!("tabulated {}/{workload}", system.name);
        }
    }
}

/// Makes the tables of a run on real hosts, whose report in JSON is in the file `report`, one line for each workload.
pub(crate) fn of_report(file: &str, report: &str) {
    let text = std::fs::read_to_string(report).expect("the report can be read");
    let report: Value = serde_json::from_str(&text).expect("the report is JSON");
    let list = |name: &str| report[name].as_array().expect("it is a report of a run").iter();
    let lines = list("workloads").enumerate().map(|(workload, described)| {
        let name = described["name"].as_str().expect("a workload has a name");
        let plan = cases::load_recorded_plan(name).expect("the run is of the recorded plan");
        let metrics = cases::workload_metrics(&plan.workloads[0]);
        let figures = plan.settings().into_iter().enumerate().map(|(idx, set)| {
            let setting = list("settings").position(|one| one["label"] == set.label.as_str());
            let setting = setting.unwrap_or_else(|| panic!("`{}` was not measured", set.label));
            let is_today = report["settings"][setting]["today"] == true;
            assert_eq!(is_today, idx == 0, "the first level of each factor is today's");
            let cell =
                list("cells").find(|it| it["setting"] == setting && it["workload"] == workload);
            let cell = cell.unwrap_or_else(|| panic!("`{}` has no figures", set.label));
            metrics.map(|metric| {
                let value = cell["metrics"][metric.name()]["value"].as_f64();
                value.unwrap_or_else(|| panic!("`{}` has no {metric}", set.label))
            })
        });
        let (system, workload) = ("lab".to_owned(), name.to_owned());
        let table = FigureTable { system, workload, figures: figures.collect() };
        serde_json::to_string(&table).expect("tables are plain figures") + "\n"
    });
    std::fs::write(file, lines.collect::<String>()).expect("the tables can be written");
}

/// The tables that `file` has; a line that was cut short does not count.
pub(crate) fn read(file: &str) -> Vec<FigureTable> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn every_setting(system: &cases::SimulatedSystem, workload: &str) -> Vec<[f64; FIGURES]> {
    let plan = cases::make_plan(system, workload, None);
    let count = plan.settings().len();
    let next = AtomicUsize::new(0);
    let done = Mutex::new(vec![[f64::NAN; FIGURES]; count]);
    std::thread::scope(|scope| {
        for _ in 0..crate::thread_count() {
            scope.spawn(|| {
                loop {
                    let setting = next.fetch_add(1, Ordering::Relaxed);
                    if setting >= count {
                        return;
                    }
                    let figures = simulate_setting(system.text, &plan, setting);
                    done.lock().expect("no thread panicked")[setting] = figures;
                }
            });
        }
    });
    done.into_inner().expect("no thread panicked")
}

fn simulate_setting(profile: &str, plan: &Plan, setting: usize) -> [f64; FIGURES] {
    let mut profile: SystemProfile = toml::from_str(profile).expect("shipped profiles read");
    let workload = &plan.workloads[0];
    for (role, setting) in &plan.settings()[setting].by_role {
        profile.set_knobs(*role, setting).expect("the cases' knobs are simulated");
    }
    let mut scenario = profile
        .build_scenario(workload, 1, plan.method.duration)
        .expect("the cases can be simulated");
    scenario.warmup = plan.method.warmup;
    let outcome = latput_sim::run(&scenario).expect("the cases can be simulated");
    let mut observation = outcome.build_observation(&scenario, 0);
    if workload.traffic.kind() != "rpc_read" {
        observation.traffic.reverse = None;
    }
    cases::workload_metrics(workload).map(|metric| {
        let value = metric.value(&workload.traffic, &observation);
        value.filter(|value| *value > 0.0).unwrap_or_else(|| {
            panic!("{}: {metric} of {} under setting {setting}", profile.name, workload.name)
        })
    })
}
