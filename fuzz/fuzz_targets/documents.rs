//! Any bytes as a file that people or other programs wrote: a plan, a testbed, a profile of settings, an import.
#![no_main]

use latput_formats::{ImportFormat, import};
use latput_knobs::Profile;
use latput_trial::Plan;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for format in [ImportFormat::Iperf3, ImportFormat::Netperf, ImportFormat::Flent] {
        let _ = import(format, &[("file".to_owned(), bytes.to_vec())]);
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(plan) = Plan::parse("plan.toml", text) {
        let _ = plan.settings();
    }
    let _ = text.parse::<Profile>();
    latput_experiment::fuzzing::testbed(text);
});
