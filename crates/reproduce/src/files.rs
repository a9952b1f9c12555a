//! The published files and the names of their rows.

use crate::kind::{ErrorScale, ExperimentKind};
use crate::row::CsvRow;

/// The published files of cells, by name. They are only printed beside predictions.
pub const FILES: [(&str, &str); 12] = [
    ("tcp_rr_aggregate", include_str!("../../../data/published/tcp_rr_aggregate.csv")),
    ("tcp_rr_single", include_str!("../../../data/published/tcp_rr_single.csv")),
    ("tcp_stream", include_str!("../../../data/published/tcp_stream.csv")),
    ("binding_rr_single", include_str!("../../../data/published/binding_rr_single.csv")),
    (
        "binding_rr_aggregate_b128",
        include_str!("../../../data/published/binding_rr_aggregate_b128.csv"),
    ),
    ("binding_rr_32k_bidir", include_str!("../../../data/published/binding_rr_32k_bidir.csv")),
    ("binding_tcp_stream", include_str!("../../../data/published/binding_tcp_stream.csv")),
    ("two_concurrent", include_str!("../../../data/published/two_concurrent.csv")),
    ("fq_codel_matrix", include_str!("../../../data/published/fq_codel_matrix.csv")),
    ("moderation_ping_idle", include_str!("../../../data/published/moderation_ping_idle.csv")),
    ("device_polling", include_str!("../../../data/published/device_polling.csv")),
    ("irq_suspension", include_str!("../../../data/published/irq_suspension.csv")),
];

/// Columns that distinguish the rows of a table.
const TELLING: [&str; 17] = [
    "first_burst",
    "concurrent",
    "netperf_cpu",
    "netserver_cpu",
    "instance",
    "moderation_hz",
    "stream_id",
    "quantity",
    "polling",
    "role",
    "direction",
    "codel",
    "bql",
    "smp_affinity",
    "rps",
    "row_id",
    "offered_per_s",
];

/// Columns with the table, run, test, section or case of a row, or with its own name.
pub(crate) const TABLE_COLUMNS: [&str; 6] =
    ["table_id", "run_id", "test", "section", "row_id", "case"];

/// The scale of a figure. Idle time is a share although its column also has times.
pub(crate) fn scale_of(kind: ExperimentKind, scale: ErrorScale, row: &CsvRow<'_>) -> ErrorScale {
    if kind == ExperimentKind::PingIdle && row.text("unit") == "%" {
        ErrorScale::Points
    } else {
        scale
    }
}

/// The table, run, test, section or case of a row, or its own name; empty without any.
pub(crate) fn table_of<'a>(row: &CsvRow<'a>) -> &'a str {
    TABLE_COLUMNS.iter().map(|column| row.text(column)).find(|text| !text.is_empty()).unwrap_or("")
}

/// A text that distinguishes a row from its neighbours.
pub(crate) fn describe_row(row: &CsvRow<'_>) -> String {
    let named = |column: &&str| {
        let value = row.text(column);
        (!value.is_empty()).then(|| format!("{column} {value}"))
    };
    TELLING.iter().filter_map(named).collect::<Vec<_>>().join(", ")
}
