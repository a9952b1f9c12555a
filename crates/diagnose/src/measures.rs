//! Figures that several rules judge by. Each is `None` where the snapshot lacks what it is made of.

pub(crate) mod buffers;
pub(crate) mod coalescing;
pub(crate) mod cpus;
#[cfg(test)]
pub(crate) mod fixture;
pub(crate) mod losses;
pub(crate) mod pauses;
pub(crate) mod power;
pub(crate) mod queues;
pub(crate) mod threads;
pub(crate) mod traffic;
