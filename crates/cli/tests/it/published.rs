//! The plans of the published experiments, in a quick form, in the simulator.

use crate::Place;

#[test]
fn every_published_plan_runs_in_the_simulator() {
    for (name, plan) in published_plans("50ms") {
        let place = Place::new();
        place.write("plan.toml", &plan);
        let ran = place.run(&["run", "plan.toml", "--on", "sim:server-10g", "-o", "kept.db"]);
        ran.expect(0, &[]);
        assert!(place.count_trials("kept.db") > 0, "{name}");
        // The simulator has CPUs, a mask, RPS and BQL, and no hint of a driver's.
        let skipped = ran.err.matches("skipped: ").count();
        assert_eq!(skipped, usize::from(name.starts_with("affinity")), "{name}: {}", ran.err);
    }
}

/// Every published plan by its file's name, with one run of every trial that is too short for a figure.
pub(crate) fn published_plans(duration: &str) -> Vec<(String, String)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/published");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let plans = files.map(|path| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        // One run of every trial answers no goal.
        let is_goal = |line: &&str| line.starts_with("goal = ");
        let kept: Vec<&str> = text.lines().filter(|line| !is_goal(line)).collect();
        let text = kept.join("\n");
        let (head, method) = text.split_once("[method]\n").unwrap();
        let on_unsupported =
            method.lines().find(|line| line.starts_with("on_unsupported")).unwrap_or_default();
        // A thousand connections get nothing through in so short a window.
        let head = head.replace("connections = 1000", "connections = 10");
        let method = format!(
            "repetitions = {{ min = 1, max = 1 }}\nwarmup = \"20ms\"\nduration = \"{duration}\""
        );
        (name, format!("{head}[method]\n{on_unsupported}\n{method}\n"))
    });
    let mut plans: Vec<(String, String)> = plans.collect();
    plans.sort();
    assert!(plans.len() >= 10, "{plans:?}");
    plans
}
