//! Turns results into terminal tables, one self-contained HTML file, Markdown, CSV and JSON.
//!
//! Pure: results in, text out; no I/O, no clock, no threads. Texts of a results file are treated as
//! hostile: each is escaped for its output format.

pub mod brief;
pub mod comparison;
pub mod document;
pub mod explained;
pub mod export;
pub mod format;
pub mod gate;
pub mod history;
pub mod html;
pub mod prediction;
pub mod printable;
pub mod share;
pub mod table;

mod chart;
mod compared;
mod effects;
mod next;
mod plain;
mod remarks;
mod single;
mod view;

pub use brief::brief;
pub use comparison::ComparisonDocument;
pub use document::Document;
pub use export::{comparison_csv, csv, json, junit, ktap, markdown};
pub use gate::{Gate, Judged};
pub use html::{
    LARGEST_REPORT, ReportError, comparison_html, html, html_with_trials, picture, read_report,
};
pub use next::shell_word;
pub use prediction::PredictionDocument;
pub use printable::{printable, printable_lines};
pub use share::{is_shared_fact, shared};
pub use table::{Screen, terminal};
