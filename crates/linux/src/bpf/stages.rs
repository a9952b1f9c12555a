//! Waits of an interface's packets at each stage of their way, by BPF programs on tracepoints.
//!
//! The programs run for each packet, and that costs CPU time wherever packets are. So they are attached in spans, of which
//! each costs little, with pauses that keep the whole below [`spans::MOST_CPU`]. Where packets are few, there is no pause.
//! Within a span one packet in so many is followed (`programs`).
//!
//! CPUs are told apart: a stage counts on the CPU where it ends. With interrupts spread over CPUs, that is its queue.

mod programs;
mod recorder;
mod spans;

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use latput_units::CpuId;

use self::programs::{
    ENTRIES, ENTRY_WORDS, KernelPlaces, MASK, StageSetup, TracedDevice, WORDS, consume_skb,
    napi_poll, net_dev_queue, net_dev_start_xmit, netif_receive_skb, sched_switch, sched_waking,
    sk_data_ready, softirq_entry, softirq_exit, softirq_raise, take_packet,
};
use super::btf::Types;
use super::map::{MAP_TYPE_ARRAY, PerCpuMap, create_map, write_first};
use super::{
    BTF_PATH, kernel_types, load_exit_program, load_program_of_kernel, load_typed_program,
    open_tracepoint, open_typed_tracepoint, require,
};
use crate::error::Error;
use crate::lab::napi_threads;
use crate::namespace::Namespace;
use crate::route::Route;

pub use recorder::StageRecorder;

const WHAT: &str = "waits of packets by stage";
/// The function that takes a packet from a UDP socket. No tracepoint tells that of all kernels.
const UDP_TAKES: &str = "__skb_recv_udp";
/// Arguments that are pointers to these structures.
const SKB: &[(usize, &str)] = &[(0, "sk_buff")];
const TASK: &[(usize, &str)] = &[(0, "task_struct")];
const NEXT_TASK: &[(usize, &str)] = &[(2, "task_struct")];

/// Where a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HookKind {
    /// A tracepoint whose arguments are numbers to the program.
    Plain,
    /// A tracepoint or function for which the program was loaded.
    Typed,
}

/// A program and its place.
#[derive(Debug)]
struct Hook {
    name: &'static str,
    kind: HookKind,
    program: OwnedFd,
}

impl Hook {
    fn attach(&self) -> Result<OwnedFd, Error> {
        let link = match self.kind {
            HookKind::Plain => open_tracepoint(self.name, &self.program),
            HookKind::Typed => open_typed_tracepoint(&self.program),
        };
        link.map_err(|source| {
            Error::system(format!("attach a BPF program to {}", self.name), source)
        })
    }
}

/// The programs of all stages. They are loaded all the time, which costs nothing, and attached from
/// [`StageTracer::start`] to [`StageTracer::stop`].
#[derive(Debug)]
struct StageTracer {
    slots: PerCpuMap<WORDS>,
    table: OwnedFd,
    hooks: Vec<Hook>,
    /// The one that a kernel may lack.
    udp: Option<Hook>,
    links: Vec<OwnedFd>,
    /// Parts that this kernel does not show, with the reasons.
    unseen: Vec<String>,
}

impl StageTracer {
    /// Prepares to follow the packets of an interface of this thread's namespace. Fails where the process may not, or the
    /// kernel cannot (without type information, or with `PREEMPT_RT`, where softirqs are preempted).
    fn load(interface: &str) -> Result<Self, Error> {
        require(WHAT)?;
        if Path::new("/sys/kernel/realtime").exists() {
            return Err(Error::Other(format!("no {WHAT}: softirqs are preempted on this kernel")));
        }
        let device = find_device(interface)?;
        let has_threads = napi_threads(interface).is_ok_and(|threads| !threads.is_empty());
        let bytes = kernel_types(WHAT)?;
        let unknown = |reason: String| Error::Other(format!("{BTF_PATH}: no {WHAT}: {reason}"));
        let types = Types::read(&bytes).ok_or_else(|| unknown("it is damaged".to_owned()))?;
        let slots = PerCpuMap::create(WHAT)?;
        let size = u32::try_from(ENTRIES * ENTRY_WORDS * size_of::<u64>()).expect("a small table");
        let table = create_map(MAP_TYPE_ARRAY, [4, size], 1)
            .map_err(|source| Error::system(format!("create the BPF map of {WHAT}"), source))?;
        let setup = StageSetup {
            slots: slots.as_raw_fd(),
            table: table.as_raw_fd(),
            places: KernelPlaces::find(&types).map_err(unknown)?,
            device,
            has_threads,
        };
        let mut loader = HookLoader { types: &types, setup, hooks: Vec::new() };
        let mut unseen = Vec::new();
        loader.load_all()?;
        if let Err(reason) = loader.load_socket_hook() {
            unseen.push(format!("the protocols and the socket apart: {}", reason.describe()));
        }
        let udp = loader.load_udp_hook();
        let hooks = loader.hooks;
        let mut tracer = Self { slots, table, hooks, udp: None, links: Vec::new(), unseen };
        match udp {
            Ok(hook) => tracer.udp = Some(hook),
            Err(error) => tracer.give_up_udp(&error),
        }
        Ok(tracer)
    }

    fn give_up_udp(&mut self, error: &Error) {
        self.udp = None;
        self.unseen.push(format!("what UDP sockets read, on some kernels: {}", error.describe()));
    }

