//! Polling a queue: NAPI with its weight, deferral and policies; drivers without NAPI; FreeBSD's rounds.

use latput_policy::{Decision, polling};
use latput_units::Nanos;

use super::{HostState, World};
use crate::agenda::{NEVER, Time};
use crate::casts::id;
use crate::core::{Irq, PollSource, SoftirqWork};
use crate::frame::{Frame, FrameKind};
use crate::machine::DriverMode;

/// Packets of a NIC's ring that GRO sees together.
const GRO_UNIT: u32 = 64;
/// Most sockets that lie in the caches, as a rule.
const FEW_SOCKETS: usize = 64;
/// GRO merges up to this many payload bytes.
const GRO_BYTES: u32 = 65_160;

/// One round of FreeBSD's polling loop.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PollingRound {
    began: Time,
    calls_left: u32,
}

impl World {
    /// Puts a queue on its core's list of polls, or wakes its poll thread.
    pub(super) fn schedule_poll(&mut self, queue: usize) {
        let ring = &mut self.queues[queue];
        if std::mem::replace(&mut ring.scheduled, true) {
            return;
        }
        match ring.poll_thread {
            None => self.cores[ring.core].polls.push(PollSource::Queue(id(queue))),
            Some(thread) => {
                let core = ring.core;
                self.wake_task(thread, core);
            }
        }
    }

    /// A vector's interrupt was handled.
    pub(super) fn vector_handled(&mut self, queue: usize) {
        match self.queues[queue].driver {
            DriverMode::Napi => self.schedule_poll(queue),
            DriverMode::Interrupt => self.empty_into_backlog(queue),
            DriverMode::Polling => {}
        }
    }

    /// Before NAPI: the interrupt handler moves everything to the core's backlog.
    fn empty_into_backlog(&mut self, queue: usize) {
        self.settle_queue(queue, self.now);
        let core = self.queues[queue].core;
        let done = self.queues[queue].done;
        if done > 0 {
            self.reap_completions(queue, done);
        }
        for _ in 0..self.queues[queue].visible {
            let frame = self.queues[queue].rx_pop(1);
            self.put_in_backlog(core, frame);
        }
        self.refill_ring(queue);
        if !self.backlogs[core].frames.is_empty() && !self.backlogs[core].scheduled {
            self.backlogs[core].scheduled = true;
            self.cores[core].polls.push(PollSource::Backlog);
        }
        if self.queues[queue].is_sampled {
            self.adapt_moderation(queue);
        }
        self.unmask_vector(queue);
    }

    /// A packet for another context of `core`; dropped if too many wait.
    fn put_in_backlog(&mut self, core: usize, frame: Frame) {
        let limit = self.hosts[self.cores[core].host].stack.backlog_packets as usize;
        let backlog = &mut self.backlogs[core];
        if backlog.frames.len() < limit {
            backlog.frames.push(frame);
        } else {
            backlog.dropped += 1;
        }
    }

    /// RPS: hands packets to `core`, interrupting it if it does not know yet.
    fn steer_packets(&mut self, core: usize, frame: Frame) {
        for packet in frame.iter_packets() {
            self.put_in_backlog(core, packet);
        }
        if !self.backlogs[core].scheduled {
            self.backlogs[core].scheduled = true;
            self.raise_interrupt(core, Irq::Backlog);
        }
    }

