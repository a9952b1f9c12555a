//! Context of a command on a fleet: its progress, its stop flag, its errors and how it ends.

use std::fmt::Debug;
use std::time::Instant;

use latput_experiment::RunProgress;
use latput_load::Stop;
use latput_units::Nanos;

/// An error of a command on a fleet.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command cannot be meant.
    #[error("{0}")]
    Usage(String),
    /// There is nothing to do it with.
    #[error("{0}")]
    Failed(String),
    /// A host or a testbed cannot be used.
    #[error(transparent)]
    Run(#[from] latput_runner::Error),
    /// This host could not be read.
    #[error(transparent)]
    Kernel(#[from] latput_linux::Error),
}

impl From<latput_reach::Error> for Error {
    fn from(error: latput_reach::Error) -> Self {
        Self::Run(error.into())
    }
}

/// A listener to the progress of a command.
pub trait FleetProgress: Debug + Sync {
    /// A remark for people.
    fn report_remark(&self, text: &str);
    /// Work on so many hosts begins, in these words. Each call of the function tells that one is done; it is dropped when the
    /// work ends.
    fn begin_hosts(&self, count: usize, what: &str) -> Box<dyn Fn() + Sync>;
    /// A run on a pair of hosts begins.
    fn begin_run(&self) -> Box<dyn RunProgress>;
}

/// The listener of a command, and its stop flag.
#[derive(Clone, Copy, Debug)]
pub struct FleetContext<'a> {
    /// Hears of its progress.
    pub progress: &'a dyn FleetProgress,
    /// Raised when it is to end: what changes a host ends at the second time.
    pub stop: &'a Stop,
}

/// How a command ended that has no error, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FleetEnding {
    /// All was done.
    Done,
    /// No setting is proven better.
    Unproven,
    /// Hosts or pairs are missing.
    Partial,
    /// A setting is proven worse.
    Worse,
    /// A host is not as wanted.
    Drifted,
    /// A host could not be put back.
    Stranded,
}

/// Most names in a line.
const NAMES_MOST: usize = 8;

/// The first of some names, and how many more there are.
pub(crate) fn join_names(names: &[impl AsRef<str>], separator: &str) -> String {
    let shown: Vec<&str> = names.iter().take(NAMES_MOST).map(AsRef::as_ref).collect();
    let shown = shown.join(separator);
    match names.len().saturating_sub(NAMES_MOST) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// The time since then.
pub(crate) fn elapsed_since(begun: Instant) -> Nanos {
    Nanos::from_ns(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX))
}
