//! Facts about this process and the system: CPUs, capabilities, the clock, the boot.

use std::fs;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use latput_knobs::ThreadSchedule;
use latput_units::{Clock, CpuId, CpuSet, Nanos};
use rustix::io::FdFlags;
use rustix::net::AddressFamily;
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::CapabilitySet;
use rustix::time::{ClockId, clock_gettime};

use crate::error::Error;

/// `include/uapi/linux/close_range.h`.
const CLOSE_RANGE_CLOEXEC: libc::c_uint = 1 << 2;

/// The operating system's monotonic clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsClock;

impl Clock for OsClock {
    fn now(&self) -> Nanos {
        read_clock(ClockId::Monotonic)
    }
}

/// Time since the boot, which goes on while the machine sleeps (`CLOCK_BOOTTIME`).
pub fn since_boot() -> Nanos {
    read_clock(ClockId::Boottime)
}

/// Runs `work` in a thread of its own, whose namespaces, CPUs and rights it may change, and waits for its end. A panic in it
/// goes on in the caller.
///
/// # Errors
///
/// No thread can be started: `EAGAIN` where a limit of processes is reached.
pub(crate) fn run_in_thread<T, F>(work: F) -> Result<T, Error>
where
    T: Send,
    F: FnOnce() -> T + Send,
{
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .spawn_scoped(scope, work)
            .map_err(|source| Error::system("start a thread", source))?;
        Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// The time on the wall clock, milliseconds since 1970.
pub fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A time in seconds since 1970 in the time zone of this host: `2026-11-24 03:30:00 +01:00`.
pub fn local_time(seconds: u64) -> String {
    let time = libc::time_t::try_from(seconds).unwrap_or(libc::time_t::MAX);
    // SAFETY: all bits zero are a valid `tm`.
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live values of their types.
    if unsafe { libc::localtime_r(&raw const time, &raw mut tm) }.is_null() {
        return latput_units::text::format_utc(seconds);
    }
    let offset = tm.tm_gmtoff / 60;
    let sign = if offset < 0 { '-' } else { '+' };
    let (hours, minutes) = (offset.abs() / 60, offset.abs() % 60);
    format!(
        "{}-{:02}-{:02} {:02}:{:02}:{:02} {sign}{hours:02}:{minutes:02}",
        i64::from(tm.tm_year) + 1900,
        tm.tm_mon + 1,
        tm.tm_mday,
        tm.tm_hour,
        tm.tm_min,
        tm.tm_sec
    )
}

/// CPU time that the calling thread has used.
pub fn thread_cpu_time() -> Nanos {
    read_clock(ClockId::ThreadCPUTime)
}

/// The wall clock, nanoseconds since 1970; somebody may set it at any time.
pub fn wall_clock() -> i64 {
    let time = clock_gettime(ClockId::Realtime);
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}

fn read_clock(clock: ClockId) -> Nanos {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).expect("these clocks start at 0");
    let nanos = u64::try_from(time.tv_nsec).expect("nanoseconds of a second are positive");
    Nanos::from_s(seconds) + Nanos::from_ns(nanos)
}

/// CPU time that another process has used, to the nanosecond; `None` when there is none such.
///
/// A kernel thread counts as a process. The clock id is `MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED)`
/// of `include/linux/posix-timers_types.h`, which is also what `clock_getcpuclockid(3)` makes.
pub(crate) fn cpu_time_of(pid: u32) -> Option<Nanos> {
    const CPUCLOCK_SCHED: libc::clockid_t = 2;
    let pid = libc::clockid_t::try_from(pid).ok().filter(|&pid| pid > 0)?;
    let clock = (!pid << 3) | CPUCLOCK_SCHED;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live timespec; the kernel refuses clock ids that do not exist.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return None;
    }
    let seconds = u64::try_from(time.tv_sec).ok()?;
    Some(Nanos::from_s(seconds) + Nanos::from_ns(u64::try_from(time.tv_nsec).ok()?))
}

