//! From a scenario to components with their slots.

mod loads;
mod shortcuts;

use latput_policy::DevicePolling;
use latput_units::{Nanos, SeededRng};

use super::{Component, CoreBacklog, HostState, World, poll};
use crate::agenda::{Agenda, NEVER, Time};
use crate::bus::BusQueue;
use crate::casts::{id, narrow_size};
use crate::core::Core;
use crate::fifo::Fifo;
use crate::frame::{FrameKind, most_payload};
use crate::machine::DriverMode;
use crate::port::{FarEnd, FrameSource, Port};
use crate::queue::{LinkProperties, NicQueue};
use crate::scenario::{Load, Scenario, TrafficKind};
use crate::socket::{SocketEnd, SocketProtocol};
use crate::tally::LoadCounters;
use crate::task::{Task, TaskProgram};
use crate::timers::TimerQueue;

/// Everything in its tables, nothing yet in the agenda but the first starts.
pub(super) fn build_world(scenario: &Scenario) -> World {
    let mut builder = WorldBuilder::new(scenario);
    for idx in 0..scenario.hosts.len() {
        builder.add_host(idx);
    }
    builder.add_switch();
    builder.add_poll_threads();
    for (idx, load) in scenario.loads.iter().enumerate() {
        builder.add_load(idx, load);
    }
    builder.finish()
}

struct WorldBuilder<'a> {
    scenario: &'a Scenario,
    rng: SeededRng,
    components: Vec<Component>,
    /// First times of slots.
    first: Vec<(usize, Time)>,
    hosts: Vec<HostState>,
    cores: Vec<Core>,
    queues: Vec<NicQueue>,
    ports: Vec<Port>,
    tasks: Vec<Task>,
    ends: Vec<SocketEnd>,
}

