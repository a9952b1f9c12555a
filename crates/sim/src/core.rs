//! One CPU core: its work, interrupted work, and the use of its time.
//!
//! Hardware interrupts preempt soft interrupts, which preempt processes. Each level has one work
//! item. A higher level stops it; its rest continues later.

use crate::agenda::Time;
use crate::fifo::Fifo;

/// The priority level of work on a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PriorityLevel {
    Idle,
    Process,
    Softirq,
    Hardirq,
    /// Between two items. New work is only queued.
    Switching,
}

/// A hardware interrupt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Irq {
    #[default]
    None,
    /// The interrupt of a NIC queue's vector.
    Vector(u32),
    /// The deferral timer of a NIC queue.
    Deferral(u32),
    /// Another core put packets into this core's backlog.
    Backlog,
    /// The clock tick that polls devices.
    PollTick,
}

/// A source that a soft interrupt polls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PollSource {
    /// This core's backlog.
    #[default]
    Backlog,
    /// A NIC queue.
    Queue(u32),
}

/// The current item of soft interrupt work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SoftirqWork {
    /// Consumes time only.
    #[default]
    Nothing,
    /// `rx` packets and `tx` completions of a queue.
    Queue { queue: u32, rx: u32, tx: u32 },
    /// Packets of this core's backlog.
    Backlog { rx: u32 },
}

/// Time by use, in nanoseconds. The rest of wall time is idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuUsage {
    pub(crate) user: u64,
    pub(crate) system: u64,
    pub(crate) irq: u64,
    pub(crate) softirq: u64,
}

impl CpuUsage {
    pub(crate) const fn total(&self) -> u64 {
        self.user + self.system + self.irq + self.softirq
    }
}

/// A core.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) host: usize,
    /// Agenda slots of everything else that acts on its host, if they are few enough to be searched
    /// each time.
    pub(crate) others: Box<[u32]>,
    pub(crate) may_look: bool,
    /// Random variation of its host's costs, in 1/65536.
    pub(crate) jitter: u64,
    pub(crate) level: PriorityLevel,
    /// Time up to which the running item is charged, and its end.
    since: Time,
    ends: Time,
    /// Time before which an idle core starts nothing.
    pub(crate) awake_at: Time,
    /// Start of the reserved process item: its process sleeps until a known time and no other needs
    /// the core. Any other work ends the reservation.
    pub(crate) reserved_until: Time,
    /// Remaining time of interrupted items.
    pub(crate) softirq_left: Option<Time>,
    pub(crate) process_left: Option<Time>,
    /// Part of the process item that is user code, which runs first.
    pub(crate) user_left: Time,
    pub(crate) irqs: Fifo<Irq>,
    pub(crate) irq: Irq,
    pub(crate) polls: Fifo<PollSource>,
    pub(crate) work: SoftirqWork,
    /// Start of the current softirq run, for its limits.
    pub(crate) softirq_since: Option<Time>,
    pub(crate) softirq_packets: u32,
    /// Number of softirq runs.
    pub(crate) softirq_runs: u64,
    /// Whether soft interrupts are left to the kernel thread.
    pub(crate) ksoftirqd: bool,
    /// The process on this core.
    pub(crate) task: Option<u32>,
    /// Whether the item at the process level is soft interrupt work (kernel threads).
    pub(crate) in_kernel_poll: bool,
    /// Processes that wait for this core, and since when.
    pub(crate) run_queue: Fifo<(u32, Time)>,
    /// Time charged for the process item.
    pub(crate) item_cost: Time,
    /// Work of the last item beyond its charge, to be charged next.
    pub(crate) softirq_debt: Time,
    pub(crate) process_debt: Time,
    pub(crate) spent: CpuUsage,
    /// Time at the process level not yet added to a process.
    pub(crate) process_time: Time,
}