/// When a process was started, in clock ticks since the boot (`proc_pid_stat(5)`): with its id it names one process
/// of this boot. `None` when there is none such.
pub fn start_time(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may hold blanks and parentheses.
    let (_, fields) = text.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

/// The CPUs that are online.
pub fn online_cpus() -> Result<CpuSet, Error> {
    cpu_list("/sys/devices/system/cpu/online")
}

/// The CPUs that could come online; per-CPU kernel data has one slot for each.
pub(crate) fn possible_cpus() -> Result<CpuSet, Error> {
    cpu_list("/sys/devices/system/cpu/possible")
}

fn cpu_list(path: &str) -> Result<CpuSet, Error> {
    let text =
        fs::read_to_string(path).map_err(|source| Error::system(format!("read {path}"), source))?;
    let cpus: CpuSet = text.parse().map_err(|_| Error::parse(path, "a list of CPUs", &text))?;
    if cpus.is_empty() {
        return Err(Error::parse(path, "at least one CPU", &text));
    }
    Ok(cpus)
}

/// The CPUs that the calling thread may run on.
pub fn allowed_cpus() -> Result<CpuSet, Error> {
    let allowed = rustix::thread::sched_getaffinity(None)
        .map_err(|errno| Error::system("read the CPU affinity of this thread", errno))?;
    let largest = u32::try_from(rustix::thread::CpuSet::MAX_CPU).expect("1024 fits");
    Ok((0..largest).filter(|&cpu| allowed.is_set(cpu as usize)).map(CpuId).collect())
}

/// Holds the calling thread, and the threads that it starts from now on, to `cpus`.
pub fn bind_thread(cpus: &CpuSet) -> Result<(), Error> {
    set_affinity(None, cpus)
        .map_err(|source| Error::system(format!("bind this thread to the CPUs {cpus}"), source))
}

/// Holds a thread to `cpus`; `None` is the calling one.
pub(crate) fn set_affinity(pid: Option<u32>, cpus: &CpuSet) -> io::Result<()> {
    let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
    if cpus.is_empty() {
        return Err(invalid("no CPU is named"));
    }
    let mut set = rustix::thread::CpuSet::new();
    for CpuId(cpu) in cpus.iter() {
        if cpu as usize >= rustix::thread::CpuSet::MAX_CPU {
            return Err(invalid("CPU numbers of 1024 and above cannot be bound to"));
        }
        set.set(cpu as usize);
    }
    let pid = pid
        .map(|pid| {
            i32::try_from(pid)
                .ok()
                .and_then(rustix::process::Pid::from_raw)
                .ok_or_else(|| invalid("no process has this id"))
        })
        .transpose()?;
    Ok(rustix::thread::sched_setaffinity(pid, &set)?)
}

/// The CPUs that a thread may run on; `None` when there is none such.
pub(crate) fn affinity_of(pid: u32) -> Option<CpuSet> {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw)?;
    let allowed = rustix::thread::sched_getaffinity(Some(pid)).ok()?;
    let largest = u32::try_from(rustix::thread::CpuSet::MAX_CPU).ok()?;
    Some((0..largest).filter(|&cpu| allowed.is_set(cpu as usize)).map(CpuId).collect())
}

/// How the scheduler treats a thread; `None` when there is none such.
pub(crate) fn schedule_of(pid: u32) -> Option<ThreadSchedule> {
    let pid = libc::pid_t::try_from(pid).ok().filter(|&pid| pid > 0)?;
    let mut parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the call takes a number and gives one.
    let policy = unsafe { libc::sched_getscheduler(pid) };
    // SAFETY: `parameters` is live and writable.
    if policy < 0 || unsafe { libc::sched_getparam(pid, &raw mut parameters) } != 0 {
        return None;
    }
    let of = rustix::process::Pid::from_raw(pid);
    let nice = rustix::process::getpriority_process(of).ok()?;
    Some(ThreadSchedule { policy, priority: parameters.sched_priority, nice })
}

/// Has the scheduler treat a thread so.
pub(crate) fn set_schedule(pid: u32, schedule: ThreadSchedule) -> Result<(), Error> {
    let failed = |error: io::Error| Error::system("set the policy of a NAPI thread", error);
    let of = libc::pid_t::try_from(pid).map_err(|_| failed(io::ErrorKind::NotFound.into()))?;
    let parameters = libc::sched_param { sched_priority: schedule.priority };
    // SAFETY: `parameters` is live; the call takes two numbers beside it.
    if unsafe { libc::sched_setscheduler(of, schedule.policy, &raw const parameters) } != 0 {
        return Err(failed(io::Error::last_os_error()));
    }
    // A real-time thread keeps it for the day on which it has another policy (`set_user_nice`, kernel/sched/syscalls.c).
    let of = rustix::process::Pid::from_raw(of);
    rustix::process::setpriority_process(of, schedule.nice).map_err(|errno| failed(errno.into()))
}

/// Makes a command end, by SIGKILL, with the thread that starts it, however that ends.
pub fn end_with_this_thread(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec it makes one system call and allocates nothing.
    unsafe { command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?)) }
}

/// Makes a command gain no rights by a program that it executes (`PR_SET_NO_NEW_PRIVS`).
pub fn gain_no_rights(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec it makes one system call and allocates nothing.
    unsafe { command.pre_exec(|| Ok(rustix::thread::set_no_new_privs(true)?)) }
}

/// Makes a command outlive this process and whatever started that: in a session of its own, which no
/// terminal hangs up, and without the files that were inherited beside stdin, stdout and stderr, which
/// somebody may be waiting to see closed.
pub fn detach(command: &mut Command) -> &mut Command {
    let detach = || {
        rustix::process::setsid()?;
        // Fails before Linux 5.11, and then the files stay open.
        // SAFETY: the call takes three numbers, and only marks descriptors to be closed by exec.
        unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, CLOSE_RANGE_CLOEXEC) };
        Ok(())
    };
    // SAFETY: between fork and exec it makes two system calls and allocates nothing.
    unsafe { command.pre_exec(detach) }
}

