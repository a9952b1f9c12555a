//! Comparisons within one test of iperf3: its sums with its streams, and its counts with what is possible.

use serde_json::Value;

use super::{is_both_ways, read_count, read_number};
use crate::parsed::check_rate;
use crate::read_error::ReadError;
use crate::rules::{self, BIN, COUNTING, is_near};

/// Sums of an end, with the parts of its streams that they add up.
const SUMS: &[(&str, &str)] = &[
    ("sum_sent", "sender"),
    ("sum_sent", "udp"),
    ("sum_received", "receiver"),
    ("sum_sent_bidir_reverse", "sender"),
    ("sum_received_bidir_reverse", "receiver"),
];
/// Figures that are added, with the share by which iperf3 may round their sum.
const ADDED: &[(&str, f64)] =
    &[("bytes", BIN), ("bits_per_second", COUNTING), ("retransmits", BIN)];
/// Those of datagrams, which only `sum` has of the receiver.
const ADDED_DATAGRAMS: &[(&str, f64)] = &[("packets", BIN), ("lost_packets", BIN)];

/// Streams that a test was asked for: `--bidir` has one for each direction.
pub(super) fn count_wanted(start: &Value, end: &Value) -> Option<u64> {
    let asked = &start["test_start"];
    let wanted = asked["num_streams"].as_u64().or_else(|| start["num_streams"].as_u64())?;
    Some(wanted.saturating_mul(if is_both_ways(asked, end) { 2 } else { 1 }))
}

/// Refuses a test whose figures contradict each other, or cannot be.
pub(super) fn check_test(start: &Value, end: &Value) -> Result<(), ReadError> {
    let streams = end["streams"].as_array().map_or(&[][..], Vec::as_slice);
    let wanted = count_wanted(start, end).unwrap_or(streams.len() as u64);
    if streams.len() as u64 > wanted {
        return Err(ReadError::Contradiction(format!(
            "its end has {} streams and its start {wanted}: tests of several clients are mixed",
            streams.len()
        )));
    }
    // Of two directions the streams of one are known by their mark.
    let tells_directions =
        |sum: &Value| sum["sender"].is_boolean() || !is_both_ways(&start["test_start"], end);
    let is_whole = streams.len() as u64 == wanted;
    if tells_directions(&end["sum"]) {
        check_sum(end, ("sum", "udp"), ADDED_DATAGRAMS, is_whole)?;
    }
    for (name, part) in SUMS {
        let sum = &end[*name];
        let of = |key: &str| read_number(sum, key);
        check_rate(of("bytes"), of("seconds"), of("bits_per_second"))?;
        check_seconds(name, sum, streams)?;
        if tells_directions(sum) {
            check_sum(end, (name, part), ADDED, is_whole)?;
        }
        check_retransmits(start, sum, wanted)?;
    }
    check_cpu(end, wanted)
}

/// Compares a sum with the part of the streams that it adds up. Where streams are missing, it is at least theirs.
fn check_sum(
    end: &Value,
    (name, part): (&str, &str),
    added: &[(&str, f64)],
    is_whole: bool,
) -> Result<(), ReadError> {
    let sum = &end[name];
    let is_added = |of: &&Value| of.is_object() && of["sender"] == sum["sender"];
    let streams = end["streams"].as_array().into_iter().flatten();
    let parts: Vec<&Value> = streams.map(|it| &it[part]).filter(is_added).collect();
    for (key, slack) in added.iter().filter(|_| !parts.is_empty()) {
        let number = |of: &Value| read_number(of, key).or(read_count(of, key).map(|it| it as f64));
        let added: Option<f64> = parts.iter().map(|of| number(of)).sum();
        let Some((stated, added)) = number(sum).zip(added) else { continue };
        let margin = slack * stated.max(added);
        if added > stated + margin || (is_whole && added < stated - margin) {
            return Err(ReadError::Contradiction(format!(
                "`{key}` of `{name}` is {stated:.0}, and its streams have {added:.0} together"
            )));
        }
    }
    Ok(())
}

/// Compares the time of a sum with those of its streams.
fn check_seconds(name: &str, sum: &Value, streams: &[Value]) -> Result<(), ReadError> {
    let Some(stated) = read_number(sum, "seconds").filter(|seconds| *seconds > 0.0) else {
        return Ok(());
    };
    let parts = || streams.iter().flat_map(|it| ["sender", "receiver", "udp"].map(|of| &it[of]));
    let times = parts().flat_map(|of| ["seconds", "end"].map(|key| read_number(of, key)));
    let known: Vec<f64> = times.flatten().filter(|seconds| *seconds > 0.0).collect();
    if known.is_empty() || known.iter().any(|seconds| is_near(stated, *seconds)) {
        return Ok(());
    }
    let longest = known.into_iter().fold(0.0, f64::max);
    Err(ReadError::Contradiction(format!(
        "`{name}` lasted {stated:.3} s, and its streams {longest:.3} s"
    )))
}

/// Compares the retransmissions with the bytes that were sent.
fn check_retransmits(start: &Value, sum: &Value, streams: u64) -> Result<(), ReadError> {
    let known = read_count(sum, "retransmits").zip(read_count(sum, "bytes"));
    let Some((retransmits, bytes)) = known else { return Ok(()) };
    let sizes = [&start["tcp_mss"], &start["tcp_mss_default"], &start["test_start"]["blksize"]];
    rules::check_retransmits(
        retransmits,
        bytes,
        sizes.into_iter().filter_map(Value::as_u64),
        streams,
    )
}

