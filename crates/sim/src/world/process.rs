//! Processes at work: what each does next, what it costs, and what it leads to.

use latput_units::Nanos;

use super::World;
use crate::agenda::{NEVER, Time};
use crate::casts::id;
use crate::core::{PollSource, SoftirqWork};
use crate::machine::DriverMode;
use crate::task::{TaskProgram, WorkItem};

/// How long a process that only computes goes on between two looks at the clock.
const COMPUTE_SLICE: Time = 100_000;

/// One round of busy polling takes at least this, whatever the profile says of polls.
const SHORTEST_SPIN: Time = 100;

impl World {
    /// A process's own timer.
    pub(super) fn task_due(&mut self, task: usize, slot: usize) {
        self.agenda.set_due_time(slot, NEVER);
        self.wake_task(task, self.tasks[task].last_core);
    }

    /// The next item of a process that has a core: its cost, and how much of that is user code; `None` if
    /// it has nothing to do and sleeps.
    #[inline]
    pub(super) fn begin_item(&mut self, core: usize, task: usize) -> Option<(Time, Time)> {
        if let Some(work) = self.begin_work(core, task) {
            self.tasks[task].retires = false;
            return Some(work);
        }
        self.begin_spin(task).or_else(|| self.begin_sleep(task))
    }

    /// Going to sleep takes its time, once.
    fn begin_sleep(&mut self, task: usize) -> Option<(Time, Time)> {
        let this = &mut self.tasks[task];
        let cost = self.hosts[this.host].costs.sleep;
        if cost == 0 || std::mem::replace(&mut this.retires, true) {
            this.retires = false;
            return None;
        }
        this.item = WorkItem::Nothing;
        Some((cost, 0))
    }

    /// A process that would sleep polls its queue instead, for as long as it is told to.
    fn begin_spin(&mut self, task: usize) -> Option<(Time, Time)> {
        let this = &self.tasks[task];
        let (queue, core) = (this.spin_queue, this.last_core);
        if self.now >= this.spin_until && !this.spins {
            return None;
        }
        if self.now >= this.spin_until || self.queues[queue].driver != DriverMode::Napi {
            if this.spins && self.queues[queue].suspended {
                self.resume_interrupts(queue);
            }
            self.tasks[task].spins = false;
            return None;
        }
        self.tasks[task].spins = true;
        let mut spin = (SoftirqWork::Nothing, 0);
        if !self.queues[queue].scheduled {
            self.queues[queue].scheduled = true;
            self.queues[queue].by_process = true;
            let cost = self.plan_poll(core, PollSource::Queue(id(queue)));
            spin = (self.cores[core].work, cost);
        }
        self.tasks[task].item = WorkItem::Spin(spin.0);
        Some((spin.1.max(SHORTEST_SPIN), 0))
    }

    /// Gives the process the packets that it found; the rest of the ring is the soft interrupt's, at once or, for a
    /// process that prefers to poll, when its timer says so.
    fn finish_spin(&mut self, core: usize, work: SoftirqWork) -> Time {
        let mut cost = self.finish_work(core, work);
        if let SoftirqWork::Queue { queue, .. } = work {
            let queue = queue as usize;
            let ring = &mut self.queues[queue];
            if ring.by_process && ring.scheduled {
                ring.in_poll = false;
                let (irq_core, host) = (ring.core, ring.host);
                if self.hosts[host].stack.prefers_with_timer() {
                    cost += self.complete_poll(queue, true);
                } else {
                    (ring.scheduled, ring.by_process) = (false, false);
                    self.schedule_poll(queue);
                    self.kick_core(irq_core);
                }
            }
            self.queues[queue].by_process = false;
        }
        cost
    }

    fn begin_work(&mut self, core: usize, task: usize) -> Option<(Time, Time)> {
        let debt = std::mem::take(&mut self.cores[core].process_debt);
        if debt > 0 {
            self.tasks[task].item = WorkItem::Nothing;
            return Some((debt, 0));
        }
        let this = &self.tasks[task];
        if this.ready.is_empty() && this.awaits_socket() {
            return None;
        }
        let is_over = self.now >= this.stop;
        let (item, cost, user) = match this.program {
            TaskProgram::Ksoftirqd => {
                let poll = self.cores[core].polls.front().copied()?;
                let cost = self.plan_poll(core, poll);
                (WorkItem::Kernel(self.cores[core].work), cost, 0)
            }
            TaskProgram::PollThread(queue) => {
                if !self.queues[queue].scheduled || self.queues[queue].by_process {
                    return None;
                }
                let cost = self.plan_poll(core, PollSource::Queue(id(queue)));
                (WorkItem::Kernel(self.cores[core].work), cost, 0)
            }
            TaskProgram::Compute | TaskProgram::Source { .. } | TaskProgram::Writer { .. }
                if is_over =>
            {
                return None;
            }
            TaskProgram::Compute => (WorkItem::Nothing, COMPUTE_SLICE, COMPUTE_SLICE),
            TaskProgram::Source { size, group, next_at, .. } => {
                self.begin_emit(core, task, (size, group), next_at)?
            }
            TaskProgram::Sink { batch } => self.begin_drain(core, task, batch)?,
            TaskProgram::Client { request, response } => {
                self.begin_client(core, task, (request, response), is_over)?
            }
            TaskProgram::Server { request, response, think } => {
                if think.mean == 0 {
                    self.exchange_ahead(core, task, request, Some(response));
                    self.begin_receive(core, task, request, Some(response))?
                } else {
                    self.begin_answer(task, response)
                        .or_else(|| self.begin_receive(core, task, request, None))?
                }
            }
            TaskProgram::Reader { message } => {
                self.read_ahead(core, task, message);
                self.begin_receive(core, task, message, None)?
            }
            TaskProgram::Writer { message } => self.begin_write(core, task, message)?,
        };
        let wake = self.cost_of_wake(core, task);
        let this = &mut self.tasks[task];
        this.woken_by = None;
        this.item = item;
        Some((cost + wake, user))
    }

