//! From a scenario to components with their slots.

use std::sync::Arc;

use latput_moderate::Polling;
use latput_trial::observation::Role;
use latput_units::{Nanos, Rng};

use super::{Backlog, Component, Costs, HostState, World, poll};
use crate::agenda::{Agenda, NEVER, Time};
use crate::bus::Server;
use crate::core::Core;
use crate::fifo::Fifo;
use crate::frame::{Kind, most_payload};
use crate::machine::{self, Driver};
use crate::narrow::{id, size};
use crate::port::{Far, Feed, Port};
use crate::queue::{Queue, Wire};
use crate::scenario::{Load, Scenario, Spacing, Traffic, Transport};
use crate::socket::{End, Inbox, Link, Protocol};
use crate::tally::Tally;
use crate::task::{Program, Schedule, Task, Think};
use crate::tcp::{Options, Tcp};
use crate::timers::Timers;

/// Loads start at a random time within this, so that no run begins in lock-step.
const START_SPREAD: Time = 1_000_000;
/// Kernel memory of a datagram beside its payload (`sizeof(struct sk_buff)` and page rounding).
const DATAGRAM_OVERHEAD: u64 = 832;
/// As `ping` sends it.
const PROBE_PAYLOAD: u32 = 56;
/// Bytes of a TSO chunk (`GSO_MAX_SIZE`).
const CHUNK: u32 = 65_160;

/// Everything in its tables, nothing yet in the agenda but the first starts.
pub(super) fn build(scenario: &Scenario) -> World {
    let mut builder = Builder::new(scenario);
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

struct Builder<'a> {
    scenario: &'a Scenario,
    rng: Rng,
    components: Vec<Component>,
    /// First times of slots.
    first: Vec<(usize, Time)>,
    hosts: Vec<HostState>,
    cores: Vec<Core>,
    queues: Vec<Queue>,
    ports: Vec<Port>,
    tasks: Vec<Task>,
    poll_threads: Vec<Option<usize>>,
    ends: Vec<End>,
}

