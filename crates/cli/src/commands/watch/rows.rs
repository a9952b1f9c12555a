//! The rows of a screen's parts, as text of a given width.

use latput_diagnose::figures::{CpuKinds, CpuTime, QueueInterrupts};
use latput_diagnose::{PathFigures, StageSummary};
use latput_report::lines::{truncate_text, wrap_hanging};
use latput_report::make_printable;

use super::state::{WatchState, WatchedFinding};
use crate::commands::stages::{format_stage, format_stage_head};
use crate::progress::format_scaled;

/// Columns of the names before figures.
const NAME_COLUMNS: usize = 12;

/// The keys, in a row below all else.
pub(super) const KEY_ROW: &str = "p pause  s record  f pin  j/k select  ? help  q quit";

/// The page of `?`.
const HELP: [&str; 14] = [
    "q         quit",
    "p, space  pause: no looks are taken, what is shown stays",
    "s         record the last judged window as a snapshot file",
    "f, Enter  pin the selected finding, or let it go: a pinned",
    "          finding stays when it is found no more",
    "j, k      select the next or previous finding; also arrows",
    "?         this page",
    "",
    "Rates are of the last window. Findings, drops of queue",
    "disciplines and of the driver, and round trips are of the",
    "time between two full looks, of which each fifth is one.",
    "Waits by stage are of the last span that was traced.",
    "Drops of sockets and of TCP are of all interfaces.",
    "`latput diagnose` judges a recorded file, on any machine.",
];

/// A row of the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ScreenRow {
    pub(super) text: String,
    pub(super) is_bold: bool,
}

impl ScreenRow {
    fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_bold: false }
    }

    fn bold(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_bold: true }
    }
}

/// The interface, the interval, and what holds the figures up.
pub(super) fn head_row(state: &WatchState) -> ScreenRow {
    let note = match (state.is_paused, state.is_gone, state.since_start_s) {
        (true, ..) => ", paused",
        (_, true, _) => " went away: waiting for it",
        (_, _, None) => ", first window",
        _ => "",
    };
    let every = if state.is_gone { String::new() } else { format!(" every {}", state.every) };
    ScreenRow::bold(make_printable(&format!("latput watch {}{every}{note}", state.interface)))
}

/// The outcome of the last key, else the keys.
pub(super) fn foot_row(state: &WatchState) -> ScreenRow {
    match &state.message {
        Some(message) => ScreenRow::bold(make_printable(message)),
        None => ScreenRow::plain(KEY_ROW),
    }
}

/// The page of `?`.
pub(super) fn list_help() -> Vec<ScreenRow> {
    HELP.iter().map(|row| ScreenRow::plain(*row)).collect()
}

/// A row, or a few, for each figure of the whole path.
pub(super) fn list_summary(state: &WatchState, columns: usize) -> Vec<ScreenRow> {
    let figures = &state.figures;
    let rates =
        |packets, bits| format!("{} {}", format_rate(packets, "p/s"), format_rate(bits, "bit/s"));
    let mut named = vec![
        ("in", rates(figures.rx_pps, figures.rx_bps)),
        ("out", rates(figures.tx_pps, figures.tx_bps)),
    ];
    named.extend(format_delay(figures).map(|text| ("delay", text)));
    named.push(("drops", format_losses(figures, true)));
    if let Some(rate) = figures.tcp_retransmits_per_s {
        named.push(("TCP", format!("{} segments sent again", format_scaled(rate, "/s"))));
    }
    named.extend(figures.cpu.map(|kinds| ("CPU", format_kinds(kinds))));
    if let Some(rate) = figures.interrupts_per_s {
        let packets = figures.packets_per_interrupt;
        let each = packets.map(|packets| format!(", {packets:.1} packets each"));
        named.push(("interrupts", format_scaled(rate, "/s") + &each.unwrap_or_default()));
    }
    let indent = " ".repeat(NAME_COLUMNS);
    let mut rows = Vec::new();
    for (name, text) in named {
        let first = format!("{name:<width$}", width = NAME_COLUMNS - 1);
        let lines = wrap_hanging(&text, &first, &indent, columns);
        rows.extend(lines.lines().map(ScreenRow::plain));
    }
    let unseen = state.list_unseen();
    if !unseen.is_empty() {
        let list = make_printable(&format!("not seen: {}", unseen.join(", ")));
        rows.push(ScreenRow::plain(truncate_text(&list, columns)));
    }
    rows
}

