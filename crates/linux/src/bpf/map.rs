//! Maps, and one with a value for each possible CPU.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use latput_units::{CpuId, CpuSet};

use super::{bpf, bpf_fd, descriptor};
use crate::error::Error;
use crate::process::possible_cpus;

// `enum bpf_cmd` and `bpf_map_type`, include/uapi/linux/bpf.h.
const MAP_CREATE: libc::c_long = 0;
const MAP_LOOKUP_ELEM: libc::c_long = 1;
const MAP_UPDATE_ELEM: libc::c_long = 2;
const MAP_TYPE_PERCPU_ARRAY: u32 = 6;
/// `BPF_MAP_TYPE_ARRAY`.
pub(super) const MAP_TYPE_ARRAY: u32 = 2;

/// More CPUs than any kernel is built for (`NR_CPUS`: 8192 at most).
const MOST_CPUS: usize = 16_384;
/// Is in no map that was just created.
const UNTOUCHED: u64 = 0xa5a5_a5a5_a5a5_a5a5;

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

/// Creates a map of `map_type` with keys and values of these lengths in bytes.
pub(super) fn create_map(
    map_type: u32,
    [key_size, value_size]: [u32; 2],
    max_entries: u32,
) -> io::Result<OwnedFd> {
    let attributes = MapCreate { map_type, key_size, value_size, max_entries };
    // SAFETY: there are no addresses in the attributes.
    unsafe { bpf_fd(MAP_CREATE, &attributes) }
}

/// One value of `N` words for each possible CPU.
#[derive(Debug)]
pub(super) struct PerCpuMap<const N: usize> {
    map: OwnedFd,
    possible: CpuSet,
}

impl<const N: usize> PerCpuMap<N> {
    /// Creates it with zeros. `what` names it in errors.
    pub(super) fn create(what: &str) -> Result<Self, Error> {
        let failed = |source| Error::system(format!("create the BPF map of {what}"), source);
        let create = |words: usize| {
            let value_size = u32::try_from(words * size_of::<u64>()).expect("a small value");
            create_map(MAP_TYPE_PERCPU_ARRAY, [4, value_size], 1).map_err(failed)
        };
        let possible = possible_cpus()?;
        // How much the kernel copies is by its own number of CPUs, and sysfs may be a container's.
        let mut slots = vec![[UNTOUCHED]; MOST_CPUS];
        // SAFETY: the slots are enough for every kernel.
        unsafe { element(&create(1)?, MAP_LOOKUP_ELEM, slots.as_mut_ptr()) }.map_err(failed)?;
        let copied = slots.iter().take_while(|slot| **slot == [0]).count();
        if copied == possible.len() {
            return Ok(Self { map: create(N)?, possible });
        }
        Err(Error::Other(format!(
            "the kernel has {copied} possible CPUs, and /sys/devices/system/cpu/possible says {}: run latput where \
             /sys is the kernel's own",
            possible.len()
        )))
    }

    /// For programs that use it.
    pub(super) fn as_raw_fd(&self) -> RawFd {
        self.map.as_raw_fd()
    }

    /// Each CPU's value, in ascending order of the CPUs.
    pub(super) fn read(&self) -> io::Result<impl Iterator<Item = (CpuId, [u64; N])> + '_> {
        let mut slots = vec![[0; N]; self.possible.len()];
        // SAFETY: there is a slot for each CPU that the kernel copies, which `create` has counted.
        unsafe { element(&self.map, MAP_LOOKUP_ELEM, slots.as_mut_ptr()) }?;
        Ok(self.possible.iter().zip(slots))
    }

    /// Sets each CPU's value.
    pub(super) fn write(&self, value: impl Fn(CpuId) -> [u64; N]) -> io::Result<()> {
        let mut slots: Vec<[u64; N]> = self.possible.iter().map(value).collect();
        // SAFETY: as in `read`.
        unsafe { element(&self.map, MAP_UPDATE_ELEM, slots.as_mut_ptr()) }
    }
}

/// Copies the first value of an array. `value` is as long as the array's values.
pub(super) fn look_up_first<const N: usize>(
    map: &OwnedFd,
    value: &mut [[u64; N]],
) -> io::Result<()> {
    // SAFETY: the slice is as long as the value, says the caller, who has created the map.
    unsafe { element(map, MAP_LOOKUP_ELEM, value.as_mut_ptr()) }
}

/// Sets the first value of an array, which is as long as `value`.
pub(super) fn write_first<const N: usize>(map: &OwnedFd, value: &mut [[u64; N]]) -> io::Result<()> {
    // SAFETY: as in `look_up_first`.
    unsafe { element(map, MAP_UPDATE_ELEM, value.as_mut_ptr()) }
}

/// A command on the only element.
///
/// # Safety
///
/// `slots` begins as many slots as the kernel has possible CPUs.
unsafe fn element<const N: usize>(
    map: &OwnedFd,
    command: libc::c_long,
    slots: *mut [u64; N],
) -> io::Result<()> {
    const KEY: &u32 = &0;
    let key = std::ptr::from_ref(KEY) as u64;
    let attributes =
        MapElement { map: descriptor(map), padding: 0, key, value: slots as u64, flags: 0 };
    // SAFETY: the key is static; the caller answers for the slots.
    unsafe { bpf(command, &attributes) }.map(|_| ())
}
