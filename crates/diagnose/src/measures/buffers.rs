//! Sizes of TCP's buffers.

use latput_knobs::sysctl::BufferSizes;

use crate::evidence::Evidence;

/// The factor by which a largest buffer is raised.
const RAISED: u64 = 4;
/// The kernel's own largest receive buffer, in bytes: less is not worth a trial.
const LEAST_RAISED: u64 = 6 * 1024 * 1024;

/// Largest size of `net.ipv4.tcp_rmem` or its kin; `None` where it is not told.
pub(crate) fn find_largest_buffer(evidence: &Evidence<'_>, name: &str) -> Option<u64> {
    Some(read_sizes(evidence, name)?.largest())
}

/// The change that raises the largest size of `tcp_rmem` or its kin, for a command line.
pub(crate) fn raise_largest_buffer(evidence: &Evidence<'_>, name: &str) -> Option<String> {
    let sizes = read_sizes(evidence, name)?;
    let largest = (sizes.largest() * RAISED).max(LEAST_RAISED);
    let text = sizes.to_string();
    let (others, _) = text.rsplit_once(' ')?;
    Some(format!("'{}={others} {largest}'", name.replace('_', "-")))
}

fn read_sizes(evidence: &Evidence<'_>, name: &str) -> Option<BufferSizes> {
    evidence.sysctl(&format!("net/ipv4/{name}"))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::fixture::Fixture;

    #[test]
    fn largest_buffer_is_raised_and_others_kept() {
        let raised = |sizes: &str| {
            let snapshot =
                Fixture::new().fixed("proc/sys/net/ipv4/tcp_rmem", sizes).into_snapshot();
            raise_largest_buffer(&Evidence::from_snapshot(&snapshot), "tcp_rmem")
        };
        assert_eq!(raised("4096\t8192\t16384\n").unwrap(), "'tcp-rmem=4096 8192 6291456'");
        assert_eq!(raised("4096 131072 6291456").unwrap(), "'tcp-rmem=4096 131072 25165824'");
        assert_eq!(raised("4096 131072"), None);
    }
}
