//! Busy time of the whole machine, whoever is to blame: what a transaction really costs.

use std::time::Duration;

use anyhow::{Context, Result};

/// The grain of `/proc/stat`: `USER_HZ` is 100 on every Linux that latput runs on (proc(5)).
const TICK: Duration = Duration::from_millis(10);

/// Time since boot that the CPUs together were not idle.
pub fn busy_time() -> Result<Duration> {
    let text = std::fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    parse(&text).context("the first line of /proc/stat is not as proc(5) has it")
}

/// user + nice + system + irq + softirq + steal; guest time is inside user.
fn parse(text: &str) -> Option<Duration> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Option<Vec<u32>> = line.split_whitespace().map(|one| one.parse().ok()).collect();
    let ticks = ticks?;
    let [user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = ticks[..] else {
        return None;
    };
    let busy = [user, nice, system, irq, softirq, steal];
    Some(busy.into_iter().map(|ticks| TICK * ticks).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_guest_time_do_not_count() {
        let text = "cpu  10 20 30 4000 500 6 7 8 900 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n";
        assert_eq!(parse(text), Some(Duration::from_millis(810)));
        assert_eq!(parse("cpu  1 2 3\n"), None);
        assert_eq!(parse("cpu  1 2 x 4 5 6 7 8\n"), None);
        assert_eq!(parse(""), None);
    }
}
