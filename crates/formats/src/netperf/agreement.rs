//! Comparisons within one test of netperf: its rates with its bytes and times, and its counts with what is possible.

use latput_trial::{Metric, Observation};

use super::records::NetperfRecord;
use super::{read_count, read_number, read_throughput_bps, round_count};
use crate::parsed::check_rate;
use crate::read_error::ReadError;
use crate::rules::{self, COMPARABLE_SECONDS};

/// Rates below this many of their unit are too coarse to compare: netperf prints two decimals.
const COMPARABLE_RATE: f64 = 0.1;

/// One end of a stream: its rate, the counts of its bytes, and the counts of its messages.
struct StreamEnd {
    kind: &'static str,
    rate: &'static str,
    bytes: &'static [&'static str],
    messages: Option<&'static str>,
}

const STREAM_ENDS: &[StreamEnd] = &[
    StreamEnd {
        kind: "tcp_stream",
        rate: "THROUGHPUT",
        bytes: &["LOCAL_BYTES_SENT", "REMOTE_BYTES_RECVD"],
        messages: None,
    },
    StreamEnd {
        kind: "tcp_maerts",
        rate: "THROUGHPUT",
        bytes: &["LOCAL_BYTES_RECVD", "REMOTE_BYTES_SENT"],
        messages: None,
    },
    StreamEnd {
        kind: "udp_stream",
        rate: "LOCAL_SEND_THROUGHPUT",
        bytes: &["LOCAL_BYTES_SENT"],
        messages: Some("LOCAL_OKAY"),
    },
    StreamEnd {
        kind: "udp_stream",
        rate: "REMOTE_RECV_THROUGHPUT",
        bytes: &["REMOTE_BYTES_RECVD"],
        messages: Some("REMOTE_OKAY"),
    },
];

/// One end that sends: the counts of its retransmissions and bytes, and the sizes of its sends.
struct SendingEnd {
    kind: &'static str,
    retransmits: &'static str,
    bytes: &'static str,
    sizes: &'static [&'static str],
}

const SENDING_ENDS: &[SendingEnd] = &[
    SendingEnd {
        kind: "tcp_stream",
        retransmits: "LOCAL_TRANSPORT_RETRANS",
        bytes: "LOCAL_BYTES_SENT",
        sizes: &["TRANSPORT_MSS", "LOCAL_SEND_SIZE", "SEND_SIZE"],
    },
    SendingEnd {
        kind: "tcp_maerts",
        retransmits: "REMOTE_TRANSPORT_RETRANS",
        bytes: "REMOTE_BYTES_SENT",
        sizes: &["TRANSPORT_MSS", "REMOTE_SEND_SIZE", "SEND_SIZE"],
    },
    SendingEnd {
        kind: "tcp_rr",
        retransmits: "LOCAL_TRANSPORT_RETRANS",
        bytes: "LOCAL_BYTES_SENT",
        sizes: &["TRANSPORT_MSS", "REQUEST_SIZE"],
    },
    SendingEnd {
        kind: "tcp_rr",
        retransmits: "REMOTE_TRANSPORT_RETRANS",
        bytes: "REMOTE_BYTES_SENT",
        sizes: &["TRANSPORT_MSS", "RESPONSE_SIZE"],
    },
];

/// Requests that netperf has under way at once, at most; `None` where the burst is not told. After a loss `UDP_RR` begins
/// its latencies anew, so they are not those of its rate. Neither are those of one iteration.
pub(super) fn count_outstanding(record: &NetperfRecord, kind: &str) -> Option<f64> {
    match kind {
        _ if record.is_mean() => None,
        "tcp_rr" => read_number(record, "BURST_SIZE").map(|burst| burst + 1.0),
        "tcp_crr" => Some(1.0),
        _ => None,
    }
}

