//! The programs of the stages.
//!
//! Each CPU has a slot: the times of what it does now, and a histogram for each stage. One packet in so many is followed
//! further: a table that all CPUs share has the times of its buffer (`struct sk_buff`), by its address. What a program does
//! for a packet that is not followed is a look at the table, so that an address that is used again is not mistaken.

use std::os::fd::RawFd;

use latput_diagnose::stages::{BUCKETS, STAGES, Stage};

use super::super::assembly::{Assembly, Label};
use super::super::btf::Types;
use super::super::code::{
    ADD, ADD_IMMEDIATE, AND, AND_IMMEDIATE, CALL, EXIT, GET_CURRENT_TASK, JUMP_IF_EQUAL,
    JUMP_IF_GREATER, JUMP_IF_NOT_EQUAL, JUMP_IF_OTHER, JUMP_IF_SAME, KTIME_GET_NS, LOAD, LOAD_32,
    MOVE, MOVE_32, MOVE_IMMEDIATE, MULTIPLY_IMMEDIATE, OR, SHIFT_LEFT, SHIFT_RIGHT, SHIFT_RIGHT_BY,
    STORE, STORE_IMMEDIATE, SUBTRACT, instruction, load_constant, load_map_value, look_up,
};

/// A word of a CPU's slot: which packets are followed, those whose number has none of these bits.
pub(super) const MASK: usize = 0;
/// Runs of programs.
pub(super) const EVENTS: usize = 1;
/// Packets of the interface.
pub(super) const RECEIVED: usize = 2;
pub(super) const SENT: usize = 3;
/// When the receive softirq was raised; 0 if it is not.
const RAISED: usize = 4;
/// How long the softirq or NAPI thread that runs has waited, when it began, and which it is.
const WAITED: usize = 5;
const BEGUN: usize = 6;
const IS_THREAD: usize = 7;
/// The packet that is followed through the protocols, and since when.
const FOLLOWED: usize = 8;
const TAKEN: usize = 9;
/// When the task that runs was switched to.
const SWITCHED: usize = 10;
/// The sum of each stage's waits, and then its buckets.
pub(super) const SUMS: usize = 16;
pub(super) const HISTOGRAMS: usize = SUMS + 16;
/// Words of a slot.
pub(super) const WORDS: usize = HISTOGRAMS + STAGES.len() * BUCKETS;

/// Entries of the table of packets, and of that of tasks behind it; words of one.
const PACKETS: i32 = 1024;
const TASKS: i32 = 256;
pub(super) const ENTRY_WORDS: usize = 4;
const ENTRY_SHIFT: i32 = 5;
pub(super) const ENTRIES: usize = (PACKETS + TASKS) as usize;
/// Words of a packet's entry: its address, when it was taken up or queued, when it was in the socket or with the driver,
/// and which way it goes.
const ADDRESS: i16 = 0;
const FIRST: i16 = 8;
const SECOND: i16 = 16;
const WAY: i16 = 24;
const INWARD: i32 = 1;
const OUTWARD: i32 = 2;
/// Words of a task's entry: its address, when it has read what was followed, when it has sent last, when it was woken.
const READ: i16 = 8;
const SENT_AT: i16 = 16;
const WOKEN: i16 = 24;

/// The receive softirq among the softirqs (`NET_RX_SOFTIRQ`).
const RECEIVE: i32 = 3;
/// The beginning of the name of a NAPI thread, as a number: `napi`.
const NAPI: i32 = i32::from_le_bytes(*b"napi");
/// Knuth's factor for hashes, of 31 bits.
const GOLDEN: i32 = 0x61c8_8647;
/// Waits of 2 to this power of nanoseconds and more are in the last bucket.
const LONGEST_POWER: i32 = 34;

// Registers that calls leave alone.
const OBJECT: u8 = 6;
const SLOT: u8 = 7;
const ENTRY: u8 = 8;
const NOW: u8 = 9;

