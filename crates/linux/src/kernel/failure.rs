//! From the kernel's error numbers to what a caller may do about them.

use latput_knobs::{KernelError, KernelErrorKind, Knob};

use crate::errno::ENOTSUPP;
use crate::error::Error;
use crate::netlink::NetlinkError;

/// A `KernelError` before it knows what it was about.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) kind: KernelErrorKind,
    pub(super) errno: Option<i32>,
    pub(super) reason: String,
}

impl Failure {
    pub(super) fn unsupported(reason: impl Into<String>) -> Self {
        Self { kind: KernelErrorKind::Unsupported, errno: None, reason: reason.into() }
    }

    pub(super) fn refused(reason: impl Into<String>) -> Self {
        Self { kind: KernelErrorKind::Refused, errno: None, reason: reason.into() }
    }

    pub(super) fn malformed(reason: impl Into<String>) -> Self {
        Self { kind: KernelErrorKind::Malformed, errno: None, reason: reason.into() }
    }

    /// `knob` is `None` where the interface itself was asked about.
    pub(super) fn into_error(
        self,
        interface: &str,
        knob: Option<Knob>,
        operation: String,
    ) -> KernelError {
        let is_interface = self.kind == KernelErrorKind::NoInterface;
        KernelError {
            interface: interface.to_owned(),
            knob: knob.filter(|_| !is_interface),
            operation,
            kind: self.kind,
            errno: self.errno,
            reason: self.reason,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let errno = error.errno();
        let reason = match &error {
            Error::Netlink(netlink) => netlink.reason(),
            Error::System { operation, source } => format!("{source} ({operation})"),
            other => other.to_string(),
        };
        let kind = match &error {
            Error::InterfaceName { .. } => KernelErrorKind::NoInterface,
            Error::Netlink(NetlinkError::Timeout { .. }) => KernelErrorKind::Busy,
            _ => errno.map_or(KernelErrorKind::Malformed, |errno| {
                let has_words = matches!(
                    &error,
                    Error::Netlink(NetlinkError::Refused { text: Some(text), .. })
                        if text.to_ascii_lowercase().contains("unsupported")
                            || text.contains("Unknown attribute")
                );
                kind_of(errno, has_words)
            }),
        };
        Self { kind, errno, reason }
    }
}

/// Kind of an error number, by what a caller may do about it. There is no agreed number for "unsupported": drivers
/// answer EOPNOTSUPP, EINVAL (then with words) or the internal ENOTSUPP.
const fn kind_of(errno: i32, says_unsupported: bool) -> KernelErrorKind {
    match errno {
        libc::EOPNOTSUPP | ENOTSUPP | libc::ENOENT | libc::ENOSYS => KernelErrorKind::Unsupported,
        libc::EINVAL if says_unsupported => KernelErrorKind::Unsupported,
        libc::EPERM | libc::EACCES | libc::EROFS => KernelErrorKind::Permission,
        libc::ENODEV | libc::ENXIO => KernelErrorKind::NoInterface,
        libc::EBUSY
        | libc::EAGAIN
        | libc::EINTR
        | libc::ENOBUFS
        | libc::ENOMEM
        | libc::ENFILE
        | libc::EMFILE => KernelErrorKind::Busy,
        _ => KernelErrorKind::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errno_has_the_drivers_meaning() {
        check_kind(libc::EOPNOTSUPP, None, KernelErrorKind::Unsupported);
        check_kind(524, None, KernelErrorKind::Unsupported);
        check_kind(
            libc::EINVAL,
            Some("cannot modify an unsupported parameter"),
            KernelErrorKind::Unsupported,
        );
        check_kind(
            libc::EINVAL,
            Some("requested channel count exceeds maximum"),
            KernelErrorKind::Refused,
        );
        check_kind(libc::EINVAL, None, KernelErrorKind::Refused);
        check_kind(libc::ERANGE, None, KernelErrorKind::Refused);
        check_kind(libc::EPERM, None, KernelErrorKind::Permission);
        check_kind(libc::ENODEV, None, KernelErrorKind::NoInterface);
        for passing in [libc::EBUSY, libc::ENOMEM, libc::ENFILE, libc::EMFILE] {
            check_kind(passing, None, KernelErrorKind::Busy);
        }
    }

    #[test]
    fn error_about_the_interface_itself_names_no_knob() {
        let error = |knob| Failure::refused("no").into_error("eth0", knob, "find it".to_owned());
        assert_eq!(error(None).knob, None);
        assert_eq!(error(Some(Knob::Mtu)).knob, Some(Knob::Mtu));
    }

    #[track_caller]
    fn check_kind(errno: i32, text: Option<&str>, expected: KernelErrorKind) {
        let error = Error::Netlink(NetlinkError::Refused {
            request: "try".to_owned(),
            errno,
            text: text.map(ToOwned::to_owned),
            offset: None,
        });
        assert_eq!(Failure::from(error).kind, expected, "{errno}");
    }
}
