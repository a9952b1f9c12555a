//! Changes of TCP connections between two readings, and these by port or by peer: the busiest groups, and the other
//! connections together.

use std::collections::{BTreeMap, BTreeSet};

use latput_linux::TcpConnection;
use latput_trial::live::{GroupBy, MOST_GROUPS, TcpGroup};
use latput_trial::observation::TcpObservation;
use latput_units::{IntoSet, Nanos};

/// Most groups of which the payload is known.
const MOST_KNOWN: usize = 4096;

/// Whether a connection is there in a reading, or has ended since the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionState {
    Open,
    Ended,
}

/// Changes of a connection between two readings.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionDelta {
    pub(super) acked_bytes: u64,
    pub(super) received_bytes: u64,
    retransmitted: u64,
    /// Whether its round-trip time is of this while: one that moved nothing has that of an earlier setting.
    pub(super) has_sample: bool,
}

impl ConnectionDelta {
    /// Of a connection that had these counts before, or none if it is new.
    pub(super) fn from_readings(one: &TcpConnection, before: Option<&TcpConnection>) -> Self {
        let grown = |of: fn(&TcpConnection) -> Option<u64>| {
            let (now, then) = (of(one)?, before.map_or(Some(0), of)?);
            Some(now.saturating_sub(then))
        };
        let acked = grown(|it| it.acked_bytes);
        let received = grown(|it| it.received_bytes);
        let has_moved =
            acked.is_none_or(|bytes| bytes > 0) || received.is_some_and(|bytes| bytes > 0);
        Self {
            acked_bytes: acked.unwrap_or(0),
            received_bytes: received.unwrap_or(0),
            retransmitted: grown(|it| Some(it.retransmitted.into())).unwrap_or(0),
            has_sample: has_moved && one.rtt.as_ns() != 0,
        }
    }

    /// Adds it to what was seen of several, without the deviation of its round-trip time.
    pub(super) fn add_to(&self, seen: &mut TcpObservation, one: &TcpConnection) {
        seen.acked_bytes = seen.acked_bytes.saturating_add(self.acked_bytes);
        seen.received_bytes = seen.received_bytes.saturating_add(self.received_bytes);
        seen.retransmitted = seen.retransmitted.saturating_add(self.retransmitted);
        if !self.has_sample {
            return;
        }
        seen.rtt.record(one.rtt);
        seen.min_rtt = seen.min_rtt.into_iter().chain(one.min_rtt).min();
        if let Some(rate) = one.delivery_bytes_per_s.filter(|rate| *rate > 0) {
            seen.delivery_bytes_per_s_sum = seen.delivery_bytes_per_s_sum.saturating_add(rate);
            seen.deliveries += 1;
        }
    }
}

/// All payload of a connection's life.
fn total_payload(one: &TcpConnection) -> u64 {
    let parts = [one.acked_bytes, one.received_bytes].map(Option::unwrap_or_default);
    parts[0].saturating_add(parts[1])
}

/// The payload of each group so far, over all blocks: the groups of a block are chosen before it by this, so that a setting
/// does not choose what is told of it.
#[derive(Debug, Default)]
pub(crate) struct PayloadTotals(BTreeMap<TcpGroup, u64>);

/// The groups of a block.
#[derive(Debug)]
pub(super) struct ConnectionGroups {
    by: GroupBy,
    /// Ports that this host listens on.
    listening: BTreeSet<u16>,
    payloads: PayloadTotals,
    /// Those that are told of; the connections of all others are together.
    chosen: BTreeSet<TcpGroup>,
    /// Whether nothing was known before the block: then those that appear first are chosen too.
    is_first: bool,
    seen: BTreeMap<TcpGroup, TcpObservation>,
    /// Connections of the reading that is under way.
    in_reading: BTreeMap<TcpGroup, u64>,
}

impl ConnectionGroups {
    pub(super) fn new(by: GroupBy, listening: BTreeSet<u16>, payloads: PayloadTotals) -> Self {
        let (chosen, seen, in_reading) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
        let is_first = payloads.0.is_empty();
        Self { by, listening, payloads, chosen, is_first, seen, in_reading }
    }

