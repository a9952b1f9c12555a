//! `latput metrics`: lists the metrics with unit, direction and workloads.

use std::process::ExitCode;

use latput_report::lines::wrap_text;
use latput_trial::Metric;
use latput_trial::metric::{MetricRow, MetricScope, Needs, PreferredDirection};
use latput_trial::workload::WorkloadKind;

use crate::context::CliContext;
use crate::document::{MetricDocument, MetricsDocument};
use crate::exit::CliError;
use crate::output;

/// Columns of a name, a unit and a direction: the longest have 27, 23 and 7 characters.
const NAME: usize = 28;
const UNIT: usize = 24;
const INDENT: &str = "    ";

/// List the metrics.
///
/// Each with name, unit, better direction, workloads and definition.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput metrics               every metric
  latput metrics udp_stream    those that a udp_stream can have
  latput metrics --json        for scripts

Goals, CSV, JSON and the results file use these names. A plan can define more metrics from the output of a
program, and goals can use them (docs/workloads/README.md).")]
pub(crate) struct Args {
    /// Only the metrics of this kind of workload.
    #[arg(value_name = "WORKLOAD")]
    workload: Option<String>,
}

impl Args {
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        let kind = self.workload.as_deref().map(WorkloadKind::find).transpose();
        let kind = kind.map_err(|error| CliError::usage(error.to_string()))?;
        let is_wanted = |metric: &&Metric| kind.is_none_or(|kind| metric.is_reported_by(kind));
        let rows: Vec<&MetricRow> =
            Metric::ALL.iter().filter(is_wanted).map(|metric| metric.row()).collect();
        if context.json {
            let metrics = rows.into_iter().map(describe_metric).collect();
            output::print_json(&MetricsDocument { schema: 1, workload: self.workload, metrics })?;
        } else {
            let columns = output::stdout_screen().columns;
            output::print_text(&rows.iter().map(|row| in_words(row, columns)).collect::<String>())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn describe_metric(row: &MetricRow) -> MetricDocument {
    MetricDocument {
        name: row.name.to_owned(),
        unit: row.unit.name().to_owned(),
        better: row.preferred.name().to_owned(),
        summarised: row.summary.name().to_owned(),
        workloads: row.workloads().into_iter().map(ToOwned::to_owned).collect(),
        needs: row.needs.field().map(ToOwned::to_owned),
        definition: row.definition.to_owned(),
    }
}

fn in_words(row: &MetricRow, columns: usize) -> String {
    let better = match row.preferred {
        PreferredDirection::Neither => "neither way is better".to_owned(),
        way => format!("{} is better", way.name()),
    };
    let mut text = format!("{:<NAME$}{:<UNIT$}{better}\n", row.name, row.unit.name());
    text += &wrap_text(row.definition, INDENT, columns);
    let kinds = match row.scope {
        MetricScope::All => "any workload".to_owned(),
        _ => row.workloads().join(", "),
    };
    let needs = match row.needs {
        Needs::Nothing => "",
        Needs::Probe => ", with `probe_hz`; also `ping`",
        Needs::Arrivals => ", with `rate_per_s`",
    };
    let line = format!("Of {kinds}{needs}; {} over trials.", row.summary.name());
    text + &wrap_text(&line, INDENT, columns) + "\n"
}
