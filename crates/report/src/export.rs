//! Results for other programs: CSV, JSON, Markdown and flent's data files.

pub mod csv;
pub mod flent;
pub mod markdown;

pub use csv::csv;
pub use flent::flent;
pub(crate) use markdown::escaped;
pub use markdown::markdown;

use latput_model::Summary;
use latput_trial::Results;

use crate::Document;

/// The JSON document, schema 1, with a line feed at its end.
pub fn json(results: &Results, summary: &Summary) -> String {
    let document = Document::new(results, summary);
    let text = serde_json::to_string(&document);
    text.expect("a document has text keys and finite numbers only, so it always serialises") + "\n"
}
