//! Fakes and bodies for the tests of other crates: a kernel that rounds, refuses, forgets and dies, a
//! store of checkpoints in memory, the conformance body that a real kernel must pass too, and what root tests share.

// The attribute speaks of this crate by its name, also here.
#[cfg(test)]
extern crate self as latput_testkit;

pub mod blessed;
pub mod checkpoints;
pub mod conformance;
pub mod fuse;
pub mod interface;
pub mod isolation;
pub mod kernel;
pub mod lender;
pub mod root;
pub mod wrong_values;

pub use checkpoints::MemoryCheckpoints;
pub use conformance::conformance;
pub use fuse::Fuse;
pub use interface::FakeInterface;
pub use isolation::isolate;
pub use kernel::{FakeKernel, Fault};
pub use latput_needs::needs;
pub use lender::write;
pub use root::{lacks_any, needs_program};
pub use wrong_values::check_wrong_values;

use latput_knobs::{Context, LinkResets, Maker, Slot};
use latput_units::Nanos;

/// The slot of the first interface of a [`FakeKernel`] in the namespace of [`context`].
pub fn slot() -> Slot {
    Slot { namespace: context().namespace, index: 2 }
}

/// A context of this boot and namespace for tests.
pub fn context() -> Context {
    Context {
        boot_id: "6f0d7a2e-boot".to_owned(),
        namespace: 4_026_531_840,
        namespace_cookie: Some(1),
        pid: 4242,
        now_unix_ms: 1_790_000_000_000,
        since_boot: Nanos::ZERO,
        link_resets: LinkResets::Allowed,
        by: Maker { command: "test".to_owned(), user: "uid 0".to_owned(), run: None },
        undoes: None,
    }
}
