//! CPU time of the calling thread within a window.

use latput_load::{Window, thread_cpu};
use latput_units::Nanos;

/// The thread's CPU time at both ends of a window.
#[derive(Debug)]
pub(crate) struct WindowCpu {
    window: Window,
    at_start: Option<Nanos>,
    at_end: Option<Nanos>,
}

impl WindowCpu {
    pub(crate) const fn new(window: Window) -> Self {
        Self { window, at_start: None, at_end: None }
    }

    /// Reads the CPU time if `now` is the first instant at or after an end of the window.
    pub(crate) fn read_at(&mut self, now: Nanos) {
        if now >= self.window.start() && self.at_start.is_none() {
            self.at_start = Some(thread_cpu());
        }
        if now >= self.window.end() && self.at_end.is_none() {
            self.at_end = Some(thread_cpu());
        }
    }

    /// CPU time used in the window; 0 if the window is not over.
    pub(crate) fn cpu_used(&self) -> Nanos {
        let ends = self.at_start.zip(self.at_end);
        ends.map_or(Nanos::ZERO, |(start, end)| end.saturating_sub(start))
    }
}
