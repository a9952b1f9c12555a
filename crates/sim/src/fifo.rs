//! A queue in a ring buffer of a power-of-two size, for packets in flight and waiting work.
//!
//! It doubles when full, so that a run soon stops allocating, and never shrinks.

/// First in, first out.
#[derive(Clone, Debug)]
pub(crate) struct Fifo<T> {
    items: Box<[T]>,
    head: usize,
    len: usize,
}

impl<T: Copy + Default> Fifo<T> {
    /// An empty queue with room for at least `capacity` items.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        let size = capacity.next_power_of_two().max(4);
        Self { items: vec![T::default(); size].into(), head: 0, len: 0 }
    }

    /// An empty queue that allocates at its first item.
    pub(crate) fn empty() -> Self {
        Self { items: Box::default(), head: 0, len: 0 }
    }

    /// Number of items.
    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Whether it is empty.
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The slot of a position. Positions wrap; the ring has room for at least one item.
    #[inline]
    const fn slot_index(&self, position: usize) -> usize {
        self.head.wrapping_add(position) & self.items.len().wrapping_sub(1)
    }

    /// Adds at the end.
    #[inline]
    pub(crate) fn push(&mut self, item: T) {
        if self.len == self.items.len() {
            self.grow();
        }
        let slot = self.slot_index(self.len);
        self.items[slot] = item;
        self.len += 1;
    }

    /// Takes from the front.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.len == 0 {
            return None;
        }
        let item = self.items[self.head];
        self.drop_front();
        Some(item)
    }

    /// Removes the front item.
    #[inline]
    pub(crate) fn drop_front(&mut self) {
        debug_assert!(self.len > 0);
        self.len -= 1;
        // Reset when empty, so that short queues stay in the same cache lines.
        self.head = if self.len == 0 { 0 } else { self.slot_index(1) };
    }

    /// The item at the front.
    #[inline]
    pub(crate) fn front(&self) -> Option<&T> {
        (self.len > 0).then(|| &self.items[self.head])
    }

    /// The item at the front, to be changed in place.
    #[inline]
    pub(crate) fn front_mut(&mut self) -> Option<&mut T> {
        (self.len > 0).then(|| &mut self.items[self.head])
    }

    /// The item at the end, to be changed in place.
    #[inline]
    pub(crate) fn back_mut(&mut self) -> Option<&mut T> {
        let last = self.len.checked_sub(1)?;
        let slot = self.slot_index(last);
        Some(&mut self.items[slot])
    }

    /// The items from front to end.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.len).map(|position| &self.items[self.slot_index(position)])
    }

    #[cold]
    fn grow(&mut self) {
        let mut larger = Self::with_capacity(self.items.len() * 2);
        for position in 0..self.len {
            larger.items[position] = self.items[self.slot_index(position)];
        }
        self.items = larger.items;
        self.head = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use latput_units::SeededRng;

    use super::*;

    #[test]
    fn fifo_equals_a_deque() {
        let mut rng = SeededRng::from_seed(3);
        let mut fifo = Fifo::empty();
        let mut model = VecDeque::new();
        for value in 0..5_000_u64 {
            // Slightly more pushes than pops, so that it grows while wrapped.
            if rng.next_below(100) < 52 {
                fifo.push(value);
                model.push_back(value);
            } else {
                assert_eq!(fifo.pop(), model.pop_front());
            }
            assert_eq!(fifo.len(), model.len());
            assert_eq!(fifo.front(), model.front());
            assert_eq!(fifo.is_empty(), model.is_empty());
        }
    }
}
