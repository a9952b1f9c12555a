//! Shared by `restore`, `confirm` and the watchers: the interface of a checkpoint, and what going back moves.

use latput_knobs::transaction::Change;
use latput_knobs::{self as knobs, Checkpoint, KernelRead as _, Whereabouts};
use latput_linux::LinuxKernel;

/// The checkpoint under the interface's present name, which may have changed.
pub(super) fn with_its_name_of_now(
    kernel: &LinuxKernel,
    origin: &knobs::Context,
    mut kept: Checkpoint,
) -> Checkpoint {
    if kept.is_of_namespace(origin) == Some(true)
        && let Ok(Whereabouts::Here(name)) = kernel.find(&kept.device)
    {
        kept.interface = name;
    }
    kept
}

/// Warnings of what going back moves along and latput could not put back, in sentences. Going back matters more: the old values are
/// written anyway.
pub(super) fn moved_along(
    kernel: &LinuxKernel,
    interface: &str,
    changes: &[Change],
) -> Vec<String> {
    let sentence = |Change { knob, to, .. }: &Change| {
        let reason = match kernel.obstacle_to(interface, *knob, to) {
            Ok(reason) => reason?,
            Err(error) => error.reason,
        };
        Some(format!("{knob} goes back to {to}: {reason}"))
    };
    changes.iter().filter(|change| !change.place.is_follower()).filter_map(sentence).collect()
}
