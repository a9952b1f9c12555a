//! The parts of the time that a transaction or a kilobyte takes.

/// A part of that time. The stages of a packet's way have the names of `latput diagnose`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathStage {
    /// Held back by interrupt moderation or deferred polls, at either end.
    Moderation,
    /// Wait behind other requests in flight.
    Queueing,
    /// Hardware interrupts.
    Interrupt,
    /// NAPI polls, with the driver's work and GRO for each packet.
    Poll,
    /// The protocols, for each segment after GRO.
    Protocol,
    /// Wake-ups of threads and of idle CPUs.
    WakeUp,
    /// The application's system calls, with the copy of what was received.
    Read,
    /// Sending: the protocols, the copy, the queue and the ring.
    Send,
    /// Work that does not depend on the traffic.
    Background,
    /// CPU time that no model divides.
    Cpu,
    /// The remainder: wire, and waits without CPU time.
    Rest,
}

impl PathStage {
    /// All stages, in the order of a table.
    pub const ALL: [Self; 11] = [
        Self::Moderation,
        Self::Queueing,
        Self::Interrupt,
        Self::Poll,
        Self::Protocol,
        Self::WakeUp,
        Self::Read,
        Self::Send,
        Self::Background,
        Self::Cpu,
        Self::Rest,
    ];

    /// Whether it is CPU time.
    pub fn is_cpu(self) -> bool {
        (Self::Interrupt..=Self::Cpu).contains(&self)
    }

    /// The name in tables and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Moderation => "moderation",
            Self::Queueing => "queueing",
            Self::Interrupt => "interrupt",
            Self::Poll => "poll",
            Self::Protocol => "protocol",
            Self::WakeUp => "wakeup",
            Self::Read => "read",
            Self::Send => "send",
            Self::Background => "background",
            Self::Cpu => "cpu",
            Self::Rest => "rest",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_have_distinct_names() {
        let mut names = PathStage::ALL.map(PathStage::name);
        assert_eq!(names[..2], ["moderation", "queueing"]);
        assert_eq!(PathStage::ALL.into_iter().filter(|stage| stage.is_cpu()).count(), 8);
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }
}
