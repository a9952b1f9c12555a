//! Turns results into terminal tables, one self-contained HTML file, Markdown, CSV and JSON.
//!
//! Pure: results in, text out; no I/O, no clock, no threads. Texts of a results file are treated as
//! hostile: each is escaped for its output format.

#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

pub mod brief;
pub mod comparison;
pub mod document;
pub mod explained;
pub mod export;
pub mod format;
pub mod gate;
pub mod history;
pub mod html;
pub mod lines;
pub mod plain;
pub mod prediction;
pub mod printable;
pub mod screen;
mod share;
pub mod table;

mod changes;
mod chart;
mod compared;
mod effects;
mod failed;
mod next;
mod remarks;
mod single;
mod view;

pub use brief::render_brief;
pub use document::Document;
pub use export::{
    ComparisonDocument, comparison_csv, comparison_json, render_csv, render_json, render_junit,
    render_ktap, render_markdown,
};
pub use gate::{Gate, GateAnswer, JudgedFigure};
pub use html::{
    LARGEST_REPORT, ReportError, comparison_html, html_with_trials, read_report, render_html,
    render_picture,
};
pub use next::{NO_KEEP, interface_words, shell_word};
pub use prediction::PredictionDocument;
pub use printable::{make_printable, printable_lines};
pub use screen::Screen;
pub use share::{is_shared_fact, redact_results};
pub use table::render_terminal;
