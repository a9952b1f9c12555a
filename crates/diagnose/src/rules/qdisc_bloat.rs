//! `qdisc-bloat`: packets wait long in a queue discipline.

use crate::evidence::{Evidence, QdiscGrowth, share_of};
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::source::EvidenceSource;

/// The least wait that is harm: a queue that stands for longer than this is what `CoDel` removes (RFC 8289, section 4.4).
const LEAST_WAIT_MS: f64 = 5.0;
/// The least wait under a discipline that keeps its queues short by itself: several flows add up.
const LEAST_MANAGED_WAIT_MS: f64 = 20.0;
/// Those disciplines.
const MANAGED: &[&str] = &["fq_codel", "codel", "cake", "fq_pie", "pie"];
/// The least wait under a discipline that holds packets on purpose until their time (`fq` paces).
const LEAST_PACED_WAIT_MS: f64 = 100.0;
/// The part of the packets that a long queue drops at most, as long as TCP fills it.
const MOST_DROPPED: f64 = 0.02;
/// The part of the waits that stays with a queue that is short and drops.
const LEFT_OF_EFFECT: f64 = 0.3;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "qdisc-bloat",
    subject: "waits in queue disciplines",
    mechanism: "Packets wait in a long queue on this host because more is sent than the link or the discipline's rate takes: \
                every packet behind them is late by that queue.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let Some(rows) = evidence.qdiscs() else { return Judgement::Unseen(EvidenceSource::Qdiscs) };
    let waits = rows.iter().filter_map(|row| {
        let per_ms = sent_per_ms(row, evidence)?;
        Some((measure_wait(row, per_ms)?, per_ms, row))
    });
    let longest = waits.max_by(|one, other| one.0.total_cmp(&other.0));
    let Some((wait_ms, per_ms, worst)) = longest else { return Judgement::Healthy };
    let kind = worst.now.kind.as_str();
    let least = match kind {
        "fq" => LEAST_PACED_WAIT_MS,
        kind if MANAGED.contains(&kind) => LEAST_MANAGED_WAIT_MS,
        _ => LEAST_WAIT_MS,
    };
    if wait_ms < least {
        return Judgement::Healthy;
    }
    let name = evidence.interface_name();
    let bytes = worst.now.backlog.min(worst.backlog_before);
    let sentence = format!(
        "packets wait {wait_ms:.0} ms in {kind} of {name}: {bytes} bytes stood in it at both looks, and it sends {:.1} Mbit/s",
        per_ms * 8.0 / 1000.0
    );
    let mut found = Finding::new(rule, Confidence::Likely, sentence)
        .with("wait_ms", wait_ms)
        .with("backlog_bytes", bytes)
        .with("packets_waiting", worst.now.qlen)
        .with("kind", kind)
        .with_change(evidence, "qdisc=fq_codel");
    if worst.overlimits > 0 {
        found = found
            .with("overlimits", worst.overlimits)
            .with_remedy(format!(
                "let {kind} hold less, or fq_codel below it; if its rate is lower than meant, raise it; without it: latput \
                 set {name} qdisc=fq_codel --dry-run"
            ));
    }
    if let Some(rtt_ms) = average_round_trip(evidence) {
        // The round trips of connections that send through it contain its wait.
        // A queue that drops that much is short: its rate is the fault (`qdisc-drops`).
        let dropped = share_of(worst.drops, worst.drops + worst.packets);
        let is_short = wait_ms < LEAST_MANAGED_WAIT_MS && dropped >= MOST_DROPPED;
        let part = if is_short { LEFT_OF_EFFECT } else { 1.0 };
        found = found
            .with("round_trip_ms", rtt_ms)
            .explaining_latency(wait_ms / rtt_ms.max(wait_ms) * part);
    }
    Judgement::Fault(found)
}

/// Bytes that the discipline sends in a millisecond. Where nobody tells how long the window was: the most that its rate or the
/// link allows, so that the wait is a lower end.
fn sent_per_ms(row: &QdiscGrowth, evidence: &Evidence<'_>) -> Option<f64> {
    let counted = evidence.window_s().map(|window_s| row.bytes as f64 / window_s / 1000.0);
    let by_rate = || Some(row.now.options.get("rate")?.as_f64()? / 1000.0);
    let by_link = || Some(evidence.link_speed_mbit()? * 1000.0 / 8.0);
    counted.or_else(by_rate).or_else(by_link)
}

/// Milliseconds that the queue which stood at both looks takes at the rate between them. netem holds packets for a delay
/// that it is told: that is a path, no queue.
fn measure_wait(row: &QdiscGrowth, per_ms: f64) -> Option<f64> {
    let standing = row.now.backlog.min(row.backlog_before);
    if standing == 0 || row.bytes == 0 {
        return None;
    }
    let wait_ms = standing as f64 / per_ms;
    let told_s = match row.now.options.get("delay") {
        Some(delay) if row.now.kind == "netem" => {
            delay.get("delay").unwrap_or(delay).as_f64().unwrap_or(0.0)
        }
        _ => 0.0,
    };
    Some(wait_ms - told_s * 1000.0)
}