/// Refuses a test whose rates do not follow from its counts, or whose counts cannot be.
pub(super) fn check_test(
    record: &NetperfRecord,
    kind: &str,
    observation: &Observation,
) -> Result<(), ReadError> {
    for end in SENDING_ENDS.iter().filter(|end| end.kind == kind) {
        check_retransmits(record, end, observation)?;
    }
    let seconds = read_number(record, "ELAPSED_TIME");
    let Some(seconds) = seconds.filter(|it| *it >= COMPARABLE_SECONDS && !record.is_mean()) else {
        return Ok(());
    };
    for end in STREAM_ENDS.iter().filter(|end| end.kind == kind) {
        check_stream_end(record, end, seconds)?;
    }
    // Every answer has one size.
    let rate = observation.reported_metrics.get(&Metric::TransactionsPerS);
    let answers =
        count_bytes(record, "LOCAL_BYTES_RECVD").zip(count_bytes(record, "RESPONSE_SIZE"));
    if let Some((rate, (bytes, size))) = rate.zip(answers) {
        check_rate(Some(bytes), Some(seconds), Some(rate * size * 8.0))?;
    }
    Ok(())
}

/// Bytes above 0: netperf prints 0 and -1 for what it does not know.
fn count_bytes(record: &NetperfRecord, key: &str) -> Option<f64> {
    read_number(record, key).filter(|bytes| *bytes > 0.0)
}

fn check_stream_end(
    record: &NetperfRecord,
    end: &StreamEnd,
    seconds: f64,
) -> Result<(), ReadError> {
    if read_number(record, end.rate).is_none_or(|rate| rate < COMPARABLE_RATE) {
        return Ok(());
    }
    let rate = read_throughput_bps(record, end.rate)?;
    let messages = end.messages.and_then(|key| count_bytes(record, key));
    let sizes = ["LOCAL_SEND_SIZE", "SEND_SIZE"];
    let size = sizes.iter().find_map(|key| count_bytes(record, key));
    let sent = messages.zip(size).map(|(count, size)| count * size);
    let counted = end.bytes.iter().map(|key| count_bytes(record, key)).chain([sent]);
    counted.into_iter().try_for_each(|bytes| check_rate(bytes, Some(seconds), rate))
}

/// Compares the retransmissions with the bytes that were sent, or else with those of the rate.
fn check_retransmits(
    record: &NetperfRecord,
    end: &SendingEnd,
    observation: &Observation,
) -> Result<(), ReadError> {
    let Some(retransmits) = read_number(record, end.retransmits) else { return Ok(()) };
    let sizes = || end.sizes.iter().filter_map(|key| read_count(record, key));
    let metrics = &observation.reported_metrics;
    let of_rate = || {
        let seconds = read_number(record, "ELAPSED_TIME")?;
        let each = sizes().next_back();
        let transactions =
            metrics.get(&Metric::TransactionsPerS).zip(each).map(|(rate, size)| rate * size as f64);
        let stream = metrics.get(&Metric::ThroughputBps).map(|bits| bits / 8.0);
        Some(transactions.or(stream)? * seconds)
    };
    let Some(bytes) = count_bytes(record, end.bytes).or_else(of_rate) else { return Ok(()) };
    rules::check_retransmits(round_count(retransmits), round_count(bytes.ceil()), sizes(), 1)
}

#[cfg(test)]
mod tests {
    use super::super::parse_tests;

    const STREAM: &str = "PROTOCOL=TCP\nDIRECTION=Send\nELAPSED_TIME=1.02\nTHROUGHPUT=3161.96\n\
        THROUGHPUT_UNITS=10^6bits/s\nLOCAL_SEND_SIZE=16384\nTRANSPORT_MSS=32768\n\
        LOCAL_TRANSPORT_RETRANS=45\nLOCAL_BYTES_SENT=401915904\nREMOTE_BYTES_RECVD=401915904\n\
        CONFIDENCE_ITERATION=1\n";
    const RR: &str = "PROTOCOL=TCP\nDIRECTION=Send|Recv\nELAPSED_TIME=1.00\nTHROUGHPUT=14330.46\n\
        THROUGHPUT_UNITS=Trans/s\nREQUEST_SIZE=1\nRESPONSE_SIZE=1\nBURST_SIZE=0\n\
        LOCAL_TRANSPORT_RETRANS=0\nREMOTE_TRANSPORT_RETRANS=0\nMEAN_LATENCY=69.64\n";
    const UDP: &str = "MIGRATED UDP STREAM TEST from a to b : demo\n\
        bytes   bytes    secs            #      #   10^6bits/sec\n\n\
        212992   65507   1.00        38613      0    20187.43\n\
        212992           1.00         1597            834.93\n\n";

