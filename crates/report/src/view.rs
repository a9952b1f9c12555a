//! Shared by all outputs: names, main figures, CPU shares and commands of results and summary.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use latput_model::labels::full_label;
use latput_model::{CellSummary, Headline, ResultsSummary, ShortLabels};
use latput_stats::Estimate;
use latput_trial::metric::Scale;
use latput_trial::observation::{CpuSource, CpuTime, HostObservation, Role};
use latput_trial::results::HostFacts;
use latput_trial::workload::Shape;
use latput_trial::{Metric, Results, Traffic, Workload};
use latput_units::IntoSet;
use latput_units::text::is_or_are;

use crate::format::{self, interval_bounds, is_lopsided};
use crate::next::shell_word;
use crate::printable::make_printable;

/// Results and their summary, with derived values.
#[derive(Debug)]
pub(crate) struct ReportView<'a> {
    pub(crate) results: &'a Results,
    pub(crate) summary: &'a ResultsSummary,
    /// Title of the column of settings: the knobs, if every label names the same ones.
    pub(crate) knobs: String,
    /// Labels without the part that all of them share.
    labels: Vec<String>,
}

/// The parts of busy CPU time, in the order of pictures.
pub(crate) const CPU_PARTS: [&str; 5] = ["user", "system", "irq", "softirq", "steal"];

/// A command line that applies a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SetCommand {
    /// Its hosts: `a and b`.
    pub(crate) hosts: String,
    /// `latput set eth2 gro-flush-timeout=50us`.
    pub(crate) line: String,
}

impl<'a> ReportView<'a> {
    pub(crate) fn new(results: &'a Results, summary: &'a ResultsSummary) -> Self {
        let ShortLabels { knobs, labels } = ShortLabels::from_results(results);
        let labels = labels.iter().map(|label| make_printable(label)).collect();
        Self { results, summary, knobs: make_printable(&knobs), labels }
    }

    /// The short name of a setting. A damaged file may refer to a missing one.
    pub(crate) fn short_label(&self, setting: usize) -> &str {
        self.labels.get(setting).map_or("unknown setting", String::as_str)
    }

    /// The whole name of a setting.
    pub(crate) fn full_label(&self, setting: usize) -> String {
        let label = full_label(self.results, setting);
        make_printable(label.as_deref().unwrap_or("unknown setting"))
    }

    /// The name of a workload.
    pub(crate) fn workload_name(&self, workload: usize) -> String {
        let name = self.results.workloads.get(workload).map(|workload| workload.name.as_str());
        make_printable(name.unwrap_or("unknown workload"))
    }

    /// The workloads that have at least one finished run, with their index.
    pub(crate) fn measured_workloads(&self) -> impl Iterator<Item = (usize, &'a Workload)> + '_ {
        self.results
            .workloads
            .iter()
            .enumerate()
            .filter(|(idx, _)| self.summary.cells.iter().any(|cell| cell.workload == *idx))
    }

    /// The cells of one workload, by setting.
    pub(crate) fn workload_cells(&self, workload: usize) -> Vec<&'a CellSummary> {
        let settings = self.results.settings.len();
        let mut cells: Vec<&CellSummary> = self
            .summary
            .cells
            .iter()
            .filter(|cell| cell.workload == workload && cell.setting < settings)
            .collect();
        cells.sort_by_key(|cell| cell.setting);
        cells
    }

