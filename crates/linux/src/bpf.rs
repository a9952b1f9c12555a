//! Counts NAPI polls with a BPF program on the raw tracepoint `napi_poll`.
//!
//! The program is assembled here, so neither a compiler nor a library is needed, and everything the
//! kernel holds for it is gone with its file descriptors when the process ends. Polls are counted by
//! CPU; those of other interfaces and of the loopback's backlog on the same CPUs are among them.

mod btf;

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use latput_trial::observation::NapiObservation;
use latput_units::{CpuId, CpuSet};

use crate::error::Error;
use crate::process::{Capability, possible_cpus};

/// The kernel's description of its own types.
const BTF_PATH: &str = "/sys/kernel/btf/vmlinux";
const TRACEPOINT: &str = "napi_poll";

// `enum bpf_cmd`, `bpf_map_type` and `bpf_prog_type`, include/uapi/linux/bpf.h.
const MAP_CREATE: libc::c_long = 0;
const MAP_LOOKUP_ELEM: libc::c_long = 1;
const PROG_LOAD: libc::c_long = 5;
const RAW_TRACEPOINT_OPEN: libc::c_long = 17;
const MAP_TYPE_PERCPU_ARRAY: u32 = 6;
const PROG_TYPE_RAW_TRACEPOINT: u32 = 17;

/// Counters in one CPU's slot: polls, packets, empty polls.
const COUNTERS: usize = 3;

/// A running count of NAPI polls on some CPUs.
#[derive(Debug)]
pub struct NapiTracer {
    map: OwnedFd,
    _program: OwnedFd,
    _link: OwnedFd,
    cpus: CpuSet,
    possible: CpuSet,
    is_layout_checked: bool,
}

impl NapiTracer {
    /// Starts counting on `cpus`. Fails where the process may not, the kernel has no BPF, or its
    /// tracepoint hands over other arguments than the program takes.
    pub fn attach(cpus: &CpuSet) -> Result<Self, Error> {
        if cfg!(not(target_endian = "little")) {
            return Err(Error::Other(
                "NAPI polls are traced on little-endian machines only".into(),
            ));
        }
        Capability::Bpf.require("counting NAPI polls")?;
        let is_layout_checked = check_layout()?;
        let possible = possible_cpus()?;
        let map = create_map()
            .map_err(|source| Error::system("create the BPF map of NAPI counters", source))?;
        let program = load_program(&assemble(map.as_raw_fd()))
            .map_err(|source| Error::system("load the BPF program that counts polls", source))?;
        let link = open_tracepoint(&program)
            .map_err(|source| Error::system("attach to the tracepoint napi_poll", source))?;
        Ok(Self {
            map,
            _program: program,
            _link: link,
            cpus: cpus.clone(),
            possible,
            is_layout_checked,
        })
    }

    /// Whether the tracepoint's arguments were found to be as expected; `false` if the kernel does
    /// not describe its types and they are taken to be so.
    pub fn is_layout_checked(&self) -> bool {
        self.is_layout_checked
    }

    /// The counts since `attach`, by CPU, in ascending order.
    pub fn read(&self) -> Result<Vec<(CpuId, NapiObservation)>, Error> {
        let mut slots = vec![[0_u64; COUNTERS]; self.possible.len()];
        read_map(&self.map, &mut slots)
            .map_err(|source| Error::system("read the BPF map of NAPI counters", source))?;
        // The kernel writes a slot for each possible CPU, in ascending order.
        Ok(self
            .possible
            .iter()
            .zip(slots)
            .filter(|(cpu, _)| self.cpus.contains(*cpu))
            .map(|(cpu, [polls, packets, empty_polls])| {
                (cpu, NapiObservation { polls, packets, empty_polls })
            })
            .collect())
    }
}

/// Whether the kernel says that the tracepoint is `(void *, struct napi_struct *, int work, int
/// budget)`; `false` if it says nothing, an error if it says otherwise.
fn check_layout() -> Result<bool, Error> {
    match fs::read(BTF_PATH) {
        Ok(bytes) => btf::check_tracepoint(&bytes, TRACEPOINT, "napi_struct")
            .map(|()| true)
            .map_err(|reason| {
                Error::Other(format!("{BTF_PATH}: NAPI polls cannot be counted: {reason}"))
            }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::system(format!("read {BTF_PATH}"), error)),
    }
}

/// One instruction: `struct bpf_insn`, little endian.
const fn instruction(code: u8, target: u8, source: u8, offset: i16, immediate: i32) -> u64 {
    code as u64
        | (target as u64) << 8
        | (source as u64) << 12
        | ((offset as u16) as u64) << 16
        | ((immediate as u32) as u64) << 32
}

