//! Every percentage, sign and arrow of the outputs is made of the figures printed beside it: generated results are
//! rendered, and each change is computed again from the text alone.

#[path = "../../model/src/synthetic.rs"]
#[expect(dead_code, reason = "other tests use the rest of it")]
mod synthetic;

use latput_model::Summary;
use latput_model::compare::{CompareMethod, compare};
use latput_report::{Screen, comparison, html, junit, ktap, markdown, terminal};
use latput_trial::metric::PreferredDirection;
use latput_trial::{Metric, Results};
use latput_units::Rng;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use synthetic::{Figures, noise, results, rr, stream};

/// Wide enough for every sentence to stay on its line.
const SCREEN: Screen = Screen { columns: 1_000_000, is_terminal: false };
const GOALS: &[&str] = &[
    "minimize latency_ns_p99",
    "maximize rate where latency_ns_p99 <= 1.1 best",
    "minimize latency_ns_p99 where throughput_bps >= 0.95 best",
    "maximize throughput_bps where probe_ns_p99 <= 40us",
    "maximize rate where rate >= 1.2 today",
];

#[derive(Clone, Debug)]
struct Case {
    effects: Vec<f64>,
    blocks: u32,
    sd: f64,
    seed: u64,
    goal: usize,
    lost: bool,
}

fn cases() -> impl Strategy<Value = Case> {
    let effects = prop::collection::vec(-1.5..1.5_f64, 1..4);
    (effects, 1..13_u32, 0.0..0.7_f64, any::<u64>(), 0..GOALS.len(), any::<bool>()).prop_map(
        |(effects, blocks, sd, seed, goal, lost)| Case { effects, blocks, sd, seed, goal, lost },
    )
}

/// A run in which the settings differ by `effects`, on a logarithmic scale, with noise.
fn made(case: &Case) -> Results {
    let labels: Vec<String> = (0..=case.effects.len()).map(|idx| format!("t={idx}us")).collect();
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    let mut rng = Rng::from_seed(case.seed);
    let workloads = [rr("rr"), rr("other"), stream("stream")];
    let mut made = results(&labels, &workloads, case.blocks, |setting, _| {
        let effect = if setting == 0 { 1.0 } else { case.effects[setting - 1].exp() };
        Figures {
            rate: 1e5 * effect * noise(&mut rng, case.sd),
            p99_us: Some(50.0 / effect * noise(&mut rng, case.sd)),
            service_demand_us: 2.0 * effect.sqrt() * noise(&mut rng, case.sd),
        }
    });
    if case.lost {
        made.rows.retain(|row| (row.block as usize + row.setting * 3) % 5 != 4);
    }
    made.goal = Some(GOALS[case.goal].to_owned());
    made
}

#[test]
fn a_change_is_made_of_the_figures_beside_it() {
    // More are tried with PROPTEST_CASES.
    let cases = std::env::var_os("PROPTEST_CASES").map_or(16, |_| Config::default().cases);
    let mut runner =
        TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let counts = std::cell::Cell::new(Counts::default());
    let checked = runner.run(&self::cases(), |case| {
        let results = made(&case);
        let summary = Summary::of(&results);
        let mut found = counts.get();
        for text in [
            terminal(&results, &summary, SCREEN),
            markdown(&results, &summary).replace('\\', ""),
            plain_text(&html(&results, &summary, None)),
        ] {
            found.sentences += sentences(&text)?;
        }
        let method = CompareMethod { confidence: 0.9, smallest_effect: 0.01 };
        let again = made(&Case { seed: case.seed ^ 1, ..case.clone() });
        let other = Results { seed: 1, ..again };
        let all: Vec<(usize, usize)> = (0..results.settings.len()).map(|it| (it, it)).collect();
        for compared in [
            compare(&results, &results, &[(0, 1)], method),
            compare(&results, &other, &all, method),
        ] {
            found.rows += rows(&comparison::terminal(&compared, &results, SCREEN))?;
            found.rows += rows(&comparison::markdown(&compared, &results).replace('\\', ""))?;
            for text in [junit(&compared, &results), ktap(&compared, &results)] {
                found.verdicts += verdicts(&text)?;
            }
        }
        counts.set(found);
        Ok(())
    });
    if let Err(error) = checked {
        panic!("{error}");
    }
    let Counts { sentences, rows, verdicts } = counts.get();
    println!("{sentences} sentences, {rows} rows and {verdicts} verdicts were computed again");
    let least = cases as usize;
    assert!(
        sentences > least && rows > 30 * least && verdicts > 30 * least,
        "{sentences} {rows} {verdicts}"
    );
}

