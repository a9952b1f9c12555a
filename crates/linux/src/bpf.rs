//! Small BPF programs on tracepoints: what the kernel does, counted where it does it.
//!
//! The programs are assembled here, so neither a compiler nor a library is needed, and everything the
//! kernel holds for them is gone with its file descriptors when the process ends.

mod assembly;
mod btf;
mod code;
mod cpu;
mod idle;
mod map;
mod napi;
mod ring;
mod rtt;
mod stages;
mod stats;

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::error::Error;
use crate::process::Capability;

pub(crate) use cpu::{CpuSpans, CpuTracer};
pub(crate) use idle::{IdleReader, IdleTime};
pub use napi::NapiTracer;
pub use rtt::{RttSamples, RttTracer};
pub use stages::StageRecorder;
pub(crate) use stats::{RunTimeCount, run_time};

/// The kernel's description of its own types.
pub(crate) const BTF_PATH: &str = "/sys/kernel/btf/vmlinux";

// `enum bpf_cmd` and `bpf_prog_type`, include/uapi/linux/bpf.h.
const PROG_LOAD: libc::c_long = 5;
const RAW_TRACEPOINT_OPEN: libc::c_long = 17;
const PROG_TYPE_RAW_TRACEPOINT: u32 = 17;
const PROG_TYPE_TRACING: u32 = 26;
/// `BPF_TRACE_RAW_TP` of `enum bpf_attach_type`.
const ATTACH_RAW_TRACEPOINT: u32 = 23;
/// `BPF_TRACE_FEXIT`.
const ATTACH_FUNCTION_EXIT: u32 = 25;

/// The environment variable that switches all BPF programs off (`off`), has CPU time traced in the windows as well
/// (`window`), or before every other pair of slices (`turns`): to see what they cost.
const SWITCH: &str = "LATPUT_BPF";

/// The kernel's list (include/linux/license.h) has not ours, and lets only those on it read its structures.
const LICENSE_OF_READERS: &CStr = c"Dual MIT/GPL";

/// Fails where this process cannot trace; `what` is the purpose.
fn require(what: &str) -> Result<(), Error> {
    refuse_by(what, "off")?;
    if cfg!(not(target_endian = "little")) {
        return Err(Error::Other(format!("{what} works on little-endian machines only")));
    }
    Capability::Bpf.require(what)
}

/// Whether the environment asks for slices with and without a traced span before them, in turns.
pub fn traces_in_turns() -> bool {
    std::env::var_os(SWITCH).is_some_and(|set| set == "turns")
}

/// Fails where the environment switches `what` off by `value`.
fn refuse_by(what: &str, value: &str) -> Result<(), Error> {
    if std::env::var_os(SWITCH).is_some_and(|set| set == value) {
        return Err(Error::Other(format!("{what} is switched off by {SWITCH}={value}")));
    }
    Ok(())
}

/// The result of `check` on the kernel's type information; `false` if the kernel has none.
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

/// The kernel's type information. Fails where it has none; `what` is the purpose.
fn kernel_types(what: &str) -> Result<Vec<u8>, Error> {
    fs::read(BTF_PATH).map_err(|error| Error::system(format!("read {BTF_PATH} for {what}"), error))
}

/// The parts of `union bpf_attr` in use; each begins at offset 0 of the union, and the kernel takes a
/// shorter one for one with zeros behind.
#[repr(C)]
struct ProgLoad {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    /// The verifier's log, the version of the kernel, flags, a name, a device.
    unused: [u32; 11],
    expected_attach_type: u32,
    /// Type information of the program, its functions and lines.
    unused_types: [u32; 9],
    attach_btf_id: u32,
}

#[repr(C)]
struct RawTracepointOpen {
    name: u64,
    program: u32,
    padding: u32,
}

impl ProgLoad {
    fn new(program_type: u32, instructions: &[u64]) -> Self {
        Self {
            program_type,
            instruction_count: u32::try_from(instructions.len()).expect("a short program"),
            instructions: instructions.as_ptr() as u64,
            license: c"Apache-2.0 OR MIT".as_ptr() as u64,
            unused: [0; 11],
            expected_attach_type: 0,
            unused_types: [0; 9],
            attach_btf_id: 0,
        }
    }
}

