//! What queue disciplines, byte limits and interrupt affinity do to real drivers, measured and not
//! assumed.
//!
//! The wire of a guest takes no time, so nothing queues by itself. A long interrupt delay makes the
//! bottleneck: sent packets are counted as gone only when the next interrupt reaps them, and a byte
//! limit (BQL) lets few wait for that.

use std::collections::BTreeMap;
use std::path::Path;

use latput_vm::{HOSTS, Line};

use crate::vm_knobs::{latput, start};
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
/// As many trials as the plan has.
const TRIALS: i64 = 8;
/// An Ethernet frame of the workload. The limit may be passed by the packet that reaches it.
const FRAME: u64 = 1470 + 8 + 20 + 14;

#[test]
fn fq_codel_spares_the_ping_beside_bulk_and_bql_holds_what_is_in_flight() {
    let Some(_turn) = guest_turn() else { return };
    let place = Place::new();
    place.write("plan.toml", PLAN);
    let mut child = place.start(&["run", "plan.toml", "--on", "vm:e1000e", "-o", "kept.db"]);
    let folder = std::env::temp_dir().join(format!("latput-vm-{}-0", child.id()));
    let mut in_flight: BTreeMap<u64, u64> = BTreeMap::new();
    while child.try_wait().unwrap().is_none() {
        // Between two reads of the same limit the limit was that.
        let limit = byte_limit(&folder, "limit_max");
        let bytes = byte_limit(&folder, "inflight");
        if let (Some(limit), Some(bytes)) = (limit, bytes)
            && byte_limit(&folder, "limit_max") == Some(limit)
        {
            let most = in_flight.entry(limit).or_default();
            *most = (*most).max(bytes);
        }
    }
    let said = std::fs::read_to_string(place.path("stderr")).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{said}");
    assert_eq!(place.trials("kept.db"), TRIALS);
    assert!((1..=3000 + FRAME).contains(&in_flight[&3000]), "{in_flight:?}");
    assert!((3000 + FRAME + 1..=30_000 + FRAME).contains(&in_flight[&30_000]), "{in_flight:?}");

    let report = place.run(&["report", "kept.db", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&report.expect(0, &[]).out).unwrap();
    let best = |words: [&str; 2], metric: &str| least_and_most(&report, words, metric);
    let (small, large) = ("max=3000 ", "max=30000 ");
    for qdisc in ["pfifo_fast", "fq_codel"] {
        let (_, held) = best([small, qdisc], "throughput_bps");
        let (free, _) = best([large, qdisc], "throughput_bps");
        assert!(free > 3.0 * held, "{qdisc}: {held} bit/s under 3000 bytes, {free} under 30000");
    }
    let (behind, _) = best([small, "pfifo_fast"], "probe_ns_mean");
    let (_, beside) = best([small, "fq_codel"], "probe_ns_mean");
    crate::tell(&format!(
        "in flight at most {in_flight:?}; ping beside bulk {:.1} ms behind pfifo_fast and {:.1} ms \
         beside fq_codel",
        behind / 1e6,
        beside / 1e6
    ));
    assert!(behind > 5.0 * beside, "ping {behind} ns behind pfifo_fast, {beside} beside fq_codel");
}

#[test]
fn interrupts_come_to_the_cpu_that_smp_affinity_names() {
    let Some(_turn) = guest_turn() else { return };
    let guest = start("e1000e");
    for (cpu, other) in [("0", 1), ("1", 0), ("0", 1)] {
        let assignment = format!("smp-affinity={cpu}");
        let set = latput(&guest, &["set", HOSTS[0].interface, &assignment]);
        assert!(set.is_success(), "{}", set.error_text());
        let interrupts = || {
            let text = latput(&guest, &["vm", "read", "/proc/interrupts"]).text();
            per_cpu(&text, HOSTS[0].interface)
        };
        let before = interrupts();
        assert!(latput(&guest, &["vm", "probe"]).is_success());
        let after = interrupts();
        let counted = [after[0] - before[0], after[1] - before[1]];
        crate::tell(&format!("{assignment}: {counted:?} interrupts of its card on CPUs 0 and 1"));
        assert!(counted[1 - other] > 20, "{assignment}: {counted:?}");
        // One may be under way while the mask changes.
        assert!(counted[other] <= 1, "{assignment}: {counted:?}");
    }
}

/// A number of the generator's first transmit queue, if the guest is there to tell.
fn byte_limit(folder: &Path, name: &str) -> Option<u64> {
    let path = format!("/sys/class/net/eth1/queues/tx-0/byte_queue_limits/{name}");
    let words = ["latput", "vm", "read", &path].map(str::to_owned);
    let words = [HOSTS[1].exec_words(), words.to_vec()].concat();
    let output = Line::open(folder, &words).ok()?.output().ok()?;
    output.text().trim().parse().ok()
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

#[test]
fn interrupt_throttle_rate_of_e1000e_is_set_by_reloading_the_driver() {
    check_throttled("vm:e1000e");
}

#[test]
fn interrupt_throttle_rate_of_e1000_is_set_by_reloading_the_driver() {
    check_throttled("vm:e1000");
}

/// A closed loop of single packets goes from interrupt to interrupt: throttled to 100 a second, no
/// faster than that; and the other knobs of the plan are set on the cards that came back.
#[track_caller]
fn check_throttled(testbed: &str) {
    let Some(_turn) = guest_turn() else { return };
    let place = Place::new();
    place.write("plan.toml", PARAMETERS);
    place.run(&["run", "plan.toml", "--on", testbed, "-o", "kept.db"]).expect(0, &[testbed]);
    assert_eq!(place.trials("kept.db"), TRIALS);
    let report = place.run(&["report", "kept.db", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&report.expect(0, &[]).out).unwrap();
    for mtu in ["mtu=1500", "mtu=1400"] {
        let rate = |word| least_and_most(&report, [word, mtu], "transactions_per_s");
        let (least, _) = rate("rate=0 ");
        let (_, most) = rate("rate=100 ");
        crate::tell(&format!(
            "{testbed} {mtu}: {least:.0} transactions/s at least unthrottled, {most:.0} at most at 100"
        ));
        assert!(most <= 110.0, "{most} transactions/s through 100 interrupts/s");
        assert!(
            least > 2.0 * most,
            "{least} transactions/s unthrottled, {most} at 100 interrupts/s"
        );
    }
}

#[test]
fn parameters_that_a_driver_lacks_or_would_not_take_are_refused() {
    let Some(_turn) = guest_turn() else { return };
    let place = Place::new();
    place.write("plan.toml", &PARAMETERS.replace("[0, 100]", "[50]"));
    let run = |testbed: &str| place.run(&["run", "plan.toml", "--on", testbed, "-o", "kept.db"]);
    run("vm:e1000e").expect(1, &["interrupt-throttle-rate=50", "0, 1, 3, 4 and 100 to 100000"]);
    place.write("plan.toml", PARAMETERS);
    run("vm:virtio-net").expect(1, &["virtio-net", "no parameter InterruptThrottleRate"]);
}
