//! Cells that nobody published: settings at the ends of what is allowed, and files as other tools write them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use latput_reproduce::cells::{CellFile, CellsError};
use latput_reproduce::published::{FILES, load_cell_file};
use latput_reproduce::{CsvTable, SystemCatalog, predict::predict_figures};

#[test]
fn slow_timers_give_proportional_rates() {
    let one_in_flight = |hz: u32| {
        predict_rate(
            "A05",
            &[("itr_hz", &hz.to_string()), ("first_burst", "0"), ("concurrent", "1")],
        )
    };
    for hz in [5, 20, 200] {
        let rate = one_in_flight(hz);
        assert!((0.97..1.03).contains(&(rate / f64::from(hz))), "{hz}/s: {rate}");
    }
}

#[test]
fn early_frames_shorten_a_long_delay() {
    let with_frames = |frames: &str| {
        let delay = [("rx_usecs", "1000000"), ("tx_usecs", "1000000"), ("rx_frames", frames)];
        predict_rate("A11", &[&delay[..], &[("first_burst", "0"), ("concurrent", "1")]].concat())
    };
    assert!(with_frames("1") > 10_000.0);
    // Both hosts wait a second.
    assert!((0.45..0.55).contains(&with_frames("1000")));
}

#[test]
fn too_late_traffic_is_reported() {
    let odd = edit_first_row(
        "tcp_rr_single",
        "R10",
        &[("rx_usecs", "10000000"), ("tx_usecs", "10000000")],
    );
    let row = &predict_table(&odd).rows[0];
    let error = row.last().unwrap();
    let has_rate = row[row.len() - 16..].iter().any(|field| !field.is_empty());
    assert!(has_rate || error.contains("nothing arrived"), "{row:?}");
}

#[test]
fn ends_of_what_is_allowed_are_predicted() {
    let rows = [
        ("tcp_rr_aggregate", "A01", vec![("itr_hz", "1000000"), ("first_burst", "1000")]),
        (
            "tcp_rr_aggregate",
            "A10",
            vec![("rx_usecs", "0"), ("rx_frames", "0"), ("tx_frames", "0")],
        ),
        (
            "tcp_rr_aggregate",
            "A04",
            vec![("itr_hz", "1"), ("concurrent", "64"), ("first_burst", "3")],
        ),
        ("tcp_rr_single", "R10", vec![("rx_usecs", "10000"), ("rx_frames", "1000")]),
        ("tcp_stream", "S01", vec![("itr_hz", "1000"), ("send_msg_bytes", "1")]),
        ("tcp_stream", "S05", vec![("rx_usecs", "10000"), ("recv_socket_bytes", "4096")]),
        ("binding_rr_32k_bidir", "B1_bidir32k", vec![("itr_hz", "4")]),
        (
            "tcp_stream",
            "S02",
            vec![("recv_socket_bytes", "4096"), ("send_socket_bytes", "67108864")],
        ),
        ("two_concurrent", "C1", vec![("itr_hz", "100")]),
        ("moderation_ping_idle", "ping", vec![("moderation_hz", "1")]),
        ("moderation_ping_idle", "ping", vec![("moderation_hz", "1000000")]),
        ("moderation_ping_idle", "idle", vec![("moderation_hz", "3")]),
        ("moderation_ping_idle", "iperf_p10", vec![("moderation_hz", "max")]),
    ];
    for (name, table, changes) in rows {
        let table = predict_table(&edit_first_row(name, table, &changes));
        let columns = table.header.iter().zip(&table.rows[0]);
        let mut told = columns.filter(|(name, _)| name.starts_with("predicted"));
        assert!(
            told.all(|(_, value)| value.parse::<f64>().is_ok()),
            "{name}: {changes:?} {table:?}"
        );
    }
}

#[test]
fn small_message_stream_has_rate_or_reason() {
    for (hz, bytes) in [("100", "1"), ("20", "1"), ("100", "100"), ("100", "1447"), ("8000", "1")] {
        let changes = [("itr_hz", hz), ("send_msg_bytes", bytes)];
        let table = predict_table(&edit_first_row("tcp_stream", "S01", &changes));
        let at = table.column_index("predicted_throughput_mbit_s").unwrap();
        let rate: f64 = table.rows[0][at].parse().unwrap_or(0.0);
        let error = table.rows[0].last().unwrap();
        assert!(
            (rate > 0.0) != error.contains("nothing arrived"),
            "{hz}/s, {bytes} bytes: {table:?}"
        );
    }
    // Nagle's algorithm makes full segments of them, so it is the sender's CPU that limits.
    let hundred = predict_table(&edit_first_row(
        "tcp_stream",
        "S01",
        &[("itr_hz", "100"), ("send_msg_bytes", "1")],
    ));
    let at = hundred.column_index("predicted_throughput_mbit_s").unwrap();
    let rate: f64 = hundred.rows[0][at].parse().unwrap();
    assert!((0.1..10.0).contains(&rate), "{rate} Mbit/s");
}

#[test]
fn slow_throttle_delays_ping_a_period() {
    // Half a period more or less, by how the clocks of the two hosts stand: two runs are few.
    for hz in [2.0, 30.0, 1_000.0_f64] {
        let text = hz.to_string();
        let table = predict_table(&edit_first_row(
            "moderation_ping_idle",
            "ping",
            &[("moderation_hz", &text)],
        ));
        let at = table.column_index("predicted").unwrap();
        let ms: f64 = table.rows[0][at].parse().unwrap();
        assert!((0.5..1.5).contains(&(ms * hz * 1e-3)), "{hz}/s: {ms} ms");
    }
}

