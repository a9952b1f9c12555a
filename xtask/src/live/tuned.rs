//! Runs of `latput tune` on the traffic, and what they came to.

use std::cmp::Ordering;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

use super::GOAL;
use super::traffic::{ENDPOINT, PORT};
use crate::peers::lab::{INTERFACE, Lab};

/// Most time of one run.
const RUN_WITHIN: Duration = Duration::from_secs(900);
/// The figure of the goal.
const OBJECTIVE: &str = "sut_packet_cpu_ns";

/// Figures of a run for one setting beside today's.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TunedSetting {
    /// Which way the goal's figure is proven to differ from today's: the interval of their ratio leaves out 1.
    pub(super) difference: Option<Ordering>,
    /// It is recommended.
    pub(super) is_set: bool,
    pub(super) is_banned: bool,
    /// Its slices, and those in which a guard was broken.
    pub(super) slices: usize,
    pub(super) broken: usize,
    /// From a reading that broke a guard until today's values were read back, milliseconds.
    pub(super) back_ms: Vec<f64>,
}

/// Tunes in the lab.
pub(super) struct Tuner<'a> {
    pub(super) lab: &'a Lab,
    pub(super) folder: PathBuf,
}

impl Tuner<'_> {
    /// Tunes a factor of one of the lab's hosts, and gives what became of each setting but today's.
    pub(super) fn run_tune(
        &self,
        host: &str,
        factor: &str,
        slice: &str,
        guard: Option<&str>,
    ) -> Result<Vec<TunedSetting>> {
        let guards: Vec<&str> = guard.into_iter().collect();
        let text = format!(
            "schema = 1\ngoal = \"{GOAL}\"\n[factors]\n{factor}\n[[workload]]\nkind = \"live\"\nports = [{PORT}]\nguard = {guards:?}\n\
             endpoint = \"{ENDPOINT}\"\nmetrics = {{ request_ns_p99 = \"quantile 0.99 request_seconds\" }}\n\
             disruptive = [\"gro-flush-timeout\", \"napi-defer-hard-irqs\"]\nslice = \"{slice}\"\n[method]\nbudget = \"10min\"\n\
             half_width = 0.05\n"
        );
        let [plan, results, page] =
            ["plan.toml", "results.db", "report.html"].map(|name| self.folder.join(name));
        std::fs::write(&plan, text).context("cannot write the plan")?;
        let _unless_there_is_none = std::fs::remove_file(&results);
        let [plan, results, page] = [plan, results, page].map(|path| path.display().to_string());
        let host = format!("netns://latput-{host}%{INTERFACE}");
        let deadline = Instant::now() + RUN_WITHIN;
        let tune = ["tune", &plan, &host, "-o", &results, "--report", &page];
        self.lab.run_latput(&tune, deadline)?;
        let report = self.lab.read_report(&results, deadline)?;
        for note in report_notes(&report) {
            println!("  {note}");
        }
        let found = parse_comparisons(&report)?;
        for one in &found {
            println!("  {one:?}");
        }
        Ok(found)
    }
}

fn report_notes(report: &Value) -> impl Iterator<Item = &str> {
    report["notes"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Reads each setting but today's from the document of a run.
fn parse_comparisons(report: &Value) -> Result<Vec<TunedSetting>> {
    let list = |value: &Value| value.as_array().cloned();
    let runs = list(&report["runs"]).context("the report has no runs")?;
    let cells = list(&report["cells"]).context("the report has no cells")?;
    let settings = list(&report["settings"]).context("the report has no settings")?;
    let of_setting = |setting: usize| {
        let own: Vec<&Value> = runs.iter().filter(|run| run["setting"] == setting).collect();
        let broken: Vec<&Value> = own
            .iter()
            .map(|run| &run["live"]["guard_broken"])
            .filter(|it| it.is_object())
            .collect();
        let is_banned = own.iter().any(|run| run["live"]["banned"].is_string());
        let cell = cells.iter().find(|cell| cell["setting"] == setting);
        let ratio = cell.map(|cell| &cell["against_first_ratio"][OBJECTIVE]);
        let end = |name: &str| ratio.and_then(|ratio| ratio[name].as_f64());
        TunedSetting {
            difference: if end("high").is_some_and(|high| high < 1.0) {
                Some(Ordering::Less)
            } else {
                end("low").filter(|low| *low > 1.0).map(|_| Ordering::Greater)
            },
            is_set: report["headline"]["kind"] == "set"
                && report["recommendation"]["setting"] == setting,
            is_banned,
            slices: own.len(),
            broken: broken.len(),
            back_ms: broken
                .iter()
                .filter_map(|it| Some(it["until_back_ns"].as_f64()? / 1e6))
                .collect(),
        }
    };
    Ok((1..settings.len()).map(of_setting).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn setting_fate_is_read_from_document() {
        let broken = json!({ "guard_broken": { "until_back_ns": 4_500_000 }, "banned": "why" });
        let report = json!({
            "settings": [{}, {}, {}],
            "headline": { "kind": "set" },
            "recommendation": { "setting": 2 },
            "runs": [
                { "setting": 0 },
                { "setting": 1, "live": broken },
                { "setting": 2, "live": { "change_ns": 1 } },
                { "setting": 2 },
            ],
            "cells": [
                { "setting": 1, "against_first_ratio": { "sut_packet_cpu_ns": { "low": null, "high": null } } },
                { "setting": 2, "against_first_ratio": { "sut_packet_cpu_ns": { "low": 0.8, "high": 0.9 } } },
            ],
        });
        let [banned, set] = &parse_comparisons(&report).unwrap()[..] else {
            panic!("two settings")
        };
        assert!(banned.is_banned && banned.difference.is_none() && !banned.is_set);
        assert_eq!((banned.slices, banned.broken, &banned.back_ms[..]), (1, 1, &[4.5][..]));
        assert!(set.difference == Some(Ordering::Less) && set.is_set && !set.is_banned);
        assert_eq!((set.slices, set.broken), (2, 0));
        assert!(parse_comparisons(&json!({})).is_err());
    }
}
