//! What a short run did, packet by packet: a capture of every interface, and a timeline of cores and NICs.
//!
//! A traced run handles every packet at its own time, which changes nothing in its outcome.

mod pcapng;
mod timeline;

use std::collections::VecDeque;

use crate::agenda::Time;
use crate::core::Level;
use crate::frame::Frame;
use crate::outcome::Outcome;
use crate::scenario::Scenario;
use crate::validate::Invalid;
use crate::{Simulation, outcome};

/// More packets than this make files that no viewer opens quickly.
pub const MOST_PACKETS: usize = 200_000;

/// A traced run.
#[derive(Debug)]
pub struct Trace {
    scenario: Scenario,
    log: Log,
    /// What the run showed, as without a trace.
    pub outcome: Outcome,
}

/// Simulates `scenario` and keeps what happens after its warm-up, up to [`MOST_PACKETS`].
pub fn record(scenario: &Scenario) -> Result<Trace, Invalid> {
    let mut simulation = Simulation::new(scenario)?;
    let given = scenario;
    let scenario = &simulation.order.scenario.clone();
    simulation.world.handle_each_by_itself();
    simulation.advance(given.warmup);
    let from = simulation.world.start_window();
    let mut log = Log::of(scenario);
    for ((ring, _), held) in log.rings.iter_mut().zip(simulation.world.in_rings()) {
        ring.extend(std::iter::repeat_n(BEFORE, held));
    }
    simulation.world.log = Some(Box::new(log));
    simulation.now = simulation.now + given.duration;
    simulation.world.run_until(simulation.now.as_ns());
    let to = simulation.world.snapshot();
    let outcome = outcome::collect(&simulation.world, scenario, &from, &to);
    let outcome = simulation.order.restore(outcome);
    let mut log = simulation.world.log.take().map_or_else(|| Log::of(scenario), |log| *log);
    log.add_processes(&simulation.world, scenario);
    Ok(Trace { scenario: scenario.clone(), log, outcome })
}

impl Trace {
    /// The packets of every interface as pcap-ng (draft-ietf-opsawg-pcapng), with nanoseconds; payloads
    /// are left out of what is captured.
    pub fn pcapng(&self) -> Vec<u8> {
        pcapng::write(&self.scenario, &self.log)
    }

    /// The timeline as trace events in JSON, which Perfetto and Chrome's viewer show: for each host its
    /// cores, what its NIC queues hold and when they interrupt, with an arrow from each packet's arrival
    /// to the interrupt that brought it.
    pub fn timeline(&self) -> String {
        timeline::write(&self.scenario, &self.log)
    }

    /// Packets seen at interfaces, each once per interface.
    pub fn packets(&self) -> usize {
        self.log.packets.len()
    }

    /// Whether packets after the first [`MOST_PACKETS`] are missing.
    pub fn is_cut(&self) -> bool {
        self.log.is_full()
    }
}

/// A packet that was in its ring when the trace began.
const BEFORE: u64 = u64::MAX;

/// A packet at an interface.
#[derive(Clone, Copy, Debug)]
struct Seen {
    at: Time,
    host: usize,
    is_inbound: bool,
    frame: Frame,
}

/// What a core did for some time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    core: usize,
    from: Time,
    to: Time,
    level: Level,
    /// The process at the process level.
    task: Option<u32>,
}

/// What happened at a NIC queue.
#[derive(Clone, Debug)]
enum Mark {
    /// A packet took a descriptor.
    Arrived { packet: u64 },
    /// The driver took it.
    Taken { packet: u64 },
    /// An interrupt, that brings these packets.
    Interrupt { packets: Vec<u64> },
    /// A packet found no descriptor.
    Dropped,
}

/// Everything seen so far.
#[derive(Debug, Default)]
pub(crate) struct Log {
    packets: Vec<Seen>,
    slices: Vec<Slice>,
    marks: Vec<(Time, usize, Mark)>,
    /// For each queue: the packets in its ring, and how many of the last have not been interrupted for.
    rings: Vec<(VecDeque<u64>, usize)>,
    next_packet: u64,
    /// For each queue its host, for each core its host and number there.
    queue_hosts: Vec<(usize, usize)>,
    core_hosts: Vec<(usize, usize)>,
    process_names: Vec<String>,
}

impl Log {
    fn of(scenario: &Scenario) -> Self {
        let number = |count: fn(&crate::scenario::Host) -> u32| {
            let hosts = scenario.hosts.iter().enumerate();
            hosts
                .flat_map(|(idx, host)| (0..count(host) as usize).map(move |part| (idx, part)))
                .collect::<Vec<_>>()
        };
        let queue_hosts = number(|host| host.nic.queues);
        Self {
            rings: vec![(VecDeque::new(), 0); queue_hosts.len()],
            queue_hosts,
            core_hosts: number(|host| host.machine.cores),
            ..Self::default()
        }
    }

    fn add_processes(&mut self, world: &crate::world::World, scenario: &Scenario) {
        self.process_names = world.process_names(scenario);
    }

    fn is_full(&self) -> bool {
        self.packets.len() >= MOST_PACKETS
    }

    pub(crate) fn packet(&mut self, at: Time, host: usize, is_inbound: bool, frame: &Frame) {
        if !self.is_full() {
            self.packets.push(Seen { at, host, is_inbound, frame: *frame });
        }
    }

    pub(crate) fn slice(
        &mut self,
        core: usize,
        span: (Time, Time),
        level: Level,
        task: Option<u32>,
    ) {
        let (from, to) = span;
        if self.is_full() || from == to || matches!(level, Level::Idle | Level::Switching) {
            return;
        }
        self.slices.push(Slice { core, from, to, level, task });
    }

    pub(crate) fn arrived(&mut self, at: Time, queue: usize) {
        if self.is_full() {
            return;
        }
        let packet = self.next_packet;
        self.next_packet += 1;
        let (ring, new) = &mut self.rings[queue];
        ring.push_back(packet);
        *new += 1;
        self.marks.push((at, queue, Mark::Arrived { packet }));
    }

    pub(crate) fn taken(&mut self, at: Time, queue: usize) {
        let (ring, new) = &mut self.rings[queue];
        let Some(packet) = ring.pop_front() else {
            return;
        };
        *new = (*new).min(ring.len());
        if packet != BEFORE {
            self.marks.push((at, queue, Mark::Taken { packet }));
        }
    }

    pub(crate) fn interrupt(&mut self, at: Time, queue: usize) {
        if self.is_full() {
            return;
        }
        let (ring, new) = &mut self.rings[queue];
        let old = ring.len() - std::mem::take(new);
        let packets = ring.range(old..).copied().filter(|packet| *packet != BEFORE).collect();
        self.marks.push((at, queue, Mark::Interrupt { packets }));
    }

    pub(crate) fn dropped(&mut self, at: Time, queue: usize) {
        if !self.is_full() {
            self.marks.push((at, queue, Mark::Dropped));
        }
    }
}

#[cfg(test)]
mod tests;
