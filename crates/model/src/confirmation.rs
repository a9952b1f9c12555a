//! The confirming runs of a search, apart from the runs that found the winner.

use std::collections::BTreeSet;

use latput_trial::{Results, Row};
use latput_units::IntoSet;

/// The confirming runs of a search: the settings that were run afresh, today's first, with only
/// their fresh runs, and the index of each in the results.
pub(crate) fn extract_confirmation(results: &Results) -> Option<(Results, Vec<usize>)> {
    let from = results.confirmed_from?;
    let fresh = || results.rows.iter().filter(|row| row.block >= from);
    let mut indices: BTreeSet<usize> = fresh().map(|row| row.setting).into_set();
    indices.insert(0);
    let indices: Vec<usize> = indices.into_iter().collect();
    let settings = indices.iter().map(|idx| results.settings.get(*idx).cloned());
    let settings = settings.collect::<Option<Vec<_>>>().filter(|settings| settings.len() > 1)?;
    let place = |setting| indices.binary_search(&setting).ok();
    let rows = fresh().filter_map(|row| Some(Row { setting: place(row.setting)?, ..row.clone() }));
    Some((Results { settings, rows: rows.collect(), ..results.clone() }, indices))
}
