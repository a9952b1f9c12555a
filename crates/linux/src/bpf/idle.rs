//! How long each CPU was idle, to the nanosecond, from the kernel's own record.
//!
//! The kernel notes when a CPU enters and leaves its idle loop, and adds up the time (`tick_cpu_sched`,
//! kernel/time/tick-sched.c). `/proc/stat` shows that sum in steps of 10 ms. A BPF program that is attached to nothing
//! copies it into a map when it is told to (`BPF_PROG_TEST_RUN`): between two readings it costs nothing.
//!
//! Where the record of a CPU is, another such program tells, run once on each CPU: the queue of that CPU's tasks is at a
//! known distance from it. A wrong address cannot do harm, since such reads do not fault; and what is read is compared
//! with `/proc/stat` before it is used.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use latput_units::{CpuId, CpuSet, Nanos};

use super::btf::{Member, Types};
use super::code::{
    AND_IMMEDIATE, CALL, EXIT, GET_CURRENT_TASK_BTF, KTIME_GET_NS, LOAD, LOAD_8, MOVE,
    MOVE_IMMEDIATE, STORE, call_kernel, instruction, load_constant, load_map_value,
};
use super::map::{MAP_TYPE_ARRAY, create_map, look_up_first};
use super::{BTF_PATH, bpf, descriptor, kernel_types, load_program_of_kernel, refuse_by, require};
use crate::error::Error;

// `BPF_PROG_TEST_RUN`, `BPF_F_TEST_RUN_ON_CPU`, include/uapi/linux/bpf.h.
const PROG_TEST_RUN: libc::c_long = 10;
const TEST_RUN_ON_CPU: u32 = 1;

/// Words that are copied of a CPU: when it last became idle, its idle time, its idle time with a disk request under way,
/// a byte that says whether it is idle, the clock, and the first three again.
const WORDS: usize = 8;
const WORD: usize = size_of::<u64>();
/// Readings of a record that is being written.
const READS: usize = 100;
/// `TS_FLAG_IDLE_ACTIVE`, kernel/time/tick-sched.h, since Linux 6.9.
const IDLE_ACTIVE_BIT: u32 = 2;

/// One CPU's idle time since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IdleTime {
    /// When it was read, on the kernel's monotonic clock.
    pub(crate) at: Nanos,
    /// Idle time until then, that of waiting for a disk included.
    pub(crate) idle: Nanos,
}

/// Reads the idle time of some CPUs.
#[derive(Debug)]
pub(crate) struct IdleReader {
    program: OwnedFd,
    map: OwnedFd,
    cpus: usize,
}

/// Where things are in the kernel's memory.
#[derive(Clone, Copy, Debug)]
struct RecordPlaces {
    /// From a task to its queue, and from there to the CPU's.
    to_queue: [i16; 2],
    /// From the CPU's queue to its record of idle time.
    to_record: i64,
    /// The number of the record's type, and of the function that makes an address into one.
    record_type: u32,
    cast: u32,
    /// In the record.
    times: [i16; 3],
    active_byte: i16,
    active_bit: u32,
}

impl IdleReader {
    /// Fails where the process may not, or the kernel cannot (before 6.2, or without type information).
    pub(crate) fn open(cpus: &CpuSet) -> Result<Self, Error> {
        const WHAT: &str = "exact idle time";
        require(WHAT)?;
        refuse_by(WHAT, "window")?;
        let types = kernel_types(WHAT)?;
        let layout = RecordPlaces::find(&types)
            .map_err(|reason| Error::Other(format!("{BTF_PATH}: no {WHAT}: {reason}")))?;
        let value_size = u32::try_from(cpus.len().max(1) * WORDS * WORD)
            .map_err(|_| Error::Other("too many CPUs".into()))?;
        let map = create_map(MAP_TYPE_ARRAY, [4, value_size], 1)
            .map_err(|source| Error::system("create the BPF map of idle time", source))?;
        let load = |program: &[u64]| {
            load_program_of_kernel(program)
                .map_err(|source| Error::system("load a BPF program for idle time", source))
        };
        let find = load(&layout.find_queue(map.as_raw_fd()))?;
        let mut records = Vec::new();
        for cpu in cpus.iter() {
            let mut found = vec![[0; WORDS]; cpus.len()];
            run(&find, Some(cpu)).and_then(|()| look_up_first(&map, &mut found)).map_err(
                |source| Error::system(format!("run a BPF program on CPU {cpu}"), source),
            )?;
            records.push(found[0][0].wrapping_add_signed(layout.to_record));
        }
        let program = load(&layout.read_records(&records, map.as_raw_fd()))?;
        Ok(Self { program, map, cpus: cpus.len() })
    }