/// The findings, a row each, and the detail of the selected one below, in at most so many rows.
pub(super) fn list_findings(state: &WatchState, columns: usize, most: usize) -> Vec<ScreenRow> {
    let mut rows = vec![ScreenRow::bold("findings")];
    let selected = state.selected_place();
    // A window on the list that has the selected one.
    let listed = state.findings.len().min((most / 2).max(1));
    let first = (selected + 1).saturating_sub(listed);
    let window = state.findings.iter().enumerate().skip(first).take(listed);
    rows.extend(window.map(|(place, known)| finding_row(known, place == selected, columns)));
    if state.findings.is_empty() {
        rows.push(ScreenRow::plain("  none yet: two full looks are needed"));
    }
    if let Some(known) = state.findings.get(selected) {
        rows.extend(list_detail(known, columns));
    }
    rows.truncate(most);
    rows
}

/// `>` marks the selected finding, `*` pinned ones, and brackets those that were found before.
fn finding_row(known: &WatchedFinding, is_selected: bool, columns: usize) -> ScreenRow {
    let finding = &known.found.finding;
    let mark = if is_selected { '>' } else { ' ' };
    let pin = if known.is_pinned { '*' } else { ' ' };
    let text = if known.is_current {
        format!("{mark}{pin}{}", finding.title())
    } else {
        format!("{mark}{pin}[{}]", finding.title())
    };
    let text = make_printable(&text);
    ScreenRow { text: truncate_text(&text, columns).into_owned(), is_bold: is_selected }
}

fn list_detail(known: &WatchedFinding, columns: usize) -> Vec<ScreenRow> {
    let finding = &known.found.finding;
    let mut text = wrap_hanging(&finding.sentence, "", "", columns);
    text += &wrap_hanging(finding.mechanism, "", "", columns);
    for (name, command) in [("remedy:", &finding.remedy), ("prove:", &finding.prove)] {
        if let Some(command) = command {
            text += &wrap_hanging(command, name, "  ", columns);
        }
    }
    text.lines().map(ScreenRow::plain).collect()
}

/// The waits by stage, in the order of the way, in at most so many rows.
pub(super) fn list_stages(stages: &[StageSummary], columns: usize, most: usize) -> Vec<ScreenRow> {
    if stages.is_empty() || most < 2 {
        return Vec::new();
    }
    let mut rows = vec![ScreenRow::bold(format_stage_head())];
    let mut listed: Vec<&StageSummary> = stages.iter().collect();
    let left_out = cut_list(&mut listed, most - 1);
    rows.extend(
        listed.into_iter().map(|stage| {
            ScreenRow::plain(truncate_text(&format_stage(stage), columns).into_owned())
        }),
    );
    rows.extend(left_out.map(|count| ScreenRow::plain(format!("     {count} more stages"))));
    rows
}

/// The busiest CPUs in at most so many rows.
pub(super) fn list_cpus(figures: &PathFigures, columns: usize, most: usize) -> Vec<ScreenRow> {
    let mut cpus: Vec<&CpuTime> = figures.cpus.iter().collect();
    if cpus.is_empty() || most < 2 {
        return Vec::new();
    }
    if cpus.len() + 1 > most {
        cpus.sort_by(|one, other| one.kinds.idle_ratio.total_cmp(&other.kinds.idle_ratio));
    }
    let mut rows = vec![ScreenRow::bold(" CPU  user   sys   irq  soft steal  idle")];
    let left_out = cut_list(&mut cpus, most - 1);
    rows.extend(cpus.iter().map(|time| {
        let kinds = time.kinds.named();
        let shares: String = kinds.map(|(_, share)| format!("{:>5.0}%", share * 100.0)).concat();
        ScreenRow::plain(truncate_text(&format!("{:>4}{shares}", time.cpu), columns))
    }));
    rows.extend(left_out.map(|count| ScreenRow::plain(format!("     {count} less busy"))));
    rows
}

