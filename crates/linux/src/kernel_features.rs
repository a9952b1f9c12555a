//! Kernel interfaces that latput uses where the kernel has them.

use std::path::Path;

use crate::bpf::BTF_PATH;
use crate::confine::landlock;
use crate::error::Error;
use crate::ethtool::Ethtool;
use crate::facts::kernel_release;
use crate::netdev::Netdev;

/// Finds them in the running kernel, for the calling process. Each has a name and what was found, in one order on every host.
pub fn find_kernel_features() -> Vec<(&'static str, String)> {
    // As `uname -m` has it on the processors that latput is built for.
    let kernel = format!("Linux {} {}", kernel_release(), std::env::consts::ARCH);
    vec![
        ("kernel", kernel),
        ("pages", format!("{} bytes", rustix::param::page_size())),
        ("interfaces in sysfs", describe_path(Path::new("/sys/class/net"))),
        ("ethtool netlink", describe_family(Ethtool::open())),
        ("netdev netlink", describe_family(Netdev::open())),
        ("BPF type information", describe_path(Path::new(BTF_PATH))),
        (
            "Landlock",
            landlock::version().map_or_else(absent, |version| format!("version {version}")),
        ),
        ("network namespaces", describe_path(Path::new("/proc/self/ns/net"))),
    ]
}

fn absent() -> String {
    "absent".to_owned()
}

fn describe_path(path: &Path) -> String {
    if path.exists() { "present".to_owned() } else { absent() }
}

fn describe_family<T>(opened: Result<T, Error>) -> String {
    match opened {
        Ok(_) => "present".to_owned(),
        Err(error) => format!("absent ({})", innermost(&error)),
    }
}

/// The kernel's own words, without those of who asked.
fn innermost(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), innermost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_has_one_line() {
        let found = find_kernel_features();
        assert!(
            found.iter().all(|(_, what)| !what.is_empty() && !what.contains('\n')),
            "{found:?}"
        );
        let pages = found.iter().find(|(name, _)| *name == "pages").unwrap();
        let bytes: u64 = pages.1.trim_end_matches(" bytes").parse().unwrap();
        assert!(bytes.is_power_of_two() && bytes >= 4_096, "{pages:?}");
    }
}