    /// The idle time of each CPU, in ascending order.
    pub(crate) fn read(&self) -> Result<Vec<IdleTime>, Error> {
        let failed = |source| Error::system("read idle time by BPF", source);
        let mut words = vec![[0; WORDS]; self.cpus];
        for _ in 0..READS {
            run(&self.program, None).map_err(failed)?;
            look_up_first(&self.map, &mut words).map_err(failed)?;
            if let Some(times) = words.iter().map(idle_time).collect() {
                return Ok(times);
            }
        }
        Err(Error::Other("the kernel's idle time does not hold still to be read".into()))
    }
}

/// `None` where the record was written while it was read.
fn idle_time(words: &[u64; WORDS]) -> Option<IdleTime> {
    let [entry, sleep, iowait, active, now, again @ ..] = *words;
    if again != [entry, sleep, iowait] {
        return None;
    }
    let running = if active == 0 { 0 } else { now.saturating_sub(entry) };
    let idle = sleep.saturating_add(iowait).saturating_add(running);
    Some(IdleTime { at: Nanos::from_ns(now), idle: Nanos::from_ns(idle) })
}

impl RecordPlaces {
    fn find(bytes: &[u8]) -> Result<Self, String> {
        let types = Types::read(bytes).ok_or("the type information is damaged")?;
        let queue = types.per_cpu_struct("runqueues")?;
        let record = types.per_cpu_struct("tick_cpu_sched")?;
        let of_record = |name: &str| types.member(record.number, name);
        let entity = types.structure("task_struct")?;
        let entity = types.member(entity, "se").ok_or("a task has no `se`")?;
        let group = types.structure("sched_entity")?;
        let group = types.member(group, "cfs_rq").ok_or("tasks are in no groups")?;
        let cpu_queue = types.structure("cfs_rq")?;
        let cpu_queue = types.member(cpu_queue, "rq").ok_or("a group's queue names no CPU's")?;
        let time = |name: &str| {
            let member = of_record(name).filter(|it| it.bits == 64);
            byte(member.ok_or_else(|| format!("it has no {name} of 8 bytes"))?.at)
        };
        // A word of flags since Linux 6.9, before that a bit of its own.
        let active = of_record("idle_active")
            .map(|it| it.at)
            .or(of_record("flags").map(|Member { at, .. }| at + IDLE_ACTIVE_BIT))
            .ok_or("it does not say whether a CPU is idle")?;
        Ok(Self {
            to_queue: [byte(entity.at + group.at)?, byte(cpu_queue.at)?],
            to_record: i64::from(record.offset) - i64::from(queue.offset),
            record_type: record.number,
            cast: types.function("bpf_rdonly_cast")?,
            times: [time("idle_entrytime")?, time("idle_sleeptime")?, time("iowait_sleeptime")?],
            active_byte: byte(active)?,
            active_bit: active % 8,
        })
    }

    /// Leaves the address of the queue of this CPU's tasks in the first word of `map`. In C:
    ///
    /// ```c
    /// word[0] = bpf_get_current_task_btf()->se.cfs_rq->rq;
    /// ```
    fn find_queue(self, map: RawFd) -> Vec<u64> {
        let [to_group, to_cpu] = self.to_queue;
        let follow = [
            instruction(CALL, 0, 0, 0, GET_CURRENT_TASK_BTF),
            instruction(LOAD, 1, 0, to_group, 0),
            instruction(LOAD, 1, 1, to_cpu, 0),
        ];
        let keep = [
            instruction(STORE, 2, 1, 0, 0),
            instruction(MOVE_IMMEDIATE, 0, 0, 0, 0),
            instruction(EXIT, 0, 0, 0, 0),
        ];
        [&follow[..], &load_map_value(2, map, 0), &keep].concat()
    }

