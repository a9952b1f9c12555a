//! The CPU time of processes that are not latput's, read between two instants of a window.
//!
//! Each process has a clock of its CPU time to the nanosecond, which one system call reads. Names and CPUs are read only of
//! those that were busy. What was left out of all processes' time instead, the traffic's own and the interrupts' within
//! it, depends on the setting, and so does the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;

use latput_trial::observation::OtherProcess;
use latput_units::{Clock, CpuId, CpuSet, IntoSet, Nanos};

use crate::process::{OsClock, cpu_time_of};

/// A process with less than this part of the window counts without being looked at.
const BUSY: f64 = 0.005;
/// The busiest of so many are told.
const MOST_TOLD: usize = 5;
/// Least share of a CPU that is told.
const TOLD: f64 = 0.01;
/// Part of a CPU's time by which two clocks may be read apart.
const BETWEEN_READINGS: f64 = 0.05;
/// Most threads of a process that are looked at.
const MOST_THREADS: usize = 64;
/// Kernel threads that do the network's soft interrupts: the work of whoever sends.
const OF_TRAFFIC: &[&str] = &["ksoftirqd/", "napi/"];
/// Most parents of a process that are looked at for one of this run.
const MOST_ELDERS: usize = 8;
/// The subcommand of latput that runs programs.
const PROGRAMS_COMMAND: &[u8] = b"program";
/// `PROC_PID_INIT_INO` of `include/linux/proc_ns.h`.
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;
/// Ticks of `/proc/PID/stat`: `USER_HZ` is 100 on every architecture.
const TICK: Nanos = Nanos::from_ms(10);

/// The maker of a trial's traffic, which is no other work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Benchmark {
    /// latput itself.
    OfLatput,
    /// Programs that latput started on the hosts.
    OfPrograms,
}

/// A meter of other processes on a host's CPUs.
#[derive(Debug)]
pub struct OtherWork {
    cpus: CpuSet,
    begun: Nanos,
    /// Processes of this run: this one, those that started it, and all that those started.
    own: BTreeSet<u32>,
    /// CPU times of every process at the begin of the count.
    known: BTreeMap<u32, KnownProcess>,
    /// Processes that were busy in some span.
    seen: BTreeMap<u32, BusyProcess>,
    /// CPU times of processes by their own clocks. When a process ends, its parent's time includes its own.
    clocked: BTreeMap<u32, ClockedProcess>,
}

/// The CPU time of every process at an instant, by process id in ascending order.
#[derive(Clone, Debug)]
pub struct ProcessTimes {
    at: Nanos,
    times: Vec<(u32, Nanos)>,
}

impl ProcessTimes {
    /// When they were read, on the monotonic clock.
    pub const fn at(&self) -> Nanos {
        self.at
    }
}

/// A process as it was when the count was begun.
#[derive(Clone, Copy, Debug)]
struct KnownProcess {
    parent: u32,
    /// CPU time of its own, and of its finished children.
    own: Nanos,
    children: Nanos,
}

impl From<&Stat> for KnownProcess {
    fn from(stat: &Stat) -> Self {
        Self { parent: stat.parent, own: stat.own, children: stat.children }
    }
}

/// A process that was counted by its own clock.
#[derive(Clone, Debug, Default)]
struct ClockedProcess {
    /// Its time, wherever it ran.
    time: Nanos,
    /// Its parent, the parent's, and so on, when it was last looked at.
    elders: Vec<u32>,
}

/// A busy process.
#[derive(Clone, Debug)]
struct BusyProcess {
    stat: Stat,
    time: Nanos,
    cpus: BTreeSet<CpuId>,
}

impl OtherWork {
    /// Whether this process sees all of the machine's: it is in no PID namespace of its own, and `/proc` hides none.
    pub fn sees_all() -> bool {
        let space = fs::metadata("/proc/self/ns/pid").map(|file| file.ino());
        space.is_ok_and(|inode| inode == FIRST_PID_NAMESPACE) && Stat::read(1).is_some()
    }

