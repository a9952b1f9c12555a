//! netperf's figures in latput's units. netperf marks unmeasured figures with special values.

mod agreement;
mod records;

use latput_trial::figures::{Commas, NumberError, read_number as parse_number};
use latput_trial::observation::{CpuMethod, ProgramCpu, Role};
use latput_trial::workload::WorkloadKind;
use latput_trial::{Metric, Observation, Traffic, Workload};
use latput_units::Bytes;

use self::records::NetperfRecord;
use crate::parsed::{ParseProblem, ParsedTest, ParsedTests, workload_from_fields};
use crate::read_error::ReadError;
use crate::rules::{BIN, COUNTING, DeliveryCounts, StatedFigures};

/// Every test of a file. Fails where the file as a whole cannot be told apart into tests.
pub(crate) fn parse_tests(text: &str) -> Result<ParsedTests, ParseProblem> {
    let (records, note) = records::read(text)?;
    let tests = records.iter().map(|record| {
        parse_test(record)
            .map_err(|error| ParseProblem::of_test(format!("line {}", record.line), error))
    });
    Ok(ParsedTests { tests: tests.collect(), notes: note.map(str::to_owned).into_iter().collect() })
}

/// Units of throughput with their bits. K, M and G byte are powers of 1024 (netperf manual, option -f). For `10^0bits`
/// netperf divides by nothing, so it prints bytes (`calc_thruput_interval` in `src/netlib.c`).
const UNITS: [(&str, f64); 8] = [
    ("10^0bits", 8.0),
    ("10^3bits", 1e3),
    ("10^6bits", 1e6),
    ("10^9bits", 1e9),
    ("Bytes", 8.0),
    ("KBytes", 8.0 * 1024.0),
    ("MBytes", 8.0 * 1024.0 * 1024.0),
    ("GBytes", 8.0 * 1024.0 * 1024.0 * 1024.0),
];
/// Unit of netperf that is no rate: the time of a byte or of a transaction.
const TIME_UNIT: &str = "Usec";

/// The unit of throughput in a classic header: `10^6bits/sec`, or `Bytes   /s` in a column of 8 letters. Before it may stand
/// `Bytes` as the unit of a size.
fn find_unit(header: &str) -> Option<&'static str> {
    let names = || UNITS.iter().map(|(name, _)| *name).chain([TIME_UNIT]);
    let mut words = header.split_whitespace().rev().filter_map(|word| word.split('/').next());
    words.find_map(|word| names().find(|name| *name == word))
}

fn parse_test(record: &NetperfRecord) -> Result<ParsedTest, ReadError> {
    if let Some(problem) = &record.problem {
        return Err(problem.as_str().into());
    }
    check_commas(record)?;
    let kind = detect_kind(record)?;
    let mut notes = Vec::new();
    if record.is_uncertain {
        notes.push("netperf warned that it did not reach the wanted confidence".to_owned());
    }
    let mut observation = Observation::default();
    let mut beside = StatedFigures::default();
    match kind {
        "tcp_rr" | "udp_rr" | "tcp_crr" => {
            parse_request_response(record, &mut observation)?;
            beside.is_coarse = true;
            beside.least_ns = read_number(record, "MIN_LATENCY").map(|us| us * 1e3);
            beside.outstanding = agreement::count_outstanding(record, kind);
        }
        "udp_stream" => beside.arrivals.extend(parse_datagrams(record, &mut observation)?),
        _ => {
            let rate = read_throughput_bps(record, "THROUGHPUT")?;
            let rate = rate.ok_or("it has no THROUGHPUT that is a number")?;
            observation.reported_metrics.insert(Metric::ThroughputBps, rate);
            if kind == "tcp_stream" {
                notes.push(
                    "netperf's throughput of a TCP_STREAM is what the sender's kernel accepted"
                        .to_owned(),
                );
            }
        }
    }
    agreement::check_test(record, kind, &observation)?;
    add_retransmits(record, kind, &mut observation);
    add_cpu(record, kind, &mut observation)?;
    let test = ParsedTest {
        workload: build_netperf_workload(kind, &workload_fields(record, kind, &mut notes))?,
        setting: None,
        started_unix_ms: None,
        identity: None,
        writer: None,
        record: Some(record.checksum()),
        observation,
        beside,
        facts: Vec::new(),
        notes,
    };
    test.into_checked()
}

