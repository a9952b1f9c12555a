//! Writes a report of made-up results, to look at and to test with: `demo_report FOLDER`.

mod results;

use std::path::PathBuf;

use latput_model::Summary;
use latput_report::{Screen, csv, html, json, markdown, terminal};

fn main() -> std::io::Result<()> {
    let folder = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| ".".to_owned()));
    let results = results::demo();
    let summary = Summary::from_results(&results);
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("report.html"), html(&results, &summary, None))?;
    std::fs::write(folder.join("report.md"), markdown(&results, &summary))?;
    std::fs::write(folder.join("report.csv"), csv(&results))?;
    std::fs::write(folder.join("report.json"), json(&results, &summary))?;
    for columns in [80, 100, 160] {
        let screen = Screen { columns, is_styled: false };
        let text = terminal(&results, &summary, screen);
        std::fs::write(folder.join(format!("report-{columns}.txt")), text)?;
    }
    Ok(())
}
