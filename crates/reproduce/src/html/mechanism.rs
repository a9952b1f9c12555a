//! The subject and the mechanism of each file in two sentences.

use crate::delay_mtu;

/// Two sentences for each file: the measurement and its mechanism.
const MECHANISMS: [(&str, &str); 13] = [
    (
        "tcp_rr_aggregate",
        "Requests of one byte by outstanding number. Few in flight wait for the moderated \
      interrupt once or twice a round trip; many share interrupts, and the CPU cost per interrupt then decides.",
    ),
    (
        "tcp_rr_single",
        "One request at a time, with CPU. The rate is one over the round trip, and a free-running \
      throttle at either end adds part or all of its period.",
    ),
    (
        "tcp_stream",
        "Bulk transfer at line rate, with CPU. The link is the limit; interrupts saved by moderation \
      are CPU saved, most of all at the receiver.",
    ),
    (
        "binding_rr_single",
        "One request at a time with processes bound to CPUs. Away from the interrupts' CPU \
      each transaction pays for cold caches; throttles that slide past each other mix one and two periods.",
    ),
    (
        "binding_rr_aggregate_b128",
        "129 requests in flight, bound. On the interrupts' CPU one core does all; beside \
      it two share the work but pay for moving it.",
    ),
    (
        "binding_rr_32k_bidir",
        "Large requests and responses fill the link both ways. Binding changes CPU, not rate.",
    ),
    (
        "binding_tcp_stream",
        "Bulk transfer with processes bound. Segmentation by the NIC keeps the sender cheap; \
      the receiver pays per packet and per interrupt.",
    ),
    (
        "two_concurrent",
        "Two instances share both hosts. Whichever runs beside the interrupts gets the smaller share.",
    ),
    (
        "fq_codel_matrix",
        "A thousand downloads through one server. Receive work spread over all CPUs starves, and \
      queues before the NIC add the latency that fq_codel removes.",
    ),
    (
        "moderation_ping_idle",
        "Ping and idle time by interrupt frequency. Each host holds a packet for up to a \
      period, and every interrupt costs a fixed time.",
    ),
    (
        "device_polling",
        "Old hosts with interrupts and with polling. Interrupts take the CPU before the process \
      that should empty its socket, so datagrams are lost; polling bounds them.",
    ),
    (
        "irq_suspension",
        "A key-value server on eight cores by who polls its queues: interrupts, timers or the application. Suspended \
      interrupts leave all polls to a busy application and return when it has no work, so the cost follows the load.",
    ),
    (
        delay_mtu::FILE,
        "Bulk loads and file reads by receive delay and frame size, published as claims and not as cells. A delay costs a \
      stream nothing until its window is empty before the next interrupt, and costs a reader who waits for each answer at once.",
    ),
];

/// The sentences of a file; empty without any.
pub(super) fn find_mechanism(file: &str) -> &'static str {
    MECHANISMS.iter().find(|(name, _)| *name == file).map_or("", |it| it.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::FILES;

    #[test]
    fn every_file_has_a_mechanism() {
        for name in FILES.iter().map(|(name, _)| *name).chain([delay_mtu::FILE]) {
            let (_, words) = MECHANISMS.iter().find(|(file, _)| *file == name).expect(name);
            let sentences = words.matches(". ").count() + 1;
            assert!(words.ends_with('.') && sentences == 2, "{name}: {words}");
        }
    }
}