impl<'a> Builder<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        Self {
            scenario,
            rng: Rng::from_seed(scenario.seed),
            components: Vec::new(),
            first: Vec::new(),
            hosts: Vec::new(),
            cores: Vec::new(),
            queues: Vec::new(),
            ports: Vec::new(),
            tasks: Vec::new(),
            poll_threads: Vec::new(),
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
        let costs = plain(&host.machine.costs);
        for core in 0..host.machine.cores as usize {
            self.cores.push(Core::new(idx, costs.jitter));
            self.tasks.push(Task::new(
                idx,
                Program::Ksoftirqd,
                Some(first_core + core),
                first_core + core,
            ));
        }
        let rate = host.nic.link.unwrap_or(scenario.network.rate);
        let wire = Wire { rate, mss: self.mss() };
        for queue in 0..host.nic.queues as usize {
            let irq = match host.nic.irq_cores.as_slice() {
                [] => 0,
                cores => cores[queue % cores.len()],
            };
            let phase = self.random_time(host.nic.coalescing.throttle.interval().as_ns());
            let core = first_core + irq as usize;
            self.queues.push(Queue::new(idx, host, core, phase, &wire));
        }
        let far = match (scenario.network.switch, scenario.hosts.len()) {
            (Some(_), _) | (None, 1) => Far::Switch,
            (None, _) => Far::Host(1 - idx),
        };
        let feed = Feed::Rings { first: first_queue, count: host.nic.queues as usize, turn: 0 };
        self.ports.push(self.port(idx, feed, far));
        let tick = 1_000_000_000 / u64::from(host.stack.polling.hz.max(1));
        self.hosts.push(HostState {
            costs,
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
            bus: host.nic.bus.map(|bus| Box::new(Server::new(bus))),
            bus_slot: 0,
            run_queue: Fifo::with_capacity(16),
            timers: Timers::new(),
            timers_slot: 0,
            slots: Vec::new(),
            hears: None,
            polling: Polling::new(host.stack.polling),
            throttle: host.adaptive.throttle.clone().filter(|_| host.adaptive.shares_throttle),
            tick,
            round: poll::Round::default(),
            tick_missed: false,
        });
    }

    /// A port on the link of this host.
    fn port(&self, host: usize, feed: Feed, far: Far) -> Port {
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
            let feed =
                Feed::Buffer { frames: Fifo::with_capacity(64), bytes: 0, limit: buffer.get() };
            let port = self.port(host, feed, Far::Host(host));
            self.ports.push(port);
        }
    }

    fn add_poll_threads(&mut self) {
        for idx in 0..self.queues.len() {
            let (host, core) = (self.queues[idx].host, self.queues[idx].core);
            let thread = self.hosts[host].stack.threaded.then(|| {
                self.tasks.push(Task::new(host, Program::PollThread(idx), None, core));
                self.tasks.len() - 1
            });
            self.poll_threads.push(thread);
        }
    }

    fn add_load(&mut self, idx: usize, load: &Load) {
        let first_end = self.ends.len();
        match load.traffic {
            Traffic::Datagrams { rate_pps, group, receive_batch, .. } => {
                self.add_flow(idx, load, None);
                let rate_hz = if load.form.floods { f64::INFINITY } else { rate_pps };
                self.add_source(load, first_end, rate_hz / f64::from(group));
                let sink = Program::Sink { batch: receive_batch };
                let sink = self.add_task(load.to, load.to_core, sink);
                self.ends[first_end + 1].task = Some(id(sink));
            }
            Traffic::Probe { rate_hz } => {
                self.add_flow(idx, load, None);
                self.add_source(load, first_end, rate_hz);
            }
            Traffic::RequestResponse {
                transport,
                request,
                response,
                burst,
                connections,
                think,
            } => {
                let (request, response) = (size(request.get()), size(response.get()));
                let client = Program::Client { request, response };
                let think = Think { mean: think.as_ns(), varies: load.form.think_varies };
                let server = Program::Server { request, response, think };
                let tasks = self.add_pair(load, client, server);
                let nodelay = match transport {
                    Transport::Udp => None,
                    Transport::Tcp { nodelay } => Some(nodelay),
                };
                self.add_connections(idx, load, nodelay, connections, tasks);
                self.ask_first(load, tasks.0, burst + 1);
            }
            Traffic::Stream { message, connections } => {
                let message = size(message.get());
                let tasks =
                    self.add_pair(load, Program::Writer { message }, Program::Reader { message });
                self.add_connections(idx, load, Some(!load.form.gathers), connections, tasks);
                self.keep_schedule(load, tasks.0);
                for connection in 0..connections as usize {
                    let end = first_end + 2 * connection;
                    self.ends[end].is_ready = true;
                    self.tasks[tasks.0].ready.push(id(end));
                }
            }
            Traffic::Compute => {
                let task = self.add_task(load.from, load.from_core, Program::Compute);
                self.tasks[task].stop = load.stop.map_or(NEVER, Nanos::as_ns);
                self.start_later(task, load.start.as_ns(), 0);
            }
        }
    }

    /// The first requests of a client: in a closed loop some of each connection, in an open loop those that
    /// its schedule has.
    fn ask_first(&mut self, load: &Load, client: usize, in_flight: u32) {
        self.keep_schedule(load, client);
        let task = &self.tasks[client];
        let (first, connections) = (task.first_end, task.connections);
        for end in (first..first + 2 * connections).step_by(2) {
            self.ends[end].exchange.timeout = load.form.timeout.as_ns();
            if load.form.connects {
                self.ends[end].link = Link::Closed;
                self.ends[end + 1].link = Link::Closed;
            }
            if load.form.arrivals.is_none() {
                self.ends[end].owed = in_flight;
                self.ends[end].is_ready = true;
                self.tasks[client].ready.push(id(end));
            }
        }
    }

    /// Gives the sender of an open loop its times.
    fn keep_schedule(&mut self, load: &Load, task: usize) {
        let Some(arrivals) = load.form.arrivals else {
            return;
        };
        let gap_ns = 1e9 / arrivals.rate_hz;
        let phase = self.rng.uniform() * gap_ns.min(START_SPREAD as f64);
        let next_at = load.start.as_ns() as f64 + phase;
        let spacing = arrivals.spacing;
        self.tasks[task].schedule = Some(Schedule { gap_ns, spacing, next_at });
    }

    /// The two processes of a load; the first starts by itself.
    fn add_pair(&mut self, load: &Load, from: Program, to: Program) -> (usize, usize) {
        let from = self.add_task(load.from, load.from_core, from);
        let to = self.add_task(load.to, load.to_core, to);
        self.tasks[from].stop = load.stop.map_or(NEVER, Nanos::as_ns);
        let slot = self.start_later(from, load.start.as_ns(), START_SPREAD);
        self.tasks[from].slot = Some(slot);
        (from, to)
    }

    fn add_connections(
        &mut self,
        idx: usize,
        load: &Load,
        nodelay: Option<bool>,
        connections: u32,
        (from, to): (usize, usize),
    ) {
        self.tasks[from].first_end = self.ends.len();
        self.tasks[from].connections = connections as usize;
        self.ends.reserve(2 * connections as usize);
        let tcp = nodelay.map(|nodelay| self.tcp_options(load, nodelay));
        for _ in 0..connections {
            self.add_flow(idx, load, tcp.as_ref());
            let last = self.ends.len() - 1;
            self.ends[last - 1].task = Some(id(from));
            self.ends[last].task = Some(id(to));
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "a start within a millisecond")]
    fn add_source(&mut self, load: &Load, end: usize, rate_hz: f64) {
        let (bytes, spacing, group) = match load.traffic {
            Traffic::Datagrams { size: payload, spacing, group, .. } => {
                (size(payload.get()), spacing, group)
            }
            _ => (load.form.payload.map_or(PROBE_PAYLOAD, |it| size(it.get())), Spacing::Even, 1),
        };
        let gap_ns = 1e9 / rate_hz;
        let phase = self.rng.uniform() * gap_ns.min(START_SPREAD as f64);
        let next_at = load.start.as_ns() as f64 + phase;
        let program = Program::Source { end, size: bytes, group, gap_ns, spacing, next_at };
        let task = self.add_task(load.from, load.from_core, program);
        self.ends[end].task = Some(id(task));
        let slot = self.start_at(task, next_at as Time);
        self.tasks[task].slot = Some(slot);
        self.tasks[task].first_end = end;
        self.tasks[task].flood = load.form.floods.then(|| {
            let buffer = self.hosts[load.from].stack.send_buffer.get();
            size(buffer / (u64::from(bytes) + DATAGRAM_OVERHEAD)).max(1)
        });
        self.tasks[task].stop = load.stop.map_or(NEVER, Nanos::as_ns);
    }

    fn add_task(&mut self, host: usize, core: Option<u32>, program: Program) -> usize {
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

    /// Two sockets that speak to each other: datagrams, or TCP with the options of both.
    fn add_flow(&mut self, idx: usize, load: &Load, tcp: Option<&[Arc<Options>; 2]>) {
        let hash = self.rng.next_u64();
        let is_back = self.scenario.hosts[load.to].role == Role::Generator;
        let generator = if is_back { load.to } else { load.from };
        for (side, host) in [load.from, load.to].into_iter().enumerate() {
            let state = &self.hosts[host];
            let queue = state.first_queue + spread(hash, state.queues);
            let protocol = match tcp {
                None => self.datagrams(host, load),
                Some(options) => Protocol::Tcp(Tcp::new(Arc::clone(&options[side]))),
            };
            let counted = load.counted_with.unwrap_or(idx);
            let mut end = End::new(host, counted, queue, protocol);
            end.is_generator = host == generator;
            let rps = &state.stack.rps_cores;
            if !rps.is_empty() {
                // Other bits than those that chose the queue.
                let core = rps[spread(hash >> 32, rps.len())];
                end.rps_core = Some(id(state.first_core) + core);
            }
            self.ends.push(end);
        }
    }

    fn datagrams(&self, host: usize, load: &Load) -> Protocol {
        let payload = match load.traffic {
            Traffic::Datagrams { size, .. } => size.get(),
            _ => 64,
        };
        let buffer = self.hosts[host].stack.receive_buffer.get();
        Protocol::Datagrams(Inbox::new(size(buffer / (payload + DATAGRAM_OVERHEAD)).max(1)))
    }

    /// Of the connections of a load: at its first end, and at the other.
    fn tcp_options(&self, load: &Load, nodelay: bool) -> [Arc<Options>; 2] {
        let mss = self.mss();
        [(load.from, load.to), (load.to, load.from)].map(|(host, peer)| {
            let (stack, peer) = (&self.hosts[host].stack, &self.hosts[peer].stack);
            Arc::new(Options {
                mss,
                chunk: if stack.tso { (CHUNK / mss).max(1) * mss } else { mss },
                send_buffer: size(stack.send_buffer.get()),
                receive_buffer: size(stack.receive_buffer.get()),
                peer_buffer: size(peer.receive_buffer.get()),
                nodelay,
                acks_when_read: stack.acks_when_read,
                congestion: stack.congestion,
            })
        })
    }

    fn mss(&self) -> u32 {
        most_payload(Kind::Tcp, size(self.scenario.network.mtu.get()))
    }

    /// The only queue of a host that any socket uses.
    fn only_queue(&self, host: usize) -> Option<usize> {
        let here = self.ends.iter().filter(|end| end.host as usize == host);
        let mut used = here.map(|end| end.queue as usize);
        let first = used.next().unwrap_or(self.hosts[host].first_queue);
        used.all(|queue| queue == first).then_some(first)
    }

    /// Frames of a host that uses one queue leave at times known in advance, if nobody can pause it, they need not
    /// wait for a bus, and jitter is not drawn when a frame leaves.
    fn foresee_ports(&mut self, only: &[Option<usize>]) {
        let pauses = self.hosts.iter().any(|host| host.pause && host.fifo_bytes > 0);
        let has_jitter = self.scenario.network.latency_jitter_ratio > 0.0;
        for ((only, host), port) in only.iter().zip(&self.hosts).zip(&mut self.ports) {
            port.foreseen = only.filter(|_| !pauses && !has_jitter && host.bus.is_none());
        }
    }

    /// For each port the queue at its far end, if arrivals there may wait to be seen: one queue is used,
    /// and there is no buffer in front of its ring.
    fn quiet_queues(&self, only: &[Option<usize>]) -> Vec<Option<usize>> {
        // Pause frames come by the same wires and must be heeded at once.
        let pauses = self.hosts.iter().any(|host| host.pause && host.fifo_bytes > 0);
        let far_queue = |port: &Port| match port.far {
            Far::Host(host) if !pauses && self.hosts[host].fifo_bytes == 0 => only[host],
            Far::Host(_) | Far::Switch => None,
        };
        self.ports.iter().map(far_queue).collect()
    }

    /// Tells each host what acts on it.
    fn list_slots(&mut self) {
        for (slot, component) in self.components.iter().enumerate() {
            let host = match *component {
                Component::Core(core) => self.cores[core as usize].host,
                Component::Vector(queue) | Component::Deferral(queue) => {
                    self.queues[queue as usize].host
                }
                Component::Port(port) if (port as usize) < self.hosts.len() => port as usize,
                Component::Wire(port) => match self.ports[port as usize].far {
                    Far::Host(host) => host,
                    Far::Switch => continue,
                },
                Component::Port(_) => continue,
                Component::Task(task) => self.tasks[task as usize].host,
                Component::Timers(host) | Component::Tick(host) | Component::Bus(host) => {
                    host as usize
                }
            };
            self.hosts[host].slots.push(id(slot));
        }
        for (idx, host) in self.hosts.iter_mut().enumerate() {
            let hears = self.scenario.loads.iter().any(|load| match load.traffic {
                Traffic::Compute => false,
                Traffic::Datagrams { .. } => load.to == idx,
                _ => load.from == idx || load.to == idx,
            });
            let is_wire = |port: &Port| port.far == Far::Host(idx);
            host.hears = self.ports.iter().position(is_wire).filter(|_| hears);
        }
    }

    /// A client may hold its core until its next request if costs do not vary, if it goes to sleep and wakes up
    /// without further ado, and if it is the only process of its host with a timer: of two that are due at the
    /// same time the first would see the other's core held.
    fn let_clients_hold(&mut self) {
        for idx in 0..self.tasks.len() {
            let task = &self.tasks[idx];
            let host = &self.hosts[task.host];
            let timers = host.slots.iter().map(|slot| self.components[*slot as usize]);
            let is_timer = |component: &Component| matches!(component, Component::Task(_));
            let is_even = |schedule: Schedule| schedule.spacing == Spacing::Even;
            let may_hold = matches!(task.program, Program::Client { .. })
                && task.schedule.is_some_and(is_even)
                && self.ends[task.first_end].link == Link::Lasting
                && (host.costs.jitter, host.costs.sleep, host.costs.tx_remote) == (0, 0, 0)
                && host.stack.busy_poll == Nanos::ZERO
                && timers.filter(is_timer).count() == 1;
            self.tasks[idx].may_hold = may_hold;
        }
    }

    /// Whether any host's own timer will ever be set.
    fn has_timers(&self) -> bool {
        self.ends.iter().any(|end| matches!(end.protocol, Protocol::Tcp(_)))
            || self.tasks.iter().any(|task| matches!(task.program, Program::Server { .. }))
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
        let ticks = self.hosts.iter().any(|host| host.driver == Driver::Polling);
        let tick_slots = add(if ticks { self.hosts.len() } else { 0 }, Component::Tick);
        let bus_slots = add(if has_bus { self.hosts.len() } else { 0 }, Component::Bus);
        let mut agenda = Agenda::new(self.components.len());
        self.first.iter().for_each(|(slot, at)| agenda.set(*slot, *at));
        for idx in 0..self.hosts.len() {
            let host = &mut self.hosts[idx];
            (host.timers_slot, host.bus_slot) = (timer_slots + idx, bus_slots + idx);
            if self.hosts[idx].driver == Driver::Polling {
                let at = self.random_time(self.hosts[idx].tick);
                agenda.set(tick_slots + idx, at);
            }
        }
        self.list_slots();
        self.let_clients_hold();
        // One random scenario of three hundred with such timers ended otherwise by parts of a microsecond where
        // processes went ahead.
        let sets_dear_timers = self.hosts.iter().any(|host| host.costs.timer_arm > 0);
        let backlog =
            |_: &Core| Backlog { frames: Fifo::with_capacity(16), scheduled: false, dropped: 0 };
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
            backlogs: self.cores.iter().map(backlog).collect(),
            mss: self.mss(),
            components: self.components,
            hosts: self.hosts,
            cores: self.cores,
            queues: self.queues,
            ports: self.ports,
            tasks: self.tasks,
            poll_threads: self.poll_threads,
            ends: self.ends,
            tallies: self.scenario.loads.iter().map(tally).collect(),
            rng: self.rng,
            window_from: 0,
            window_to: NEVER,
            quotas: Vec::new(),
            until: 0,
            is_eager: sets_dear_timers,
            sent: 0,
            delivered: 0,
            events: 0,
            log: None,
        }
    }
}

