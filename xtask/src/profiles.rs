//! `cargo xtask profiles`: the calibrated system profiles, made again from the published cells, and what the
//! predictions are worth with those that are shipped.
//!
//! The plans are in `data/calibration.toml`, the demands that must hold in `data/accuracy.toml`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::workspace::{Workspace, capture_output, run_checked};

/// Which profiles, and whether to write.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Write nothing; fail if a profile differs from what the fit gives, or a demand is lost.
    #[arg(long)]
    check: bool,
    /// This profile only; may be given more than once.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Fit nothing; only ask whether the demands hold.
    #[arg(long)]
    accuracy: bool,
    /// Also fit without parts of the cells, and hold the errors there: takes many times as long.
    #[arg(long, conflicts_with = "accuracy")]
    validate: bool,
}

#[derive(Deserialize)]
struct CalibrationPlans {
    profile: Vec<CalibrationPlan>,
}

#[derive(Deserialize)]
struct CalibrationPlan {
    profile: String,
    cells: Vec<String>,
}

/// Demands on the figures.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AccuracyDemands {
    /// Names of targets, as `latput reproduce` prints them.
    holds: Vec<String>,
    /// Errors of figures held out of a fit and of the choice of `steal_after_ns`.
    held_out: Vec<HeldOutDemand>,
}

/// At most so much, over all profiles.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HeldOutDemand {
    /// `cells` or `settings`.
    what: String,
    /// Median of the absolute errors of rates, per cent.
    median_pct: f64,
    /// Their 90th percentile.
    p90_pct: f64,
}

/// A figure that was held out of a fit, as `latput calibrate --held-out` writes it.
#[derive(Deserialize)]
struct HeldOut {
    split: serde_json::Value,
    is_cpu: bool,
    published: f64,
    predicted: f64,
}

/// The part of `latput reproduce --json` that matters here.
#[derive(Deserialize)]
struct ReproductionReport {
    targets: Vec<ReproductionTarget>,
}

#[derive(Deserialize)]
struct ReproductionTarget {
    name: String,
    seen: String,
    wanted: String,
    holds: bool,
}

/// Fits the profiles again, then asks whether the demands hold.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let binary = workspace.build_latput()?;
    let mut differing = Vec::new();
    let mut held_out = Vec::new();
    if !options.accuracy {
        for plan in read_plans(workspace, &options.only)? {
            let figures = workspace.target.join(format!("xtask-held-out-{}.json", plan.profile));
            if !refit_profile(
                workspace,
                &binary,
                &plan,
                options.check,
                options.validate.then_some(&figures),
            )? {
                differing.push(plan.profile);
            }
            if options.validate {
                let text = std::fs::read_to_string(&figures)?;
                held_out.extend(serde_json::from_str::<Vec<HeldOut>>(&text)?);
            }
        }
    }
    if options.only.is_empty() {
        check_accuracy(workspace, &binary)?;
        if options.validate {
            check_held_out(workspace, &held_out)?;
        }
    }
    if options.check && !differing.is_empty() {
        bail!("these differ from what their fits give: {}", differing.join(", "));
    }
    Ok(())
}

fn read_plans(workspace: &Workspace, only: &[String]) -> Result<Vec<CalibrationPlan>> {
    let CalibrationPlans { profile } = read_toml(&workspace.root.join("data/calibration.toml"))?;
    for name in only {
        let names: Vec<&str> = profile.iter().map(|plan| plan.profile.as_str()).collect();
        ensure!(names.contains(&name.as_str()), "no plan for `{name}`; there are {names:?}");
    }
    let wanted = |plan: &CalibrationPlan| only.is_empty() || only.contains(&plan.profile);
    Ok(profile.into_iter().filter(wanted).collect())
}

/// Differences that one message names.
const NAMED: usize = 5;

/// Whether the fit gives the shipped values, each to its printed digits; writes what it gives unless it only checks.
fn refit_profile(
    workspace: &Workspace,
    binary: &Path,
    plan: &CalibrationPlan,
    check: bool,
    held_out: Option<&PathBuf>,
) -> Result<bool> {
    let name = &plan.profile;
    let shipped = workspace.root.join(format!("data/systems/{name}.toml"));
    let made = workspace.target.join(format!("xtask-profile-{name}.toml"));
    let mut command = Command::new(binary);
    command.args(["calibrate", "--system", name, "--output"]).arg(&made);
    if let Some(path) = held_out {
        command.args(["--validate", "--held-out"]).arg(path);
    }
    for file in &plan.cells {
        command.arg("--cells").arg(workspace.root.join("data/published").join(file));
    }
    run_checked(&mut command).with_context(|| format!("`latput calibrate --system {name}`"))?;
    let differing = compare_profiles(&read_toml(&shipped)?, &read_toml(&made)?);
    let same = differing.is_empty();
    if same {
        println!("{name}: the same values");
    } else {
        let named = differing.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join("; ");
        println!("{name}: {} values differ: {named}", differing.len());
    }
    if !check {
        std::fs::copy(&made, &shipped)
            .with_context(|| format!("cannot write {}", shipped.display()))?;
    }
    Ok(same)
}

/// The keys, as paths, that two profiles do not share or have different values for; comments and the order of keys
/// do not count.
fn compare_profiles(shipped: &toml::Table, made: &toml::Table) -> Vec<String> {
    let mut shipped = flatten_table(shipped);
    let mut differing = Vec::new();
    for (key, value) in flatten_table(made) {
        match shipped.remove(&key) {
            Some(before) if before == value => {}
            Some(before) => differing.push(format!("{key} is {before}, fitted {value}")),
            None => differing.push(format!("{key} is absent, fitted {value}")),
        }
    }
    differing.extend(shipped.keys().map(|key| format!("{key} is no key of the fitted profile")));
    differing
}

