//! Busy time of the whole machine, whoever is to blame: what a transaction really costs.

use std::time::Duration;

use anyhow::{Context, Result};

/// The grain of `/proc/stat`: `USER_HZ` is 100 on every Linux that latput runs on (proc(5)).
const TICK: Duration = Duration::from_millis(10);

/// Time since boot that the CPUs together were not idle: what their idle time leaves of the time since boot. The
/// other fields are counted at clock ticks and can miss busy spells; idle time is exact where idle CPUs stop
/// their tick (`NO_HZ_IDLE`).
pub fn busy_time() -> Result<Duration> {
    let text = std::fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    let (idle, cpus) = idle_time(&text).context("/proc/stat is not as proc(5) has it")?;
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let uptime = Duration::try_from(now).context("the monotonic clock is before zero")?;
    Ok((uptime * cpus).saturating_sub(idle))
}

/// idle + iowait of all CPUs, and how many CPUs there are.
fn idle_time(text: &str) -> Option<(Duration, u32)> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Option<Vec<u32>> = line.split_whitespace().map(|one| one.parse().ok()).collect();
    let [_user, _nice, _system, idle, iowait, ..] = ticks?[..] else { return None };
    let cpus = text.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu "));
    Some((TICK * idle.checked_add(iowait)?, u32::try_from(cpus.count()).ok().filter(|n| *n > 0)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_read_and_damage_seen() {
        let text = "cpu  10 20 30 4000 500 6 7 8 900 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n";
        assert_eq!(idle_time(text), Some((Duration::from_secs(45), 1)));
        assert_eq!(idle_time("cpu  1 2 3\n"), None);
        assert_eq!(idle_time("cpu  1 2 x 4 5 6 7 8\ncpu0 1\n"), None);
        assert_eq!(idle_time("cpu  1 2 3 4 5 6 7 8\n"), None);
        assert_eq!(idle_time(""), None);
    }
}
