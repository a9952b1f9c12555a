//! The trials inside a page: written so that the one file is the whole run, and read back as a
//! file from an unknown source.
//!
//! They are the JSON of [`Results`] as gzip in base64, in a `script` element that no browser runs.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use latput_formats::gzip;
use latput_trial::Results;
use serde::{Deserialize, Serialize};

/// The version of the embedded form.
const SCHEMA: u32 = 1;
/// The element around the trials. Names of the results cannot contain it, because `<` is escaped in
/// them.
const OPEN: &str = "<script type=\"application/gzip\" id=\"trials\">";
const CLOSE: &str = "</script>";
/// Largest report that is read.
pub const LARGEST_REPORT: usize = 128 << 20;
/// Most bytes of its unpacked trials: some 50,000 trials.
const LARGEST_TRIALS: usize = 512 << 20;

/// Content of the element.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EmbeddedTrials<R> {
    schema: u32,
    results: R,
}

/// Only the version, to tell a report of another latput from a damaged one.
#[derive(Deserialize)]
struct EmbeddedVersion {
    schema: u32,
}

/// A report that cannot be imported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// It is no report, or one without trials.
    #[error(
        "it holds no trials: it is no report of latput, or the report of a long run without them (`latput report FILE \
         --share -o REPORT.html` includes them). Other programs' files: `latput import iperf3|netperf|flent FILE`"
    )]
    NoTrials,
    /// Larger than any report.
    #[error("it has more than {} MiB, which no report of latput has", LARGEST_REPORT >> 20)]
    TooLarge,
    /// The trials were changed or cut.
    #[error("its trials are damaged or were edited ({0}): get a new copy, or the results file")]
    Damaged(String),
    /// Written by another latput.
    #[error(
        "its trials have schema {0}, and this latput reads schema {SCHEMA}: use the latput that wrote it"
    )]
    OtherSchema(u32),
}

/// The element with the trials.
pub(super) fn render_element(results: &Results) -> String {
    let embedded = EmbeddedTrials { schema: SCHEMA, results };
    let text = serde_json::to_string(&embedded);
    let text = text.expect("results have text keys, so they always serialise");
    format!("{OPEN}{}{CLOSE}", STANDARD.encode(gzip::pack(&text)))
}

/// The trials of a report, marked as imported. The rest of the page is not read.
pub fn read_report(bytes: &[u8]) -> Result<Results, ReportError> {
    if bytes.len() > LARGEST_REPORT {
        return Err(ReportError::TooLarge);
    }
    let damaged = |problem: &dyn std::fmt::Display| ReportError::Damaged(problem.to_string());
    let page = std::str::from_utf8(bytes).map_err(|_| ReportError::NoTrials)?;
    let (_, after) = page.split_once(OPEN).ok_or(ReportError::NoTrials)?;
    let (text, _) = after.split_once(CLOSE).ok_or_else(|| damaged(&"they are cut short"))?;
    let packed = STANDARD.decode(text.trim()).map_err(|error| damaged(&error))?;
    let json = gzip::unpack(&packed, LARGEST_TRIALS).map_err(|error| damaged(&error))?;
    let version: EmbeddedVersion =
        serde_json::from_slice(&json).map_err(|error| damaged(&error))?;
    if version.schema != SCHEMA {
        return Err(ReportError::OtherSchema(version.schema));
    }
    let embedded: EmbeddedTrials<Results> =
        serde_json::from_slice(&json).map_err(|error| damaged(&error))?;
    let mut results = embedded.results;
    check_trials(&results).map_err(|problem| damaged(&problem))?;
    results.mark_imported();
    Ok(results)
}

/// Refuses trials that a results file could not hold.
fn check_trials(results: &Results) -> Result<(), String> {
    let mut places = std::collections::BTreeSet::new();
    for (number, row) in (1..).zip(&results.rows) {
        if row.setting >= results.settings.len() || row.workload >= results.workloads.len() {
            return Err(format!("trial {number} has an unknown setting or workload"));
        }
        if !places.insert((row.block, row.setting, row.workload)) {
            return Err(format!("trial {number} is there twice"));
        }
    }
    Ok(())
}
