//! `mtu-mismatch`: packets are larger than an interface takes.

use crate::evidence::{Evidence, SocketGrowth, percent, share_of};
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::source::EvidenceSource;

/// The fewest lost packets among a million that are harm.
const LEAST_PER_MILLION: f64 = 100.0;
/// The least part of packets in pieces that is harm: each piece costs as much CPU time as a packet, and one that is lost
/// loses all.
const LEAST_IN_PIECES: f64 = 0.2;
/// The fewest packets that say anything: finding the path's MTU costs one for each destination.
const LEAST_COUNT: u64 = 10;
/// Counters of drivers for frames that are dropped because they are too long.
const TOO_LONG: &[&str] = &[
    "rx_length_errors",          // i40e and most others, as the interface has it
    "rx_long_length_errors",     // e1000e, igb
    "rx_oversize_pkts_phy",      // mlx5
    "rx_oversize_pkts_sw_drop",  // mlx5
    "port.rx_oversize",          // i40e
    "rx_oversize.nic",           // ice
    "rx_mtu_err_frames",         // bnxt
    "rx_drops_packet_over_mru*", // gve
];

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "mtu-mismatch",
    subject: "sizes of packets",
    mechanism: "A packet larger than an interface takes is dropped, or cut into pieces of which one lost loses all: the ends or \
                two interfaces of this host have different MTUs.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    // Counters of one driver overlap: the largest is the count.
    let by_driver = TOO_LONG.iter().filter_map(|name| evidence.driver(&[*name])).max();
    let too_long = by_driver.max(evidence.statistic("rx_length_errors"));
    let refused = evidence.protocol_sum(&["Ip.FragFails", "Icmp6.OutPktTooBigs"]);
    if too_long.is_none() && refused.is_none() {
        return Judgement::Unseen(EvidenceSource::Interface);
    }
    let received = evidence.received_packets().unwrap_or(0);
    let candidates = [
        judge_long_frames(rule, evidence, too_long.unwrap_or(0), received),
        judge_refused(rule, evidence, refused.unwrap_or(0)),
        judge_pieces(rule, evidence),
        judge_told(rule, evidence),
    ];
    candidates.into_iter().flatten().next().map_or(Judgement::Healthy, Judgement::Fault)
}

fn is_harm(count: u64, share: f64) -> bool {
    count >= LEAST_COUNT && share * 1e6 >= LEAST_PER_MILLION
}

fn own_mtu(evidence: &Evidence<'_>) -> String {
    evidence.sysfs("mtu").map(|mtu| format!(" ({mtu})")).unwrap_or_default()
}

/// Frames of the peer that are longer than this interface takes.
fn judge_long_frames(
    rule: &Rule,
    evidence: &Evidence<'_>,
    count: u64,
    received: u64,
) -> Option<Finding> {
    let share = share_of(count, count + received);
    if !is_harm(count, share) {
        return None;
    }
    let name = evidence.interface_name();
    let sentence = format!(
        "{count} frames ({} of those received) were longer than the MTU of {name}{} allows: the other end has a larger one",
        percent(share),
        own_mtu(evidence)
    );
    Some(
        Finding::new(rule, Confidence::Likely, sentence)
            .with("too_long_frames", count)
            .with("received_packets", received)
            .explaining_loss(share)
            .with_change(evidence, "mtu=9000")
            .with_remedy(format!(
                "give both ends the same MTU: the smaller one to the other end, or latput set {name} mtu=9000 --dry-run here"
            )),
    )
}

