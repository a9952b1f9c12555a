//! The kinds of published files, recognised by their columns, and the measured columns of each.

use crate::table::CsvTable;

/// One kind of published file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExperimentKind {
    /// Aggregate request/response rates by burst and instances.
    RrAggregate,
    /// Single request/response runs with their CPU.
    RrSingle,
    /// Bulk runs with their CPU.
    Stream,
    /// Processes bound to CPUs: any of the four workloads.
    Binding,
    /// Two request/response instances at once.
    TwoConcurrent,
    /// 1000 downloads through one server, by queue discipline, BQL, affinity and RPS.
    FqCodel,
    /// Ping and idle time by moderation frequency.
    PingIdle,
    /// FreeBSD device polling against interrupts.
    DevicePolling,
    /// A key-value server, by the kernel's settings for polling, deferring and suspending interrupts.
    IrqSuspension,
}

/// A measured column with its scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredColumn {
    /// The column in the published file.
    pub column: &'static str,
    /// The scale.
    pub scale: ErrorScale,
}

/// The comparison of a figure with its prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorScale {
    /// A rate: relative error.
    Rate,
    /// CPU time or utilisation: relative error.
    Cpu,
    /// A time: relative error.
    Time,
    /// Percentage points.
    Points,
    /// Events beside the workload, such as interrupts per second: relative error.
    Count,
}

const fn rate_column(column: &'static str) -> MeasuredColumn {
    MeasuredColumn { column, scale: ErrorScale::Rate }
}

const fn cpu_column(column: &'static str) -> MeasuredColumn {
    MeasuredColumn { column, scale: ErrorScale::Cpu }
}

const fn time_column(column: &'static str) -> MeasuredColumn {
    MeasuredColumn { column, scale: ErrorScale::Time }
}

const fn count_column(column: &'static str) -> MeasuredColumn {
    MeasuredColumn { column, scale: ErrorScale::Count }
}

const fn points_column(column: &'static str) -> MeasuredColumn {
    MeasuredColumn { column, scale: ErrorScale::Points }
}

const POLLING_COLUMNS: &[MeasuredColumn] = &[
    rate_column("throughput_mbit_s"),
    points_column("loss_pct"),
    points_column("cpu_user_pct"),
    points_column("cpu_system_pct"),
    points_column("cpu_interrupt_pct"),
    points_column("cpu_idle_pct"),
    time_column("jitter_ms"),
];
const SERVER_COLUMNS: &[MeasuredColumn] = &[
    rate_column("transactions_per_s"),
    time_column("latency_us_p50"),
    time_column("latency_us_p99"),
    points_column("cpu_pct"),
    count_column("interrupts_per_s"),
];

impl ExperimentKind {
    /// All kinds, in order of recognition.
    pub const ALL: [Self; 9] = [
        Self::IrqSuspension,
        Self::PingIdle,
        Self::FqCodel,
        Self::DevicePolling,
        Self::TwoConcurrent,
        Self::Binding,
        Self::Stream,
        Self::RrSingle,
        Self::RrAggregate,
    ];

    /// The kind of a file with this header.
    pub fn detect(table: &CsvTable) -> Option<Self> {
        let has =
            |columns: &[&str]| columns.iter().all(|column| table.column_index(column).is_some());
        let single = ["util_local_pct", "run_id", "test_len_s", "predicted_util_local_pct"];
        Self::ALL.into_iter().find(|kind| match kind {
            Self::RrSingle => {
                has(kind.distinctive_columns())
                    && single.iter().any(|name| has(std::slice::from_ref(name)))
            }
            _ => has(kind.distinctive_columns()),
        })
    }

    /// The columns that identify a file of this kind.
    pub const fn distinctive_columns(self) -> &'static [&'static str] {
        match self {
            Self::PingIdle => &["section", "moderation_hz", "quantity"],
            Self::FqCodel => &["codel", "bql", "smp_affinity", "rps"],
            Self::DevicePolling => &["test", "polling", "role", "direction"],
            Self::IrqSuspension => &["case", "offered_per_s", "irq_suspend_timeout_ns"],
            Self::TwoConcurrent => &["row", "instance", "system", "driver"],
            Self::Binding => &["netperf_cpu", "netserver_cpu", "system", "driver"],
            Self::Stream => &["send_msg_bytes", "system", "driver"],
            Self::RrSingle | Self::RrAggregate => {
                &["first_burst", "concurrent", "system", "driver"]
            }
        }
    }

    /// The name of the published file (of one of them, for [`Self::Binding`]).
    pub const fn name(self) -> &'static str {
        match self {
            Self::RrAggregate => "tcp_rr_aggregate",
            Self::RrSingle => "tcp_rr_single",
            Self::Stream => "tcp_stream",
            Self::Binding => "binding",
            Self::TwoConcurrent => "two_concurrent",
            Self::FqCodel => "fq_codel_matrix",
            Self::PingIdle => "moderation_ping_idle",
            Self::DevicePolling => "device_polling",
            Self::IrqSuspension => "irq_suspension",
        }
    }

    /// The measured columns, in the order of an experiment's figures.
    pub const fn measured_columns(self) -> &'static [MeasuredColumn] {
        match self {
            Self::RrAggregate => const { &[rate_column("trans_per_s")] },
            Self::RrSingle => {
                const {
                    &[
                        rate_column("trans_per_s"),
                        cpu_column("util_local_pct"),
                        cpu_column("util_remote_pct"),
                        cpu_column("sd_local_us_per_tran"),
                        cpu_column("sd_remote_us_per_tran"),
                    ]
                }
            }
            Self::Stream => {
                const {
                    &[
                        rate_column("throughput_mbit_s"),
                        cpu_column("util_local_pct"),
                        cpu_column("util_remote_pct"),
                        cpu_column("sd_local_us_per_kb"),
                        cpu_column("sd_remote_us_per_kb"),
                    ]
                }
            }
            Self::Binding => {
                const {
                    &[
                        rate_column("rate"),
                        cpu_column("util_local_pct"),
                        cpu_column("util_remote_pct"),
                        cpu_column("sd_local"),
                        cpu_column("sd_remote"),
                    ]
                }
            }
            Self::TwoConcurrent => {
                const {
                    &[
                        rate_column("trans_per_s"),
                        cpu_column("util_local_pct"),
                        cpu_column("util_remote_pct"),
                    ]
                }
            }
            Self::FqCodel => {
                const {
                    &[
                        rate_column("bw_kbytes_s"),
                        time_column("ping_min_ms"),
                        time_column("ping_avg_ms"),
                        time_column("ping_max_ms"),
                        time_column("ping_mdev_ms"),
                    ]
                }
            }
            Self::PingIdle => const { &[time_column("value")] },
            Self::DevicePolling => POLLING_COLUMNS,
            Self::IrqSuspension => SERVER_COLUMNS,
        }
    }

    /// The name of the column for a prediction of `measured`.
    pub fn predicted_column(self, measured: &MeasuredColumn) -> String {
        if self.measured_columns().len() == 1 {
            String::from("predicted")
        } else {
            format!("predicted_{}", measured.column)
        }
    }
}
