//! Readers of the kernel's counter files: pure functions over the bytes of `/proc` files.

use latput_trial::observation::{CpuObservation, CpuTime};
use latput_units::{CpuId, CpuSet, Nanos};

use crate::error::Error;

/// Protocol counters of the calling thread's network namespace: those of RFC 1213, and Linux's own beside them.
/// `/proc/net` is the namespace of the process's first thread.
pub(crate) const SNMP: &str = "/proc/thread-self/net/snmp";
pub(crate) const NETSTAT: &str = "/proc/thread-self/net/netstat";

type Lines<'a> = std::slice::Split<'a, u8, fn(&u8) -> bool>;

/// Reads the CPU lines of `/proc/stat`: appends those of `cpus` to `found`, in ascending order, and
/// gives back the kernel's own total over all CPUs, and the sum of the CPUs that are not among them.
///
/// Times there are in ticks of `tick`; `user` and `nice` become one, and `guest`, which is inside
/// `user` already (`account_guest_time`, kernel/sched/cputime.c), is not counted again.
pub(crate) fn cpu_times(
    bytes: &[u8],
    tick: Nanos,
    cpus: &CpuSet,
    found: &mut Vec<CpuObservation>,
) -> Result<(CpuTime, CpuTime), Error> {
    const FILE: &str = "/proc/stat";
    let mut machine = None;
    let mut others = CpuTime::default();
    for line in lines(bytes, FILE)? {
        let Some(rest) = line.strip_prefix(b"cpu") else {
            break; // the CPU lines come first, and the others are many
        };
        let mut words = words(rest);
        let name = if rest.starts_with(b" ") { &b""[..] } else { words.next().unwrap_or(b"") };
        if name.is_empty() {
            machine = Some(cpu_time(words, tick, line)?);
            continue;
        }
        let number = number(name).and_then(|number| u32::try_from(number).ok());
        let cpu = CpuId(number.ok_or_else(|| damaged(FILE, "`cpu` and a number", line))?);
        let time = cpu_time(words, tick, line)?;
        if cpus.contains(cpu) {
            found.push(CpuObservation { cpu, time });
        } else {
            others = others + time;
        }
    }
    if found.len() != cpus.len() {
        let seen: CpuSet = found.iter().map(|observation| observation.cpu).collect();
        return Err(Error::parse(FILE, format!("lines for the CPUs {cpus}"), &seen.to_string()));
    }
    let machine = machine.ok_or_else(|| Error::parse(FILE, "a line with the total", ""))?;
    Ok((machine, others))
}

/// `user nice system idle iowait irq softirq steal guest guest_nice` (`proc_stat(5)`).
fn cpu_time<'a>(
    mut words: impl Iterator<Item = &'a [u8]>,
    tick: Nanos,
    line: &[u8],
) -> Result<CpuTime, Error> {
    let mut next = || {
        words
            .next()
            .and_then(number)
            .and_then(|ticks| ticks.checked_mul(tick.as_ns()))
            .map(Nanos::from_ns)
            .ok_or_else(|| damaged("/proc/stat", "eight numbers of ticks", line))
    };
    let user = next()?;
    let nice = next()?;
    let system = next()?;
    let idle = next()?;
    let iowait = next()?;
    let irq = next()?;
    let softirq = next()?;
    let steal = next()?;
    let user = user
        .as_ns()
        .checked_add(nice.as_ns())
        .map(Nanos::from_ns)
        .ok_or_else(|| damaged("/proc/stat", "numbers of ticks", line))?;
    Ok(CpuTime { user, system, irq, softirq, steal, idle, iowait })
}

/// Sums the rows of `/proc/softirqs` called `names` over the columns of `cpus`.
pub(crate) fn softirqs(bytes: &[u8], names: &[&[u8]], cpus: &CpuSet) -> Result<u64, Error> {
    const FILE: &str = "/proc/softirqs";
    let mut table = Table::new(FILE, bytes, cpus)?;
    let mut sum = 0_u64;
    let mut rows = 0;
    while let Some(row) = table.next_row() {
        let row = row?;
        if !names.contains(&row.name) {
            continue;
        }
        let count =
            row.sum.ok_or_else(|| Error::parse(FILE, "a number for each CPU", row.text()))?;
        sum = sum.saturating_add(count);
        rows += 1;
    }
    if rows != names.len() {
        return Err(Error::parse(FILE, "rows NET_TX and NET_RX", ""));
    }
    Ok(sum)
}

