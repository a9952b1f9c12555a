//! Run time of BPF programs, as the kernel counts it.
//!
//! While it counts, the kernel reads a clock before and after each run of each program of the machine, those of others too. So
//! it counts for as long as a [`RunTimeCount`] lives, and one lives in short spans only.

use std::io;
use std::os::fd::OwnedFd;

use latput_units::Nanos;

use super::{bpf, bpf_fd, descriptor};

// `enum bpf_cmd` and `enum bpf_stats_type`, include/uapi/linux/bpf.h.
const OBJ_GET_INFO_BY_FD: libc::c_long = 15;
const ENABLE_STATS: libc::c_long = 32;
const STATS_RUN_TIME: u32 = 0;

/// Words of `struct bpf_prog_info` up to `run_cnt`, and the place of `run_time_ns`. What is behind is not asked for.
const INFO_WORDS: usize = 26;
const RUN_TIME_NS: usize = 24;

/// The parts of `union bpf_attr` in use.
#[repr(C)]
struct EnableStats {
    kind: u32,
}

#[repr(C)]
struct ObjectInfo {
    fd: u32,
    length: u32,
    info: u64,
}

/// The kernel's count of run times, on for as long as this lives.
#[derive(Debug)]
pub(crate) struct RunTimeCount {
    _on: OwnedFd,
}

impl RunTimeCount {
    /// Fails before Linux 5.8, and without `CAP_SYS_ADMIN`.
    pub(crate) fn start() -> io::Result<Self> {
        // SAFETY: there is no address in the attributes.
        let on = unsafe { bpf_fd(ENABLE_STATS, &EnableStats { kind: STATS_RUN_TIME }) }?;
        Ok(Self { _on: on })
    }
}

/// Run time of a program in all spans in which the kernel counted.
pub(crate) fn run_time(program: &OwnedFd) -> io::Result<Nanos> {
    let mut info = [0_u64; INFO_WORDS];
    let length = u32::try_from(size_of_val(&info)).expect("a few words");
    let attributes = ObjectInfo { fd: descriptor(program), length, info: info.as_mut_ptr() as u64 };
    // SAFETY: the kernel writes at most `length` bytes to the words. They are zero, so it takes no address from them.
    unsafe { bpf(OBJ_GET_INFO_BY_FD, &attributes) }?;
    Ok(Nanos::from_ns(info[RUN_TIME_NS]))
}
