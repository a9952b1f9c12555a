//! A queue in order of time. It caches the first time, which is read far more often than the queue
//! changes.

use crate::agenda::{NEVER, Time};
use crate::fifo::Fifo;

/// An item with a time.
pub(crate) trait Timed {
    /// The time of the item; of a burst, of its first packet.
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

    /// Time of the first item; [`NEVER`] if empty.
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

    /// The first item. The queue must not be empty.
    #[inline]
    pub(crate) fn front(&self) -> &T {
        self.items.front().expect("the caller saw that something comes")
    }

    /// Removes the first item.
    #[inline]
    pub(crate) fn drop_front(&mut self) {
        self.items.drop_front();
        self.next = self.items.front().map_or(NEVER, T::at);
    }

    /// Replaces the first item by its rest.
    #[inline]
    pub(crate) fn set_front(&mut self, rest: T) {
        self.next = rest.at();
        *self.items.front_mut().expect("the caller saw that something comes") = rest;
    }

    /// The last item, to be changed in place. Its time must stay.
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
    fn time_at_hand_is_that_of_the_first() {
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