    /// Begins to count on `cpus`. A `benchmark` of a run is its own as well: the processes of latput that run programs on this
    /// host, and what they started. Another connection may have started them, so they are known by their command line.
    pub fn begin(cpus: &CpuSet, benchmark: Benchmark) -> Self {
        let all: BTreeMap<u32, Stat> =
            pids().filter_map(|pid| Some((pid, Stat::read(pid)?))).collect();
        let pid = std::process::id();
        let mut own = family(&all, pid);
        if benchmark == Benchmark::OfPrograms {
            let name = all.get(&pid).map(|stat| stat.name.as_str());
            let of_latput = all.iter().filter(|(_, stat)| Some(stat.name.as_str()) == name);
            own.extend(of_latput.map(|(pid, _)| *pid).filter(|pid| runs_programs(*pid)));
            add_descendants(&all, &mut own);
        }
        Self {
            cpus: cpus.clone(),
            begun: OsClock.now(),
            own,
            known: all.iter().map(|(pid, stat)| (*pid, stat.into())).collect(),
            seen: BTreeMap::new(),
            clocked: BTreeMap::new(),
        }
    }

    /// Reads every process's clock.
    pub fn read(&self) -> ProcessTimes {
        let others = pids().filter(|pid| !self.own.contains(pid));
        let mut times: Vec<_> = others.filter_map(|pid| Some((pid, cpu_time_of(pid)?))).collect();
        times.sort_unstable();
        ProcessTimes { at: OsClock.now(), times }
    }

    /// CPU time of others on the host's CPUs between two readings.
    pub fn between(&mut self, first: &ProcessTimes, last: &ProcessTimes) -> Nanos {
        let least = last.at.saturating_sub(first.at).as_secs_f64() * BUSY;
        let before: BTreeMap<u32, Nanos> = first.times.iter().copied().collect();
        let mut time = Nanos::ZERO;
        for &(pid, total) in &last.times {
            let grown = total.saturating_sub(before.get(&pid).copied().unwrap_or_default());
            if grown.as_secs_f64() >= least {
                time = time.saturating_add(self.look_at(pid, grown));
            }
        }
        time
    }

    /// The part of a busy process's time that was on the host's CPUs, by where its threads were last.
    fn look_at(&mut self, pid: u32, grown: Nanos) -> Nanos {
        let Some(stat) = Stat::read(pid) else { return Nanos::ZERO };
        let elders = self.elders(stat.parent);
        let is_own = elders.iter().any(|pid| self.own.contains(pid));
        if is_own || OF_TRAFFIC.iter().any(|name| stat.name.starts_with(name)) {
            self.own.extend(is_own.then_some(pid));
            return Nanos::ZERO;
        }
        let clocked = self.clocked.entry(pid).or_default();
        clocked.time = clocked.time.saturating_add(grown);
        clocked.elders = elders;
        let threads = if stat.threads > 1 { processors(pid) } else { vec![stat.processor] };
        let here = || threads.iter().copied().filter(|cpu| self.cpus.contains(*cpu));
        let share = here().count() as f64 / threads.len().max(1) as f64;
        let time = Nanos::from_secs_f64(grown.as_secs_f64() * share);
        if time > Nanos::ZERO {
            let cpus = here().into_set();
            let seen = self.seen.entry(pid).or_insert(BusyProcess {
                stat,
                time: Nanos::ZERO,
                cpus: BTreeSet::new(),
            });
            seen.time = seen.time.saturating_add(time);
            seen.cpus.extend(cpus);
        }
        time
    }

    /// Whether a process is of this run, or was started by one that is.
    fn is_of_family(&self, pid: u32) -> bool {
        self.elders(pid).iter().any(|elder| self.own.contains(elder))
    }

    /// A process, its parent and so on, up to one of this run.
    fn elders(&self, mut pid: u32) -> Vec<u32> {
        let mut elders = Vec::new();
        while pid > 1 && elders.len() < MOST_ELDERS {
            elders.push(pid);
            if self.own.contains(&pid) {
                break;
            }
            let Some(stat) = Stat::read(pid) else { break };
            pid = stat.parent;
        }
        elders
    }