/// Where the programs find the kernel's fields, and the interface that they look for.
#[derive(Clone, Copy, Debug)]
pub(super) struct KernelPlaces {
    device: i16,
    interface: i16,
    index: i16,
    namespace: i16,
    inode: i16,
    name: i16,
}

impl KernelPlaces {
    pub(super) fn find(types: &Types<'_>) -> Result<Self, String> {
        Ok(Self {
            device: types.place("sk_buff", "dev")?,
            interface: types.place("sk_buff", "skb_iif")?,
            index: types.place("net_device", "ifindex")?,
            namespace: types.place("net_device", "nd_net.net")?,
            inode: types.place("net", "ns.inum")?,
            name: types.place("task_struct", "comm")?,
        })
    }
}

/// An interface, by its number in a namespace with this inode.
#[derive(Clone, Copy, Debug)]
pub(super) struct TracedDevice {
    pub(super) index: i32,
    pub(super) namespace: u32,
}

/// Maps of the programs, and what they look for.
#[derive(Clone, Copy, Debug)]
pub(super) struct StageSetup {
    pub(super) slots: RawFd,
    pub(super) table: RawFd,
    pub(super) places: KernelPlaces,
    pub(super) device: TracedDevice,
    /// Whether NAPI threads are looked for.
    pub(super) has_threads: bool,
}

/// Where a word is, in bytes.
fn at(word: usize) -> i16 {
    i16::try_from(word * 8).expect("a short slot")
}

/// A program that is being made.
struct StageProgram {
    code: Assembly,
    end: Label,
    setup: StageSetup,
}

impl StageProgram {
    /// Begins with an argument of the tracepoint, by its number, as [`OBJECT`], and the CPU's slot as [`SLOT`].
    fn new(setup: StageSetup, argument: usize) -> Self {
        let mut code = Assembly::default();
        let end = code.new_label();
        code.add(&[instruction(LOAD, OBJECT, 1, at(argument), 0)]);
        let mut program = Self { code, end, setup };
        program.find_slot();
        program
    }

    /// Begins a program for the receive softirq; others end it at once.
    fn for_softirq(setup: StageSetup) -> Self {
        let mut code = Assembly::default();
        let end = code.new_label();
        code.add(&[instruction(LOAD, OBJECT, 1, 0, 0), instruction(MOVE_32, OBJECT, OBJECT, 0, 0)]);
        code.jump_if(JUMP_IF_NOT_EQUAL, OBJECT, RECEIVE, end);
        let mut program = Self { code, end, setup };
        program.find_slot();
        program
    }

    fn find_slot(&mut self) {
        self.code.add(&look_up(self.setup.slots));
        self.code.jump_if(JUMP_IF_EQUAL, 0, 0, self.end);
        self.code.add(&[instruction(MOVE, SLOT, 0, 0, 0)]);
        self.count(EVENTS);
    }

    fn finish(mut self) -> Vec<u64> {
        self.code.place(self.end);
        self.code.add(&[instruction(MOVE_IMMEDIATE, 0, 0, 0, 0), instruction(EXIT, 0, 0, 0, 0)]);
        self.code.finish()
    }

    /// Adds one to a word of the slot, and leaves the old value in r1.
    fn count(&mut self, word: usize) {
        self.code.add(&[
            instruction(LOAD, 1, SLOT, at(word), 0),
            instruction(MOVE, 2, 1, 0, 0),
            instruction(ADD_IMMEDIATE, 2, 0, 0, 1),
            instruction(STORE, SLOT, 2, at(word), 0),
        ]);
    }

    fn load(&mut self, register: u8, word: usize) {
        self.code.add(&[instruction(LOAD, register, SLOT, at(word), 0)]);
    }

    fn store(&mut self, word: usize, register: u8) {
        self.code.add(&[instruction(STORE, SLOT, register, at(word), 0)]);
    }

    fn set(&mut self, word: usize, value: i32) {
        self.code.add(&[instruction(STORE_IMMEDIATE, SLOT, 0, at(word), value)]);
    }

