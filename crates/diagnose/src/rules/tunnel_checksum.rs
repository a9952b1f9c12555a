//! `tunnel-checksum`: packets arrive with a wrong checksum, as a broken offload of tunnels makes them.

use crate::evidence::{Evidence, percent, share_of};
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::source::EvidenceSource;

/// The fewest wrong checksums among a million packets that are harm. Links have fewer than one in a million.
const LEAST_PER_MILLION: f64 = 100.0;
/// The fewest of either kind that say anything.
const LEAST_COUNT: u64 = 5;
/// Beginnings of the names that tunnels are given (Calico, Flannel, Cilium, Antrea, Open vSwitch, and the kernel's own).
const TUNNELS: &[&str] = &[
    "vxlan",
    "flannel",
    "geneve",
    "genev_sys",
    "cilium_vxlan",
    "cilium_geneve",
    "antrea-gw",
    "gre",
    "gretap",
    "tunl",
    "ipip",
];
/// Devices that are there wherever the kernel's module is.
const FALLBACKS: &[&str] = &["gre0", "gretap0", "tunl0"];

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "tunnel-checksum",
    subject: "checksums",
    mechanism: "A card or driver that computes the checksum inside a tunnel wrongly makes the receiver drop the packet \
                silently: the sender tries again after 1, 2, 4 seconds and more.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let wrong =
        evidence.protocol_sum(&["Tcp.InCsumErrors", "Udp.InCsumErrors", "Udp6.InCsumErrors"]);
    let Some(wrong) = wrong else { return Judgement::Unseen(EvidenceSource::Protocols) };
    let received =
        evidence.protocol_sum(&["Tcp.InSegs", "Udp.InDatagrams", "Udp6.InDatagrams"]).unwrap_or(0);
    let share = share_of(wrong, wrong + received);
    let tunnel = find_tunnel(evidence);
    if wrong < LEAST_COUNT || share * 1e6 < LEAST_PER_MILLION {
        return judge_sender(rule, evidence, tunnel.as_deref());
    }
    let sentence = format!(
        "{wrong} packets ({} of those received) had a wrong checksum and were dropped{}",
        percent(share),
        match &tunnel {
            Some(name) => format!("; there is a tunnel, {name}"),
            None => "; a broken offload of the sender, a broken card or memory, and a box that rewrites packets look alike \
                     here: checksums that are right with tx-checksum off on the sender tell"
                .to_owned(),
        }
    );
    let confidence = if tunnel.is_some() { Confidence::Likely } else { Confidence::Hint };
    let mut found = Finding::new(rule, confidence, sentence)
        .with("wrong_checksums", wrong)
        .with("received", received)
        .explaining_loss(share)
        .with_remedy(format!(
            "on the sender: latput set {} tx-checksum=off --dry-run",
            tunnel.as_deref().unwrap_or("IFACE")
        ))
        .with_proof("nstat -z TcpInCsumErrors UdpInCsumErrors");
    if let Some(tunnel) = tunnel {
        found = found.with("tunnel", tunnel);
    }
    Judgement::Fault(found)
}

/// The sender of such packets sees attempts to connect without an answer, while the rest of its traffic does well. A
/// firewall and a host that is down look alike.
fn judge_sender(rule: &Rule, evidence: &Evidence<'_>, tunnel: Option<&str>) -> Judgement {
    let attempts = evidence.protocol("TcpExt.TCPSynRetrans").unwrap_or(0);
    let Some(tunnel) = tunnel else { return Judgement::Healthy };
    let computes = evidence.ethtool("-k", "tx-udp_tnl-csum-segmentation");
    let is_offloaded = computes.is_none_or(|value| value.starts_with("on"));
    let opened = evidence.protocol("Tcp.ActiveOpens").unwrap_or(0);
    let is_harm = attempts >= LEAST_COUNT && attempts as f64 >= opened as f64 * 0.5;
    if !is_harm || !is_offloaded {
        return Judgement::Healthy;
    }
    let sentence = format!(
        "{attempts} attempts to connect were sent again ({opened} were begun), and there is a tunnel, {tunnel}: its checksums \
         may be wrong; a firewall or a host that is down look alike, `tcpdump -vv` at the other end tells"
    );
    Judgement::Fault(
        Finding::new(rule, Confidence::Hint, sentence)
            .with("syn_retransmits", attempts)
            .with("active_opens", opened)
            .with("tunnel", tunnel)
            .explaining_latency(share_of(attempts, attempts + opened))
            .with_remedy(format!("latput set {tunnel} tx-checksum=off --dry-run"))
            .with_proof("nstat -z TcpExtTCPSynRetrans; at the other end: nstat -z TcpInCsumErrors UdpInCsumErrors"),
    )
}

/// The name of a tunnel on this host: the interface itself, else another.
fn find_tunnel(evidence: &Evidence<'_>) -> Option<String> {
    let is_tunnel = |name: &str| TUNNELS.iter().any(|start| name.starts_with(start));
    let own = evidence.interface_name();
    if is_tunnel(own) {
        return Some(own.to_owned());
    }
    let [_, after] = evidence.looks();
    let mut names =
        after.texts_below("sys/class/net/").filter_map(|(rest, _)| rest.split('/').next());
    names.find(|name| is_tunnel(name) && !FALLBACKS.contains(name)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::testing::{PlantedLooks, number};

    fn wrong(count: u64) -> PlantedLooks {
        PlantedLooks::new().tcp(&[("InSegs", 50, 950), ("InCsumErrors", 70_000, 70_000 + count)])
    }

    #[test]
    fn wrong_checksums_with_tunnel_are_likely() {
        let found = wrong(100).same("sys/class/net/vxlan.calico/mtu", "1450\n").find(&RULE);
        assert!((number(&found, "wrong_checksums") - 100.0).abs() < 1e-9);
        assert_eq!((found.confidence, found.explains.loss_share), (Confidence::Likely, Some(0.1)));
        assert!(found.remedy.unwrap().contains("latput set vxlan.calico tx-checksum=off"));
    }

    #[test]
    fn wrong_checksums_alone_name_other_causes() {
        let found = wrong(100).find(&RULE);
        assert_eq!(found.confidence, Confidence::Hint);
        assert!(found.sentence.contains("a broken card"));
    }

    #[test]
    fn connects_without_answer_are_a_hint() {
        let looks = PlantedLooks::new()
            .tcp(&[("ActiveOpens", 0, 3), ("InSegs", 0, 900), ("InCsumErrors", 0, 0)])
            .tcp_ext(&[("TCPSynRetrans", 100, 112)]);
        assert_eq!(looks.judge(&RULE), Judgement::Healthy);
        let found = looks.same("sys/class/net/flannel.1/mtu", "1450\n").find(&RULE);
        assert!((number(&found, "syn_retransmits") - 12.0).abs() < 1e-9);
        assert_eq!(found.confidence, Confidence::Hint);
    }

    #[test]
    fn large_counter_that_stands_is_healthy() {
        let looks = wrong(0).same("sys/class/net/vxlan.calico/mtu", "1450\n");
        assert_eq!(looks.judge(&RULE), Judgement::Healthy);
    }

    #[test]
    fn missing_counters_are_unseen() {
        let looks = PlantedLooks::new().seconds(5);
        assert_eq!(looks.judge(&RULE), Judgement::Unseen(EvidenceSource::Protocols));
    }
}
