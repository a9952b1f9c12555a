//! Cores: interrupts stop soft interrupts, those stop processes, and processes take turns.

use latput_units::SeededRng;

use super::World;
use crate::agenda::{NEVER, Time};
use crate::core::{Irq, PollSource, PriorityLevel, SoftirqWork};
use crate::machine::DriverMode;
use crate::task::{TaskProgram, TaskState, WorkItem};

impl World {
    /// The item that ran on `core` is done: the next one starts.
    pub(super) fn core_due(&mut self, core: usize) {
        let now = self.now;
        if self.log.is_some() {
            self.log_slice(core);
        }
        match self.cores[core].finish_item(now) {
            PriorityLevel::Hardirq => self.hardirq_done(core),
            PriorityLevel::Softirq => self.softirq_done(core),
            PriorityLevel::Process => self.process_done(core),
            PriorityLevel::Idle | PriorityLevel::Switching => {
                unreachable!("an idle core is never due")
            }
        }
        let ends = self.dispatch_work(core);
        self.agenda.set_due_time(self.core_slots + core, ends);
    }

    /// A hardware interrupt for `core`.
    #[inline]
    pub(super) fn raise_interrupt(&mut self, core: usize, irq: Irq) {
        self.break_reservation(core);
        let this = &mut self.cores[core];
        if this.level == PriorityLevel::Idle && this.irqs.is_empty() {
            this.awake_at = self.now + self.hosts[this.host].idle_exit;
            if self.log.is_some() {
                self.log_slice(core);
            }
            let ends = self.start_irq(core, irq);
            return self.agenda.set_due_time(self.core_slots + core, ends);
        }
        this.irqs.push(irq);
        match this.level {
            PriorityLevel::Idle | PriorityLevel::Softirq => self.switch_work(core),
            PriorityLevel::Process => {
                self.switch_work(core);
                let penalty = self.hosts[self.cores[core].host].costs.preempted;
                if let Some(left) = &mut self.cores[core].process_left {
                    *left += penalty;
                }
            }
            PriorityLevel::Hardirq | PriorityLevel::Switching => {}
        }
    }

    /// Soft interrupt work that nobody planned: `cost` more for `core`.
    pub(super) fn charge_softirq(&mut self, core: usize, cost: Time) {
        self.break_reservation(core);
        self.cores[core].softirq_debt += cost;
        if matches!(self.cores[core].level, PriorityLevel::Idle | PriorityLevel::Process) {
            self.switch_work(core);
        }
    }

    /// Stops what runs and starts what should.
    fn switch_work(&mut self, core: usize) {
        let now = self.now;
        if self.cores[core].level == PriorityLevel::Idle {
            let exit = self.hosts[self.cores[core].host].idle_exit;
            self.cores[core].awake_at = now + exit;
        }
        if self.log.is_some() {
            self.log_slice(core);
        }
        self.cores[core].preempt(now);
        let ends = self.dispatch_work(core);
        self.agenda.set_due_time(self.core_slots + core, ends);
    }

    /// Keeps what a core did until now for the trace.
    #[cold]
    fn log_slice(&mut self, core: usize) {
        let (level, since, task) = self.cores[core].running_item();
        if let Some(log) = &mut self.log {
            log.record_slice(core, (since.min(self.now), self.now), level, task);
        }
    }

    /// Starts an idle core that now has something to do.
    pub(super) fn kick_core(&mut self, core: usize) {
        self.break_reservation(core);
        if self.cores[core].level == PriorityLevel::Idle {
            self.switch_work(core);
        }
    }

    /// Something came before the process that holds a reservation: it sleeps on its own timer instead,
    /// which is what it does in truth; the reservation only saves the event.
    #[inline]
    fn break_reservation(&mut self, core: usize) {
        let this = &self.cores[core];
        if this.level == PriorityLevel::Process && this.reserved_until > self.now {
            self.end_reservation(core);
        }
    }

    #[inline(never)]
    fn end_reservation(&mut self, core: usize) {
        let this = &mut self.cores[core];
        let until = std::mem::take(&mut this.reserved_until);
        this.level = PriorityLevel::Idle;
        this.user_left = 0;
        let task = this.task.take().expect("a reservation belongs to a process") as usize;
        self.tasks[task].state = TaskState::Asleep;
        self.tasks[task].item = WorkItem::Nothing;
        self.tasks[task].holds = None;
        let slot = self.tasks[task].slot.expect("only a process with a timer reserves a core");
        self.agenda.set_due_time(slot, until);
    }

    /// A client that holds `core` sleeps on its own timer from now on, if its time has not come.
    pub(super) fn break_hold(&mut self, core: usize) {
        let this = &self.cores[core];
        if this.reserved_until > self.now
            && this.task.is_some_and(|task| self.tasks[task as usize].holds.is_some())
        {
            self.break_reservation(core);
            self.agenda.set_due_time(self.core_slots + core, NEVER);
        }
    }

    /// Whether a process may hold `core` while it sleeps: nobody else waits, and nobody will wait while it does.
    pub(super) fn reserve_core(&mut self, core: usize, until: Time) -> bool {
        let this = &mut self.cores[core];
        let host = &self.hosts[this.host];
        if !this.run_queue.is_empty() || !host.run_queue.is_empty() || host.steal_after > 0 {
            return false;
        }
        this.reserved_until = until;
        this.awake_at = until + host.idle_exit;
        true
    }