    fn load_entry(&mut self, register: u8, offset: i16) {
        self.code.add(&[instruction(LOAD, register, ENTRY, offset, 0)]);
    }

    fn store_entry(&mut self, offset: i16, register: u8) {
        self.code.add(&[instruction(STORE, ENTRY, register, offset, 0)]);
    }

    fn set_entry(&mut self, offset: i16, value: i32) {
        self.code.add(&[instruction(STORE_IMMEDIATE, ENTRY, 0, offset, value)]);
    }

    /// The time as [`NOW`]. Registers 0 to 5 are lost.
    fn read_clock(&mut self) {
        self.code.add(&[instruction(CALL, 0, 0, 0, KTIME_GET_NS), instruction(MOVE, NOW, 0, 0, 0)]);
    }

    /// The entry of the object in a register as [`ENTRY`]. Register 1 is lost.
    fn find_entry(&mut self, register: u8, entries: i32, first: i32) {
        self.code.add(&[
            instruction(MOVE_32, 1, register, 0, 0),
            instruction(SHIFT_RIGHT, 1, 0, 0, 6), // objects are aligned to cache lines
            instruction(MULTIPLY_IMMEDIATE, 1, 0, 0, GOLDEN),
            instruction(SHIFT_RIGHT, 1, 0, 0, 20),
            instruction(AND_IMMEDIATE, 1, 0, 0, entries - 1),
            instruction(SHIFT_LEFT, 1, 0, 0, ENTRY_SHIFT),
        ]);
        self.code.add(&load_map_value(ENTRY, self.setup.table, first << ENTRY_SHIFT));
        self.code.add(&[instruction(ADD, ENTRY, 1, 0, 0)]);
    }

    fn find_packet(&mut self) {
        self.find_entry(OBJECT, PACKETS, 0);
    }

    fn find_task(&mut self, register: u8) {
        self.find_entry(register, TASKS, PACKETS);
    }

    /// Ends the program where the packet's buffer, of [`OBJECT`], is of another device. Registers 1 to 3 are lost.
    fn keep_device(&mut self) {
        let StageSetup { places, device, .. } = self.setup;
        self.code.add(&[
            instruction(LOAD, 1, OBJECT, places.device, 0),
            instruction(LOAD_32, 2, 1, places.index, 0),
        ]);
        self.code.jump_if(JUMP_IF_NOT_EQUAL, 2, device.index, self.end);
        self.code.add(&[
            instruction(LOAD, 1, 1, places.namespace, 0),
            instruction(LOAD_32, 2, 1, places.inode, 0),
        ]);
        self.code.add(&load_constant(3, u64::from(device.namespace)));
        self.code.jump_if_both(JUMP_IF_OTHER, [2, 3], self.end);
    }

    /// Counts a packet, and ends the program where it is not followed.
    fn keep_followed(&mut self, word: usize) {
        self.count(word);
        self.load(2, MASK);
        self.code.add(&[instruction(AND, 1, 2, 0, 0)]);
        self.code.jump_if(JUMP_IF_NOT_EQUAL, 1, 0, self.end);
    }

    /// Begins the packet's entry.
    fn follow(&mut self, way: i32) {
        self.store_entry(ADDRESS, OBJECT);
        self.store_entry(FIRST, NOW);
        self.set_entry(SECOND, 0);
        self.set_entry(WAY, way);
    }

    /// Adds the wait from the time in a register until [`NOW`]. Registers 1 to 5 are lost.
    fn record_since(&mut self, register: u8, stage: Stage) {
        self.code.add(&[
            instruction(MOVE, 5, register, 0, 0),
            instruction(MOVE, 1, NOW, 0, 0),
            instruction(SUBTRACT, 1, 5, 0, 0),
        ]);
        self.record(stage);
    }

