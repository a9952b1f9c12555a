//! Where in a trial we are, and what a traffic thread used between the ends of the window.

use latput_units::Nanos;

use crate::clock::{self, thread_cpu};
use crate::socket;
use crate::supervise::Link;

/// The part of a trial that an instant falls in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    WarmUp,
    Window,
    CoolDown,
    Over,
}

/// Tells the phase of an instant for one comparison, and takes the marks when a phase begins.
#[derive(Debug)]
pub(crate) struct Meter<'a> {
    link: &'a Link<'a>,
    over: Nanos,
    phase: Phase,
    next: Nanos,
    units: u64,
    at_start: Option<Mark>,
    at_end: Option<Mark>,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    cpu: Nanos,
    retransmits: Option<u64>,
}

/// What the thread and its connections used in the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) cpu: Nanos,
    pub(crate) retransmits: Option<u64>,
}

impl<'a> Meter<'a> {
    /// For the end that decides when the traffic is over: a cool-down after the window.
    pub(crate) fn leading(link: &'a Link<'a>) -> Self {
        Self::until(link, link.window.end() + clock::COOL_DOWN)
    }

    /// For the end that goes on until the other one closes.
    pub(crate) fn following(link: &'a Link<'a>) -> Self {
        Self::until(link, Nanos::from_ns(u64::MAX))
    }

    fn until(link: &'a Link<'a>, over: Nanos) -> Self {
        let next = link.window.start();
        let (phase, units) = (Phase::WarmUp, 0);
        Self { link, over, phase, next, units, at_start: None, at_end: None }
    }

    /// The phase that `now` falls in. Instants must not go back.
    #[inline]
    pub(crate) fn phase(&mut self, now: Nanos) -> Phase {
        if now >= self.next {
            self.advance(now);
        }
        self.phase
    }

    /// Counts `units` more, done at `now`, if that is in the window. The last of those that were asked
    /// for ends the traffic of every thread; what the leading end does until it notices counts too.
    #[inline]
    pub(crate) fn done(&mut self, now: Nanos, units: u64) {
        if self.phase != Phase::Window {
            return;
        }
        self.units += units;
        let run = self.link.run;
        run.progress.store(self.link.thread, self.units);
        if let Some(goal) = run.goal.filter(|_| run.leads)
            && run.progress.units() >= goal
        {
            run.reached_goal(now);
        }
    }

    /// What was used between the marks; a window that traffic never reached the end of ends here.
    pub(crate) fn finish(self) -> Usage {
        let Some(start) = self.at_start else { return Usage::default() };
        let end = self.at_end.unwrap_or_else(|| self.mark());
        Usage {
            cpu: end.cpu.saturating_sub(start.cpu),
            retransmits: end
                .retransmits
                .zip(start.retransmits)
                .map(|(end, start)| end.saturating_sub(start)),
        }
    }

    #[cold]
    fn advance(&mut self, now: Nanos) {
        while now >= self.next {
            (self.phase, self.next) = match self.phase {
                Phase::WarmUp => {
                    self.at_start = Some(self.mark());
                    (Phase::Window, self.link.window.end())
                }
                Phase::Window => {
                    self.at_end = Some(self.mark());
                    (Phase::CoolDown, self.over)
                }
                Phase::CoolDown | Phase::Over => (Phase::Over, Nanos::from_ns(u64::MAX)),
            };
        }
    }

    fn mark(&self) -> Mark {
        let retransmits = self.link.sockets.iter().map(socket::retransmits).sum();
        Mark { cpu: thread_cpu(), retransmits }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::clock::Window;
    use crate::progress::Progress;
    use crate::supervise::Run;

    #[test]
    fn phases_follow_the_window_and_never_go_back() {
        let window = Window::starting_in(Nanos::from_s(5), Nanos::from_s(1)).unwrap();
        let run = run(window, None);
        let link = run.thread(0, 1);
        let mut meter = Meter::leading(&link);
        let ns = Nanos::from_ns(1);
        let over = window.end() + clock::COOL_DOWN;
        for (at, phase) in [
            (window.start() - ns, Phase::WarmUp),
            (window.start(), Phase::Window),
            (window.end() - ns, Phase::Window),
            (window.end(), Phase::CoolDown),
            (over - ns, Phase::CoolDown),
            (over, Phase::Over),
            (over + Nanos::from_s(60), Phase::Over),
        ] {
            assert_eq!(meter.phase(at), phase, "{at}");
        }
    }

    #[test]
    fn one_late_look_passes_every_boundary() {
        let window = Window::starting_in(Nanos::ZERO, Nanos::from_ms(1)).unwrap();
        let run = run(window, None);
        let link = run.thread(0, 1);
        let mut meter = Meter::following(&link);
        assert_eq!(meter.phase(window.end() + Nanos::from_s(9)), Phase::CoolDown);
        assert_eq!(meter.finish().retransmits, Some(0));
    }

    #[test]
    fn the_window_ends_with_the_last_unit_asked_for() {
        let window = Window::starting_in(Nanos::ZERO, Nanos::from_s(60)).unwrap();
        let run = run(window, Some(10));
        let link = run.thread(0, 1);
        let mut meter = Meter::leading(&link);
        meter.done(window.start(), 100); // still warming up
        let at = window.start() + Nanos::from_ms(7);
        meter.phase(at);
        meter.done(at, 9);
        assert!(!link.is_ending());
        meter.done(at, 2);
        assert!(link.is_ending());
        assert_eq!((run.window_length(), run.progress.units()), (Nanos::from_ms(7), 11));
        assert!(link.closed(None).is_ok());
    }

    fn run(window: Window, goal: Option<u64>) -> Run<'static> {
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        Run::new(&[], peer, window, true, Progress::new(1, goal))
    }
}
