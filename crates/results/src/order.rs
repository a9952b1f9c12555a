//! The order of the trials of a block, and their seeds.

use latput_knobs::{Knob, Tier, Value};
use latput_trial::observation::Role;
use latput_trial::results::LabelledSetting;
use latput_units::SeededRng;

/// The trials of a block, as setting and workload, in their random order.
pub fn shuffle_trials(
    seed: u64,
    block: u32,
    settings: &[usize],
    workloads: &[usize],
) -> Vec<(usize, usize)> {
    let of_setting = |&setting: &usize| workloads.iter().map(move |workload| (setting, *workload));
    let mut order: Vec<(usize, usize)> = settings.iter().flat_map(of_setting).collect();
    SeededRng::from_seed_and_index(seed, u64::from(block)).shuffle(&mut order);
    order
}

/// Groups trials with the same values of disruptive knobs (MTU, rings, channels), so that these
/// change as seldom as possible in a block. Groups and their trials stay in random order.
pub fn group_disruptive(order: &mut [(usize, usize)], settings: &[LabelledSetting]) {
    let disruptive = |setting: usize| -> Vec<(Role, Knob, &Value)> {
        let of_role = settings[setting].by_role.iter();
        let values =
            of_role.flat_map(|(role, set)| set.iter().map(|(knob, value)| (*role, *knob, value)));
        values.filter(|(_, knob, _)| knob.spec().tier > Tier::Brief).collect()
    };
    let mut groups: Vec<Vec<(Role, Knob, &Value)>> = Vec::new();
    for (setting, _) in order.iter() {
        let group = disruptive(*setting);
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    order.sort_by_cached_key(|(setting, _)| {
        let group = disruptive(*setting);
        groups.iter().position(|one| *one == group)
    });
}

/// The seed of a place in the plan, independent of earlier trials.
pub fn trial_seed(seed: u64, block: u32, setting: usize, workload: usize) -> u64 {
    [u64::from(block), setting as u64, workload as u64]
        .into_iter()
        .fold(seed, |seed, part| SeededRng::from_seed_and_index(seed, part).next_u64())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use latput_units::Nanos;

    use super::*;

    #[test]
    fn disruptive_knob_changes_once_per_block() {
        let setting = |mtu: u64, delay_us: u64| LabelledSetting {
            label: String::new(),
            by_role: BTreeMap::from([(
                Role::Sut,
                latput_knobs::Setting::from([
                    (Knob::Mtu, Value::Count(mtu)),
                    (Knob::GroFlushTimeout, Value::Time(Nanos::from_us(delay_us))),
                ]),
            )]),
        };
        let settings = [setting(1500, 0), setting(9000, 0), setting(1500, 20), setting(9000, 20)];
        for seed in 0..20 {
            let mut order: Vec<(usize, usize)> = (0..8).map(|at| (at % 4, at / 4)).collect();
            SeededRng::from_seed(seed).shuffle(&mut order);
            let shuffled = order.clone();
            group_disruptive(&mut order, &settings);
            let is_jumbo: Vec<bool> = order.iter().map(|(setting, _)| setting % 2 == 1).collect();
            let changes = is_jumbo.windows(2).filter(|pair| pair[0] != pair[1]).count();
            assert_eq!(changes, 1, "{order:?}");
            assert_eq!(order[0], shuffled[0], "the first stays the first");
            order.sort_unstable();
            assert!(order.windows(2).all(|pair| pair[0] != pair[1]) && order.len() == 8);
        }
    }
}