    /// Adds the wait in r1. Registers 1 to 5 are lost. In C, of which each line is without a jump but the first two:
    ///
    /// ```c
    /// if (wait >> 63) goto skip;                     // clocks of CPUs differ by some nanoseconds
    /// slot->sums[stage] += wait; wait += 4;
    /// if (wait >> 34) wait = (1ull << 34) - 1;
    /// power = log2(wait) - 2;
    /// slot->histograms[stage][4 * power + (wait >> power & 3)]++;
    /// ```
    fn record(&mut self, stage: Stage) {
        let skip = self.code.new_label();
        let short = self.code.new_label();
        let (sum, buckets) = (at(SUMS + stage as usize), at(HISTOGRAMS + stage as usize * BUCKETS));
        self.code.add(&[instruction(MOVE, 2, 1, 0, 0), instruction(SHIFT_RIGHT, 2, 0, 0, 63)]);
        self.code.jump_if(JUMP_IF_NOT_EQUAL, 2, 0, skip);
        self.code.add(&[
            instruction(LOAD, 2, SLOT, sum, 0),
            instruction(ADD, 2, 1, 0, 0),
            instruction(STORE, SLOT, 2, sum, 0),
            instruction(ADD_IMMEDIATE, 1, 0, 0, 4),
            instruction(MOVE, 2, 1, 0, 0),
            instruction(SHIFT_RIGHT, 2, 0, 0, LONGEST_POWER),
        ]);
        self.code.jump_if(JUMP_IF_EQUAL, 2, 0, short);
        self.code.add(&load_constant(1, (1 << LONGEST_POWER) - 1));
        self.code.place(short);
        self.take_logarithm();
        self.code.add(&[
            instruction(ADD_IMMEDIATE, 2, 0, 0, -2),
            instruction(SHIFT_RIGHT_BY, 1, 2, 0, 0),
            instruction(AND_IMMEDIATE, 1, 0, 0, 3),
            instruction(SHIFT_LEFT, 2, 0, 0, 2),
            instruction(ADD, 2, 1, 0, 0),
            instruction(AND_IMMEDIATE, 2, 0, 0, 127),
            instruction(SHIFT_LEFT, 2, 0, 0, 3),
            instruction(ADD, 2, SLOT, 0, 0),
            instruction(LOAD, 3, 2, buckets, 0),
            instruction(ADD_IMMEDIATE, 3, 0, 0, 1),
            instruction(STORE, 2, 3, buckets, 0),
        ]);
        self.code.place(skip);
    }

    /// The logarithm of r1 to base 2, rounded down, in r2. Registers 3 and 4 are lost. It has no jump: the verifier would
    /// follow both ways of each.
    fn take_logarithm(&mut self) {
        self.code.add(&[instruction(MOVE_IMMEDIATE, 2, 0, 0, 0), instruction(MOVE, 3, 1, 0, 0)]);
        for power in [5, 4, 3, 2, 1, 0] {
            // The largest number that this step does not shift: minus what there is, it has a sign if it is smaller.
            self.code.add(&load_constant(4, (1 << (1 << power)) - 1));
            self.code.add(&[
                instruction(SUBTRACT, 4, 3, 0, 0),
                instruction(SHIFT_RIGHT, 4, 0, 0, 63),
                instruction(SHIFT_LEFT, 4, 0, 0, power),
                instruction(SHIFT_RIGHT_BY, 3, 4, 0, 0),
                instruction(OR, 2, 4, 0, 0),
            ]);
        }
    }

    /// Ends the way in of the packet whose entry is [`ENTRY`]: its reader has it.
    fn end_way_in(&mut self) {
        let (is_ready, has_slept, is_told) =
            (self.code.new_label(), self.code.new_label(), self.code.new_label());
        self.load_entry(1, WAY);
        self.code.jump_if(JUMP_IF_NOT_EQUAL, 1, INWARD, self.end);
        self.set_entry(ADDRESS, 0);
        // A buffer of another protocol at the same address has come from no interface.
        self.code.add(&[instruction(LOAD_32, 1, OBJECT, self.setup.places.interface, 0)]);
        self.code.jump_if(JUMP_IF_EQUAL, 1, 0, self.end);
        self.read_clock();
        self.load_entry(5, SECOND);
        self.code.jump_if(JUMP_IF_NOT_EQUAL, 5, 0, is_ready);
        self.load_entry(5, FIRST);
        self.code.place(is_ready);
        self.load(1, SWITCHED);
        self.code.jump_if_both(JUMP_IF_GREATER, [1, 5], has_slept);
        self.record_since(5, Stage::Socket);
        self.code.jump(is_told);
        self.code.place(has_slept);
        self.code.add(&[instruction(SUBTRACT, 1, 5, 0, 0)]);
        self.record(Stage::Wakeup);
        self.load(5, SWITCHED);
        self.record_since(5, Stage::Read);
        self.code.place(is_told);
        self.note_reading();
    }

