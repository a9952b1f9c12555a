//! The reproduction as one HTML file: predicted against published on log axes, a heatmap of errors for
//! each table, the mechanism in two sentences. It works offline, without scripts.

use std::fmt::Write;

use crate::delay_mtu::{self, Claim};
use crate::published::{FILES, ReproducedFigure, Reproduction, TableErrors, scale_name};

const SIDE: f64 = 420.0;
const MARGIN: f64 = 46.0;

const STYLE: &str = ":root{color-scheme:light dark;--ink:#1d2126;--dim:#5c6570;--page:#fff;--card:#f6f7f9;\
--line:#d5dae0;--dot:#1f6fb2;--odd:#c8372d;--good:#1a7f43;--bad:#c0271c}\
@media(prefers-color-scheme:dark){:root{--ink:#e4e7eb;--dim:#9aa4af;--page:#14171b;--card:#1d2127;--line:#363d46;\
--dot:#6cb4ee;--odd:#ff7b6b;--good:#58c98a;--bad:#ff8477}}\
body{font:15px/1.5 system-ui,sans-serif;margin:0 auto;max-width:76rem;padding:1rem 1rem 4rem;color:var(--ink);\
background:var(--page)}h1{font-size:1.6rem;line-height:1.2}h2{font-size:1.15rem;margin:2.6rem 0 .3rem;\
padding-top:.8rem;border-top:1px solid var(--line);overflow-wrap:anywhere}p{max-width:46rem;margin:.3rem 0 .8rem}\
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}\
td,th{padding:.2rem .6rem;text-align:right;border-bottom:1px solid var(--line);vertical-align:top}\
th{color:var(--dim);font-weight:600}.words td,.words th,td:first-child,th:first-child{text-align:left}\
.side{display:flex;flex-wrap:wrap;gap:1rem 2.5rem;align-items:flex-start;margin-bottom:1.4rem}.side>*{flex:1 1 20rem;min-width:0}\
svg{max-width:26rem;width:100%;height:auto;background:var(--card);border-radius:6px}.dot{fill:var(--dot);\
fill-opacity:.55}.odd{fill:var(--odd);fill-opacity:.8}.axis{stroke:var(--line);fill:none}.same{stroke:var(--dim);\
stroke-dasharray:4 3}.tick{font-size:11px;fill:var(--dim)}.held{color:var(--good)}.missed{color:var(--bad);\
font-weight:600}.strip{display:flex;gap:.7rem;margin:.3rem 0;font-size:12px}.strip b{flex:0 0 min(13rem,40%);\
font-weight:400;color:var(--dim);overflow-wrap:anywhere}.strip span{display:flex;flex-wrap:wrap;gap:2px}\
.strip i{width:14px;height:14px;border-radius:2px;box-shadow:inset 0 0 0 1px var(--line)}\
.strip i.odd{box-shadow:inset 0 0 0 2px var(--odd)}summary{cursor:pointer;color:var(--dim);margin:.6rem 0}\
.key{font-size:12px;color:var(--dim)}";

/// Two sentences on each file: what was measured, and why it comes out as it does.
const MECHANISMS: [(&str, &str); 12] = [
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
    (
        delay_mtu::FILE,
        "Bulk loads and file reads by receive delay and frame size, published as claims and not as cells. A delay costs a \
      stream nothing until its window is empty before the next interrupt, and costs a reader who waits for each answer at once.",
    ),
];