/// Each value that is no table, by its path.
fn flatten_table(table: &toml::Table) -> BTreeMap<String, toml::Value> {
    let mut values = BTreeMap::new();
    for (key, value) in table {
        match value {
            toml::Value::Table(inner) => {
                let inner = flatten_table(inner).into_iter();
                values.extend(inner.map(|(rest, value)| (format!("{key}.{rest}"), value)));
            }
            _ => {
                values.insert(key.clone(), value.clone());
            }
        }
    }
    values
}

/// Fails if a demand of `data/accuracy.toml` is not met.
pub fn check_accuracy(workspace: &Workspace, binary: &Path) -> Result<()> {
    let demands: AccuracyDemands = read_toml(&workspace.root.join("data/accuracy.toml"))?;
    let said = capture_output(Command::new(binary).args(["reproduce", "--json"]))?;
    let seen: ReproductionReport =
        serde_json::from_str(&said).context("cannot read what `latput reproduce --json` says")?;
    for target in &seen.targets {
        let mark = if target.holds { "holds " } else { "missed" };
        println!("{mark}  {}: {} (wanted: {})", target.name, target.seen, target.wanted);
    }
    let lost = find_lost_demands(&demands.holds, &seen.targets);
    ensure!(lost.is_empty(), "held before, and no longer: {}", lost.join("; "));
    Ok(())
}

/// Fails if fits predict figures that were held out worse than `data/accuracy.toml` demands.
fn check_held_out(workspace: &Workspace, figures: &[HeldOut]) -> Result<()> {
    let demands: AccuracyDemands = read_toml(&workspace.root.join("data/accuracy.toml"))?;
    let mut lost = Vec::new();
    for HeldOutDemand { what, median_pct, p90_pct } in &demands.held_out {
        // Cells are a word; a setting is named.
        let kind = |it: &HeldOut| if it.split.is_string() { "cells" } else { "settings" };
        let rates = figures.iter().filter(|it| !it.is_cpu && kind(it) == what);
        let (median, p90) =
            median_and_p90(rates.map(|it| 100.0 * (it.predicted / it.published - 1.0)));
        println!("held out {what}: {median:.1}% / {p90:.1}% (wanted: {median_pct}% / {p90_pct}%)");
        if median > *median_pct || p90 > *p90_pct {
            lost.push(what.as_str());
        }
    }
    let lost = lost.join("; ");
    ensure!(lost.is_empty(), "held before, and no longer, of the held-out figures: {lost}");
    Ok(())
}

/// Of absolute values, the nearest ranks; infinite if there are none.
fn median_and_p90(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let mut values: Vec<f64> = values.map(f64::abs).collect();
    values.sort_by(f64::total_cmp);
    let at = |tenths: usize| {
        let rank = (values.len() * tenths).div_ceil(10).max(1);
        values.get(rank - 1).copied().unwrap_or(f64::INFINITY)
    };
    (at(5), at(9))
}

/// Demands that are not met, or that nothing answers.
fn find_lost_demands(holds: &[String], targets: &[ReproductionTarget]) -> Vec<String> {
    let met: BTreeMap<&str, bool> =
        targets.iter().map(|target| (target.name.as_str(), target.holds)).collect();
    holds.iter().filter(|name| met.get(name.as_str()) != Some(&true)).cloned().collect()
}

fn read_toml<T: serde::de::DeserializeOwned>(path: &PathBuf) -> Result<T> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_or_missing_demand_is_lost() {
        let target = |name: &str, holds| ReproductionTarget {
            name: name.to_owned(),
            seen: String::new(),
            wanted: String::new(),
            holds,
        };
        let holds = ["a", "b", "c"].map(String::from);
        assert_eq!(find_lost_demands(&holds, &[target("a", true), target("b", false)]), ["b", "c"]);
    }

    #[test]
    fn profiles_differ_by_values_not_spelling() {
        let profile = |text: &str| toml::from_str::<toml::Table>(text).unwrap();
        let shipped = profile("# by hand\nb = { c_ns = 1_000, d = 0.25 }\na = [1, 2]\n");
        let same = profile("a = [\n1,\n2]\n[b]\nd = 0.250\nc_ns = 1000\n");
        assert_eq!(compare_profiles(&shipped, &same), [""; 0]);
        let other = profile("a = [2, 1]\n[b]\nc_ns = 1001\ne = true\n");
        let found = [
            "a is [1, 2], fitted [2, 1]",
            "b.c_ns is 1000, fitted 1001",
            "b.e is absent, fitted true",
            "b.d is no key of the fitted profile",
        ];
        assert_eq!(compare_profiles(&shipped, &other), found);
    }

    #[test]
    fn median_and_p90_are_of_absolute_values() {
        assert_eq!(median_and_p90((-10..0).map(f64::from)), (5.0, 9.0));
        assert_eq!(median_and_p90(std::iter::empty()), (f64::INFINITY, f64::INFINITY));
    }

    #[test]
    fn shipped_plans_and_demands_can_be_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let plans: CalibrationPlans = read_toml(&root.join("data/calibration.toml")).unwrap();
        assert!(plans.profile.iter().all(|plan| !plan.cells.is_empty()));
        let demands: AccuracyDemands = read_toml(&root.join("data/accuracy.toml")).unwrap();
        assert!(!demands.holds.is_empty() && !demands.held_out.is_empty());
    }
}
