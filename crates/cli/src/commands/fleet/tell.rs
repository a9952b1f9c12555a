//! Tells a host's latput to do something, and hears how that went.

use latput_experiment::broker::command::HostVerb;

use super::hosts::{Fleet, InPlace, Member, last_line};
use super::look::{FarError, said_by_latput};
use crate::commands::ask::AskEnding;
use crate::exit::Code;

/// Answer of a latput at the far end.
pub(super) enum Heard {
    /// It did what it was told, and printed this.
    Done(Vec<u8>),
    /// It refused.
    Refused(FarError),
    /// It was not heard of.
    Lost(String),
}

/// Runs a command of the host's latput that answers in JSON.
pub(super) fn tell(
    fleet: &Fleet,
    member: &Member,
    verb: &HostVerb,
    input: &str,
    waiting: &mut InPlace<'_, '_>,
) -> Heard {
    let ending = match member.ask(verb, input, fleet.timeout, waiting) {
        Ok(ending) => ending,
        Err(error) => return Heard::Lost(format!("cannot start the connection: {error}")),
    };
    match ending {
        AskEnding::Stopped => Heard::Lost("the wait for it was cut short".to_owned()),
        AskEnding::TimedOut => Heard::Lost(format!("it did not answer within {}", fleet.timeout)),
        AskEnding::TooLong => Heard::Lost("its answer is too long".to_owned()),
        AskEnding::Ended { code: Some(code), out, .. } if has_answered(verb, code) => {
            Heard::Done(out)
        }
        AskEnding::Ended { err, .. } => match said_by_latput(&err) {
            Some(error) => Heard::Refused(error),
            None => Heard::Lost(last_line(&err)),
        },
    }
}

/// Whether a command that ends with this code has printed its answer. A check tells by its code what it found.
fn has_answered(verb: &HostVerb, code: i32) -> bool {
    let is_found = |found: Code| code == found as i32;
    let is_check = *verb == HostVerb::CheckKept;
    code == 0 || is_check && (is_found(Code::Drifted) || is_found(Code::Partial))
}