/// The titles of classic output in capitals, as versions differ, and the selectors of the same tests.
const KINDS: &[(&str, &str, &str, &str)] = &[
    ("TCP CONNECT/REQUEST/RESPONSE TEST", "TCP", "Connect|Send|Recv", "tcp_crr"),
    ("TCP REQUEST/RESPONSE TEST", "TCP", "Send|Recv", "tcp_rr"),
    ("UDP REQUEST/RESPONSE TEST", "UDP", "Send|Recv", "udp_rr"),
    ("TCP STREAM TEST", "TCP", "Send", "tcp_stream"),
    ("TCP SENDFILE TEST", "TCP", "Send", "tcp_stream"),
    ("TCP MAERTS TEST", "TCP", "Receive", "tcp_maerts"),
    ("TCP MAERTS TEST", "TCP", "Recv", "tcp_maerts"),
    ("UDP STREAM TEST", "UDP", "Send", "udp_stream"),
];

/// The kind of test, from the title or from the selectors.
fn detect_kind(record: &NetperfRecord) -> Result<&'static str, String> {
    let title = record.title.to_ascii_uppercase();
    if let Some((.., kind)) = KINDS.iter().find(|(known, ..)| title.contains(known)) {
        return Ok(kind);
    }
    let text = |key: &str| record.values.get(key).map(String::as_str);
    match (text("PROTOCOL"), text("DIRECTION")) {
        (Some(protocol), Some(direction)) => {
            let is_meant =
                |row: &&(&str, &str, &str, &str)| row.1 == protocol && row.2 == direction;
            let row = KINDS.iter().find(is_meant);
            row.map(|(.., kind)| *kind).ok_or_else(|| {
                format!("latput has no workload for {protocol} with direction {direction}")
            })
        }
        _ if !title.is_empty() => Err(format!(
            "latput cannot import `{}`",
            record.title.chars().take(60).collect::<String>()
        )),
        _ => Err(
            "the kind of test is missing: add PROTOCOL and DIRECTION to the selectors, or leave out -P 0"
                .to_owned(),
        ),
    }
}

fn workload_fields(
    record: &NetperfRecord,
    kind: &str,
    notes: &mut Vec<String>,
) -> Vec<(&'static str, String)> {
    let wanted: &[(&str, &[&str])] = match kind {
        "tcp_rr" | "udp_rr" | "tcp_crr" => {
            &[("request_bytes", &["REQUEST_SIZE"]), ("response_bytes", &["RESPONSE_SIZE"])]
        }
        "tcp_maerts" => &[("message_bytes", &["REMOTE_SEND_SIZE", "SEND_SIZE"])],
        "udp_stream" => &[("datagram_bytes", &["LOCAL_SEND_SIZE", "SEND_SIZE"])],
        _ => &[("message_bytes", &["LOCAL_SEND_SIZE", "SEND_SIZE"])],
    };
    let mut fields = Vec::new();
    for (field, selectors) in wanted {
        match selectors.iter().find_map(|key| read_count(record, key)).filter(|size| *size > 0) {
            Some(size) => fields.push((*field, size.to_string())),
            None => notes.push(format!(
                "{kind}: {} is not in the file; latput's default for {field} is shown",
                selectors[0]
            )),
        }
    }
    if let Some(burst) = read_count(record, "BURST_SIZE").filter(|_| kind.ends_with("_rr")) {
        fields.push(("burst", burst.to_string()));
    }
    if kind == "tcp_rr" && read_count(record, "LOCAL_NODELAY") == Some(0) {
        fields.push(("nodelay", "false".to_owned()));
    }
    fields
}