    /// Makes the next item of poll work that of `core`; gives its cost.
    #[inline]
    pub(super) fn plan_poll(&mut self, core: usize, poll: PollSource) -> Time {
        if let PollSource::Queue(queue) = poll {
            self.settle_queue(queue as usize, self.now);
        }
        let host = &self.hosts[self.cores[core].host];
        let costs = &host.costs;
        let unit = if host.stack.gro { GRO_UNIT } else { host.stack.delivery_batch };
        match poll {
            PollSource::Backlog => {
                let rx = id(self.backlogs[core].frames.len()).min(unit);
                let cost = u64::from(rx) * costs.backlog_packet;
                self.cores[core].work = SoftirqWork::Backlog { rx };
                cost
            }
            PollSource::Queue(queue) => {
                let ring = &mut self.queues[queue as usize];
                let mut cost = 0;
                let mut tx = 0;
                if !ring.in_poll {
                    ring.in_poll = true;
                    ring.polled = 0;
                    ring.counters.polls += 1;
                    tx = ring.done;
                    cost = costs.poll + u64::from(tx) * costs.tx_completion;
                }
                let most = match ring.driver {
                    DriverMode::Polling => host.polling.sysctls().each_burst,
                    DriverMode::Napi | DriverMode::Interrupt => {
                        unit.min(host.stack.napi_weight - ring.polled)
                    }
                };
                let rx = id(ring.visible).min(most);
                if ring.polled == 0 && rx > 0 {
                    cost += costs.rx_first;
                }
                cost += u64::from(rx) * costs.rx_packet;
                self.cores[core].work = SoftirqWork::Queue { queue, rx, tx };
                cost
            }
        }
    }

    /// Poll work at the soft interrupt level, or in ksoftirqd, is done: its effects, and what they cost on
    /// top.
    #[inline]
    pub(super) fn finish_work(&mut self, core: usize, work: SoftirqWork) -> Time {
        match work {
            SoftirqWork::Nothing => 0,
            SoftirqWork::Backlog { rx } => self.finish_backlog(core, rx),
            SoftirqWork::Queue { queue, rx, tx } => self.finish_queue(core, queue as usize, rx, tx),
        }
    }

    fn finish_backlog(&mut self, core: usize, rx: u32) -> Time {
        self.cores[core].softirq_packets += rx;
        let mut merger = GroMerger::default();
        let mut cost = 0;
        for _ in 0..rx {
            let frame = self.backlogs[core].frames.pop().expect("the poll counted the backlog");
            cost += self.merge_or_deliver(core, &mut merger, &frame);
        }
        cost += self.flush(core, &mut merger);
        if self.backlogs[core].frames.is_empty() {
            self.backlogs[core].scheduled = false;
            self.cores[core].polls.pop();
        } else {
            self.rotate_polls(core);
        }
        cost
    }

    fn finish_queue(&mut self, core: usize, queue: usize, rx: u32, tx: u32) -> Time {
        self.cores[core].softirq_packets += rx;
        self.settle_queue(queue, self.now);
        if tx > 0 {
            self.reap_completions(queue, tx);
        }
        let ring = &self.queues[queue];
        let is_thread = ring.poll_thread.is_some() || ring.by_process;
        let (weight, waits) = {
            let host = &self.hosts[ring.host];
            (host.stack.napi_weight, host.paused_peer || !ring.waiting.is_empty())
        };
        let mut cost = 0;
        if rx > 0 || waits {
            cost = self.take_from_ring(core, queue, rx);
        }
        let ring = &mut self.queues[queue];
        ring.polled += rx;
        ring.counters.polled_packets += u64::from(rx);
        if ring.driver == DriverMode::Polling {
            self.next_call(core, queue);
        } else if ring.polled >= weight {
            ring.in_poll = false;
            if !is_thread {
                self.rotate_polls(core);
            }
        } else if ring.visible == 0 {
            if ring.polled == 0 && tx == 0 {
                ring.counters.empty_polls += 1;
            }
            let had_work = ring.polled > 0;
            ring.in_poll = false;
            if !is_thread {
                self.cores[core].polls.pop();
            }
            cost += self.complete_poll(queue, had_work);
        }
        cost
    }

    fn rotate_polls(&mut self, core: usize) {
        if let Some(poll) = self.cores[core].polls.pop() {
            self.cores[core].polls.push(poll);
        }
    }

    /// The driver frees sent descriptors, which may let waiting packets in.
    #[inline]
    fn reap_completions(&mut self, queue: usize, tx: u32) {
        let ring = &mut self.queues[queue];
        ring.reap_completions(tx, self.now);
        let (waits, blocks) = (!ring.qdisc.is_empty(), !ring.blocked.is_empty());
        if waits {
            self.drain_qdisc(queue);
        }
        if blocks {
            self.wake_blocked(queue);
        }
    }

