//! Effects of queue disciplines, byte limits and interrupt affinity on real drivers, measured and not assumed.
//!
//! The wire of a guest takes no time, so nothing queues by itself. A long interrupt delay makes the
//! bottleneck: sent packets are counted as gone only when the next interrupt reaps them, and a byte
//! limit (BQL) lets few wait for that.

use latput_vm::{ENDPOINTS, Guest};

use crate::vm_knobs::{latput_on, latput_on_sut, set_knob, value_of};
use crate::{Place, guest_turn};

/// 3000 bytes let at most three packets out each 10 ms, 30000 bytes ten times as many.
const PLAN: &str = r#"
schema = 1
name = "queues of a real driver"
[factors]
"generator.rx-usecs" = ["10ms"]
"generator.bql-limit-max" = [3000, 30000]
"generator.qdisc" = ["pfifo_fast", "fq_codel"]
[[workload]]
kind = "udp_stream"
segmentation = false
connections = 4
probe_hz = 20
[method]
repetitions = { min = 2, max = 2 }
warmup = "1s"
duration = "3s"
"#;
/// As many trials as the plan has: today's values and four settings, twice.
const TRIALS: i64 = 10;
/// 3000 bytes and the frame that passes the limit, each 10 ms.
const HELD_BPS: f64 = (3000.0 + 1512.0) * 8.0 / 0.010;

#[test]
#[ignore = "long: `cargo xtask ci --full` runs it"]
fn fq_codel_and_bql_limit_bulk() {
    let Some(_turn) = guest_turn() else { return };
    let place = Place::new();
    place.write("plan.toml", PLAN);
    run_to_its_end(&place, "vm:e1000e");
    assert_eq!(place.count_trials("kept.db"), TRIALS);
    let report = place.report_json("kept.db");
    let best = |words: [&str; 2], metric: &str| least_and_most(&report, words, metric);
    let (small, large) = ("max=3000 ", "max=30000 ");
    for qdisc in ["pfifo_fast", "fq_codel"] {
        let (_, held) = best([small, qdisc], "throughput_bps");
        let (free, _) = best([large, qdisc], "throughput_bps");
        // Bytes in flight go out once for each interrupt, and once more at a window's end.
        assert!(held < 2.0 * HELD_BPS, "{qdisc}: {held} bit/s under 3000 bytes");
        assert!(free > 3.0 * held, "{qdisc}: {held} bit/s under 3000 bytes, {free} under 30000");
    }
    let (behind, _) = best([small, "pfifo_fast"], "probe_ns_mean");
    let (_, beside) = best([small, "fq_codel"], "probe_ns_mean");
    crate::print_note(&format!(
        "ping beside bulk {:.1} ms behind pfifo_fast and {:.1} ms \
         beside fq_codel",
        behind / 1e6,
        beside / 1e6
    ));
    assert!(behind > 5.0 * beside, "ping {behind} ns behind pfifo_fast, {beside} beside fq_codel");
}

/// Interrupts come to the CPU that smp-affinity names.
pub(crate) fn check_affinity(guest: &Guest) {
    let cpus = value_of(guest, "smp-affinity");
    for (cpu, other) in [("0", 1), ("1", 0), ("0", 1)] {
        let assignment = format!("smp-affinity={cpu}");
        set_knob(guest, &assignment);
        let interrupts = || {
            let text = latput_on_sut(guest, &["vm", "read", "/proc/interrupts"]).stdout_text();
            per_cpu(&text, ENDPOINTS[0].interface)
        };
        let before = interrupts();
        assert!(latput_on_sut(guest, &["vm", "probe"]).is_success());
        let after = interrupts();
        let counted = [after[0] - before[0], after[1] - before[1]];
        crate::print_note(&format!(
            "{assignment}: {counted:?} interrupts of its card on CPUs 0 and 1"
        ));
        assert!(counted[1 - other] > 20, "{assignment}: {counted:?}");
        // One of each of the card's vectors (receive, send, link) may be under way while the mask changes.
        assert!(counted[other] <= 3, "{assignment}: {counted:?}");
    }
    set_knob(guest, &format!("smp-affinity={cpus}"));
}

/// Runs the plan in guests. On a busy machine a guest may stand still for so long that a trial
/// is given up, and the same command goes on with it.
#[track_caller]
fn run_to_its_end(place: &Place, testbed: &str) {
    let run = || place.run(&["run", "plan.toml", "--on", testbed, "-o", "kept.db"]);
    let mut ran = run();
    for _ in 0..4 {
        if ran.code == Some(6) && ran.err.contains("run the same command again") {
            crate::print_note(&format!(
                "going on after: {}",
                ran.err.lines().last().unwrap_or_default()
            ));
            ran = run();
        }
    }
    ran.expect(0, &[testbed]);
}

