//! The published files, and the accuracy of each predicted figure.

use latput_calibrate::ErrorSummary;
use schemars::JsonSchema;
use serde::Serialize;

use crate::anomaly::AnomalyList;
use crate::cells::{CellFile, CellsError, RowPrediction};
use crate::delay_mtu::PublishedClaim;
pub use crate::figure::{AccuracyTarget, Judged, ReproducedFigure, TableErrors, scale_name};
pub use crate::files::FILES;
use crate::files::{describe_row, scale_of, table_of};
use crate::kind::ErrorScale;
use crate::provenance::{ProfileOrigin, Provenance};
use crate::row::CsvRow;
use crate::system::SystemCatalog;

/// Every published figure with its prediction.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reproduction {
    /// Schema version of this document: 1.
    pub schema: u32,
    /// The figures, in the order of the files.
    pub figures: Vec<ReproducedFigure>,
    /// Errors by table and column, without anomalies.
    pub tables: Vec<TableErrors>,
    /// Claims without cells (the slides on receive delay and MTU) with their checks.
    pub claims: Vec<PublishedClaim>,
    /// The accuracy targets with their results.
    pub targets: Vec<AccuracyTarget>,
    /// Origins of the profiles' numbers.
    pub profiles: Vec<ProfileOrigin>,
}

impl Reproduction {
    /// Adds claims and their targets.
    pub fn add_claims(&mut self, claims: Vec<PublishedClaim>) {
        self.targets.extend(crate::target::build_claim_targets(&claims));
        self.claims.extend(claims);
    }
}

/// A published file with the experiments of its rows.
pub fn load_cell_file(name: &str, systems: &SystemCatalog) -> Option<Result<CellFile, CellsError>> {
    let (_, text) = FILES.iter().find(|(file, _)| *file == name)?;
    Some(CellFile::read(text, systems))
}

/// Compares published figures with predictions.
pub fn compare_predictions(
    files: &[(&str, &CellFile, &[Option<RowPrediction>])],
    systems: &SystemCatalog,
    provenance: &Provenance,
) -> Reproduction {
    let anomalies = AnomalyList::load_shipped();
    let mut figures = Vec::new();
    for (name, file, predictions) in files {
        for (idx, predicted) in predictions.iter().enumerate() {
            let row = CsvRow::new(&file.table, idx);
            let Some(predicted) = predicted else { continue };
            let profile = systems.profile_of(file.kind, &row).unwrap_or_default();
            let label = provenance.label_row(name, file.numbers[idx], table_of(&row));
            for (measured, prediction) in file.kind.measured_columns().iter().zip(predicted) {
                let published = row.parse_figure(measured.column).ok().flatten();
                let (Some(published), Some(prediction)) = (published, prediction) else { continue };
                let scale = scale_of(file.kind, measured.scale, &row);
                if published <= 0.0 && scale != ErrorScale::Points {
                    continue;
                }
                let error_ratio = match scale {
                    ErrorScale::Points => (prediction.value - published) / 100.0,
                    _ => prediction.value / published - 1.0,
                };
                figures.push(ReproducedFigure {
                    file: (*name).to_owned(),
                    table: table_of(&row).to_owned(),
                    row: file.numbers[idx],
                    what: describe_row(&row),
                    column: measured.column.to_owned(),
                    profile: profile.to_owned(),
                    label,
                    published,
                    predicted: prediction.value,
                    predicted_lo: prediction.low,
                    predicted_hi: prediction.high,
                    error_ratio,
                    anomaly: anomalies.find_for_row(&row).map(|anomaly| anomaly.reason.clone()),
                });
            }
        }
    }
    let tables = summarize_tables(&figures);
    let targets = crate::target::build_targets(&figures);
    let profiles = provenance.profiles().to_vec();
    Reproduction { schema: 1, figures, tables, claims: Vec::new(), targets, profiles }
}

fn summarize_tables(figures: &[ReproducedFigure]) -> Vec<TableErrors> {
    let mut groups = std::collections::BTreeMap::<(usize, &str, &str), Vec<f64>>::new();
    for figure in figures.iter().filter(|figure| figure.anomaly.is_none()) {
        let file = FILES.iter().position(|(name, _)| *name == figure.file).unwrap_or(FILES.len());
        let is_table = figure.table.len() != 3 || figure.table.starts_with(['A', 'B']);
        let table = if is_table { figure.table.as_str() } else { "" };
        let scale = scale_name(figure);
        if !table.is_empty() {
            groups.entry((file, table, scale)).or_default().push(figure.error_ratio);
        }
        groups.entry((file, "~", scale)).or_default().push(figure.error_ratio);
        groups.entry((FILES.len() + 1, "~", scale)).or_default().push(figure.error_ratio);
    }
    let errors = |((file, table, scale), errors): ((usize, &str, &str), Vec<f64>)| {
        let errors = ErrorSummary::from_errors(errors)?;
        Some(TableErrors {
            file: FILES.get(file).map_or("all", |(name, _)| name).to_owned(),
            table: if table == "~" { String::new() } else { table.to_owned() },
            scale: scale.to_owned(),
            figures: errors.count,
            median_error_ratio: errors.median,
            p90_error_ratio: errors.p90,
        })
    };
    groups.into_iter().filter_map(errors).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schema_in_docs_is_that_of_the_document() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema/reproduce.json");
        let schema = schemars::schema_for!(Reproduction);
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        latput_testkit::blessed::file(path, &text);
    }

    #[test]
    fn every_published_row_is_simulated_or_explained() {
        let systems = SystemCatalog::load_shipped();
        for (name, _) in FILES {
            let file =
                load_cell_file(name, &systems).unwrap().unwrap_or_else(|e| panic!("{name}: {e}"));
            let errors = file.rows.iter().filter_map(|row| row.as_ref().err());
            for error in errors {
                let is_arithmetic = error.kind == crate::row::RowErrorKind::NotSimulated;
                assert!(is_arithmetic && name == "moderation_ping_idle", "{name}: {error}");
            }
        }
    }
}
