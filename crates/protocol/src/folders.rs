//! The folders in which the processes of latput on one host find each other's checkpoints and locks.

use std::path::PathBuf;

/// Default folder of checkpoints and locks; `LATPUT_STATE_DIR` names another.
const STATE_DIR: &str = "/run/latput";

/// The folder of checkpoints and locks.
///
/// It is absolute: a watcher and a timer of systemd do not start in this folder.
pub fn state_dir() -> PathBuf {
    let named = std::env::var_os("LATPUT_STATE_DIR").filter(|it| !it.is_empty());
    let named = named.map_or_else(|| PathBuf::from(STATE_DIR), PathBuf::from);
    std::path::absolute(&named).unwrap_or(named)
}

/// The folder of checkpoints.
pub fn checkpoints_dir() -> PathBuf {
    state_dir().join("checkpoints")
}