/// The least and the most of a metric over the trials of the setting whose label has both words.
#[track_caller]
fn least_and_most(report: &serde_json::Value, words: [&str; 2], metric: &str) -> (f64, f64) {
    let settings = report["settings"].as_array().unwrap();
    let is_meant = |setting: &serde_json::Value| {
        let label = setting["label"].as_str().unwrap();
        words.iter().all(|word| label.contains(word))
    };
    let setting = settings.iter().position(is_meant).unwrap() as u64;
    let runs = report["runs"].as_array().unwrap();
    let of_setting = runs.iter().filter(|run| run["setting"] == setting);
    let values: Vec<f64> = of_setting.filter_map(|run| run["metrics"][metric].as_f64()).collect();
    assert!(!values.is_empty(), "no {metric} of {words:?}");
    let fold = |better: fn(f64, f64) -> f64| values.iter().copied().reduce(better).unwrap();
    (fold(f64::min), fold(f64::max))
}

/// The interrupts of a card on CPUs 0 and 1.
fn per_cpu(text: &str, interface: &str) -> [u64; 2] {
    let mut sums = [0; 2];
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_ours = words.last().is_some_and(|name| {
            name.strip_prefix(interface)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        });
        if is_ours {
            for (sum, count) in sums.iter_mut().zip(&words[1..3]) {
                *sum += count.parse::<u64>().unwrap();
            }
        }
    }
    sums
}

/// Only whoever loads the driver can choose these: the guest's is reloaded between two trials.
const PARAMETERS: &str = r#"
schema = 1
name = "parameters of the driver"
[factors]
"sut.interrupt-throttle-rate" = [0, 100]
"sut.mtu" = [1500, 1400]
[[workload]]
kind = "tcp_rr"
[method]
repetitions = { min = 2, max = 2 }
warmup = "500ms"
duration = "2s"
"#;

/// A closed loop of single packets goes from interrupt to interrupt (a request that comes while the
/// last is still polled needs none); and the other knobs of the plan are set on the cards that came
/// back.
#[test]
#[ignore = "long: `cargo xtask ci --full` runs it"]
fn throttle_rate_is_set_by_driver_reload() {
    let Some(_turn) = guest_turn() else { return };
    let place = Place::new();
    place.write("plan.toml", PARAMETERS);
    run_to_its_end(&place, "vm:e1000e");
    assert_eq!(place.count_trials("kept.db"), TRIALS);
    let report = place.report_json("kept.db");
    for mtu in ["mtu=1500", "mtu=1400"] {
        // The best of each: whatever else the machine does can only slow a trial down.
        let rate = |word| least_and_most(&report, [word, mtu], "transactions_per_s").1;
        let (free, throttled) = (rate("rate=0 "), rate("rate=100 "));
        crate::print_note(&format!(
            "{mtu}: {free:.0} transactions/s, {throttled:.0} at 100 interrupts/s"
        ));
        assert!(throttled <= 200.0, "{throttled} transactions/s at 100 interrupts/s");
        assert!(free > 2.0 * throttled, "{free} transactions/s, {throttled} at 100 interrupts/s");
    }
}

/// The parameters that a driver was loaded with are shown for each card.
pub(crate) fn check_loaded_with(guest: &Guest) {
    let shown = |host: usize, knob: &str| {
        let output =
            latput_on(guest, ENDPOINTS[host], &["show", ENDPOINTS[host].interface, "--json"]);
        let shown: serde_json::Value = serde_json::from_str(&output.stdout_text()).unwrap();
        let mut knobs = shown["knobs"].as_array().unwrap().iter();
        let found = knobs.find(|it| it["name"] == knob).unwrap();
        found["values"][0]["value"].clone()
    };
    assert_eq!(shown(0, "interrupt-throttle-rate"), "3");
    assert_eq!(shown(0, "tx-abs-int-delay"), "32");
    let reload = |parameters: &[&str]| {
        let output = guest.run(&[&[latput_vm::PROGRAM, "vm", "reload"], parameters].concat());
        let output = output.unwrap();
        assert!(output.is_success(), "{}", output.error_text());
    };
    reload(&["InterruptThrottleRate=8000,0", "RxIntDelay=0,16"]);
    assert_eq!(shown(0, "interrupt-throttle-rate"), "8000");
    assert_eq!(shown(1, "interrupt-throttle-rate"), "0");
    assert_eq!(shown(1, "rx-int-delay"), "16");
    assert_eq!(shown(1, "tx-abs-int-delay"), "32");
    reload(&[]);
}

#[test]
fn unknown_driver_parameters_are_refused() {
    let Some(_turn) = guest_turn() else { return };
    let place = Place::new();
    place.write("plan.toml", &PARAMETERS.replace("[0, 100]", "[50]"));
    let check = |testbed: &str, said: &str| {
        let ran = place.run(&["run", "plan.toml", "--on", testbed, "-o", "kept.db"]);
        ran.expect(2, &[said]);
        assert!(!place.path("kept.db").exists(), "it is refused before the first trial");
    };
    let taken = "interrupt-throttle-rate=50: the driver takes 0, 1, 3, 4 and 100 to 100000";
    check("vm:e1000e", taken);
    place.write("plan.toml", PARAMETERS);
    check("vm:virtio-net", "vm:virtio-net: the driver has no parameter InterruptThrottleRate");
}
