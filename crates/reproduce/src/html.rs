//! The reproduction as one HTML file: predicted against published on log axes, a heatmap of errors for
//! each table, the mechanism in two sentences. It works offline, without scripts.

use std::fmt::Write;

use crate::published::{FILES, ReproducedFigure, Reproduction, scale_name};

const SIDE: f64 = 420.0;
const MARGIN: f64 = 46.0;

const STYLE: &str = "body{font:14px/1.45 sans-serif;margin:2em auto;max-width:60em;padding:0 1em;color:#222;\
background:#fff}table{border-collapse:collapse;margin:.6em 0}td,th{padding:.15em .5em;text-align:right;\
border:1px solid #ddd}th{background:#f4f4f4}td:first-child,th:first-child{text-align:left}.dot{fill:#1f6fb2;\
fill-opacity:.6}.odd{fill:#c33}.axis{stroke:#888}.same{stroke:#444;stroke-dasharray:4 3}.tick{font-size:10px;\
fill:#555}.missed{color:#b00;font-weight:bold}";

/// Two sentences on each file: what was measured, and why it comes out as it does.
const MECHANISMS: [(&str, &str); 11] = [
    (
        "tcp_rr_aggregate",
        "Requests of one byte by outstanding number. Few in flight wait for the moderated \
      interrupt once or twice a round trip; many share interrupts, and the CPU cost per interrupt then decides.",
    ),
    (
        "tcp_rr_single",
        "One request at a time, with CPU. The rate is one over the round trip, and a free-running \
      throttle at either end adds part or all of its period.",
    ),
    (
        "tcp_stream",
        "Bulk transfer at line rate, with CPU. The link is the limit; interrupts saved by moderation \
      are CPU saved, most of all at the receiver.",
    ),
    (
        "binding_rr_single",
        "One request at a time with processes bound to CPUs. Away from the interrupts' CPU \
      each transaction pays for cold caches; throttles that slide past each other mix one and two periods.",
    ),
    (
        "binding_rr_aggregate_b128",
        "129 requests in flight, bound. On the interrupts' CPU one core does all; beside \
      it two share the work but pay for moving it.",
    ),
    (
        "binding_rr_32k_bidir",
        "Large requests and responses fill the link both ways. Binding changes CPU, not rate.",
    ),
    (
        "binding_tcp_stream",
        "Bulk transfer with processes bound. Segmentation by the NIC keeps the sender cheap; \
      the receiver pays per packet and per interrupt.",
    ),
    (
        "two_concurrent",
        "Two instances share both hosts. Whichever runs beside the interrupts gets the smaller share.",
    ),
    (
        "fq_codel_matrix",
        "A thousand downloads through one server. Receive work spread over all CPUs starves, and \
      queues before the NIC add the latency that fq_codel removes.",
    ),
    (
        "moderation_ping_idle",
        "Ping and idle time by interrupt frequency. Each host holds a packet for up to a \
      period, and every interrupt costs a fixed time.",
    ),
    (
        "device_polling",
        "Old hosts with interrupts and with polling. Interrupts take the CPU before the process \
      that should empty its socket, so datagrams are lost; polling bounds them.",
    ),
];

/// The page.
pub fn page(reproduction: &Reproduction) -> String {
    let mut text = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Published experiments in the \
         simulator</title><meta name=\"viewport\" content=\"width=device-width\"><style>{STYLE}</style></head>\
         <body><h1>Published experiments in the simulator</h1><p>{} published figures beside predictions from \
         profiles and simulation. Red marks are listed anomalies.</p><h2>Targets</h2><table><tr><th>what</th>\
         <th>wanted</th><th>seen</th><th></th></tr>",
        reproduction.figures.len()
    );
    for target in &reproduction.targets {
        let [name, wanted, seen] =
            [&target.name, &target.wanted, &target.seen].map(|it| escaped(it));
        let mark = if target.holds { "<td>holds</td>" } else { "<td class=\"missed\">missed</td>" };
        let _ = write!(text, "<tr><td>{name}</td><td>{wanted}</td><td>{seen}</td>{mark}</tr>");
    }
    text.push_str("</table>");
    for (file, _) in FILES {
        let figures: Vec<&ReproducedFigure> =
            reproduction.figures.iter().filter(|it| it.file == file).collect();
        if figures.is_empty() {
            continue;
        }
        let mechanism = MECHANISMS.iter().find(|(name, _)| *name == file).map_or("", |it| it.1);
        let _ = write!(text, "<h2>{}</h2><p>{}</p>", escaped(file), escaped(mechanism));
        scatter(&mut text, &figures);
        heatmap(&mut text, &figures);
    }
    text + "</body></html>\n"
}