/// The program. In C, with `ctx` the tracepoint's arguments after the hidden first one:
///
/// ```c
/// long work = (int)ctx[1];
/// __u32 key = 0;
/// __u64 *count = bpf_map_lookup_elem(&map, &key);
/// if (count) { count[0]++; if (work > 0) count[1] += work; else count[2]++; }
/// return 0;
/// ```
fn assemble(map: RawFd) -> Vec<u64> {
    const LOAD: u8 = 0x79; // target = *(u64 *)(source + offset)
    const STORE: u8 = 0x7b; // *(u64 *)(target + offset) = source
    const STORE_IMMEDIATE_32: u8 = 0x62;
    const LOAD_MAP: u8 = 0x18; // two slots, source 1: the immediate is a map's descriptor
    const MOVE: u8 = 0xbf;
    const MOVE_IMMEDIATE: u8 = 0xb7;
    const ADD: u8 = 0x0f;
    const ADD_IMMEDIATE: u8 = 0x07;
    const SHIFT_LEFT: u8 = 0x67;
    const SHIFT_RIGHT_SIGNED: u8 = 0xc7;
    const CALL: u8 = 0x85;
    const JUMP: u8 = 0x05;
    const JUMP_IF_EQUAL: u8 = 0x15;
    const JUMP_IF_GREATER_SIGNED: u8 = 0x65;
    const EXIT: u8 = 0x95;
    vec![
        instruction(LOAD, 6, 1, 8, 0), // r6 = ctx[1], of which the lower half is `work`
        instruction(SHIFT_LEFT, 6, 0, 0, 32),
        instruction(SHIFT_RIGHT_SIGNED, 6, 0, 0, 32),
        instruction(STORE_IMMEDIATE_32, 10, 0, -4, 0), // key = 0, on the stack
        instruction(MOVE, 2, 10, 0, 0),
        instruction(ADD_IMMEDIATE, 2, 0, 0, -4),
        instruction(LOAD_MAP, 1, 1, 0, map),
        instruction(0, 0, 0, 0, 0),
        instruction(CALL, 0, 0, 0, 1), // bpf_map_lookup_elem
        instruction(JUMP_IF_EQUAL, 0, 0, 11, 0),
        instruction(LOAD, 1, 0, 0, 0), // polls
        instruction(ADD_IMMEDIATE, 1, 0, 0, 1),
        instruction(STORE, 0, 1, 0, 0),
        instruction(JUMP_IF_GREATER_SIGNED, 6, 0, 4, 0),
        instruction(LOAD, 1, 0, 16, 0), // empty polls
        instruction(ADD_IMMEDIATE, 1, 0, 0, 1),
        instruction(STORE, 0, 1, 16, 0),
        instruction(JUMP, 0, 0, 3, 0),
        instruction(LOAD, 1, 0, 8, 0), // packets
        instruction(ADD, 1, 6, 0, 0),
        instruction(STORE, 0, 1, 8, 0),
        instruction(MOVE_IMMEDIATE, 0, 0, 0, 0),
        instruction(EXIT, 0, 0, 0, 0),
    ]
}

/// The parts of `union bpf_attr` in use; each begins at offset 0 of the union, and the kernel takes a
/// shorter one for one with zeros behind.
#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
}

#[repr(C)]
struct MapLookup {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgLoad {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
}

#[repr(C)]
struct RawTracepointOpen {
    name: u64,
    program: u32,
    padding: u32,
}

fn create_map() -> io::Result<OwnedFd> {
    let value_size = u32::try_from(COUNTERS * size_of::<u64>()).expect("24 fits");
    let attributes =
        MapCreate { map_type: MAP_TYPE_PERCPU_ARRAY, key_size: 4, value_size, max_entries: 1 };
    bpf_fd(MAP_CREATE, &attributes)
}

fn load_program(instructions: &[u64]) -> io::Result<OwnedFd> {
    let attributes = ProgLoad {
        program_type: PROG_TYPE_RAW_TRACEPOINT,
        instruction_count: u32::try_from(instructions.len()).expect("a short program"),
        instructions: instructions.as_ptr() as u64,
        license: c"Apache-2.0 OR MIT".as_ptr() as u64,
    };
    bpf_fd(PROG_LOAD, &attributes)
}

fn open_tracepoint(program: &OwnedFd) -> io::Result<OwnedFd> {
    let name = std::ffi::CString::new(TRACEPOINT).expect("a name without NUL");
    let attributes =
        RawTracepointOpen { name: name.as_ptr() as u64, program: descriptor(program), padding: 0 };
    bpf_fd(RAW_TRACEPOINT_OPEN, &attributes)
}

/// `slots` must have one entry for each possible CPU: that is how much the kernel writes.
fn read_map(map: &OwnedFd, slots: &mut [[u64; COUNTERS]]) -> io::Result<()> {
    let key = 0_u32;
    let attributes = MapLookup {
        map: descriptor(map),
        padding: 0,
        key: &raw const key as u64,
        value: slots.as_mut_ptr() as u64,
        flags: 0,
    };
    bpf(MAP_LOOKUP_ELEM, &attributes).map(|_| ())
}

fn descriptor(fd: &OwnedFd) -> u32 {
    u32::try_from(fd.as_raw_fd()).expect("open descriptors are not negative")
}

fn bpf_fd<A>(command: libc::c_long, attributes: &A) -> io::Result<OwnedFd> {
    let fd = RawFd::try_from(bpf(command, attributes)?).expect("descriptors are small");
    // SAFETY: these commands return a new descriptor (close-on-exec) that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `bpf(2)`. The callers above see to it that addresses in the attributes are those of live memory,
/// as large as the command reads or writes.
fn bpf<A>(command: libc::c_long, attributes: &A) -> io::Result<libc::c_long> {
    // SAFETY: the pointer and size are those of a live attribute struct, which the kernel copies; what
    // it points to is alive during the call.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<A>())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
