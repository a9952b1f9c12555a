//! The plans of the published experiments, in a quick form, on the lab.

use latput_testkit::needs_root;

use crate::published::plans;
use crate::{Place, lab_turn};

#[test]
fn every_published_plan_runs_on_the_lab_without_what_a_veth_pair_lacks() {
    if needs_root() {
        return;
    }
    let _turn = lab_turn();
    for (name, plan) in plans() {
        let place = Place::new();
        place.write("plan.toml", &plan);
        let ran = place.run(&["run", "plan.toml", "--on", "lab", "-o", "kept.db"]);
        ran.expect(0, &[]);
        assert!(place.trials("kept.db") > 0, "{name}");
        for (of, lacking) in [
            ("affinity", "the factor `sut.bql-limit-max`"),
            ("affinity", "the factor `sut.smp-affinity`"),
            ("cpu-binding", "the factor `smp-affinity`"),
            ("cpu-binding", "is not among host"),
        ] {
            assert_eq!(name.starts_with(of), ran.err.contains(lacking), "{name}: {}", ran.err);
        }
    }
}
