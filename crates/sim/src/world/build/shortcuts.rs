//! Work that needs no event of its own: frames that leave at known times, arrivals that may wait to be seen, clients
//! that may hold their core.

use latput_units::Nanos;

use super::WorldBuilder;
use crate::casts::id;
use crate::port::{FarEnd, Port};
use crate::scenario::{GapDistribution, TrafficKind};
use crate::socket::ConnectionState;
use crate::task::{SendSchedule, TaskProgram};
use crate::world::Component;

/// A host on which more acts than this is not looked through each time.
const MOST_SLOTS: usize = 64;

impl WorldBuilder<'_> {
    /// The only queue of a host that any socket uses.
    pub(super) fn only_queue(&self, host: usize) -> Option<usize> {
        let here = self.ends.iter().filter(|end| end.host as usize == host);
        let mut used = here.map(|end| end.queue as usize);
        let first = used.next().unwrap_or(self.hosts[host].first_queue);
        used.all(|queue| queue == first).then_some(first)
    }

    /// Frames of a host that uses one queue leave at times known in advance, if nobody can pause it, they need not
    /// wait for a bus, and jitter is not drawn when a frame leaves.
    pub(super) fn foresee_ports(&mut self, only: &[Option<usize>]) {
        let pauses = self.hosts.iter().any(|host| host.pause && host.fifo_bytes > 0);
        let has_jitter = self.scenario.network.latency_jitter_ratio > 0.0;
        for ((only, host), port) in only.iter().zip(&self.hosts).zip(&mut self.ports) {
            port.foreseen = only.filter(|_| !pauses && !has_jitter && host.bus.is_none());
        }
    }

    /// For each port the queue at its far end, if arrivals there may wait to be seen: one queue is used,
    /// and there is no buffer in front of its ring.
    pub(super) fn quiet_queues(&self, only: &[Option<usize>]) -> Vec<Option<usize>> {
        // Pause frames come by the same wires and must be heeded at once.
        let pauses = self.hosts.iter().any(|host| host.pause && host.fifo_bytes > 0);
        let far_queue = |port: &Port| match port.far {
            FarEnd::Host(host) if !pauses && self.hosts[host].fifo_bytes == 0 => only[host],
            FarEnd::Host(_) | FarEnd::Switch => None,
        };
        self.ports.iter().map(far_queue).collect()
    }

    /// Tells each host what acts on it.
    pub(super) fn list_slots(&mut self) {
        for (slot, component) in self.components.iter().enumerate() {
            let host = match *component {
                Component::Core(core) => self.cores[core as usize].host,
                Component::Vector(queue) | Component::Deferral(queue) => {
                    self.queues[queue as usize].host
                }
                Component::Port(port) if (port as usize) < self.hosts.len() => port as usize,
                Component::Wire(port) => match self.ports[port as usize].far {
                    FarEnd::Host(host) => host,
                    FarEnd::Switch => continue,
                },
                Component::Port(_) => continue,
                Component::Task(task) => self.tasks[task as usize].host,
                Component::Timers(host) | Component::Tick(host) | Component::Bus(host) => {
                    host as usize
                }
            };
            self.hosts[host].slots.push(id(slot));
        }
        for (idx, core) in self.cores.iter_mut().enumerate() {
            let slots = &self.hosts[core.host].slots;
            core.may_look = slots.len() <= MOST_SLOTS;
            if core.may_look {
                let is_own =
                    |slot: &u32| self.components[*slot as usize] == Component::Core(id(idx));
                core.others = slots.iter().copied().filter(|slot| !is_own(slot)).collect();
            }
        }
        for (idx, host) in self.hosts.iter_mut().enumerate() {
            let hears = self.scenario.loads.iter().any(|load| match load.traffic {
                TrafficKind::Compute => false,
                TrafficKind::Datagrams { .. } => load.to == idx,
                _ => load.from == idx || load.to == idx,
            });
            let is_wire = |port: &Port| port.far == FarEnd::Host(idx);
            host.hears = self.ports.iter().position(is_wire).filter(|_| hears);
        }
    }

    /// A client may hold its core until its next request if costs do not vary, if it goes to sleep and wakes up
    /// without further ado, and if it is the only process of its host with a timer: of two that are due at the
    /// same time the first would see the other's core held.
    pub(super) fn let_clients_hold(&mut self) {
        for idx in 0..self.tasks.len() {
            let task = &self.tasks[idx];
            let host = &self.hosts[task.host];
            let timers = host.slots.iter().map(|slot| self.components[*slot as usize]);
            let is_timer = |component: &Component| matches!(component, Component::Task(_));
            let is_even = |schedule: SendSchedule| schedule.spacing == GapDistribution::Even;
            let may_hold = matches!(task.program, TaskProgram::Client { .. })
                && task.schedule.is_some_and(is_even)
                && self.ends[task.first_end].link == ConnectionState::Lasting
                && (host.cost_jitter, host.costs.sleep, host.costs.tx_remote) == (0, 0, 0)
                && host.stack.busy_poll == Nanos::ZERO
                && timers.filter(is_timer).count() == 1;
            self.tasks[idx].may_hold = may_hold;
        }
    }
}