/// Packets that this host must not cut and cannot send whole: it tells the sender so, and drops them.
fn judge_refused(rule: &Rule, evidence: &Evidence<'_>, count: u64) -> Option<Finding> {
    let sent = evidence
        .protocol_sum(&[
            "Ip.OutRequests",
            "Ip.ForwDatagrams",
            "Ip6.OutRequests",
            "Ip6.OutForwDatagrams",
        ])
        .unwrap_or(0);
    let share = share_of(count, count + sent);
    if !is_harm(count, share) {
        return None;
    }
    let sentence = format!(
        "{count} packets ({} of those to send) were larger than the MTU of their way out and must not be cut: they were dropped, \
         and the sender told",
        percent(share)
    );
    Some(
        Finding::new(rule, Confidence::Likely, sentence)
            .with("refused_packets", count)
            .with("sent_packets", sent)
            .explaining_loss(share)
            .with_remedy(format!(
                "give the interfaces of this way the same MTU, or let the router limit the segments of TCP (iptables TCPMSS \
                 --clamp-mss-to-pmtu); {} has{}",
                evidence.interface_name(),
                own_mtu(evidence)
            ))
            .with_proof("nstat -z IpFragFails Icmp6OutPktTooBigs; tracepath -n PEER"),
    )
}

/// Packets that routers could not pass on: they tell this host so, whose connections then send smaller ones.
fn judge_told(rule: &Rule, evidence: &Evidence<'_>) -> Option<Finding> {
    let mtu = evidence.sysfs("mtu")?.parse::<f64>().ok()?;
    let told = evidence.protocol_sum(&["Icmp.InDestUnreachs", "Icmp6.InPktTooBigs"])?;
    let sent = evidence.protocol_sum(&["Ip.OutRequests", "Ip6.OutRequests"]).unwrap_or(0);
    let share = share_of(told, told + sent);
    let active = evidence.active_connections()?;
    let is_smaller =
        |one: &&SocketGrowth<'_>| one.now.figure("pmtu").is_some_and(|path| path < mtu);
    let smaller = active.iter().filter(is_smaller).count();
    if !is_harm(told, share) || smaller == 0 || smaller * 2 < active.len() {
        return None;
    }
    let sentence = format!(
        "{told} messages told this host that a packet did not arrive, and the paths of {smaller} of {} connections take less \
         than the MTU{}: the first large packets of each are lost",
        active.len(),
        own_mtu(evidence)
    );
    Some(
        Finding::new(rule, Confidence::Hint, sentence)
            .with("unreachable_messages", told)
            .with("connections_of_smaller_paths", smaller as u64)
            .explaining_loss(share)
            .with_remedy(format!(
                "give this interface the MTU of its paths, or the routes to them (`ip route change ... mtu 1500`): latput set {} \
                 mtu=1500 --dry-run",
                evidence.interface_name()
            ))
            .with_proof("nstat -z IcmpInDestUnreachs; ss -tin; tracepath -n PEER"),
    )
}