impl Core {
    pub(crate) fn new(host: usize, jitter: u64) -> Self {
        Self {
            host,
            others: Box::default(),
            may_look: false,
            jitter,
            level: PriorityLevel::Idle,
            since: 0,
            ends: 0,
            awake_at: 0,
            reserved_until: 0,
            softirq_left: None,
            process_left: None,
            user_left: 0,
            irqs: Fifo::with_capacity(16),
            irq: Irq::None,
            polls: Fifo::with_capacity(16),
            work: SoftirqWork::Nothing,
            softirq_since: None,
            softirq_packets: 0,
            softirq_runs: 0,
            ksoftirqd: false,
            task: None,
            in_kernel_poll: false,
            run_queue: Fifo::with_capacity(16),
            item_cost: 0,
            softirq_debt: 0,
            process_debt: 0,
            spent: CpuUsage::default(),
            process_time: 0,
        }
    }

    /// Starts an item. Returns its end.
    #[inline]
    pub(crate) fn start(&mut self, level: PriorityLevel, now: Time, cost: Time) -> Time {
        self.level = level;
        self.since = now.max(self.awake_at);
        self.ends = self.since + cost;
        self.ends
    }

    /// Stops the running item and keeps its rest.
    #[inline]
    pub(crate) fn preempt(&mut self, now: Time) {
        let left = self.ends.saturating_sub(now.max(self.since));
        self.charge_item(now);
        match self.level {
            PriorityLevel::Process => self.process_left = Some(left),
            PriorityLevel::Softirq => self.softirq_left = Some(left),
            PriorityLevel::Idle | PriorityLevel::Hardirq | PriorityLevel::Switching => {}
        }
        self.level = PriorityLevel::Switching;
    }

    /// Ends the running item. Charges it and returns its level.
    #[inline]
    pub(crate) fn finish_item(&mut self, now: Time) -> PriorityLevel {
        let elapsed = self.take_elapsed(now);
        let level = std::mem::replace(&mut self.level, PriorityLevel::Switching);
        self.charge_to(level, elapsed);
        level
    }

    /// The running level, the time up to which it is charged, and the process.
    pub(crate) fn running_item(&self) -> (PriorityLevel, Time, Option<u32>) {
        (self.level, self.since, self.task)
    }

    /// Charges the running item up to `now`.
    #[inline]
    pub(crate) fn charge_item(&mut self, now: Time) {
        let elapsed = self.take_elapsed(now);
        self.charge_to(self.level, elapsed);
    }

    /// Charges the running item. Returns the time since its last charge.
    #[inline]
    fn take_elapsed(&mut self, now: Time) -> Time {
        let elapsed = now.saturating_sub(self.since);
        self.since += elapsed;
        elapsed
    }

    #[inline]
    fn charge_to(&mut self, level: PriorityLevel, elapsed: Time) {
        match level {
            PriorityLevel::Hardirq => self.spent.irq += elapsed,
            PriorityLevel::Softirq => self.spent.softirq += elapsed,
            PriorityLevel::Process => self.charge_process(elapsed),
            PriorityLevel::Idle | PriorityLevel::Switching => {}
        }
    }

    fn charge_process(&mut self, elapsed: Time) {
        self.process_time += elapsed;
        if self.in_kernel_poll {
            self.spent.softirq += elapsed;
            return;
        }
        let user = elapsed.min(self.user_left);
        self.user_left -= user;
        self.spent.user += user;
        self.spent.system += elapsed - user;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupted_item_is_charged_once() {
        let mut core = Core::new(0, 0);
        core.user_left = 30;
        assert_eq!(core.start(PriorityLevel::Process, 100, 100), 200);
        core.preempt(140);
        assert_eq!(core.process_left, Some(60));
        core.start(PriorityLevel::Hardirq, 140, 10);
        assert_eq!(core.finish_item(150), PriorityLevel::Hardirq);
        core.start(PriorityLevel::Process, 150, 60);
        core.finish_item(210);
        assert_eq!(core.spent, CpuUsage { user: 30, system: 70, irq: 10, softirq: 0 });
    }

    #[test]
    fn leaving_idle_is_not_busy_time() {
        let mut core = Core::new(0, 0);
        core.awake_at = 50;
        assert_eq!(core.start(PriorityLevel::Softirq, 10, 5), 55);
        core.preempt(20);
        assert_eq!(core.softirq_left, Some(5));
        assert_eq!(core.spent.total(), 0);
    }
}
