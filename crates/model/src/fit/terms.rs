//! The events that cost a host CPU time.

use crate::stage::PathStage;

/// One kind of event that costs a host CPU time, in the order of preference: of two that move together the model takes
/// the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CostTerm {
    /// A hardware interrupt: of a device only where the host tells timers and other CPUs apart, else of any kind.
    Interrupt,
    /// A packet that the measured interface received.
    PacketReceived,
    /// A packet that it sent.
    PacketSent,
    /// A segment or datagram that the protocols received, after GRO.
    Segment,
    /// A transaction of the workload: its system calls.
    Request,
    /// A byte that the interface received, headers included.
    ByteReceived,
    /// A byte that it sent.
    ByteSent,
    /// An expiry of a CPU's timer.
    TimerInterrupt,
    /// An interrupt from another CPU.
    CpuInterrupt,
    /// A NAPI poll, started by an interrupt or by a timer.
    Poll,
    /// A wait of a NAPI thread or a thread of the traffic, with the wake-up that ends it.
    Wait,
    /// A switch away from such a thread that had more to do.
    Preemption,
    /// An entry into an idle state in which the CPU sleeps.
    IdleSleep,
    /// An entry into an idle state in which it polls for work.
    IdlePoll,
    /// A second of work that does not depend on the traffic.
    Background,
}

/// The facts of a term in tables, files and sentences.
struct TermFacts {
    name: &'static str,
    plural: &'static str,
    unit: &'static str,
    /// The stage of a packet's way that it belongs to.
    stage: PathStage,
    moved_by: Option<&'static str>,
    /// Nanoseconds of one, from the fastest host to a guest with slow exits (`docs/model.md` has the sources).
    plausible_ns: (f64, f64),
}

impl TermFacts {
    const fn new(
        [name, plural, unit]: [&'static str; 3],
        stage: PathStage,
        moved_by: Option<&'static str>,
        plausible_ns: (f64, f64),
    ) -> Self {
        Self { name, plural, unit, stage, moved_by, plausible_ns }
    }
}

const INTERRUPTS: Option<&str> = Some("a longer `rx-usecs` or its like");
const DEFERRAL: Option<&str> = Some("a longer `gro-flush-timeout` with `napi-defer-hard-irqs`");
const SIZES: Option<&str> = Some("a larger `mtu`, larger messages");

/// The facts of each term, in the order of [`CostTerm::ALL`].
#[rustfmt::skip]
const FACTS: [TermFacts; CostTerm::ALL.len()] = [
    TermFacts::new(["interrupt", "interrupts", "interrupt"], PathStage::Interrupt, INTERRUPTS, (300.0, 40e3)),
    TermFacts::new(["packet_received", "packets received", "packet"], PathStage::Poll, SIZES, (50.0, 10e3)),
    TermFacts::new(["packet_sent", "packets sent", "packet"], PathStage::Send, SIZES, (50.0, 10e3)),
    TermFacts::new(["segment", "segments received", "segment"], PathStage::Protocol, None, (100.0, 10e3)),
    TermFacts::new(["request", "requests", "request"], PathStage::Read, None, (300.0, 20e3)),
    TermFacts::new(["byte_received", "bytes received", "byte"], PathStage::Read, None, (0.01, 2.0)),
    TermFacts::new(["byte_sent", "bytes sent", "byte"], PathStage::Send, None, (0.01, 2.0)),
    TermFacts::new(["timer_interrupt", "timer interrupts", "interrupt"], PathStage::Interrupt, DEFERRAL, (300.0, 40e3)),
    TermFacts::new(["cpu_interrupt", "interrupts between CPUs", "interrupt"], PathStage::WakeUp, None, (300.0, 40e3)),
    TermFacts::new(["poll", "polls", "poll"], PathStage::Poll, DEFERRAL, (100.0, 10e3)),
    TermFacts::new(["wait", "waits of threads", "wait"], PathStage::WakeUp, None, (500.0, 30e3)),
    TermFacts::new(["preemption", "preemptions of threads", "preemption"], PathStage::WakeUp, None, (300.0, 20e3)),
    TermFacts::new(["idle_sleep", "sleeps of idle CPUs", "sleep"], PathStage::WakeUp, None, (300.0, 50e3)),
    TermFacts::new(["idle_poll", "polls of idle CPUs", "poll"], PathStage::WakeUp, None, (100.0, 30e3)),
    TermFacts::new(["background", "background work", "second"], PathStage::Background, None, (0.0, 1e8)),
];

impl CostTerm {
    /// All terms, in their order.
    pub const ALL: [Self; 15] = [
        Self::Interrupt,
        Self::PacketReceived,
        Self::PacketSent,
        Self::Segment,
        Self::Request,
        Self::ByteReceived,
        Self::ByteSent,
        Self::TimerInterrupt,
        Self::CpuInterrupt,
        Self::Poll,
        Self::Wait,
        Self::Preemption,
        Self::IdleSleep,
        Self::IdlePoll,
        Self::Background,
    ];

    /// The name in tables and files.
    pub const fn name(self) -> &'static str {
        FACTS[self as usize].name
    }

    /// The plural in sentences.
    pub const fn plural(self) -> &'static str {
        FACTS[self as usize].plural
    }

    /// The unit of its count.
    pub const fn unit(self) -> &'static str {
        FACTS[self as usize].unit
    }

    /// The stage of a packet's way that it belongs to.
    pub const fn stage(self) -> PathStage {
        FACTS[self as usize].stage
    }

    /// The setting that makes fewer of them, in words; `None` where no common setting does.
    pub const fn moved_by(self) -> Option<&'static str> {
        FACTS[self as usize].moved_by
    }

    /// The costs that are plausible, nanoseconds (`docs/model.md` has the sources).
    pub const fn plausible_ns(self) -> (f64, f64) {
        FACTS[self as usize].plausible_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_have_facts_in_their_order() {
        let mut names: Vec<&str> = CostTerm::ALL.into_iter().map(CostTerm::name).collect();
        assert!(CostTerm::ALL.is_sorted());
        let name = |term: CostTerm| term.name();
        assert_eq!(name(CostTerm::Interrupt), "interrupt");
        assert_eq!((name(CostTerm::Poll), CostTerm::Poll.unit()), ("poll", "poll"));
        assert_eq!(
            (name(CostTerm::Background), CostTerm::Background.unit()),
            ("background", "second")
        );
        assert_eq!(CostTerm::IdleSleep.stage(), PathStage::WakeUp);
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        for term in CostTerm::ALL {
            let (low, high) = term.plausible_ns();
            assert!(low < high && !term.plural().is_empty(), "{term:?}");
        }
    }

    #[test]
    fn fewer_events_name_their_knob() {
        let knobs = [
            (CostTerm::PacketReceived, "`mtu`"),
            (CostTerm::Interrupt, "`rx-usecs`"),
            (CostTerm::Poll, "`gro-flush-timeout`"),
        ];
        for (term, knob) in knobs {
            assert!(term.moved_by().unwrap().contains(knob), "{term:?}");
        }
        assert_eq!(CostTerm::Background.moved_by(), None);
    }
}
