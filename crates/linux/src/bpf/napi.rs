//! Counts NAPI polls with a BPF program on the raw tracepoint `napi_poll`.
//!
//! Polls are counted by CPU; those of other interfaces and of the loopback's backlog on the same CPUs
//! are among them.

use std::os::fd::{OwnedFd, RawFd};

use latput_trial::observation::NapiObservation;
use latput_units::{CpuId, CpuSet, Nanos};

use super::code::{
    ADD, ADD_IMMEDIATE, EXIT, JUMP, JUMP_IF_EQUAL, JUMP_IF_GREATER_SIGNED, LOAD, MOVE_IMMEDIATE,
    SHIFT_LEFT, SHIFT_RIGHT_SIGNED, STORE, instruction, look_up,
};
use super::map::PerCpuMap;
use super::{btf, check_layout, load_program, open_tracepoint, require, run_time};
use crate::error::Error;

const TRACEPOINT: &str = "napi_poll";

/// Counters in one CPU's slot: polls, packets, empty polls.
const COUNTERS: usize = 3;

/// A count of NAPI polls on some CPUs, while it runs.
#[derive(Debug)]
pub struct NapiTracer {
    map: PerCpuMap<COUNTERS>,
    program: OwnedFd,
    link: Option<OwnedFd>,
    cpus: CpuSet,
    is_layout_checked: bool,
}

impl NapiTracer {
    /// Starts counting on `cpus`. Fails where the process may not, the kernel has no BPF, or its
    /// tracepoint hands over other arguments than the program takes.
    pub fn attach(cpus: &CpuSet) -> Result<Self, Error> {
        let mut tracer = Self::load(cpus)?;
        tracer.start()?;
        Ok(tracer)
    }

    /// Prepares to count on `cpus`. Fails as [`NapiTracer::attach`] does.
    pub(crate) fn load(cpus: &CpuSet) -> Result<Self, Error> {
        require("counting NAPI polls")?;
        // `(void *, struct napi_struct *, int work, int budget)`
        let is_layout_checked = check_layout("counts of NAPI polls", |bytes| {
            btf::check_tracepoint(bytes, TRACEPOINT, "napi_struct")
        })?;
        let map = PerCpuMap::create("NAPI counters")?;
        let program = load_program(&assemble(map.as_raw_fd()))
            .map_err(|source| Error::system("load the BPF program that counts polls", source))?;
        Ok(Self { map, program, link: None, cpus: cpus.clone(), is_layout_checked })
    }

    /// Counts on.
    pub(crate) fn start(&mut self) -> Result<(), Error> {
        if self.link.is_none() {
            let link = open_tracepoint(TRACEPOINT, &self.program)
                .map_err(|source| Error::system("attach to the tracepoint napi_poll", source))?;
            self.link = Some(link);
        }
        Ok(())
    }

    /// Counts no more, until it is started again: nothing is attached.
    pub(crate) fn stop(&mut self) {
        self.link = None;
    }

    /// Run time of its program, as far as the kernel counted it.
    pub(crate) fn run_time(&self) -> std::io::Result<Nanos> {
        run_time(&self.program)
    }

    /// Whether it counts.
    pub(crate) fn is_running(&self) -> bool {
        self.link.is_some()
    }

    /// Whether the tracepoint's arguments were found to be as expected; `false` if the kernel does
    /// not describe its types and they are taken to be so.
    pub fn is_layout_checked(&self) -> bool {
        self.is_layout_checked
    }

    /// The counts of all the time that it ran, by CPU, in ascending order.
    pub fn read(&self) -> Result<Vec<(CpuId, NapiObservation)>, Error> {
        let failed = |source| Error::system("read the BPF map of NAPI counters", source);
        let counts = self.map.read().map_err(failed)?.filter(|(cpu, _)| self.cpus.contains(*cpu));
        let observed = |(cpu, [polls, packets, empty_polls]): (CpuId, [u64; COUNTERS])| {
            (cpu, NapiObservation { polls, packets, empty_polls })
        };
        Ok(counts.map(observed).collect())
    }
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
    let work = [
        instruction(LOAD, 6, 1, 8, 0), // r6 = ctx[1], of which the lower half is `work`
        instruction(SHIFT_LEFT, 6, 0, 0, 32),
        instruction(SHIFT_RIGHT_SIGNED, 6, 0, 0, 32),
    ];
    let count = [
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
    ];
    [&work[..], &look_up(map), &count].concat()
}