    /// Starts an item; gives when it ends.
    #[inline]
    fn start(&mut self, core: usize, level: PriorityLevel, cost: Time) -> Time {
        let this = &mut self.cores[core];
        let cost =
            if this.jitter == 0 { cost } else { apply_jitter(&mut self.rng, cost, this.jitter) };
        this.start(level, self.now, cost)
    }

    /// Starts the most urgent work of a core on which nothing runs; gives when it ends, or [`NEVER`] if there is none.
    fn dispatch_work(&mut self, core: usize) -> Time {
        let this = &self.cores[core];
        if !this.irqs.is_empty() || this.softirq_left.is_some() {
            return self.dispatch_interrupt(core);
        }
        let has_softirq = !this.polls.is_empty() && !this.ksoftirqd;
        if (has_softirq || this.softirq_debt > 0)
            && let Some(ends) = self.start_softirq(core)
        {
            return ends;
        }
        let this = &mut self.cores[core];
        this.softirq_since = None;
        if let Some(left) = this.process_left.take() {
            return this.start(PriorityLevel::Process, self.now, left);
        }
        while let Some(task) = self.next_task(core) {
            if let Some((cost, user)) = self.begin_item(core, task) {
                let this = &mut self.cores[core];
                this.in_kernel_poll = this.ksoftirqd && task == core;
                this.user_left = user;
                this.item_cost = cost;
                return self.start(core, PriorityLevel::Process, cost);
            }
            self.tasks[task].state = TaskState::Asleep;
            self.cores[core].task = None;
        }
        // A process that went to sleep may have left its queue to the soft interrupt.
        let this = &mut self.cores[core];
        if !this.polls.is_empty() && !this.ksoftirqd {
            return self.dispatch_work(core);
        }
        this.level = PriorityLevel::Idle;
        NEVER
    }

    /// The same of interrupts that wait, and of a soft interrupt that one stopped.
    #[inline(never)]
    fn dispatch_interrupt(&mut self, core: usize) -> Time {
        let this = &mut self.cores[core];
        if let Some(irq) = this.irqs.pop() {
            return self.start_irq(core, irq);
        }
        let left = this.softirq_left.take().expect("the caller saw that one was stopped");
        this.start(PriorityLevel::Softirq, self.now, left)
    }

    fn start_irq(&mut self, core: usize, irq: Irq) -> Time {
        let this = &mut self.cores[core];
        let costs = &self.hosts[this.host].costs;
        let cost = match irq {
            Irq::Vector(_) => costs.interrupt,
            Irq::Deferral(_) | Irq::PollTick => costs.timer,
            Irq::Backlog => costs.ipi,
            Irq::None => 0,
        };
        this.irq = irq;
        self.start(core, PriorityLevel::Hardirq, cost)
    }

    fn hardirq_done(&mut self, core: usize) {
        match self.cores[core].irq {
            Irq::Vector(queue) => self.vector_handled(queue as usize),
            Irq::Deferral(queue) => self.schedule_poll(queue as usize),
            Irq::Backlog => self.cores[core].polls.push(PollSource::Backlog),
            Irq::PollTick => self.start_round(core),
            Irq::None => {}
        }
    }

    /// Starts soft interrupt work, if there is any and the kernel thread does not do it; gives when it ends.
    fn start_softirq(&mut self, core: usize) -> Option<Time> {
        let this = &mut self.cores[core];
        let debt = std::mem::take(&mut this.softirq_debt);
        let next = if this.ksoftirqd { None } else { this.polls.front().copied() };
        let cost = match next {
            Some(poll) => {
                if this.softirq_since.is_none() {
                    this.softirq_since = Some(self.now);
                    this.softirq_packets = 0;
                    this.softirq_runs += 1;
                }
                self.plan_poll(core, poll)
            }
            None if debt > 0 => {
                this.work = SoftirqWork::Nothing;
                0
            }
            None => return None,
        };
        Some(self.start(core, PriorityLevel::Softirq, cost + debt))
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
        if host.driver != DriverMode::Napi {
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
            self.wake_task(core, core);
        }
    }

    fn process_done(&mut self, core: usize) {
        let Self { cores, tasks, .. } = self;
        let this = &mut cores[core];
        let task = this.task.expect("an item of a process has a process") as usize;
        let process = &mut tasks[task];
        process.runtime += this.item_cost;
        process.cpu += std::mem::take(&mut this.process_time);
        let item = std::mem::take(&mut process.item);
        let cost = if let WorkItem::Kernel(work) = item {
            self.finish_kernel_item(core, task, work)
        } else {
            self.finish_item(core, task, item)
        };
        self.cores[core].process_debt += cost;
    }

    /// Poll work of a kernel thread is done.
    fn finish_kernel_item(&mut self, core: usize, task: usize, work: SoftirqWork) -> Time {
        let cost = self.finish_work(core, work);
        if self.tasks[task].program == TaskProgram::Ksoftirqd && self.cores[core].polls.is_empty() {
            self.cores[core].ksoftirqd = false;
        }
        cost
    }
}

/// A cost with its random variation, of `jitter` parts in 65536.
fn apply_jitter(rng: &mut SeededRng, cost: Time, jitter: u64) -> Time {
    let spread = (cost * jitter) >> 16;
    cost - spread + ((2 * spread * (rng.next_u64() >> 48)) >> 16)
}
