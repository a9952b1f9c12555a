//! Results for other programs: CSV, JSON and Markdown.

pub mod comparison_csv;
pub mod comparison_json;
pub mod csv;
pub mod junit;
pub mod ktap;
pub mod markdown;

pub use comparison_csv::comparison_csv;
pub use comparison_json::{ComparisonDocument, comparison_json};
pub(crate) use csv::format_line as csv_line;
pub use csv::render_csv;
pub use junit::render_junit;
pub use ktap::render_ktap;
pub use markdown::render_markdown;

use std::io::Write;

use latput_model::ResultsSummary;
use latput_trial::Results;

use crate::Document;

/// The JSON document, schema 2, with a line feed at its end.
pub fn render_json(results: &Results, summary: &ResultsSummary) -> String {
    let mut bytes = Vec::new();
    write_json(results, summary, &mut bytes);
    bytes.push(b'\n');
    String::from_utf8(bytes).expect("JSON is text")
}

/// Appends the JSON document to `out`, whose writes must not fail.
pub(crate) fn write_json(results: &Results, summary: &ResultsSummary, out: impl Write) {
    let document = Document::with_lazy_runs(results, summary);
    let written = serde_json::to_writer(out, &document);
    written.expect("a document has text keys and finite numbers only, so it always serialises");
}
