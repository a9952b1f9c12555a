//! Error numbers of the kernel that the standard library has no words for.

use std::io;

/// `ENOTSUPP`: kernel-internal, but drivers let it escape (`include/linux/errno.h`).
pub(crate) const ENOTSUPP: i32 = 524;

/// The text of an error number without the library's "(os error N)" tail twice over.
pub(crate) fn errno_text(errno: i32) -> String {
    if errno == ENOTSUPP {
        return "Operation not supported by the driver (os error 524)".to_owned();
    }
    io::Error::from_raw_os_error(errno).to_string()
}