    /// Attaches all programs, with nothing counted. `mask` has the bits that the number of a packet must not have to be
    /// followed.
    fn start(&mut self, mask: u64) -> Result<(), Error> {
        self.stop();
        let failed = |source| Error::system(format!("write the BPF map of {WHAT}"), source);
        let mut empty = vec![[0; ENTRY_WORDS]; ENTRIES];
        write_first(&self.table, &mut empty).map_err(failed)?;
        let slot = |_| std::array::from_fn(|word| if word == MASK { mask } else { 0 });
        self.slots.write(slot).map_err(failed)?;
        let udp = self.udp.as_ref().map(Hook::attach);
        match udp {
            Some(Ok(link)) => self.links.push(link),
            Some(Err(error)) => self.give_up_udp(&error),
            None => {}
        }
        for hook in &self.hooks {
            match hook.attach() {
                Ok(link) => self.links.push(link),
                Err(error) => {
                    self.links.clear();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Detaches all programs, those that begin to follow a packet first.
    fn stop(&mut self) {
        while self.links.pop().is_some() {}
    }

    /// The slots since the last start, by CPU.
    fn read(&self) -> Result<Vec<(CpuId, [u64; WORDS])>, Error> {
        let slots = self.slots.read();
        let slots =
            slots.map_err(|source| Error::system(format!("read the BPF map of {WHAT}"), source))?;
        Ok(slots.collect())
    }

    /// How many programs a start attaches.
    fn count_hooks(&self) -> usize {
        self.hooks.len() + usize::from(self.udp.is_some())
    }
}

/// The interface as programs see it.
fn find_device(interface: &str) -> Result<TracedDevice, Error> {
    let index = Route::open()?.link(interface)?.index;
    let inode = Namespace::current()?.inode()?;
    let too_large = |what: &str| Error::Other(format!("no {WHAT}: {what} is too large"));
    Ok(TracedDevice {
        index: i32::try_from(index).map_err(|_| too_large("the interface's number"))?,
        namespace: u32::try_from(inode).map_err(|_| too_large("the namespace's number"))?,
    })
}

/// Loads programs, with a check of what the kernel passes to each.
struct HookLoader<'a> {
    types: &'a Types<'a>,
    setup: StageSetup,
    hooks: Vec<Hook>,
}

impl HookLoader<'_> {
    /// Loads those that every kernel has. They are attached in this order: ends before beginnings.
    fn load_all(&mut self) -> Result<(), Error> {
        let setup = self.setup;
        self.load_plain("softirq_exit", &[], &softirq_exit(setup))?;
        self.load_typed("consume_skb", SKB, &consume_skb(setup))?;
        self.load_typed("skb_copy_datagram_iovec", SKB, &take_packet(setup, 0))?;
        self.load_plain("net_dev_start_xmit", SKB, &net_dev_start_xmit(setup))?;
        self.load_plain("sched_switch", NEXT_TASK, &sched_switch(setup))?;
        if setup.has_threads {
            self.load_plain("napi_poll", &[], &napi_poll(setup))?;
            self.load_typed("sched_waking", TASK, &sched_waking(setup))?;
        }
        self.load_plain("softirq_entry", &[], &softirq_entry(setup))?;
        self.load_plain("softirq_raise", &[], &softirq_raise(setup))?;
        self.load_typed("net_dev_queue", SKB, &net_dev_queue(setup))?;
        self.load_typed("netif_receive_skb", SKB, &netif_receive_skb(setup))
    }

    /// Loads the one that tells when a socket has data, which kernels before 6.3 lack.
    fn load_socket_hook(&mut self) -> Result<(), Error> {
        self.load_plain("sk_data_ready", &[], &sk_data_ready(self.setup))?;
        // An end, too.
        self.hooks.rotate_right(1);
        Ok(())
    }

    /// Loads the one that tells when a UDP socket is read, for kernels whose tracers can be at a function's end.
    fn load_udp_hook(&self) -> Result<Hook, Error> {
        let unknown = |reason: String| lack(UDP_TAKES, &reason);
        let function = self.types.function(UDP_TAKES).map_err(unknown)?;
        let arguments = self.types.count_arguments(UDP_TAKES).map_err(unknown)?;
        // The returned value is behind the arguments.
        let program = load_exit_program(&take_packet(self.setup, arguments), function);
        let program = program.map_err(|source| failed_to_load(UDP_TAKES, source))?;
        Ok(Hook { name: UDP_TAKES, kind: HookKind::Typed, program })
    }

    fn load_plain(
        &mut self,
        name: &'static str,
        pointers: &[(usize, &str)],
        program: &[u64],
    ) -> Result<(), Error> {
        self.types.check_pointers(name, pointers).map_err(|reason| lack(name, &reason))?;
        let program =
            load_program_of_kernel(program).map_err(|source| failed_to_load(name, source))?;
        self.hooks.push(Hook { name, kind: HookKind::Plain, program });
        Ok(())
    }

    fn load_typed(
        &mut self,
        name: &'static str,
        pointers: &[(usize, &str)],
        program: &[u64],
    ) -> Result<(), Error> {
        let tracepoint =
            self.types.check_pointers(name, pointers).map_err(|reason| lack(name, &reason))?;
        let program = load_typed_program(program, tracepoint)
            .map_err(|source| failed_to_load(name, source))?;
        self.hooks.push(Hook { name, kind: HookKind::Typed, program });
        Ok(())
    }
}

fn lack(name: &str, reason: &str) -> Error {
    Error::Other(format!("no BPF program for {name}: {reason}"))
}

fn failed_to_load(name: &str, source: std::io::Error) -> Error {
    Error::system(format!("load the BPF program for {name}"), source)
}
