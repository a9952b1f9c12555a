//! CPUs that do not halt while something is measured.

use std::fs::File;
use std::io::Write as _;

use anyhow::{Context, Result};

/// Keeps CPUs from idle states that take time to leave for as long as the file is open
/// (`Documentation/power/pm_qos_interface.rst` of the kernel); in microseconds.
pub fn stay_awake() -> Result<File> {
    const PATH: &str = "/dev/cpu_dma_latency";
    let mut file =
        File::options().write(true).open(PATH).with_context(|| format!("cannot open {PATH}"))?;
    file.write_all(&0_i32.to_ne_bytes()).with_context(|| format!("cannot write to {PATH}"))?;
    Ok(file)
}
