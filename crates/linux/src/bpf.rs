//! Small BPF programs on raw tracepoints: what the kernel does, counted where it does it.
//!
//! The programs are assembled here, so neither a compiler nor a library is needed, and everything the
//! kernel holds for them is gone with its file descriptors when the process ends.

mod btf;
mod code;
mod cpu;
mod napi;

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::error::Error;
use crate::process::Capability;

pub(crate) use cpu::{CpuSpans, CpuTracer};
pub use napi::NapiTracer;

/// The kernel's description of its own types.
const BTF_PATH: &str = "/sys/kernel/btf/vmlinux";

// `enum bpf_cmd`, `bpf_map_type` and `bpf_prog_type`, include/uapi/linux/bpf.h.
const MAP_CREATE: libc::c_long = 0;
const MAP_LOOKUP_ELEM: libc::c_long = 1;
const MAP_UPDATE_ELEM: libc::c_long = 2;
const PROG_LOAD: libc::c_long = 5;
const RAW_TRACEPOINT_OPEN: libc::c_long = 17;
const MAP_TYPE_PERCPU_ARRAY: u32 = 6;
const PROG_TYPE_RAW_TRACEPOINT: u32 = 17;

/// Fails where this process cannot trace; `what` is the purpose.
fn require(what: &str) -> Result<(), Error> {
    if cfg!(not(target_endian = "little")) {
        return Err(Error::Other(format!("{what} works on little-endian machines only")));
    }
    Capability::Bpf.require(what)
}

/// What `check` says of the kernel's type information; `false` if the kernel has none.
fn check_layout(
    what: &str,
    check: impl FnOnce(&[u8]) -> Result<(), String>,
) -> Result<bool, Error> {
    match fs::read(BTF_PATH) {
        Ok(bytes) => check(&bytes)
            .map(|()| true)
            .map_err(|reason| Error::Other(format!("{BTF_PATH}: no {what}: {reason}"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::system(format!("read {BTF_PATH}"), error)),
    }
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
struct MapElement {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

impl MapElement {
    /// The only element, whose value is at `value`.
    fn new<T>(map: &OwnedFd, value: *const T) -> Self {
        const KEY: &u32 = &0;
        let key = std::ptr::from_ref(KEY) as u64;
        Self { map: descriptor(map), padding: 0, key, value: value as u64, flags: 0 }
    }
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

/// A map of one value of `N` words for each possible CPU.
fn create_map<const N: usize>() -> io::Result<OwnedFd> {
    let value_size = u32::try_from(N * size_of::<u64>()).expect("a small value");
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

fn open_tracepoint(name: &str, program: &OwnedFd) -> io::Result<OwnedFd> {
    let name = std::ffi::CString::new(name).expect("a name without NUL");
    let attributes =
        RawTracepointOpen { name: name.as_ptr() as u64, program: descriptor(program), padding: 0 };
    bpf_fd(RAW_TRACEPOINT_OPEN, &attributes)
}

/// `slots` must have one entry for each possible CPU: that is how much the kernel writes.
fn read_map<const N: usize>(map: &OwnedFd, slots: &mut [[u64; N]]) -> io::Result<()> {
    bpf(MAP_LOOKUP_ELEM, &MapElement::new(map, slots.as_mut_ptr())).map(|_| ())
}

/// `slots` must have one entry for each possible CPU: that is how much the kernel reads.
fn write_map<const N: usize>(map: &OwnedFd, slots: &[[u64; N]]) -> io::Result<()> {
    bpf(MAP_UPDATE_ELEM, &MapElement::new(map, slots.as_ptr())).map(|_| ())
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
