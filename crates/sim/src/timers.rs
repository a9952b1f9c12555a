//! A host's timers: with thousands of streams thousands of them, of which only the next few must be in order.
//!
//! Most are set for some time ahead and reach it long after. Until then they lie in a list of all that are due
//! within the same few milliseconds; a heap has those of the present ones and those that are very far away.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::agenda::{NEVER, Time};

/// When it is due, and what it is; equal times go to the lower number.
type Timer = (Time, u32);

/// A list has the timers of 2^22 ns, which is about four milliseconds.
const SPAN_BITS: u32 = 22;
/// Lists, one for each bit of a word: a quarter of a second, which is more than TCP's shortest timeout.
const SPANS: u64 = 64;

/// Timers in order of their time.
#[derive(Debug)]
pub(crate) struct Timers {
    first: Timer,
    /// Those of spans before `edge`.
    near: BinaryHeap<Reverse<Timer>>,
    edge: u64,
    /// Those of the spans from `edge` on, of span `n` in list `n % SPANS`, and which lists have any.
    later: Vec<Vec<Timer>>,
    filled: u64,
    /// Those that were farther away than the lists reach.
    far: BinaryHeap<Reverse<Timer>>,
}

impl Timers {
    pub(crate) fn new() -> Self {
        Self {
            first: (NEVER, u32::MAX),
            near: BinaryHeap::new(),
            edge: 0,
            later: (0..SPANS).map(|_| Vec::new()).collect(),
            filled: 0,
            far: BinaryHeap::new(),
        }
    }

    /// When the first is due; [`NEVER`] if there is none.
    #[inline]
    pub(crate) const fn next(&self) -> Time {
        self.first.0
    }

    pub(crate) fn push(&mut self, at: Time, number: u32) {
        let timer = (at, number);
        self.first = self.first.min(timer);
        let span = at >> SPAN_BITS;
        if span < self.edge {
            self.near.push(Reverse(timer));
        } else if span - self.edge < SPANS {
            self.later[list_of(span)].push(timer);
            self.filled |= 1 << list_of(span);
        } else {
            self.far.push(Reverse(timer));
        }
    }

    /// Takes the first, if its time has come.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<Timer> {
        if self.first.0 > now {
            return None;
        }
        if self.near.is_empty() {
            self.open(self.first.0 >> SPAN_BITS);
        }
        let Reverse(timer) = self.near.pop()?;
        self.first = match self.near.peek() {
            Some(Reverse(next)) => *next,
            None => self.first_of_rest(),
        };
        Some(timer)
    }

    /// Puts a span, before which there is none with timers, in order.
    fn open(&mut self, span: u64) {
        self.edge = span + 1;
        self.near.extend(self.later[list_of(span)].drain(..).map(Reverse));
        self.filled &= !(1 << list_of(span));
        while let Some(Reverse(timer)) = self.far.peek()
            && timer.0 >> SPAN_BITS < self.edge
        {
            self.near.extend(self.far.pop());
        }
    }

    fn first_of_rest(&self) -> Timer {
        let far = self.far.peek().map_or((NEVER, u32::MAX), |Reverse(timer)| *timer);
        if self.filled == 0 {
            return far;
        }
        let turned = self.filled.rotate_right((self.edge % SPANS) as u32);
        let span = self.edge + u64::from(turned.trailing_zeros());
        self.later[list_of(span)].iter().fold(far, |first, timer| first.min(*timer))
    }
}

const fn list_of(span: u64) -> usize {
    (span % SPANS) as usize
}

#[cfg(test)]
mod tests {
    use latput_units::Rng;

    use super::*;

    #[test]
    fn timers_come_in_order_of_time_and_number_however_far_ahead_they_were_set() {
        for seed in 0..50 {
            let mut rng = Rng::from_seed(seed);
            let (mut timers, mut heap) = (Timers::new(), BinaryHeap::<Reverse<Timer>>::new());
            let mut now = 0;
            // Thousands of them or, as a rule, very few.
            let most = [3, 5_000][rng.below(2)];
            for _ in 0..20_000 {
                now += rng.next_u64() % [10, 100_000, 50_000_000][rng.below(3)];
                while let Some(&Reverse(first)) = heap.peek()
                    && first.0 <= now
                {
                    assert_eq!((timers.next(), timers.pop_due(now)), (first.0, Some(first)));
                    heap.pop();
                }
                assert_eq!(timers.pop_due(now), None);
                let next = heap.peek().map_or(NEVER, |Reverse(first)| first.0);
                assert_eq!(timers.next(), next);
                if heap.len() < most {
                    let ahead = [1, 1_000_000, 40_000_000, 200_000_000, 120_000_000_000];
                    let at = now + rng.next_u64() % ahead[rng.below(5)];
                    // Some at the same time, to the nanosecond.
                    let at = [at, at & !0xf_ffff][rng.below(2)].max(now);
                    let number = u32::try_from(rng.below(8)).unwrap();
                    timers.push(at, number);
                    heap.push(Reverse((at, number)));
                }
            }
        }
    }
}
