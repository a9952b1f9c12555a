//! The waits of packets by stage, as a table.

use std::fmt::Write as _;

use latput_diagnose::StageSummary;
use latput_diagnose::stages::Part;
use latput_report::lines::wrap_hanging;

/// The table: a line for each stage that packets passed. Empty where nothing was traced.
pub(crate) fn render_stages(stages: &[StageSummary], columns: usize) -> String {
    if stages.is_empty() {
        return String::new();
    }
    let head = "Where packets wait (share of the time in this host and its programs):";
    let mut text = format!("\n{}", wrap_hanging(head, "", "  ", columns));
    let _ = writeln!(text, "  {}", format_stage_head());
    for row in stages {
        let _ = writeln!(text, "  {}", format_stage(row));
    }
    text
}

/// The names of the columns of [`format_stage`], which are 46 characters wide.
pub(crate) fn format_stage_head() -> String {
    format!("{:<12}{:>9}{:>9}{:>9}{:>7}", "stage", "count", "median", "p99", "share")
}

/// A stage in a line.
pub(crate) fn format_stage(row: &StageSummary) -> String {
    let share = match row.stage.row().part {
        Part::Beside => "beside".to_owned(),
        Part::Whole => "whole".to_owned(),
        Part::Path | Part::Program => format!("{:.0}%", row.share.unwrap_or(0.0) * 100.0),
    };
    let [median, p99] = [row.p50_ns, row.p99_ns].map(format_wait);
    format!("{:<12}{:>9}{median:>9}{p99:>9}{share:>7}", row.stage.row().name, row.count)
}

/// A wait with two digits and more: `850ns`, `12.5us`, `3.2ms`.
fn format_wait(ns: f64) -> String {
    match ns {
        ns if ns < 999.5 => format!("{ns:.0}ns"),
        ns if ns < 999_950.0 => format!("{:.1}us", ns / 1e3),
        ns if ns < 999_950_000.0 => format!("{:.1}ms", ns / 1e6),
        ns => format!("{:.1}s", ns / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use latput_diagnose::Stage;

    use super::*;

    fn row(stage: Stage, p50_ns: f64, share: Option<f64>) -> StageSummary {
        let p99_ns = p50_ns * 10.0;
        StageSummary { stage, count: 12_345_678, mean_ns: p50_ns, p50_ns, p99_ns, share }
    }

    #[test]
    fn table_fits_sixty_columns() {
        let stages = [
            row(Stage::Application, 1_234_567_890.0, Some(0.934)),
            row(Stage::Qdisc, 123_456.0, Some(0.066)),
            row(Stage::Ring, 999.7, None),
            row(Stage::Turnaround, 99.0, None),
        ];
        let text = render_stages(&stages, 60);
        assert!(text.lines().all(|line| line.len() <= 60), "{text}");
        let told: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        let rows = [
            ["application", "12345678", "1.2s", "12.3s", "93%"],
            ["qdisc", "12345678", "123.5us", "1.2ms", "7%"],
            ["ring", "12345678", "1.0us", "10.0us", "beside"],
            ["turnaround", "12345678", "99ns", "990ns", "whole"],
        ];
        assert_eq!(told[told.len() - 4..], rows);
        assert_eq!(render_stages(&[], 60), "");
    }
}
