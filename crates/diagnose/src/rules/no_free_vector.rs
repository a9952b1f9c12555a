//! `no-free-vector`: a CPU has no interrupt vector left, so that interrupts go elsewhere.

use crate::evidence::Evidence;
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::measures::cpus::{find_fullest_cpu, kernel_share};
use crate::measures::queues::find_receive_interrupts;
use crate::parse::interrupts::parse_cpu_list;
use crate::source::EvidenceSource;

/// The kernel's table of vectors on x86 (needs debugfs).
const TABLE: &str = "sys/kernel/debug/irq/domains/VECTOR";
/// The words of x86's `activate_reserved` (arch/x86/kernel/apic/vector.c).
const KERNEL_WORDS: &str = "Affinity broken due to vector space exhaustion";

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "no-free-vector",
    subject: "free interrupt vectors",
    mechanism: "A CPU of x86 has some 200 vectors for devices; when they are used up, the kernel refuses to place an interrupt \
                there (ENOSPC) and leaves it on another CPU.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let table = evidence.text(TABLE).and_then(parse_table);
    let misplaced = find_misplaced(evidence);
    let said = count_complaints(evidence);
    if table.is_none() && misplaced.is_none() && said.is_none() {
        return Judgement::Unseen(EvidenceSource::Interrupts);
    }
    let said = said.unwrap_or(0);
    let VectorTable { exhausted, free } = table.unwrap_or_default();
    let misplaced = misplaced.unwrap_or_default();
    // A full CPU hurts only where an interrupt was to be placed on it.
    let is_wanted =
        |(_, wanted): &&(u32, Vec<u32>)| wanted.iter().any(|cpu| exhausted.contains(cpu));
    let is_named = |(number, _): &&(u32, Vec<u32>)| has_complaint_of(evidence, *number);
    let found = misplaced.iter().find(is_wanted).or_else(|| misplaced.iter().find(is_named));
    let Some((number, wanted)) = found.or_else(|| misplaced.first().filter(|_| said > 0)) else {
        return Judgement::Healthy;
    };
    let list = |cpus: &[u32]| cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let reason = if exhausted.is_empty() {
        "the kernel says that vectors are used up".to_owned()
    } else {
        format!("CPUs {} have none left", list(&exhausted))
    };
    let sentence =
        format!("interrupt {number} is not where it was put (CPUs {}): {reason}", list(wanted));
    let mut finding = Finding::new(rule, Confidence::Certain, sentence)
            .with("misplaced_interrupts", misplaced.len() as u64)
            .with("exhausted_cpus", list(&exhausted))
            .with("complaints", said)
            .with_remedy(format!(
                "free vectors with fewer queues (`combined-channels`), or take other CPUs: latput set {} smp-affinity={} --dry-run",
                evidence.interface_name(),
                if free.is_empty() { "hint".to_owned() } else { list(&free) }
            ));
    if let Some(share) = waits_for_others(evidence, misplaced.len()) {
        finding = finding.explaining_latency(share);
    }
    Judgement::Fault(finding)
}

/// The part of the time that the fullest CPU is busy with packets, as far as interrupts that belong elsewhere are the cause:
/// as in a queue of one server, that part is waiting.
fn waits_for_others(evidence: &Evidence<'_>, misplaced: usize) -> Option<f64> {
    let (_, shares) = find_fullest_cpu(evidence)?;
    let all = find_receive_interrupts(evidence)?.len();
    Some(kernel_share(&shares) * misplaced as f64 / all.max(1) as f64)
}

/// CPUs without a free vector, and with some.
#[derive(Debug, Default)]
struct VectorTable {
    exhausted: Vec<u32>,
    free: Vec<u32>,
}

/// Reads the rows of the table: `CPU avl man mac act vectors`.
fn parse_table(table: &str) -> Option<VectorTable> {
    let rows = table.lines().skip_while(|line| !line.contains("| CPU | avl")).skip(1);
    let mut found = VectorTable::default();
    for row in rows {
        let mut words = row.split_whitespace();
        let (Some(cpu), Some(free)) = (words.next(), words.next()) else { continue };
        let (Ok(cpu), Ok(free)) = (cpu.parse(), free.parse::<u32>()) else { continue };
        if free == 0 { found.exhausted.push(cpu) } else { found.free.push(cpu) }
    }
    let is_read = !found.exhausted.is_empty() || !found.free.is_empty();
    is_read.then_some(found)
}

