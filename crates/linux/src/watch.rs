//! Notices when somebody else changes the knobs of an interface.
//!
//! What the knobs should be is compared with what they are: as soon as the kernel tells of a change
//! (rtnetlink's link and queue discipline groups, ethtool's `monitor`), and every so often anyway, because
//! sysfs, sysctls, interrupts and NAPI instances change without a word.

use std::collections::BTreeSet;

use latput_knobs::transaction::Change;
use latput_knobs::{KernelRead, Knob, Place, State, Value};
use latput_units::{Clock, IntoSet, Nanos};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::Error;
use crate::netlink::message::Message;
use crate::netlink::notices::{LINK_GROUP, Notices};
use crate::netlink::{Attributes, Generic, NetlinkError, Protocol, uapi};
use crate::process::OsClock;
use crate::route::Route;

/// `RTNLGRP_TC` beside that of links, `include/uapi/linux/rtnetlink.h`.
const ROUTE_GROUPS: &[u32] = &[LINK_GROUP, 4];
/// `ETHTOOL_MCGRP_MONITOR_NAME`, `include/uapi/linux/ethtool_netlink.h`.
const ETHTOOL_GROUP: &str = "monitor";
const GENERIC_HEADER: usize = 4;

/// The knobs of one interface that nobody else is expected to change.
#[derive(Debug)]
pub struct Watch {
    interface: String,
    /// The kernel's number of it.
    index: u32,
    route: Notices,
    /// `None` on kernels without the family, before 5.6: re-reading is all there is.
    ethtool: Option<Notices>,
    every: Nanos,
    last_read: Nanos,
    expected: State,
}

impl Watch {
    /// Watches `interface` in the calling thread's network namespace; no knob as yet. Knobs without
    /// notices are read again every so often.
    pub fn open(interface: &str, every: Nanos) -> Result<Self, Error> {
        let index = Route::open()?.link(interface)?.index;
        Ok(Self {
            interface: interface.to_owned(),
            index,
            route: Notices::open(Protocol::Route, ROUTE_GROUPS)?,
            ethtool: ethtool_notices()?,
            every,
            last_read: OsClock.now(),
            expected: State::default(),
        })
    }

    /// From now on `knobs` are expected to stay as they are at this moment. Call it after every change
    /// that is one's own.
    pub fn expect(&mut self, kernel: &dyn KernelRead, knobs: impl IntoIterator<Item = Knob>) {
        // Changes noticed until now are the caller's own, or expected.
        let _ = self.is_noticed();
        self.expected = self.read(kernel, &knobs.into_set());
        self.last_read = OsClock.now();
    }

    /// Changes by somebody else, as far as they can be told without waiting: reads only where the kernel has told of a
    /// change, or where the time has come. Tells each change once.
    pub fn poll(&mut self, kernel: &dyn KernelRead) -> Result<Vec<Change>, Error> {
        let is_due = OsClock.now().saturating_sub(self.last_read) >= self.every;
        if self.is_noticed()? || is_due { Ok(self.check(kernel)) } else { Ok(Vec::new()) }
    }

    /// The same, reading in any case.
    pub fn check(&mut self, kernel: &dyn KernelRead) -> Vec<Change> {
        let knobs = self.expected.0.keys().map(|(knob, _)| *knob).into_set();
        let now = self.read(kernel, &knobs);
        self.last_read = OsClock.now();
        let changes = changes(&self.expected, &now);
        // A place that is not there for a moment is expected to come again as it was.
        self.expected.0.extend(now.0);
        changes
    }

    /// Waits for a change by somebody else, at most this long. None came if it is empty.
    pub fn next(&mut self, kernel: &dyn KernelRead, timeout: Nanos) -> Result<Vec<Change>, Error> {
        let end = OsClock.now() + timeout;
        loop {
            let changes = self.poll(kernel)?;
            let now = OsClock.now();
            if !changes.is_empty() || now >= end {
                return Ok(changes);
            }
            let due = self.last_read + self.every;
            self.wait(end.min(due).saturating_sub(now))?;
        }
    }

    /// Waits until a notice comes or the time is over.
    fn wait(&self, time: Nanos) -> Result<(), Error> {
        let mut fds = vec![PollFd::from_borrowed_fd(self.route.as_fd(), PollFlags::IN)];
        let ethtool = self.ethtool.iter().map(Notices::as_fd);
        fds.extend(ethtool.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        // At least a millisecond, so that a time that is all but over is no busy loop.
        let time = time.max(Nanos::from_ms(1)).as_duration();
        let timeout = Timespec::try_from(time).ok();
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(Error::system("wait for netlink notices", errno)),
        }
    }

