//! Linux's dynamic interrupt moderation library (DIM): a walk over five points, judged by bytes, then
//! packets, then fewer interrupts.
//!
//! It has no term for latency and none for CPU, moves after one sample of 64 interrupts however long
//! they take, and sees only differences above 10%. Source: `include/linux/dim.h`, `lib/dim/dim.c`,
//! `lib/dim/net_dim.c`, `Documentation/networking/net_dim.rst`.

use latput_units::Nanos;

use crate::{Decision, Moderation, QueueObservation};

/// Interrupts in a sample.
const SAMPLE_INTERRUPTS: u64 = 64;
/// After this many steps without parking the walk rests.
const TIRED: u32 = 10;
const LAST: usize = 4;

/// Which direction, and what restarts the device's timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DimProfile {
    /// Receive, timer from the event (`use-cqe-mode-rx off`).
    RxEqe,
    /// Receive, timer restarted by each completion.
    RxCqe,
    /// Transmit, timer from the event.
    TxEqe,
    /// Transmit, timer restarted by each completion.
    TxCqe,
}

impl DimProfile {
    /// The five points: microseconds and frames.
    pub const fn points(self) -> [(u32, u32); 5] {
        match self {
            Self::RxEqe => [(1, 256), (8, 256), (64, 256), (128, 256), (256, 256)],
            Self::RxCqe => [(2, 256), (8, 128), (16, 64), (32, 64), (64, 64)],
            Self::TxEqe => [(1, 128), (8, 128), (32, 128), (64, 128), (128, 128)],
            Self::TxCqe => [(5, 128), (8, 64), (16, 32), (32, 32), (64, 32)],
        }
    }