/// Interrupts of some CPUs since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InterruptCounts {
    /// All of them.
    pub(crate) all: u64,
    /// Expiries of the CPUs' timers; `None` where no row has them.
    pub(crate) timer: Option<u64>,
    /// Those from other CPUs; `None` where no row has them.
    pub(crate) between_cpus: Option<u64>,
}

/// Sums the rows of `/proc/interrupts` over the columns of `cpus`. Rows that hold one number for the
/// whole machine (`ERR`, `MIS`) belong to no CPU and are left out.
pub(crate) fn interrupts(bytes: &[u8], cpus: &CpuSet) -> Result<InterruptCounts, Error> {
    let mut table = Table::new("/proc/interrupts", bytes, cpus)?;
    let mut counts = InterruptCounts::default();
    let add = |to: &mut Option<u64>, count: u64| {
        *to = Some(to.unwrap_or(0).saturating_add(count));
    };
    while let Some(row) = table.next_row() {
        let row = row?;
        if row.name == b"ERR" || row.name == b"MIS" {
            continue;
        }
        let count = row.sum.unwrap_or(0);
        counts.all = counts.all.saturating_add(count);
        if row.is_timer() {
            add(&mut counts.timer, count);
        } else if row.is_from_other_cpu() {
            add(&mut counts.between_cpus, count);
        }
    }
    Ok(counts)
}

/// The voluntary and the involuntary context switches in `/proc/PID/status`; `None` where it has none.
pub(crate) fn context_switches(status: &str) -> Option<(u64, u64)> {
    let find = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name))?;
        number(value.trim().as_bytes())
    };
    Some((find("voluntary_ctxt_switches:")?, find("nonvoluntary_ctxt_switches:")?))
}

/// A table with a header of CPUs and rows that start with `name:`.
struct Table<'a> {
    file: &'static str,
    rest: Lines<'a>,
    wanted: Vec<bool>,
}

struct TableRow<'a> {
    name: &'a [u8],
    line: &'a [u8],
    /// Over the wanted columns; `None` if there are fewer numbers than columns.
    sum: Option<u64>,
}

impl TableRow<'_> {
    /// Whether this is the CPUs' own timer: `LOC` on x86, elsewhere a row whose last word names it (`arch_timer`).
    fn is_timer(&self) -> bool {
        self.name == b"LOC" || words(self.line).last().is_some_and(|word| word.ends_with(b"timer"))
    }

    /// Whether these are interrupts from other CPUs: to reschedule or to call a function on x86, `IPI` elsewhere.
    fn is_from_other_cpu(&self) -> bool {
        matches!(self.name, b"RES" | b"CAL") || self.name.starts_with(b"IPI")
    }

    fn text(&self) -> &str {
        std::str::from_utf8(self.line).unwrap_or("(not text)")
    }
}

impl<'a> Table<'a> {
    fn new(file: &'static str, bytes: &'a [u8], cpus: &CpuSet) -> Result<Self, Error> {
        let mut rest = lines(bytes, file)?;
        let header = rest.next().unwrap_or(b"");
        let mut wanted = Vec::new();
        for word in words(header) {
            let cpu = word
                .strip_prefix(b"CPU")
                .and_then(number)
                .and_then(|number| u32::try_from(number).ok())
                .ok_or_else(|| damaged(file, "a header of CPUs", header))?;
            wanted.push(cpus.contains(CpuId(cpu)));
        }
        if wanted.iter().filter(|is_wanted| **is_wanted).count() != cpus.len() {
            return Err(damaged(file, &format!("columns for the CPUs {cpus}"), header));
        }
        Ok(Self { file, rest, wanted })
    }

    fn next_row(&mut self) -> Option<Result<TableRow<'a>, Error>> {
        let line = self.rest.next().filter(|line| !line.is_empty())?;
        let Some(colon) = line.iter().position(|&byte| byte == b':') else {
            return Some(Err(damaged(self.file, "rows that start with `name:`", line)));
        };
        let mut numbers = words(&line[colon + 1..]);
        let mut sum = Some(0_u64);
        for is_wanted in &self.wanted {
            let count = numbers.next().and_then(number);
            sum = sum.zip(count).map(
                |(sum, count)| {
                    if *is_wanted { sum.saturating_add(count) } else { sum }
                },
            );
        }
        Some(Ok(TableRow { name: line[..colon].trim_ascii(), line, sum }))
    }
}