    /// Cost of waking up a process for its next item.
    #[inline]
    pub(super) fn cost_of_wake(&self, core: usize, task: usize) -> Time {
        let this = &self.tasks[task];
        let costs = &self.hosts[this.host].costs;
        match this.woken_by {
            Some(by) if by as usize == core => costs.wake,
            Some(_) => costs.wake + costs.wake_remote,
            None => 0,
        }
    }

    /// Whether a process has nothing to send before its schedule says so; its timer wakes it then.
    pub(super) fn is_early(&mut self, task: usize) -> bool {
        let this = &self.tasks[task];
        let Some(at) = this.schedule.map(|schedule| schedule.next()) else {
            return false;
        };
        if at <= self.now {
            return false;
        }
        let slot = this.slot.expect("a process with a schedule has a timer");
        self.agenda.set_due_time(slot, at);
        true
    }

    /// A process away from the core that takes its packets works with a cold cache.
    #[inline]
    pub(super) fn cross_cost(&self, core: usize, end: u32) -> Time {
        let socket = &self.ends[end as usize];
        if self.queues[socket.queue as usize].core == core {
            0
        } else {
            self.hosts[socket.host as usize].costs.cross_core
        }
    }

    /// A message sent away from the interrupts' core costs that core more, with the next work it does.
    #[inline]
    fn charge_remote_send(&mut self, core: usize, task: usize, item: WorkItem) {
        if self.hosts[self.cores[core].host].costs.tx_remote > 0 {
            self.charge_remote_send_at_all(core, task, item);
        }
    }

    fn charge_remote_send_at_all(&mut self, core: usize, task: usize, item: WorkItem) {
        // A message that is received whole is answered with the same item, unless the answer has its own time.
        let answers = match self.tasks[task].program {
            TaskProgram::Client { .. } => self.tasks[task].schedule.is_none(),
            TaskProgram::Server { think, .. } => think.mean == 0,
            _ => false,
        };
        let end = match item {
            WorkItem::Start { end, .. }
            | WorkItem::Answer { end }
            | WorkItem::Write { end, .. } => end,
            WorkItem::Receive { end, completes: true, .. } if answers => end,
            _ => return,
        };
        let socket = &self.ends[end as usize];
        let cost = self.hosts[socket.host as usize].costs.tx_remote;
        let irq_core = self.queues[socket.queue as usize].core;
        if cost > 0 && irq_core != core {
            self.cores[irq_core].softirq_debt += cost;
        }
    }

    /// An item is done: its effects, and what they cost on top.
    pub(super) fn finish_item(&mut self, core: usize, task: usize, item: WorkItem) -> Time {
        self.charge_remote_send(core, task, item);
        match item {
            WorkItem::Nothing | WorkItem::Kernel(_) => 0,
            WorkItem::Spin(work) => self.finish_spin(core, work),
            WorkItem::Emit => {
                self.emit_datagrams(task);
                0
            }
            WorkItem::Drain { end, count } => {
                self.finish_drain(core, task, end as usize, count);
                0
            }
            WorkItem::Start { end, due } => self.finish_request(core, task, end as usize, due),
            WorkItem::Connect { end } => self.finish_connect(task, end as usize),
            WorkItem::Receive { end, bytes, completes } => {
                self.finish_receive(core, task, end as usize, bytes, completes)
            }
            WorkItem::Answer { end } => self.finish_answer(core, task, end as usize),
            WorkItem::Write { end, bytes } => self.finish_write(task, end as usize, bytes),
        }
    }

    /// Work found: busy polling goes on for its time from here.
    pub(super) fn keep_spinning(&mut self, task: usize, end: usize, now: Time) {
        let this = &mut self.tasks[task];
        let busy_poll = self.hosts[this.host].stack.busy_poll;
        if busy_poll > Nanos::ZERO {
            this.spin_until = now + busy_poll.as_ns();
            this.spin_queue = self.ends[end].queue as usize;
        }
    }

    /// The next ready socket, then this one again if more waits: as an epoll loop goes round.
    pub(super) fn next_ready(&mut self, core: usize, task: usize, end: usize) {
        self.tasks[task].ready.pop();
        let socket = &mut self.ends[end];
        socket.is_ready = false;
        if socket.owed > 0 || socket.readable_bytes() > 0 {
            self.make_ready(core, end);
        }
    }
}

#[inline]
pub(super) fn copy_cost(per_kib: Time, bytes: u32) -> Time {
    per_kib * u64::from(bytes) / 1_024
}
