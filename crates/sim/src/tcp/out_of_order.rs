//! What a receiver keeps of a stream that has a hole.

/// Ranges of bytes, sorted and apart.
#[derive(Clone, Debug, Default)]
pub(super) struct OutOfOrder(Vec<(u64, u64)>);

impl OutOfOrder {
    /// Adds a range.
    pub(super) fn keep(&mut self, mut from: u64, mut to: u64) {
        self.0.retain(|&(start, end)| {
            let apart = end < from || start > to;
            if !apart {
                from = from.min(start);
                to = to.max(end);
            }
            apart
        });
        let at = self.0.partition_point(|range| range.0 < from);
        self.0.insert(at, (from, to));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the ranges that follow on bytes before `received`; gives what is received then.
    pub(super) fn go_on(&mut self, mut received: u64) -> u64 {
        while let Some(&(start, end)) = self.0.first()
            && start <= received
        {
            received = received.max(end);
            self.0.remove(0);
        }
        received
    }
}
