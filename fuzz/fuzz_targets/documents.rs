//! Any bytes as a file that people or other programs wrote: a plan, a testbed, a profile of settings, an import, a program's output,
//! an inventory, what a host of a fleet answers.
#![no_main]

use latput_fleet::{HostLook, ansible, inventory};
use latput_formats::{ImportFormat, import, program};
use latput_knobs::Profile;
use latput_trial::{Metric, Plan};
use latput_trial::figures::{Figures, HistogramLog, Output, Parser, PrintedUnit, Source, Text};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for format in [ImportFormat::Iperf3, ImportFormat::Netperf, ImportFormat::Flent] {
        let _ = import(format, &[("file".to_owned(), bytes.to_vec())]);
    }
    let output = Output { stdout: Text::of(bytes), ..Output::default() };
    for parser in Parser::ALL {
        let figures = Figures { parser: Some(*parser), ..Figures::default() };
        if let Ok(read) = program::read(&figures, &output) {
            let known = |metric: Metric| read.metrics.get(&metric).copied();
            let ordered = known(Metric::LatencyNsP50).zip(known(Metric::LatencyNsMax));
            assert!(ordered.is_none_or(|(median, most)| median <= most * 1.1), "{parser}");
            assert_ne!(read.transactions, Some(0), "{parser}");
        }
    }
    for tag in [None, Some("A".to_owned())] {
        let unit = PrintedUnit::of("us").expect("a unit of time");
        let log = HistogramLog { from: Source::Stdout, unit, tag };
        let figures = Figures { histogram: Some(log), ..Figures::default() };
        let _ = program::read(&figures, &output);
    }
    let _ = HostLook::read(bytes, "eth0", None);
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = Figures::of_options(&[], &[text.to_owned()]);
    if let Ok(plan) = Plan::parse("plan.toml", text) {
        let _ = plan.settings();
    }
    let _ = text.parse::<Profile>();
    let _ = inventory::parse(text);
    let _ = inventory::parse_pairs(text);
    let _ = inventory::parse_lines(text);
    let _ = ansible::parse(text);
    latput_experiment::fuzzing::testbed(text);
});
