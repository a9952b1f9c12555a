//! `conntrack`: connection tracking is full and drops packets.

use std::collections::BTreeMap;

use crate::evidence::{Evidence, growth_of, percent, share_of};
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::snapshot::Look;
use crate::source::EvidenceSource;

/// The part of its limit from which the table is full.
const FULL: f64 = 0.95;
/// The fewest lost packets among a million that are harm.
const LEAST_PER_MILLION: f64 = 100.0;
/// The fewest lost packets that say anything, of a cause that is not certain.
const LEAST_COUNT: u64 = 10;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "conntrack",
    subject: "connection tracking",
    mechanism: "Each connection through a stateful firewall or NAT takes an entry of a table; when it is full, packets of new \
                connections are dropped, and their senders wait a second and more.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let grown = compare_counters(evidence);
    let read = |name: &str| evidence.sysctl(&format!("net/netfilter/{name}"))?.parse::<u64>().ok();
    let (used, most) = (read("nf_conntrack_count"), read("nf_conntrack_max"));
    if grown.is_none() && (used.is_none() || most.is_none()) {
        return Judgement::Unseen(EvidenceSource::Conntrack);
    }
    let fill = used.zip(most).map(|(used, most)| share_of(used, most));
    let counters = grown.unwrap_or_default();
    let count = |name: &str| counters.get(name).copied().unwrap_or(0);
    let (dropped, evicted, collided) = (count("drop"), count("early_drop"), count("insert_failed"));
    let received = evidence.received_packets().unwrap_or(0);
    let share = share_of(dropped, dropped + received);
    let is_full = fill.is_some_and(|fill| fill >= FULL);
    let table =
        used.zip(most).map(|(used, most)| format!(" (the table has {used} of {most} entries)"));
    let table = table.unwrap_or_default();
    let collisions = share_of(collided, collided + received);
    let is_loss = dropped > 0 && (is_full || share * 1e6 >= LEAST_PER_MILLION);
    let (sentence, confidence) = if is_loss {
        (format!("connection tracking dropped {dropped} packets{table}"), Confidence::Certain)
    } else if evicted > 0 && is_full {
        (
            format!("connection tracking threw out {evicted} connections to make room{table}"),
            Confidence::Certain,
        )
    } else if counters.is_empty() && fill.is_some_and(|fill| fill >= 1.0) {
        (
            format!("connection tracking is full{table}: new connections are dropped"),
            Confidence::Likely,
        )
    } else if collided >= LEAST_COUNT && collisions * 1e6 >= LEAST_PER_MILLION {
        let told = format!(
            "connection tracking dropped {collided} packets whose entry another packet had just made ({} of those received)",
            percent(collisions)
        );
        (told, Confidence::Hint)
    } else {
        return Judgement::Healthy;
    };
    let mut found = Finding::new(rule, confidence, sentence)
        .with("dropped", dropped)
        .with("early_dropped", evicted)
        .with("insert_failed", collided)
        .explaining_loss(share.max(if dropped == 0 { collisions } else { 0.0 }))
        .with_remedy(describe_remedy(most, dropped + evicted == 0 && !is_full))
        .with_proof("conntrack -S; sysctl net.netfilter.nf_conntrack_count");
    for (name, value) in [("entries", used), ("most_entries", most)] {
        if let Some(value) = value {
            found = found.with(name, value);
        }
    }
    Judgement::Fault(found)
}

fn describe_remedy(most: Option<u64>, is_collision: bool) -> String {
    if is_collision {
        return "queries from one port to one address collide (DNS for A and AAAA): let the resolver use single-request-reopen, or \
                do not track them (nft notrack)"
            .to_owned();
    }
    let now = most.map(|most| format!(" (now {most})")).unwrap_or_default();
    format!(
        "raise net.netfilter.nf_conntrack_max{now}, shorten net.netfilter.nf_conntrack_tcp_timeout_established (five days by \
         default), or do not track this traffic (nft notrack)"
    )
}

/// Growth of the counters of all CPUs; `None` where either look lacks them.
fn compare_counters(evidence: &Evidence<'_>) -> Option<BTreeMap<String, u64>> {
    let [before, after] = evidence.looks().map(read_counters);
    let (before, after) = (before?, after?);
    let grown = after.into_iter().filter_map(|(name, now)| {
        let growth = growth_of(*before.get(&name)?, now)?;
        Some((name, growth))
    });
    Some(grown.collect())
}

