//! `idle-states`: packets wait for a CPU to come out of deep sleep.

use crate::evidence::Evidence;
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::measures::cpus::find_receive_cpus;
use crate::measures::power::{IdleUse, find_idle_uses};
use crate::measures::queues::{count_by_cpu, find_receive_interrupts};
use crate::measures::traffic::{InterfaceTraffic, median_round_trip_us};
use crate::source::EvidenceSource;

/// A shorter way out of sleep is less than the wake-up of a program.
const DEEP_US: f64 = 50.0;
/// The part of a CPU's sleeps that are deep where packets wait for it.
const LEAST_DEEP: f64 = 0.3;
/// Fewer wake-ups a second, and nobody waits for long in sum.
const LEAST_PER_S: f64 = 200.0;
/// The same where nobody tells how long the window was.
const LEAST_WOKEN: f64 = 2000.0;
/// The part of a round trip, where the kernel measures it.
const LEAST_OF_ROUND_TRIP: f64 = 0.2;
/// The part of the window that the CPU spends waking up.
const LEAST_OF_WINDOW: f64 = 0.02;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "idle-states",
    subject: "sleep of the CPUs",
    mechanism: "A CPU that idles between packets falls into a deep state, and the next packet's interrupt waits until it is \
                awake again; latency falls as load grows.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let Some(uses) = find_idle_uses(evidence) else {
        return Judgement::Unseen(EvidenceSource::Power);
    };
    let Some(own) = find_receive_cpus(evidence) else {
        return Judgement::Unseen(EvidenceSource::Interrupts);
    };
    let traffic = InterfaceTraffic::from_evidence(evidence);
    let interrupts = find_receive_interrupts(evidence).map(|lines| count_by_cpu(&lines));
    let deep = uses.iter().filter(|idle| own.contains(&idle.cpu) && idle.exit_us >= DEEP_US);
    let Some(worst) = deep.max_by(|one, other| wake_us(one).total_cmp(&wake_us(other))) else {
        return Judgement::Healthy;
    };
    let sleeps: u64 =
        uses.iter().filter(|idle| idle.cpu == worst.cpu).map(|idle| idle.entries).sum();
    let part = worst.entries as f64 / sleeps.max(1) as f64;
    // Of its wake-ups those by the interface's interrupts make packets wait; without them all are taken for such.
    let woken = interrupts.map(|counts| counts.get(&worst.cpu).copied().unwrap_or(0));
    let woken = woken.unwrap_or(worst.entries).min(sleeps) as f64 * part;
    let woken_per_s = evidence.window_s().map(|window| woken / window);
    let round_trip_us = median_round_trip_us(evidence);
    let of_window = woken_per_s.map(|rate| rate * worst.exit_us / 1e6);
    let of_round_trip = round_trip_us.map(|whole| worst.exit_us * part / whole);
    let Some(share) = of_round_trip.or(of_window) else {
        return Judgement::Unseen(EvidenceSource::Sockets);
    };
    let least = if of_round_trip.is_some() { LEAST_OF_ROUND_TRIP } else { LEAST_OF_WINDOW };
    let is_frequent = woken_per_s.map_or(woken >= LEAST_WOKEN, |rate| rate >= LEAST_PER_S);
    let is_felt = part >= LEAST_DEEP && is_frequent && share >= least;
    if !is_felt || traffic.is_idle() || traffic.is_bulk() {
        return Judgement::Healthy;
    }
    let sentence = format!(
        "{:.0}% of the sleeps of CPU {} were in {}, from which it takes {:.0} us to wake, {} for a packet",
        part * 100.0,
        worst.cpu,
        worst.name,
        worst.exit_us,
        woken_per_s.map_or_else(
            || format!("{woken:.0} times"),
            |rate| format!("{rate:.0} times a second")
        )
    );
    let mut finding = Finding::new(rule, Confidence::Likely, sentence)
        .with("cpu", u64::from(worst.cpu))
        .with("state", worst.name.as_str())
        .with("exit_us", worst.exit_us)
        .with("deep_share", part)
        .with("wake_ups", woken)
        // Of a round trip, or else of the window, the part in which a packet waits for the CPU to wake.
        .explaining_latency(share)
        .with_remedy(format!(
            "cpupower idle-set -D {:.0}, or hold /dev/cpu_dma_latency at fewer microseconds; it costs power",
            DEEP_US - 1.0
        ));
    if let Some(rate) = woken_per_s {
        finding = finding.with("wake_ups_per_s", rate);
    }
    Judgement::Fault(finding)
}

/// Time that a CPU took to come out of a state, in microseconds.
fn wake_us(idle: &IdleUse) -> f64 {
    idle.entries as f64 * idle.exit_us
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::fixture::{Fixture, is_near};

    const REQUESTS: [u64; 2] = [20_000, 2_000_000];

    fn state(host: Fixture, number: u32, name: &str, latency: u32, entries: u64) -> Fixture {
        let folder = format!("sys/devices/system/cpu/cpu0/cpuidle/state{number}");
        host.fixed(&format!("{folder}/name"), &format!("{name}\n"))
            .fixed(&format!("{folder}/latency"), &format!("{latency}\n"))
            .grown(&format!("{folder}/usage"), "500000\n", &format!("{}\n", 500_000 + entries))
    }

    fn host(shallow: u64, deep: u64) -> Fixture {
        let host =
            Fixture::new().traffic(REQUESTS, REQUESTS).interrupts(&[("eth0-TxRx-0", &[20_000])]);
        state(state(host, 1, "C1", 2, shallow), 3, "C6", 133, deep)
    }

    #[test]
    fn deep_sleep_between_requests_is_found() {
        let found = host(5000, 15_000).fault(&RULE);
        assert!(found.sentence.starts_with("75% of the sleeps of CPU 0 were in C6"), "{found:?}");
        assert!(found.sentence.ends_with("takes 133 us to wake, 1500 times a second for a packet"));
        assert!(is_near(found.explains.latency_share, 0.1995));
    }

    #[test]
    fn shallow_sleep_or_bulk_is_silent() {
        host(15_000, 500).assert_healthy(&RULE);
        host(5000, 15_000).traffic([900_000, 1_350_000_000], [9, 900]).assert_healthy(&RULE);
        host(100, 900).assert_healthy(&RULE);
        Fixture::new().traffic(REQUESTS, REQUESTS).assert_unseen(&RULE, EvidenceSource::Power);
    }
}
