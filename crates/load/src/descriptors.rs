//! The limit on open files: each connection needs a file descriptor.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::Error;

/// Descriptors beside the connections and those open already: epoll instances, event and timer
/// descriptors of the threads, and files read meanwhile.
const SPARE: u64 = 64;

/// Raises the soft limit on open files, at most to the hard limit, for `connections` connections
/// and `threads` threads with a few descriptors each.
pub(crate) fn provide(connections: usize, threads: usize) -> Result<(), Error> {
    let wanted = open_now() + connections as u64 + 4 * threads as u64 + SPARE;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|soft| soft >= wanted) {
        return Ok(());
    }
    if let Some(limit) = limit.maximum.filter(|hard| *hard < wanted) {
        return Err(Error::TooFewDescriptors { connections, wanted, limit });
    }
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised)
        .map_err(|errno| Error::io("raise the limit on open files (RLIMIT_NOFILE)", errno))
}

/// Descriptors that this process has open; 0 without `/proc`.
fn open_now() -> u64 {
    std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_limit_is_raised_hard_one_named() {
        let hard = getrlimit(Resource::Nofile).maximum;
        if let Some(hard) = hard {
            let connections = usize::try_from(hard).unwrap();
            let error = provide(connections, 1).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(&hard.to_string()) && text.contains("ulimit"), "{text}");
        }
        provide(10, 1).unwrap();
        assert!(open_now() >= 3);
    }
}
