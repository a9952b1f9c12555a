//! Requests in flight, and the meaning of a response. Pure.

use latput_units::Nanos;

/// Initial and largest number of remembered requests.
const FIRST_MEMORY: usize = 1 << 12;
const LONGEST_MEMORY: usize = 1 << 22;

/// One request, identified by its number in the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InFlightRequest {
    /// The flow on which it was sent.
    pub(super) flow: u32,
    /// The slice of the window in which it was sent, if it counts.
    pub(super) slice: Option<u32>,
    /// When it was due.
    pub(super) due: Nanos,
    /// When it was sent.
    pub(super) sent_at: Nanos,
}

/// The meaning of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The first answer to a request in flight.
    Answer(InFlightRequest),
    /// The first answer to a request that counted as lost.
    Late(InFlightRequest),
    /// A further answer.
    Duplicate(InFlightRequest),
    /// The answer to a forgotten request or to one that was never sent.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestState {
    Waiting,
    Answered,
    Lost,
}

/// The requests of one thread. All have the same timeout, so the oldest expires first.
#[derive(Clone, Debug)]
pub(super) struct InFlightTable {
    /// Requests by their number modulo the length.
    memory: Vec<Option<(InFlightRequest, RequestState)>>,
    next: u64,
    oldest_waiting: u64,
    timeout: Nanos,
}

impl InFlightTable {
    pub(super) fn new(timeout: Nanos) -> Self {
        Self { memory: vec![None; FIRST_MEMORY], next: 0, oldest_waiting: 0, timeout }
    }

    /// The number of the next request.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Stores the next request. If an unanswered request would be overwritten, the memory grows. At
    /// its largest size the overwritten request is returned as lost.
    pub(super) fn enter(&mut self, request: InFlightRequest) -> Option<InFlightRequest> {
        let mut given_up = None;
        if self.next - self.oldest_waiting == self.memory.len() as u64 {
            if self.memory.len() < LONGEST_MEMORY {
                self.grow();
            } else {
                given_up = self.give_up_oldest();
            }
        }
        let place = self.place(self.next);
        self.memory[place] = Some((request, RequestState::Waiting));
        self.next += 1;
        given_up
    }

    /// Stores that a response to request `number` came on `flow`.
    pub(super) fn answered(&mut self, number: u64, flow: u32) -> Meaning {
        let remembered = self.next.saturating_sub(self.memory.len() as u64)..self.next;
        if !remembered.contains(&number) {
            return Meaning::Unknown;
        }
        let place = self.place(number);
        let Some((request, state)) = &mut self.memory[place] else { return Meaning::Unknown };
        if request.flow != flow {
            return Meaning::Unknown;
        }
        let before = std::mem::replace(state, RequestState::Answered);
        match before {
            RequestState::Waiting => Meaning::Answer(*request),
            RequestState::Lost => Meaning::Late(*request),
            RequestState::Answered => Meaning::Duplicate(*request),
        }
    }

    /// Expires the oldest request if it has timed out at `now`.
    pub(super) fn expire(&mut self, now: Nanos) -> Option<InFlightRequest> {
        match self.oldest()? {
            request if request.sent_at.saturating_add(self.timeout) <= now => self.give_up_oldest(),
            _ => None,
        }
    }

    /// When the oldest request expires.
    pub(super) fn next_expiry(&mut self) -> Option<Nanos> {
        self.oldest().map(|request| request.sent_at.saturating_add(self.timeout))
    }

    /// The oldest unanswered request.
    fn oldest(&mut self) -> Option<InFlightRequest> {
        while self.oldest_waiting < self.next {
            match self.memory[self.place(self.oldest_waiting)] {
                Some((request, RequestState::Waiting)) => return Some(request),
                _ => self.oldest_waiting += 1,
            }
        }
        None
    }

    fn give_up_oldest(&mut self) -> Option<InFlightRequest> {
        let request = self.oldest()?;
        let place = self.place(self.oldest_waiting);
        self.memory[place] = Some((request, RequestState::Lost));
        self.oldest_waiting += 1;
        Some(request)
    }

