//! The running simulation: all components in flat tables, and the loop that lets the earliest act.

mod batch_advance;
mod build;
mod bus;
mod connect;
mod cpu;
mod datagrams;
mod deliver;
mod network;
mod poll;
mod process;
mod scheduler;
mod snapshot;
mod streams;
mod transactions;

use latput_units::{Nanos, SeededRng};

pub(crate) use snapshot::CounterSnapshot;

use crate::agenda::{Agenda, NEVER, Time};
use crate::bus::BusQueue;
use crate::casts::id;
use crate::core::{Core, Irq};
use crate::fifo::Fifo;
use crate::frame::Frame;
use crate::machine::{CpuCosts, DriverMode, NetworkStack, WakePlacement};
use crate::port::Port;
use crate::queue::NicQueue;
use crate::scenario::{Load, Scenario, TrafficKind};
use crate::socket::SocketEnd;
use crate::tally::LoadCounters;
use crate::task::{Task, TaskProgram};
use crate::timers::TimerQueue;
use crate::trace::log::TraceLog;
use crate::vector::Coalescing;
use latput_policy::{DevicePolling, Policy};

/// Component that a slot of the agenda stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Component {
    /// A core's item is done.
    Core(u32),
    /// A vector's coalescing event.
    Vector(u32),
    /// A port's frame has left.
    Port(u32),
    /// A frame arrives at the end of a port's wire.
    Wire(u32),
    /// A queue's deferral timer.
    Deferral(u32),
    /// A process's own timer.
    Task(u32),
    /// A host's earliest timer: TCP's, or an answer's.
    Timers(u32),
    /// A host's clock tick, for device polling.
    Tick(u32),
    /// A host's I/O bus: a packet is on its other side.
    Bus(u32),
}

/// State of a host as a whole.
#[derive(Debug)]
struct HostState {
    /// CPU costs in nanoseconds.
    costs: CpuCosts<Time>,
    /// Random part of each cost, in 1/65536 of it.
    cost_jitter: u64,
    stack: NetworkStack,
    first_core: usize,
    cores: usize,
    first_queue: usize,
    queues: usize,
    port: usize,
    driver: DriverMode,
    placement: WakePlacement,
    idle_exit: Time,
    time_slice: Time,
    steal_after: Time,
    fifo_bytes: u64,
    pause: bool,
    paused_peer: bool,
    bus: Option<Box<BusQueue>>,
    bus_slot: usize,
    /// Processes that found no free core.
    run_queue: Fifo<(u32, Time)>,
    timers: TimerQueue,
    timers_slot: usize,
    /// Everything in the agenda that acts on this host.
    slots: Vec<u32>,
    /// The port whose wire brings packets to this host, if anybody sends it any.
    hears: Option<usize>,
    polling: DevicePolling,
    /// The policy that all queues share.
    throttle: Option<Policy>,
    tick: Time,
    round: poll::PollingRound,
    /// Device polling: a tick came while the last round was still under way.
    tick_missed: bool,
}

/// Packets waiting for a core's own processing (RPS, or drivers without NAPI).
#[derive(Debug)]
struct CoreBacklog {
    frames: Fifo<Frame>,
    scheduled: bool,
    dropped: u64,
}

/// Everything.
#[derive(Debug)]
pub(crate) struct World {
    now: Time,
    /// The time of the event under way; `now` may be ahead of it on one host.
    reached: Time,
    agenda: Agenda,
    components: Vec<Component>,
    core_slots: usize,
    vector_slots: usize,
    port_slots: usize,
    wire_slots: usize,
    deferral_slots: usize,
    hosts: Vec<HostState>,
    cores: Vec<Core>,
    backlogs: Vec<CoreBacklog>,
    queues: Vec<NicQueue>,
    ports: Vec<Port>,
    tasks: Vec<Task>,
    /// For each port, the only queue at the end of its wire, if arrivals there may wait to be seen.
    quiet_queues: Vec<Option<usize>>,
    /// Largest payload of a TCP segment.
    mss: u32,
    ends: Vec<SocketEnd>,
    tallies: Vec<LoadCounters>,
    rng: SeededRng,
    window_from: Time,
    /// When it ended; [`NEVER`] while it goes on.
    window_to: Time,
    /// The window ends once load `.0` has `.1` units, each `.2` received bytes or, if that is 0, one
    /// received item.
    quotas: Vec<(usize, u64, u64)>,
    /// How far the present span goes.
    until: Time,
    /// Each item is handled as an event of its own.
    is_eager: bool,
    /// Packets made by any stack, and those that reached one, for the conservation check.
    sent: u64,
    delivered: u64,
    /// Events handled.
    pub(crate) events: u64,
    /// Log of a traced run.
    pub(crate) log: Option<Box<TraceLog>>,
}

impl World {
    /// Runs until `until`, or until a quota is reached; gives that time. Nothing after it has happened
    /// then.
    pub(crate) fn run_until(&mut self, until: Time) -> Time {
        let mut until = until;
        self.until = until;
        loop {
            let (time, slot) = self.agenda.next();
            if time > until || time == NEVER {
                break;
            }
            assert!(time >= self.now, "time went back from {} to {time}", self.now);
            (self.now, self.reached) = (time, time);
            self.events += 1;
            self.handle_event(slot);
            if !self.quotas.is_empty() && self.has_enough() {
                until = self.now;
            }
            #[cfg(test)]
            if self.events.is_multiple_of(64) {
                self.check_conservation();
            }
        }
        self.now = until;
        for queue in 0..self.queues.len() {
            self.settle_queue(queue, until + 1);
        }
        until
    }

