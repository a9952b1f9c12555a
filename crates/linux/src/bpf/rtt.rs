//! Each round-trip sample of each TCP connection, by a BPF program on the tracepoint `tcp_probe`.
//!
//! The tracepoint is passed with each segment that an established connection receives, before its acknowledgement
//! counts. So what has changed in the smoothed round-trip time since the segment before is one sample:
//!
//! ```text
//! srtt' = srtt - srtt / 8 + sample        (tcp_rtt_estimator, net/ipv4/tcp_input.c; srtt_us is in eighths of 1 us)
//! ```
//!
//! A sample of just the mean leaves the smoothed time as it was; then what was acknowledged tells it. A sample by a
//! selective acknowledgement that is of just the mean is missed. The last sample of a connection is seen when its
//! next segment comes.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;

use latput_units::Nanos;

use super::code::{
    ADD, ADD_IMMEDIATE, CALL, EXIT, GET_SOCKET_COOKIE, JUMP_IF_EQUAL, JUMP_IF_NOT_EQUAL,
    JUMP_IF_SAME, LOAD, LOAD_32, MAP_LOOKUP, MAP_UPDATE, MOVE, MOVE_IMMEDIATE, OR, RINGBUF_OUTPUT,
    SHIFT_LEFT, SHIFT_RIGHT, SKC_TO_TCP_SOCK, STORE, SUBTRACT, instruction, load_map,
};
use super::map::create_map;
use super::ring::Ring;
use super::{
    BTF_PATH, RunTimeCount, btf, kernel_types, load_typed_program, open_typed_tracepoint, require,
    run_time,
};
use crate::error::Error;

/// `BPF_MAP_TYPE_LRU_HASH`: it forgets the connections that were quiet for longest.
const MAP_TYPE_LRU_HASH: u32 = 9;
/// Connections of which the last smoothed time is known.
const CONNECTIONS: u32 = 32_768;
/// 170,000 samples: as many as come in 50 ms at 3 million a second.
const RING_BYTES: usize = 1 << 22;
/// `BPF_RB_NO_WAKEUP`.
const NO_WAKEUP: i32 = 1;

/// Round-trip samples of the whole machine's TCP connections, from its start on.
#[derive(Debug)]
pub struct RttTracer {
    ring: Ring<2>,
    program: OwnedFd,
    /// While the kernel counts the program's run time.
    count: Option<RunTimeCount>,
    _held: [OwnedFd; 2],
}

/// Round-trip samples.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RttSamples {
    /// The kernel's number of the socket ([`crate::TcpConnection::cookie`]), and the sample, to 1 us.
    pub samples: Vec<(u64, Nanos)>,
    /// Whether there were more than are kept: then the latest are missing.
    pub are_cut: bool,
}

impl RttTracer {
    /// Reads the kernel's types, which are megabytes, if that was not done yet: [`Self::attach`] is quick then.
    pub fn prepare() -> Result<(), Error> {
        tracepoint().map(drop)
    }

    /// Starts. Fails where the process may not, or the kernel cannot (before 5.12, or without type information).
    pub fn attach() -> Result<Self, Error> {
        require("tracing TCP round trips")?;
        let btf::TypedTracepoint { number, offsets } = tracepoint()?;
        let last = create_map(MAP_TYPE_LRU_HASH, [8, 8], CONNECTIONS)
            .map_err(|source| Error::system("create the BPF map of TCP connections", source))?;
        let ring = Ring::create("TCP round trips", RING_BYTES)?;
        let program =
            load_typed_program(&assemble(offsets, last.as_raw_fd(), ring.as_raw_fd()), number)
                .map_err(|source| {
                    Error::system("load the BPF program that sees TCP round trips", source)
                })?;
        let link = open_typed_tracepoint(&program)
            .map_err(|source| Error::system("attach to the tracepoint tcp_probe", source))?;
        Ok(Self { ring, program, count: None, _held: [last, link] })
    }

    /// Lets the kernel count the program's run time from now on, or no longer. Counting slows all programs of the machine a
    /// little. Returns whether it counts: it needs Linux 5.8 and `CAP_SYS_ADMIN`.
    pub fn count_run_time(&mut self, is_counted: bool) -> bool {
        if is_counted != self.count.is_some() {
            self.count = is_counted.then(|| RunTimeCount::start().ok()).flatten();
        }
        self.count.is_some()
    }

    /// The program's run time, as far as it was counted; `None` where the kernel does not tell.
    pub fn run_time(&self) -> Option<Nanos> {
        run_time(&self.program).ok()
    }

    /// The samples since the last call.
    pub fn take(&mut self) -> RttSamples {
        let taken = self.ring.take();
        let sample = |[cookie, us]: [u64; 2]| {
            // Below zero: the kernel began anew, as it does after many timeouts.
            let us = u64::try_from(us.cast_signed()).ok()?;
            Some((cookie, Nanos::from_us(us)))
        };
        RttSamples {
            samples: taken.records.into_iter().filter_map(sample).collect(),
            are_cut: taken.was_full,
        }
    }
}