    /// One setting under one workload.
    pub(crate) fn find_cell(&self, setting: usize, workload: usize) -> Option<&'a CellSummary> {
        self.summary.cells.iter().find(|cell| cell.setting == setting && cell.workload == workload)
    }

    /// The settings that have at least one cell.
    pub(crate) fn measured_settings(&self) -> Vec<usize> {
        let measured: BTreeSet<usize> = self
            .summary
            .cells
            .iter()
            .map(|cell| cell.setting)
            .filter(|setting| *setting < self.results.settings.len())
            .into_set();
        measured.into_iter().collect()
    }

    /// The metrics that at least one cell of a workload has, in the order of tables.
    pub(crate) fn workload_metrics(&self, workload: usize) -> Vec<Metric> {
        let cells = self.workload_cells(workload);
        let figures = cells.iter().flat_map(|cell| &cell.metrics);
        let known = figures.filter(|(_, estimate)| estimate.value.is_finite());
        known.map(|(metric, _)| *metric).into_set().into_iter().collect()
    }

    /// The metrics of the plan's own that at least one cell of a workload has, by name.
    pub(crate) fn custom_metrics(&self, workload: usize) -> Vec<Metric> {
        let is_custom = |metric: &Metric| matches!(metric, Metric::Custom(_));
        self.workload_metrics(workload).into_iter().filter(is_custom).collect()
    }

    /// The main figures of a workload, most important first: the plan's own, then those of its kind that at least one
    /// cell has.
    pub(crate) fn main_metrics(&self, workload: usize) -> Vec<Metric> {
        let present = self.workload_metrics(workload);
        let of_kind = self.results.workloads.get(workload).into_iter().flat_map(main_metrics);
        let of_kind = of_kind.filter(|metric| present.contains(metric));
        self.custom_metrics(workload).into_iter().chain(of_kind).collect()
    }

    /// The unit for all figures of one metric of one workload.
    pub(crate) fn choose_scale(&self, workload: usize, metric: Metric) -> Scale {
        let figures = self.workload_cells(workload);
        let largest = figures
            .iter()
            .filter_map(|cell| cell.metrics.get(&metric))
            .map(|estimate| estimate.value.abs())
            .filter(|value| value.is_finite())
            .fold(0.0, f64::max);
        Scale::choose(metric, &self.workload_traffic(workload), largest)
    }

    /// The traffic of a workload. A missing one gets a default, which only affects units.
    pub(crate) fn workload_traffic(&self, workload: usize) -> Traffic {
        let any = Traffic::tcp_stream(latput_units::Bytes::new(0), 1);
        self.results.workloads.get(workload).map_or(any, |workload| workload.traffic)
    }

    /// The main rate of a workload, whose interval the stopping rule uses.
    pub(crate) fn rate_metric(&self, workload: usize) -> Metric {
        self.workload_traffic(workload).facts().rate
    }

    /// The answer in a few words, and its setting: `Recommended: set`, `Recommended: stay with`, or
    /// `No answer` without one. `None` without a goal.
    pub(crate) fn short_answer(&self) -> Option<(String, Option<String>)> {
        let headline = self.summary.headline.as_ref()?;
        let setting =
            self.summary.recommendation.as_ref().map(|advice| self.full_label(advice.setting));
        let condition = self.summary.fitness.condition.as_deref();
        let words = |change: &str| match condition {
            Some(condition) => format!("{}: {change}", capitalize_first(condition)),
            None => format!("Recommended: {change}"),
        };
        Some(match headline {
            Headline::Set(_) => (words("set"), setting),
            Headline::Stay(_) => (words("stay with"), setting),
            Headline::TooNoisy(_) | Headline::NoAnswer(_) => ("No answer".to_owned(), None),
            Headline::NotQuiet(_) => ("No answer: the hosts were not quiet".to_owned(), None),
        })
    }

    /// The commands that apply the recommended setting; none if that is to change nothing.
    pub(crate) fn recommended_commands(&self) -> Vec<SetCommand> {
        match (&self.summary.headline, &self.summary.recommendation) {
            (Some(Headline::Set(_)), Some(advice)) => self.commands_for_setting(advice.setting),
            _ => Vec::new(),
        }
    }

    /// Whether the setting is the recommended one.
    pub(crate) fn is_recommended(&self, setting: usize) -> bool {
        let has_answer = self.summary.headline.as_ref().is_none_or(Headline::is_answer);
        let advice = self.summary.recommendation.as_ref().filter(|_| has_answer);
        advice.is_some_and(|advice| advice.setting == setting)
    }

    /// Whether the setting is in a Pareto set that does not contain every setting.
    pub(crate) fn is_pareto(&self, setting: usize) -> bool {
        self.summary.pareto.contains(&setting) && !self.is_every_setting_pareto()
    }

    /// Whether every setting is in the Pareto set, which then tells nothing.
    pub(crate) fn is_every_setting_pareto(&self) -> bool {
        self.measured_settings().iter().all(|setting| self.summary.pareto.contains(setting))
    }

    /// Whether a check failed in a run of this cell.
    pub(crate) fn has_failed_check(&self, setting: usize, workload: usize) -> bool {
        let mut failed = self.summary.failed_checks.iter();
        failed.any(|check| check.setting == setting && check.workload == workload)
    }

    /// Repetitions of the plan that have at least one finished trial.
    pub(crate) fn count_blocks(&self) -> usize {
        self.results.rows.iter().map(|row| row.block).into_set().len()
    }

    /// Busy shares of one host's CPUs in the order of [`CPU_PARTS`], over all runs of a cell.
    pub(crate) fn cpu_shares(
        &self,
        setting: usize,
        workload: usize,
        role: Role,
    ) -> Option<[f64; 5]> {
        let time: CpuTime = self
            .results
            .rows
            .iter()
            .filter(|row| row.setting == setting && row.workload == workload)
            .flat_map(|row| &row.observation.hosts)
            .filter(|host| host.role == role)
            .map(latput_trial::observation::HostObservation::cpu)
            .sum();
        cpu_shares(&time)
    }

    /// The commands that apply a setting: one for all hosts if it is the same on each. Hosts of the
    /// lab no longer exist when this is read, so there the reader names an interface.
    pub(crate) fn commands_for_setting(&self, setting: usize) -> Vec<SetCommand> {
        let mut commands: Vec<SetCommand> = Vec::new();
        let Some(setting) = self.results.settings.get(setting) else { return commands };
        for host in &self.results.hosts {
            let Some(values) = setting.by_role.get(&host.role).filter(|values| !values.is_empty())
            else {
                continue;
            };
            let interface =
                if self.is_lab() { "IFACE".to_owned() } else { shell_word(&host.interface) };
            let values: Vec<String> =
                values.iter().map(|(knob, value)| format!("{knob}={value}")).collect();
            let line = format!("latput set {interface} {}", values.join(" "));
            let name = make_printable(&host.host);
            match commands.iter_mut().find(|command| command.line == line) {
                Some(command) => command.hosts = format!("{} and {name}", command.hosts),
                None => commands.push(SetCommand { hosts: name, line }),
            }
        }
        commands
    }

    /// Whether the testbed is the lab of two namespaces.
    pub(crate) fn is_lab(&self) -> bool {
        self.results.testbed == "lab"
    }

    /// Whether the hosts share a kernel, so that their CPU time must be told apart.
    pub(crate) fn shares_kernel(&self) -> bool {
        let boot_ids: Vec<&str> = self
            .results
            .hosts
            .iter()
            .flat_map(|host| &host.facts)
            .filter(|(key, _)| key == "boot-id")
            .map(|(_, value)| value.as_str())
            .collect();
        let same_boot = boot_ids.len() > 1 && boot_ids.windows(2).all(|pair| pair[0] == pair[1]);
        self.is_lab() || same_boot
    }

    /// CPU time of latput's own counting and tracing per host, as a share of one CPU over all windows.
    pub(crate) fn sampling_ratio(&self, host: &str) -> Option<f64> {
        let observed = || {
            let rows = self.results.rows.iter();
            rows.flat_map(|row| &row.observation.hosts).filter(|observed| observed.host == host)
        };
        let of_host = |host: &HostObservation| {
            host.sampling_cpu.saturating_add(host.tracing_cpu.unwrap_or_default()).as_secs_f64()
        };
        let spent: f64 = observed().map(of_host).sum();
        let window: f64 = observed().map(|host| host.window.as_secs_f64()).sum();
        (window > 0.0).then(|| spent / window)
    }

    /// CPU cost of latput's own counting on each host: `latput's counting takes 0.21% of a CPU on a and 0.19% on b`. `None` for
    /// hosts on which it took nothing, such as simulated ones.
    pub(crate) fn cost_of_counting(&self) -> Option<String> {
        let of_host = |host: &HostFacts| {
            let ratio = self.sampling_ratio(&host.host).filter(|ratio| *ratio > 0.0)?;
            Some((format::format_percent(ratio), make_printable(&host.host)))
        };
        let mut costs = self.results.hosts.iter().filter_map(of_host);
        let (share, host) = costs.next()?;
        let mut text = format!("latput's counting takes {share} of a CPU on {host}");
        for (share, host) in costs {
            let _ = write!(text, " and {share} on {host}");
        }
        Some(text)
    }

    /// Whether a table has an interval that is not printed as ±.
    pub(crate) fn shows_lopsided_interval(&self) -> bool {
        self.summary.cells.iter().any(|cell| {
            let shown = self.main_metrics(cell.workload).into_iter();
            shown.filter_map(|metric| finite_estimate(cell, metric)).any(is_lopsided)
        })
    }

    /// The confidence of the intervals, and of those below the wanted one: with few runs an
    /// order-statistic interval cannot reach every confidence.
    pub(crate) fn describe_confidence(&self) -> String {
        let wanted = self.results.confidence;
        let estimates = self.summary.cells.iter().flat_map(|cell| cell.metrics.values());
        let weakest = estimates
            .filter(|estimate| {
                interval_bounds(estimate).is_some() && estimate.confidence < wanted - 1e-6
            })
            .min_by(|a, b| a.confidence.total_cmp(&b.confidence));
        let text = format!("{} interval", format::format_percent(wanted));
        weakest.map_or(text.clone(), |weakest| {
            format!(
                "{text} (of medians {}: {} allow no more)",
                format::format_percent(weakest.confidence),
                format::format_count(weakest.runs, "trial")
            )
        })
    }

    /// A sentence on missing trials, if there are any.
    pub(crate) fn describe_shortage(&self) -> Option<String> {
        let rows = self.results.rows.len();
        if rows == 0 || self.summary.cells.is_empty() {
            return Some(format!(
                "No trial has finished ({} planned).",
                self.results.planned_trials
            ));
        }
        if self.summary.cells.iter().all(|cell| cell.runs <= 1) {
            return Some(
                "Every cell has one trial: nothing has an interval and nothing is proven."
                    .to_owned(),
            );
        }
        let missing = self.results.planned_trials.saturating_sub(rows as u64);
        (missing > 0).then(|| {
            let planned = format::format_count(self.results.planned_trials, "planned trial");
            format!("{missing} of {planned} {} missing.", is_or_are(missing))
        })
    }
}

