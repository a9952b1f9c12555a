//! Programs of others that benches compare with.

use std::path::{Path, PathBuf};

use crate::workspace::find_on_path;

/// Where the programs are that several benches start.
#[derive(Debug, Default, clap::Args)]
pub struct ForeignPaths {
    /// netperf, if it is not the one on PATH.
    #[arg(long, value_name = "PATH")]
    netperf: Option<PathBuf>,
    /// netserver, if it is not the one on PATH.
    #[arg(long, value_name = "PATH")]
    netserver: Option<PathBuf>,
    /// sockperf, if it is not the one on PATH.
    #[arg(long, value_name = "PATH")]
    sockperf: Option<PathBuf>,
}

impl ForeignPaths {
    /// netperf and netserver, if both are there.
    pub fn find_netperf(&self) -> Option<(PathBuf, PathBuf)> {
        let [netperf, netserver] = [("netperf", &self.netperf), ("netserver", &self.netserver)]
            .map(|(name, named)| find_program(name, named.as_deref()));
        netperf.zip(netserver)
    }

    /// sockperf, if it is there.
    pub fn find_sockperf(&self) -> Option<PathBuf> {
        find_program("sockperf", self.sockperf.as_deref())
    }
}

/// The program named by the user, or else the one on PATH; absolute, since it is started elsewhere. A missing one is named.
pub fn find_program(name: &str, named: Option<&Path>) -> Option<PathBuf> {
    let found = match named {
        Some(named) => std::fs::canonicalize(named).ok(),
        None => find_on_path(name),
    };
    if found.is_none() {
        let place = named.map_or_else(|| "on PATH".into(), |named| named.display().to_string());
        println!("skipped: {name} is not there ({place})");
    }
    found
}