/// The tracepoint, and where a `tcp_sock` has its smoothed time and what is not acknowledged. The kernel's types are
/// megabytes, and the same for as long as it runs: they are read once.
fn tracepoint() -> Result<btf::TypedTracepoint<2>, Error> {
    static KNOWN: OnceLock<btf::TypedTracepoint<2>> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return Ok(*known);
    }
    let types = kernel_types("samples of TCP round trips")?;
    // `(void *, struct sock *, struct sk_buff *)`
    let socket = ("tcp_sock", ["srtt_us", "snd_una"]);
    let found = btf::typed_tracepoint(&types, ("tcp_probe", "sock"), socket).map_err(|reason| {
        Error::Other(format!("{BTF_PATH}: no samples of TCP round trips: {reason}"))
    })?;
    Ok(*KNOWN.get_or_init(|| found))
}

/// The program. In C, with `ctx` the tracepoint's arguments:
///
/// ```c
/// struct tcp_sock *tp = bpf_skc_to_tcp_sock(ctx[0]);
/// if (!tp) return 0;
/// struct { __u64 cookie, word; } it;
/// it.cookie = bpf_get_socket_cookie(ctx[0]);
/// it.word = (__u64)tp->srtt_us << 32 | tp->snd_una;
/// __u64 *last = bpf_map_lookup_elem(&map, &it.cookie);
/// if (!last) { bpf_map_update_elem(&map, &it.cookie, &it.word, BPF_ANY); return 0; }
/// if (*last == it.word) return 0;
/// __u64 old = *last >> 32, now = it.word >> 32;
/// *last = it.word;
/// it.word = old ? now - old + (old >> 3) : now >> 3;
/// bpf_ringbuf_output(&ring, &it, sizeof it, BPF_RB_NO_WAKEUP);
/// return 0;
/// ```
fn assemble([srtt, acked]: [i16; 2], last: RawFd, ring: RawFd) -> Vec<u64> {
    let end = [instruction(MOVE_IMMEDIATE, 0, 0, 0, 0), instruction(EXIT, 0, 0, 0, 0)];
    let socket = [
        instruction(LOAD, 6, 1, 0, 0),
        instruction(MOVE, 1, 6, 0, 0),
        instruction(CALL, 0, 0, 0, SKC_TO_TCP_SOCK),
        instruction(JUMP_IF_NOT_EQUAL, 0, 0, 2, 0),
    ];
    let state = [
        instruction(LOAD_32, 8, 0, srtt, 0),
        instruction(SHIFT_LEFT, 8, 0, 0, 32),
        instruction(LOAD_32, 1, 0, acked, 0),
        instruction(OR, 8, 1, 0, 0),
        instruction(MOVE, 1, 6, 0, 0),
        instruction(CALL, 0, 0, 0, GET_SOCKET_COOKIE),
        instruction(STORE, 10, 0, -16, 0),
        instruction(STORE, 10, 8, -8, 0),
        instruction(MOVE, 2, 10, 0, 0),
        instruction(ADD_IMMEDIATE, 2, 0, 0, -16),
    ];
    let find =
        [instruction(CALL, 0, 0, 0, MAP_LOOKUP), instruction(JUMP_IF_NOT_EQUAL, 0, 0, 10, 0)];
    let remember = [
        instruction(MOVE, 2, 10, 0, 0),
        instruction(ADD_IMMEDIATE, 2, 0, 0, -16),
        instruction(MOVE, 3, 10, 0, 0),
        instruction(ADD_IMMEDIATE, 3, 0, 0, -8),
        instruction(MOVE_IMMEDIATE, 4, 0, 0, 0),
        instruction(CALL, 0, 0, 0, MAP_UPDATE),
    ];
    let sample = [
        instruction(LOAD, 1, 0, 0, 0),
        instruction(JUMP_IF_SAME, 1, 8, 18, 0),
        instruction(STORE, 0, 8, 0, 0),
        instruction(SHIFT_RIGHT, 1, 0, 0, 32), // the smoothed time before
        instruction(SHIFT_RIGHT, 8, 0, 0, 32), // and now
        instruction(MOVE, 2, 8, 0, 0),
        instruction(SHIFT_RIGHT, 2, 0, 0, 3),
        instruction(JUMP_IF_EQUAL, 1, 0, 4, 0),
        instruction(MOVE, 2, 8, 0, 0),
        instruction(SUBTRACT, 2, 1, 0, 0),
        instruction(SHIFT_RIGHT, 1, 0, 0, 3),
        instruction(ADD, 2, 1, 0, 0),
        instruction(STORE, 10, 2, -8, 0),
    ];
    let tell = [
        instruction(MOVE, 2, 10, 0, 0),
        instruction(ADD_IMMEDIATE, 2, 0, 0, -16),
        instruction(MOVE_IMMEDIATE, 3, 0, 0, 16),
        instruction(MOVE_IMMEDIATE, 4, 0, 0, NO_WAKEUP),
        instruction(CALL, 0, 0, 0, RINGBUF_OUTPUT),
    ];
    [
        &socket[..],
        &end,
        &state,
        &load_map(1, last),
        &find,
        &load_map(1, last),
        &remember,
        &end,
        &sample,
        &load_map(1, ring),
        &tell,
        &end,
    ]
    .concat()
}
