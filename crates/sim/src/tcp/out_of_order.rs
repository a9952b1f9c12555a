//! Out-of-order ranges of a received stream.

/// Sorted, disjoint ranges of bytes. Mostly there is one, so the first is stored inline.
#[derive(Clone, Debug)]
pub(super) struct OutOfOrder {
    first: (u64, u64),
    others: Vec<(u64, u64)>,
}

impl OutOfOrder {
    /// One range.
    pub(super) const fn new(from: u64, to: u64) -> Self {
        Self { first: (from, to), others: Vec::new() }
    }

    /// Adds a range.
    pub(super) fn insert_range(&mut self, mut from: u64, mut to: u64) {
        let (start, end) = self.first;
        if self.others.is_empty() && from <= end && start <= to {
            self.first = (from.min(start), to.max(end));
            return;
        }
        self.others.insert(0, self.first);
        self.others.retain(|&(start, end)| {
            let apart = end < from || start > to;
            if !apart {
                from = from.min(start);
                to = to.max(end);
            }
            apart
        });
        let at = self.others.partition_point(|range| range.0 < from);
        self.others.insert(at, (from, to));
        self.first = self.others.remove(0);
    }

    /// Removes the ranges that continue `received` and advances it. Returns whether any are left.
    pub(super) fn go_on(&mut self, received: &mut u64) -> bool {
        while self.first.0 <= *received {
            *received = (*received).max(self.first.1);
            if self.others.is_empty() {
                return false;
            }
            self.first = self.others.remove(0);
        }
        true
    }
}
