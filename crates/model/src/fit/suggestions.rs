//! The factor that a plan must vary so that a cost can be told from the others.

use latput_knobs::Knob;
use latput_trial::Results;
use latput_trial::observation::Role;

use super::{CostObstacle, CostTerm, ModelHost, knob_variation};

/// Knobs that move the interrupts of a NIC, most common first.
const OF_INTERRUPTS: [(Knob, &str); 3] = [
    (Knob::RxUsecs, "`rx-usecs`"),
    (Knob::InterruptThrottleRate, "`interrupt-throttle-rate`"),
    (Knob::RxAbsIntDelay, "`rx-abs-int-delay`"),
];

/// The factor in words that follow "vary": the first that moves the term and that the plan does not vary already.
/// Empty where no plan helps.
pub(super) fn suggest_factor(
    term: CostTerm,
    why: CostObstacle,
    results: &Results,
    hosts: &[ModelHost],
) -> String {
    if matches!(why, CostObstacle::NotCounted | CostObstacle::TooRare) {
        return String::new();
    }
    let has_sut = hosts.iter().any(|host| host.role == Role::Sut);
    let role = if has_sut { Role::Sut } else { hosts.first().map_or(Role::Sut, |host| host.role) };
    let is_varied = knob_variation(results, role);
    let knob = |knob: Knob, words: &'static str| (is_varied(knob), words);
    let deferral = knob(Knob::GroFlushTimeout, "`gro-flush-timeout` with `napi-defer-hard-irqs`");
    let load = (loads_differ(results), "the workloads' `burst`, `connections` or `rate`");
    let sizes = (loads_differ(results), "the sizes of messages or datagrams");
    let candidates = match term {
        CostTerm::ByteReceived
        | CostTerm::ByteSent
        | CostTerm::PacketReceived
        | CostTerm::PacketSent
        | CostTerm::Segment => vec![knob(Knob::Mtu, "`mtu`"), sizes],
        CostTerm::Interrupt => {
            let mut knobs: Vec<_> =
                OF_INTERRUPTS.into_iter().filter(|(of, _)| has_knob(results, role, *of)).collect();
            if knobs.is_empty() && !has_knob(results, role, Knob::GroFlushTimeout) {
                knobs.extend(OF_INTERRUPTS.first());
            }
            let knobs = knobs.into_iter().map(|(of, words)| knob(of, words));
            knobs.chain([deferral, load]).collect()
        }
        CostTerm::Poll | CostTerm::TimerInterrupt => vec![deferral, load],
        CostTerm::Request
        | CostTerm::CpuInterrupt
        | CostTerm::Wait
        | CostTerm::Preemption
        | CostTerm::IdleSleep
        | CostTerm::IdlePoll
        | CostTerm::Background => vec![load],
    };
    let first = candidates.first().map_or("", |(_, words)| *words);
    match candidates.iter().find(|(is_varied, _)| !is_varied) {
        Some((_, words)) => (*words).to_owned(),
        None => format!("{first} more widely, with more repetitions"),
    }
}

/// Whether the plan has two workloads of one kind, which then differ in their load or sizes.
fn loads_differ(results: &Results) -> bool {
    let kinds: Vec<&str> = results.workloads.iter().map(|load| load.traffic.kind()).collect();
    kinds.iter().enumerate().any(|(idx, kind)| kinds[..idx].contains(kind))
}

/// Whether a host of this role has a knob.
fn has_knob(results: &Results, role: Role, knob: Knob) -> bool {
    let hosts = results.rows.iter().flat_map(|row| &row.observation.hosts);
    let mut states = hosts.filter(|host| host.role == role).map(|host| &host.state);
    states.any(|state| state.0.keys().any(|(of, _)| *of == knob))
}
