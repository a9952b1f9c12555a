//! Kernel threads that receive packets.

use crate::evidence::Evidence;
use crate::snapshot::Look;

/// Time of a thread within the window.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ThreadTime {
    pub(crate) name: String,
    pub(crate) ran_s: f64,
    /// Time that it was ready to run and others ran.
    pub(crate) waited_s: f64,
}

/// NAPI threads of the interface and `ksoftirqd` of each CPU, by `/proc/PID/comm` and `/proc/PID/schedstat`.
pub(crate) fn find_receive_threads(evidence: &Evidence<'_>) -> Vec<ThreadTime> {
    let [before, after] = evidence.looks();
    let napi = format!("napi/{}-", evidence.interface_name());
    let threads = after.texts_below("proc/").filter_map(|(name, text)| {
        let name_of = text.trim();
        let process = name.strip_suffix("/comm")?;
        let is_receiver = name_of.starts_with(&napi) || name_of.starts_with("ksoftirqd/");
        let read = |look: &Look| parse_schedstat(look.text(&format!("proc/{process}/schedstat"))?);
        let [then, now] = [read(before)?, read(after)?];
        // A kernel without CONFIG_SCHED_INFO prints zeros.
        let is_counted = is_receiver && now != [0; 2];
        let grown = |at: usize| now[at].saturating_sub(then[at]) as f64 / 1e9;
        is_counted.then(|| ThreadTime {
            name: name_of.to_owned(),
            ran_s: grown(0),
            waited_s: grown(1),
        })
    });
    threads.collect()
}

/// Nanoseconds that a thread ran and waited, and how often it ran.
fn parse_schedstat(text: &str) -> Option<[u64; 2]> {
    let mut words = text.split_whitespace();
    Some([words.next()?.parse().ok()?, words.next()?.parse().ok()?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::fixture::Fixture;

    #[test]
    fn only_receivers_of_interface_are_read() {
        let snapshot = Fixture::new()
            .fixed("proc/7/comm", "napi/eth0-8193\n")
            .grown("proc/7/schedstat", "1000 1000 5\n", "2000001000 500001000 9\n")
            .fixed("proc/8/comm", "napi/eth1-8194\n")
            .grown("proc/8/schedstat", "0 0 0\n", "9 9 9\n")
            .fixed("proc/9/comm", "ksoftirqd/0\n")
            .fixed("proc/9/schedstat", "0 0 0\n")
            .into_snapshot();
        let found = find_receive_threads(&Evidence::from_snapshot(&snapshot));
        let expected = ThreadTime { name: "napi/eth0-8193".to_owned(), ran_s: 2.0, waited_s: 0.5 };
        assert_eq!(found, [expected]);
    }
}