    #[track_caller]
    fn check_read(text: &str, changes: &[(&str, &str)], said: Option<&str>) {
        let text = changes.iter().fold(text.to_owned(), |text, (from, to)| {
            assert!(text.contains(from), "{from}");
            text.replace(from, to)
        });
        let read = parse_tests(&text).unwrap().tests.remove(0);
        let problem = read.err().map(|problem| problem.to_string());
        match (&problem, said) {
            (Some(problem), Some(said)) => assert!(problem.contains(said), "{problem}"),
            (None, None) => {}
            _ => panic!("{problem:?} for {changes:?}"),
        }
    }

    #[test]
    fn rate_of_stream_follows_from_bytes() {
        let said = Some("bytes in 1.020 s do not give its");
        check_read(STREAM, &[], None);
        check_read(STREAM, &[("10^6bits", "10^9bits")], said);
        check_read(STREAM, &[("RECVD=4", "RECVD=8")], said);
        check_read(STREAM, &[("ELAPSED_TIME=1.02", "ELAPSED_TIME=102")], Some("do not give its"));
        // The counts of the last iteration, beside the means of all.
        check_read(STREAM, &[("=3161.96", "=4000.00"), ("ITERATION=1", "ITERATION=5")], None);
        // 0.01 is half as much again.
        let slow = [("=3161.96", "=0.01"), ("10^6bits", "10^9bits"), ("=401915904", "=1912500")];
        check_read(STREAM, &slow, None);
    }

    #[test]
    fn rates_of_datagrams_follow_from_messages() {
        check_read(UDP, &[], None);
        check_read(UDP, &[("834.93", "99999.00")], Some("do not give its 99999000000 bit/s"));
        check_read(UDP, &[("20187.43", "2018.74")], Some("do not give its 2018740000 bit/s"));
        let keyval = "PROTOCOL=UDP\nDIRECTION=Send\nTHROUGHPUT_UNITS=10^6bits/s\n\
            LOCAL_SEND_THROUGHPUT=500.00\nREMOTE_RECV_THROUGHPUT=400.00\n";
        check_read(keyval, &[], None);
        let said = "720000000 bit/s arrived of 500000000 sent";
        check_read(keyval, &[("=400.00", "=720.00")], Some(said));
    }

    #[test]
    fn retransmissions_are_within_packets() {
        let said = Some("retransmissions are more than the packets of its 401915904 bytes");
        check_read(STREAM, &[("RETRANS=45", "RETRANS=10000000")], said);
        check_read(STREAM, &[("RETRANS=45", "RETRANS=1000000000000000")], said);
        // Without the count of bytes the rate gives it.
        let of_rate = [("RETRANS=45", "RETRANS=10000000"), ("LOCAL_BYTES", "X")];
        check_read(STREAM, &of_rate, Some("more than the packets of its 403149900 bytes"));
        check_read(RR, &[("LOCAL_TRANSPORT_RETRANS=0", "LOCAL_TRANSPORT_RETRANS=14000")], None);
        let more = [("LOCAL_TRANSPORT_RETRANS=0", "LOCAL_TRANSPORT_RETRANS=15000")];
        check_read(RR, &more, Some("more than the packets of its 14331 bytes"));
    }

    #[test]
    fn latency_fits_requests_under_way() {
        let said =
            "its 1000000.00 /s with a latency of 69640 ns need 69.6 requests at once, and it had 1";
        let fast = ("=14330.46", "=1000000");
        check_read(RR, &[], None);
        check_read(RR, &[fast], Some(said));
        check_read(RR, &[fast, ("BURST_SIZE=0", "BURST_SIZE=70")], None);
        check_read(RR, &[fast, ("BURST_SIZE=0\n", "")], None);
        check_read(RR, &[fast, ("PROTOCOL=TCP", "PROTOCOL=UDP")], None);
        let title = "MIGRATED TCP REQUEST/RESPONSE TEST from a to b : demo : first burst 0\n";
        check_read(&[title, RR].concat(), &[fast, ("BURST_SIZE=0\n", "")], Some(said));
        let answers = [("BURST_SIZE=0", "BURST_SIZE=0\nLOCAL_BYTES_RECVD=143")];
        check_read(RR, &answers, Some("its 143 bytes in 1.000 s do not give its"));
    }
}