fn tally(load: &Load) -> Tally {
    let is_transactional = matches!(load.traffic, Traffic::RequestResponse { .. });
    Tally::new(is_transactional && load.form.arrivals.is_some())
}

/// One of `count` by a hash, as receive side scaling does.
#[expect(clippy::cast_possible_truncation, reason = "less than `count`")]
const fn spread(hash: u64, count: usize) -> usize {
    (hash % count as u64) as usize
}

fn plain(costs: &machine::Costs) -> Costs {
    Costs {
        interrupt: costs.interrupt.as_ns(),
        poll: costs.poll.as_ns(),
        rx_packet: costs.rx_packet.as_ns(),
        rx_merged: costs.rx_merged.as_ns(),
        rx_first: costs.rx_first.as_ns(),
        rx_data: costs.rx_data.as_ns(),
        rx_remote: costs.rx_remote.as_ns(),
        tx_completion: costs.tx_completion.as_ns(),
        tx_remote: costs.tx_remote.as_ns(),
        tx_packet: costs.tx_packet.as_ns(),
        ack: costs.ack.as_ns(),
        syscall: costs.syscall.as_ns(),
        user: costs.user.as_ns(),
        copy_per_kib: costs.copy_per_kib.as_ns(),
        wake: costs.wake.as_ns(),
        wake_remote: costs.wake_remote.as_ns(),
        sleep: costs.sleep.as_ns(),
        cross_core: costs.cross_core.as_ns(),
        preempted: costs.preempted.as_ns(),
        timer: costs.timer.as_ns(),
        timer_arm: costs.timer_arm.as_ns(),
        ipi: costs.ipi.as_ns(),
        backlog_packet: costs.backlog_packet.as_ns(),
        jitter: Nanos::from_secs_f64(costs.jitter_ratio * 65_536e-9).as_ns(),
    }
}