/// The workload of some fields. netperf's requests over UDP have 1 byte, where latput's own have a number in them: the
/// workload keeps the size that was, and cannot be run.
fn build_netperf_workload(
    kind: &str,
    fields: &[(&'static str, String)],
) -> Result<Workload, String> {
    let least = |name: &str| {
        let known = WorkloadKind::find(kind).ok()?.fields.iter().find(|field| field.name == name);
        known.map(|field| field.least).filter(|_| kind == "udp_rr" && name.ends_with("_bytes"))
    };
    let smaller = |(name, size): &(&'static str, String)| {
        let (least, size) = (least(name)?, size.parse::<u64>().ok()?);
        (size < least).then_some((*name, size, least))
    };
    let smaller: Vec<(&str, u64, u64)> = fields.iter().filter_map(smaller).collect();
    let mut raised = fields.to_vec();
    for (name, size) in &mut raised {
        if let Some((.., least)) = smaller.iter().find(|(small, ..)| small == name) {
            *size = least.to_string();
        }
    }
    let mut workload = workload_from_fields(kind, &raised)?;
    for (name, size, least) in smaller {
        workload.name =
            workload.name.replace(&format!("{name}={least}"), &format!("{name}={size}"));
        if let Traffic::UdpRr { request_bytes, response_bytes, .. } = &mut workload.traffic {
            let field = if name == "request_bytes" { request_bytes } else { response_bytes };
            *field = Bytes::new(size);
        }
    }
    Ok(workload)
}

fn parse_request_response(
    record: &NetperfRecord,
    observation: &mut Observation,
) -> Result<(), ReadError> {
    let in_units = record.values.get("THROUGHPUT_UNITS").is_some_and(|unit| unit == "Trans/s");
    let throughput = read_finite_number(record, "THROUGHPUT")?.filter(|_| in_units);
    let stated = read_finite_number(record, "TRANSACTION_RATE")?;
    if let Some((rate, throughput)) = stated.zip(throughput)
        && (rate - throughput).abs() > BIN * rate.max(throughput)
    {
        return Err(ReadError::Contradiction(format!(
            "its THROUGHPUT of {throughput} Trans/s is not its TRANSACTION_RATE of {rate}"
        )));
    }
    let rate = stated.or(throughput).ok_or(
        "it has no transaction rate: add TRANSACTION_RATE, or THROUGHPUT with THROUGHPUT_UNITS, to the \
         selectors",
    )?;
    observation.reported_metrics.insert(Metric::TransactionsPerS, rate);
    let seconds = read_number(record, "ELAPSED_TIME").filter(|seconds| *seconds > 0.0);
    observation.traffic.transactions = seconds.map(|seconds| round_count(rate * seconds));
    for (metric, key) in [
        (Metric::LatencyNsMean, "MEAN_LATENCY"),
        (Metric::LatencyNsP50, "P50_LATENCY"),
        (Metric::LatencyNsP90, "P90_LATENCY"),
        (Metric::LatencyNsP99, "P99_LATENCY"),
        (Metric::LatencyNsMax, "MAX_LATENCY"),
    ] {
        // Without -j every latency is -1. In a long run the histogram may overflow to negative
        // values.
        if let Some(us) = read_number(record, key).filter(|us| *us > 0.0) {
            observation.reported_metrics.insert(metric, us * 1e3);
        }
    }
    Ok(())
}

/// Reads datagram figures. The sender's THROUGHPUT differs between versions; the received rate has
/// a name of its own.
fn parse_datagrams(
    record: &NetperfRecord,
    observation: &mut Observation,
) -> Result<Vec<DeliveryCounts>, ReadError> {
    let rate = read_throughput_bps(record, "REMOTE_RECV_THROUGHPUT")?.ok_or(
        "the receiver's rate is missing: add REMOTE_RECV_THROUGHPUT and THROUGHPUT_UNITS to the selectors",
    )?;
    observation.reported_metrics.insert(Metric::ThroughputBps, rate);
    let counts = read_number(record, "LOCAL_OKAY").zip(read_number(record, "REMOTE_OKAY"));
    let counts = counts.filter(|(sent, _)| *sent > 0.0);
    let arrival = counts.map(|(sent, arrived)| DeliveryCounts::from_packets(sent, arrived));
    let loss = arrival.map(|arrival| (Metric::LossRatio, arrival.loss_ratio()));
    observation.reported_metrics.extend(loss);
    let sent = read_throughput_bps(record, "LOCAL_SEND_THROUGHPUT")?;
    let rates = sent.map(|sent| DeliveryCounts {
        counted: "bit/s",
        slack: COUNTING,
        ..DeliveryCounts::from_packets(sent, rate)
    });
    Ok(arrival.into_iter().chain(rates).collect())
}

fn read_throughput_bps(record: &NetperfRecord, key: &str) -> Result<Option<f64>, ReadError> {
    let Some(value) = read_finite_number(record, key)? else { return Ok(None) };
    let unit = record.values.get("THROUGHPUT_UNITS").map_or("", String::as_str);
    let name = unit.trim_end_matches("/s").trim_end_matches("/sec");
    match UNITS.iter().find(|(known, _)| *known == name) {
        Some((_, bits)) => Ok(Some(value * bits)),
        None if unit.is_empty() => {
            Err("it has no THROUGHPUT_UNITS: add it to the selectors".into())
        }
        None if name == TIME_UNIT => Err("its throughput is a time in us: use -f m".into()),
        None => Err(format!("latput does not know the unit of throughput `{unit}`").into()),
    }
}

fn add_retransmits(record: &NetperfRecord, kind: &str, observation: &mut Observation) {
    let count = |key: &str| read_number(record, key);
    let segments = match kind {
        "tcp_stream" => count("LOCAL_TRANSPORT_RETRANS"),
        "tcp_maerts" => count("REMOTE_TRANSPORT_RETRANS"),
        "tcp_rr" => count("LOCAL_TRANSPORT_RETRANS")
            .zip(count("REMOTE_TRANSPORT_RETRANS"))
            .map(|(here, there)| here + there),
        _ => None,
    };
    let seconds = read_number(record, "ELAPSED_TIME").filter(|seconds| *seconds > 0.0);
    if let Some((segments, seconds)) = segments.zip(seconds) {
        observation.reported_metrics.insert(Metric::RetransmitsPerS, segments / seconds);
    }
}

fn add_cpu(
    record: &NetperfRecord,
    kind: &str,
    observation: &mut Observation,
) -> Result<(), String> {
    let per_transaction = kind.ends_with("rr");
    let unit = record.values.get("SD_UNITS").map(String::as_str);
    for (end, role, busy, demand, program) in [
        (
            "LOCAL",
            Role::Generator,
            Metric::GeneratorCpuBusyRatio,
            Metric::GeneratorServiceDemandUs,
            "netperf",
        ),
        ("REMOTE", Role::Sut, Metric::SutCpuBusyRatio, Metric::SutServiceDemandUs, "netserver"),
    ] {
        let Some(percent) = read_number(record, &format!("{end}_CPU_UTIL")) else { continue };
        let share = percent / 100.0;
        observation.reported_metrics.insert(busy, share);
        let part = |name: &str| read_number(record, &format!("{end}_CPU_PERCENT_{name}"));
        observation.programs.push(ProgramCpu {
            role,
            program: program.to_owned(),
            method: CpuMethod::Host,
            busy_ratio: share,
            user_ratio: part("USER").map(|percent| percent / 100.0),
            system_ratio: part("SYSTEM").map(|percent| percent / 100.0),
        });
        let Some(us) = read_number(record, &format!("{end}_SD")) else { continue };
        match (unit, per_transaction) {
            (None | Some("usec/Tran" | "us/Tr"), true)
            | (None | Some("usec/KB" | "us/KB"), false) => {
                observation.reported_metrics.insert(demand, us);
            }
            (Some(other), _) => {
                return Err(format!("its service demand in {other} does not fit a {kind}"));
            }
        }
    }
    Ok(())
}

/// A figure; `None` for -1, which netperf prints for an unmeasured one.
fn read_number(record: &NetperfRecord, key: &str) -> Option<f64> {
    let value = parse_number(record.values.get(key)?.trim(), Commas::Locale).ok()?;
    (value.is_finite() && (0.0..1e18).contains(&value)).then_some(value)
}

/// Refuses a record in which a figure has a comma that may be a decimal sign.
fn check_commas(record: &NetperfRecord) -> Result<(), ReadError> {
    let read = |text: &String| parse_number(text.trim(), Commas::Locale);
    match record.values.values().map(read).find(|read| matches!(read, Err(NumberError::Comma(_)))) {
        Some(Err(comma)) => Err(comma.into()),
        _ => Ok(()),
    }
}

/// A figure that the test is about. Fails for `nan` and `inf`, which netperf prints for a share of nothing.
fn read_finite_number(record: &NetperfRecord, key: &str) -> Result<Option<f64>, ReadError> {
    let text = record.values.get(key).map_or("", |text| text.trim());
    if text.parse::<f64>().is_ok_and(|value| !value.is_finite()) {
        return Err(ReadError::Failed(format!("its {key} is `{text}`: netperf measured nothing")));
    }
    Ok(read_number(record, key))
}

#[expect(clippy::cast_possible_truncation, reason = "a count; float to int saturates")]
fn round_count(number: f64) -> u64 {
    number.round() as u64
}

fn read_count(record: &NetperfRecord, key: &str) -> Option<u64> {
    record.values.get(key)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RR_TITLE: &str = "MIGRATED TCP REQUEST/RESPONSE TEST from 0.0.0.0 (0.0.0.0) port 0 AF_INET to \
                            192.0.2.7 () port 0 AF_INET : first burst 0\n";
    const KEYVAL: &str = "PROTOCOL=TCP\nDIRECTION=Send|Recv\nELAPSED_TIME=2.00\nTHROUGHPUT=18983.70\n\
        THROUGHPUT_UNITS=Trans/s\nREQUEST_SIZE=1\nRESPONSE_SIZE=1\nLOCAL_CPU_UTIL=50.00\n\
        LOCAL_CPU_METHOD=S\nLOCAL_SD=105.354\nREMOTE_CPU_UTIL=-1.00\nREMOTE_SD=-1.000\n\
        SD_UNITS=usec/Tran\nLOCAL_TRANSPORT_RETRANS=4\nREMOTE_TRANSPORT_RETRANS=-1\nBURST_SIZE=16\n\
        LOCAL_NODELAY=1\nMEAN_LATENCY=52.57\nP99_LATENCY=550\nP50_LATENCY=-1\n";
    const STREAM: &str =
        "MIGRATED TCP STREAM TEST from 0.0.0.0 (0.0.0.0) port 0 AF_INET to 192.0.2.7\n\
Recv   Send    Send                          Utilization       Service Demand
Socket Socket  Message  Elapsed              Send     Recv     Send    Recv
Size   Size    Size     Time     Throughput  local    remote   local   remote
bytes  bytes   bytes    secs.    10^6bits/s  % S      % S      us/KB   us/KB

131072  16384  16384    1.01       2549.64   99.00   98.00   6.426   6.427
";

    #[test]
    fn keyval_is_read_minus_one_is_absent() {
        let test = parse_one(KEYVAL);
        assert_eq!(test.workload.name, "tcp_rr burst=16");
        let value = |metric: Metric| metric.value(&test.workload.traffic, &test.observation);
        assert_eq!(value(Metric::TransactionsPerS), Some(18_983.7));
        assert_eq!(value(Metric::LatencyNsP99), Some(550_000.0));
        assert_eq!((value(Metric::LatencyNsP50), value(Metric::LatencyNsP999)), (None, None));
        assert_eq!(value(Metric::GeneratorCpuBusyRatio), Some(0.5));
        assert_eq!(value(Metric::GeneratorServiceDemandUs), Some(105.354));
        assert_eq!(
            (value(Metric::SutCpuBusyRatio), value(Metric::SutServiceDemandUs)),
            (None, None)
        );
        assert_eq!(value(Metric::RetransmitsPerS), None, "one end is unknown");
        assert_eq!(test.observation.programs.len(), 1);
    }

    #[test]
    fn several_tests_without_titles_are_told_apart() {
        assert_eq!(parse_tests(&KEYVAL.repeat(3)).unwrap().tests.len(), 3);
    }

    #[test]
    fn csv_is_read_by_its_header() {
        let text = RR_TITLE.to_owned()
            + "Throughput,Throughput Units,Mean Latency Microseconds,Command Line,Request Size Bytes\n\
               21365.65,Trans/s,46.71,\"netperf -- -o a,b\",1\n21000.00,Trans/s,47.00,\"x\",1\n";
        let both = parse_all(&text);
        assert_eq!(both.len(), 2);
        assert_eq!(
            both[1].observation.reported_metrics.get(&Metric::LatencyNsMean),
            Some(&47_000.0)
        );
        assert!(
            both[0].notes[0].contains("RESPONSE_SIZE is not in the file"),
            "{:?}",
            both[0].notes
        );
        check_refused(&text.replace("46.71,", ""), "line 3: ", "4 fields stand under 5 names");
    }

    #[test]
    fn classic_output_is_read_under_its_title() {
        let test = parse_one(STREAM);
        assert_eq!(test.workload.name, "tcp_stream message_bytes=16384");
        assert_eq!(
            test.observation.reported_metrics.get(&Metric::ThroughputBps),
            Some(&2_549_640_000.0)
        );
        assert_eq!(
            test.observation.reported_metrics.get(&Metric::SutServiceDemandUs),
            Some(&6.427)
        );
        let rr = RR_TITLE.to_owned()
            + "bytes  bytes  bytes   bytes  secs.   per sec\n\n\
               16384  131072 1        1       1.00     25740.94\n16384  131072\n";
        assert_eq!(
            parse_one(&rr).observation.reported_metrics.get(&Metric::TransactionsPerS),
            Some(&25_740.94)
        );
        let udp = "MIGRATED UDP STREAM TEST from a to b\nbytes   bytes    secs   #   #   10^6bits/sec\n\n\
                   212992    1470   1.01        60000      0     720.00\n\
                   212992           1.01        45000            523.00\n";
        let given = parse_one(udp).observation.reported_metrics;
        assert_eq!(given.get(&Metric::ThroughputBps), Some(&523_000_000.0), "the receiver's rate");
        assert_eq!(given.get(&Metric::LossRatio), Some(&0.25));
    }

    #[test]
    fn ambiguous_netperf_is_refused_by_line() {
        check_refused("16384  131072 1 1 1.00 25740.94\n", "line 1: ", "have no title");
        check_refused(&STREAM.replace("10^6bits/s", "things"), "line 7: ", "unit of throughput");
        check_refused(&STREAM.replace("6.427", "6.427 7"), "line 7: ", "a row has 10 figures");
        check_refused("THROUGHPUT=5\nTHROUGHPUT_UNITS=Trans/s\n", "line 1: ", "add PROTOCOL");
        check_refused(&KEYVAL.replace("Trans/s", "10^6bits/s"), "line 1: ", "no transaction rate");
        check_refused(&KEYVAL.replace("usec/Tran", "usec/KB"), "line 1: ", "does not fit");
        let stream = "PROTOCOL=TCP\nDIRECTION=Send\nTHROUGHPUT=5\n";
        check_refused(stream, "line 1: ", "no THROUGHPUT_UNITS");
        check_refused(
            &stream.replace("=5", "=inf\nTHROUGHPUT_UNITS=x"),
            "line 1: ",
            "its THROUGHPUT is `inf`: netperf measured nothing",
        );
        let nothing = KEYVAL.replace("=18983.70", "=nan");
        check_refused(&nothing, "line 1: ", "its THROUGHPUT is `nan`");
        let sctp = "PROTOCOL=SCTP\nDIRECTION=Send\nTHROUGHPUT=5\n";
        check_refused(sctp, "line 1: ", "no workload for SCTP");
        assert!(parse_all("hello\n").is_empty());
    }

    #[test]
    fn bad_row_leaves_the_others() {
        let csv = "Throughput,Throughput Units,Protocol,Direction\n1.5,10^6bits/s,TCP,Send\n1,2\n\
                   2.5,10^6bits/s,TCP,Send\n";
        let classic = [STREAM, "1 2 3\n", &STREAM.replace("2549.64", "2600.01")].concat();
        for (text, line, said) in [
            (csv, "line 3: ", "2 fields stand under 4 names"),
            (classic.as_str(), "line 8: ", "a row has 3 figures"),
        ] {
            let tests = parse_tests(text).unwrap().tests;
            assert_eq!(tests.len(), 3, "{tests:?}");
            let [Ok(_), Err(problem), Ok(_)] = &tests[..] else { panic!("{tests:?}") };
            assert_eq!(problem.place, line);
            assert!(problem.error.to_string().contains(said), "{problem}");
        }
    }

    #[test]
    fn unclear_comma_is_refused_by_line() {
        let certain = KEYVAL.replace("=18983.70", "=18,983.70");
        let test = parse_one(&certain);
        let rate = Metric::TransactionsPerS.value(&test.workload.traffic, &test.observation);
        assert_eq!(rate, Some(18_983.7));
        let quoted =
            "Throughput,Throughput Units,Protocol,Direction\n\"9,415\",10^6bits/s,TCP,Send\n";
        for (text, line) in [
            (KEYVAL.replace("=18983.70", "=18983,70"), "line 1: "),
            (KEYVAL.replace("=550", "=1,550"), "line 1: "),
            (STREAM.replace("2549.64", "2549,64"), "line 7: "),
            (STREAM.replace("1.01", "1,01"), "line 7: "),
            (quoted.to_owned(), "line 2: "),
        ] {
            check_refused(&text, line, "has a comma that may be a decimal sign");
        }
        let command = KEYVAL.to_owned() + "COMMAND_LINE=\"netperf -T 1,2\"\n";
        parse_one(&command);
    }

    #[test]
    fn table_without_known_columns_is_refused() {
        let table = "OMNI Send TEST from 0.0.0.0 (0.0.0.0) port 0 AF_INET to 192.0.2.7 () port 0 AF_INET\n\
                     Local       Remote      Elapsed Throughput Throughput\n\
                     Size        Size        (sec)              Units\n\n\
                     16384       131072      10.00   28000.00   10^6bits/s\n";
        check_refused(
            table,
            "line 1: ",
            "a table whose columns latput does not know: use -k or -o",
        );
        let cut = "MIGRATED TCP STREAM TEST from a to b\n";
        check_refused(cut, "line 1: ", "no figures follow this title: the test was cut short");
        let read = parse_tests(&[table, STREAM].concat()).unwrap().tests;
        assert!(read.len() == 2 && read[0].is_err() && read[1].is_ok(), "{read:?}");
    }

    #[test]
    fn contradicting_figures_are_refused() {
        let least = KEYVAL.to_owned() + "MIN_LATENCY=900\n";
        check_refused(
            &least,
            "line 1: ",
            "`latency_ns_mean` (52570) is below `the minimum` (900000)",
        );
        let rate = KEYVAL.to_owned() + "TRANSACTION_RATE=1000.000\n";
        let said = "its THROUGHPUT of 18983.7 Trans/s is not its TRANSACTION_RATE of 1000";
        check_refused(&rate, "line 1: ", said);
        parse_one(&(KEYVAL.to_owned() + "TRANSACTION_RATE=18983.701\n"));
        let mean = KEYVAL.replace("P50_LATENCY=-1", "P50_LATENCY=300");
        check_refused(&mean, "line 1: ", "is below 0.5 times `latency_ns_p50`");
        let busy = KEYVAL.replace("LOCAL_CPU_UTIL=50.00", "LOCAL_CPU_UTIL=4350");
        check_refused(&busy, "line 1: ", "`generator_cpu_busy_ratio` is 43.5000, above");
        let udp = "MIGRATED UDP STREAM TEST from a to b\nbytes   bytes    secs   #   #   10^6bits/sec\n\n\
                   212992    1470   1.01        60000      0     720.00\n\
                   212992           1.01        90000           1047.92\n";
        check_refused(udp, "line 4: ", "90000 packets arrived of 60000 sent");
    }

    #[test]
    fn units_of_throughput_are_those_of_netperf() {
        for (header, rate, bits) in [
            ("Bytes/sec", "1097666492.03", 8_781_331_936.24),
            ("Bytes   /s", "1097666492.03", 8_781_331_936.24),
            ("KBytes/sec", "953597.78", 7_811_873_013.76),
            ("MBytes  /s", "903.48", 7_578_939_555.84),
            ("GBytes/sec", "0.79", 6_786_048_327.68),
            // netperf prints bytes under this unit.
            ("10^0bits/sec", "1018961068.08", 8_151_688_544.64),
            ("10^3bits/sec", "7142468.20", 7_142_468_200.0),
            ("10^9bits/sec", "6.74", 6.74e9),
        ] {
            let test = parse_one(&STREAM.replace("10^6bits/s", header).replace("2549.64", rate));
            let read = test.observation.reported_metrics[&Metric::ThroughputBps];
            assert!((read - bits).abs() < 1.0, "{header}: {read}");
        }
        check_refused(&STREAM.replace("10^6bits", "Usec"), "line 7: ", "is a time in us: use -f m");
        let band = RR_TITLE.to_owned()
            + "Send   Recv   Size     Size    Time     Throughput \n\
               bytes  Bytes  bytes    bytes   secs.    10^6bits/sec   \n\n\
               16384  131072 1        1       1.00        0.56   \n16384  131072\n";
        check_refused(&band, "line 5: ", "its rate is in 10^6bits and not in transactions");
    }

    #[test]
    fn figure_at_open_end_is_refused() {
        let rr = RR_TITLE.to_owned()
            + "bytes  Bytes  bytes    bytes   secs.    per sec   \n\n\
               16384  131072 1        1       1.00     14735.49   \n16384  131072\n";
        parse_one(&rr);
        let csv = "Throughput,Throughput Units,Protocol,Direction\n1.5,10^6bits/s,TCP,Send\n";
        let rate = rr.find("735.49").unwrap();
        for (text, line) in [
            (&rr[..rate], "line 4: "),
            (&rr[..rr.len() - 2], "line 4: "),
            (&STREAM[..STREAM.len() - 2], "line 7: "),
            (&KEYVAL[..KEYVAL.len() - 2], "line 1: "),
            (KEYVAL.strip_suffix("LATENCY=-1\n").unwrap(), "line 1: "),
            (&csv[..csv.len() - 2], "line 2: "),
        ] {
            check_refused(text, line, "the last line has no end: the file may be cut");
        }
        // A later test is cut, and one that is whole stays.
        let both = [STREAM, &rr[..rate - 1]].concat();
        let read = parse_tests(&both).unwrap();
        assert!(matches!(&read.tests[..], [Ok(_), Err(_)]), "{read:?}");
        let cut = parse_tests(&[STREAM, "MIGRATED TCP RE"].concat()).unwrap();
        assert!(cut.tests[0].is_ok() && cut.notes == [crate::parsed::NO_LINE_END], "{cut:?}");
    }

    #[test]
    fn classic_test_without_second_row_is_refused() {
        let said = "the second row of its figures is missing";
        let rr = RR_TITLE.to_owned()
            + "bytes  Bytes  bytes    bytes   secs.    per sec   \n\n\
               16384  131072 1        1       1.00     14735.49   \n";
        check_refused(&rr, "line 4: ", said);
        let udp = "MIGRATED UDP STREAM TEST from a to b\nbytes   bytes    secs   #   #   10^6bits/sec\n\n\
                   212992    1470   1.01        60000      0     698.61\n";
        check_refused(udp, "line 4: ", said);
        check_refused(&[udp, "1 2 3\n"].concat(), "line 4: ", "a row has 3 figures");
    }

    #[test]
    fn details_behind_test_are_no_test() {
        let block = "\nAlignment      Offset         Bytes    Bytes       Sends   Bytes    Recvs\n\
            Local  Remote  Local  Remote  Xfered   Per                 Per\n\
            Send   Recv    Send   Recv             Send (avg)          Recv (avg)\n    \
            8       8      0       0 383549440  16384.00     23410   124085.88   3091\n\n\
            Maximum\nSegment\nSize (bytes)\n 65483\n";
        let next = &STREAM.replace("2549.64", "2600.01")[STREAM.find("131072 ").unwrap()..];
        let tests = parse_all(&[STREAM, block, next, block].concat());
        let rate = |test: &ParsedTest| test.observation.reported_metrics[&Metric::ThroughputBps];
        assert_eq!(tests.iter().map(rate).collect::<Vec<_>>(), [2_549_640_000.0, 2_600_010_000.0]);
    }

    #[test]
    fn small_udp_request_keeps_its_size() {
        let test = parse_one(
            &KEYVAL.replace("=TCP", "=UDP").replace("RESPONSE_SIZE=1", "RESPONSE_SIZE=64"),
        );
        assert_eq!(test.workload.name, "udp_rr request_bytes=1 burst=16");
        assert_eq!(test.workload.traffic.value("request_bytes"), Some(1));
    }

    #[test]
    fn same_record_is_known_by_its_line() {
        let few = "PROTOCOL=TCP\nDIRECTION=Send\nTHROUGHPUT=940.1\nTHROUGHPUT_UNITS=10^6bits/s\n";
        let (first, again) = (parse_one(few), parse_one(few));
        assert!(first.is_same(&again));
        let both = parse_all(&few.repeat(2));
        assert!(!both[0].is_same(&both[1]), "two tests may have the same few figures");
        assert!(!first.is_same(&parse_one(&few.replace("940.1", "940.2"))));
    }

    #[test]
    fn warning_of_netperf_becomes_a_note() {
        let text = format!("!!! WARNING\n!!! Desired confidence was not achieved\n{STREAM}");
        assert!(parse_one(&text).notes.iter().any(|note| note.contains("did not reach")));
    }

    fn parse_one(text: &str) -> ParsedTest {
        let mut tests = parse_all(text);
        assert_eq!(tests.len(), 1, "{tests:?}");
        tests.remove(0)
    }

    fn parse_all(text: &str) -> Vec<ParsedTest> {
        parse_tests(text).unwrap().tests.into_iter().collect::<Result<_, _>>().unwrap()
    }

    #[track_caller]
    fn check_refused(text: &str, place: &str, part: &str) {
        let first = |read: ParsedTests| read.tests.into_iter().find_map(Result::err).unwrap();
        let problem = parse_tests(text).map_or_else(|problem| problem, first);
        let text = problem.error.to_string();
        assert!(problem.place == place && text.contains(part), "{problem:?}");
    }
}