    /// Chooses the groups, by the payload so far; where that is not known yet, by that of these connections' lives.
    pub(super) fn choose_groups<'c>(&mut self, found: impl Iterator<Item = &'c TcpConnection>) {
        let mut of_lives = PayloadTotals::default();
        for one in found.filter(|_| self.payloads.0.is_empty()) {
            of_lives.add(self.group_of(one), total_payload(one));
        }
        let known = if self.payloads.0.is_empty() { &of_lives } else { &self.payloads };
        self.chosen = known.busiest_groups(MOST_GROUPS).into_set();
    }

    /// Adds a connection of a reading.
    pub(super) fn add(
        &mut self,
        one: &TcpConnection,
        moved: &ConnectionDelta,
        is: ConnectionState,
    ) {
        let own = self.group_of(one);
        self.payloads.add(own, moved.acked_bytes.saturating_add(moved.received_bytes));
        let group = self.told_as(own);
        let seen = self.seen.entry(group).or_default();
        let in_reading = self.in_reading.entry(group).or_default();
        match is {
            ConnectionState::Open => *in_reading += 1,
            ConnectionState::Ended => *seen.ended.get_or_insert(0) += 1,
        }
        moved.add_to(seen, one);
    }

    /// Adds a round-trip sample of a connection.
    pub(super) fn add_sample(&mut self, one: &TcpConnection, sample: Nanos) {
        let group = self.told_as(self.group_of(one));
        self.seen.entry(group).or_default().rtt_samples.record(sample);
    }

    /// Ends a reading; `tells_ends` where the kernel tells of connections that end.
    pub(super) fn end_reading(&mut self, tells_ends: bool) {
        for (group, connections) in std::mem::take(&mut self.in_reading) {
            let seen = self.seen.entry(group).or_default();
            seen.readings += 1;
            seen.connections = seen.connections.max(connections);
            if tells_ends {
                seen.ended.get_or_insert(0);
            }
        }
    }

    /// Takes the changes since the last call.
    pub(super) fn take(&mut self) -> BTreeMap<TcpGroup, TcpObservation> {
        let mut seen = std::mem::take(&mut self.seen);
        for group in seen.values_mut() {
            group.rtt.pack();
            group.rtt_samples.pack();
        }
        seen
    }

    pub(super) fn into_payloads(self) -> PayloadTotals {
        self.payloads
    }

    /// The group itself, or that of the others.
    fn told_as(&mut self, own: TcpGroup) -> TcpGroup {
        if self.is_first && self.chosen.len() < MOST_GROUPS {
            self.chosen.insert(own);
        }
        if self.chosen.contains(&own) { own } else { TcpGroup::Others }
    }

    fn group_of(&self, one: &TcpConnection) -> TcpGroup {
        match self.by {
            GroupBy::Peer => TcpGroup::Peer(one.remote.0),
            GroupBy::Port if self.listening.contains(&one.local.1) => TcpGroup::Local(one.local.1),
            GroupBy::Port => TcpGroup::Remote(one.remote.1),
        }
    }
}

impl PayloadTotals {
    fn add(&mut self, group: TcpGroup, bytes: u64) {
        if self.0.len() >= MOST_KNOWN && !self.0.contains_key(&group) {
            let kept: BTreeSet<TcpGroup> = self.busiest_groups(MOST_KNOWN / 2).into_set();
            self.0.retain(|group, _| kept.contains(group));
        }
        let sum = self.0.entry(group).or_default();
        *sum = sum.saturating_add(bytes);
    }