#[test]
fn extreme_polling_and_queues_have_rates() {
    let rows = [
        ("device_polling", "udp_uni", vec![("offered_mbit_s", "0.1"), ("polling", "on")]),
        ("device_polling", "udp_uni", vec![("offered_mbit_s", "1e9"), ("polling", "off")]),
        ("device_polling", "tcp_bidir", vec![("direction", "server_to_client")]),
        ("fq_codel_matrix", "Q01", vec![("bql", "1"), ("smp_affinity", "8000"), ("rps", "0001")]),
        ("fq_codel_matrix", "Q01", vec![("codel", "on"), ("bql", "1073741824"), ("rps", "ffff")]),
    ];
    for (name, table, changes) in rows {
        let table = predict_table(&edit_first_row(name, table, &changes));
        let column = table.header.iter().position(|name| name.starts_with("predicted")).unwrap();
        let rate: f64 = table.rows[0][column].parse().unwrap();
        assert!(rate.is_finite() && rate >= 0.0, "{name}: {changes:?} {table:?}");
    }
}

#[test]
fn file_is_equal_in_every_dialect() {
    for (name, text) in FILES {
        let plain = describe_rows(text);
        assert_eq!(
            describe_rows(&format!("\u{feff}{}", text.replace('\n', "\r\n"))),
            plain,
            "{name}"
        );
        assert_eq!(describe_rows(&text.replace('\n', "\n\n")), plain, "{name}");
        let mut table = CsvTable::parse(text).unwrap();
        for row in &mut table.rows {
            row.reverse();
        }
        table.header.reverse();
        assert_eq!(describe_rows(&table.to_csv()), plain, "{name}: columns in another order");
        table.header.iter_mut().for_each(|name| *name = format!(" {name} "));
        for (idx, row) in table.rows.iter_mut().enumerate() {
            row.extend([
                format!("\"x, {idx}\"\n"),
                "é".repeat(if idx == 0 { 70_000 } else { 1 }),
                String::new(),
                String::new(),
            ]);
        }
        table.header.extend(["mine", "long", "", ""].map(String::from));
        assert_eq!(describe_rows(&table.to_csv()), plain, "{name}: more columns");
        let mut table = CsvTable::parse(text).unwrap();
        let is_number = |name: &String| {
            name.ends_with("usecs") || name.ends_with("_cpu") || name.contains("itr_hz")
        };
        let numbers: Vec<bool> = table.header.iter().map(is_number).collect();
        for row in &mut table.rows {
            for (field, _) in
                row.iter_mut().zip(&numbers).filter(|(field, is)| **is && !field.is_empty())
            {
                field.push_str(".0");
            }
        }
        assert_eq!(describe_rows(&table.to_csv()), plain, "{name}: numbers with a point");
    }
}

#[test]
fn bound_workload_may_be_options_only() {
    for (name, text) in FILES.iter().filter(|(name, _)| name.starts_with("binding")) {
        let mut table = CsvTable::parse(text).unwrap();
        let column = table.column_index("workload").unwrap();
        table.rows.iter_mut().for_each(|row| row[column].clear());
        assert_eq!(describe_rows(&table.to_csv()), describe_rows(text), "{name}");
    }
}

/// The measured rows of a text.
#[track_caller]
fn describe_rows(text: &str) -> Vec<String> {
    let file: Result<CellFile, CellsError> = CellFile::read(text, &SystemCatalog::load_shipped());
    file.unwrap().rows.iter().map(|row| format!("{row:?}")).collect()
}

/// The first row of a table with other values, and its published ones left out.
fn edit_first_row(name: &str, table: &str, changes: &[(&str, &str)]) -> CsvTable {
    let mut file = load_cell_file(name, &SystemCatalog::load_shipped()).unwrap().unwrap();
    file.keep_tables(&[table.to_owned()]);
    let mut table = file.table;
    assert!(!table.rows.is_empty(), "{name}");
    table.rows.truncate(1);
    for measured in file.kind.measured_columns() {
        if let Some(column) = table.column_index(measured.column) {
            table.rows[0][column].clear();
        }
    }
    for (name, value) in changes {
        let column = table.column_index(name).unwrap_or_else(|| panic!("no column {name}"));
        (*value).clone_into(&mut table.rows[0][column]);
    }
    table
}

#[track_caller]
fn predict_rate(table: &str, changes: &[(&str, &str)]) -> f64 {
    let table = predict_table(&edit_first_row("tcp_rr_aggregate", table, changes));
    table.rows[0][table.column_index("predicted").unwrap()].parse().unwrap()
}

#[track_caller]
fn predict_table(table: &CsvTable) -> CsvTable {
    let file = CellFile::read(&table.to_csv(), &SystemCatalog::load_shipped()).unwrap();
    let rows = file.rows.iter().map(|row| {
        let experiment = row.as_ref().unwrap().clone();
        Some(predict_figures(&experiment.shorten_run(0.3), 2).unwrap())
    });
    file.with_predictions(&rows.collect::<Vec<_>>())
}