    /// The measured window is over: nothing new is sent, and what was sent in it is counted as late.
    pub(crate) fn end_window(&mut self) {
        self.window_to = self.now;
        self.quotas.clear();
        (0..self.cores.len()).for_each(|core| self.break_hold(core));
        for tally in &mut self.tallies {
            tally.awaited = tally.sent.saturating_sub(tally.matched);
        }
        for task in &mut self.tasks {
            task.stop = task.stop.min(self.now);
        }
    }

    /// Whether a datagram or an echo of the window has not been received.
    pub(crate) fn awaits_late(&self) -> bool {
        self.tallies.iter().any(|tally| tally.late < tally.awaited)
    }

    /// From now on no packet waits until somebody looks and no process goes ahead: each packet and each item
    /// is handled at its own time.
    pub(crate) fn handle_each_by_itself(&mut self) {
        self.is_eager = true;
        self.quiet_queues.fill(None);
        self.queues.iter_mut().for_each(|queue| queue.quiet_wire = None);
        self.ports.iter_mut().for_each(|port| port.foreseen = None);
    }

    /// Packets in each receive ring.
    pub(crate) fn packets_in_rings(&self) -> impl Iterator<Item = usize> {
        self.queues.iter().map(|queue| queue.rx.len())
    }

    /// Names of the processes, for people.
    pub(crate) fn process_names(&self, scenario: &Scenario) -> Vec<String> {
        let name = |task: &Task| {
            let many = scenario.loads.len() > 1;
            let load = self.ends.get(task.first_end).filter(|_| many);
            let kind = match task.program {
                TaskProgram::Ksoftirqd => return String::from("ksoftirqd"),
                TaskProgram::PollThread(queue) => {
                    let first = self.hosts[task.host].first_queue;
                    return format!("napi thread of queue {}", queue - first);
                }
                TaskProgram::Source { .. } | TaskProgram::Writer { .. } => "sender",
                TaskProgram::Sink { .. } | TaskProgram::Reader { .. } => {
                    return String::from("receiver");
                }
                TaskProgram::Client { .. } => "client",
                TaskProgram::Server { .. } => return String::from("server"),
                TaskProgram::Compute => return String::from("compute"),
            };
            load.map_or_else(|| kind.to_owned(), |end| format!("{kind} of load {}", end.load))
        };
        self.tasks.iter().map(name).collect()
    }

    /// From now on the counts of loads end the run.
    pub(crate) fn stop_at_counts(&mut self, scenario: &Scenario) {
        let quota = |(idx, load): (usize, &Load)| {
            let unit = match load.traffic {
                TrafficKind::Stream { message, .. } => message.get(),
                _ => 0,
            };
            load.form.count.map(|count| (idx, count, unit))
        };
        self.quotas = scenario.loads.iter().enumerate().filter_map(quota).collect();
    }

    fn has_enough(&self) -> bool {
        self.quotas.iter().any(|&(load, count, unit)| {
            let tally = &self.tallies[load];
            let done = tally.received_bytes.checked_div(unit).unwrap_or(tally.received);
            done >= count
        })
    }

    #[inline]
    fn handle_event(&mut self, slot: usize) {
        match self.components[slot] {
            Component::Core(core) => self.core_due(core as usize),
            Component::Vector(queue) => self.vector_due(queue as usize),
            Component::Port(port) => self.port_due(port as usize),
            Component::Wire(port) => self.wire_due(port as usize),
            Component::Deferral(queue) => self.deferral_due(queue as usize, slot),
            Component::Task(task) => self.task_due(task as usize, slot),
            Component::Timers(host) => self.timers_due(host as usize),
            Component::Tick(host) => self.tick_due(host as usize, slot),
            Component::Bus(host) => self.bus_due(host as usize),
        }
    }

    fn deferral_due(&mut self, queue: usize, slot: usize) {
        self.agenda.set_due_time(slot, NEVER);
        self.raise_interrupt(self.queues[queue].core, Irq::Deferral(id(queue)));
    }

    /// Forgets what was counted so far: the warm-up is over.
    pub(crate) fn start_window(&mut self) -> CounterSnapshot {
        self.window_from = self.now;
        self.tallies = self.tallies.iter().map(LoadCounters::clone_empty).collect();
        self.take_snapshot()
    }

    /// Sets the moderation of every vector of a host.
    pub(crate) fn set_coalescing(&mut self, host: usize, coalescing: Coalescing) {
        for queue in self.parts(host).1 {
            self.settle_queue(queue, self.now + 1);
            self.queues[queue].vector.set_coalescing(coalescing);
            self.update_vector(queue);
        }
    }

    /// Sets the deferral of a host's polls.
    pub(crate) fn set_deferral(&mut self, host: usize, hard_irqs: u32, timeout: Nanos) {
        let stack = &mut self.hosts[host].stack;
        (stack.defer_hard_irqs, stack.gro_flush_timeout) = (hard_irqs, timeout);
    }

    /// Tallies of the loads in the window.
    pub(crate) fn load_counters(&self) -> &[LoadCounters] {
        &self.tallies
    }

    /// The cores and queues of a host, as index ranges.
    pub(crate) fn parts(&self, host: usize) -> (std::ops::Range<usize>, std::ops::Range<usize>) {
        let host = &self.hosts[host];
        (
            host.first_core..host.first_core + host.cores,
            host.first_queue..host.first_queue + host.queues,
        )
    }
}

/// A world ready to run.
pub(crate) fn build(scenario: &Scenario) -> World {
    build::build_world(scenario)
}

#[cfg(test)]
mod check;
#[cfg(test)]
mod tests;
