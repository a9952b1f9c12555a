//! `frequency`: busy CPUs run slowly.

use crate::evidence::Evidence;
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::measures::power::find_frequencies;
use crate::measures::traffic::InterfaceTraffic;
use crate::source::EvidenceSource;

/// A CPU with more idle time runs slowly on purpose.
const LEAST_BUSY: f64 = 0.3;
/// The part of the expected frequency that is no rounding.
const SLOW: f64 = 0.9;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "frequency",
    subject: "frequencies of the CPUs",
    mechanism: "A CPU below its frequency takes longer for each packet and each request; a governor that saves power, a limit or \
                heat keeps it there.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let Some(frequencies) = find_frequencies(evidence) else {
        return Judgement::Unseen(EvidenceSource::Power);
    };
    let Some(cpus) = evidence.cpus() else { return Judgement::Unseen(EvidenceSource::Cpus) };
    let busy = cpus.iter().filter(|(_, shares)| shares.busy() - shares.steal >= LEAST_BUSY);
    let slow = busy.filter_map(|(cpu, shares)| {
        let frequency = frequencies.get(cpu)?;
        (frequency.now < frequency.expected * SLOW).then_some((cpu, shares, frequency))
    });
    let worst = slow.max_by(|(_, one, _), (_, other, _)| one.busy().total_cmp(&other.busy()));
    let is_idle = InterfaceTraffic::from_evidence(evidence).is_idle();
    let Some((cpu, shares, frequency)) = worst.filter(|_| !is_idle) else {
        return Judgement::Healthy;
    };
    let ghz = |khz: f64| format!("{:.1} GHz", khz / 1e6);
    let limit = frequency.allowed.filter(|allowed| *allowed < frequency.expected * SLOW);
    let cause = match (limit, frequency.governor.as_str()) {
        (Some(limit), _) => format!("scaling_max_freq is {}", ghz(limit)),
        (None, "") => "its governor is unknown".to_owned(),
        (None, "performance") => {
            "the governor is performance, so that heat or power limits it".to_owned()
        }
        (None, governor) => format!("the governor is {governor}"),
    };
    let sentence = format!(
        "CPU {cpu} is busy for {:.0}% of the time at {} in place of at least {}: {cause}",
        shares.busy() * 100.0,
        ghz(frequency.now),
        ghz(frequency.expected)
    );
    let saved = 1.0 - frequency.now / frequency.expected;
    let remedy = match limit {
        Some(_) => "cpupower frequency-set -u with its highest frequency (cpuinfo_max_freq)",
        None => "cpupower frequency-set -g performance (or the tuned profile network-latency)",
    };
    Judgement::Fault(
        Finding::new(rule, Confidence::Likely, sentence)
            .with("cpu", u64::from(*cpu))
            .with("frequency_khz", frequency.now)
            .with("expected_khz", frequency.expected)
            .with("governor", frequency.governor.as_str())
            // Work takes longer as the frequency falls; that of memory does not, so that this is an upper end.
            .explaining_latency(saved * shares.busy())
            .explaining_cpu(saved)
            .with_remedy(remedy),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::fixture::{Fixture, is_near};

    const TRAFFIC: [u64; 2] = [90_000, 9_000_000];

    fn host(now: u32, base: Option<u32>, user: u64) -> Fixture {
        let name = |file: &str| format!("sys/devices/system/cpu/cpu0/cpufreq/{file}");
        let host = Fixture::new()
            .traffic(TRAFFIC, TRAFFIC)
            .cpus(&[[user, 0, 0, 10, 0]])
            .fixed(&name("scaling_cur_freq"), &format!("{now}\n"))
            .fixed(&name("cpuinfo_max_freq"), "3900000\n")
            .fixed(&name("scaling_governor"), "powersave\n");
        match base {
            Some(base) => host.fixed(&name("base_frequency"), &format!("{base}\n")),
            None => host,
        }
    }

    #[test]
    fn slow_busy_cpu_is_found() {
        let found = host(800_000, Some(2_000_000), 70).fault(&RULE);
        let expected = "CPU 0 is busy for 80% of the time at 0.8 GHz in place of at least 2.0 GHz: the governor is powersave";
        assert_eq!(found.sentence, expected);
        assert!(is_near(found.explains.latency_share, 0.48));
        assert!(is_near(found.explains.cpu_share, 0.6));
    }

    #[test]
    fn idle_or_fast_cpu_is_silent() {
        host(800_000, Some(2_000_000), 5).assert_healthy(&RULE);
        host(2_100_000, None, 70).assert_healthy(&RULE);
        host(1_900_000, Some(2_000_000), 70).assert_healthy(&RULE);
        Fixture::new().traffic(TRAFFIC, TRAFFIC).assert_unseen(&RULE, EvidenceSource::Power);
    }
}