    const fn is_rx(self) -> bool {
        matches!(self, Self::RxEqe | Self::RxCqe)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WalkState {
    ParkingOnTop,
    ParkingTired,
    GoingRight,
    GoingLeft,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RateComparison {
    Better,
    Same,
    Worse,
}

/// Per millisecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct DimRates {
    bytes: u64,
    packets: u64,
    interrupts: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct DimSample {
    start: Option<Nanos>,
    bytes: u64,
    packets: u64,
    interrupts: u64,
}

/// The walk of one direction of one queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dim {
    profile: DimProfile,
    points: [(u32, u32); 5],
    idx: usize,
    walk: WalkState,
    steps_left: u32,
    steps_right: u32,
    tired: u32,
    previous: DimRates,
    sample: DimSample,
}

impl Dim {
    /// As the library starts: the second point, going right.
    pub fn new(profile: DimProfile) -> Self {
        Self::with_points(profile, profile.points())
    }

    /// The same between other points (`rx-profile`): microseconds and frames, 0 frames for no limit.
    pub fn with_points(profile: DimProfile, points: [(u32, u32); 5]) -> Self {
        Self {
            profile,
            points,
            idx: 1,
            walk: WalkState::GoingRight,
            steps_left: 0,
            steps_right: 0,
            tired: 0,
            previous: DimRates::default(),
            sample: DimSample::default(),
        }
    }

    /// The point that the walk is at.
    pub fn current_moderation(&self) -> Moderation {
        let (delay_us, frames) = self.points[self.idx];
        Moderation { delay: Nanos::from_us(u64::from(delay_us)), frames: Some(frames) }
    }

    /// One completed poll.
    pub fn step(&mut self, observation: &QueueObservation) -> Decision {
        let counts = if self.profile.is_rx() { observation.rx } else { observation.tx };
        let Some(start) = self.sample.start else {
            self.sample = DimSample { start: Some(observation.now), ..DimSample::default() };
            return Decision::Keep;
        };
        self.sample.bytes += u64::from(counts.bytes);
        self.sample.packets += u64::from(counts.packets);
        self.sample.interrupts += u64::from(observation.interrupts);
        let elapsed_us = observation.now.saturating_sub(start).as_ns() / 1_000;
        if self.sample.interrupts < SAMPLE_INTERRUPTS || elapsed_us == 0 {
            return Decision::Keep;
        }
        let per_ms = |count: u64| (count * 1_000).div_ceil(elapsed_us);
        let rates = DimRates {
            bytes: per_ms(self.sample.bytes),
            packets: per_ms(self.sample.packets),
            interrupts: per_ms(SAMPLE_INTERRUPTS),
        };
        let changed = self.update_walk(rates);
        // After a change the library waits for its worker, then starts a fresh sample; otherwise the
        // next sample begins where this one ended.
        let start = if changed { None } else { Some(observation.now) };
        self.sample = DimSample { start, ..DimSample::default() };
        if changed {
            Decision::Change { target: self.current_moderation(), reason: "five-point walk" }
        } else {
            Decision::Keep
        }
    }

    /// Moves the walk by one sample; true if it is at another point now.
    fn update_walk(&mut self, rates: DimRates) -> bool {
        let old_walk = self.walk;
        let old_idx = self.idx;
        let verdict = compare_rates(rates, self.previous);
        match self.walk {
            WalkState::ParkingOnTop => {
                if verdict != RateComparison::Same {
                    self.exit_parking();
                }
            }
            WalkState::ParkingTired => {
                self.tired -= 1;
                if self.tired == 0 {
                    self.exit_parking();
                }
            }
            WalkState::GoingRight | WalkState::GoingLeft => {
                if verdict != RateComparison::Better {
                    self.reverse_walk();
                }
                if self.is_on_top() {
                    self.park_on_top();
                } else {
                    self.walk_on();
                }
            }
        }
        if !(old_walk == WalkState::ParkingOnTop && self.walk == WalkState::ParkingOnTop) {
            self.previous = rates;
        }
        self.idx != old_idx
    }

    fn walk_on(&mut self) {
        if self.tired == TIRED {
            self.walk = WalkState::ParkingTired;
            (self.steps_left, self.steps_right) = (0, 0);
        } else if !self.step_once() {
            self.park_on_top();
        }
    }

    /// One point further; false at the edge.
    fn step_once(&mut self) -> bool {
        match self.walk {
            WalkState::GoingRight if self.idx == LAST => return false,
            WalkState::GoingLeft if self.idx == 0 => return false,
            WalkState::GoingRight => {
                (self.idx, self.steps_right) = (self.idx + 1, self.steps_right + 1);
            }
            WalkState::GoingLeft => {
                (self.idx, self.steps_left) = (self.idx - 1, self.steps_left + 1);
            }
            WalkState::ParkingOnTop | WalkState::ParkingTired => {}
        }
        self.tired += 1;
        true
    }

    fn reverse_walk(&mut self) {
        match self.walk {
            WalkState::GoingRight => (self.walk, self.steps_left) = (WalkState::GoingLeft, 0),
            WalkState::GoingLeft => (self.walk, self.steps_right) = (WalkState::GoingRight, 0),
            WalkState::ParkingOnTop | WalkState::ParkingTired => {}
        }
    }

    /// One step back after at least two forth: the point before was the best.
    fn is_on_top(&self) -> bool {
        match self.walk {
            WalkState::ParkingOnTop | WalkState::ParkingTired => true,
            WalkState::GoingRight => self.steps_left > 1 && self.steps_right == 1,
            WalkState::GoingLeft => self.steps_right > 1 && self.steps_left == 1,
        }
    }

    fn park_on_top(&mut self) {
        (self.steps_left, self.steps_right, self.tired) = (0, 0, 0);
        self.walk = WalkState::ParkingOnTop;
    }

    fn exit_parking(&mut self) {
        self.walk = if self.idx == 0 { WalkState::GoingRight } else { WalkState::GoingLeft };
        self.step_once();
    }
}

/// The first of bytes, packets and interrupts that differs by more than 10% decides.
fn compare_rates(now: DimRates, before: DimRates) -> RateComparison {
    let more = |now: u64, before: u64| match (now, before) {
        (0, 0) => Some(RateComparison::Same),
        (_, 0) => Some(RateComparison::Better),
        (now, before) if 100 * now.abs_diff(before) / before <= 10 => None,
        (now, before) => {
            Some(if now > before { RateComparison::Better } else { RateComparison::Worse })
        }
    };
    if let Some(verdict) =
        more(now.bytes, before.bytes).or_else(|| more(now.packets, before.packets))
    {
        return verdict;
    }
    match more(now.interrupts, before.interrupts) {
        Some(_) if before.interrupts == 0 => RateComparison::Same,
        Some(RateComparison::Better) => RateComparison::Worse,
        Some(RateComparison::Worse) => RateComparison::Better,
        _ => RateComparison::Same,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TrafficCounts;

    #[test]
    fn differences_above_ten_percent_count() {
        for (now, before, expected) in [
            ((100, 10, 10), (0, 0, 0), RateComparison::Better),
            ((0, 0, 10), (0, 0, 10), RateComparison::Same),
            ((110, 10, 10), (100, 10, 10), RateComparison::Same),
            ((111, 1, 99), (100, 10, 10), RateComparison::Better),
            ((88, 99, 1), (100, 10, 10), RateComparison::Worse),
            ((100, 12, 99), (100, 10, 10), RateComparison::Better),
            ((100, 10, 5), (100, 10, 10), RateComparison::Better),
            ((100, 10, 12), (100, 10, 10), RateComparison::Worse),
        ] {
            let rates = |(bytes, packets, interrupts)| DimRates { bytes, packets, interrupts };
            assert_eq!(
                compare_rates(rates(now), rates(before)),
                expected,
                "{now:?} against {before:?}"
            );
        }
    }

    #[test]
    fn nothing_is_decided_before_64_interrupts() {
        let mut dim = Dim::new(DimProfile::RxEqe);
        assert_eq!(feed_polls(&mut dim, 64, 100), Vec::<u64>::new());
        // The first poll only starts the sample: the 65th completes it.
        assert_eq!(feed_polls(&mut dim, 1, 100), [64]);
    }

    #[test]
    fn constant_load_zig_zags_until_tired() {
        // Each verdict after the first is "same", which turns the walk: right, left, right ... until
        // it is tired. This is the library's documented zig-zag on a load that ignores the delay.
        let mut dim = Dim::new(DimProfile::RxEqe);
        let visited = feed_polls(&mut dim, 65 * 14, 100);
        assert_eq!(visited, [64, 8, 64, 8, 64, 8, 64, 8, 64, 8]);
        assert_eq!(dim.walk, WalkState::ParkingTired);
    }

    #[test]
    fn points_are_the_librarys() {
        for (profile, idx, expected) in [
            (DimProfile::RxEqe, 4, (256, 256)),
            (DimProfile::RxCqe, 1, (8, 128)),
            (DimProfile::TxEqe, 2, (32, 128)),
            (DimProfile::TxCqe, 0, (5, 128)),
        ] {
            assert_eq!(profile.points()[idx], expected, "{profile:?}");
        }
        assert_eq!(
            Dim::new(DimProfile::TxCqe).current_moderation(),
            Moderation { delay: Nanos::from_us(8), frames: Some(64) }
        );
    }

    #[test]
    fn other_points_are_walked_as_the_librarys_are() {
        let points = [(2, 0), (4, 0), (20, 0), (40, 0), (50, 0)];
        let mut dim = Dim::with_points(DimProfile::RxEqe, points);
        assert_eq!(
            dim.current_moderation(),
            Moderation { delay: Nanos::from_us(4), frames: Some(0) }
        );
        let place = |points: [(u32, u32); 5], delay_us: u64| {
            points.iter().position(|point| u64::from(point.0) == delay_us)
        };
        let walked = feed_polls(&mut dim, 65 * 4, 100).into_iter().map(|it| place(points, it));
        let library = feed_polls(&mut Dim::new(DimProfile::RxEqe), 65 * 4, 100).into_iter();
        let library = library.map(|it| place(DimProfile::RxEqe.points(), it));
        assert_eq!(walked.collect::<Vec<_>>(), library.collect::<Vec<_>>());
        assert_eq!(
            dim.current_moderation(),
            Moderation { delay: Nanos::from_us(4), frames: Some(0) }
        );
    }

    /// Polls at a fixed pace with fixed counts; gives the delay in microseconds after each change.
    fn feed_polls(dim: &mut Dim, polls: u64, spacing_us: u64) -> Vec<u64> {
        let mut visited = Vec::new();
        let start_us = dim
            .sample
            .start
            .map_or(0, |start| start.as_ns() / 1_000 + dim.sample.interrupts * spacing_us);
        for poll in 1..=polls {
            let decision = dim.step(&QueueObservation {
                now: Nanos::from_us(start_us + poll * spacing_us),
                rx: TrafficCounts { packets: 10, bytes: 15_000 },
                interrupts: 1,
                ..QueueObservation::default()
            });
            if let Decision::Change { target, .. } = decision {
                visited.push(target.delay.as_ns() / 1_000);
            }
        }
        visited
    }
}
