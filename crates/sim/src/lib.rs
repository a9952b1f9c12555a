//! A packet-level simulator of hosts, NICs and links: interrupt moderation, NAPI, CPU cost, TCP.
//!
//! [`run`] simulates a [`Scenario`] and returns an [`SimulationOutcome`]. Time is in whole nanoseconds. Every
//! component has one slot with the time of its next action (`agenda`); packets have no event
//! objects. The same scenario gives the same outcome, bit by bit. Pure: no I/O, no clock, no
//! threads.
//!
//! `docs/journal/2026-11-simulator.md` lists what is left out and how the simulator was checked.
//!
//! Reading order: [`scenario`] and [`machine`] (what can be described), [`vector`] (when a NIC
//! interrupts), `core` (what runs on a CPU), `world` and its parts (how all act on each other), `tcp`.

mod agenda;
pub mod bus;
mod canonical;
mod casts;
mod congestion;
mod core;
pub mod epoll_server;
pub mod facts;
mod fifo;
mod frame;
pub mod look;
pub mod machine;
pub mod outcome;
mod packet_bursts;
mod port;
pub mod profile;
mod qdisc;
mod queue;
mod recorder;
pub mod scenario;
mod setting;
mod socket;
mod tally;
mod task;
mod tcp;
mod timed_queue;
mod timers;
pub mod trace;
pub mod validate;
pub mod vector;
mod workload;
mod world;

use canonical::CanonicalScenario;
use latput_units::Nanos;
pub use outcome::SimulationOutcome;
pub use profile::SystemProfile;
pub use scenario::Scenario;
pub use setting::UnsupportedSetting;
pub use validate::InvalidValue;
use vector::Coalescing;

/// Time after a window in which packets in flight may arrive, as in latput's receiver.
const LONGEST_DRAIN: Nanos = Nanos::from_ms(500);
/// Interval of the checks for packets in flight.
const DRAIN_STEP: Nanos = Nanos::from_us(200);

/// A run that can be inspected and changed while it continues.
#[derive(Debug)]
pub struct Simulation {
    scenario: Scenario,
    order: CanonicalScenario,
    world: world::World,
    now: Nanos,
}

impl Simulation {
    /// A run at time zero. Refuses a scenario with an impossible value or one that would take days.
    pub fn new(scenario: &Scenario) -> Result<Self, InvalidValue> {
        scenario.check()?;
        let order = CanonicalScenario::from_scenario(scenario);
        let world = world::build(&order.scenario);
        Ok(Self { scenario: scenario.clone(), order, world, now: Nanos::ZERO })
    }

    /// The time in the simulation.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Continues for `span`. Returns the outcome of that span.
    pub fn advance(&mut self, span: Nanos) -> SimulationOutcome {
        let from = self.world.start_window();
        let until = self.now + span;
        self.now = Nanos::from_ns(self.world.run_until(until.as_ns()));
        let to = self.world.take_snapshot();
        self.order.restore_order(outcome::collect_outcome(
            &self.world,
            &self.order.scenario,
            &from,
            &to,
        ))
    }

    /// Continues until datagrams and echoes sent in the window have arrived or are lost, and counts
    /// them. Nothing else in `outcome` changes.
    fn drain_in_flight(&mut self, outcome: &mut SimulationOutcome) {
        self.world.end_window();
        let mut waited = Nanos::ZERO;
        while waited < LONGEST_DRAIN && self.world.awaits_late() {
            self.now = self.now + DRAIN_STEP;
            waited = waited + DRAIN_STEP;
            self.world.run_until(self.now.as_ns());
        }
        for (load, place) in outcome.loads.iter_mut().zip(self.order.load_indices()) {
            load.late = self.world.load_counters()[*place].late;
        }
    }

    /// Sets the moderation of every vector of a host, as `ethtool -C` does.
    pub fn set_coalescing(
        &mut self,
        host: usize,
        coalescing: Coalescing,
    ) -> Result<(), InvalidValue> {
        validate::check_coalescing("coalescing", &coalescing)?;
        self.world.set_coalescing(self.order.host_index(host), coalescing);
        Ok(())
    }

    /// Sets `napi-defer-hard-irqs` and `gro-flush-timeout` of a host.
    pub fn set_deferral(
        &mut self,
        host: usize,
        hard_irqs: u32,
        timeout: Nanos,
    ) -> Result<(), InvalidValue> {
        let mut changed = self.scenario.clone();
        let stack = &mut changed.hosts[host].stack;
        (stack.defer_hard_irqs, stack.gro_flush_timeout) = (hard_irqs, timeout);
        changed.check()?;
        self.scenario = changed;
        self.world.set_deferral(self.order.host_index(host), hard_irqs, timeout);
        Ok(())
    }
}

/// Simulates `scenario` from its start to the end of its window. Refuses a scenario with an
/// impossible value or one that would take days.
pub fn run(scenario: &Scenario) -> Result<SimulationOutcome, InvalidValue> {
    let mut simulation = Simulation::new(scenario)?;
    simulation.advance(scenario.warmup);
    simulation.world.stop_at_counts(&simulation.order.scenario);
    let mut outcome = simulation.advance(scenario.duration);
    simulation.drain_in_flight(&mut outcome);
    Ok(outcome)
}