    #[inline]
    fn take_from_ring(&mut self, core: usize, queue: usize, rx: u32) -> Time {
        if rx > 1 && self.ends.len() > FEW_SOCKETS {
            self.fetch_sockets(queue, rx);
        }
        let mut merger = GroMerger::default();
        let mut cost = 0;
        let mut left = rx;
        while left > 0 {
            let frame = self.queues[queue].rx_pop(left);
            left -= frame.count();
            if let Some(log) = &mut self.log {
                log.record_dequeue(self.now, queue);
            }
            match self.ends[frame.end as usize].rps_core {
                Some(other) if other as usize != core => self.steer_packets(other as usize, frame),
                _ => cost += self.merge_or_deliver(core, &mut merger, &frame),
            }
        }
        if !self.queues[queue].waiting.is_empty() || self.hosts[self.queues[queue].host].paused_peer
        {
            self.refill_ring(queue);
        }
        cost + self.flush(core, &mut merger)
    }

    /// Reads of each socket that packets are for, so that what the caches lack of them comes together: with
    /// thousands of connections that is most of the time that a packet takes.
    #[inline]
    fn fetch_sockets(&self, queue: usize, rx: u32) {
        let frames = self.queues[queue].rx.iter().take(rx as usize);
        let seen =
            frames.fold(0, |seen, frame| seen ^ self.ends[frame.end as usize].touch_cache_lines());
        std::hint::black_box(seen);
    }

    /// GRO: appends to the segment at hand what follows on.
    #[inline]
    fn merge_or_deliver(&mut self, core: usize, merger: &mut GroMerger, frame: &Frame) -> Time {
        self.delivered += u64::from(frame.count());
        if frame.kind != FrameKind::Tcp || frame.payload == 0 {
            let cost = self.flush(core, merger);
            return cost + self.deliver_packet(core, frame);
        }
        let stack = &self.hosts[self.cores[core].host].stack;
        let merges = stack.gro;
        // Segments for other cores go there ahead of a segment at hand, merged or not.
        if !merges && stack.rps_cores.is_empty() {
            return self.deliver_segments(core, frame);
        }
        let mut cost = 0;
        let mut rest = *frame;
        loop {
            if merges && let Some(held) = &mut merger.held {
                let fits = held.room_for(&rest).min(rest.count());
                if fits > 0 {
                    held.payload += fits * rest.payload;
                    (held.ack, held.window) = (rest.ack, rest.window);
                    if fits == rest.count() {
                        return cost;
                    }
                    rest = rest.packets_after(fits);
                }
            }
            cost += self.flush(core, merger);
            merger.held = Some(rest.first_packets(1));
            if rest.more == 0 {
                return cost;
            }
            rest = rest.packets_after(1);
        }
    }

    #[inline]
    fn flush(&mut self, core: usize, merger: &mut GroMerger) -> Time {
        if merger.held.is_none() {
            return 0;
        }
        merger.held.take().map_or(0, |frame| self.deliver_packet(core, &frame))
    }

    /// A poll is complete: the policies decide.
    fn adapt_moderation(&mut self, queue: usize) {
        let ring = &mut self.queues[queue];
        let host = &mut self.hosts[ring.host];
        let mut sample = ring.take_sample(self.now);
        sample.vector = u32::try_from(queue - host.first_queue).unwrap_or(u32::MAX);
        if let Some(policy) = &mut host.throttle
            && let Decision::Change { target, .. } = policy.step(&sample)
        {
            for ring in &mut self.queues[host.first_queue..host.first_queue + host.queues] {
                ring.want_interval(target.delay, self.now);
            }
        }
        self.queues[queue].adapt_moderation(&sample);
    }

