//! The processes of each load and the sockets between them.

use std::sync::Arc;

use latput_trial::observation::Role;
use latput_units::Nanos;

use super::WorldBuilder;
use crate::agenda::{NEVER, Time};
use crate::casts::{id, narrow_size};
use crate::scenario::{GapDistribution, Load, TrafficKind, Transport};
use crate::socket::{ConnectionState, DatagramQueue, SocketEnd, SocketProtocol};
use crate::task::{SendSchedule, TaskProgram, ThinkTime};
use crate::tcp::{TcpEndpoint, TcpOptions};

/// Loads start at a random time within this, so that no run begins in lock-step.
const START_SPREAD: Time = 1_000_000;
/// Kernel memory of a datagram beside its payload (`sizeof(struct sk_buff)` and page rounding).
const DATAGRAM_OVERHEAD: u64 = 832;
/// As `ping` sends it.
const PROBE_PAYLOAD: u32 = 56;
/// Bytes of a TSO chunk (`GSO_MAX_SIZE`).
const CHUNK: u32 = 65_160;

impl WorldBuilder<'_> {
    pub(super) fn add_load(&mut self, idx: usize, load: &Load) {
        let first_end = self.ends.len();
        match load.traffic {
            TrafficKind::Datagrams { rate_pps, group, receive_batch, .. } => {
                self.add_flow(idx, load, None);
                let rate_hz = if load.form.floods { f64::INFINITY } else { rate_pps };
                self.add_source(load, first_end, rate_hz / f64::from(group));
                let sink = TaskProgram::Sink { batch: receive_batch };
                let sink = self.add_task(load.to, load.to_core, sink);
                self.ends[first_end + 1].task = Some(id(sink));
            }
            TrafficKind::Probe { rate_hz } => {
                self.add_flow(idx, load, None);
                self.add_source(load, first_end, rate_hz);
            }
            TrafficKind::RequestResponse {
                transport,
                request,
                response,
                burst,
                connections,
                think,
            } => {
                let (request, response) = (narrow_size(request.get()), narrow_size(response.get()));
                let client = TaskProgram::Client { request, response };
                let think = ThinkTime { mean: think.as_ns(), varies: load.form.think_varies };
                let server = TaskProgram::Server { request, response, think };
                let tasks = self.add_pair(load, client, server);
                let nodelay = match transport {
                    Transport::Udp => None,
                    Transport::Tcp { nodelay } => Some(nodelay),
                };
                self.add_connections(idx, load, nodelay, connections, tasks);
                self.ask_first(load, tasks.0, burst + 1);
            }
            TrafficKind::Stream { message, connections } => {
                let message = narrow_size(message.get());
                let tasks = self.add_pair(
                    load,
                    TaskProgram::Writer { message },
                    TaskProgram::Reader { message },
                );
                self.add_connections(idx, load, Some(!load.form.gathers), connections, tasks);
                self.keep_schedule(load, tasks.0);
                for connection in 0..connections as usize {
                    let end = first_end + 2 * connection;
                    self.ends[end].is_ready = true;
                    self.tasks[tasks.0].ready.push(id(end));
                }
            }
            TrafficKind::Compute => {
                let task = self.add_task(load.from, load.from_core, TaskProgram::Compute);
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
                self.ends[end].link = ConnectionState::Closed;
                self.ends[end + 1].link = ConnectionState::Closed;
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
        let phase = self.rng.next_uniform() * gap_ns.min(START_SPREAD as f64);
        let next_at = load.start.as_ns() as f64 + phase;
        let spacing = arrivals.spacing;
        self.tasks[task].schedule = Some(SendSchedule { gap_ns, spacing, next_at });
    }

    /// The two processes of a load; the first starts by itself.
    fn add_pair(&mut self, load: &Load, from: TaskProgram, to: TaskProgram) -> (usize, usize) {
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
            TrafficKind::Datagrams { size: payload, spacing, group, .. } => {
                (narrow_size(payload.get()), spacing, group)
            }
            _ => (
                load.form.payload.map_or(PROBE_PAYLOAD, |it| narrow_size(it.get())),
                GapDistribution::Even,
                1,
            ),
        };
        let gap_ns = 1e9 / rate_hz;
        let phase = self.rng.next_uniform() * gap_ns.min(START_SPREAD as f64);
        let next_at = load.start.as_ns() as f64 + phase;
        let program = TaskProgram::Source { end, size: bytes, group, gap_ns, spacing, next_at };
        let task = self.add_task(load.from, load.from_core, program);
        self.ends[end].task = Some(id(task));
        let slot = self.start_at(task, next_at as Time);
        self.tasks[task].slot = Some(slot);
        self.tasks[task].first_end = end;
        self.tasks[task].flood = load.form.floods.then(|| {
            let buffer = self.hosts[load.from].stack.send_buffer.get();
            narrow_size(buffer / (u64::from(bytes) + DATAGRAM_OVERHEAD)).max(1)
        });
        self.tasks[task].stop = load.stop.map_or(NEVER, Nanos::as_ns);
    }

    /// Two sockets that speak to each other: datagrams, or TCP with the options of both.
    fn add_flow(&mut self, idx: usize, load: &Load, tcp: Option<&[Arc<TcpOptions>; 2]>) {
        let hash = self.rng.next_u64();
        let is_back = self.scenario.hosts[load.to].role == Role::Generator;
        let generator = if is_back { load.to } else { load.from };
        for (side, host) in [load.from, load.to].into_iter().enumerate() {
            let state = &self.hosts[host];
            let queue = state.first_queue + pick_by_hash(hash, state.queues);
            let protocol = match tcp {
                None => self.build_datagram_protocol(host, load),
                Some(options) => SocketProtocol::Tcp(TcpEndpoint::new(Arc::clone(&options[side]))),
            };
            let counted = load.counted_with.unwrap_or(idx);
            let mut end = SocketEnd::new(host, counted, queue, protocol);
            end.is_generator = host == generator;
            let rps = &state.stack.rps_cores;
            if !rps.is_empty() {
                // Other bits than those that chose the queue.
                let core = rps[pick_by_hash(hash >> 32, rps.len())];
                end.rps_core = Some(id(state.first_core) + core);
            }
            self.ends.push(end);
        }
    }

    fn build_datagram_protocol(&self, host: usize, load: &Load) -> SocketProtocol {
        let payload = match load.traffic {
            TrafficKind::Datagrams { size, .. } => size.get(),
            _ => 64,
        };
        let buffer = self.hosts[host].stack.receive_buffer.get();
        SocketProtocol::Datagrams(DatagramQueue::new(
            narrow_size(buffer / (payload + DATAGRAM_OVERHEAD)).max(1),
        ))
    }

    /// Of the connections of a load: at its first end, and at the other.
    fn tcp_options(&self, load: &Load, nodelay: bool) -> [Arc<TcpOptions>; 2] {
        let mss = self.tcp_mss();
        [(load.from, load.to), (load.to, load.from)].map(|(host, peer)| {
            let (stack, peer) = (&self.hosts[host].stack, &self.hosts[peer].stack);
            Arc::new(TcpOptions {
                mss,
                chunk: if stack.tso { (CHUNK / mss).max(1) * mss } else { mss },
                send_buffer: narrow_size(stack.send_buffer.get()),
                receive_buffer: narrow_size(stack.receive_buffer.get()),
                peer_buffer: narrow_size(peer.receive_buffer.get()),
                nodelay,
                acks_when_read: stack.acks_when_read,
                congestion: stack.congestion,
            })
        })
    }
}

/// One of `count` by a hash, as receive side scaling does.
#[expect(clippy::cast_possible_truncation, reason = "less than `count`")]
const fn pick_by_hash(hash: u64, count: usize) -> usize {
    (hash % count as u64) as usize
}