/// Datagrams that travel in pieces.
fn judge_pieces(rule: &Rule, evidence: &Evidence<'_>) -> Option<Finding> {
    let made = evidence.protocol_sum(&["Ip.FragCreates", "Ip6.FragCreates"]).unwrap_or(0);
    let got = evidence.protocol_sum(&["Ip.ReasmReqds", "Ip6.ReasmReqds"]).unwrap_or(0);
    let failed = evidence.protocol_sum(&["Ip.ReasmFails", "Ip6.ReasmFails"]).unwrap_or(0);
    let sent = evidence.protocol_sum(&["Ip.OutRequests", "Ip6.OutRequests"]).unwrap_or(0);
    let received = evidence.protocol_sum(&["Ip.InReceives", "Ip6.InReceives"]).unwrap_or(0);
    let in_pieces = share_of(made, made + sent).max(share_of(got, received.max(got)));
    let lost = share_of(failed, received.max(failed));
    if !is_harm(failed, lost) && (in_pieces < LEAST_IN_PIECES || made.max(got) < LEAST_COUNT) {
        return None;
    }
    let sentence = format!(
        "datagrams are larger than the MTU{}: {made} pieces were sent and {got} received ({} of the packets), {failed} were lost \
         for want of the others",
        own_mtu(evidence),
        percent(in_pieces)
    );
    let confidence = if is_harm(failed, lost) { Confidence::Likely } else { Confidence::Hint };
    Some(
        Finding::new(rule, confidence, sentence)
            .with("pieces_sent", made)
            .with("pieces_received", got)
            .with("reassembly_failures", failed)
            .explaining_loss(lost)
            .with_remedy(format!(
                "let the program send datagrams that fit, or raise the MTU on the whole way: latput set {} mtu=9000 --dry-run",
                evidence.interface_name()
            ))
            .with_proof("nstat -z IpFragCreates IpReasmReqds IpReasmFails"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::testing::{PlantedLooks, number};

    fn received(before: &str, after: &str) -> PlantedLooks {
        PlantedLooks::new()
            .text("sys/class/net/eth0/statistics/rx_packets", "100\n", "9100\n")
            .text("ethtool_-S_eth0", before, after)
            .same("sys/class/net/eth0/mtu", "1500\n")
    }

    #[test]
    fn long_frames_are_found_with_share() {
        let driver = |count: u64| {
            format!(
                "NIC statistics:\n     rx_length_errors: {count}\n     rx_long_length_errors: {count}\n"
            )
        };
        let found = received(&driver(50), &driver(1050)).find(&RULE);
        assert!((number(&found, "too_long_frames") - 1000.0).abs() < 1e-9);
        assert!(found.sentence.contains("MTU of eth0 (1500)"), "{}", found.sentence);
        assert_eq!(found.explains.loss_share, Some(0.1));
        let old = driver(9_000_000);
        assert_eq!(received(&old, &old).judge(&RULE), Judgement::Healthy);
    }

    #[test]
    fn refused_packets_are_found() {
        let looks = PlantedLooks::new().ip(&[
            ("ForwDatagrams", 0, 900),
            ("OutRequests", 0, 0),
            ("FragFails", 7, 107),
        ]);
        assert!((number(&looks.find(&RULE), "refused_packets") - 100.0).abs() < 1e-9);
        let few = PlantedLooks::new().ip(&[("OutRequests", 0, 9000), ("FragFails", 7, 12)]);
        assert_eq!(few.judge(&RULE), Judgement::Healthy);
    }

    #[test]
    fn datagrams_in_pieces_are_a_hint() {
        let looks = PlantedLooks::new().ip(&[
            ("OutRequests", 0, 1000),
            ("FragFails", 0, 0),
            ("FragCreates", 0, 6000),
        ]);
        let found = looks.find(&RULE);
        assert_eq!(found.confidence, Confidence::Hint);
        assert!((number(&found, "pieces_sent") - 6000.0).abs() < 1e-9);
    }

    #[test]
    fn smaller_paths_that_are_told_are_a_hint() {
        let row = |bytes: u32, pmtu: u32| {
            format!(
                "ESTAB 0 0 10.0.0.1:443 10.0.0.2:50000\n\t cubic mss:1448 pmtu:{pmtu} bytes_acked:{bytes}\n"
            )
        };
        let looks = |pmtu: u32| {
            PlantedLooks::new()
                .text(
                    "proc/net/snmp",
                    "Ip: OutRequests FragFails\nIp: 0 0\nIcmp: InDestUnreachs\nIcmp: 70\n",
                    "Ip: OutRequests FragFails\nIp: 9000 0\nIcmp: InDestUnreachs\nIcmp: 170\n",
                )
                .same("sys/class/net/eth0/mtu", "9000\n")
                .sockets(&row(5, pmtu), &row(900, pmtu))
        };
        let found = looks(1500).find(&RULE);
        assert!((number(&found, "unreachable_messages") - 100.0).abs() < 1e-9);
        assert_eq!(found.confidence, Confidence::Hint);
        assert_eq!(looks(9000).judge(&RULE), Judgement::Healthy);
    }

    #[test]
    fn missing_counters_are_unseen() {
        let looks = PlantedLooks::new().seconds(5);
        assert_eq!(looks.judge(&RULE), Judgement::Unseen(EvidenceSource::Interface));
    }
}