#[derive(Clone, Copy, Default)]
struct Counts {
    sentences: usize,
    rows: usize,
    verdicts: usize,
}

type Checked = Result<usize, TestCaseError>;

/// Checks `A against B`, with the change before or behind it, and `12 % short of COND (A of B in`.
fn sentences(text: &str) -> Checked {
    let mut checked = 0;
    for (at, _) in text.match_indices(" against ") {
        let Some((other, before)) = quantity_before(&text[..at]) else { continue };
        let Some((base, after)) = quantity_after(&text[at + " against ".len()..]) else { continue };
        let ends = ["; ", " (", ". "].into_iter().filter_map(|end| after.find(end));
        let own = &after[..ends.min().unwrap_or(after.len())];
        let own = own.rsplit_once(", ").and_then(|(_, change)| Change::read(change));
        // With several figures the change before them is the mean of all.
        let is_alone =
            after.split_once("(geometric means of").is_some_and(|(own, _)| !own.contains(';'));
        let shared = || {
            let (sentence, _) =
                before.rsplit_once(" (interval ").or_else(|| before.rsplit_once(" (one block"))?;
            Change::read(sentence.rsplit_once(" is ")?.1)
        };
        let Some(change) = own.or_else(|| shared().filter(|_| is_alone)) else { continue };
        checked += 1;
        change.check(&base, &other, &text[at.saturating_sub(200)..(at + 100).min(text.len())])?;
    }
    for (words, sign) in [(" % short of `", -1.0), (" % over `", 1.0)] {
        for (at, _) in text.match_indices(words) {
            let number = text[..at].rsplit(' ').next().unwrap_or_default();
            let Some(missed) = Range::read(number) else { continue };
            let Some((_, figures)) = text[at + words.len()..].split_once("` (") else { continue };
            let Some((value, limit)) = figures.split_once(" of ") else { continue };
            let Some((value, _)) = quantity_after(value) else { continue };
            let Some((limit, _)) = quantity_after(limit) else { continue };
            let ends = [missed.low, missed.high].map(|percent| 1.0 + sign * percent / 100.0);
            let change = Change { low: ends[0].min(ends[1]), high: ends[0].max(ends[1]) };
            checked += 1;
            change.check(&limit, &value, &text[at - 20..(at + 120).min(text.len())])?;
        }
    }
    Ok(checked)
}

/// Checks the rows of tables of comparisons: first, second, change, interval, verdict.
fn rows(text: &str) -> Checked {
    let mut checked = 0;
    for line in text.lines() {
        let cells: Vec<&str> = if line.starts_with('|') {
            line.trim_matches(['|', ' ']).split(" | ").map(str::trim).collect()
        } else {
            line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
        };
        let Some(at) = cells.iter().position(|cell| Change::read(cell).is_some()) else { continue };
        let [.., name, first, second] = &cells[..at] else { continue };
        let (Some((base, _)), Some((other, _))) = (quantity_after(first), quantity_after(second))
        else {
            continue;
        };
        let verdict = cells.last().copied().unwrap_or_default();
        check_row(name, (&base, &other), cells[at], verdict, line)?;
        checked += 1;
    }
    Ok(checked)
}

/// Checks sentences of the form `latency_ns_p99: worse: 91.4 us, then 123 us: +34.6 %`.
fn verdicts(text: &str) -> Checked {
    let mut checked = 0;
    for line in text.lines() {
        let Some((before, after)) = line.split_once(", then ") else { continue };
        let (Some((base, head)), Some((other, tail))) =
            (quantity_before(before), quantity_after(after))
        else {
            continue;
        };
        let change = tail.trim_start_matches(':').trim();
        let change = change.split([' ', '<', '"']).next().unwrap_or_default();
        let verdict = head.trim_end_matches([':', ' ']);
        let verdict = verdict.rsplit([':', '"', '>']).next().unwrap_or_default().trim();
        let change =
            if change.starts_with('x') { change.to_owned() } else { format!("{change} %") };
        if change != "n/a %" {
            check_row("", (&base, &other), &change, verdict, line)?;
            checked += 1;
        }
    }
    Ok(checked)
}

fn check_row(
    name: &str,
    (base, other): (&Quantity, &Quantity),
    change: &str,
    verdict: &str,
    line: &str,
) -> Result<(), TestCaseError> {
    let change =
        Change::read(change).ok_or_else(|| TestCaseError::fail(format!("no change in {line}")))?;
    change.check(base, other, line)?;
    let metric = Metric::ALL.iter().find(|metric| metric.column() == name);
    if let Some(metric) = metric
        && ["better", "worse"].contains(&verdict)
    {
        let is_up = change.low + change.high > 2.0;
        let is_better = (metric.preferred_direction() == PreferredDirection::Higher) == is_up;
        prop_assert_eq!(verdict == "better", is_better, "{}", line);
        prop_assert!(change.low > 1.0 || change.high < 1.0, "no change is {verdict}: {line}");
    }
    Ok(())
}