/// Hands open files over to a command, under the same numbers.
pub fn hand_over(command: &mut Command, files: Vec<OwnedFd>) -> &mut Command {
    let keep_open = move || {
        files.iter().try_for_each(|file| Ok(rustix::io::fcntl_setfd(file, FdFlags::empty())?))
    };
    // SAFETY: between fork and exec it makes one system call a file and allocates nothing.
    unsafe { command.pre_exec(keep_open) }
}

/// Takes a Unix socket that was handed over under this number.
pub fn take_over(number: RawFd) -> Result<OwnedFd, Error> {
    let wrong = |problem: &str| Error::Other(format!("open file {number} {problem}"));
    if number <= 2 {
        return Err(wrong("is not one that was handed over"));
    }
    // SAFETY: it is only borrowed here, to see what it is; a number that is not open is an error.
    let file = unsafe { BorrowedFd::borrow_raw(number) };
    if rustix::net::sockopt::socket_domain(file) != Ok(AddressFamily::UNIX) {
        return Err(wrong("is no Unix socket"));
    }
    rustix::io::fcntl_setfd(file, FdFlags::CLOEXEC)
        .map_err(|errno| Error::system("keep a socket that was handed over", errno))?;
    // SAFETY: this process was started with it and has not taken it yet: nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// The id of this boot: a checkpoint of an earlier one has nothing left to restore.
pub fn boot_id() -> Result<String, Error> {
    let path = "/proc/sys/kernel/random/boot_id";
    let text =
        fs::read_to_string(path).map_err(|source| Error::system(format!("read {path}"), source))?;
    let id = text.trim();
    if id.is_empty() || id.len() > 64 || !id.chars().all(|c| c.is_ascii_hexdigit() || c == '-') {
        return Err(Error::parse(path, "a boot id", &text));
    }
    Ok(id.to_owned())
}

/// A capability that latput asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Capability {
    /// Change interfaces.
    NetAdmin,
    /// Make namespaces and mount.
    SysAdmin,
    /// Send ICMP.
    NetRaw,
    /// Bind threads of others and set their policies.
    SysNice,
    /// Load BPF programs (`CAP_BPF` with `CAP_PERFMON`, or `CAP_SYS_ADMIN`).
    Bpf,
}

impl Capability {
    /// The kernel's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NetAdmin => "CAP_NET_ADMIN",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::NetRaw => "CAP_NET_RAW",
            Self::SysNice => "CAP_SYS_NICE",
            Self::Bpf => "CAP_BPF and CAP_PERFMON",
        }
    }

    /// Whether the calling thread has it in effect. When the kernel does not even tell, it has not.
    pub fn is_effective(self) -> bool {
        let Ok(sets) = rustix::thread::capabilities(None) else {
            return false;
        };
        match self {
            Self::NetAdmin => sets.effective.contains(CapabilitySet::NET_ADMIN),
            Self::SysAdmin => sets.effective.contains(CapabilitySet::SYS_ADMIN),
            Self::NetRaw => sets.effective.contains(CapabilitySet::NET_RAW),
            Self::SysNice => sets.effective.contains(CapabilitySet::SYS_NICE),
            Self::Bpf => {
                sets.effective.contains(CapabilitySet::SYS_ADMIN)
                    || sets.effective.contains(CapabilitySet::BPF | CapabilitySet::PERFMON)
            }
        }
    }

    /// Fails, saying what it is needed for, when it is not in effect.
    pub fn require(self, purpose: &str) -> Result<(), Error> {
        if self.is_effective() {
            return Ok(());
        }
        Err(Error::Capability { purpose: purpose.to_owned(), capability: self.name() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_goes_forward() {
        let first = OsClock.now();
        assert!(OsClock.now() >= first);
        assert!(first > Nanos::ZERO);
        assert!(since_boot() >= first, "it counts sleep too");
    }

    #[test]
    fn only_living_processes_have_cpu_time() {
        let before = cpu_time_of(std::process::id()).unwrap();
        let seen = cpu_time_of(std::process::id()).unwrap();
        assert!(seen > before, "{seen} {before}");
        assert_eq!(cpu_time_of(0), None);
        assert_eq!(cpu_time_of(u32::MAX), None);
    }

    #[test]
    fn only_living_process_has_a_start() {
        let ours = start_time(std::process::id()).unwrap();
        assert!(ours >= start_time(1).unwrap() && ours > 0);
        assert_eq!(start_time(u32::MAX), None);
    }

    #[test]
    fn thread_is_bound_to_its_cpus() {
        let first = allowed_cpus().unwrap().iter().next().unwrap();
        std::thread::spawn(move || {
            let one: CpuSet = [first].into_iter().collect();
            bind_thread(&one).unwrap();
            assert_eq!(allowed_cpus().unwrap(), one);
            assert!(bind_thread(&CpuSet::new()).is_err());
            assert!(bind_thread(&[CpuId(1024)].into_iter().collect()).is_err());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn boot_has_an_id() {
        assert_eq!(boot_id().unwrap(), boot_id().unwrap());
    }
}
