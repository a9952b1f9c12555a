//! Errors of cells, and of whole settings, left out of the fit of costs. Mechanisms and `steal_after_ns` were chosen with
//! these cells in view (`steal_after_ns` by these errors), so they are not errors of cells that nobody had seen.

use serde::{Deserialize, Serialize};

use super::{Cells, Effort, Errors, OTHER_SEED, Residual, Search};
use crate::kind::Scale;
use crate::row::Row;

/// Every second cell is left out, then the others.
const FOLDS: usize = 2;

/// Which cells a fit was made without.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// Every second cell of each table.
    Cells,
    /// All cells of this setting.
    Setting(String),
}

/// A figure that was left out of a fit of costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LeftOut {
    /// Without which cells the fit was made.
    pub split: Split,
    /// The cell in words.
    pub what: String,
    /// The column.
    pub column: &'static str,
    /// Whether it is CPU time, not a rate.
    pub is_cpu: bool,
    /// As published.
    pub published: f64,
    /// As predicted.
    pub predicted: f64,
}

impl LeftOut {
    /// Predicted over published, less one.
    pub fn error_ratio(&self) -> f64 {
        self.predicted / self.published - 1.0
    }
}

/// Errors of the figures left out of fits of costs: of cells left out, of each setting left out, and of all
/// settings (the last); rates, then CPU time.
pub fn errors_left_out(left_out: &[LeftOut]) -> Vec<(String, Errors)> {
    let mut groups = std::collections::BTreeMap::<(&Split, bool), Vec<f64>>::new();
    let all = Split::Setting(String::from("~ each setting in turn"));
    for figure in left_out {
        let error = figure.error_ratio();
        groups.entry((&figure.split, figure.is_cpu)).or_default().push(error);
        if figure.split != Split::Cells {
            groups.entry((&all, figure.is_cpu)).or_default().push(error);
        }
    }
    let named = |((split, is_cpu), errors): ((&Split, bool), Vec<f64>)| {
        let name = match split {
            Split::Cells => "every second cell",
            Split::Setting(setting) => setting.trim_start_matches("~ "),
        };
        let part = if is_cpu { "CPU" } else { "rates" };
        Some((format!("{name}, {part}"), Errors::of(errors)?))
    };
    groups.into_iter().filter_map(named).collect()
}

impl Search<'_> {
    /// Fits without some cells, which it then predicts; each begins at `at`, the logarithms of the costs of the fit
    /// to all.
    pub(super) fn validate(
        &self,
        cells: &Cells,
        at: &[f64],
        said: &mut dyn FnMut(String),
    ) -> Vec<LeftOut> {
        let mut left_out = Vec::new();
        for fold in 0..FOLDS {
            said(format!("without every second cell, {} of {FOLDS}", fold + 1));
            let is_out = |idx: usize| idx % FOLDS == fold;
            let train = cells.select(|idx, _| !is_out(idx));
            let test = cells.select(|idx, _| is_out(idx));
            left_out.extend(self.predict(&train, &test, at, &Split::Cells, said));
        }
        for setting in cells.settings() {
            let train = cells.select(|_, cell| cell.setting != setting);
            if train.figures() < 2 * self.plan.free.len() {
                continue;
            }
            said(format!("without the setting {setting}"));
            let test = cells.select(|_, cell| cell.setting == setting);
            let split = Split::Setting(setting.to_owned());
            left_out.extend(self.predict(&train, &test, at, &split, said));
        }
        left_out
    }

    fn predict(
        &self,
        train: &Cells,
        test: &Cells,
        at: &[f64],
        split: &Split,
        said: &mut dyn FnMut(String),
    ) -> Vec<LeftOut> {
        let found = self.best(train, Some(at), Effort::PART, said);
        let profile = self.with_engine(train, |engine| engine.profile(&found.at));
        let residuals = self.residuals(&profile, test, OTHER_SEED, 1.0);
        let mut left_out = Vec::new();
        for (cell, residuals) in test.cells.iter().zip(residuals) {
            let row = Row::new(&test.tables[cell.table], cell.row);
            let is_told = |it: &Residual| matches!(it.scale, Scale::Rate | Scale::Cpu);
            let told = residuals.into_iter().filter(is_told);
            left_out.extend(told.map(|residual| LeftOut {
                split: split.clone(),
                what: format!("{} {}", cell.group, crate::published::words(&row)),
                column: residual.column,
                is_cpu: residual.scale == Scale::Cpu,
                published: residual.published,
                predicted: residual.predicted,
            }));
        }
        left_out
    }
}
