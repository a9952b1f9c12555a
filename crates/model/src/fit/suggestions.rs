//! The factor that a plan must vary so that a cost can be told from the others.

use latput_knobs::Knob;
use latput_trial::Results;
use latput_trial::observation::Role;

use super::{Term, Why, varied};

/// Knobs that move the interrupts of a NIC, most common first.
const OF_INTERRUPTS: [Knob; 3] = [Knob::RxUsecs, Knob::InterruptThrottleRate, Knob::RxAbsIntDelay];

/// The factor in words that follow "vary"; empty where no plan helps.
pub(super) fn factor(term: Term, why: Why, results: &Results, role: Role) -> String {
    if matches!(why, Why::NotCounted) {
        return String::new();
    }
    let is_varied = varied(results, role);
    let (knobs, words) = match term {
        Term::Byte | Term::Packet => {
            (vec![Knob::Mtu], "`mtu`, or the sizes of messages or datagrams")
        }
        Term::Interrupt => {
            let mut knobs = OF_INTERRUPTS.to_vec();
            let has = |knob: &Knob| has(results, role, *knob);
            if knobs.iter().any(has) || has(&Knob::GroFlushTimeout) {
                knobs.retain(has);
            } else {
                knobs.truncate(1);
            }
            match knobs.first() {
                Some(Knob::RxUsecs) => (knobs, "`rx-usecs`"),
                Some(Knob::InterruptThrottleRate) => (knobs, "`interrupt-throttle-rate`"),
                Some(_) => (knobs, "`rx-abs-int-delay`"),
                None => {
                    (vec![Knob::GroFlushTimeout], "`gro-flush-timeout` with `napi-defer-hard-irqs`")
                }
            }
        }
        Term::Poll => {
            (vec![Knob::GroFlushTimeout], "`gro-flush-timeout` with `napi-defer-hard-irqs`")
        }
        Term::Background => (Vec::new(), "the rate of the workloads (`rate`, `burst`)"),
    };
    if knobs.iter().any(|knob| is_varied(*knob)) {
        format!("{words} more widely, with more repetitions")
    } else {
        words.to_owned()
    }
}

/// Whether a host of this role has a knob.
fn has(results: &Results, role: Role, knob: Knob) -> bool {
    let hosts = results.rows.iter().flat_map(|row| &row.observation.hosts);
    let mut states = hosts.filter(|host| host.role == role).map(|host| &host.state);
    states.any(|state| state.0.keys().any(|(of, _)| *of == knob))
}
