//! Writes a report of made-up results, to look at and to test with: `demo_report FOLDER`.

mod results;

use std::path::PathBuf;

use latput_model::ResultsSummary;
use latput_report::{
    Screen, render_csv, render_html, render_json, render_markdown, render_terminal,
};

fn main() -> std::io::Result<()> {
    let folder = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| ".".to_owned()));
    let results = results::build_demo_results();
    let summary = ResultsSummary::from_results(&results);
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("report.html"), render_html(&results, &summary, None))?;
    std::fs::write(folder.join("report.md"), render_markdown(&results, &summary))?;
    std::fs::write(folder.join("report.csv"), render_csv(&results))?;
    std::fs::write(folder.join("report.json"), render_json(&results, &summary))?;
    for columns in [80, 100, 160] {
        let screen = Screen { columns, is_styled: false };
        let text = render_terminal(&results, &summary, screen);
        std::fs::write(folder.join(format!("report-{columns}.txt")), text)?;
    }
    Ok(())
}
