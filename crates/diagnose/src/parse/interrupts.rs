//! Interrupts by CPU.

use std::collections::BTreeMap;

use latput_units::CpuSet;

/// A line of `/proc/interrupts`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InterruptLine {
    /// Counts by the CPUs that the first line names.
    pub(crate) counts: BTreeMap<u32, u64>,
    /// The rest of the line: chip, trigger, and the names of the drivers' handlers.
    pub(crate) label: String,
}

/// Reads the numbered lines of `/proc/interrupts`.
pub(crate) fn parse_interrupts(text: &str) -> Option<BTreeMap<u32, InterruptLine>> {
    let mut lines = text.lines();
    let cpus = lines.next()?.split_whitespace().map(|word| word.strip_prefix("CPU")?.parse().ok());
    let cpus = cpus.collect::<Option<Vec<u32>>>()?;
    let mut found = BTreeMap::new();
    for line in lines {
        let Some((number, rest)) = line.split_once(':') else { continue };
        let Ok(number) = number.trim().parse() else { continue };
        let mut words = rest.split_whitespace();
        let counts = cpus.iter().map(|cpu| Some((*cpu, words.next()?.parse().ok()?)));
        let counts = counts.collect::<Option<BTreeMap<u32, u64>>>()?;
        found.insert(number, InterruptLine { counts, label: words.collect::<Vec<_>>().join(" ") });
    }
    (!cpus.is_empty() && !found.is_empty()).then_some(found)
}

/// Reads a list of CPUs such as `0-3,8`.
pub(crate) fn parse_cpu_list(text: &str) -> Option<Vec<u32>> {
    let cpus: CpuSet = text.parse().ok()?;
    Some(cpus.iter().map(|cpu| cpu.0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbered_lines_are_read_by_cpu() {
        let text = "           CPU0       CPU2\n 24:          1          5  PCI-MSIX-0000:00:01.0   0-edge      eth0-TxRx-0\nNMI:  0 0  Non-maskable\n";
        let found = parse_interrupts(text).unwrap();
        assert_eq!(found[&24].counts, BTreeMap::from([(0, 1), (2, 5)]));
        assert!(found[&24].label.ends_with("eth0-TxRx-0"));
        assert_eq!(found.len(), 1);
        assert_eq!(parse_interrupts(" CPU0 CPU1\n 24: 1\n"), None, "cut");
        assert_eq!(parse_interrupts(""), None);
    }

    #[test]
    fn cpu_lists_have_ranges() {
        assert_eq!(parse_cpu_list("0-2,8\n"), Some(vec![0, 1, 2, 8]));
        assert_eq!(parse_cpu_list("\n"), Some(vec![]));
        assert_eq!(parse_cpu_list("3-1"), None);
        assert_eq!(parse_cpu_list("x"), None);
    }
}