    /// Whether the kernel has told of a change of this interface, or of what might be one.
    fn is_noticed(&self) -> Result<bool, NetlinkError> {
        let index = self.index;
        let by_route =
            self.route.drain(|message| route_index(message).is_none_or(|i| i == index))?;
        let by_ethtool = match &self.ethtool {
            Some(ethtool) => {
                ethtool.drain(|message| ethtool_index(message).is_none_or(|i| i == index))?
            }
            None => false,
        };
        Ok(by_route || by_ethtool)
    }

    /// The values of now. What cannot be read is absent, and what the driver moves by itself left out.
    fn read(&self, kernel: &dyn KernelRead, knobs: &BTreeSet<Knob>) -> State {
        let read = |knob| kernel.read(&self.interface, knob).unwrap_or_default();
        let is_on = |knob| read(knob).iter().any(|(_, value)| *value == Value::Switch(true));
        let mut state = State::default();
        for &knob in knobs {
            if !knob.spec().overruled_by.is_some_and(is_on) {
                state.0.extend(read(knob).into_iter().map(|(place, value)| ((knob, place), value)));
            }
        }
        state
    }
}

/// The differences at the places that are in both.
fn changes(before: &State, now: &State) -> Vec<Change> {
    let at_place = |(key, from): (&(Knob, Place), &Value)| {
        let to = now.0.get(key)?;
        let (knob, place) = *key;
        let is_same = knob.spec().same(from, to);
        (!is_same).then(|| Change { knob, place, from: from.clone(), to: to.clone() })
    };
    before.0.iter().filter_map(at_place).collect()
}

fn ethtool_notices() -> Result<Option<Notices>, Error> {
    let group = match Generic::open("ethtool") {
        Ok(family) => family.group(ETHTOOL_GROUP),
        Err(error) if error.errno() == Some(libc::ENOENT) => None,
        Err(error) => return Err(error.into()),
    };
    Ok(group.map(|group| Notices::open(Protocol::Generic, &[group])).transpose()?)
}

/// The interface that a notice of a link or a queue discipline is about: both `struct ifinfomsg` and
/// `struct tcmsg` have it in their second four bytes.
fn route_index(message: &Message<'_>) -> Option<u32> {
    let bytes = message.payload.get(4..8)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

/// The interface that a notice of ethtool is about.
fn ethtool_index(message: &Message<'_>) -> Option<u32> {
    let attributes = Attributes::new(message.payload.get(GENERIC_HEADER..)?);
    let header = attributes.find_kind(crate::ethtool::HEADER).ok()??;
    header.nested().find_kind(uapi::ETHTOOL_A_HEADER_DEV_INDEX).ok()??.as_u32().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::message::{put, put_nested};

    #[test]
    fn notice_names_its_interface() {
        let link = [[0; 4], 7_u32.to_ne_bytes(), [0; 4], [0; 4]].concat();
        assert_eq!(route_index(&message(&link)), Some(7));
        let mut coalesce = vec![0; GENERIC_HEADER];
        put_nested(&mut coalesce, crate::ethtool::HEADER, |header| {
            put(header, uapi::ETHTOOL_A_HEADER_DEV_INDEX, &9_u32.to_ne_bytes());
        });
        assert_eq!(ethtool_index(&message(&coalesce)), Some(9));
        for cut in 0..coalesce.len() {
            assert_eq!(ethtool_index(&message(&coalesce[..cut])), None, "{cut}");
        }
        assert_eq!(route_index(&message(&link[..7])), None);
    }

    #[test]
    fn only_existing_places_can_change() {
        let state = |pairs: &[(Place, u64)]| {
            let pairs = pairs.iter().map(|(place, n)| ((Knob::Mtu, *place), Value::Count(*n)));
            State(pairs.collect())
        };
        let before =
            state(&[(Place::RxQueue(0), 1), (Place::RxQueue(1), 1), (Place::RxQueue(2), 1)]);
        let now = state(&[(Place::RxQueue(1), 1), (Place::RxQueue(2), 2), (Place::RxQueue(3), 2)]);
        let changes = changes(&before, &now);
        let text: Vec<String> = changes.iter().map(ToString::to_string).collect();
        assert_eq!(text, ["mtu (rx-2): 1 -> 2"]);
    }

    fn message(payload: &[u8]) -> Message<'_> {
        Message { kind: 16, flags: 0, sequence: 0, payload }
    }
}