/// Refuses more CPU time than the threads of iperf3 can take: since 3.16 it has one for each stream beside the first.
fn check_cpu(end: &Value, streams: u64) -> Result<(), ReadError> {
    let threads = streams.saturating_add(1);
    let most = 100.0 * threads as f64 * (1.0 + COUNTING);
    for (key, value) in end["cpu_utilization_percent"].as_object().into_iter().flatten() {
        if let Some(percent) = value.as_f64().filter(|percent| *percent > most) {
            return Err(ReadError::Contradiction(format!(
                "`{key}` is {percent:.0}% of a CPU, and the {threads} threads of iperf3 take {most:.0}% at most"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Two streams of one direction.
    fn test() -> (Value, Value) {
        let part = |bytes: u64| {
            json!({ "seconds": 1.0, "end": 1.05, "bytes": bytes, "bits_per_second": bytes * 8,
                    "retransmits": 2, "sender": true })
        };
        let stream = || json!({ "sender": part(1_000_000), "receiver": part(990_000) });
        let sum = |bytes: u64| {
            json!({ "seconds": 1.0, "bytes": bytes, "bits_per_second": bytes * 8, "retransmits": 4,
                    "sender": true })
        };
        let end = json!({ "streams": [stream(), stream()], "sum_sent": sum(2_000_000),
            "sum_received": sum(1_980_000), "cpu_utilization_percent": { "host_total": 180.0 } });
        let start = json!({ "tcp_mss_default": 1448,
            "test_start": { "num_streams": 2, "blksize": 131_072 } });
        (start, end)
    }

    #[test]
    fn agreeing_test_passes() {
        let (start, mut end) = test();
        check_test(&start, &end).unwrap();
        // The receiver needed longer than the sender.
        end["sum_received"]["seconds"] = 1.05.into();
        check_test(&start, &end).unwrap();
        // A stream without figures may explain the rest of the sum.
        end["streams"].as_array_mut().unwrap().pop();
        check_test(&start, &end).unwrap();
        check_test(&Value::Null, &Value::Null).unwrap();
    }

    #[test]
    fn contradicting_figure_is_named() {
        for (pointer, value, said) in [
            ("/sum_received/bytes", 660_000.0, "do not give its"),
            ("/sum_received/bytes", 1_880_000.0, "`bytes` of `sum_received` is 1880000, and its"),
            ("/sum_sent/bits_per_second", 12e6, "do not give its"),
            ("/streams/1/receiver/bits_per_second", 80.0, "`bits_per_second` of `sum_received`"),
            ("/streams/1/sender/retransmits", 0.0, "`retransmits` of `sum_sent` is 4, and its"),
            ("/cpu_utilization_percent/host_total", 9999.0, "`host_total` is 9999% of a CPU"),
        ] {
            let (start, mut end) = test();
            *end.pointer_mut(pointer).unwrap() = value.into();
            let error = check_test(&start, &end).unwrap_err();
            assert!(
                matches!(&error, ReadError::Contradiction(text) if text.contains(said)),
                "{error}"
            );
        }
    }

    #[test]
    fn datagrams_of_streams_add_up() {
        let (start, mut end) = test();
        let part = |lost: u64| json!({ "packets": 1000, "lost_packets": lost, "sender": true });
        end["streams"] = json!([{ "udp": part(30) }, { "udp": part(12) }]);
        end["sum"] = json!({ "packets": 2000, "lost_packets": 42, "sender": true });
        // Of the sender nothing is lost.
        end["sum_sent"] = json!({ "packets": 2000, "lost_packets": 0, "sender": true });
        end["sum_received"] = Value::Null;
        check_test(&start, &end).unwrap();
        for (key, stated) in [("packets", 1900), ("lost_packets", 0)] {
            let mut end = end.clone();
            end["sum"][key] = stated.into();
            let error = check_test(&start, &end).unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{key}` of `sum` is {stated}, and")), "{error}");
        }
    }

    #[test]
    fn wrong_time_is_refused() {
        let (start, mut end) = test();
        end["sum_received"]["seconds"] = 100.0.into();
        end["sum_received"]["bits_per_second"] = Value::Null;
        let error = check_test(&start, &end).unwrap_err().to_string();
        assert_eq!(error, "`sum_received` lasted 100.000 s, and its streams 1.050 s");
    }

    #[test]
    fn impossible_retransmissions_are_refused() {
        for (retransmits, mss, is_possible) in [
            (3_700_u64, 1448, true),
            (3_800, 1448, false),
            (20_000, 88, true),
            (1_000_000_000_000_000_000, 1, false),
        ] {
            let (mut start, mut end) = test();
            start["tcp_mss_default"] = mss.into();
            end["sum_sent"]["retransmits"] = retransmits.into();
            for stream in end["streams"].as_array_mut().unwrap() {
                stream["sender"]["retransmits"] = (retransmits / 2).into();
            }
            let read = check_test(&start, &end);
            assert_eq!(read.is_ok(), is_possible, "{retransmits} of {mss}: {read:?}");
        }
    }

    #[test]
    fn streams_beyond_those_asked_are_refused() {
        let (mut start, mut end) = test();
        start["test_start"]["num_streams"] = 1.into();
        let error = check_test(&start, &end).unwrap_err().to_string();
        assert!(error.contains("its end has 2 streams and its start 1"), "{error}");
        // Both directions have one each.
        start["test_start"]["bidir"] = 1.into();
        end["streams"][1]["sender"]["sender"] = false.into();
        end["streams"][1]["receiver"]["sender"] = false.into();
        for sum in ["sum_sent", "sum_received"] {
            end[sum] =
                end["streams"][0][if sum == "sum_sent" { "sender" } else { "receiver" }].clone();
        }
        check_test(&start, &end).unwrap();
    }
}