/// Receive interrupts that are on none of the CPUs that they may use, with those CPUs.
fn find_misplaced(evidence: &Evidence<'_>) -> Option<Vec<(u32, Vec<u32>)>> {
    let mut is_read = false;
    let mut misplaced = Vec::new();
    for line in find_receive_interrupts(evidence)? {
        let list = |file: &str| {
            evidence.text(&format!("proc/irq/{}/{file}", line.number)).and_then(parse_cpu_list)
        };
        let (Some(wanted), Some(is)) = (list("smp_affinity_list"), list("effective_affinity_list"))
        else {
            continue;
        };
        is_read = true;
        if !is.is_empty() && !wanted.is_empty() && is.iter().all(|cpu| !wanted.contains(cpu)) {
            misplaced.push((line.number, wanted));
        }
    }
    is_read.then_some(misplaced)
}

/// Whether the kernel's log complains of this interrupt. It does so once, when the interrupt is started or moved, which may
/// be long ago; that the interrupt is not where it should be is so now.
fn has_complaint_of(evidence: &Evidence<'_>, number: u32) -> bool {
    let words = format!("irq {number}: {KERNEL_WORDS}");
    evidence.text("dmesg").is_some_and(|text| text.contains(&words))
}

/// Lines of the kernel's log that complain, and were not there before.
fn count_complaints(evidence: &Evidence<'_>) -> Option<u64> {
    let count = |text: &str| text.lines().filter(|line| line.contains(KERNEL_WORDS)).count() as u64;
    let [before, after] = evidence.looks().map(|look| look.text("dmesg").map(count));
    Some(after?.saturating_sub(before?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::fixture::Fixture;

    fn host(wanted: &str, is: &str, free: u32) -> Fixture {
        let table = format!(
            "name:   VECTOR\n size:   0\nOnline bitmaps:        2\n | CPU | avl | man | mac | act | vectors\n\
             {:>6}   183     1     1   18  33-50\n{:>6}   {free:>3}     1     1  201  33-236\n",
            0, 1
        );
        Fixture::new()
            .interrupts(&[("eth0-TxRx-0", &[900, 0])])
            .fixed("proc/irq/24/smp_affinity_list", wanted)
            .fixed("proc/irq/24/effective_affinity_list", is)
            .fixed(TABLE, &table)
    }

    #[test]
    fn interrupt_of_full_cpu_is_found() {
        let found = host("1\n", "0\n", 0).fault(&RULE);
        let expected = "interrupt 24 is not where it was put (CPUs 1): CPUs 1 have none left";
        assert_eq!(found.sentence, expected);
        assert!(found.remedy.unwrap().ends_with("latput set eth0 smp-affinity=0 --dry-run"));
    }

    #[test]
    fn kernel_message_tells_without_table() {
        let line = "[  218.0] irq 24: Affinity broken due to vector space exhaustion.\n";
        let placed = |fixture: Fixture| {
            fixture
                .interrupts(&[("eth0-TxRx-0", &[900, 0])])
                .fixed("proc/irq/24/smp_affinity_list", "1\n")
                .fixed("proc/irq/24/effective_affinity_list", "0\n")
        };
        placed(Fixture::new().grown("dmesg", "", line)).fault(&RULE);
        placed(Fixture::new().fixed("dmesg", line)).fault(&RULE);
        let other = line.replace("24", "99");
        placed(Fixture::new().fixed("dmesg", &other)).assert_healthy(&RULE);
    }

    #[test]
    fn placed_interrupts_are_silent() {
        host("1\n", "1\n", 0).assert_healthy(&RULE);
        host("0-1\n", "0\n", 5).assert_healthy(&RULE);
        Fixture::new().assert_unseen(&RULE, EvidenceSource::Interrupts);
    }
}
