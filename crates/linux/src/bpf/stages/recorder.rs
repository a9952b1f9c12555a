//! A thread that traces the stages, span by span, until it is told to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use latput_diagnose::stages::{BUCKETS, CpuWaits, STAGES, Stage, StageHistogram, StageRecord};
use latput_units::CpuId;

use super::StageTracer;
use super::programs::{EVENTS, HISTOGRAMS, RECEIVED, SENT, SUMS, WORDS};
use super::spans::{SpanPlan, TracedSpan};
use crate::error::Error;

/// Records how long an interface's packets wait at each stage, for as long as it lives. It follows the kernel's
/// tracepoints in short spans; between them, and after its end, nothing is attached.
#[derive(Debug)]
pub struct StageRecorder {
    thread: Option<JoinHandle<StageRecord>>,
    is_ended: Arc<AtomicBool>,
}

impl StageRecorder {
    /// Starts on an interface of this thread's namespace. Where nothing can be traced, the record says why.
    pub fn start(interface: &str) -> Self {
        let is_ended = Arc::new(AtomicBool::new(false));
        let (interface, told) = (interface.to_owned(), Arc::clone(&is_ended));
        let thread = thread::Builder::new()
            .name("stages".to_owned())
            .spawn(move || record_stages(&interface, &told))
            .ok();
        Self { thread, is_ended }
    }

    /// Ends, and returns what was recorded.
    pub fn finish(mut self) -> StageRecord {
        self.end()
            .unwrap_or_else(|| StageRecord::new_unseen("no thread could be started".to_owned()))
    }

    fn end(&mut self) -> Option<StageRecord> {
        self.is_ended.store(true, Ordering::Relaxed);
        let thread = self.thread.take()?;
        thread.thread().unpark();
        Some(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }
}

impl Drop for StageRecorder {
    fn drop(&mut self) {
        if !thread::panicking() {
            drop(self.end());
        }
    }
}

fn record_stages(interface: &str, is_ended: &AtomicBool) -> StageRecord {
    let unseen = |error: &Error| format!("waits by stage: {}", error.describe());
    let mut tracer = match StageTracer::load(interface) {
        Ok(tracer) => tracer,
        Err(error) => return StageRecord::new_unseen(unseen(&error)),
    };
    let mut total = StageTotal::default();
    let traced = total.trace(&mut tracer, is_ended);
    tracer.stop();
    let mut record = total.into_record();
    record.unseen = tracer.unseen;
    record.unseen.extend(traced.err().as_ref().map(unseen));
    record
}

/// Counts of all spans.
#[derive(Debug, Default)]
struct StageTotal {
    slots: Vec<(CpuId, Vec<u64>)>,
    time: Duration,
    packets: u64,
}

impl StageTotal {
    /// Traces until it is told to end.
    fn trace(&mut self, tracer: &mut StageTracer, is_ended: &AtomicBool) -> Result<(), Error> {
        let mut plan = SpanPlan::new();
        while !is_ended.load(Ordering::Relaxed) {
            tracer.start(plan.mask)?;
            let begun = Instant::now();
            wait(plan.time.as_duration(), is_ended);
            let time = begun.elapsed();
            tracer.stop();
            let slots = tracer.read()?;
            let attachments = tracer.count_hooks() * slots.len();
            let span = self.add(slots, time);
            plan = SpanPlan::after(span, attachments);
            wait(plan.pause.as_duration(), is_ended);
        }
        Ok(())
    }

    fn add(&mut self, slots: Vec<(CpuId, [u64; WORDS])>, time: Duration) -> TracedSpan {
        let count = |word: usize| slots.iter().map(|(_, slot)| slot[word]).sum::<u64>();
        let (runs, packets) = (count(EVENTS), count(RECEIVED) + count(SENT));
        if self.slots.is_empty() {
            self.slots = slots.into_iter().map(|(cpu, slot)| (cpu, slot.to_vec())).collect();
        } else {
            for ((_, total), (_, slot)) in self.slots.iter_mut().zip(slots) {
                for (sum, value) in total.iter_mut().zip(slot) {
                    *sum = sum.wrapping_add(value);
                }
            }
        }
        self.time += time;
        self.packets += packets;
        TracedSpan { time: time.into(), runs, packets }
    }

    fn into_record(self) -> StageRecord {
        let waits = |(cpu, slot): &(CpuId, Vec<u64>)| {
            let cpu = cpu.0;
            let of_stage = |stage: Stage| {
                let start = HISTOGRAMS + stage as usize * BUCKETS;
                let sum = slot[SUMS + stage as usize];
                let waits = StageHistogram::from_counts(&slot[start..start + BUCKETS], sum);
                (waits.count > 0).then_some(CpuWaits { cpu, stage, waits })
            };
            STAGES.iter().filter_map(|row| of_stage(row.stage)).collect::<Vec<CpuWaits>>()
        };
        StageRecord {
            traced_s: (self.time.as_secs_f64() * 1000.0).round() / 1000.0,
            packets: self.packets,
            unseen: Vec::new(),
            waits: self.slots.iter().flat_map(waits).collect(),
        }
    }
}

/// Waits, or until it is told to end.
fn wait(time: Duration, is_ended: &AtomicBool) {
    let begun = Instant::now();
    while !is_ended.load(Ordering::Relaxed) {
        let rest = time.saturating_sub(begun.elapsed());
        if rest.is_zero() {
            return;
        }
        thread::park_timeout(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_add_up_by_cpu_and_stage() {
        let slot = |poll: u64, sum: u64| {
            let mut slot = [0; WORDS];
            (slot[EVENTS], slot[RECEIVED], slot[SENT]) = (6 * poll, poll, 1);
            slot[SUMS + Stage::Poll as usize] = sum;
            slot[HISTOGRAMS + Stage::Poll as usize * BUCKETS + 40] = poll;
            slot
        };
        let mut total = StageTotal::default();
        for _ in 0..2 {
            let slots = vec![(CpuId(0), slot(3, 30_000)), (CpuId(1), [0; WORDS])];
            let span = total.add(slots, Duration::from_millis(5));
            assert_eq!((span.runs, span.packets), (18, 4));
        }
        let record = total.into_record();
        assert_eq!((record.traced_s, record.packets, record.waits.len()), (0.01, 8, 1));
        let CpuWaits { cpu, stage, waits } = &record.waits[0];
        assert_eq!((*cpu, *stage, waits.count, waits.sum_ns), (0, Stage::Poll, 6, 60_000));
        assert_eq!(waits.buckets.len(), 1);
    }

    #[test]
    fn missing_interface_is_told_in_the_record() {
        let record = StageRecorder::start("zz-no-such").finish();
        assert_eq!((record.packets, record.waits), (0, Vec::new()));
        assert_eq!(record.unseen.len(), 1, "{:?}", record.unseen);
        assert!(record.unseen[0].starts_with("waits by stage: "), "{:?}", record.unseen);
    }
}
