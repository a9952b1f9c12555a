//! Which process runs where: whose turn it is on a core, and the core for one that wakes up.

use std::ops::Range;

use super::deliver::STEAL;
use super::{HostState, World};
use crate::agenda::{NEVER, Time};
use crate::casts::id;
use crate::machine::WakePlacement;
use crate::task::TaskState;

impl World {
    /// The process to run on `core`: the one that is there, unless one that waits has had much less.
    #[inline]
    pub(super) fn next_task(&mut self, core: usize) -> Option<usize> {
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
            self.tasks[task as usize].state = TaskState::Waiting;
            let is_bound = self.tasks[task as usize].bound.is_some();
            let queue = if is_bound { &mut this.run_queue } else { &mut *shared };
            queue.push((task, now));
        }
        let (task, _) = if is_here { this.run_queue.pop() } else { shared.pop() }?;
        this.task = Some(task);
        let task = task as usize;
        self.tasks[task].state = TaskState::Running;
        self.tasks[task].last_core = core;
        Some(task)
    }

    /// Makes a sleeping process runnable; `near` is the core that woke it.
    pub(super) fn wake_task(&mut self, task: usize, near: usize) {
        if self.tasks[task].state != TaskState::Asleep {
            return;
        }
        if let Some(core) = self.tasks[task].holds {
            if self.cores[core].reserved_until <= self.now {
                self.tasks[task].state = TaskState::Running;
                return;
            }
            self.break_hold(core);
        }
        self.tasks[task].state = TaskState::Waiting;
        self.tasks[task].woken_by = Some(id(near));
        let entry = (id(task), self.now);
        let Some(core) = self.tasks[task].bound.or_else(|| self.select_core(task, near)) else {
            return self.wait_for_any_core(task);
        };
        self.break_hold(core);
        if let Some(current) = self.cores[core].task {
            // A sleeper is ahead of who ran meanwhile by one slice, not by all that it missed.
            let slice = self.hosts[self.tasks[task].host].time_slice;
            let floor = self.tasks[current as usize].runtime.saturating_sub(slice);
            self.tasks[task].runtime = self.tasks[task].runtime.max(floor);
        }
        self.cores[core].run_queue.push(entry);
        self.kick_core(core);
    }

    /// A process waits for the first core that another leaves, or for an idle one's next look.
    fn wait_for_any_core(&mut self, task: usize) {
        let host = self.tasks[task].host;
        let this = &mut self.hosts[host];
        this.run_queue.push((id(task), self.now));
        if this.steal_after > 0 {
            this.timers.push(self.now + this.steal_after, id(task) | STEAL);
            self.update_timers(host);
        }
    }

    /// A process has waited long enough for its own core: an idle one takes it, if there is one and nobody has.
    pub(super) fn steal_task(&mut self, task: usize) {
        let host = &self.hosts[self.tasks[task].host];
        let since = self.now - host.steal_after;
        let core = host_cores(host).find(|core| self.is_free(*core));
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
        self.kick_core(core);
    }

    /// Whether a core has no process.
    fn is_free(&self, core: usize) -> bool {
        let core = &self.cores[core];
        let is_empty = core.task.is_none() || core.reserved_until > self.now;
        is_empty && core.run_queue.is_empty()
    }

    /// A core without a process for one that wakes up.
    fn select_core(&self, task: usize, near: usize) -> Option<usize> {
        let host = &self.hosts[self.tasks[task].host];
        let last = self.tasks[task].last_core;
        let first = match host.placement {
            WakePlacement::InterruptCoreFirst => near,
            WakePlacement::LastCoreFirst => last,
        };
        if self.is_free(first) {
            Some(first)
        } else if self.is_free(last) {
            Some(last)
        } else if host.steal_after > 0 {
            None
        } else {
            host_cores(host).find(|core| self.is_free(*core))
        }
    }
}

fn host_cores(host: &HostState) -> Range<usize> {
    host.first_core..host.first_core + host.cores
}