/// The counters of all CPUs, added up, from the kernel's file or from `conntrack -S`.
fn read_counters(look: &Look) -> Option<BTreeMap<String, u64>> {
    if let Some(text) = look.text("proc/net/stat/nf_conntrack") {
        return parse_table(text);
    }
    let mut sums = BTreeMap::<String, u64>::new();
    for word in look.text("conntrack_-S")?.split_whitespace() {
        let Some((name, count)) = word.split_once('=') else { continue };
        let sum = sums.entry(name.to_owned()).or_default();
        *sum = sum.wrapping_add(count.parse().ok()?);
    }
    (!sums.is_empty()).then_some(sums)
}

/// Reads a line of names, and a line of hexadecimal counts for each CPU.
fn parse_table(text: &str) -> Option<BTreeMap<String, u64>> {
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next()?.split_whitespace().collect();
    let mut sums = BTreeMap::<String, u64>::new();
    for line in lines {
        for (name, count) in names.iter().zip(line.split_whitespace()) {
            let sum = sums.entry((*name).to_owned()).or_default();
            *sum = sum.wrapping_add(u64::from_str_radix(count, 16).ok()?);
        }
    }
    (!sums.is_empty()).then_some(sums)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::testing::{PlantedLooks, number};

    const NAMES: &str = "entries  searched found new invalid ignore delete delete_list insert insert_failed drop early_drop\n";

    fn looks(used: &str, failed: u64, drops: u64, early: u64) -> PlantedLooks {
        let text = |at: u64| {
            let row = |base: u64| {
                format!(
                    "0000ffff 0 00000005 0 0 0 0 0 0 {:08x} {:08x} {:08x}\n",
                    base + at * failed,
                    base + at * drops,
                    base + at * early
                )
            };
            format!("{NAMES}{}{}", row(0x9000), row(0xa000))
        };
        PlantedLooks::new()
            .text("proc/net/stat/nf_conntrack", &text(0), &text(1))
            .same("proc/sys/net/netfilter/nf_conntrack_count", used)
            .same("proc/sys/net/netfilter/nf_conntrack_max", "65536\n")
            .text("sys/class/net/eth0/statistics/rx_packets", "0\n", "99800\n")
    }

    #[test]
    fn drops_of_all_cpus_are_found() {
        let found = looks("65536\n", 0, 100, 0).find(&RULE);
        assert!((number(&found, "dropped") - 200.0).abs() < 1e-9);
        assert_eq!(
            (found.confidence, found.explains.loss_share),
            (Confidence::Certain, Some(0.002))
        );
        assert!(found.remedy.unwrap().contains("nf_conntrack_max (now 65536)"));
    }

    #[test]
    fn evictions_and_collisions_are_told_apart() {
        assert!(
            looks("65000\n", 0, 0, 50).find(&RULE).sentence.contains("threw out 100 connections")
        );
        let collided = looks("100\n", 50, 0, 0).find(&RULE);
        assert_eq!(collided.confidence, Confidence::Hint);
        assert!(collided.remedy.unwrap().contains("single-request-reopen"));
    }

    #[test]
    fn full_table_without_counters_is_likely() {
        let looks = PlantedLooks::new()
            .same("proc/sys/net/netfilter/nf_conntrack_count", "4096\n")
            .same("proc/sys/net/netfilter/nf_conntrack_max", "4096\n");
        assert_eq!(looks.find(&RULE).confidence, Confidence::Likely);
    }

    #[test]
    fn large_counters_that_stand_are_healthy() {
        assert_eq!(looks("65000\n", 0, 0, 0).judge(&RULE), Judgement::Healthy);
        assert_eq!(looks("100\n", 1, 1, 9).judge(&RULE), Judgement::Healthy);
    }

    #[test]
    fn output_of_the_tool_is_read() {
        let text = |drops: u32| {
            format!(
                "cpu=0 found=5 insert=0 drop={drops} early_drop=0\ncpu=1 found=9 drop={drops}\n"
            )
        };
        let looks = PlantedLooks::new().text("conntrack_-S", &text(1), &text(4));
        assert!((number(&looks.find(&RULE), "dropped") - 6.0).abs() < 1e-9);
    }

    #[test]
    fn host_without_tracking_is_unseen() {
        let looks = PlantedLooks::new().seconds(5);
        assert_eq!(looks.judge(&RULE), Judgement::Unseen(EvidenceSource::Conntrack));
    }
}
