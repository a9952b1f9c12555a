//! From results to what people read: terminal tables, one self-contained HTML file, Markdown, CSV
//! and JSON.
//!
//! Pure: results in, text out; no I/O, no clock, no threads. Everything that comes from a results file
//! is taken to be hostile: it is escaped for the format it goes into.

pub mod comparison;
pub mod document;
pub mod export;
pub mod format;
pub mod html;
pub mod prediction;
pub mod printable;
pub mod table;

mod chart;
mod plain;
mod remarks;
mod single;
mod view;

pub use comparison::ComparisonDocument;
pub use document::Document;
pub use export::{csv, json, markdown};
pub use html::html;
pub use prediction::PredictionDocument;
pub use printable::{printable, printable_lines};
pub use table::{Screen, terminal};