/// A number as printed, with what rounding hides.
#[derive(Clone, Copy, Debug)]
struct Range {
    low: f64,
    high: f64,
}

impl Range {
    fn read(text: &str) -> Option<Self> {
        let value: f64 = text.parse().ok()?;
        let decimals = text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        let half = 0.5 * 10_f64.powi(-i32::try_from(decimals).ok()?) * (1.0 + 1e-9);
        // Trailing zeros of percentages are not printed, but their decimals are at least one.
        Some(Self { low: value - half, high: value + half })
    }
}

/// A figure in its base unit.
type Quantity = Range;

const UNITS: &[(&str, f64)] = &[
    ("ns", 1.0),
    ("us", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("bit/s", 1.0),
    ("kbit/s", 1e3),
    ("Mbit/s", 1e6),
    ("Gbit/s", 1e9),
    ("/s", 1.0),
    ("k/s", 1e3),
    ("M/s", 1e6),
    ("%", 1.0),
    ("us/tr", 1.0),
    ("us/KB", 1.0),
];

fn quantity(number: &str, unit: &str) -> Option<Quantity> {
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let Range { low, high } = Range::read(number)?;
    Some(Range { low: low * factor, high: high * factor })
}

/// The quantity that begins the text, and the rest.
fn quantity_after(text: &str) -> Option<(Quantity, &str)> {
    let (number, rest) = text.split_once(' ')?;
    let end = rest.find([' ', ',', ';', ')', ':']).unwrap_or(rest.len());
    Some((quantity(number, &rest[..end])?, &rest[end..]))
}

/// The quantity that ends the text, and what is before it.
fn quantity_before(text: &str) -> Option<(Quantity, &str)> {
    let (rest, unit) = text.rsplit_once(' ')?;
    let (rest, number) = rest.rsplit_once(' ')?;
    Some((quantity(number, unit)?, rest))
}

/// A change as printed: the ratios that round to it.
#[derive(Clone, Copy, Debug)]
struct Change {
    low: f64,
    high: f64,
}

impl Change {
    /// `12.5 % lower`, `3.10 times as high`, `-12.5 %`, `0.0 %`, `x3.10`.
    fn read(text: &str) -> Option<Self> {
        let text = text.trim();
        if text == "over 1000 times as high" {
            return Some(Self { low: 1000.0, high: f64::INFINITY });
        }
        let factor = text.strip_suffix(" times as high").or_else(|| text.strip_prefix('x'));
        if let Some(factor) = factor {
            return Range::read(factor).map(|Range { low, high }| Self { low, high });
        }
        let (text, sign) = match (text.strip_suffix(" % lower"), text.strip_suffix(" % higher")) {
            (Some(text), _) => (text, -1.0),
            (_, Some(text)) => (text, 1.0),
            _ => (
                text.strip_suffix(" %").filter(|it| it.starts_with(['+', '-']) || *it == "0.0")?,
                1.0,
            ),
        };
        let value = sign * text.parse::<f64>().ok()?;
        // Percentages have one decimal at least; a trailing zero is not printed in sentences.
        let half = 0.05 * (1.0 + 1e-9);
        Some(Self { low: 1.0 + (value - half) / 100.0, high: 1.0 + (value + half) / 100.0 })
    }

    fn check(&self, base: &Quantity, other: &Quantity, context: &str) -> Result<(), TestCaseError> {
        if base.low <= 0.0 {
            return Ok(());
        }
        let (low, high) = (other.low / base.high, other.high / base.low);
        prop_assert!(
            self.low <= high * (1.0 + 1e-9) && low <= self.high * (1.0 + 1e-9),
            "printed as {self:?}, the figures give {low} to {high}: {context}"
        );
        Ok(())
    }
}

/// A page without its scripts and tags.
fn plain_text(page: &str) -> String {
    let mut text = String::new();
    let mut rest = page;
    while let Some((before, tag)) = rest.split_once('<') {
        text += before;
        text.push(' ');
        let end = if tag.starts_with("script") { "</script>" } else { ">" };
        rest = tag.split_once(end).map_or("", |(_, after)| after);
    }
    let text = text + rest;
    let text = text.replace("&#x27;", "'").replace("&lt;", "<").replace("&gt;", ">");
    text.replace("&amp;", "&")
        .replace("&quot;", "\"")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}