/// Predicted over published rates (or times), both on log axes.
fn scatter(text: &mut String, figures: &[&ReproducedFigure]) {
    let shown: Vec<&&ReproducedFigure> = figures
        .iter()
        .filter(|it| scale_name(it) == "rate" || scale_name(it) == "time")
        .filter(|it| it.published > 0.0 && it.predicted > 0.0)
        .collect();
    let logs = shown.iter().flat_map(|it| [it.published.log10(), it.predicted.log10()]);
    let (low, high) = logs.fold((f64::MAX, f64::MIN), |(l, h), log| (l.min(log), h.max(log)));
    if low > high {
        return;
    }
    let (low, high) = (low - 0.05, high + 0.05);
    let scaled = |value: f64| (value.log10() - low) / (high - low) * (SIDE - 2.0 * MARGIN);
    let x = |value: f64| MARGIN + scaled(value);
    let y = |value: f64| SIDE - MARGIN - scaled(value);
    let (from, to) = (MARGIN, SIDE - MARGIN);
    let _ = write!(
        text,
        "<svg width=\"{SIDE}\" height=\"{SIDE}\" role=\"img\" aria-label=\"predicted against published\">\
         <path class=\"axis\" fill=\"none\" d=\"M{from} {from}V{to}H{to}\"/>\
         <line class=\"same\" x1=\"{from}\" y1=\"{to}\" x2=\"{to}\" y2=\"{from}\"/>"
    );
    for tick in ticks(low, high) {
        let label = if tick >= 1.0 { format!("{tick:.0}") } else { format!("{tick}") };
        let _ = write!(
            text,
            "<text class=\"tick\" x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>\
             <text class=\"tick\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            x(tick),
            to + 14.0,
            from - 4.0,
            y(tick) + 3.0
        );
    }
    for it in shown {
        let class = if it.anomaly.is_some() { "odd" } else { "dot" };
        let tip = format!("{} {} {}", it.table, it.what, it.column);
        let _ = write!(
            text,
            "<circle class=\"{class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\"><title>{}: {:.5} published, {:.5} \
             predicted</title></circle>",
            x(it.published),
            y(it.predicted),
            escaped(&tip),
            it.published,
            it.predicted
        );
    }
    let _ = write!(
        text,
        "<text class=\"tick\" x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\">published</text>\
         <text class=\"tick\" x=\"{from}\" y=\"{:.0}\">predicted</text></svg>",
        SIDE / 2.0,
        SIDE - 8.0,
        from - 8.0
    );
}

#[expect(clippy::cast_possible_truncation, reason = "decades of doubles are few")]
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = (low.floor() as i32, high.ceil() as i32);
    let steps: &[f64] = if high - low < 1.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    (first..=last)
        .flat_map(|decade| steps.iter().map(move |step| step * 10_f64.powi(decade)))
        .filter(|tick| (low..=high).contains(&tick.log10()))
        .collect()
}

/// Signed errors, one row per cell, one column per figure; colour by size.
fn heatmap(text: &mut String, figures: &[&ReproducedFigure]) {
    let mut columns: Vec<&str> = Vec::new();
    for it in figures {
        if !columns.contains(&it.column.as_str()) {
            columns.push(&it.column);
        }
    }
    text.push_str("<details><summary>errors by cell</summary><table><tr><th>cell</th>");
    for column in &columns {
        let _ = write!(text, "<th>{}</th>", escaped(column));
    }
    text.push_str("</tr>");
    let mut idx = 0;
    while idx < figures.len() {
        let row = figures[idx].row;
        let cells: Vec<_> = figures[idx..].iter().take_while(|it| it.row == row).collect();
        idx += cells.len();
        let name = format!("{} {}", cells[0].table, cells[0].what);
        let _ = write!(text, "<tr><td>{}</td>", escaped(&name));
        for column in &columns {
            match cells.iter().find(|it| it.column == *column) {
                None => text.push_str("<td></td>"),
                Some(it) => {
                    let percent = 100.0 * it.error_ratio;
                    let strength = (percent.abs() / 30.0).min(1.0) * 0.75;
                    let colour = if percent > 0.0 { "200,60,40" } else { "40,90,200" };
                    let _ = write!(
                        text,
                        "<td style=\"background:rgba({colour},{strength:.2})\">{percent:+.1}</td>"
                    );
                }
            }
        }
        text.push_str("</tr>");
    }
    text.push_str("</table></details>");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
