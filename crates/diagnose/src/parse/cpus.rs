//! Time and backlogs of CPUs.

use std::collections::BTreeMap;

use crate::parse::counters::MOST_COUNT;

/// Ticks of a CPU since boot, by the columns of `/proc/stat`, proc(5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuTicks {
    pub(crate) user: u64,
    pub(crate) nice: u64,
    pub(crate) system: u64,
    pub(crate) idle: u64,
    pub(crate) iowait: u64,
    pub(crate) irq: u64,
    pub(crate) softirq: u64,
    pub(crate) steal: u64,
}

/// Reads the lines `cpu0` and so on of `/proc/stat`.
pub(crate) fn parse_stat(text: &str) -> Option<BTreeMap<u32, CpuTicks>> {
    let mut found = BTreeMap::new();
    for line in text.lines() {
        // `cpu` without a number is the sum of all.
        let cpu =
            line.strip_prefix("cpu").filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        let Some(cpu) = cpu else { continue };
        let mut words = cpu.split_whitespace();
        let Some(Ok(number)) = words.next().map(str::parse::<u32>) else { continue };
        let mut next = || words.next()?.parse().ok().filter(|ticks: &u64| *ticks <= MOST_COUNT);
        let ticks = CpuTicks {
            user: next()?,
            nice: next()?,
            system: next()?,
            idle: next()?,
            iowait: next()?,
            irq: next()?,
            softirq: next()?,
            steal: next()?,
        };
        found.insert(number, ticks);
    }
    (!found.is_empty()).then_some(found)
}

/// A row of `/proc/net/softnet_stat` (`softnet_seq_show` of the kernel's net/core/net-procfs.c).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SoftnetRow {
    pub(crate) processed: u64,
    /// Packets for which the backlog had no room.
    pub(crate) dropped: u64,
    /// Times that the budget or its time was used up with work left.
    pub(crate) squeezed: u64,
    /// Packets that RPS sent here from another CPU.
    pub(crate) received_rps: u64,
    /// Packets that the flow limit dropped.
    pub(crate) flow_limited: u64,
}

/// Reads `/proc/net/softnet_stat`. Rows are those of CPUs that are online; newer kernels name the CPU in column 12.
pub(crate) fn parse_softnet(text: &str) -> Option<BTreeMap<u32, SoftnetRow>> {
    let mut found = BTreeMap::new();
    for (line, idx) in text.lines().zip(0..) {
        let words = line.split_whitespace().map(|word| u64::from_str_radix(word, 16).ok());
        let words = words.collect::<Option<Vec<u64>>>()?;
        let [processed, dropped, squeezed] = *words.first_chunk()?;
        let at = |idx: usize| words.get(idx).copied().unwrap_or(0);
        let cpu = words.get(12).map_or(Some(idx), |cpu| u32::try_from(*cpu).ok())?;
        let row =
            SoftnetRow { processed, dropped, squeezed, received_rps: at(9), flow_limited: at(10) };
        found.insert(cpu, row);
    }
    (!found.is_empty()).then_some(found)
}

/// Counts by softirq and CPU of `/proc/softirqs`: of `NET_RX`, one for each CPU of the first line.
pub(crate) fn parse_softirqs(text: &str) -> Option<BTreeMap<String, Vec<u64>>> {
    let mut lines = text.lines();
    let cpus = lines.next()?.split_whitespace().filter(|word| word.starts_with("CPU")).count();
    let mut found = BTreeMap::new();
    for line in lines {
        let (name, counts) = line.split_once(':')?;
        let counts =
            counts.split_whitespace().map(str::parse).collect::<Result<Vec<u64>, _>>().ok()?;
        if counts.len() != cpus {
            return None;
        }
        found.insert(name.trim().to_owned(), counts);
    }
    (!found.is_empty()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_has_a_row_for_each_cpu() {
        let text =
            "cpu  9 9 9 9 9 9 9 9\ncpu0 1 2 3 4 5 6 7 8 0 0\ncpu3 8 7 6 5 4 3 2 1 0 0\nintr 5\n";
        let found = parse_stat(text).unwrap();
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), [0, 3]);
        assert_eq!((found[&0].softirq, found[&3].steal), (7, 1));
        assert_eq!(parse_stat("cpu0 1 2 3\n"), None, "cut");
        let edited = format!("cpu0 1 2 3 {} 5 6 7 8\n", u64::MAX);
        assert_eq!(parse_stat(&edited), None, "no host has run for so long");
        assert_eq!(parse_stat("ctxt 5\n"), None);
    }

    #[test]
    fn softnet_rows_name_their_cpu() {
        let old = "0001f3f1 00000000 00000007 0 0 0 0 0 0 00000002 00000003\n";
        let row = parse_softnet(old).unwrap()[&0];
        assert_eq!((row.processed, row.squeezed), (0x1f3f1, 7));
        assert_eq!((row.received_rps, row.flow_limited), (2, 3));
        let new = "1 2 3 0 0 0 0 0 0 0 0 0 00000005 0 0\n";
        assert_eq!(parse_softnet(new).unwrap()[&5].dropped, 2);
        assert_eq!(parse_softnet("1 2\n"), None);
        assert_eq!(parse_softnet("1 2 zz\n"), None);
    }

    #[test]
    fn softirqs_have_a_count_for_each_cpu() {
        let text = "          CPU0 CPU1\n NET_TX: 1 2\n NET_RX: 30 40\n";
        assert_eq!(parse_softirqs(text).unwrap()["NET_RX"], [30, 40]);
        assert_eq!(parse_softirqs("   CPU0 CPU1\n NET_RX: 30\n"), None);
    }
}