/// One value of [`SNMP`] or [`NETSTAT`]: a line of names and a line of numbers for each protocol.
pub(crate) fn protocol_counter(
    file: &str,
    bytes: &[u8],
    protocol: &str,
    field: &str,
) -> Result<u64, Error> {
    let mut lines = lines(bytes, file)?.filter(|line| {
        line.strip_prefix(protocol.as_bytes()).is_some_and(|rest| rest.starts_with(b":"))
    });
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else {
        return Err(Error::parse(file, format!("two lines `{protocol}:`"), ""));
    };
    let position = words(names)
        .position(|name| name == field.as_bytes())
        .ok_or_else(|| damaged(file, &format!("a field {field}"), names))?;
    words(values)
        .nth(position)
        .and_then(number)
        .ok_or_else(|| damaged(file, &format!("a number for {field}"), values))
}

/// The lines of a file that ends as a whole one does: with a newline.
fn lines<'a>(bytes: &'a [u8], file: &str) -> Result<Lines<'a>, Error> {
    if bytes.last() != Some(&b'\n') {
        return Err(Error::parse(file, "a newline at the end", "a file that is cut short"));
    }
    Ok(bytes.split(|&byte| byte == b'\n'))
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| *byte == b' ' || *byte == b'\t').filter(|word| !word.is_empty())
}

