//! Values that a driver takes only together. `sfc` wants the delays of both directions equal where they share channels, and
//! `bnxt` takes no combined channels beside separate ones: written one by one, each is refused.

use super::outcome::Change;
use super::steps::{self, Target};
use crate::catalogue::Knob;
use crate::kernel::{KernelError, KernelErrorKind, KernelRead};
use crate::setting::State;
use crate::value::{Place, Value};

/// Whether a driver may have refused a value because of another one beside it.
pub(super) const fn may_want_others(error: &KernelError) -> bool {
    matches!(error.kind, KernelErrorKind::Refused | KernelErrorKind::Unsupported)
}

/// The device's values that one request sets with that of `knob`, where they differ from the target.
pub(super) struct Differing {
    pub(super) changes: Vec<Change>,
    /// All values of their knobs.
    pub(super) before: State,
}

impl Differing {
    pub(super) fn new(
        kernel: &dyn KernelRead,
        interface: &str,
        knob: Knob,
        target: Target<'_>,
    ) -> Self {
        let mut found = Self { changes: Vec::new(), before: State::default() };
        for peer in kernel.set_with(knob) {
            let current = steps::read(kernel, interface, peer).unwrap_or_default();
            let mut changes =
                target.differences(kernel, interface, peer, &current).unwrap_or_default();
            changes.retain(|change| change.place == Place::Device);
            if !changes.is_empty() {
                let places = current.into_iter().map(|(place, value)| ((peer, place), value));
                found.before.0.extend(places);
                found.changes.extend(changes);
            }
        }
        found
    }

    /// One value alone has been refused by now.
    pub(super) fn are_several(&self) -> bool {
        self.changes.len() > 1
    }

    pub(super) fn values(&self) -> Vec<(Knob, Value)> {
        self.changes.iter().map(|change| (change.knob, change.to.clone())).collect()
    }
}