/// The average round trip of connections that moved data.
fn average_round_trip(evidence: &Evidence<'_>) -> Option<f64> {
    let active = evidence.active_connections()?;
    let times: Vec<f64> = active.iter().filter_map(|one| one.now.figure("rtt")).collect();
    (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::testing::{PlantedLooks, number};

    /// Ten seconds with 1,250,000 bytes a second (10 Mbit/s).
    fn looks(kind: &str, options: &str, backlogs: [u64; 2]) -> PlantedLooks {
        let text = |bytes: u64, backlog: u64| {
            format!(
                r#"[{{"kind":"{kind}","dev":"eth0","root":true,"options":{{{options}}},"bytes":{bytes},"packets":5,
                "drops":0,"overlimits":0,"requeues":0,"backlog":{backlog},"qlen":9}}]"#
            )
        };
        PlantedLooks::new().seconds(10).text(
            "tc_-s_-j_qdisc",
            &text(0, backlogs[0]),
            &text(12_500_000, backlogs[1]),
        )
    }

    #[test]
    fn standing_queue_is_found_with_wait() {
        let found = looks("pfifo_fast", "", [250_000, 300_000]).find(&RULE);
        assert!((number(&found, "wait_ms") - 200.0).abs() < 1e-9);
        assert_eq!(found.remedy.as_deref(), Some("latput set eth0 qdisc=fq_codel --dry-run"));
        assert_eq!(found.explains.latency_share, None);
    }

    #[test]
    fn short_queue_that_drops_explains_less() {
        let row = "ESTAB 0 0 10.0.0.1:40000 10.0.0.2:80\n\t cubic rtt:8/1 bytes_acked:";
        let share = |drops: u32| {
            let text = |bytes: u32, drops: u32| {
                format!(
                    r#"[{{"kind":"tbf","dev":"eth0","root":true,"bytes":{bytes},"packets":{bytes},"drops":{drops},"backlog":10000}}]"#
                )
            };
            let looks = PlantedLooks::new().seconds(1);
            looks
                .text("tc_-s_-j_qdisc", &text(0, 0), &text(1_250_000, drops))
                .sockets(&format!("{row}5\n"), &format!("{row}9005\n"))
                .find(&RULE)
                .explains
                .latency_share
        };
        assert_eq!(share(0), Some(1.0));
        assert_eq!(share(100_000), Some(LEFT_OF_EFFECT));
    }

    #[test]
    fn round_trip_gives_the_share() {
        let row = "ESTAB 0 0 10.0.0.1:40000 10.0.0.2:80\n\t cubic rtt:400/5 bytes_acked:";
        let looks = looks("pfifo_fast", "", [250_000, 300_000])
            .sockets(&format!("{row}5\n"), &format!("{row}9005\n"));
        assert_eq!(looks.find(&RULE).explains.latency_share, Some(0.5));
    }

    #[test]
    fn link_gives_the_least_wait_without_window() {
        let row = |bytes: u32| {
            format!(
                r#"[{{"kind":"pfifo","dev":"eth0","root":true,"bytes":{bytes},"backlog":2500000}}]"#
            )
        };
        let looks = PlantedLooks::new()
            .text("tc_-s_-j_qdisc", &row(5), &row(9_000_000))
            .same("sys/class/net/eth0/speed", "1000\n");
        assert!((number(&looks.find(&RULE), "wait_ms") - 20.0).abs() < 1e-9);
    }

    #[test]
    fn own_rate_goes_before_the_link() {
        let row = |bytes: u32| {
            format!(
                r#"[{{"kind":"tbf","dev":"eth0","root":true,"options":{{"rate":1250000}},"bytes":{bytes},"backlog":125000}}]"#
            )
        };
        let looks = PlantedLooks::new().text("tc_-s_-j_qdisc", &row(5), &row(9_000_000));
        assert!((number(&looks.find(&RULE), "wait_ms") - 100.0).abs() < 1e-9);
    }

    #[test]
    fn burst_at_one_look_is_healthy() {
        assert_eq!(looks("pfifo_fast", "", [0, 300_000]).judge(&RULE), Judgement::Healthy);
        assert_eq!(looks("pfifo_fast", "", [3000, 3000]).judge(&RULE), Judgement::Healthy);
    }

    #[test]
    fn delay_of_netem_and_pacing_are_healthy() {
        let delay = r#""delay":{"delay":0.2,"jitter":0}"#;
        assert_eq!(looks("netem", delay, [250_000, 250_000]).judge(&RULE), Judgement::Healthy);
        assert_eq!(looks("fq", "", [100_000, 100_000]).judge(&RULE), Judgement::Healthy);
    }

    #[test]
    fn missing_output_of_tc_is_unseen() {
        let looks = PlantedLooks::new().seconds(5);
        assert_eq!(looks.judge(&RULE), Judgement::Unseen(EvidenceSource::Qdiscs));
    }
}
