//! A host's timers. With thousands of streams there are thousands, of which only the next few must
//! be sorted.
//!
//! Most timers are set well ahead and postponed long before they expire. Until then they stay in a
//! list of all timers due in the same few milliseconds. When the list is due, all its timers are
//! checked together, which suits the caches, and the remaining ones are sorted.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::agenda::{NEVER, Time};

/// Due time and id of a timer. Equal times go to the lower id.
type Timer = (Time, u32);

/// Each list covers 2^22 ns, about four milliseconds.
const SPAN_BITS: u32 = 22;
/// Number of lists: they cover a second, more than TCP's shortest timeouts.
const SPANS: u64 = 256;

/// Timers in order of their time.
#[derive(Debug)]
pub(crate) struct TimerQueue {
    first: Timer,
    /// Sorted timers of spans before `edge`, the next one last.
    near: Vec<Timer>,
    edge: u64,
    /// Timers of the spans from `edge` on; span `n` is in list `n % SPANS`.
    later: Vec<Vec<Timer>>,
    /// Timers beyond the lists.
    far: BinaryHeap<Reverse<Timer>>,
}

impl TimerQueue {
    pub(crate) fn new() -> Self {
        Self {
            first: (NEVER, u32::MAX),
            near: Vec::new(),
            edge: 0,
            later: (0..SPANS).map(|_| Vec::new()).collect(),
            far: BinaryHeap::new(),
        }
    }

    /// Due time of the first timer; [`NEVER`] if there is none.
    #[inline]
    pub(crate) const fn next(&self) -> Time {
        self.first.0
    }

    pub(crate) fn push(&mut self, at: Time, number: u32) {
        let timer = (at, number);
        self.first = self.first.min(timer);
        let span = at >> SPAN_BITS;
        if span < self.edge {
            let place = self.near.partition_point(|other| *other > timer);
            self.near.insert(place, timer);
        } else if span - self.edge < SPANS {
            self.later[list_of(span)].push(timer);
        } else {
            self.far.push(Reverse(timer));
        }
    }

    /// Removes the first timer if it is due. Before a span is sorted, `put_off` gives the present
    /// due time of each of its timers, if that is later; [`NEVER`] removes the timer.
    pub(crate) fn pop_due(
        &mut self,
        now: Time,
        mut put_off: impl FnMut(Timer) -> Time,
    ) -> Option<Timer> {
        while self.first.0 <= now {
            let timer = self.near.pop();
            if timer.is_none() {
                self.open(self.first.0 >> SPAN_BITS, &mut put_off);
            }
            self.first = self.near.last().copied().unwrap_or_else(|| self.first_of_rest());
            if timer.is_some() {
                return timer;
            }
        }
        None
    }

    /// Sorts a span. No earlier span has timers.
    fn open(&mut self, span: u64, mut put_off: impl FnMut(Timer) -> Time) {
        self.edge = span + 1;
        let mut opened = std::mem::take(&mut self.later[list_of(span)]);
        while let Some(Reverse(timer)) = self.far.peek()
            && timer.0 >> SPAN_BITS <= span
        {
            opened.extend(self.far.pop().map(|Reverse(timer)| timer));
        }
        opened.retain_mut(|timer| {
            let at = put_off(*timer);
            let stays = at >> SPAN_BITS <= span;
            if !stays && at < NEVER {
                self.push(at, timer.1);
            }
            timer.0 = at;
            stays
        });
        opened.sort_unstable_by_key(|timer| Reverse(*timer));
        self.near = opened;
    }

    fn first_of_rest(&self) -> Timer {
        let far = self.far.peek().map_or((NEVER, u32::MAX), |Reverse(timer)| *timer);
        let mut lists = (0..SPANS).map(|ahead| &self.later[list_of(self.edge + ahead)]);
        let next = lists.find(|list| !list.is_empty());
        next.into_iter().flatten().fold(far, |first, timer| first.min(*timer))
    }
}

const fn list_of(span: u64) -> usize {
    (span % SPANS) as usize
}

#[cfg(test)]
mod tests {
    use latput_units::SeededRng;

    use super::*;

    #[test]
    fn timers_fire_in_order() {
        for seed in 0..50 {
            let mut rng = SeededRng::from_seed(seed);
            let (mut timers, mut heap) = (TimerQueue::new(), BinaryHeap::<Reverse<Timer>>::new());
            let mut now = 0;
            // Thousands of them or, as a rule, very few.
            let most = [3, 5_000][rng.next_below(2)];
            for _ in 0..20_000 {
                now += rng.next_u64() % [10, 100_000, 50_000_000][rng.next_below(3)];
                while let Some(&Reverse(first)) = heap.peek()
                    && first.0 <= now
                {
                    let next = timers.next();
                    assert_eq!((next, timers.pop_due(now, |(at, _)| at)), (first.0, Some(first)));
                    heap.pop();
                }
                assert_eq!(timers.pop_due(now, |(at, _)| at), None);
                let next = heap.peek().map_or(NEVER, |Reverse(first)| first.0);
                assert_eq!(timers.next(), next);
                if heap.len() < most {
                    let ahead = [1, 1_000_000, 40_000_000, 200_000_000, 120_000_000_000];
                    let at = now + rng.next_u64() % ahead[rng.next_below(5)];
                    // Some at the same time, to the nanosecond.
                    let at = [at, at & !0xf_ffff][rng.next_below(2)].max(now);
                    let number = u32::try_from(rng.next_below(8)).unwrap();
                    timers.push(at, number);
                    heap.push(Reverse((at, number)));
                }
            }
        }
    }

    #[test]
    fn postponed_event_is_never_late() {
        let mut rng = SeededRng::from_seed(6);
        let (mut timers, mut due, mut now) = (TimerQueue::new(), Vec::new(), 0);
        let (mut on_time, mut early) = (0, 0);
        for _ in 0..50_000 {
            // Set for a time; before it comes it is known to be later, or not to come at all.
            let set = now + rng.next_u64() % 200_000_000;
            let later = [0, 5_000, 3_000_000, 400_000_000][rng.next_below(4)];
            due.push(if rng.next_below(5) == 0 { NEVER } else { set + later });
            timers.push(set, u32::try_from(due.len() - 1).unwrap());
            now += rng.next_u64() % 200_000;
            while let Some((at, number)) =
                timers.pop_due(now, |(at, number)| at.max(due[number as usize]))
            {
                let time = due[number as usize];
                assert!(at <= time, "{at} is after {time}");
                if at == time {
                    on_time += 1;
                    due[number as usize] = NEVER;
                } else if time < NEVER {
                    early += 1;
                    timers.push(time, number);
                }
            }
            assert!(now < timers.next());
        }
        let missed = due.iter().filter(|time| **time <= now).count();
        assert_eq!(missed, 0);
        assert!(on_time > 35_000 && early < 1_000, "{on_time} on time, {early} early");
    }
}
