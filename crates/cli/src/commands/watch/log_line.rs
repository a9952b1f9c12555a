//! A window in a line: words for a log, or a JSON object.

use super::rows::{format_losses, format_rate};
use super::state::WatchState;
use crate::document::watch::{NamedFinding, WatchDocument};

/// The window as a JSON object.
pub(super) fn make_document(state: &WatchState) -> WatchDocument {
    let findings = state.findings.iter().map(|known| &known.found.finding);
    WatchDocument {
        schema: 1,
        interface: state.interface.clone(),
        since_start_s: state.since_start_s,
        figures: state.figures.clone(),
        findings: findings
            .map(|found| NamedFinding { id: found.id, sentence: found.sentence.clone() })
            .collect(),
        stages: state.stages.clone(),
        unseen: state.list_unseen(),
    }
}

/// Rates, packets for each interrupt, drops, the stage with the longest wait, and the first finding.
pub(super) fn render(state: &WatchState) -> String {
    let figures = &state.figures;
    let rates =
        |packets, bits| format!("{} {}", format_rate(packets, "p/s"), format_rate(bits, "bit/s"));
    let mut parts = vec![
        format!("in {}", rates(figures.rx_pps, figures.rx_bps)),
        format!("out {}", rates(figures.tx_pps, figures.tx_bps)),
    ];
    if let Some(packets) = figures.packets_per_interrupt {
        parts.push(format!("{packets:.1} packets/interrupt"));
    }
    parts.push(format!("drops: {}", format_losses(figures, false)));
    let longest = state.stages.iter().filter_map(|stage| Some((stage.share?, stage)));
    if let Some((share, stage)) = longest.max_by(|one, other| one.0.total_cmp(&other.0)) {
        parts.push(format!("longest wait: {} {:.0}%", stage.stage.row().name, share * 100.0));
    }
    if let Some(known) = state.findings.first() {
        parts.push(known.found.finding.title());
    }
    format!("{:>7.1} s  {}", state.since_start_s.unwrap_or_default(), parts.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::super::state::fixture::lossy_state;
    use super::*;

    #[test]
    fn line_tells_rates_drops_and_first_finding() {
        let state = lossy_state(2);
        let line = render(&state);
        let rates = "    1.0 s  in 20.0 kp/s 240.0 Mbit/s | out 40.0 kp/s - | ";
        assert!(line.starts_with(rates), "{line}");
        assert!(line.contains(" | drops: socket 3.0 k/s | "), "{line}");
        assert!(line.ends_with(&state.findings[0].found.finding.sentence), "{line}");
        assert!(!line.contains('\n'));
    }

    #[test]
    fn json_of_a_window_is_one_line() {
        let text = serde_json::to_string(&make_document(&lossy_state(1))).unwrap();
        assert!(!text.contains('\n'));
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(document["rx_pps"], 20_000.0);
        assert!(document["tx_bps"].is_null());
        assert_eq!(document["cpus"][0]["idle_ratio"], 0.4);
        assert_eq!(document["losses"][0]["place"], "socket");
    }
}
