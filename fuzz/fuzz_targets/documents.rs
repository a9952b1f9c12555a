//! Any bytes as a file that people or other programs wrote: a plan, a testbed, a profile of settings, a log of histograms, an
//! inventory, what a host of a fleet answers. `figures` has imports and programs' outputs.
#![no_main]

use latput_fleet::{HostLook, ansible, inventory};
use latput_formats::program;
use latput_knobs::Profile;
use latput_trial::Plan;
use latput_trial::figures::{Figures, HistogramLog, Output, PrintedUnit, Source, Text};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let output = Output { stdout: Text::from_bytes(bytes), ..Output::default() };
    for tag in [None, Some("A".to_owned())] {
        let unit = PrintedUnit::parse("us").expect("a unit of time");
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
    let _ = latput_reach::testbed_file::parse_hosts("fuzz", text);
});