    /// Ends the count, after spans that took `counted` in all. Returns the busiest processes with their shares of it, and
    /// the share of a CPU of children that have come and gone, which no reading saw.
    pub fn end(mut self, counted: Nanos) -> (Vec<OtherProcess>, f64) {
        let now = OsClock.now();
        let whole = now.saturating_sub(self.begun).as_secs_f64().max(f64::EPSILON);
        let mut of_children = 0.0;
        let alive: BTreeSet<u32> = pids().collect();
        let charged = self.charged(&alive);
        // The first process is charged with orphans, whose times before the count nobody can tell.
        for pid in alive.into_iter().filter(|pid| *pid > 1 && !self.own.contains(pid)) {
            let (Some(&before), Some(stat)) = (self.known.get(&pid), Stat::read(pid)) else {
                continue;
            };
            let finished = unseen_children(&before, &stat, charged.get(&pid).copied());
            let finished = finished.as_secs_f64() / whole;
            if finished < TOLD || self.is_of_family(stat.parent) || !self.may_use(pid) {
                continue;
            }
            of_children += finished;
            let time = Nanos::from_secs_f64(finished * counted.as_secs_f64());
            let cpus = BTreeSet::new();
            let seen =
                self.seen.entry(pid).or_insert(BusyProcess { stat, time: Nanos::ZERO, cpus });
            seen.time = seen.time.saturating_add(time);
        }
        let seen = std::mem::take(&mut self.seen);
        let mut told: Vec<OtherProcess> = seen
            .into_iter()
            .map(|(pid, seen)| self.describe_process(pid, seen, counted))
            .filter(|process| process.cpu_ratio >= TOLD)
            .collect();
        told.sort_by(|a, b| b.cpu_ratio.total_cmp(&a.cpu_ratio));
        told.truncate(MOST_TOLD);
        (told, of_children)
    }

    /// A busy process with its share of the `counted` time. It is charged to each host that it was on, and no CPU gives more
    /// than its own time: a process with a larger share than the CPUs on which its threads were seen ran on others in between.
    fn describe_process(&self, pid: u32, seen: BusyProcess, counted: Nanos) -> OtherProcess {
        let share = seen.time.as_secs_f64() / counted.as_secs_f64().max(f64::EPSILON);
        let cpu_ratio = share.min(self.cpus.len().max(1) as f64);
        let room = seen.cpus.len().max(1) as f64;
        let is_on_others = cpu_ratio > room * (1.0 + BETWEEN_READINGS);
        let cpus: CpuSet = if is_on_others {
            let allowed = self.allowed_cpus(pid);
            seen.cpus.into_iter().chain(allowed.iter()).collect()
        } else {
            seen.cpus.into_iter().collect()
        };
        OtherProcess {
            switches_per_s: switches(pid) as f64 / seen.stat.age().as_secs_f64().max(0.01),
            name: seen.stat.name,
            pid,
            cpu_ratio,
            cpus,
        }
    }

    /// CPU times that live processes got from descendants that have ended, and that are counted elsewhere or were used
    /// before the count.
    fn charged(&self, alive: &BTreeSet<u32>) -> BTreeMap<u32, Nanos> {
        let is_gone = |pid: &u32| !alive.contains(pid);
        let before = self.known.iter().filter(|(pid, _)| is_gone(pid)).map(|(_, gone)| {
            let parent = |pid: &u32| Some(self.known.get(pid)?.parent);
            let mut elders = std::iter::successors(Some(gone.parent), parent).take(MOST_ELDERS);
            (elders.find(|pid| alive.contains(pid)), gone.own.saturating_add(gone.children))
        });
        let clocked = self.clocked.iter().filter(|(pid, _)| is_gone(pid)).map(|(_, gone)| {
            (gone.elders.iter().copied().find(|pid| alive.contains(pid)), gone.time)
        });
        let mut charged: BTreeMap<u32, Nanos> = BTreeMap::new();
        for (heir, time) in before.chain(clocked) {
            let Some(heir) = heir else { continue };
            let sum = charged.entry(heir).or_default();
            *sum = sum.saturating_add(time);
        }
        charged
    }

