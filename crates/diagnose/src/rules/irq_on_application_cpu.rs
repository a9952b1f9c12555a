//! `irq-on-application-cpu`: packets are received on the CPU that the programs need.

use crate::evidence::{CpuShares, Evidence};
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::measures::cpus::{find_receive_cpus, idle_of_others, kernel_share, list_idle_cpus};
use crate::measures::queues::find_receive_interrupts;
use crate::measures::traffic::InterfaceTraffic;
use crate::source::EvidenceSource;

/// The part of a CPU's time in interrupts and softirqs that a program on it feels.
const LEAST_KERNEL_SHARE: f64 = 0.15;
/// The part that programs need there.
const LEAST_PROGRAMS: f64 = 0.3;
/// A CPU with more idle time has room for both.
const LEAST_BUSY: f64 = 0.9;
/// With less idle time elsewhere there is nowhere to go.
const LEAST_IDLE: f64 = 0.5;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "irq-on-application-cpu",
    subject: "interrupts beside the programs",
    mechanism: "The softirqs that receive packets interrupt the program on the same CPU, and packets wait while it is in a \
                system call, though other CPUs idle.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let Some(cpus) = evidence.cpus() else { return Judgement::Unseen(EvidenceSource::Cpus) };
    let Some(own) = find_receive_cpus(evidence) else {
        return Judgement::Unseen(EvidenceSource::Interrupts);
    };
    let is_shared = |(cpu, shares): &(&u32, &CpuShares)| {
        own.contains(cpu)
            && kernel_share(shares) >= LEAST_KERNEL_SHARE
            && shares.programs >= LEAST_PROGRAMS
            && shares.busy() >= LEAST_BUSY
    };
    let shared: Vec<u32> = cpus.iter().filter(is_shared).map(|(cpu, _)| *cpu).collect();
    let idle = idle_of_others(cpus, &shared);
    let worst = shared
        .iter()
        .filter_map(|cpu| Some((*cpu, cpus.get(cpu)?)))
        .max_by(|(_, one), (_, other)| kernel_share(one).total_cmp(&kernel_share(other)));
    let is_idle = InterfaceTraffic::from_evidence(evidence).is_idle();
    let Some((cpu, shares)) = worst.filter(|_| idle >= LEAST_IDLE && !is_idle) else {
        return Judgement::Healthy;
    };
    let kernel = kernel_share(shares);
    let sentence = format!(
        "CPU {cpu} receives the packets ({:.0}% of its time) and runs programs ({:.0}%), with nothing left; the other {} idle {:.0}%",
        kernel * 100.0,
        shares.programs * 100.0,
        cpus.len() - shared.len(),
        idle * 100.0
    );
    let target = list_idle_cpus(cpus).unwrap_or_else(|| "none".to_owned());
    // A virtual pair has no interrupt that could move.
    let has_interrupts = find_receive_interrupts(evidence).is_some_and(|lines| !lines.is_empty());
    let knob = if has_interrupts { "smp-affinity" } else { "rps-cpus" };
    // Of the time that a program wants, the part that softirqs take from it.
    let taken = kernel / shares.busy();
    Judgement::Fault(
        Finding::new(rule, Confidence::Likely, sentence)
            .with("cpu", u64::from(cpu))
            .with("kernel_share", kernel)
            .with("programs_share", shares.programs)
            .with("idle_share_of_others", idle)
            .explaining_latency(taken)
            .with_change(evidence, &format!("{knob}={target}")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::fixture::{Fixture, is_near};

    const TRAFFIC: [u64; 2] = [500_000, 50_000_000];

    fn host(cpus: &[[u64; 5]]) -> Fixture {
        Fixture::new()
            .traffic(TRAFFIC, TRAFFIC)
            .interrupts(&[("eth0-TxRx-0", &[0, 90_000, 0, 0])])
            .cpus(cpus)
    }

    const IDLE: [u64; 5] = [2, 1, 0, 0, 0];

    #[test]
    fn program_beside_interrupts_is_found() {
        let found = host(&[IDLE, [50, 20, 5, 25, 0], IDLE, IDLE]).fault(&RULE);
        assert!(
            found.sentence.starts_with("CPU 1 receives the packets (30% of its time)"),
            "{found:?}"
        );
        assert!(found.sentence.ends_with("the other 3 idle 97%"));
        assert!(is_near(found.explains.latency_share, 0.3));
        assert_eq!(found.remedy.unwrap(), "latput set eth0 smp-affinity=0,2-3 --dry-run");
    }

    #[test]
    fn interface_without_interrupts_is_steered() {
        let pair = Fixture::new()
            .traffic(TRAFFIC, TRAFFIC)
            .softnet(&[[9, 0, 0], [400_000, 0, 0]])
            .cpus(&[IDLE, [50, 20, 5, 25, 0]]);
        assert_eq!(pair.fault(&RULE).remedy.unwrap(), "latput set eth0 rps-cpus=0 --dry-run");
    }

    #[test]
    fn program_elsewhere_is_silent() {
        host(&[[95, 5, 0, 0, 0], [0, 0, 5, 25, 0], IDLE, IDLE]).assert_healthy(&RULE);
        host(&[IDLE, [20, 10, 2, 18, 0], IDLE, IDLE]).assert_healthy(&RULE);
        let all_busy = [50, 20, 5, 25, 0];
        host(&[all_busy; 4]).assert_healthy(&RULE);
        Fixture::new().traffic(TRAFFIC, TRAFFIC).assert_unseen(&RULE, EvidenceSource::Cpus);
    }
}
