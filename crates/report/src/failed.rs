//! Failed checks as sentences: `Other programs used half a CPU in 2 of 2 trials (tcp_rr, generator).`

use std::collections::BTreeSet;

use latput_model::summary::FailedCheck;
use latput_units::IntoSet;

use crate::format;
use crate::view::{ReportView, capitalize_first};

/// The failures of one check as a sentence: the first clause of its detail, the number of runs in which it failed, and the
/// cell in which it failed most often. What the detail says behind the first clause follows. A detail that ends with
/// a full stop holds for all runs, and stands alone. `None` without a failure.
pub(crate) fn describe_failures(view: &ReportView<'_>, checks: &[&FailedCheck]) -> Option<String> {
    let most = checks.iter().rev().max_by_key(|check| check.runs)?;
    if most.detail.ends_with('.') {
        return Some(most.detail.clone());
    }
    let (first, more) = most.detail.split_once("; ").unwrap_or((&most.detail, ""));
    let rows = view.results.rows.iter();
    let known: BTreeSet<&str> =
        rows.flat_map(|row| &row.observation.hosts).map(|host| host.host.as_str()).into_set();
    let (host, clause) = split_host(&known, first);
    let cell = format_cell(view, most);
    let place: Vec<&str> = [cell.as_str()].into_iter().chain(host).collect();
    let place = place.join(", ");
    let place = if checks.len() > 1 { format!("most: {place}") } else { place };
    let runs: usize = checks.iter().map(|check| check.runs).sum();
    let all = format::format_count(view.results.rows.len(), "trial");
    let more = match split_host(&known, more) {
        (_, "") => String::new(),
        (Some(_), _) => format!(" {more}."),
        (None, clause) => format!(" {}.", capitalize_first(clause)),
    };
    let clause = if clause.is_empty() { &most.name } else { clause };
    Some(format!("{} in {runs} of {all} ({place}).{more}", capitalize_first(clause)))
}

/// The cell of a failure: the workload, after the setting where there are several.
fn format_cell(view: &ReportView<'_>, check: &FailedCheck) -> String {
    let workload = view.workload_name(check.workload);
    if view.results.settings.len() == 1 {
        return workload;
    }
    format!("{}, {workload}", view.short_label(check.setting))
}

/// The hosts before a detail's colon, and the rest: `a: slow` and `a and b: slow`.
fn split_host<'t>(known: &BTreeSet<&str>, detail: &'t str) -> (Option<&'t str>, &'t str) {
    match detail.split_once(": ") {
        Some((hosts, clause)) if hosts.split(" and ").all(|host| known.contains(host)) => {
            (Some(hosts), clause)
        }
        _ => (None, detail),
    }
}
