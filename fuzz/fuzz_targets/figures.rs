//! Any bytes as an output or a file of another program: whatever a reader makes of them keeps the rules of figures.
#![no_main]

#[path = "../../crates/formats/tests/figure_rules/mod.rs"]
mod figure_rules;

use figure_rules::{FigureReader, broken_rule, read_all_figures};
use latput_formats::ImportFormat;
use latput_formats::prometheus::{ScrapeGrowth, Scrape};
use latput_trial::figures::Parser;
use latput_trial::live::EndpointFigure;

/// Bytes from here choose a reader; no text begins with one, and is read by all.
const FIRST_CHOICE: u8 = 0x80;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let imports = [ImportFormat::Iperf3, ImportFormat::Netperf, ImportFormat::Flent];
    let readers: Vec<FigureReader> = (Parser::ALL.iter().copied().map(FigureReader::Program))
        .chain(imports.map(FigureReader::Import))
        .collect();
    match bytes {
        [choice, rest @ ..] if *choice >= FIRST_CHOICE => {
            // One more than the readers: Prometheus.
            match readers.get(usize::from(choice - FIRST_CHOICE) % (readers.len() + 1)) {
                Some(reader) => check(*reader, rest),
                None => check_endpoint(rest),
            }
        }
        _ => {
            readers.iter().for_each(|reader| check(*reader, bytes));
            check_endpoint(bytes);
        }
    }
});

fn check(reader: FigureReader, bytes: &[u8]) {
    for read in read_all_figures(reader, bytes) {
        let broken = broken_rule(&read);
        assert!(broken.is_none(), "{reader:?}: {broken:?}: {:?}", read.metrics);
    }
}

/// The counter, the gauge and the quantiles of two scrapes, the second behind the first one's `# EOF`.
fn check_endpoint(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let sources = [
        ("fuzz_requests[higher]", "counter requests_total"),
        ("fuzz_queue[lower]", "gauge queue"),
        ("fuzz_latency_ns_p50", "quantile 0.5 latency_seconds"),
        ("fuzz_latency_ns_p99", "quantile 0.99 latency_seconds"),
    ];
    let wanted =
        sources.map(|(name, source)| EndpointFigure::parse(name, source).expect("a figure"));
    let (earlier, later) = text.split_once("# EOF\n").unwrap_or(("", text));
    let scrapes = (Scrape::read(earlier, &wanted), Scrape::read(later, &wanted));
    let (Ok(earlier), Ok(later)) = scrapes else { return };
    let mut growth = ScrapeGrowth::new(&wanted);
    growth.add(&earlier, &later, 1.0);
    let read = growth.compute_figures();
    let known = |idx: usize| read.get(&wanted[idx].metric).copied();
    assert!(read.values().all(|value| value.is_finite()), "{read:?}");
    assert!(known(0).is_none_or(|rate| rate >= 0.0), "{read:?}");
    let quantiles = known(2).zip(known(3));
    assert!(quantiles.is_none_or(|(half, most)| half <= most * 1.0001 + 1.0), "{read:?}");
}