/// The page.
pub fn page(reproduction: &Reproduction) -> String {
    let mut text = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Published experiments in the \
         simulator</title><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><style>{STYLE}</style>\
         </head><body><h1>Published experiments in the simulator</h1><p>{} published figures and {} claims beside \
         predictions from profiles and simulation.</p><div class=\"wide\"><table class=\"words\"><tr><th>what</th>\
         <th>its rows are</th><th>wanted</th><th>seen</th><th></th></tr>",
        reproduction.figures.len(),
        reproduction.claims.len()
    );
    for target in &reproduction.targets {
        let [name, wanted, seen] =
            [&target.name, &target.wanted, &target.seen].map(|it| escaped(it));
        let (label, mark) = (target.label.name(), verdict(target.holds));
        let _ = write!(
            text,
            "<tr><td>{name}</td><td>{label}</td><td>{wanted}</td><td>{seen}</td>{mark}</tr>"
        );
        if let Some(alone) = &target.predicted_alone {
            let [wanted, seen] = [&alone.wanted, &alone.seen].map(|it| escaped(it));
            let mark = verdict(alone.holds);
            let _ = write!(
                text,
                "<tr><td></td><td>predicted rows alone</td><td>{wanted}</td><td>{seen}</td>{mark}</tr>"
            );
        }
    }
    text.push_str("</table></div>");
    for (file, _) in FILES {
        let figures: Vec<&ReproducedFigure> =
            reproduction.figures.iter().filter(|it| it.file == file).collect();
        if figures.is_empty() {
            continue;
        }
        heading(&mut text, file);
        text.push_str("<div class=\"side\">");
        scatter(&mut text, &figures);
        errors(&mut text, reproduction.tables.iter().filter(|it| it.file == file));
        text.push_str("</div>");
        heatmap(&mut text, &figures);
        numbers(&mut text, &figures);
    }
    claims(&mut text, &reproduction.claims);
    text + "</body></html>\n"
}

fn heading(text: &mut String, file: &str) {
    let mechanism = MECHANISMS.iter().find(|(name, _)| *name == file).map_or("", |it| it.1);
    let _ = write!(text, "<h2>{}</h2><p>{}</p>", escaped(file), escaped(mechanism));
}

const fn verdict(holds: bool) -> &'static str {
    if holds { "<td class=\"held\">holds</td>" } else { "<td class=\"missed\">missed</td>" }
}

/// Claims without cells, each with what was seen.
fn claims(text: &mut String, claims: &[Claim]) {
    if claims.is_empty() {
        return;
    }
    heading(text, delay_mtu::FILE);
    text.push_str(
        "<div class=\"wide\"><table class=\"words\"><tr><th></th><th></th><th>claim</th><th>wanted</th><th>seen</th></tr>",
    );
    for claim in claims {
        let [id, words, wanted, seen] =
            [&claim.id, &claim.claim, &claim.wanted, &claim.seen].map(|it| escaped(it));
        let mark = verdict(claim.holds);
        let _ = write!(
            text,
            "<tr><td>{id}</td>{mark}<td>{words}</td><td>{wanted}</td><td>{seen}</td></tr>"
        );
    }
    text.push_str("</table></div>");
}

/// Median and 90th percentile of each table of a file.
fn errors<'a>(text: &mut String, tables: impl Iterator<Item = &'a TableErrors>) {
    text.push_str(
        "<div class=\"wide\"><table><tr><th>table</th><th>of</th><th>figures</th><th>median</th><th>90th</th></tr>",
    );
    for it in tables {
        let table = if it.table.is_empty() { "all" } else { &it.table };
        let unit = if it.scale == "points" { "points" } else { "%" };
        let _ = write!(
            text,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{:.1} {unit}</td><td>{:.1} {unit}</td></tr>",
            escaped(table),
            it.scale,
            it.figures,
            100.0 * it.median_error_ratio,
            100.0 * it.p90_error_ratio
        );
    }
    text.push_str("</table></div>");
}

/// The least that an axis shows, in decades.
const NARROWEST: f64 = 0.5;

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
    // Figures that are all alike are a point in the middle of some range, not a line across it.
    let margin = (f64::midpoint(NARROWEST, low - high)).max(0.05);
    let (low, high) = (low - margin, high + margin);
    let scaled = |value: f64| (value.log10() - low) / (high - low) * (SIDE - 2.0 * MARGIN);
    let x = |value: f64| MARGIN + scaled(value);
    let y = |value: f64| SIDE - MARGIN - scaled(value);
    let (from, to) = (MARGIN, SIDE - MARGIN);
    let _ = write!(
        text,
        "<svg viewBox=\"0 0 {SIDE} {SIDE}\" role=\"img\" aria-label=\"predicted against published\">\
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
    let steps: &[f64] = match high - low {
        span if span < 0.7 => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0],
        span if span < 2.8 => &[1.0, 2.0, 5.0],
        _ => &[1.0],
    };
    (first..=last)
        .flat_map(|decade| steps.iter().map(move |step| step * 10_f64.powi(decade)))
        .filter(|tick| (low..=high).contains(&tick.log10()))
        .collect()
}

