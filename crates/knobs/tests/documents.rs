//! The user guide names every knob.

use latput_knobs::Knob;

const SETTINGS: &str = include_str!("../../../docs/settings.md");

#[test]
fn the_guide_lists_every_knob_with_what_it_does() {
    for knob in Knob::ALL {
        let spec = knob.spec();
        let row = format!("| `{knob}` | {} | {} | {} |", spec.doc, spec.lives, spec.tier);
        assert!(SETTINGS.contains(&row), "docs/settings.md lacks the row {row}");
    }
}
