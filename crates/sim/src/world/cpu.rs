//! Cores: interrupts stop soft interrupts, those stop processes, and processes take turns.

use super::World;
use crate::agenda::{NEVER, Time};
use crate::core::{Irq, Level, Poll, Work};
use crate::machine::{Driver, Placement};
use crate::task::{Item, Program, State};

impl World {
    /// The item that ran on `core` is done.
    #[inline]
    pub(super) fn core_due(&mut self, core: usize) {
        let now = self.now;
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
        self.cores[core].irqs.push(irq);
        match self.cores[core].level {
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
        self.cores[core].preempt(now);
        self.dispatch(core);
    }

    /// Starts an idle core that now has something to do.
    pub(super) fn kick(&mut self, core: usize) {
        if self.cores[core].level == Level::Idle {
            self.switch(core);
        }
    }

    #[inline]
    fn start(&mut self, core: usize, level: Level, cost: Time) {
        let jitter = self.hosts[self.cores[core].host].costs.jitter;
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
        if let Some(irq) = self.cores[core].irqs.pop() {
            return self.start_irq(core, irq);
        }
        if let Some(left) = self.cores[core].softirq_left.take() {
            return self.resume(core, Level::Softirq, left);
        }
        if self.start_softirq(core) {
            return;
        }
        self.cores[core].softirq_since = None;
        if let Some(left) = self.cores[core].process_left.take() {
            return self.resume(core, Level::Process, left);
        }
        while let Some(task) = self.next_task(core) {
            if let Some((cost, user)) = self.begin_item(core, task) {
                let in_kernel_poll = self.tasks[task].program == Program::Ksoftirqd;
                self.cores[core].in_kernel_poll = in_kernel_poll;
                self.start(core, Level::Process, cost);
                self.cores[core].user_left = user;
                return;
            }
            self.tasks[task].state = State::Asleep;
            self.cores[core].task = None;
        }
        self.cores[core].level = Level::Idle;
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
                    self.softirqs += 1;
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

    /// The process to run on `core`: the one that is there, unless its time is up and others wait.
    fn next_task(&mut self, core: usize) -> Option<usize> {
        let now = self.now;
        let host = self.cores[core].host;
        if let Some(task) = self.cores[core].task {
            let others =
                !self.cores[core].run_queue.is_empty() || !self.hosts[host].run_queue.is_empty();
            if now < self.cores[core].slice_ends || !others {
                return Some(task as usize);
            }
            self.tasks[task as usize].state = State::Waiting;
            if self.tasks[task as usize].bound.is_some() {
                self.cores[core].run_queue.push((task, now));
            } else {
                self.hosts[host].run_queue.push((task, now));
            }
        }
        // Whoever has waited longest, here or for any core.
        let here = self.cores[core].run_queue.front().map_or(NEVER, |waiting| waiting.1);
        let any = self.hosts[host].run_queue.front().map_or(NEVER, |waiting| waiting.1);
        let (task, _) = if here <= any {
            self.cores[core].run_queue.pop()
        } else {
            self.hosts[host].run_queue.pop()
        }?;
        self.cores[core].task = Some(task);
        self.cores[core].slice_ends = now + self.hosts[host].time_slice;
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
        self.tasks[task].state = State::Waiting;
        self.tasks[task].woke = true;
        let entry = (task as u32, self.now);
        match self.tasks[task].bound.or_else(|| self.place(task, near)) {
            Some(core) => {
                self.cores[core].run_queue.push(entry);
                self.kick(core);
            }
            None => self.hosts[self.tasks[task].host].run_queue.push(entry),
        }
    }

    /// A core without a process for one that wakes up.
    fn place(&self, task: usize, near: usize) -> Option<usize> {
        let host = &self.hosts[self.tasks[task].host];
        let is_free = |core: &usize| {
            let core = &self.cores[*core];
            core.task.is_none() && core.run_queue.is_empty()
        };
        let last = self.tasks[task].last_core;
        let preferred = match host.placement {
            Placement::InterruptCoreFirst => [near, last],
            Placement::LastCoreFirst => [last, last],
        };
        let all = host.first_core..host.first_core + host.cores;
        preferred.into_iter().chain(all).find(is_free)
    }

    fn process_done(&mut self, core: usize) {
        let task = self.cores[core].task.expect("an item of a process has a process") as usize;
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
