//! `udp-send-buffer`: a datagram that the sender's socket has no room for is refused.

use crate::evidence::Evidence;
use crate::finding::{Confidence, Finding, Judgement, Rule, Source};

/// The fewest errors among a million datagrams that are harm.
const LEAST_PER_MILLION: f64 = 100.0;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "udp-send-buffer",
    subject: "UDP send buffers",
    mechanism: "A UDP socket whose send buffer is full refuses the datagram, or makes the program wait.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let Some(errors) = evidence.protocol("Udp.SndbufErrors") else {
        return Judgement::Unseen(Source::Protocols);
    };
    // The kernel counts a refused datagram among neither those sent nor those received.
    let sent = evidence.protocol("Udp.OutDatagrams").unwrap_or(0);
    let share = errors as f64 / (errors + sent).max(1) as f64;
    if errors == 0 || share * 1e6 < LEAST_PER_MILLION {
        return Judgement::Healthy;
    }
    let limit = evidence.sysctl("net/core/wmem_max");
    let is = limit.map(|limit| format!(" (now {limit})")).unwrap_or_default();
    let sentence = format!(
        "{errors} datagrams ({:.1}% of those sent) found no room in the send buffer of their UDP socket",
        share * 100.0
    );
    Judgement::Fault(
        Finding::new(rule, Confidence::Certain, sentence)
            .with("sndbuf_errors", errors)
            .with("sent_datagrams", sent)
            .explaining_loss(share)
            .with_remedy(format!(
                "raise net.core.wmem_max{is}, which limits SO_SNDBUF, or have the program send less at once"
            )),
    )
}
