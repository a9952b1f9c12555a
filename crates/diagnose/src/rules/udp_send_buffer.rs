//! `udp-send-buffer`: a datagram that the sender's socket has no room for is refused.

use crate::evidence::{Evidence, percent, share_of};
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::source::EvidenceSource;

/// The fewest errors among a million datagrams that are harm.
const LEAST_PER_MILLION: f64 = 100.0;
/// The kernel also counts datagrams here that a queue discipline dropped. From this part on those are the cause.
const BY_QDISC: f64 = 0.5;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "udp-send-buffer",
    subject: "UDP send buffers",
    mechanism: "A UDP socket whose send buffer is full refuses the datagram, or makes the program wait.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let sum =
        |name: &str| evidence.protocol_sum(&[&format!("Udp.{name}"), &format!("Udp6.{name}")]);
    let Some(errors) = sum("SndbufErrors") else {
        return Judgement::Unseen(EvidenceSource::Protocols);
    };
    // The kernel counts a refused datagram among neither those sent nor those received.
    let sent = sum("OutDatagrams").unwrap_or(0);
    let share = share_of(errors, errors + sent);
    if errors == 0 || share * 1e6 < LEAST_PER_MILLION {
        return Judgement::Healthy;
    }
    let dropped = evidence.dropped_by_qdiscs();
    if dropped.is_some_and(|drops| drops as f64 >= errors as f64 * BY_QDISC) {
        return Judgement::Healthy;
    }
    let confidence = if dropped.is_some() { Confidence::Certain } else { Confidence::Likely };
    let unseen = if dropped.is_some() {
        ""
    } else {
        "; drops of a queue discipline count here too, `tc -s qdisc` tells them apart"
    };
    let now =
        |name: &str| evidence.sysctl(name).map(|is| format!(" (now {is})")).unwrap_or_default();
    let sentence = format!(
        "{errors} datagrams ({} of those sent) found no room in the send buffer of their UDP socket{unseen}",
        percent(share)
    );
    Judgement::Fault(
        Finding::new(rule, confidence, sentence)
            .with("sndbuf_errors", errors)
            .with("sent_datagrams", sent)
            .explaining_loss(share)
            .with_remedy(format!(
                "raise net.core.wmem_max{}, which limits SO_SNDBUF, or net.core.wmem_default{} if the program sets no \
                 SO_SNDBUF (`ss -uamn` tells: tb), or have the program send less at once",
                now("net/core/wmem_max"),
                now("net/core/wmem_default")
            ))
            .with_proof("nstat -z UdpSndbufErrors Udp6SndbufErrors; ss -uamn"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::testing::{PlantedLooks, number};

    const QDISC: &str = r#"[{"kind":"pfifo","dev":"eth0","root":true,"packets":0,"drops":0}]"#;

    fn planted() -> PlantedLooks {
        PlantedLooks::new().udp(&[
            ("OutDatagrams", 1000, 90_000),
            ("RcvbufErrors", 0, 0),
            ("SndbufErrors", 0, 4100),
        ])
    }

    #[test]
    fn growing_errors_name_the_sending_limit() {
        let found = planted().same("proc/sys/net/core/wmem_max", "212992\n").find(&RULE);
        assert!((number(&found, "sndbuf_errors") - 4100.0).abs() < 1e-9);
        assert!((found.explains.loss_share.unwrap() - 4100.0 / 93_100.0).abs() < 1e-9);
        let remedy = found.remedy.unwrap();
        assert!(
            remedy.contains("net.core.wmem_max (now 212992)") && !remedy.contains("rmem"),
            "{remedy}"
        );
        assert_eq!(found.confidence, Confidence::Likely);
    }

    #[test]
    fn seen_qdisc_makes_it_certain() {
        let looks = planted().same("tc_-s_-j_qdisc", QDISC);
        assert_eq!(looks.find(&RULE).confidence, Confidence::Certain);
    }

    #[test]
    fn drops_of_the_qdisc_are_its_own() {
        let later = QDISC.replace("\"drops\":0", "\"drops\":4000");
        assert_eq!(
            planted().text("tc_-s_-j_qdisc", QDISC, &later).judge(&RULE),
            Judgement::Healthy
        );
    }

    #[test]
    fn large_counter_that_stands_is_healthy() {
        let looks = PlantedLooks::new()
            .udp(&[("OutDatagrams", 5, 90_000), ("SndbufErrors", 990_000, 990_000)]);
        assert_eq!(looks.judge(&RULE), Judgement::Healthy);
    }

    #[test]
    fn missing_counters_are_unseen() {
        let looks = PlantedLooks::new().same("proc/uptime", "5 5\n");
        assert_eq!(looks.judge(&RULE), Judgement::Unseen(EvidenceSource::Protocols));
    }
}