    /// Whether a process may run on the host's CPUs.
    fn may_use(&self, pid: u32) -> bool {
        !self.allowed_cpus(pid).is_empty()
    }

    /// The host's CPUs that a process may run on; all of them for one that cannot be asked.
    fn allowed_cpus(&self, pid: u32) -> CpuSet {
        let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
        let Ok(allowed) = rustix::thread::sched_getaffinity(pid) else { return self.cpus.clone() };
        self.cpus.iter().filter(|cpu| allowed.is_set(cpu.0 as usize)).collect()
    }
}

/// CPU time of children of a process that have come and gone since `before`, without what it was `charged` with that is
/// known already.
fn unseen_children(before: &KnownProcess, now: &Stat, charged: Option<Nanos>) -> Nanos {
    let finished = now.children.saturating_sub(before.children);
    finished.saturating_sub(charged.unwrap_or_default())
}

/// Fields of `/proc/PID/stat` (`proc_pid_stat(5)`).
#[derive(Clone, Debug)]
struct Stat {
    name: String,
    parent: u32,
    /// CPU time of its own.
    own: Nanos,
    /// CPU time of finished children that were waited for.
    children: Nanos,
    threads: u64,
    /// When it began, after the boot.
    begun: Nanos,
    /// Where its first thread was last.
    processor: CpuId,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The name is in brackets and may have brackets itself.
    fn parse(text: &str) -> Option<Self> {
        let (start, rest) = text.rsplit_once(')')?;
        let name = start.split_once('(')?.1.to_owned();
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // The field after the name is number 3.
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        let ticks = |field: usize| Some(TICK.saturating_mul(number(field)?));
        Some(Self {
            name,
            parent: u32::try_from(number(4)?).ok()?,
            own: ticks(14)?.saturating_add(ticks(15)?),
            children: ticks(16)?.saturating_add(ticks(17)?),
            threads: number(20)?,
            begun: ticks(22)?,
            processor: CpuId(u32::try_from(number(39)?).ok()?),
        })
    }

    fn age(&self) -> Nanos {
        crate::process::since_boot().saturating_sub(self.begun)
    }
}

/// Where each thread of a process was last.
fn processors(pid: u32) -> Vec<CpuId> {
    let threads = numbers(&format!("/proc/{pid}/task")).take(MOST_THREADS);
    let stat = |thread| fs::read_to_string(format!("/proc/{pid}/task/{thread}/stat")).ok();
    threads.filter_map(|thread| Some(Stat::parse(&stat(thread)?)?.processor)).collect()
}

/// How often the threads of a process gave up a CPU or lost it; 0 for one that is gone.
fn switches(pid: u32) -> u64 {
    let threads = numbers(&format!("/proc/{pid}/task")).take(MOST_THREADS);
    let of_thread = |thread: u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/status"));
        let text = text.unwrap_or_default();
        let counts = text.lines().filter_map(|line| {
            let (name, count) = line.split_once(':')?;
            name.ends_with("voluntary_ctxt_switches").then(|| count.trim().parse::<u64>().ok())?
        });
        counts.fold(0, u64::saturating_add)
    };
    threads.map(of_thread).fold(0, u64::saturating_add)
}

/// A process, those of its name that it stems from, whatever is between, and all that the eldest of them started.
fn family(all: &BTreeMap<u32, Stat>, own: u32) -> BTreeSet<u32> {
    let name = all.get(&own).map(|stat| stat.name.as_str());
    let elders = std::iter::successors(Some(own), |pid| Some(all.get(pid)?.parent));
    let elders: Vec<u32> = elders.take(MOST_ELDERS).collect();
    let is_latput = |pid: &u32| all.get(pid).map(|stat| stat.name.as_str()) == name;
    let eldest = elders.iter().rposition(is_latput).unwrap_or(0);
    let mut family: BTreeSet<u32> = elders[..=eldest].iter().copied().into_set();
    add_descendants(all, &mut family);
    family
}