/// Where the colour of an error is full.
const FULL_PERCENT: f64 = 30.0;

/// Red where the prediction is too large, blue where it is too small.
fn colour(error_ratio: f64) -> String {
    let percent = 100.0 * error_ratio;
    let strength = (percent.abs() / FULL_PERCENT).min(1.0) * 0.85;
    let colour = if percent > 0.0 { "222,72,48" } else { "46,110,222" };
    format!("rgba({colour},{strength:.2})")
}

/// Signed errors of each column of each table, one square for each cell.
fn heatmap(text: &mut String, figures: &[&ReproducedFigure]) {
    let mut strips: Vec<(&str, &str)> = Vec::new();
    for it in figures {
        let strip = (it.table.as_str(), it.column.as_str());
        if !strips.contains(&strip) {
            strips.push(strip);
        }
    }
    // Tables of one row each share a strip for each column.
    let alone = strips.len() == figures.len();
    let mut names: Vec<(&str, &str)> = Vec::new();
    for (table, column) in strips {
        let name = if alone { ("", column) } else { (table, column) };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    for (table, column) in names {
        let _ = write!(
            text,
            "<div class=\"strip\"><b>{} {}</b><span>",
            escaped(table),
            escaped(column)
        );
        let of_strip =
            |it: &&&ReproducedFigure| it.column == column && (alone || it.table == table);
        for it in figures.iter().filter(of_strip) {
            let class = if it.anomaly.is_some() { " class=\"odd\"" } else { "" };
            let tip = format!("{} {}: {:+.1} %", it.table, it.what, 100.0 * it.error_ratio);
            let _ = write!(
                text,
                "<i{class} style=\"background:{}\" title=\"{}\"></i>",
                colour(it.error_ratio),
                escaped(&tip)
            );
        }
        text.push_str("</span></div>");
    }
    text.push_str(
        "<p class=\"key\">A square is a cell: blue predicted too small, red too large, full colour from 30 %. A red frame is a \
         listed anomaly.</p>",
    );
}

/// The same in numbers, one row per cell, one column per figure.
fn numbers(text: &mut String, figures: &[&ReproducedFigure]) {
    let mut columns: Vec<&str> = Vec::new();
    for it in figures {
        if !columns.contains(&it.column.as_str()) {
            columns.push(&it.column);
        }
    }
    text.push_str(
        "<details><summary>errors in numbers</summary><div class=\"wide\"><table><tr><th>cell</th>",
    );
    for column in &columns {
        let _ = write!(text, "<th>{}</th>", escaped(column));
    }
    text.push_str("</tr>");
    for cells in figures.chunk_by(|a, b| a.row == b.row) {
        let name = format!("{} {}", cells[0].table, cells[0].what);
        let _ = write!(text, "<tr><td>{}</td>", escaped(&name));
        for column in &columns {
            match cells.iter().find(|it| it.column == *column) {
                None => text.push_str("<td></td>"),
                Some(it) => {
                    let percent = 100.0 * it.error_ratio;
                    let background = colour(it.error_ratio);
                    let _ =
                        write!(text, "<td style=\"background:{background}\">{percent:+.1}</td>");
                }
            }
        }
        text.push_str("</tr>");
    }
    text.push_str("</table></div></details>");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_has_its_mechanism_in_two_sentences() {
        for name in FILES.iter().map(|(name, _)| *name).chain([delay_mtu::FILE]) {
            let (_, words) = MECHANISMS.iter().find(|(file, _)| *file == name).expect(name);
            let sentences = words.matches(". ").count() + 1;
            assert!(words.ends_with('.') && sentences == 2, "{name}: {words}");
        }
    }
}
