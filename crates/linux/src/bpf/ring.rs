//! A ring buffer from BPF programs to this process (Documentation/bpf/ringbuf.rst).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::map::create_map;
use crate::error::Error;

// `enum bpf_map_type`, `BPF_RINGBUF_*`, include/uapi/linux/bpf.h.
const MAP_TYPE_RINGBUF: u32 = 27;
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
/// Bytes before each record, and what records are aligned to.
const HEADER: usize = 8;

/// Records of `N` words, oldest first.
#[derive(Debug)]
pub(super) struct Ring<const N: usize> {
    map: OwnedFd,
    /// How far this process has read. Only it writes there.
    consumed: Mapping,
    /// How far the programs have written, and then the records, twice: so none is cut at the ring's end.
    produced: Mapping,
    page: usize,
    bytes: usize,
}

/// Content of a ring.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Taken<const N: usize> {
    pub(super) records: Vec<[u64; N]>,
    /// Whether it was full: then later records may be missing.
    pub(super) was_full: bool,
}

impl<const N: usize> Ring<N> {
    /// Creates it, empty. `bytes` is a power of two, and a number of pages. `what` names it in errors.
    pub(super) fn create(what: &str, bytes: usize) -> Result<Self, Error> {
        let failed = |source| Error::system(format!("create the BPF ring of {what}"), source);
        let entries = u32::try_from(bytes).expect("a small ring");
        let map = create_map(MAP_TYPE_RINGBUF, [0, 0], entries).map_err(failed)?;
        // SAFETY: no memory is involved.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page = usize::try_from(page).map_err(|_| failed(io::Error::last_os_error()))?;
        let write = libc::PROT_READ | libc::PROT_WRITE;
        let consumed = Mapping::new(&map, 0, page, write).map_err(failed)?;
        let length = page + 2 * bytes;
        let produced = Mapping::new(&map, page, length, libc::PROT_READ).map_err(failed)?;
        Ok(Self { map, consumed, produced, page, bytes })
    }

    /// For programs that write to it.
    pub(super) fn as_raw_fd(&self) -> RawFd {
        self.map.as_raw_fd()
    }

    /// Takes all that was written since the last call.
    pub(super) fn take(&mut self) -> Taken<N> {
        // SAFETY: a page begins with it, which is mapped as long as `self`, and it is only accessed as an atomic.
        let consumed = unsafe { AtomicU64::from_ptr(self.consumed.start.as_ptr().cast()) };
        // SAFETY: as before.
        let produced = unsafe { AtomicU64::from_ptr(self.produced.start.as_ptr().cast()) };
        let (from, to) = (consumed.load(Ordering::Relaxed), produced.load(Ordering::Acquire));
        let record = HEADER + N * size_of::<u64>();
        let unread = usize::try_from(to.wrapping_sub(from)).unwrap_or(usize::MAX);
        let mut records = Vec::new();
        let mut read = 0;
        while read < unread {
            let at = from.wrapping_add(read as u64) % self.bytes as u64;
            let header = self.address(usize::try_from(at).expect("less than the ring"));
            // SAFETY: headers are within the mapping, each at a multiple of 8 bytes, and only accessed as atomics.
            let length = unsafe { AtomicU32::from_ptr(header.cast()) }.load(Ordering::Acquire);
            if length & BUSY != 0 {
                break;
            }
            let bytes = (length & !DISCARDED) as usize;
            if length & DISCARDED == 0 && bytes + HEADER == record {
                let words = header.wrapping_add(HEADER).cast::<[u64; N]>();
                // SAFETY: the record is complete, ends before the second copy does, and is not written again before
                // `consumed` says so.
                records.push(unsafe { words.read() });
            }
            read += (bytes + HEADER).next_multiple_of(HEADER);
        }
        consumed.store(from.wrapping_add(read as u64), Ordering::Release);
        Taken { records, was_full: unread + record > self.bytes }
    }

    /// Where the ring's byte `at` is.
    fn address(&self, at: usize) -> *mut u8 {
        self.produced.start.as_ptr().wrapping_add(self.page + at)
    }
}

/// Mapped memory of a map.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the memory is the process's and not a thread's, and is accessed through `RingBuffer`, whose reading needs `&mut`.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(
        map: &OwnedFd,
        offset: usize,
        length: usize,
        protection: libc::c_int,
    ) -> io::Result<Self> {
        let offset = libc::off_t::try_from(offset).expect("the second page at most");
        // SAFETY: a new mapping that overlaps nothing.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                protection,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                offset,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("no address"))?;
        Ok(Self { start, length })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping is whole and nobody else's, and nothing refers to it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}