impl<'a> WorldBuilder<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        Self {
            scenario,
            rng: SeededRng::from_seed(scenario.seed),
            components: Vec::new(),
            first: Vec::new(),
            hosts: Vec::new(),
            cores: Vec::new(),
            queues: Vec::new(),
            ports: Vec::new(),
            tasks: Vec::new(),
            ends: Vec::new(),
        }
    }

    fn random_time(&mut self, below: Time) -> Time {
        if below == 0 { 0 } else { self.rng.next_u64() % below }
    }

    fn add_host(&mut self, idx: usize) {
        let scenario = self.scenario;
        let host = &scenario.hosts[idx];
        let (first_core, first_queue) = (self.cores.len(), self.queues.len());
        let costs = host.machine.costs.map(Nanos::as_ns);
        let cost_jitter = Nanos::from_secs_f64(costs.jitter_ratio * 65_536e-9).as_ns();
        for core in 0..host.machine.cores as usize {
            self.cores.push(Core::new(idx, cost_jitter));
            self.tasks.push(Task::new(
                idx,
                TaskProgram::Ksoftirqd,
                Some(first_core + core),
                first_core + core,
            ));
        }
        let rate = host.nic.link.unwrap_or(scenario.network.rate);
        let wire = LinkProperties { rate, mss: self.tcp_mss() };
        for queue in 0..host.nic.queues as usize {
            let irq = host.nic.interrupt_core(queue);
            let phase = self.random_time(host.nic.coalescing.throttle.interval().as_ns());
            let core = first_core + irq as usize;
            self.queues.push(NicQueue::new(idx, host, core, phase, &wire));
        }
        let far = match (scenario.network.switch, scenario.hosts.len()) {
            (Some(_), _) | (None, 1) => FarEnd::Switch,
            (None, _) => FarEnd::Host(1 - idx),
        };
        let feed =
            FrameSource::Rings { first: first_queue, count: host.nic.queues as usize, turn: 0 };
        self.ports.push(self.build_port(idx, feed, far));
        let tick = 1_000_000_000 / u64::from(host.stack.polling.hz.max(1));
        self.hosts.push(HostState {
            costs,
            cost_jitter,
            stack: host.stack.clone(),
            first_core,
            cores: host.machine.cores as usize,
            first_queue,
            queues: host.nic.queues as usize,
            port: idx,
            driver: host.nic.driver,
            placement: host.machine.placement,
            idle_exit: host.machine.idle_exit.as_ns(),
            time_slice: host.machine.time_slice.as_ns(),
            steal_after: host.machine.steal_after.map_or(0, Nanos::as_ns),
            fifo_bytes: host.nic.fifo.get(),
            pause: host.nic.pause,
            paused_peer: false,
            bus: host.nic.bus.map(|bus| Box::new(BusQueue::new(bus))),
            bus_slot: 0,
            run_queue: Fifo::with_capacity(16),
            timers: TimerQueue::new(),
            timers_slot: 0,
            slots: Vec::new(),
            hears: None,
            polling: DevicePolling::new(host.stack.polling),
            throttle: host.adaptive.throttle.clone().filter(|_| host.adaptive.shares_throttle),
            tick,
            round: poll::PollingRound::default(),
            tick_missed: false,
        });
    }

    /// A port on the link of this host.
    fn build_port(&self, host: usize, feed: FrameSource, far: FarEnd) -> Port {
        let network = &self.scenario.network;
        let rate = self.scenario.hosts[host].nic.link.unwrap_or(network.rate);
        Port::new(feed, far, rate, network.latency, network.latency_jitter_ratio)
    }

    /// The switch's output ports follow those of the hosts.
    fn add_switch(&mut self) {
        let Some(buffer) = self.scenario.network.switch else {
            return;
        };
        for host in 0..self.hosts.len() {
            let feed = FrameSource::Buffer {
                frames: Fifo::with_capacity(64),
                bytes: 0,
                limit: buffer.get(),
            };
            let port = self.build_port(host, feed, FarEnd::Host(host));
            self.ports.push(port);
        }
    }

    fn add_poll_threads(&mut self) {
        for idx in 0..self.queues.len() {
            let (host, core) = (self.queues[idx].host, self.queues[idx].core);
            if self.hosts[host].stack.threaded {
                self.queues[idx].poll_thread = Some(self.tasks.len());
                self.tasks.push(Task::new(host, TaskProgram::PollThread(idx), None, core));
            }
        }
    }

    fn add_task(&mut self, host: usize, core: Option<u32>, program: TaskProgram) -> usize {
        let first = self.hosts[host].first_core;
        let bound = core.map(|core| first + core as usize);
        self.tasks.push(Task::new(host, program, bound, bound.unwrap_or(first)));
        self.tasks.len() - 1
    }

    fn start_later(&mut self, task: usize, from: Time, spread: Time) -> usize {
        let at = self.random_time(spread);
        self.start_at(task, from + at)
    }

    fn start_at(&mut self, task: usize, at: Time) -> usize {
        self.components.push(Component::Task(id(task)));
        self.first.push((self.components.len() - 1, at));
        self.components.len() - 1
    }

    fn tcp_mss(&self) -> u32 {
        most_payload(FrameKind::Tcp, narrow_size(self.scenario.network.mtu.get()))
    }

    /// Whether any host's own timer will ever be set.
    fn has_timers(&self) -> bool {
        self.ends.iter().any(|end| matches!(end.protocol, SocketProtocol::Tcp(_)))
            || self.tasks.iter().any(|task| matches!(task.program, TaskProgram::Server { .. }))
            || self.hosts.iter().any(|host| host.steal_after > 0)
    }

    fn has_bus(&self) -> bool {
        self.hosts.iter().any(|host| host.bus.is_some())
    }

    /// Gives each component its slot: those of one kind follow each other.
    fn finish(mut self) -> World {
        let (has_timers, has_bus) = (self.has_timers(), self.has_bus());
        let mut add = |count: usize, component: fn(u32) -> Component| {
            let first = self.components.len();
            self.components.extend((0..id(count)).map(component));
            first
        };
        let core_slots = add(self.cores.len(), Component::Core);
        let vector_slots = add(self.queues.len(), Component::Vector);
        let port_slots = add(self.ports.len(), Component::Port);
        let wire_slots = add(self.ports.len(), Component::Wire);
        // The fewer slots, the lower the tree: those that nothing will use are left out.
        let deferral_slots = add(self.queues.len(), Component::Deferral);
        let timer_slots = add(if has_timers { self.hosts.len() } else { 0 }, Component::Timers);
        let ticks = self.hosts.iter().any(|host| host.driver == DriverMode::Polling);
        let tick_slots = add(if ticks { self.hosts.len() } else { 0 }, Component::Tick);
        let bus_slots = add(if has_bus { self.hosts.len() } else { 0 }, Component::Bus);
        let mut agenda = Agenda::new(self.components.len());
        self.first.iter().for_each(|(slot, at)| agenda.set_due_time(*slot, *at));
        for idx in 0..self.hosts.len() {
            let host = &mut self.hosts[idx];
            (host.timers_slot, host.bus_slot) = (timer_slots + idx, bus_slots + idx);
            if self.hosts[idx].driver == DriverMode::Polling {
                let at = self.random_time(self.hosts[idx].tick);
                agenda.set_due_time(tick_slots + idx, at);
            }
        }
        self.list_slots();
        self.let_clients_hold();
        let only: Vec<_> = (0..self.hosts.len()).map(|host| self.only_queue(host)).collect();
        let quiet_queues = self.quiet_queues(&only);
        self.foresee_ports(&only);
        for (port, queue) in quiet_queues.iter().enumerate() {
            if let Some(queue) = queue {
                self.queues[*queue].quiet_wire = Some(port);
            }
        }
        World {
            now: 0,
            reached: 0,
            quiet_queues,
            agenda,
            core_slots,
            vector_slots,
            port_slots,
            wire_slots,
            deferral_slots,
            backlogs: self.cores.iter().map(build_backlog).collect(),
            mss: self.tcp_mss(),
            components: self.components,
            hosts: self.hosts,
            cores: self.cores,
            queues: self.queues,
            ports: self.ports,
            tasks: self.tasks,
            ends: self.ends,
            tallies: self.scenario.loads.iter().map(build_counters).collect(),
            rng: self.rng,
            window_from: 0,
            window_to: NEVER,
            quotas: Vec::new(),
            until: 0,
            is_eager: false,
            sent: 0,
            delivered: 0,
            events: 0,
            log: None,
        }
    }
}

fn build_backlog(_: &Core) -> CoreBacklog {
    CoreBacklog { frames: Fifo::with_capacity(16), scheduled: false, dropped: 0 }
}

fn build_counters(load: &Load) -> LoadCounters {
    let is_transactional = matches!(load.traffic, TrafficKind::RequestResponse { .. });
    LoadCounters::new(is_transactional && load.form.arrivals.is_some())
}
