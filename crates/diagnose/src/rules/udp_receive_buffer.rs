//! `udp-receive-buffer`: a datagram that the receiver's socket has no room for is dropped.

use crate::evidence::{CpuShares, Evidence, percent, share_of};
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::measures::cpus::is_receiver_full;
use crate::source::EvidenceSource;

/// The least part of datagrams that is harm: at 0.1% a congestion control such as QUIC's has no more than 39 packets in
/// flight (Mathis et al. 1997: 1.22 / sqrt(p)).
const LEAST_SHARE: f64 = 0.001;
/// The part of a CPU's time from which a program on it has none left to read.
const FULL: f64 = 0.95;
/// The part of the losses that stays with the buffer where another fault keeps its reader from reading.
const LEFT_OF_EFFECT: f64 = 0.2;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "udp-receive-buffer",
    subject: "UDP receive buffers",
    mechanism: "A datagram for a UDP socket whose receive buffer is full is dropped: the program reads too slowly, or the \
                buffer is too small for its bursts.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let sum =
        |name: &str| evidence.protocol_sum(&[&format!("Udp.{name}"), &format!("Udp6.{name}")]);
    let Some(errors) = sum("RcvbufErrors") else {
        return Judgement::Unseen(EvidenceSource::Protocols);
    };
    // Memory of all UDP sockets (`udp_mem`), counted beside the buffer of one.
    let memory = sum("MemErrors").unwrap_or(0);
    let lost = errors + memory;
    let received = sum("InDatagrams").unwrap_or(0);
    let share = share_of(lost, lost + received);
    if lost == 0 || share < LEAST_SHARE {
        return Judgement::Healthy;
    }
    // The reader gets no time beside softirqs that fill its CPU: `cpu-full-of-softirq` is the cause.
    let part = if is_receiver_full(evidence) { LEFT_OF_EFFECT } else { 1.0 };
    let sentence = format!(
        "{lost} datagrams ({} of those received) found no room in the receive buffer of their UDP socket",
        percent(share)
    );
    Judgement::Fault(
        Finding::new(rule, Confidence::Certain, sentence)
            .with("rcvbuf_errors", errors)
            .with("memory_errors", memory)
            .with("received_datagrams", received)
            .explaining_loss(share * part)
            .with_remedy(describe_remedy(evidence, errors, memory))
            .with_proof("nstat -z UdpRcvbufErrors Udp6RcvbufErrors UdpMemErrors; ss -uamn"),
    )
}

/// Names the limit that bit. The counters do not tell whether the program sets its buffer itself.
fn describe_remedy(evidence: &Evidence<'_>, errors: u64, memory: u64) -> String {
    let now =
        |name: &str| evidence.sysctl(name).map(|is| format!(" (now {is})")).unwrap_or_default();
    if memory > errors {
        return format!(
            "raise net.ipv4.udp_mem{}, the memory of all UDP sockets together",
            now("net/ipv4/udp_mem")
        );
    }
    let is_full = |cpu: &CpuShares| cpu.programs >= FULL;
    if evidence.cpus().is_some_and(|cpus| cpus.values().any(is_full)) {
        return "let the program read faster (recvmmsg, more threads, SO_REUSEPORT): a CPU has no time left for it, and a \
                larger buffer (net.core.rmem_max) only delays the loss"
            .to_owned();
    }
    format!(
        "raise net.core.rmem_max{}, which limits SO_RCVBUF, or net.core.rmem_default{} if the program sets no SO_RCVBUF \
         (`ss -uamn` tells: rb), or let the program read faster",
        now("net/core/rmem_max"),
        now("net/core/rmem_default")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::testing::{PlantedLooks, number};

    #[test]
    fn growing_errors_are_found_with_share() {
        let looks = PlantedLooks::new()
            .udp(&[("InDatagrams", 1000, 91_000), ("RcvbufErrors", 7, 10_007), ("MemErrors", 0, 0)])
            .same("proc/sys/net/core/rmem_max", "212992\n");
        let found = looks.find(&RULE);
        assert!(found.sentence.starts_with("10000 datagrams (10% of"), "{}", found.sentence);
        assert!((number(&found, "rcvbuf_errors") - 10_000.0).abs() < 1e-9);
        assert!(found.remedy.unwrap().contains("net.core.rmem_max (now 212992)"));
    }

    #[test]
    fn errors_of_ipv6_count() {
        let texts = [
            "Udp6InDatagrams 10\nUdp6RcvbufErrors 0\n",
            "Udp6InDatagrams 110\nUdp6RcvbufErrors 100\n",
        ];
        let found = PlantedLooks::new().text("proc/net/snmp6", texts[0], texts[1]).find(&RULE);
        assert_eq!(found.explains.loss_share, Some(0.5));
    }

    #[test]
    fn memory_of_all_sockets_is_named() {
        let looks = PlantedLooks::new().udp(&[
            ("InDatagrams", 0, 500),
            ("RcvbufErrors", 0, 0),
            ("MemErrors", 0, 90),
        ]);
        assert!(looks.find(&RULE).remedy.unwrap().contains("udp_mem"));
    }

    #[test]
    fn full_cpu_blames_the_reader() {
        let looks = PlantedLooks::new()
            .udp(&[("InDatagrams", 0, 500), ("RcvbufErrors", 0, 90)])
            .text("proc/stat", "cpu0 0 0 0 0 0 0 0 0\n", "cpu0 900 0 90 0 0 0 10 0\n");
        assert!(looks.find(&RULE).remedy.unwrap().starts_with("let the program read faster"));
    }

    #[test]
    fn large_counter_that_stands_is_healthy() {
        let looks = PlantedLooks::new()
            .udp(&[("InDatagrams", 0, 90_000), ("RcvbufErrors", 8_000_000, 8_000_000)]);
        assert_eq!(looks.judge(&RULE), Judgement::Healthy);
        let few = PlantedLooks::new().udp(&[("InDatagrams", 0, 9_000_000), ("RcvbufErrors", 0, 3)]);
        assert_eq!(few.judge(&RULE), Judgement::Healthy);
    }

    #[test]
    fn missing_counters_are_unseen() {
        let looks = PlantedLooks::new().tcp(&[("InSegs", 1, 2)]);
        assert_eq!(looks.judge(&RULE), Judgement::Unseen(EvidenceSource::Protocols));
    }
}