    /// The groups with the most payload.
    fn busiest_groups(&self, count: usize) -> Vec<TcpGroup> {
        let mut sorted: Vec<(&TcpGroup, &u64)> = self.0.iter().collect();
        sorted.sort_by_key(|(_, bytes)| std::cmp::Reverse(**bytes));
        sorted.into_iter().take(count).map(|(group, _)| *group).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn make_connection(local: u16, remote: (&str, u16), acked: u64) -> TcpConnection {
        TcpConnection {
            cookie: acked,
            local: ("10.0.0.1".parse().unwrap(), local),
            remote: (remote.0.parse::<IpAddr>().unwrap(), remote.1),
            rtt: Nanos::from_us(200),
            rtt_deviation: Nanos::from_us(10),
            min_rtt: None,
            retransmitted: 0,
            acked_bytes: Some(acked),
            received_bytes: Some(0),
            delivery_bytes_per_s: None,
            idle: Nanos::ZERO,
        }
    }

    fn read(groups: &mut ConnectionGroups, found: &[TcpConnection]) -> Vec<(String, u64, u64)> {
        groups.choose_groups(found.iter());
        for one in found {
            groups.add(one, &ConnectionDelta::from_readings(one, None), ConnectionState::Open);
        }
        groups.end_reading(true);
        let seen = groups.take().into_iter();
        seen.map(|(group, it)| (group.to_string(), it.connections, it.acked_bytes)).collect()
    }

    #[test]
    fn service_is_found_by_listening_port() {
        let mut groups =
            ConnectionGroups::new(GroupBy::Port, [443].into(), PayloadTotals::default());
        let found = [
            make_connection(443, ("10.0.0.7", 50_000), 5),
            make_connection(443, ("10.0.0.8", 50_001), 7),
            make_connection(40_000, ("10.0.0.9", 443), 11),
        ];
        let seen = read(&mut groups, &found);
        assert_eq!(seen, [("local:443".to_owned(), 2, 12), ("remote:443".to_owned(), 1, 11)]);
        assert_eq!(groups.take(), BTreeMap::new());
    }

    #[test]
    fn busiest_are_told_of_and_the_rest_together() {
        let mut groups =
            ConnectionGroups::new(GroupBy::Peer, BTreeSet::new(), PayloadTotals::default());
        let peers: Vec<String> = (1..=40).map(|host| format!("10.0.0.{host}")).collect();
        let found: Vec<TcpConnection> =
            (1..).zip(&peers).map(|(bytes, peer)| make_connection(9, (peer, 443), bytes)).collect();
        let seen = read(&mut groups, &found);
        assert_eq!(seen.len(), MOST_GROUPS + 1);
        assert_eq!(seen[0].0, "10.0.0.25", "24 peers have less");
        assert_eq!(seen[MOST_GROUPS], ("others".to_owned(), 24, (1..=24).sum()));
        // In the next block those count that were busy in this one, not those that were long before it.
        let mut next =
            ConnectionGroups::new(GroupBy::Peer, BTreeSet::new(), groups.into_payloads());
        let seen = read(&mut next, &[make_connection(9, ("10.0.0.1", 443), 1 << 40)]);
        assert_eq!(seen, [("others".to_owned(), 1, 1 << 40)]);
    }

    #[test]
    fn groups_that_appear_first_are_chosen() {
        let mut groups =
            ConnectionGroups::new(GroupBy::Port, [80].into(), PayloadTotals::default());
        groups.choose_groups([].iter());
        let short = make_connection(80, ("10.0.0.7", 50_000), 5);
        groups.add(&short, &ConnectionDelta::from_readings(&short, None), ConnectionState::Ended);
        groups.end_reading(true);
        let seen = groups.take();
        assert_eq!(seen.keys().collect::<Vec<_>>(), [&TcpGroup::Local(80)]);
        assert_eq!(seen[&TcpGroup::Local(80)].ended, Some(1));
        // The groups of a later block are those of the blocks before.
        let mut next =
            ConnectionGroups::new(GroupBy::Port, [80, 81].into(), groups.into_payloads());
        next.choose_groups([].iter());
        let other = make_connection(81, ("10.0.0.7", 50_000), 5);
        next.add(&other, &ConnectionDelta::from_readings(&other, None), ConnectionState::Ended);
        assert_eq!(next.take().into_keys().collect::<Vec<_>>(), [TcpGroup::Others]);
    }

    #[test]
    fn any_number_of_peers_takes_a_bounded_space() {
        let mut payloads = PayloadTotals::default();
        for host in 0..50_000_u32 {
            let busy = u64::from(host % 1000 == 0) * 1000;
            payloads.add(TcpGroup::Peer(IpAddr::V4(host.into())), busy + 1);
        }
        assert!(payloads.0.len() <= MOST_KNOWN);
        let busiest = payloads.busiest_groups(50);
        assert!(busiest.contains(&TcpGroup::Peer(IpAddr::V4(1000.into()))), "it was not forgotten");
    }
}