/// The interrupts with the highest rates in at most so many rows.
pub(super) fn list_interrupts(
    figures: &PathFigures,
    columns: usize,
    most: usize,
) -> Vec<ScreenRow> {
    let mut queues: Vec<&QueueInterrupts> = figures.interrupts.iter().collect();
    if queues.is_empty() || most < 2 {
        return Vec::new();
    }
    if queues.len() + 1 > most {
        queues.sort_by(|one, other| other.per_s.total_cmp(&one.per_s));
    }
    let mut rows = vec![ScreenRow::bold(" irq       rate packets each  CPUs      name")];
    let left_out = cut_list(&mut queues, most - 1);
    rows.extend(queues.iter().map(|queue| {
        let rate = format_scaled(queue.per_s, "/s");
        let each = queue.packets_per_interrupt.map(|packets| format!("{packets:.1}"));
        let cpus: Vec<String> = queue.cpus.iter().take(3).map(u32::to_string).collect();
        let more = if queue.cpus.len() > 3 { ".." } else { "" };
        let text = format!(
            "{:>4} {rate:>10} {:>12}  {:<9} {}",
            queue.number,
            each.as_deref().unwrap_or("-"),
            cpus.join(",") + more,
            make_printable(&queue.name),
        );
        ScreenRow::plain(truncate_text(&text, columns))
    }));
    rows.extend(left_out.map(|count| ScreenRow::plain(format!("     {count} with lower rates"))));
    rows
}

/// Cuts a list to so many rows, with one for the number that is left out if there is room; gives that number.
fn cut_list<T>(list: &mut Vec<T>, most: usize) -> Option<usize> {
    let all = list.len();
    if all <= most {
        return None;
    }
    list.truncate(if most > 1 { most - 1 } else { most });
    (most > 1).then_some(all - list.len())
}

/// A rate, or `-` where it is not known.
pub(super) fn format_rate(rate: Option<f64>, unit: &str) -> String {
    rate.map_or_else(|| "-".to_owned(), |rate| format_scaled(rate, unit))
}

/// Losses by place; without `with_zeros` only those that grow.
pub(super) fn format_losses(figures: &PathFigures, with_zeros: bool) -> String {
    let shown = figures.losses.iter().filter(|lost| with_zeros || lost.per_s > 0.0);
    let shown: Vec<String> =
        shown.map(|lost| format!("{} {}", lost.place, format_loss_rate(lost.per_s))).collect();
    if !shown.is_empty() {
        return shown.join(", ");
    }
    let nothing = if figures.losses.is_empty() { "not seen" } else { "none" };
    nothing.to_owned()
}

fn format_delay(figures: &PathFigures) -> Option<String> {
    let delay = figures.delay?;
    let time = |us: f64| {
        if us < 1000.0 { format!("{us:.0} us") } else { format!("{:.1} ms", us / 1000.0) }
    };
    Some(format!(
        "{} round trip, most {}, of {} TCP connections",
        time(delay.rtt_us_p50),
        time(delay.rtt_us_max),
        delay.connections
    ))
}

fn format_kinds(kinds: CpuKinds) -> String {
    kinds.named().map(|(name, share)| format!("{name} {:.0}%", share * 100.0)).join(", ")
}

/// A rate of what should not be: of few, a digit more than of others.
fn format_loss_rate(per_s: f64) -> String {
    if per_s <= 0.0 {
        "0".to_owned()
    } else if per_s < 0.1 {
        "<0.1/s".to_owned()
    } else if per_s < 1000.0 {
        format!("{per_s:.1}/s")
    } else {
        format_scaled(per_s, "/s")
    }
}
