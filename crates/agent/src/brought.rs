//! Where this program was brought to its host for one run.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The folder that the running program was brought in, as `crates/reach/src/bring/there.sh` says.
const VARIABLE: &str = "LATPUT_BROUGHT";

/// Removes the file of this program and its folder, where it was brought. What runs needs neither: it starts
/// itself again by `/proc/self/exe`.
pub fn forget_file() {
    let Some(folder) = std::env::var_os(VARIABLE).map(PathBuf::from) else { return };
    let file = folder.join("latput");
    let id = |path: &Path| fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
    // Of another program than this one nothing is removed.
    if id(&file).is_some() && id(&file) == id(Path::new("/proc/self/exe")) {
        let _gone = fs::remove_file(&file).and_then(|()| fs::remove_dir(&folder));
    }
}

/// Whether this program was brought here for this run.
pub(crate) fn is_brought() -> bool {
    std::env::var_os(VARIABLE).is_some()
}
