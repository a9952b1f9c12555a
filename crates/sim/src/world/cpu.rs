//! Cores: interrupts stop soft interrupts, those stop processes, and processes take turns.

use std::ops::Range;

use super::deliver::STEAL;
use super::{HostState, World};
use crate::agenda::{NEVER, Time};
use crate::core::{Irq, Level, Poll, Work};
use crate::machine::{Driver, Placement};
use crate::narrow::id;
use crate::task::{Item, Program, State};

impl World {
    /// The item that ran on `core` is done.
    #[inline]
    pub(super) fn core_due(&mut self, core: usize) {
        let now = self.now;
        if self.log.is_some() {
            self.log_slice(core);
        }
        match self.cores[core].finish(now) {
            Level::Hardirq => self.hardirq_done(core),
            Level::Softirq => self.softirq_done(core),
            Level::Process => self.process_done(core),
            Level::Idle | Level::Switching => unreachable!("an idle core is never due"),
        }
        self.dispatch(core);
    }

    /// A hardware interrupt for `core`.
    #[inline]
    pub(super) fn interrupt(&mut self, core: usize, irq: Irq) {
        self.break_reservation(core);
        let this = &mut self.cores[core];
        if this.level == Level::Idle && this.irqs.is_empty() {
            this.awake_at = self.now + self.hosts[this.host].idle_exit;
            if self.log.is_some() {
                self.log_slice(core);
            }
            return self.start_irq(core, irq);
        }
        this.irqs.push(irq);
        match this.level {
            Level::Idle | Level::Softirq => self.switch(core),
            Level::Process => {
                self.switch(core);
                let penalty = self.hosts[self.cores[core].host].costs.preempted;
                if let Some(left) = &mut self.cores[core].process_left {
                    *left += penalty;
                }
            }
            Level::Hardirq | Level::Switching => {}
        }
    }

    /// Soft interrupt work that nobody planned: `cost` more for `core`.
    pub(super) fn charge_softirq(&mut self, core: usize, cost: Time) {
        self.break_reservation(core);
        self.cores[core].softirq_debt += cost;
        if matches!(self.cores[core].level, Level::Idle | Level::Process) {
            self.switch(core);
        }
    }

    /// Stops what runs and starts what should.
    fn switch(&mut self, core: usize) {
        let now = self.now;
        if self.cores[core].level == Level::Idle {
            let exit = self.hosts[self.cores[core].host].idle_exit;
            self.cores[core].awake_at = now + exit;
        }
        if self.log.is_some() {
            self.log_slice(core);
        }
        self.cores[core].preempt(now);
        self.dispatch(core);
    }

    /// Keeps what a core did until now for the trace.
    #[cold]
    fn log_slice(&mut self, core: usize) {
        let (level, since, task) = self.cores[core].running();
        if let Some(log) = &mut self.log {
            log.slice(core, (since.min(self.now), self.now), level, task);
        }
    }

    /// Starts an idle core that now has something to do.
    pub(super) fn kick(&mut self, core: usize) {
        self.break_reservation(core);
        if self.cores[core].level == Level::Idle {
            self.switch(core);
        }
    }

    /// Something came before the process that holds a reservation: it sleeps on its own timer instead,
    /// which is what it does in truth; the reservation only saves the event.
    #[inline]
    fn break_reservation(&mut self, core: usize) {
        let this = &mut self.cores[core];
        let until = this.reserved_until;
        if until <= self.now || this.level != Level::Process {
            return;
        }
        this.reserved_until = 0;
        this.level = Level::Idle;
        this.user_left = 0;
        let task = this.task.take().expect("a reservation belongs to a process") as usize;
        self.tasks[task].state = State::Asleep;
        self.tasks[task].item = Item::Nothing;
        self.tasks[task].holds = None;
        let slot = self.tasks[task].slot.expect("only a process with a timer reserves a core");
        self.agenda.set(slot, until);
    }

    /// A client that holds `core` sleeps on its own timer from now on, if its time has not come.
    pub(super) fn break_hold(&mut self, core: usize) {
        let this = &self.cores[core];
        if this.reserved_until > self.now
            && this.task.is_some_and(|task| self.tasks[task as usize].holds.is_some())
        {
            self.break_reservation(core);
            self.agenda.set(self.core_slots + core, NEVER);
        }
    }

    /// Whether a process may hold `core` while it sleeps: nobody else waits, and nobody will wait while it does.
    pub(super) fn reserve(&mut self, core: usize, until: Time) -> bool {
        let this = &mut self.cores[core];
        let host = &self.hosts[this.host];
        if !this.run_queue.is_empty() || !host.run_queue.is_empty() || host.steal_after > 0 {
            return false;
        }
        this.reserved_until = until;
        this.awake_at = until + host.idle_exit;
        true
    }

    #[inline]
    fn start(&mut self, core: usize, level: Level, cost: Time) {
        let jitter = self.cores[core].jitter;
        let cost = self.jittered(cost, jitter);
        self.resume(core, level, cost);
    }

