//! A validation by several processes: each makes some of its fits, and the whole is joined from what they wrote.

use serde::{Deserialize, Serialize};

use super::validate::{FitHeldOut, PartOfFits, build_folds};
use super::{FitPlan, PublishedCells};
use crate::parts::{JoinError, hash_texts, order_parts};
use crate::system::SystemCatalog;

/// The part of a validation that one process writes. As TOML, whose numbers come back to the last bit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValidationPart {
    made_by: String,
    part: PartOfFits,
    fits: Vec<FitHeldOut>,
}

impl ValidationPart {
    /// The fits of one part.
    pub fn new(made_by: String, part: PartOfFits, fits: Vec<FitHeldOut>) -> Self {
        Self { made_by, part, fits }
    }
}

/// Origin of a validation in words: the version, and a hash of plan, cells and profile.
pub fn made_by(plan: &FitPlan, cells: &PublishedCells, systems: &SystemCatalog) -> String {
    let hash = hash_texts([format!("{plan:?}{cells:?}{:?}", systems.find_profile(&plan.profile))]);
    format!("latput {} calibrate {hash:016x}", env!("CARGO_PKG_VERSION"))
}

/// Number of fits of a validation: no more parts make sense.
pub fn fits_count(plan: &FitPlan, cells: &PublishedCells) -> usize {
    build_folds(plan, &cells.asked_by(plan)).len()
}

/// The fits of all parts, in any order; each part has a name for errors.
///
/// # Errors
///
/// Parts that are missing, doubled, damaged, or of another calibration.
pub fn join_parts(
    plan: &FitPlan,
    cells: &PublishedCells,
    systems: &SystemCatalog,
    parts: &[(String, ValidationPart)],
) -> Result<Vec<FitHeldOut>, JoinError> {
    let wanted = made_by(plan, cells, systems);
    let number_of = |part: &ValidationPart| {
        if part.made_by != wanted {
            return Err(format!(
                "it was made by `{}` and is wanted by `{wanted}`: make it again with the same options",
                part.made_by
            ));
        }
        Ok((part.part.number as usize, part.part.count as usize))
    };
    let (found, mut problems) = order_parts(parts, number_of);
    let (fits, count) = (fits_count(plan, cells), found.len());
    for (idx, part) in found.iter().enumerate() {
        let Some((name, part)) = part else { continue };
        if !part.fits.iter().map(|fit| fit.place).eq((idx..fits).step_by(count)) {
            problems.push(format!(
                "{name}: its fits are not those of the part: make it with `--shard {}/{count}`",
                idx + 1
            ));
        }
    }
    if !problems.is_empty() {
        return Err(JoinError { problems });
    }
    let mut whole: Vec<FitHeldOut> =
        found.into_iter().flatten().flat_map(|(_, part)| part.fits.clone()).collect();
    whole.sort_by_key(|fit| fit.place);
    Ok(whole)
}
