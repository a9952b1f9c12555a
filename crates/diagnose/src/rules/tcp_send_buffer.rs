//! `tcp-send-buffer`: the send buffer of TCP sockets is too small for their path.

use crate::evidence::{Evidence, count_connections, percent};
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::measures::buffers::{find_largest_buffer, raise_largest_buffer};
use crate::source::EvidenceSource;

/// The least part of the time with data to send that is harm.
const LEAST_SHARE: f64 = 0.3;
/// The part of the largest buffer that data in it can take: the rest is the kernel's own for each packet.
const DATA_IN_BUFFER: f64 = 0.25;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "tcp-send-buffer",
    subject: "TCP send buffers",
    mechanism: "A TCP socket whose send buffer is smaller than what its path holds cannot keep the path busy: the program waits \
                for room while the network would take more.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    if evidence.lacks(EvidenceSource::Sockets) {
        return Judgement::Unseen(EvidenceSource::Sockets);
    }
    let Some(limited) = evidence.limited_time("sndbuf_limited") else { return Judgement::Healthy };
    let share = limited.share();
    if share < LEAST_SHARE {
        return Judgement::Healthy;
    }
    let sentence = format!(
        "the send buffer stood against {} of TCP for {} of the time in which connections had data to send",
        count_connections(limited.connections),
        percent(share)
    );
    let buffered = limited.worst.now.send_queue;
    let most = find_largest_buffer(evidence, "tcp_wmem");
    let by_program = most.filter(|most| (buffered as f64) < *most as f64 * DATA_IN_BUFFER);
    let change = raise_largest_buffer(evidence, "tcp_wmem").filter(|_| by_program.is_none());
    let remedy = match by_program {
        Some(most) => format!(
            "the program sets SO_SNDBUF, which net.core.wmem_max{} limits: let it set none, so that the buffer grows up to {most} \
             bytes (net.ipv4.tcp_wmem), or a larger one",
            evidence.sysctl("net/core/wmem_max").map(|is| format!(" (now {is})")).unwrap_or_default()
        ),
        None => "raise the third value of net.ipv4.tcp_wmem, or net.core.wmem_max where the program sets SO_SNDBUF (`ss -tinm` \
                 tells: tb)"
            .to_owned(),
    };
    let found = Finding::new(rule, Confidence::Likely, sentence)
        .with("busy_ms", limited.busy_ms)
        .with("sndbuf_limited_ms", limited.limited_ms)
        .with("connections", limited.connections)
        .with("buffered_bytes", buffered)
        .explaining_latency(share);
    Judgement::Fault(match change {
        Some(change) => found.with_change(evidence, &change),
        None => found.with_remedy(remedy).with_proof("ss -tinm"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::testing::{PlantedLooks, number};

    fn row(rtt: &str, busy: u32, limited: u32) -> String {
        format!(
            "ESTAB 0 16000 10.0.0.1:50000 10.0.0.2:5201\n\t cubic rtt:{rtt}/1 minrtt:20 mss:1448 unacked:100 bytes_acked:{busy} \
             busy:{busy}ms sndbuf_limited:{limited}ms(5.0%)\n"
        )
    }

    #[test]
    fn limited_time_is_found_with_share() {
        let looks = PlantedLooks::new()
            .sockets(&row("20.5", 100_000, 90_000), &row("20.5", 110_000, 98_000))
            .same("proc/sys/net/ipv4/tcp_wmem", "4096 16384 4194304\n")
            .same("proc/sys/net/core/wmem_max", "212992\n");
        let found = looks.find(&RULE);
        assert_eq!(found.explains.latency_share, Some(0.8));
        assert!((number(&found, "sndbuf_limited_ms") - 8000.0).abs() < 1e-9);
        assert!(found.remedy.unwrap().contains("net.core.wmem_max (now 212992)"));
    }

    #[test]
    fn small_limit_of_the_kernel_is_named() {
        let looks = PlantedLooks::new()
            .sockets(&row("20.5", 0, 0), &row("20.5", 10_000, 8000))
            .same("proc/sys/net/ipv4/tcp_wmem", "4096 16384 32768\n");
        let found = looks.find(&RULE);
        assert_eq!(
            found.remedy.unwrap(),
            "latput set eth0 'tcp-wmem=4096 16384 6291456' --dry-run"
        );
        assert_eq!(
            found.prove.unwrap(),
            "latput tune eth0 --live --factor 'tcp-wmem=4096 16384 6291456'"
        );
    }

    #[test]
    fn full_path_or_old_time_is_healthy() {
        let queued = PlantedLooks::new().sockets(&row("90", 0, 0), &row("90", 10_000, 8000));
        assert_eq!(queued.judge(&RULE), Judgement::Healthy, "the path itself has a queue");
        let old =
            PlantedLooks::new().sockets(&row("20", 900_000, 900_000), &row("20", 910_000, 900_100));
        assert_eq!(old.judge(&RULE), Judgement::Healthy);
    }

    #[test]
    fn missing_connections_are_unseen() {
        let looks = PlantedLooks::new().seconds(5);
        assert_eq!(looks.judge(&RULE), Judgement::Unseen(EvidenceSource::Sockets));
    }
}