    /// Notes that the task that runs has read, and how long ago it has sent.
    fn note_reading(&mut self) {
        let (is_new, is_known) = (self.code.new_label(), self.code.new_label());
        self.code.add(&[instruction(CALL, 0, 0, 0, GET_CURRENT_TASK)]);
        self.find_task(0);
        self.load_entry(1, ADDRESS);
        self.code.jump_if_both(JUMP_IF_OTHER, [1, 0], is_new);
        self.load_entry(5, SENT_AT);
        self.code.jump_if(JUMP_IF_EQUAL, 5, 0, is_known);
        self.record_since(5, Stage::Turnaround);
        self.code.jump(is_known);
        self.code.place(is_new);
        self.store_entry(ADDRESS, 0);
        self.code.place(is_known);
        self.store_entry(READ, NOW);
        self.set_entry(SENT_AT, 0);
        self.set_entry(WOKEN, 0);
    }

    /// Notes that a program sends, and how long ago it has read. In a softirq, what sends is not the task that runs.
    fn note_sending(&mut self) {
        let (is_other, is_noted) = (self.code.new_label(), self.code.new_label());
        self.load(1, BEGUN);
        self.code.jump_if(JUMP_IF_NOT_EQUAL, 1, 0, is_other);
        self.code.add(&[instruction(CALL, 0, 0, 0, GET_CURRENT_TASK)]);
        self.find_task(0);
        self.load_entry(1, ADDRESS);
        self.code.jump_if_both(JUMP_IF_OTHER, [1, 0], is_other);
        self.read_clock();
        self.load_entry(5, READ);
        self.code.jump_if(JUMP_IF_EQUAL, 5, 0, is_noted);
        self.set_entry(READ, 0);
        self.record_since(5, Stage::Application);
        self.code.place(is_noted);
        self.store_entry(SENT_AT, NOW);
        self.code.place(is_other);
    }
}

/// The receive softirq is raised.
pub(super) fn softirq_raise(setup: StageSetup) -> Vec<u64> {
    let mut program = StageProgram::for_softirq(setup);
    program.load(1, RAISED);
    program.code.jump_if(JUMP_IF_NOT_EQUAL, 1, 0, program.end);
    program.read_clock();
    program.store(RAISED, NOW);
    program.finish()
}

/// It runs. One that was raised before the tracing began says nothing.
pub(super) fn softirq_entry(setup: StageSetup) -> Vec<u64> {
    let mut program = StageProgram::for_softirq(setup);
    program.load(1, RAISED);
    program.code.jump_if(JUMP_IF_EQUAL, 1, 0, program.end);
    program.read_clock();
    program.load(1, RAISED);
    program.code.add(&[instruction(MOVE, 2, NOW, 0, 0), instruction(SUBTRACT, 2, 1, 0, 0)]);
    program.store(WAITED, 2);
    program.store(BEGUN, NOW);
    program.set(IS_THREAD, 0);
    program.set(RAISED, 0);
    program.finish()
}

/// It ends.
pub(super) fn softirq_exit(setup: StageSetup) -> Vec<u64> {
    let mut program = StageProgram::for_softirq(setup);
    program.set(BEGUN, 0);
    program.set(FOLLOWED, 0);
    program.finish()
}