/// A sentence's beginning with a capital letter.
pub(crate) fn capitalize_first(words: &str) -> String {
    let mut chars = words.chars();
    let first: String = chars.next().into_iter().flat_map(char::to_uppercase).collect();
    first + chars.as_str()
}

/// Shares of the whole in the order of [`CPU_PARTS`]; `None` if no time passed.
pub(crate) fn cpu_shares(time: &CpuTime) -> Option<[f64; 5]> {
    let total = time.total().as_secs_f64();
    let parts = [time.user, time.system, time.irq, time.softirq, time.steal];
    (total > 0.0).then(|| parts.map(|part| part.as_secs_f64() / total))
}

/// The main figures of a workload's kind, most important first.
fn main_metrics(workload: &Workload) -> impl Iterator<Item = Metric> {
    let traffic = &workload.traffic;
    let facts = traffic.facts();
    // At an offered rate the goodput of datagrams equals the offer less the loss; without one it is the result.
    let is_offered = facts.shape == Shape::Datagrams && traffic.offered_rate().is_some();
    let is_result = move |metric: &Metric| !(is_offered && *metric == facts.rate);
    facts.shown.iter().copied().filter(is_result)
}

/// Whether the interval of this figure is wider than wanted; only for figures of the stopping rule.
pub(crate) fn is_too_wide(cell: &CellSummary, metric: Metric) -> bool {
    cell.too_wide.contains(&metric)
}

/// The estimate of a figure, unless it is no number.
pub(crate) fn finite_estimate(cell: &CellSummary, metric: Metric) -> Option<&Estimate> {
    cell.metrics.get(&metric).filter(|estimate| estimate.value.is_finite())
}

/// The source of CPU time in words; `None` where no host's was counted. If one host used clock ticks, that is named first.
pub(crate) fn cpu_sources(results: &Results) -> Option<&'static str> {
    let mut hosts = results.rows.iter().flat_map(|row| &row.observation.hosts).peekable();
    hosts.peek()?;
    let has = |source| hosts.clone().any(|host| host.accounting.source == source);
    Some(if has(CpuSource::Ticks) {
        "counted by clock ticks, which miss short busy times"
    } else if has(CpuSource::Idle) {
        "from exact idle time"
    } else if has(CpuSource::Record) {
        "from the kernel's record of idle time, in nanoseconds"
    } else if has(CpuSource::Trace) {
        "traced"
    } else {
        "known of a simulated host"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_takes_the_interface_literally() {
        assert_eq!(shell_word("eth2.10"), "eth2.10");
        assert_eq!(shell_word("eth0; reboot"), "'eth0; reboot'");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
        assert_eq!(shell_word(""), "''");
    }
}