    fn grow(&mut self) {
        let length = self.memory.len();
        let mut longer = vec![None; length * 2];
        for number in self.next.saturating_sub(length as u64)..self.next {
            longer[place_of(number, length * 2)] = self.memory[place_of(number, length)];
        }
        self.memory = longer;
    }

    fn place(&self, number: u64) -> usize {
        place_of(number, self.memory.len())
    }
}

/// `length` is a power of two.
#[expect(clippy::cast_possible_truncation, reason = "below the length")]
fn place_of(number: u64, length: usize) -> usize {
    (number & (length as u64 - 1)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Nanos = Nanos::from_ms(1);

    #[test]
    fn every_response_means_one_thing() {
        let mut in_flight = InFlightTable::new(TIMEOUT);
        for number in 0..3 {
            assert_eq!(in_flight.enter(request(number)), None);
        }
        assert_eq!(in_flight.answered(1, 0), Meaning::Answer(request(1)));
        assert_eq!(in_flight.answered(1, 0), Meaning::Duplicate(request(1)));
        assert_eq!(in_flight.answered(2, 9), Meaning::Unknown, "of another flow");
        assert_eq!(in_flight.answered(3, 0), Meaning::Unknown, "never sent");
        assert_eq!(in_flight.answered(u64::MAX, 0), Meaning::Unknown);
        assert_eq!(in_flight.expire(TIMEOUT), Some(request(0)));
        assert_eq!(in_flight.answered(0, 0), Meaning::Late(request(0)));
        assert_eq!(in_flight.answered(0, 0), Meaning::Duplicate(request(0)));
    }

    #[test]
    fn requests_expire_once_in_order() {
        let mut in_flight = InFlightTable::new(TIMEOUT);
        for number in 0..4 {
            in_flight.enter(request(number));
        }
        in_flight.answered(1, 0);
        assert_eq!(in_flight.next_expiry(), Some(TIMEOUT));
        assert_eq!(in_flight.expire(TIMEOUT - Nanos::from_ns(1)), None);
        let at = TIMEOUT + Nanos::from_us(2);
        assert_eq!(in_flight.expire(at), Some(request(0)));
        assert_eq!(in_flight.expire(at), Some(request(2)));
        assert_eq!(in_flight.expire(at), None, "the last one was sent 1 us later");
        assert_eq!(in_flight.next_expiry(), Some(TIMEOUT + Nanos::from_us(3)));
    }

    #[test]
    fn memory_grows_only_while_waiting() {
        let mut in_flight = InFlightTable::new(Nanos::from_s(10));
        let last = 3 * FIRST_MEMORY as u64;
        for number in 0..=last {
            assert_eq!(in_flight.enter(request(number)), None);
            assert!(
                number == 0 || in_flight.answered(number, 0) == Meaning::Answer(request(number))
            );
        }
        assert_eq!(in_flight.answered(0, 0), Meaning::Answer(request(0)));
        assert_eq!(in_flight.memory.len(), 4 * FIRST_MEMORY);
        assert_eq!(in_flight.next_expiry(), None);
    }

    #[test]
    fn memory_is_bounded() {
        let mut in_flight = InFlightTable::new(Nanos::from_s(10));
        for number in 0..LONGEST_MEMORY as u64 {
            assert_eq!(in_flight.enter(request(number)), None);
        }
        assert_eq!(in_flight.enter(request(0)), Some(request(0)));
        assert_eq!(in_flight.memory.len(), LONGEST_MEMORY);
        assert_eq!(in_flight.answered(0, 0), Meaning::Unknown);
    }

    /// Sent a microsecond after the one before.
    fn request(number: u64) -> InFlightRequest {
        let at = Nanos::from_us(number);
        InFlightRequest { flow: 0, slice: Some(0), due: at, sent_at: at }
    }
}