/// The protocols get a packet.
pub(super) fn netif_receive_skb(setup: StageSetup) -> Vec<u64> {
    let mut program = StageProgram::new(setup, 0);
    let labels: [Label; 4] = std::array::from_fn(|_| program.code.new_label());
    let [is_fresh, is_in_thread, is_polled, is_told] = labels;
    // A packet that goes through several devices comes here several times.
    program.load(1, FOLLOWED);
    program.code.jump_if_both(JUMP_IF_SAME, [1, OBJECT], program.end);
    program.set(FOLLOWED, 0);
    program.find_packet();
    program.load_entry(1, ADDRESS);
    program.code.jump_if_both(JUMP_IF_OTHER, [1, OBJECT], is_fresh);
    program.set_entry(ADDRESS, 0);
    program.code.place(is_fresh);
    program.keep_device();
    program.keep_followed(RECEIVED);
    program.read_clock();
    program.load(1, BEGUN);
    program.code.jump_if(JUMP_IF_EQUAL, 1, 0, is_told);
    program.load(2, IS_THREAD);
    program.load(1, WAITED);
    program.code.jump_if(JUMP_IF_NOT_EQUAL, 2, 0, is_in_thread);
    program.record(Stage::Softirq);
    program.code.jump(is_polled);
    program.code.place(is_in_thread);
    program.record(Stage::NapiThread);
    program.code.place(is_polled);
    program.load(5, BEGUN);
    program.record_since(5, Stage::Poll);
    program.code.place(is_told);
    program.store(FOLLOWED, OBJECT);
    program.store(TAKEN, NOW);
    program.follow(INWARD);
    program.finish()
}

/// A socket has data. The packet that is followed on this CPU is the one that has come to it.
pub(super) fn sk_data_ready(setup: StageSetup) -> Vec<u64> {
    let mut program = StageProgram::new(setup, 0);
    program.load(OBJECT, FOLLOWED);
    program.code.jump_if(JUMP_IF_EQUAL, OBJECT, 0, program.end);
    program.set(FOLLOWED, 0);
    program.read_clock();
    program.load(5, TAKEN);
    program.record_since(5, Stage::Protocol);
    program.find_packet();
    program.load_entry(1, ADDRESS);
    program.code.jump_if_both(JUMP_IF_OTHER, [1, OBJECT], program.end);
    program.store_entry(SECOND, NOW);
    program.finish()
}

/// A reader takes a packet: an argument of the tracepoint, or what the function returns behind its arguments.
pub(super) fn take_packet(setup: StageSetup, argument: usize) -> Vec<u64> {
    let mut program = StageProgram::new(setup, argument);
    program.code.jump_if(JUMP_IF_EQUAL, OBJECT, 0, program.end);
    program.find_packet();
    program.load_entry(1, ADDRESS);
    program.code.jump_if_both(JUMP_IF_OTHER, [1, OBJECT], program.end);
    program.end_way_in();
    program.finish()
}

/// A packet is freed: by the driver that has sent it, or by the reader that has taken it.
pub(super) fn consume_skb(setup: StageSetup) -> Vec<u64> {
    let mut program = StageProgram::new(setup, 0);
    let (is_inward, is_dropped) = (program.code.new_label(), program.code.new_label());
    program.find_packet();
    program.load_entry(1, ADDRESS);
    program.code.jump_if_both(JUMP_IF_OTHER, [1, OBJECT], program.end);
    program.load_entry(1, WAY);
    program.code.jump_if(JUMP_IF_EQUAL, 1, INWARD, is_inward);
    program.set_entry(ADDRESS, 0);
    program.load_entry(1, SECOND);
    program.code.jump_if(JUMP_IF_EQUAL, 1, 0, program.end);
    program.read_clock();
    program.load_entry(5, SECOND);
    program.record_since(5, Stage::Ring);
    program.code.jump(program.end);
    program.code.place(is_inward);
    program.load(1, BEGUN);
    program.code.jump_if(JUMP_IF_NOT_EQUAL, 1, 0, is_dropped);
    program.end_way_in();
    program.code.jump(program.end);
    program.code.place(is_dropped);
    program.set_entry(ADDRESS, 0);
    program.finish()
}