    #[inline]
    fn resume(&mut self, core: usize, level: Level, cost: Time) {
        let ends = self.cores[core].start(level, self.now, cost);
        self.agenda.set(self.core_slots + core, ends);
    }

    /// Starts the most urgent work of a core on which nothing runs.
    fn dispatch(&mut self, core: usize) {
        let this = &mut self.cores[core];
        if let Some(irq) = this.irqs.pop() {
            return self.start_irq(core, irq);
        }
        if let Some(left) = this.softirq_left.take() {
            return self.resume(core, Level::Softirq, left);
        }
        let has_softirq = !this.polls.is_empty() && !this.ksoftirqd;
        if (has_softirq || this.softirq_debt > 0) && self.start_softirq(core) {
            return;
        }
        let this = &mut self.cores[core];
        this.softirq_since = None;
        if let Some(left) = this.process_left.take() {
            return self.resume(core, Level::Process, left);
        }
        while let Some(task) = self.next_task(core) {
            if let Some((cost, user)) = self.begin_item(core, task) {
                let this = &mut self.cores[core];
                this.in_kernel_poll = this.ksoftirqd && task == core;
                this.user_left = user;
                this.item_cost = cost;
                return self.start(core, Level::Process, cost);
            }
            self.tasks[task].state = State::Asleep;
            self.cores[core].task = None;
        }
        // A process that went to sleep may have left its queue to the soft interrupt.
        let this = &mut self.cores[core];
        if !this.polls.is_empty() && !this.ksoftirqd {
            return self.dispatch(core);
        }
        this.level = Level::Idle;
        self.agenda.set(self.core_slots + core, NEVER);
    }

    fn start_irq(&mut self, core: usize, irq: Irq) {
        let costs = &self.hosts[self.cores[core].host].costs;
        let cost = match irq {
            Irq::Vector(_) => costs.interrupt,
            Irq::Deferral(_) | Irq::PollTick => costs.timer,
            Irq::Backlog => costs.ipi,
            Irq::None => 0,
        };
        self.cores[core].irq = irq;
        self.start(core, Level::Hardirq, cost);
    }

    fn hardirq_done(&mut self, core: usize) {
        match self.cores[core].irq {
            Irq::Vector(queue) => self.vector_handled(queue as usize),
            Irq::Deferral(queue) => self.schedule_poll(queue as usize),
            Irq::Backlog => self.cores[core].polls.push(Poll::Backlog),
            Irq::PollTick => self.start_round(core),
            Irq::None => {}
        }
    }

    /// Starts soft interrupt work, if there is any and the kernel thread does not do it.
    fn start_softirq(&mut self, core: usize) -> bool {
        let this = &mut self.cores[core];
        let debt = std::mem::take(&mut this.softirq_debt);
        let next = if this.ksoftirqd { None } else { this.polls.front().copied() };
        let (work, cost) = match next {
            Some(poll) => {
                if this.softirq_since.is_none() {
                    this.softirq_since = Some(self.now);
                    this.softirq_packets = 0;
                    this.softirq_runs += 1;
                }
                self.plan_poll(core, poll)
            }
            None if debt > 0 => (Work::Nothing, 0),
            None => return false,
        };
        self.cores[core].work = work;
        self.start(core, Level::Softirq, cost + debt);
        true
    }

    fn softirq_done(&mut self, core: usize) {
        let work = self.cores[core].work;
        let cost = self.finish_work(core, work);
        self.cores[core].softirq_debt += cost;
        if !self.cores[core].polls.is_empty() {
            self.hand_to_ksoftirqd_if_long(core);
        }
    }

    fn hand_to_ksoftirqd_if_long(&mut self, core: usize) {
        let host = &self.hosts[self.cores[core].host];
        if host.driver != Driver::Napi {
            return;
        }
        let stack = &host.stack;
        let this = &mut self.cores[core];
        let since = this.softirq_since.unwrap_or(self.now);
        let too_long = self.now - since > stack.softirq_time.as_ns()
            || this.softirq_packets >= stack.softirq_packets;
        if too_long && !this.ksoftirqd {
            this.ksoftirqd = true;
            // The kernel thread of core n is task n.
            self.wake(core, core);
        }
    }

    /// The process to run on `core`: the one that is there, unless one that waits has had much less.
    #[inline]
    fn next_task(&mut self, core: usize) -> Option<usize> {
        let this = &self.cores[core];
        if this.run_queue.is_empty() && self.hosts[this.host].run_queue.is_empty() {
            return this.task.map(|task| task as usize);
        }
        self.next_task_of_many(core)
    }

