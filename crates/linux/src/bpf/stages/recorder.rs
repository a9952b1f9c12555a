//! A thread that traces the stages, span by span, until it is told to end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    thread: Option<JoinHandle<()>>,
    is_ended: Arc<AtomicBool>,
    total: Arc<Mutex<StageTotal>>,
}

impl StageRecorder {
    /// Starts on an interface of this thread's namespace. Where nothing can be traced, the record says why.
    pub fn start(interface: &str) -> Self {
        let is_ended = Arc::new(AtomicBool::new(false));
        let total = Arc::new(Mutex::new(StageTotal::default()));
        let (interface, told) = (interface.to_owned(), Arc::clone(&is_ended));
        let filled = Arc::clone(&total);
        let thread = thread::Builder::new()
            .name("stages".to_owned())
            .spawn(move || record_stages(&interface, &told, &filled))
            .ok();
        if thread.is_none() {
            lock(&total).unseen.push("waits by stage: no thread could be started".to_owned());
        }
        Self { thread, is_ended, total }
    }

    /// Ends, and returns what was recorded.
    pub fn finish(mut self) -> StageRecord {
        self.end();
        self.take_record()
    }

    /// Returns what was recorded in the spans that have ended since the last call, or since the start. What cannot be seen
    /// is in each record.
    pub fn take_record(&self) -> StageRecord {
        lock(&self.total).take().into_record()
    }

    fn end(&mut self) {
        self.is_ended.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return };
        thread.thread().unpark();
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Drop for StageRecorder {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.end();
        }
    }
}

/// The total, also after a panic of the other thread: each change of it is complete.
fn lock(total: &Mutex<StageTotal>) -> MutexGuard<'_, StageTotal> {
    total.lock().unwrap_or_else(PoisonError::into_inner)
}

fn record_stages(interface: &str, is_ended: &AtomicBool, total: &Mutex<StageTotal>) {
    let traced = StageTracer::load(interface).and_then(|mut tracer| {
        let traced = trace_spans(&mut tracer, is_ended, total);
        tracer.stop();
        traced
    });
    if let Err(error) = traced {
        lock(total).unseen.push(describe_untraced(&error));
    }
}

/// The reason why nothing is traced, with the waits that are therefore not seen.
fn describe_untraced(error: &Error) -> String {
    let waits: Vec<&str> = STAGES.iter().map(|row| row.name).collect();
    format!("waits by stage: {} (not seen therefore: {})", error.describe(), waits.join(" "))
}

/// Traces until it is told to end.
fn trace_spans(
    tracer: &mut StageTracer,
    is_ended: &AtomicBool,
    total: &Mutex<StageTotal>,
) -> Result<(), Error> {
    let mut plan = SpanPlan::new();
    lock(total).unseen.clone_from(&tracer.unseen);
    while !is_ended.load(Ordering::Relaxed) {
        tracer.start(plan.mask)?;
        let begun = Instant::now();
        wait(plan.time.as_duration(), is_ended);
        let time = begun.elapsed();
        tracer.stop();
        let slots = tracer.read()?;
        let attachments = tracer.count_hooks() * slots.len();
        let span = {
            let mut total = lock(total);
            // The first start may find that the kernel refuses a program.
            total.unseen.clone_from(&tracer.unseen);
            total.add(slots, time)
        };
        plan = SpanPlan::after(span, attachments);
        wait(plan.pause.as_duration(), is_ended);
    }
    Ok(())
}

/// Counts of all spans.
#[derive(Debug, Default)]
struct StageTotal {
    slots: Vec<(CpuId, Vec<u64>)>,
    time: Duration,
    packets: u64,
    /// Parts that are not seen, with the reasons.
    unseen: Vec<String>,
}

impl StageTotal {
    /// Takes the counts, and begins again. What is not seen stays.
    fn take(&mut self) -> Self {
        let unseen = self.unseen.clone();
        std::mem::replace(self, Self { unseen, ..Self::default() })
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
            unseen: self.unseen,
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
        let record = total.take().into_record();
        assert_eq!((total.packets, total.slots.len()), (0, 0), "taken");
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
