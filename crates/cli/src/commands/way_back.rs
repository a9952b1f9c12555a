//! Shared by `restore`, `confirm` and the watchers: the interface of a checkpoint, and what going back moves.

use latput_knobs::transaction::{Change, Foreign};
use latput_knobs::{
    self as knobs, Checkpoint, KernelRead as _, Knob, Place, Value, Whereabouts, WritePurpose,
};
use latput_linux::{FileCheckpoints, LinuxKernel};

/// The least MTU of a link with IPv6, in bytes (RFC 8200, section 5).
const IPV6_MTU_LEAST: u64 = 1280;

/// The checkpoint under the interface's present name, which may have changed.
pub(super) fn with_its_name_of_now(
    kernel: &LinuxKernel,
    origin: &knobs::Context,
    mut kept: Checkpoint,
) -> Checkpoint {
    if let Some(name) = present_name(kernel, origin, &kept) {
        kept.interface = name;
    }
    kept
}

/// The present name of the interface of a checkpoint; `None` where it is not here.
pub(super) fn present_name(
    kernel: &LinuxKernel,
    origin: &knobs::Context,
    kept: &Checkpoint,
) -> Option<String> {
    match kernel.find(&kept.device) {
        Ok(Whereabouts::Here(name)) if kept.is_of_namespace(origin) == Some(true) => Some(name),
        _ => None,
    }
}

/// Keeps a change that was put back in the journal. Without room for it, it is back all the same.
pub(super) fn log_went_back(store: &FileCheckpoints, change: &Checkpoint, why: String) {
    let ended = Checkpoint { went_back: Some(why), going_back: None, ..change.clone() };
    let _no_room = store.journal().add(&ended);
}

/// Why a change went back, with the values that stay because somebody else has set them.
pub(super) fn with_others(why: &str, others: &[Foreign]) -> String {
    let others: Vec<String> = others.iter().map(Foreign::to_string).collect();
    let except = if others.is_empty() { "" } else { ", except: " };
    format!("{why}{except}{}", others.join("; "))
}

/// Warnings of a way back, in sentences: what it moves along and latput could not put back, and what latput cannot reach. Going
/// back matters more: the old values are written anyway.
pub(super) fn restore_warnings(
    kernel: &LinuxKernel,
    kept: &Checkpoint,
    changes: &[Change],
) -> Vec<String> {
    let moved = moved_along(kernel, &kept.interface, changes);
    let lowered =
        changes.iter().flat_map(|change| lowered_mtu_warnings(kernel, &kept.interface, change));
    moved.into_iter().chain(lowered).chain(gone_interface_warnings(kernel, kept)).collect()
}

/// Interfaces on this one that were made or raised since the change: theirs goes down with the interface's.
fn lowered_mtu_warnings(kernel: &LinuxKernel, interface: &str, change: &Change) -> Vec<String> {
    let (Knob::Mtu, Place::Device, Value::Count(to)) = (change.knob, change.place, &change.to)
    else {
        return Vec::new();
    };
    let now = kernel.read_followers(interface, &[Knob::Mtu]).pop().and_then(Result::ok);
    let has_ipv6 = now.iter().flatten().any(|(place, _)| *place == Place::Ipv6);
    let ends_ipv6 = (*to < IPV6_MTU_LEAST && has_ipv6).then(|| {
        format!("mtu {to} is too small for IPv6: the interface loses its IPv6 addresses and routes")
    });
    let sentence = |(place, value): (Place, Value)| match (place, value) {
        (Place::Linked(_), Value::Count(own)) if own > *to => {
            let upper = kernel.place_words(Knob::Mtu, place);
            Some(format!("{upper}, which lies on it, goes down to mtu {to} with it: it has {own}"))
        }
        _ => None,
    };
    now.into_iter().flatten().filter_map(sentence).chain(ends_ipv6).collect()
}

/// Interfaces that lay on this one and are deleted or in another namespace, where their value may still be the change's.
fn gone_interface_warnings(kernel: &LinuxKernel, kept: &Checkpoint) -> Vec<String> {
    let sentence = |(at, before): (&(Knob, Place), &Value)| {
        let (knob, place) = at;
        let is_moved = kept.written.0.get(at).is_none_or(|written| written != before);
        let now = kernel.read_followers(&kept.interface, &[*knob]).pop()?.ok()?;
        let is_here = now.iter().any(|(other, _)| other == place);
        (!is_here && is_moved).then(|| {
            let upper = kernel.place_words(*knob, *place);
            format!("{upper} does not lie on it any more, or is gone: its {knob} was {before}")
        })
    };
    let linked = kept.undo.0.iter().filter(|((_, place), _)| matches!(place, Place::Linked(_)));
    linked.filter_map(sentence).collect()
}

fn moved_along(kernel: &LinuxKernel, interface: &str, changes: &[Change]) -> Vec<String> {
    let sentence = |Change { knob, to, .. }: &Change| {
        let reason = match kernel.obstacle_to(interface, *knob, to, WritePurpose::WayBack) {
            Ok(reason) => reason?,
            Err(error) => error.reason,
        };
        Some(format!("{knob} goes back to {to}: {reason}"))
    };
    changes.iter().filter(|change| !change.place.is_follower()).filter_map(sentence).collect()
}