/// An unsigned decimal number, and nothing else.
fn number(word: &[u8]) -> Option<u64> {
    if word.is_empty() {
        return None;
    }
    word.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

fn damaged(file: &str, expected: &str, line: &[u8]) -> Error {
    Error::parse(file, expected, &String::from_utf8_lossy(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  30 10 20 400 5 1 2 3 25 0\ncpu0 10 10 5 200 5 1 1 1 9 0\n\
                        cpu1 20 0 15 200 0 0 1 2 16 0\nintr 977548 0 0\nctxt 1361926\n";
    const SOFTIRQS: &str = "          CPU0       CPU1       \n HI:   0   7\nNET_TX:  17    8\n\
                            NET_RX: 163551  117020\n";
    const INTERRUPTS: &str = "           CPU0       CPU1       \n 24:   1    10   IO-APIC   5-edge  a:b\n\
                              LOC:  100  1000   Local timer interrupts\nERR:   5\nMIS:  6\n";
    const TCP_AND_UDP: &str = "Ip: Forwarding\nIp: 1\nTcp: MaxConn RetransSegs\nTcp: -1 914\n\
                        UdpLite: RcvbufErrors\nUdpLite: 1\nUdp: InDatagrams RcvbufErrors\nUdp: 80 3\n";

    #[test]
    fn guest_time_is_counted_once() {
        let mut found = Vec::new();
        let (machine, others) =
            cpu_times(STAT.as_bytes(), Nanos::from_ms(10), &set("1"), &mut found).unwrap();
        assert_eq!(others.user, Nanos::from_ms(200), "cpu0 is somebody else's");
        assert_eq!(machine.user, Nanos::from_ms(400));
        assert_eq!(machine.total(), Nanos::from_ms(4710));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].cpu, found[0].time.user), (CpuId(1), Nanos::from_ms(200)));
        assert_eq!(found[0].time.steal, Nanos::from_ms(20));
    }

    #[test]
    fn tables_are_summed_over_the_hosts_own_columns() {
        let names: &[&[u8]] = &[b"NET_RX", b"NET_TX"];
        assert_eq!(softirqs(SOFTIRQS.as_bytes(), names, &set("0")).unwrap(), 163_568);
        assert_eq!(softirqs(SOFTIRQS.as_bytes(), names, &set("0-1")).unwrap(), 280_596);
        let counted = |cpus| interrupts(INTERRUPTS.as_bytes(), &set(cpus)).unwrap();
        assert_eq!((counted("1").all, counted("0-1").all), (1010, 1111));
        assert_eq!((counted("1").timer, counted("1").between_cpus), (Some(1000), None));
    }

    #[test]
    fn interrupt_kinds_follow_their_rows() {
        let arm = "           CPU0       CPU1\n 11:  70  80  GICv3  27 Level  arch_timer\n\
                   34:  1  2  GICv3  78 Level  uart-pl011\nIPI0:  5  6  Rescheduling interrupts\n\
                   IPI1:  7  8  Function call interrupts\nErr:  0\n";
        let counted = interrupts(arm.as_bytes(), &set("0-1")).unwrap();
        assert_eq!((counted.timer, counted.between_cpus), (Some(150), Some(26)));
        assert_eq!(counted.all, 150 + 26 + 3);
    }

    #[test]
    fn context_switches_need_both_lines() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n";
        assert_eq!(context_switches(status), Some((12, 3)));
        assert_eq!(context_switches("Name:\tx\nvoluntary_ctxt_switches:\t12\n"), None);
        assert_eq!(context_switches(&status.replace("12", "-1")), None);
    }

    #[test]
    fn protocol_counters_are_found_by_name() {
        assert_eq!(
            protocol_counter(SNMP, TCP_AND_UDP.as_bytes(), "Tcp", "RetransSegs").unwrap(),
            914
        );
        assert_eq!(
            protocol_counter(SNMP, TCP_AND_UDP.as_bytes(), "Udp", "RcvbufErrors").unwrap(),
            3
        );
        assert!(protocol_counter(SNMP, TCP_AND_UDP.as_bytes(), "Udp", "Nothing").is_err());
        assert!(
            protocol_counter(SNMP, TCP_AND_UDP.as_bytes(), "Tcp", "MaxConn").is_err(),
            "negative"
        );
        assert!(protocol_counter(SNMP, TCP_AND_UDP.as_bytes(), "Sctp", "X").is_err());
    }

    #[test]
    fn damaged_files_are_errors_that_name_the_file() {
        check_stat("");
        check_stat("cpu  1 2 3\n");
        check_stat(&STAT.replace("cpu1", "cpux"));
        check_stat(&STAT.replace("cpu1 20", "cpu1 -20"));
        check_stat(&STAT.replace("cpu1 20", "cpu1 99999999999999999999"));
        check_stat(&STAT.replace("cpu1 20", "cpu1 18446744073709551615"));
        check_stat(&STAT.replace("cpu1", "cpu7"));
        check_stat(&STAT[..STAT.len() - 1]);
        check_table("");
        check_table(&SOFTIRQS.replace("CPU1", "CPU2"));
        check_table(&SOFTIRQS.replace("NET_RX", "NET"));
        check_table(&SOFTIRQS.replace("117020", ""));
        check_table(&SOFTIRQS.replace(':', " "));
    }

    #[test]
    fn cut_counter_file_is_never_whole() {
        for end in 0..STAT.len() {
            let mut found = Vec::new();
            let cut = &STAT.as_bytes()[..end];
            let read = cpu_times(cut, Nanos::from_ms(10), &set("0-1"), &mut found);
            assert!(read.is_err() || cut.ends_with(b"\n"), "{end}");
        }
        for end in 0..SOFTIRQS.len() {
            assert!(softirqs(&SOFTIRQS.as_bytes()[..end], &[b"NET_RX"], &set("0-1")).is_err());
            let _ = interrupts(&INTERRUPTS.as_bytes()[..end.min(INTERRUPTS.len())], &set("0"));
            let _ = protocol_counter(
                SNMP,
                &TCP_AND_UDP.as_bytes()[..end.min(TCP_AND_UDP.len())],
                "Tcp",
                "RetransSegs",
            );
        }
    }

    fn set(cpus: &str) -> CpuSet {
        cpus.parse().unwrap()
    }

    #[track_caller]
    fn check_stat(text: &str) {
        let mut found = Vec::new();
        let read = cpu_times(text.as_bytes(), Nanos::from_ms(10), &set("0-1"), &mut found);
        assert!(read.unwrap_err().to_string().contains("/proc/stat"), "{text}");
    }

    #[track_caller]
    fn check_table(text: &str) {
        let read = softirqs(text.as_bytes(), &[b"NET_RX", b"NET_TX"], &set("0-1"));
        assert!(read.unwrap_err().to_string().contains("/proc/softirqs"), "{text}");
    }
}