    fn next_task_of_many(&mut self, core: usize) -> Option<usize> {
        let now = self.now;
        let this = &mut self.cores[core];
        let host = &mut self.hosts[this.host];
        let shared = &mut host.run_queue;
        // Whoever has waited longest, here or for any core.
        let (here, any) = (this.run_queue.front().copied(), shared.front().copied());
        let is_here = here.map_or(NEVER, |entry| entry.1) <= any.map_or(NEVER, |entry| entry.1);
        let waiting = if is_here { here } else { any };
        if let Some(task) = this.task {
            let had = self.tasks[task as usize].runtime;
            let is_unfair = |(other, _): (u32, Time)| {
                self.tasks[other as usize].runtime + host.time_slice <= had
            };
            if !waiting.is_some_and(is_unfair) {
                return Some(task as usize);
            }
            self.tasks[task as usize].state = State::Waiting;
            let is_bound = self.tasks[task as usize].bound.is_some();
            let queue = if is_bound { &mut this.run_queue } else { &mut *shared };
            queue.push((task, now));
        }
        let (task, _) = if is_here { this.run_queue.pop() } else { shared.pop() }?;
        this.task = Some(task);
        let task = task as usize;
        self.tasks[task].state = State::Running;
        self.tasks[task].last_core = core;
        Some(task)
    }

    /// Makes a sleeping process runnable; `near` is the core that woke it.
    pub(super) fn wake(&mut self, task: usize, near: usize) {
        if self.tasks[task].state != State::Asleep {
            return;
        }
        if let Some(core) = self.tasks[task].holds {
            if self.cores[core].reserved_until <= self.now {
                self.tasks[task].state = State::Running;
                return;
            }
            self.break_hold(core);
        }
        self.tasks[task].state = State::Waiting;
        self.tasks[task].woken_by = Some(id(near));
        let entry = (id(task), self.now);
        let Some(core) = self.tasks[task].bound.or_else(|| self.place(task, near)) else {
            return self.wait_for_any(task);
        };
        self.break_hold(core);
        if let Some(current) = self.cores[core].task {
            // A sleeper is ahead of who ran meanwhile by one slice, not by all that it missed.
            let slice = self.hosts[self.tasks[task].host].time_slice;
            let floor = self.tasks[current as usize].runtime.saturating_sub(slice);
            self.tasks[task].runtime = self.tasks[task].runtime.max(floor);
        }
        self.cores[core].run_queue.push(entry);
        self.kick(core);
    }

    /// A process waits for the first core that another leaves, or for an idle one's next look.
    fn wait_for_any(&mut self, task: usize) {
        let host = self.tasks[task].host;
        let this = &mut self.hosts[host];
        this.run_queue.push((id(task), self.now));
        if this.steal_after > 0 {
            this.timers.push(self.now + this.steal_after, id(task) | STEAL);
            self.update_timers(host);
        }
    }

    /// A process has waited long enough for its own core: an idle one takes it, if there is one and nobody has.
    pub(super) fn steal(&mut self, task: usize) {
        let host = &self.hosts[self.tasks[task].host];
        let since = self.now - host.steal_after;
        let core = cores_of(host).find(|core| self.is_free(*core));
        let waits = host.run_queue.iter().any(|entry| *entry == (id(task), since));
        let Some(core) = core.filter(|_| waits) else {
            return;
        };
        let queue = &mut self.hosts[self.tasks[task].host].run_queue;
        for _ in 0..queue.len() {
            let entry = queue.pop().expect("it was counted");
            if entry == (id(task), since) {
                self.cores[core].run_queue.push(entry);
            } else {
                queue.push(entry);
            }
        }
        self.break_hold(core);
        self.kick(core);
    }

    /// Whether a core has no process.
    fn is_free(&self, core: usize) -> bool {
        let core = &self.cores[core];
        let is_empty = core.task.is_none() || core.reserved_until > self.now;
        is_empty && core.run_queue.is_empty()
    }

    /// A core without a process for one that wakes up.
    fn place(&self, task: usize, near: usize) -> Option<usize> {
        let host = &self.hosts[self.tasks[task].host];
        let last = self.tasks[task].last_core;
        let first = match host.placement {
            Placement::InterruptCoreFirst => near,
            Placement::LastCoreFirst => last,
        };
        if self.is_free(first) {
            Some(first)
        } else if self.is_free(last) {
            Some(last)
        } else if host.steal_after > 0 {
            None
        } else {
            cores_of(host).find(|core| self.is_free(*core))
        }
    }

    fn process_done(&mut self, core: usize) {
        let task = self.cores[core].task.expect("an item of a process has a process") as usize;
        self.tasks[task].runtime += self.cores[core].item_cost;
        self.tasks[task].cpu += std::mem::take(&mut self.cores[core].process_time);
        let item = std::mem::take(&mut self.tasks[task].item);
        let cost = if let Item::Kernel(work) = item {
            self.finish_kernel_item(core, task, work)
        } else {
            self.finish_item(core, task, item)
        };
        self.cores[core].process_debt += cost;
    }

    /// Poll work of a kernel thread is done.
    fn finish_kernel_item(&mut self, core: usize, task: usize, work: Work) -> Time {
        let cost = self.finish_work(core, work);
        if self.tasks[task].program == Program::Ksoftirqd && self.cores[core].polls.is_empty() {
            self.cores[core].ksoftirqd = false;
        }
        cost
    }
}

fn cores_of(host: &HostState) -> Range<usize> {
    host.first_core..host.first_core + host.cores
}
