//! The plans of the published experiments, in a quick form, on the lab.

use latput_testkit::{isolate, needs};

use crate::Place;
use crate::published::published_plans;

/// A test for each plan, so that they run at once.
macro_rules! plans_run_on_the_lab {
    ($($(#[$ignore:meta])? $name:ident: $plan:literal,)*) => {
        const TESTED: &[&str] = &[$($plan),*];
        $(#[needs("root")]
        #[test]
        $(#[$ignore])?
        fn $name() {
            check_plan($plan);
        })*
    };
}

plans_run_on_the_lab! {
    affinity_rps_bql_fq_codel_runs_without_what_a_veth_pair_lacks: "affinity-rps-bql-fq_codel",
    #[ignore = "long: `cargo xtask ci --full` runs it"]
    bulk_both_ways_runs: "bulk-both-ways",
    #[ignore = "long: `cargo xtask ci --full` runs it"]
    burst_by_instances_runs: "burst-by-instances",
    #[ignore = "long: `cargo xtask ci --full` runs it"]
    cpu_binding_runs_without_what_a_veth_pair_lacks: "cpu-binding",
    delay_by_mtu_nfs_runs: "delay-by-mtu-nfs",
    delay_by_mtu_tcp10_runs: "delay-by-mtu-tcp10",
    delay_by_mtu_tcp3_runs: "delay-by-mtu-tcp3",
    delay_by_mtu_udp_runs: "delay-by-mtu-udp",
    moderation_frequency_runs: "moderation-frequency",
    #[ignore = "long: `cargo xtask ci --full` runs it"]
    polling_against_interrupts_runs: "polling-against-interrupts",
}

#[test]
fn every_published_plan_has_a_test_here() {
    let names: Vec<String> = published_plans("500ms").into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, TESTED);
}

#[track_caller]
fn check_plan(name: &str) {
    isolate();
    // Longer than TCP's shortest retransmission timeout: one lost packet is no standstill.
    let (_, plan) = published_plans("500ms").into_iter().find(|(other, _)| other == name).unwrap();
    let place = Place::new();
    place.write("plan.toml", &keep_end_levels(&plan));
    let run = || place.run(&["run", "plan.toml", "--on", "lab", "-o", "kept.db", "--beside"]);
    // On a machine with much else to do a window may pass with nothing through: the run is resumed.
    let ran = (0..4).map(|_| run()).find(|ran| ran.code != Some(6)).unwrap();
    ran.expect(0, &[]);
    assert!(place.count_trials("kept.db") > 0, "{name}");
    for (of, words) in [
        ("affinity", "the factor `sut.bql-limit-max`"),
        ("affinity", "the factor `sut.smp-affinity`"),
        ("cpu-binding", "the factor `smp-affinity`"),
        ("cpu-binding", "is not among host"),
    ] {
        assert_eq!(name.starts_with(of), ran.err.contains(words), "{name}: {}", ran.err);
    }
}

/// The first and the last level of what has many, since the lab's time is real.
fn keep_end_levels(plan: &str) -> String {
    let is_middle = |line: &&str| {
        let inner = ["20us", "40us", "80us", "160us", "320us", "33us", "50us", "100us"];
        inner.iter().any(|level| line.trim_start().starts_with(&format!("[\"{level}\"")))
    };
    let kept = plan.lines().filter(|line| !is_middle(line)).collect::<Vec<_>>().join("\n");
    kept.replace("[1500, 3000, 4500, 6000]", "[1500, 6000]")
        .replace("[0, 1, 2, 4, 8, 16, 32, 64, 128]", "[0, 16]")
}
