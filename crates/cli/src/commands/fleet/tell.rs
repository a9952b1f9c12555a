//! Tells a host's latput to do something, and hears how that went.

use latput_reach::broker::command::HostVerb;

use super::hosts::{Fleet, FleetMember, InPlace, last_line};
use super::look::{FarError, said_by_latput};
use crate::commands::ask::AskEnding;
use crate::exit::ExitReason;

/// Answer of a latput at the far end.
pub(super) enum CommandReply {
    /// It did what it was told, and printed this.
    Done(Vec<u8>),
    /// It refused.
    Refused(FarError),
    /// It was not heard of.
    Lost(String),
}

/// Runs a command of the host's latput that answers in JSON.
pub(super) fn run_host_command(
    fleet: &Fleet,
    member: &FleetMember,
    verb: &HostVerb,
    input: &str,
    waiting: &mut InPlace<'_, '_>,
) -> CommandReply {
    let ending = match member.run_latput(verb, input, fleet.timeout, waiting) {
        Ok(ending) => ending,
        Err(error) => return CommandReply::Lost(format!("cannot start the connection: {error}")),
    };
    match ending {
        AskEnding::Stopped => CommandReply::Lost("the wait for it was cut short".to_owned()),
        AskEnding::TimedOut => {
            CommandReply::Lost(format!("it did not answer within {}", fleet.timeout))
        }
        AskEnding::TooLong => CommandReply::Lost("its answer is too long".to_owned()),
        AskEnding::Ended { code: Some(code), out, .. } if has_answered(verb, code) => {
            CommandReply::Done(out)
        }
        AskEnding::Ended { err, .. } => match said_by_latput(&err) {
            Some(error) => CommandReply::Refused(error),
            None => CommandReply::Lost(last_line(&err)),
        },
    }
}

/// Whether a command that ends with this code has printed its answer. A check tells by its code what it found.
fn has_answered(verb: &HostVerb, code: i32) -> bool {
    let is_found = |found: ExitReason| code == found as i32;
    let is_check = *verb == HostVerb::CheckKept;
    code == 0 || is_check && (is_found(ExitReason::Drifted) || is_found(ExitReason::Partial))
}