fn load_program(instructions: &[u64]) -> io::Result<OwnedFd> {
    let attributes = ProgLoad::new(PROG_TYPE_RAW_TRACEPOINT, instructions);
    // SAFETY: the instructions and the licence, with its NUL, are alive.
    unsafe { bpf_fd(PROG_LOAD, &attributes) }
}

/// A program that reads the kernel's own variables, attached to nothing.
fn load_program_of_kernel(instructions: &[u64]) -> io::Result<OwnedFd> {
    let attributes = ProgLoad {
        license: LICENSE_OF_READERS.as_ptr() as u64,
        ..ProgLoad::new(PROG_TYPE_RAW_TRACEPOINT, instructions)
    };
    // SAFETY: the instructions and the licence, with its NUL, are alive.
    unsafe { bpf_fd(PROG_LOAD, &attributes) }
}

fn open_tracepoint(name: &str, program: &OwnedFd) -> io::Result<OwnedFd> {
    let name = std::ffi::CString::new(name).expect("a name without NUL");
    open_raw_tracepoint(Some(&name), program)
}

/// A program that reads the kernel's structures, for the tracepoint with this number.
fn load_typed_program(instructions: &[u64], tracepoint: u32) -> io::Result<OwnedFd> {
    load_tracing_program(instructions, ATTACH_RAW_TRACEPOINT, tracepoint)
}

/// A program that runs when the function with this number returns. It is attached as those of tracepoints are.
fn load_exit_program(instructions: &[u64], function: u32) -> io::Result<OwnedFd> {
    load_tracing_program(instructions, ATTACH_FUNCTION_EXIT, function)
}

fn load_tracing_program(instructions: &[u64], attach: u32, target: u32) -> io::Result<OwnedFd> {
    let attributes = ProgLoad {
        license: LICENSE_OF_READERS.as_ptr() as u64,
        expected_attach_type: attach,
        attach_btf_id: target,
        ..ProgLoad::new(PROG_TYPE_TRACING, instructions)
    };
    // SAFETY: the instructions and the licence, with its NUL, are alive.
    unsafe { bpf_fd(PROG_LOAD, &attributes) }
}

/// Attaches a program to the tracepoint or function that it was loaded for.
fn open_typed_tracepoint(program: &OwnedFd) -> io::Result<OwnedFd> {
    open_raw_tracepoint(None, program)
}

fn open_raw_tracepoint(name: Option<&CStr>, program: &OwnedFd) -> io::Result<OwnedFd> {
    let name = name.map_or(0, |name| name.as_ptr() as u64);
    let attributes = RawTracepointOpen { name, program: descriptor(program), padding: 0 };
    // SAFETY: the name, with its NUL, is alive.
    unsafe { bpf_fd(RAW_TRACEPOINT_OPEN, &attributes) }
}

fn descriptor(fd: &OwnedFd) -> u32 {
    u32::try_from(fd.as_raw_fd()).expect("open descriptors are not negative")
}

/// A command that returns a descriptor.
///
/// # Safety
///
/// As for [`bpf`]; and `command` is one of those.
unsafe fn bpf_fd<A>(command: libc::c_long, attributes: &A) -> io::Result<OwnedFd> {
    // SAFETY: the caller answers for the attributes.
    let fd = unsafe { bpf(command, attributes) }?;
    let fd = RawFd::try_from(fd).expect("descriptors are small");
    // SAFETY: the command returns a new descriptor (close-on-exec) that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `bpf(2)`.
///
/// # Safety
///
/// `A` is what `command` takes of `union bpf_attr`, and the addresses in it are those of live memory, as large as the
/// command reads or writes.
unsafe fn bpf<A>(command: libc::c_long, attributes: &A) -> io::Result<libc::c_long> {
    // SAFETY: the pointer and size are those of a live struct, which the kernel copies; the caller answers for what it
    // points to.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<A>())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
