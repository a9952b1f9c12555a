//! The plans of the published experiments, in a quick form, on the lab.

use latput_testkit::{isolate, needs_root};

use crate::Place;
use crate::published::plans;

#[test]
fn every_published_plan_runs_on_the_lab_without_what_a_veth_pair_lacks() {
    if needs_root() {
        return;
    }
    isolate();
    // Longer than TCP's shortest retransmission timeout: one lost packet is no standstill.
    for (name, plan) in plans("500ms") {
        let place = Place::new();
        place.write("plan.toml", &ends(&plan));
        let run = || place.run(&["run", "plan.toml", "--on", "lab", "-o", "kept.db"]);
        // On a machine with much else to do a window may pass with nothing through: the run is resumed.
        let ran = (0..4).map(|_| run()).find(|ran| ran.code != Some(6)).unwrap();
        ran.expect(0, &[]);
        assert!(place.trials("kept.db") > 0, "{name}");
        for (of, words) in [
            ("affinity", "the factor `sut.bql-limit-max`"),
            ("affinity", "the factor `sut.smp-affinity`"),
            ("cpu-binding", "the factor `smp-affinity`"),
            ("cpu-binding", "is not among host"),
        ] {
            assert_eq!(name.starts_with(of), ran.err.contains(words), "{name}: {}", ran.err);
        }
    }
}

/// The first and the last level of what has many, since the lab's time is real.
fn ends(plan: &str) -> String {
    let is_middle = |line: &&str| {
        let inner = ["20us", "40us", "80us", "160us", "320us", "33us", "50us", "100us"];
        inner.iter().any(|level| line.trim_start().starts_with(&format!("[\"{level}\"")))
    };
    let kept = plan.lines().filter(|line| !is_middle(line)).collect::<Vec<_>>().join("\n");
    kept.replace("[1500, 3000, 4500, 6000]", "[1500, 6000]")
        .replace("[0, 1, 2, 4, 8, 16, 32, 64, 128]", "[0, 16]")
}