    /// Copies each record into `map`. In C:
    ///
    /// ```c
    /// struct tick_sched *it = bpf_rdonly_cast(ADDRESS, TYPE);
    /// word[0] = it->idle_entrytime; word[1] = it->idle_sleeptime; word[2] = it->iowait_sleeptime;
    /// word[3] = *((__u8 *)it + ACTIVE_BYTE) & ACTIVE_BIT;
    /// word[4] = bpf_ktime_get_ns();
    /// word[5] = it->idle_entrytime; word[6] = it->idle_sleeptime; word[7] = it->iowait_sleeptime;
    /// ```
    fn read_records(self, records: &[u64], map: RawFd) -> Vec<u64> {
        let place = |word: usize| i16::try_from(word * WORD).expect("few words");
        let times = |from: usize| {
            let copy = |(offset, word): (i16, usize)| {
                [instruction(LOAD, 1, 6, offset, 0), instruction(STORE, 7, 1, place(word), 0)]
            };
            self.times.into_iter().zip(from..).flat_map(copy).collect::<Vec<u64>>()
        };
        let state = [
            instruction(LOAD_8, 1, 6, self.active_byte, 0),
            instruction(AND_IMMEDIATE, 1, 0, 0, 1 << self.active_bit),
            instruction(STORE, 7, 1, place(3), 0),
            instruction(CALL, 0, 0, 0, KTIME_GET_NS),
            instruction(STORE, 7, 0, place(4), 0),
        ];
        let mut program = Vec::new();
        for (idx, &record) in (0..).zip(records) {
            program.extend(load_constant(1, record));
            program.push(instruction(MOVE_IMMEDIATE, 2, 0, 0, self.record_type.cast_signed()));
            program.push(call_kernel(self.cast));
            program.push(instruction(MOVE, 6, 0, 0, 0));
            program.extend(load_map_value(7, map, idx * i32::from(place(WORDS))));
            program.extend(times(0));
            program.extend(state);
            program.extend(times(5));
        }
        program.extend([instruction(MOVE_IMMEDIATE, 0, 0, 0, 0), instruction(EXIT, 0, 0, 0, 0)]);
        program
    }
}

/// The byte of a bit, as an instruction has it.
fn byte(bit: u32) -> Result<i16, String> {
    i16::try_from(bit / 8).map_err(|_| "a structure is too long".to_owned())
}

/// The parts of `union bpf_attr` in use; the kernel takes a shorter one for one with zeros behind.
#[repr(C)]
struct TestRun {
    program: u32,
    /// The returned value; lengths and places of data; repetitions, duration; lengths and places of contexts: it has
    /// none.
    unused: [u32; 15],
    flags: u32,
    cpu: u32,
}

/// Runs a program once, on this CPU or another.
fn run(program: &OwnedFd, cpu: Option<CpuId>) -> io::Result<()> {
    let attributes = TestRun {
        program: descriptor(program),
        unused: [0; 15],
        flags: if cpu.is_some() { TEST_RUN_ON_CPU } else { 0 },
        cpu: cpu.map_or(0, |cpu| cpu.0),
    };
    // SAFETY: there are no addresses in the attributes.
    unsafe { bpf(PROG_TEST_RUN, &attributes) }.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_includes_the_sleep_that_lasts() {
        let record = [700, 500, 30, 4, 1_000, 700, 500, 30];
        let time = |words| idle_time(&words).map(|it| (it.at.as_ns(), it.idle.as_ns()));
        assert_eq!(time(record), Some((1_000, 830)));
        assert_eq!(time([700, 500, 30, 0, 1_000, 700, 500, 30]), Some((1_000, 530)), "awake");
        for word in 5..WORDS {
            let mut written = record;
            written[word] += 1;
            assert_eq!(time(written), None, "{word}");
        }
    }
}
