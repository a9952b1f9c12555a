//! The words of `latput explain`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use latput_model::explain::{CellExplanation, TimePart};
use latput_model::fit::CostModel;
use latput_trial::Results;
use latput_trial::metric::Scale;

/// The cost model of each kind of workload.
type Models = BTreeMap<&'static str, CostModel>;

/// Writes the text of `latput explain`.
pub(super) fn in_words(
    results: &Results,
    models: &Models,
    explained: &[CellExplanation],
) -> String {
    let mut text = String::new();
    for it in explained {
        let (load, set) = (&results.workloads[it.workload], &results.settings[it.setting]);
        let _ = writeln!(text, "{} under {}", load.name, set.label);
        if let Some(ns) = it.round_trip_ns {
            let _ = writeln!(text, "  Mean round trip {}:", format_time(ns));
            let parts = it.time.iter();
            push_parts(
                &mut text,
                parts.map(|(stage, amount)| (stage.describe().to_owned(), format_part(amount, ns))),
            );
        }
        write_cpu(&mut text, it, models.get(load.traffic.kind()));
        text.push('\n');
    }
    for (kind, model) in models {
        text.push_str(&describe_knob_effects(kind, model));
    }
    text.push_str("The cost of a wake-up is part of the packet or interrupt that causes it.\n");
    text
}

fn write_cpu(text: &mut String, it: &CellExplanation, model: Option<&CostModel>) {
    let busy = it.busy_ns_per_s;
    let busiest = it.busiest_cpu_ratio.map_or_else(String::new, |ratio| {
        let limit = if ratio > 0.95 { ", the limit" } else { "" };
        format!(" (busiest CPU {:.0}%{limit})", 100.0 * ratio)
    });
    let _ = write!(text, "  The system under test uses {:.1}% of one CPU{busiest}", busy / 1e7);
    if it.is_shared {
        text.push_str(". Parts unknown: other programs ran there (check `other-work`)\n");
        return;
    }
    text.push_str(":\n");
    let mut parts = Vec::new();
    for (term, amount) in &it.cpu {
        let said = match amount {
            TimePart::Known { ns, ns_low, ns_high, .. } => {
                let [share, low, high] = [ns, ns_low, ns_high].map(|ns| 100.0 * ns / busy);
                format!("{share:.0}% ({low:.0} to {high:.0})")
            }
            TimePart::None(why) => format!("none: {why}"),
            TimePart::Unknown(why) => format!("unknown: {why}"),
        };
        parts.push((term.plural().to_owned(), said));
    }
    let percent = 100.0 * it.unexplained_ratio;
    if percent > 1.0 {
        let plurals: Vec<&str> = it.not_told_apart.iter().map(|term| term.plural()).collect();
        let name = match plurals.as_slice() {
            [] => "unknown".to_owned(),
            plurals => format!("{} together", plurals.join(", ")),
        };
        parts.push((name, format!("{percent:.0}%")));
    }
    push_parts(text, parts);
    if percent < -1.0 {
        let _ = writeln!(
            text,
            "    (the fitted costs add up to {:.0}% more than was measured)",
            -percent
        );
    }
    let vary = model.map(|model| factors_to_vary(model, it)).unwrap_or_default();
    if !vary.is_empty() {
        let _ = writeln!(text, "    To separate them, vary {}.", vary.join(" and "));
    }
}

/// A line for each part, with what is said of it in one column.
fn push_parts(text: &mut String, parts: impl IntoIterator<Item = (String, String)>) {
    let parts: Vec<(String, String)> = parts.into_iter().collect();
    let width = parts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, said) in parts {
        let _ = writeln!(text, "    {name:<width$}  {said}");
    }
}

/// The factors that would tell the terms of a cell apart, each once.
fn factors_to_vary<'a>(model: &'a CostModel, it: &CellExplanation) -> Vec<&'a str> {
    let mut factors: Vec<&str> = Vec::new();
    for fitted in model.terms.iter().filter(|fitted| it.not_told_apart.contains(&fitted.term)) {
        let vary = fitted.finding.as_ref().err().map_or("", |refusal| refusal.vary.as_str());
        if !vary.is_empty() && !factors.contains(&vary) {
            factors.push(vary);
        }
    }
    factors
}

fn format_time(ns: f64) -> String {
    Scale::of_time(ns).with_unit(ns)
}

/// The text of one part of a round trip.
fn format_part(amount: &TimePart, whole_ns: f64) -> String {
    match amount {
        TimePart::None(why) => format!("none: {why}"),
        TimePart::Unknown(why) => format!("unknown: {why}"),
        TimePart::Known { ns, ns_low, ns_high, confidence } => {
            let interval = if *confidence > 0.0 {
                format!(
                    ", {} to {} at {:.0}%",
                    format_time(*ns_low),
                    format_time(*ns_high),
                    100.0 * confidence
                )
            } else {
                ", no interval: one trial".to_owned()
            };
            format!("{} ({:.0}%){interval}", format_time(*ns), 100.0 * ns / whole_ns)
        }
    }
}

/// The effect of knob changes, estimated from the costs.
fn describe_knob_effects(kind: &str, model: &CostModel) -> String {
    let mut text = format!("What a change would do (typical {kind} run):\n");
    for fitted in &model.terms {
        let Some(knob) = fitted.term.moved_by() else { continue };
        let plural = fitted.term.plural();
        match &fitted.finding {
            Ok(cost) => {
                // Half as many save at most half.
                let half = |ns: f64| {
                    (50.0 * cost.share * ns / cost.ns.max(f64::MIN_POSITIVE)).clamp(0.0, 50.0)
                };
                let (low, high) = (half(cost.ns_low), half(cost.ns_high));
                let _ = writeln!(
                    text,
                    "  half as many {plural} ({knob}): {:.0}% less CPU time, {low:.0} to {high:.0}",
                    half(cost.ns)
                );
            }
            Err(refusal) if refusal.vary.is_empty() => {}
            Err(refusal) => {
                let _ = writeln!(
                    text,
                    "  half as many {plural} ({knob}): unknown. Vary {}",
                    refusal.vary
                );
            }
        }
    }
    text
}
