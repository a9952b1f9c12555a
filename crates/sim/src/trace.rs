//! The packet-level trace of a short run: a capture of every interface, and a timeline of cores and
//! NICs.
//!
//! A traced run handles every packet at its own time, which does not change its outcome.

pub(crate) mod log;
mod pcapng;
mod timeline;

use self::log::{BEFORE, TraceLog};
use crate::outcome::SimulationOutcome;
use crate::scenario::Scenario;
use crate::validate::InvalidValue;
use crate::{Simulation, outcome};

/// Most packets of a trace. Larger files open slowly in every viewer.
pub const MOST_PACKETS: usize = 200_000;

/// A traced run.
#[derive(Debug)]
pub struct PacketTrace {
    scenario: Scenario,
    log: TraceLog,
    /// The outcome of the run, as without a trace.
    pub outcome: SimulationOutcome,
}

/// Simulates `scenario` and records it after its warm-up, up to [`MOST_PACKETS`].
pub fn record_trace(scenario: &Scenario) -> Result<PacketTrace, InvalidValue> {
    let mut simulation = Simulation::new(scenario)?;
    let given = scenario;
    let scenario = &simulation.order.scenario.clone();
    simulation.world.handle_each_by_itself();
    simulation.advance(given.warmup);
    let from = simulation.world.start_window();
    let mut log = TraceLog::new(scenario);
    for ((ring, _), held) in log.rings.iter_mut().zip(simulation.world.packets_in_rings()) {
        ring.extend(std::iter::repeat_n(BEFORE, held));
    }
    simulation.world.log = Some(Box::new(log));
    simulation.now = simulation.now + given.duration;
    simulation.world.run_until(simulation.now.as_ns());
    let to = simulation.world.take_snapshot();
    let outcome = outcome::collect_outcome(&simulation.world, scenario, &from, &to);
    let outcome = simulation.order.restore_order(outcome);
    let mut log = simulation.world.log.take().map_or_else(|| TraceLog::new(scenario), |log| *log);
    log.add_processes(&simulation.world, scenario);
    Ok(PacketTrace { scenario: scenario.clone(), log, outcome })
}

impl PacketTrace {
    /// The packets of every interface as pcap-ng (draft-ietf-opsawg-pcapng) with nanoseconds,
    /// without payloads.
    pub fn to_pcapng(&self) -> Vec<u8> {
        pcapng::write(&self.scenario, &self.log)
    }

    /// The timeline as trace events in JSON, for Perfetto and Chrome's viewer: for each host its
    /// cores, the content of its NIC queues, its interrupts, and an arrow from each packet's
    /// arrival to its interrupt.
    pub fn to_timeline(&self) -> String {
        timeline::write(&self.scenario, &self.log)
    }

    /// Packets seen at interfaces, each once per interface.
    pub fn packet_count(&self) -> usize {
        self.log.packets.len()
    }

    /// Whether packets after the first [`MOST_PACKETS`] are missing.
    pub fn is_cut(&self) -> bool {
        self.log.is_full()
    }
}

impl TraceLog {
    fn add_processes(&mut self, world: &crate::world::World, scenario: &Scenario) {
        self.process_names = world.process_names(scenario);
    }
}

#[cfg(test)]
mod tests;
