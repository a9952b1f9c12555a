//! Counts up to a moment; a window's figures are the difference of two.

use super::World;
use crate::agenda::Time;
use crate::core::CpuUsage;
use crate::queue::QueueCounters;
use crate::socket::{SocketEnd, SocketProtocol};
use crate::task::TaskProgram;

/// Where each core's and queue's counters stood when the measured window began.
#[derive(Clone, Debug, Default)]
pub(crate) struct CounterSnapshot {
    pub(crate) at: Time,
    pub(crate) spent: Vec<CpuUsage>,
    pub(crate) softirq_runs: Vec<u64>,
    pub(crate) counters: Vec<QueueCounters>,
    /// Packets (or chunks) and bytes in the discipline of each queue.
    pub(crate) waiting: Vec<[u64; 2]>,
    pub(crate) backlog_dropped: Vec<u64>,
    pub(crate) switch_dropped: u64,
    /// Of each load.
    pub(crate) retransmits: Vec<u64>,
    /// CPU time of each process.
    pub(crate) task_cpu: Vec<Time>,
}

impl World {
    /// All counters, up to this moment.
    pub(crate) fn take_snapshot(&mut self) -> CounterSnapshot {
        let now = self.now;
        for core in &mut self.cores {
            core.charge_item(now);
            if let Some(task) = core.task {
                self.tasks[task as usize].cpu += std::mem::take(&mut core.process_time);
            }
        }
        CounterSnapshot {
            at: now,
            spent: self.cores.iter().map(|core| core.spent).collect(),
            softirq_runs: self.cores.iter().map(|core| core.softirq_runs).collect(),
            counters: self.queues.iter().map(|queue| queue.counters).collect(),
            waiting: self
                .queues
                .iter()
                .map(|queue| [queue.qdisc.len() as u64, queue.qdisc.waiting_bytes()])
                .collect(),
            backlog_dropped: self.backlogs.iter().map(|backlog| backlog.dropped).collect(),
            switch_dropped: self.switch_dropped(),
            retransmits: self.load_retransmits(),
            task_cpu: self.tasks.iter().map(|task| task.cpu).collect(),
        }
    }

    /// TCP segments sent again, of each load.
    fn load_retransmits(&self) -> Vec<u64> {
        let mut each = vec![0; self.tallies.len()];
        for end in &self.ends {
            each[end.load as usize] += socket_retransmits(end);
        }
        each
    }

    /// CPU time between two snapshots of a host's traffic processes, and of its NAPI threads if it has such.
    pub(crate) fn thread_cpu(
        &self,
        host: usize,
        from: &CounterSnapshot,
        to: &CounterSnapshot,
    ) -> (Time, Option<Time>) {
        let (mut traffic, mut napi) = (0, None);
        for (idx, task) in self.tasks.iter().enumerate().filter(|(_, task)| task.host == host) {
            let had = to.task_cpu[idx] - from.task_cpu[idx];
            match task.program {
                TaskProgram::Ksoftirqd | TaskProgram::Compute => {}
                TaskProgram::PollThread(_) => *napi.get_or_insert(0) += had,
                _ => traffic += had,
            }
        }
        (traffic, napi)
    }
}

fn socket_retransmits(end: &SocketEnd) -> u64 {
    match &end.protocol {
        SocketProtocol::Tcp(tcp) => u64::from(tcp.retransmits),
        SocketProtocol::Datagrams(_) => 0,
    }
}