/// Adds the processes that those of a family have started, and so on.
fn add_descendants(all: &BTreeMap<u32, Stat>, family: &mut BTreeSet<u32>) {
    loop {
        let children = all.iter().filter(|(_, stat)| family.contains(&stat.parent));
        let more: Vec<u32> =
            children.map(|(pid, _)| *pid).filter(|pid| !family.contains(pid)).collect();
        if more.is_empty() {
            return;
        }
        family.extend(more);
    }
}

/// Whether the command line of a process is one that runs the programs of a run: `latput program ...`.
fn runs_programs(pid: u32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    is_programs_command(&line)
}

fn is_programs_command(line: &[u8]) -> bool {
    line.split(|byte| *byte == 0).nth(1) == Some(PROGRAMS_COMMAND)
}

fn pids() -> impl Iterator<Item = u32> {
    numbers("/proc")
}

/// The entries of a folder that are numbers.
fn numbers(folder: &str) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    use super::*;
    use crate::process::allowed_cpus;

    #[test]
    fn name_with_brackets_is_read_whole() {
        let text = "12 (a) (b) c) S 3 1 1 0 -1 0 0 0 0 0 7 8 5 6 20 0 2 0 400 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 9 0";
        let stat = Stat::parse(text).unwrap();
        assert_eq!((stat.name.as_str(), stat.parent, stat.threads), ("a) (b) c", 3, 2));
        assert_eq!((stat.children, stat.begun), (Nanos::from_ms(110), Nanos::from_s(4)));
        assert_eq!(stat.processor, CpuId(9));
        assert!(Stat::parse("12 (a").is_none() && Stat::parse("").is_none());
    }

    #[test]
    fn process_family_has_elders_and_children() {
        let stat = |name: &str, parent| Stat {
            name: name.to_owned(),
            parent,
            own: Nanos::ZERO,
            children: Nanos::ZERO,
            threads: 1,
            begun: Nanos::ZERO,
            processor: CpuId(0),
        };
        let all = BTreeMap::from([
            (1, stat("init", 0)),
            (5, stat("sh", 1)),
            (6, stat("latput", 5)),
            (7, stat("latput", 6)),
            (8, stat("sudo", 6)),
            (9, stat("latput", 8)),
            (11, stat("iperf3", 9)),
            (10, stat("sha256sum", 5)),
        ]);
        assert_eq!(family(&all, 7), BTreeSet::from([6, 7, 8, 9, 11]));
        assert_eq!(family(&all, 9), BTreeSet::from([6, 7, 8, 9, 11]));
        assert_eq!(family(&all, 99), BTreeSet::from([99]));
        let mut programs = BTreeSet::from([8]);
        add_descendants(&all, &mut programs);
        assert_eq!(programs, BTreeSet::from([8, 9, 11]));
    }

    #[test]
    fn process_that_runs_programs_is_known() {
        for (line, expected) in [
            (&b"/usr/bin/latput\0program\0--stdio\0"[..], true),
            (b"latput\0program\0--hold", true),
            (b"latput\0agent\0--stdio\0", false),
            (b"latput\0log\0program\0", false),
            (b"", false),
        ] {
            assert_eq!(is_programs_command(line), expected, "{}", line.escape_ascii());
        }
    }

    /// A child in a session of its own would still be of this process's family: it counts by a meter that does not know it.
    #[test]
    fn busy_process_has_name_and_share() {
        let mut meter = OtherWork::begin(&allowed_cpus().unwrap(), Benchmark::OfLatput);
        let mut busy = Command::new("sh");
        busy.args(["-c", "while :; do :; done"]).stdout(Stdio::null());
        let mut child = Running(busy.spawn().unwrap());
        meter.own.clear();
        let first = meter.read();
        std::thread::sleep(Duration::from_millis(300));
        let last = meter.read();
        let pid = child.0.id();
        let time = meter.between(&first, &last);
        let exact = cpu_time_of(pid).unwrap();
        let span = last.at.saturating_sub(first.at);
        let (told, _) = meter.end(span);
        child.0.kill().unwrap();
        let found = told.iter().find(|process| process.pid == pid);
        let found = found.unwrap_or_else(|| panic!("{told:?}"));
        assert_eq!(found.name, "sh");
        assert!(time > Nanos::ZERO && !found.cpus.is_empty(), "{found:?}");
        let share = exact.as_secs_f64() / span.as_secs_f64();
        assert!(found.cpu_ratio > 0.0 && found.cpu_ratio <= share + 0.01, "{found:?} {share}");
    }

    #[test]
    fn threads_of_several_cpus_fill_none_twice() {
        let cpus = allowed_cpus().unwrap();
        let meter = OtherWork::begin(&cpus, Benchmark::OfLatput);
        let pid = std::process::id();
        let told = |cpu_s: f64| {
            let seen = BusyProcess {
                stat: Stat::read(pid).unwrap(),
                time: Nanos::from_secs_f64(cpu_s),
                cpus: cpus.iter().take(1).collect(),
            };
            meter.describe_process(pid, seen, Nanos::from_s(1))
        };
        assert_eq!(told(0.9).cpus.len(), 1);
        let both = told(1.74);
        assert!(both.cpu_ratio <= both.cpus.len() as f64 * 1.05, "{both:?}");
    }

    /// Each child lives through several readings, so that its own clock has nearly all of its time, and its parent's too
    /// once it has ended. The sum of both is no more than what the storm has used.
    #[test]
    fn children_that_come_and_go_count_once() {
        let storm = "while :; do sh -c 'i=0; while [ $i -lt 150000 ]; do i=$((i+1)); done'; done";
        let mut command = Command::new("sh");
        command.args(["-c", storm]).stdout(Stdio::null());
        let mut storm = Running(command.spawn().unwrap());
        let pid = storm.0.id();
        let mut meter = OtherWork::begin(&allowed_cpus().unwrap(), Benchmark::OfLatput);
        meter.own.clear();
        let before = meter.known[&pid];
        let mut reading = meter.read();
        for _ in 0..60 {
            std::thread::sleep(Duration::from_millis(20));
            let next = meter.read();
            meter.between(&reading, &next);
            reading = next;
        }
        // The child of this moment too: from here on nothing of the storm runs.
        let stopped = rustix::process::Pid::from_child(&storm.0);
        rustix::process::kill_process(stopped, rustix::process::Signal::STOP).unwrap();
        let alive: BTreeSet<u32> = pids().collect();
        let now = Stat::read(pid).unwrap();
        let clocked: Nanos = meter
            .clocked
            .values()
            .filter(|child| child.elders.contains(&pid))
            .map(|child| child.time)
            .sum();
        let unseen = unseen_children(&before, &now, meter.charged(&alive).get(&pid).copied());
        let running: Nanos = pids()
            .filter(|child| Stat::read(*child).is_some_and(|stat| stat.parent == pid))
            .filter_map(cpu_time_of)
            .sum();
        let used = now.children.saturating_sub(before.children).saturating_add(running);
        storm.0.kill().unwrap();
        let (counted, used) = (clocked.saturating_add(unseen).as_secs_f64(), used.as_secs_f64());
        println!("{used} s used, {counted} s counted, {unseen:?} of it by the parent alone");
        assert!(clocked.as_secs_f64() > 0.3 * used, "readings saw {clocked:?} of {used}");
        assert!(counted <= 1.1 * used + 0.05, "{counted} of {used}, {unseen:?} of it unseen");
        assert!(counted >= 0.7 * used - 0.05, "{counted} of {used}");
    }

    struct Running(Child);

    impl Drop for Running {
        fn drop(&mut self) {
            let _gone = self.0.kill();
            let _reaped = self.0.wait();
        }
    }
}
