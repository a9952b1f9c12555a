//! Other work of a host while it is counted: other processes on its CPUs, quotas and heat.

use latput_linux::others::{Benchmark, ProcessTimes};
use latput_linux::{OtherWork, Throttles};
use latput_trial::observation::HostObservation;
use latput_units::{CpuSet, Nanos};

/// A count of what else goes on, from before the first slice until after the last.
#[derive(Debug)]
pub(super) struct InterferenceMeter {
    cpus: CpuSet,
    /// The meter and its last reading; `None` where not all processes are seen.
    work: Option<(OtherWork, ProcessTimes)>,
    throttles: Throttles,
    /// Length of the slices so far.
    counted: Nanos,
}

impl InterferenceMeter {
    /// Begins to count. Takes a few milliseconds, so it belongs before the window.
    pub(super) fn start_counting(cpus: &CpuSet, benchmark: Benchmark) -> Self {
        let work = OtherWork::sees_all().then(|| {
            let work = OtherWork::begin(cpus, benchmark);
            let first = work.read();
            (work, first)
        });
        let throttles = Throttles::read(cpus);
        Self { cpus: cpus.clone(), work, throttles, counted: Nanos::ZERO }
    }

    /// Counts the time since the last slice as this one's, which it is but for its cut.
    pub(super) fn count_slice(&mut self, slice: &mut HostObservation) {
        self.counted = self.counted.saturating_add(slice.window);
        let Some((work, first)) = &mut self.work else { return };
        let last = work.read();
        let span = last.at().saturating_sub(first.at()).as_secs_f64();
        let share = work.between(first, &last).as_secs_f64() / span.max(f64::EPSILON);
        slice.other_work_cpu = Some(part_of(slice.window, share));
        *first = last;
    }

    /// Ends the count of these slices. The last one gets the names. Returns what held the host back.
    pub(super) fn finish_counting(self, slices: &mut [HostObservation]) -> Vec<String> {
        let held_back = self.throttles.until(&Throttles::read(&self.cpus));
        let Some((work, _)) = self.work else { return held_back };
        let (others, of_children) = work.end(self.counted);
        for slice in slices.iter_mut() {
            let known = slice.other_work_cpu.unwrap_or_default();
            // A process that goes from CPU to CPU counts on each, and no CPU has more time than the window.
            let most = slice.window.saturating_mul(slice.cpus.len() as u64);
            let all = known.saturating_add(part_of(slice.window, of_children));
            slice.other_work_cpu = Some(all.min(most));
        }
        if let Some(last) = slices.last_mut() {
            last.others = others;
        }
        held_back
    }
}

fn part_of(window: Nanos, share: f64) -> Nanos {
    Nanos::from_secs_f64(window.as_secs_f64() * share)
}
