//! `udp-receive-buffer`: a datagram that the receiver's socket has no room for is dropped.

use crate::evidence::Evidence;
use crate::finding::{Confidence, Finding, Judgement, Rule, Source};

/// The fewest errors among a million datagrams that are harm.
const LEAST_PER_MILLION: f64 = 100.0;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "udp-receive-buffer",
    subject: "UDP receive buffers",
    mechanism: "A datagram for a UDP socket whose receive buffer is full is dropped: the program reads too slowly, or the \
                buffer is too small for its bursts.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let Some(errors) = evidence.protocol("Udp.RcvbufErrors") else {
        return Judgement::Unseen(Source::Protocols);
    };
    let received = evidence.protocol("Udp.InDatagrams").unwrap_or(0);
    let share = errors as f64 / (errors + received).max(1) as f64;
    if errors == 0 || share * 1e6 < LEAST_PER_MILLION {
        return Judgement::Healthy;
    }
    let limit = evidence.sysctl("net/core/rmem_max");
    let is = limit.map(|limit| format!(" (now {limit})")).unwrap_or_default();
    let sentence = format!(
        "{errors} datagrams ({:.1}% of those received) found no room in the receive buffer of their UDP socket",
        share * 100.0
    );
    Judgement::Fault(
        Finding::new(rule, Confidence::Certain, sentence)
            .with("rcvbuf_errors", errors)
            .with("received_datagrams", received)
            .explaining_loss(share)
            .with_remedy(format!(
                "raise net.core.rmem_max{is}, which limits SO_RCVBUF, or let the program read faster"
            )),
    )
}
