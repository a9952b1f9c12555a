//! CPUs that do the interface's work, and those that could.

use std::collections::{BTreeMap, BTreeSet};

use crate::evidence::{CpuShares, Evidence};
use crate::measures::queues::{count_by_cpu, find_receive_interrupts};
use crate::parse::cpus::{CpuTicks, parse_stat};

/// The part of the interface's work that makes a CPU one of its own.
const OWN_PART: f64 = 0.05;
/// The part of a CPU's time in interrupts and softirqs from which on packets wait for it (issue 872 of `ntop/PF_RING`).
pub(crate) const FULL: f64 = 0.9;

/// The part of a CPU's time that goes to interrupts and softirqs.
pub(crate) fn kernel_share(shares: &CpuShares) -> f64 {
    shares.interrupts + shares.softirqs
}

/// CPUs on which the interface's packets arrive: by its interrupts, and by all packets, because a CPU that polls without
/// a pause has few interrupts, or none.
pub(crate) fn find_receive_cpus(evidence: &Evidence<'_>) -> Option<BTreeSet<u32>> {
    let interrupts = find_receive_interrupts(evidence).map(|lines| count_by_cpu(&lines));
    let interrupts = interrupts.filter(|counts| !counts.is_empty());
    let packets: Option<BTreeMap<u32, u64>> = evidence
        .softnet()
        .map(|rows| rows.iter().map(|(cpu, row)| (*cpu, row.processed)).collect());
    if interrupts.is_none() && packets.is_none() {
        return None;
    }
    let own = |counts: BTreeMap<u32, u64>| {
        let all: u64 = counts.values().sum();
        let least = (all as f64 * OWN_PART).max(1.0);
        counts.into_iter().filter(move |(_, count)| *count as f64 >= least).map(|(cpu, _)| cpu)
    };
    Some([interrupts, packets].into_iter().flatten().flat_map(own).collect())
}

/// The CPU of the interface that spends most in interrupts and softirqs.
pub(crate) fn find_fullest_cpu(evidence: &Evidence<'_>) -> Option<(u32, CpuShares)> {
    let own = find_receive_cpus(evidence);
    let cpus = evidence.cpus()?.iter();
    cpus.filter(|(cpu, _)| own.as_ref().is_none_or(|own| own.contains(cpu)))
        .max_by(|(_, one), (_, other)| kernel_share(one).total_cmp(&kernel_share(other)))
        .map(|(cpu, shares)| (*cpu, *shares))
}

/// Whether a CPU of the interface has no time left for packets.
pub(crate) fn is_receiver_full(evidence: &Evidence<'_>) -> bool {
    find_fullest_cpu(evidence).is_some_and(|(_, shares)| kernel_share(&shares) >= FULL)
}

/// The mean idle share of the other CPUs; 0 if there are none.
pub(crate) fn idle_of_others(cpus: &BTreeMap<u32, CpuShares>, except: &[u32]) -> f64 {
    let others: Vec<f64> =
        cpus.iter().filter(|(cpu, _)| !except.contains(cpu)).map(|(_, one)| one.idle).collect();
    others.iter().sum::<f64>() / others.len().max(1) as f64
}

/// The CPUs that are mostly idle, as a list such as `2-3,6`.
pub(crate) fn list_idle_cpus(cpus: &BTreeMap<u32, CpuShares>) -> Option<String> {
    let idle: Vec<u32> =
        cpus.iter().filter(|(_, shares)| shares.idle >= 0.5).map(|(cpu, _)| *cpu).collect();
    let runs = idle.chunk_by(|one, next| one + 1 == *next).map(|run| match run {
        [first, .., last] => format!("{first}-{last}"),
        other => other.iter().map(u32::to_string).collect(),
    });
    let list: Vec<String> = runs.collect();
    (!list.is_empty()).then(|| list.join(","))
}

/// The time that all CPUs are busy, in CPUs.
pub(crate) fn busy_cpus(cpus: &BTreeMap<u32, CpuShares>) -> f64 {
    cpus.values().map(CpuShares::busy).sum()
}

/// The part of all busy time that this many seconds of CPU are.
pub(crate) fn share_of_busy(evidence: &Evidence<'_>, seconds: f64) -> Option<f64> {
    let busy = busy_cpus(evidence.cpus()?) * evidence.window_s()?;
    (busy > 0.0).then(|| (seconds / busy).min(1.0))
}

/// The part of each CPU's time that programs spend in system calls: busy polling does.
pub(crate) fn find_system_shares(evidence: &Evidence<'_>) -> Option<BTreeMap<u32, f64>> {
    let [before, after] = evidence.looks().map(|look| look.text("proc/stat").and_then(parse_stat));
    let (before, after) = (before?, after?);
    let total = |ticks: &CpuTicks| {
        let CpuTicks { user, nice, system, idle, iowait, irq, softirq, steal } = *ticks;
        user + nice + system + idle + iowait + irq + softirq + steal
    };
    let share = |(cpu, now): (&u32, &CpuTicks)| {
        let then = before.get(cpu)?;
        let all = total(now).checked_sub(total(then)).filter(|all| *all > 0)?;
        Some((*cpu, now.system.saturating_sub(then.system) as f64 / all as f64))
    };
    Some(after.iter().filter_map(share).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::fixture::Fixture;

    #[test]
    fn polling_cpu_counts_without_interrupts() {
        let snapshot = Fixture::new()
            .interrupts(&[("eth0-TxRx-0", &[10, 0, 0]), ("eth0-TxRx-1", &[0, 90_000, 0])])
            .softnet(&[[900_000, 0, 0], [90_000, 0, 0], [5, 0, 0]])
            .cpus(&[[0, 0, 1, 95, 0], [0, 0, 10, 20, 0], [0, 5, 0, 0, 0]])
            .into_snapshot();
        let evidence = Evidence::from_snapshot(&snapshot);
        assert_eq!(find_receive_cpus(&evidence).unwrap(), BTreeSet::from([0, 1]));
        assert_eq!(find_fullest_cpu(&evidence).unwrap().0, 0);
        assert!(is_receiver_full(&evidence));
        let cpus = evidence.cpus().unwrap();
        assert_eq!(list_idle_cpus(cpus).unwrap(), "1-2");
        assert!((idle_of_others(cpus, &[0]) - 0.825).abs() < 1e-9);
        assert!((find_system_shares(&evidence).unwrap()[&2] - 0.05).abs() < 1e-9);
    }

    #[test]
    fn poller_without_interrupts_is_judged() {
        let snapshot = Fixture::new()
            .interrupts(&[("eth0-TxRx-0", &[0, 0])])
            .cpus(&[[0, 0, 0, 97, 0], [0, 0, 0, 0, 0]])
            .into_snapshot();
        let evidence = Evidence::from_snapshot(&snapshot);
        assert_eq!(find_receive_cpus(&evidence), None);
        assert!(is_receiver_full(&evidence));
    }
}
