//! `second-tuner`: somebody else changes settings of the network path.

use std::collections::BTreeMap;

use crate::evidence::Evidence;
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::measures::coalescing::ReceiveModeration;
use crate::measures::traffic::InterfaceTraffic;
use crate::parse::settings::{parse_limits, parse_settings};
use crate::snapshot::Look;
use crate::source::EvidenceSource;

/// Programs that change settings by themselves.
const TUNERS: [&str; 5] = ["bpftune", "tuned", "ktuned", "power-profiles-", "auto-cpufreq"];
/// Settings of queues and of NAPI in sysfs; other files there are states.
const QUEUE_FILES: [&str; 6] =
    ["rps_cpus", "rps_flow_cnt", "xps_cpus", "xps_rxqs", "limit_max", "limit_min"];
const DEVICE_FILES: [&str; 5] =
    ["mtu", "tx_queue_len", "threaded", "gro_flush_timeout", "napi_defer_hard_irqs"];
/// Sysctls that begin so and are settings.
const SYSCTLS: [&str; 4] = ["core/", "ipv4/tcp_", "ipv4/udp_", "ipv4/ip_forward"];
/// The most changes that a sentence names.
const MOST_NAMED: usize = 3;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "second-tuner",
    subject: "settings that stay as they are",
    mechanism: "Another program changes the settings that somebody chose, so that measurements do not hold, and the two may \
                undo each other's work for ever.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let [before, after] = evidence.looks().map(|look| collect_settings(evidence, look));
    let common: Vec<&String> = after.keys().filter(|name| before.contains_key(*name)).collect();
    if common.is_empty() {
        return Judgement::Unseen(EvidenceSource::Settings);
    }
    let changed: Vec<String> = common
        .into_iter()
        .filter(|name| before.get(*name) != after.get(*name))
        .map(|name| format!("{name} from {} to {}", before[name], after[name]))
        .collect();
    if changed.is_empty() || InterfaceTraffic::from_evidence(evidence).is_idle() {
        return Judgement::Healthy;
    }
    let tuner = find_tuner(evidence);
    let more = changed.len().saturating_sub(MOST_NAMED);
    let sentence = format!(
        "{} settings were changed within the window by {}: {}{}",
        changed.len(),
        tuner.unwrap_or("somebody"),
        changed.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>().join(", "),
        if more > 0 { format!(", and {more} more") } else { String::new() }
    );
    let confidence = if tuner.is_some() { Confidence::Certain } else { Confidence::Likely };
    let mut finding = Finding::new(rule, confidence, sentence)
        .with("changed_settings", changed.len() as u64)
        .with("changes", changed.join("; "))
        .with_remedy(
            "find the program (bpftune, tuned, a udev rule, cloud agents, configuration management) and stop one of the two; \
             `latput keep` writes the chosen values where they stay",
        );
    if let Some(tuner) = tuner {
        finding = finding.with("tuner", tuner);
    }
    Judgement::Fault(finding)
}

/// Settings of the interface and of the host's network path, by name.
fn collect_settings(evidence: &Evidence<'_>, look: &Look) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let interface = evidence.interface_name();
    let is_adaptive = ReceiveModeration::from_looks(evidence)
        .is_some_and(|looks| looks.iter().any(|moderation| moderation.is_adaptive));
    for option in ["-c", "-k", "-a"] {
        let settings = look.text(&format!("ethtool_{option}_{interface}")).and_then(parse_settings);
        // Adaptive moderation moves its delays itself, and negotiation its results.
        let is_moving = |name: &str| {
            (option == "-c" && is_adaptive && name.contains("x-")) || name.contains("negotiated")
        };
        let kept = settings.into_iter().flatten().filter(|(name, _)| !is_moving(name));
        found.extend(kept.map(|(name, value)| (format!("ethtool {option} {name}"), value)));
    }
    for option in ["-g", "-l"] {
        let limits = look.text(&format!("ethtool_{option}_{interface}")).and_then(parse_limits);
        let now = limits.into_iter().flat_map(|limits| limits.now);
        found.extend(now.map(|(name, value)| (format!("ethtool {option} {name}"), value)));
    }
    let sysctls = look.texts_below("proc/sys/net/");
    let settings = sysctls.filter(|(name, _)| SYSCTLS.iter().any(|start| name.starts_with(start)));
    found.extend(
        settings.map(|(name, text)| (format!("net.{}", name.replace('/', ".")), one_line(text))),
    );
    let start = format!("sys/class/net/{interface}/");
    let files = look.texts_below(&start).filter(|(name, _)| {
        let is_queue = name.starts_with("queues/")
            && QUEUE_FILES.iter().any(|file| name.ends_with(&format!("/{file}")));
        is_queue || DEVICE_FILES.contains(name)
    });
    found.extend(files.map(|(name, text)| (name.to_owned(), one_line(text))));
    let governors = look
        .texts_below("sys/devices/system/cpu/")
        .filter(|(name, _)| name.ends_with("/cpufreq/scaling_governor"));
    found.extend(governors.map(|(name, text)| (name.to_owned(), one_line(text))));
    found
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A program that tunes, if the snapshot has names of programs.
fn find_tuner<'a>(evidence: &Evidence<'a>) -> Option<&'a str> {
    let [_, after] = evidence.looks();
    after
        .texts_below("proc/")
        .filter(|(name, _)| name.ends_with("/comm"))
        .map(|(_, text)| text.trim())
        .find(|name| TUNERS.iter().any(|tuner| name.starts_with(tuner)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::fixture::Fixture;

    const TRAFFIC: [u64; 2] = [20_000, 2_000_000];
    const BUFFERS: &str = "proc/sys/net/ipv4/tcp_rmem";

    fn host() -> Fixture {
        Fixture::new().traffic(TRAFFIC, TRAFFIC)
    }

    #[test]
    fn changed_sysctl_is_found() {
        let (then, now) = ("4096\t131072\t6291456\n", "4096\t131072\t8388608\n");
        let found = host().grown(BUFFERS, then, now).fault(&RULE);
        let expected = "net.ipv4.tcp_rmem from 4096 131072 6291456 to 4096 131072 8388608";
        assert!(found.sentence.ends_with(expected), "{found:?}");
        assert_eq!(found.confidence, Confidence::Likely);
        let named = host().grown(BUFFERS, then, now).fixed("proc/9/comm", "bpftune\n");
        assert_eq!(named.fault(&RULE).confidence, Confidence::Certain);
    }

    #[test]
    fn states_and_adaptive_delays_are_silent() {
        let delays = |delay| format!("Adaptive RX: on  TX: on\nrx-usecs: {delay}\n");
        host()
            .fixed(BUFFERS, "4096 131072 6291456\n")
            .grown("ethtool_-c_eth0", &delays(8), &delays(64))
            .grown("sys/class/net/eth0/queues/tx-0/byte_queue_limits/limit", "1\n", "9\n")
            .grown("proc/sys/net/netfilter/nf_conntrack_count", "1\n", "9\n")
            .assert_healthy(&RULE);
        host().assert_unseen(&RULE, EvidenceSource::Settings);
    }
}
