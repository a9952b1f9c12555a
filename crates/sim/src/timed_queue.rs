//! What comes at known times, in order, with the time of the first at hand: it is asked for far more often than anything
//! comes.

use crate::agenda::{NEVER, Time};
use crate::fifo::Fifo;

/// Something that comes at a time.
pub(crate) trait Timed {
    /// That time; of several things together, of the first.
    fn at(&self) -> Time;
}

/// A queue in order of time.
#[derive(Debug)]
pub(crate) struct TimedQueue<T> {
    next: Time,
    items: Fifo<T>,
}

impl<T: Copy + Default + Timed> TimedQueue<T> {
    /// An empty queue with room for at least `capacity` items.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self { next: NEVER, items: Fifo::with_capacity(capacity) }
    }

    /// When the first comes; [`NEVER`] if nothing does.
    #[inline]
    pub(crate) const fn next(&self) -> Time {
        self.next
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Adds at the end.
    #[inline]
    pub(crate) fn push(&mut self, item: T) {
        if self.items.is_empty() {
            self.next = item.at();
        }
        self.items.push(item);
    }

    /// The first, which there must be.
    #[inline]
    pub(crate) fn front(&self) -> &T {
        self.items.front().expect("the caller saw that something comes")
    }

    /// Takes the first, which has been looked at.
    #[inline]
    pub(crate) fn drop_front(&mut self) {
        self.items.drop_front();
        self.next = self.items.front().map_or(NEVER, T::at);
    }

    /// Puts what is left of the first in its place.
    #[inline]
    pub(crate) fn set_front(&mut self, rest: T) {
        self.next = rest.at();
        *self.items.front_mut().expect("the caller saw that something comes") = rest;
    }

    /// The last, to be changed in place; its time must stay.
    #[inline]
    pub(crate) fn back_mut(&mut self) -> Option<&mut T> {
        self.items.back_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Timed for Time {
        fn at(&self) -> Time {
            *self
        }
    }

    #[test]
    fn the_time_at_hand_is_that_of_the_first() {
        let mut queue = TimedQueue::with_capacity(4);
        assert_eq!(queue.next(), NEVER);
        for at in [3, 5, 9] {
            queue.push(at);
            assert_eq!(queue.next(), 3);
        }
        queue.set_front(4);
        assert_eq!((queue.next(), *queue.front()), (4, 4));
        queue.drop_front();
        assert_eq!(queue.next(), 5);
        queue.drop_front();
        queue.drop_front();
        assert_eq!((queue.next(), queue.is_empty()), (NEVER, true));
    }
}