    /// `napi_complete_done`: interrupts on again, unless they are deferred. What it costs.
    pub(super) fn complete_poll(&mut self, queue: usize, had_work: bool) -> Time {
        let ring = &mut self.queues[queue];
        ring.scheduled = false;
        if ring.is_sampled {
            self.adapt_moderation(queue);
        }
        let ring = &mut self.queues[queue];
        let HostState { stack, costs, .. } = &self.hosts[ring.host];
        // A process that prefers to poll will be back: its polls defer interrupts whatever they find, and
        // one that found packets suspends them.
        let prefers = ring.by_process && stack.prefer_busy_poll;
        if had_work || prefers {
            ring.deferrals_left = stack.defer_hard_irqs;
        }
        ring.suspended = prefers && had_work && stack.irq_suspend_timeout > Nanos::ZERO;
        if ring.suspended {
            let at = self.now + stack.irq_suspend_timeout.as_ns();
            self.agenda.set_due_time(self.deferral_slots + queue, at);
            return costs.timer_arm;
        }
        if ring.deferrals_left > 0 && stack.gro_flush_timeout > Nanos::ZERO {
            ring.deferrals_left -= 1;
            let at = self.now + stack.gro_flush_timeout.as_ns();
            self.agenda.set_due_time(self.deferral_slots + queue, at);
            costs.timer_arm
        } else {
            self.unmask_vector(queue);
            0
        }
    }

    /// The process that suspended a queue's interrupts goes to sleep: a poll of the kernel's decides when
    /// they come back.
    pub(super) fn resume_interrupts(&mut self, queue: usize) {
        self.queues[queue].suspended = false;
        self.agenda.set_due_time(self.deferral_slots + queue, NEVER);
        let core = self.queues[queue].core;
        self.schedule_poll(queue);
        self.kick_core(core);
    }

    fn unmask_vector(&mut self, queue: usize) {
        let ring = &mut self.queues[queue];
        let is_drained = ring.rx.is_empty() && ring.done == 0;
        ring.vector.unmask(is_drained);
        self.update_vector(queue);
    }

    /// FreeBSD: the clock ticks.
    pub(super) fn tick_due(&mut self, host: usize, slot: usize) {
        self.agenda.set_due_time(slot, self.now + self.hosts[host].tick);
        self.raise_interrupt(self.hosts[host].first_core, Irq::PollTick);
    }

    /// FreeBSD: the tick starts a round, unless the last one is still under way.
    pub(super) fn start_round(&mut self, core: usize) {
        let now = self.now;
        let host = &mut self.hosts[self.cores[core].host];
        if host.round.calls_left > 0 {
            host.tick_missed = true;
            return;
        }
        let each = host.polling.sysctls().each_burst;
        let calls = host.polling.burst().div_ceil(each) * id(host.queues);
        host.round = PollingRound { began: now, calls_left: calls };
        for queue in host.first_queue..host.first_queue + host.queues {
            self.cores[core].polls.push(PollSource::Queue(id(queue)));
        }
    }

    /// FreeBSD: one call of the driver is over; after the last of a round the burst is set anew.
    fn next_call(&mut self, core: usize, queue: usize) {
        self.queues[queue].in_poll = false;
        let now = self.now;
        let host = &mut self.hosts[self.queues[queue].host];
        host.round.calls_left -= 1;
        if host.round.calls_left > 0 {
            return self.rotate_polls(core);
        }
        let tick_missed = std::mem::take(&mut host.tick_missed);
        let elapsed = Nanos::from_ns(now - host.round.began);
        host.polling.step(&polling::PollRoundTiming { elapsed, tick_missed });
        while self.cores[core].polls.pop().is_some() {}
        if tick_missed {
            self.start_round(core);
        }
    }
}

impl Frame {
    /// How many packets of a burst GRO can append to this segment.
    #[inline]
    fn room_for(&self, burst: &Self) -> u32 {
        if self.end == burst.end && self.seq + u64::from(self.payload) == burst.seq {
            GRO_BYTES.saturating_sub(self.payload) / burst.payload
        } else {
            0
        }
    }
}

/// The segment that GRO holds, waiting for one that follows on.
#[derive(Default)]
struct GroMerger {
    held: Option<Frame>,
}