/// The CPU switches to another task: a NAPI thread that was woken, if threads are looked for.
pub(super) fn sched_switch(setup: StageSetup) -> Vec<u64> {
    let mut program = StageProgram::new(setup, 2);
    program.read_clock();
    program.store(SWITCHED, NOW);
    program.set(BEGUN, 0);
    program.set(FOLLOWED, 0);
    if setup.has_threads {
        program.find_task(OBJECT);
        program.load_entry(1, ADDRESS);
        program.code.jump_if_both(JUMP_IF_OTHER, [1, OBJECT], program.end);
        program.load_entry(1, WOKEN);
        program.code.jump_if(JUMP_IF_EQUAL, 1, 0, program.end);
        program.code.add(&[instruction(MOVE, 2, NOW, 0, 0), instruction(SUBTRACT, 2, 1, 0, 0)]);
        program.store(WAITED, 2);
        program.store(BEGUN, NOW);
        program.set(IS_THREAD, 1);
        program.set_entry(WOKEN, 0);
    }
    program.finish()
}

/// A NAPI thread is woken.
pub(super) fn sched_waking(setup: StageSetup) -> Vec<u64> {
    let mut program = StageProgram::new(setup, 0);
    program.code.add(&[instruction(LOAD_32, 1, OBJECT, setup.places.name, 0)]);
    program.code.jump_if(JUMP_IF_NOT_EQUAL, 1, NAPI, program.end);
    program.read_clock();
    program.find_task(OBJECT);
    program.store_entry(ADDRESS, OBJECT);
    program.set_entry(READ, 0);
    program.set_entry(SENT_AT, 0);
    program.store_entry(WOKEN, NOW);
    program.finish()
}

/// A poll ends. What a NAPI thread polls then has not waited for it to wake.
pub(super) fn napi_poll(setup: StageSetup) -> Vec<u64> {
    let mut program = StageProgram::new(setup, 0);
    program.load(1, BEGUN);
    program.code.jump_if(JUMP_IF_EQUAL, 1, 0, program.end);
    program.load(1, IS_THREAD);
    program.code.jump_if(JUMP_IF_EQUAL, 1, 0, program.end);
    program.read_clock();
    program.store(BEGUN, NOW);
    program.set(WAITED, 0);
    program.finish()
}

/// A packet is given to the queue discipline.
pub(super) fn net_dev_queue(setup: StageSetup) -> Vec<u64> {
    let mut program = StageProgram::new(setup, 0);
    let is_fresh = program.code.new_label();
    program.find_packet();
    program.load_entry(1, ADDRESS);
    program.code.jump_if_both(JUMP_IF_OTHER, [1, OBJECT], is_fresh);
    program.set_entry(ADDRESS, 0);
    program.code.place(is_fresh);
    program.keep_device();
    program.note_sending();
    program.keep_followed(SENT);
    program.read_clock();
    program.find_packet();
    program.follow(OUTWARD);
    program.finish()
}

/// The driver gets a packet.
pub(super) fn net_dev_start_xmit(setup: StageSetup) -> Vec<u64> {
    let mut program = StageProgram::new(setup, 0);
    program.find_packet();
    program.load_entry(1, ADDRESS);
    program.code.jump_if_both(JUMP_IF_OTHER, [1, OBJECT], program.end);
    program.load_entry(1, WAY);
    program.code.jump_if(JUMP_IF_NOT_EQUAL, 1, OUTWARD, program.end);
    program.read_clock();
    program.store_entry(SECOND, NOW);
    program.load_entry(5, FIRST);
    program.record_since(5, Stage::Qdisc);
    program.finish()
}

#[cfg(test)]
mod tests {
    use latput_diagnose::stages::{StageHistogram, find_bucket};

    use super::*;

    fn setup() -> StageSetup {
        let places = KernelPlaces {
            device: 16,
            interface: 60,
            index: 80,
            namespace: 96,
            inode: 24,
            name: 8,
        };
        let device = TracedDevice { index: 2, namespace: 0xf000_0000 };
        StageSetup { slots: 3, table: 4, places, device, has_threads: true }
    }

