//! Time that the hypervisor gave to others.
//!
//! The kernel counts it in clock ticks. A tick is 10 ms, 4% of a slice of 250 ms: a slice in which a tick shows may have lost
//! nearly nothing. What is below a tick is therefore judged over the slices of a series together, and not by one of them.

use latput_trial::Check;
use latput_trial::check::STEAL;
use latput_trial::observation::{CpuTime, HostObservation};

use super::{compute_share, tick_of_each_cpu};

/// Most stolen CPU time, as a share of a host's CPU time.
const STEAL_LIMIT: f64 = 0.02;

/// Whether the hypervisor left a host its CPUs, but for what a clock tick may have added to the count.
pub(super) fn check_steal(host: &HostObservation) -> Check {
    let time = host.cpu();
    let share = compute_share(time.steal, time.total());
    let resolution = tick_of_each_cpu(host) / time.total().as_secs_f64().max(1e-9);
    build_steal_check(host, share, share - resolution <= STEAL_LIMIT)
}

/// Whether the hypervisor left a host its CPUs over the slices of a series, without those that fail by themselves: each
/// of the others may have lost less than a tick. `None` without any other.
pub fn steal_of_slices<'a>(slices: impl Iterator<Item = &'a HostObservation>) -> Option<Check> {
    let left: Vec<&HostObservation> = slices.filter(|host| check_steal(host).passed).collect();
    let time: CpuTime = left.iter().map(|host| host.cpu()).sum();
    let share = compute_share(time.steal, time.total());
    Some(build_steal_check(left.first()?, share, share <= STEAL_LIMIT))
}

fn build_steal_check(host: &HostObservation, share: f64, passed: bool) -> Check {
    Check {
        name: STEAL.to_owned(),
        passed,
        detail: format!("{}: the hypervisor took {:.1}% of the CPU time", host.host, share * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use latput_trial::observation::CpuObservation;
    use latput_units::{CpuId, Nanos};

    use super::*;

    /// A slice of 250 ms on one CPU, of which so many ticks were stolen.
    fn make_slice(ticks: u64) -> HostObservation {
        let steal = Nanos::from_ms(10 * ticks);
        let idle = Nanos::from_ms(250).saturating_sub(steal);
        let time = CpuTime { steal, idle, ..CpuTime::default() };
        let cpus = vec![CpuObservation { cpu: CpuId(0), time }];
        HostObservation { host: "b".to_owned(), cpus, ..HostObservation::default() }
    }

    fn of_slices(ticks: &[u64]) -> Check {
        let slices: Vec<HostObservation> = ticks.iter().map(|ticks| make_slice(*ticks)).collect();
        steal_of_slices(slices.iter()).unwrap()
    }

    #[test]
    fn single_tick_alone_voids_no_slice() {
        assert!(check_steal(&make_slice(0)).passed && check_steal(&make_slice(1)).passed);
        let two = check_steal(&make_slice(2));
        assert!(!two.passed && two.detail.contains("b: the hypervisor took 8.0%"), "{two:?}");
    }

    #[test]
    fn ticks_of_a_series_void_it() {
        assert!(of_slices(&[0, 1, 0, 1, 0, 0, 0, 0]).passed, "1% of the time");
        let steady = of_slices(&[1, 1, 1, 0, 1, 1, 1, 1]);
        assert!(!steady.passed && steady.detail.contains("3.5%"), "{steady:?}");
    }

    #[test]
    fn stolen_slice_is_not_counted_twice() {
        assert!(of_slices(&[0, 20, 0, 1, 0, 0, 0, 0]).passed);
        assert_eq!(
            steal_of_slices([make_slice(9), make_slice(25)].iter()),
            None,
            "all fail by themselves"
        );
    }
}