    /// Runs the instructions of [`StageProgram::record`] on a slot at address 0 with this wait in r1.
    fn run_record(code: &[u64], wait: u64, slot: &mut [u64; WORDS]) {
        let mut registers = [0_u64; 11];
        registers[1] = wait;
        let mut at = 0;
        while let Some(&word) = code.get(at) {
            let [operation, both, low, high, immediate @ ..] = word.to_le_bytes();
            let (target, source) = (usize::from(both & 15), usize::from(both >> 4));
            let offset = u16::from_le_bytes([low, high]);
            let immediate = i64::from(i32::from_le_bytes(immediate)).cast_unsigned();
            let value = registers[source];
            let place = |base: u64| usize::try_from(base + u64::from(offset)).unwrap() / 8;
            at += 1;
            let old = registers[target];
            registers[target] = match operation {
                0x18 => {
                    at += 1;
                    (word >> 32) | (code[at - 1] & !0xffff_ffff)
                }
                LOAD => slot[place(value)],
                STORE => {
                    slot[place(old)] = value;
                    old
                }
                MOVE => value,
                MOVE_IMMEDIATE => immediate,
                ADD => old.wrapping_add(value),
                ADD_IMMEDIATE => old.wrapping_add(immediate),
                SUBTRACT => old.wrapping_sub(value),
                OR => old | value,
                AND_IMMEDIATE => old & immediate,
                SHIFT_LEFT => old << immediate,
                SHIFT_RIGHT => old >> immediate,
                SHIFT_RIGHT_BY => old >> (value & 63),
                JUMP_IF_EQUAL | JUMP_IF_NOT_EQUAL => {
                    if (old == immediate) == (operation == JUMP_IF_EQUAL) {
                        at += usize::from(offset);
                    }
                    old
                }
                other => panic!("instruction {other:#x}"),
            };
        }
    }

    #[test]
    fn each_wait_is_counted_in_its_bucket() {
        let mut code = Assembly::default();
        let end = code.new_label();
        let mut program = StageProgram { code, end, setup: setup() };
        program.record(Stage::Poll);
        let code = program.code.finish();
        let start = HISTOGRAMS + Stage::Poll as usize * BUCKETS;
        let doublings = (0..34).flat_map(|power| [(1_u64 << power) - 1, 1 << power]);
        for wait in doublings.chain([3, 5, 1000, 1_234_567, u64::from(u32::MAX), 1 << 40]) {
            let mut slot = [0; WORDS];
            run_record(&code, wait, &mut slot);
            let counted = StageHistogram::from_counts(
                &slot[start..start + BUCKETS],
                slot[SUMS + Stage::Poll as usize],
            );
            assert_eq!((counted.count, counted.sum_ns), (1, wait));
            assert_eq!(slot[start + find_bucket(wait)], 1, "{wait}: {counted:?}");
        }
        let mut slot = [0; WORDS];
        run_record(&code, 5_u64.wrapping_neg(), &mut slot);
        assert_eq!(slot, [0; WORDS], "a clock that ran backwards");
    }

    #[test]
    fn programs_end_and_are_short() {
        let made = [
            softirq_raise(setup()),
            softirq_entry(setup()),
            softirq_exit(setup()),
            netif_receive_skb(setup()),
            sk_data_ready(setup()),
            take_packet(setup(), 0),
            take_packet(setup(), 4),
            consume_skb(setup()),
            sched_switch(setup()),
            sched_waking(setup()),
            napi_poll(setup()),
            net_dev_queue(setup()),
            net_dev_start_xmit(setup()),
        ];
        for code in made {
            assert_eq!(code.last(), Some(&instruction(EXIT, 0, 0, 0, 0)));
            // Every kernel loads so many, also without the larger limit of 5.2.
            assert!(code.len() < 4096, "{}", code.len());
        }
    }
}
