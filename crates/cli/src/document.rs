//! The JSON of `latput show`, `latput metrics` and `latput sim`; that of errors is in
//! `error`. The documents of `tune`, `run`, `measure`, `report`, `explain` and `model` are in `latput-report`, those of
//! `search` in `latput-experiment`;
//! `docs/schema/` has the schema of each.

pub(crate) mod check;
pub(crate) mod error;
pub(crate) mod fleet;
pub(crate) mod flent;
pub(crate) mod keep;
pub(crate) mod merge;
pub(crate) mod watch;

use schemars::JsonSchema;
use serde::Serialize;

/// Every knob of one interface.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShowDocument {
    /// Version of this document's schema: 1.
    pub(crate) schema: u32,
    /// The interface.
    pub(crate) interface: String,
    /// Every knob that latput knows, in the order in which changes are written.
    pub(crate) knobs: Vec<ShownKnob>,
    /// Kernel, driver, CPU model, governor and so on.
    pub(crate) facts: Vec<ShownFact>,
    /// The privileges that this process lacks to read all or to set what is settable, in sentences.
    pub(crate) missing: Vec<String>,
}

/// One knob.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShownKnob {
    /// The kernel's name.
    pub(crate) name: String,
    /// The knob's group: `interrupt coalescing`, `steering`.
    pub(crate) group: String,
    /// `interface`, or `host` if setting it through one interface sets it for all.
    pub(crate) scope: String,
    /// Whether this interface, driver or kernel lacks it; `unreadable` then has the reason.
    pub(crate) absent: bool,
    /// Its value at each place; empty if it could not be read.
    pub(crate) values: Vec<ShownValue>,
    /// The reason why it could not be read.
    pub(crate) unreadable: Option<String>,
    /// The allowed values, with the unit.
    pub(crate) allowed: String,
    /// The unit of `min` and `max`: `us`, `byte`, `packet`; empty without one.
    pub(crate) unit: String,
    /// The smallest value of a number or a time.
    pub(crate) min: Option<u64>,
    /// The largest value of a number or a time, as the interface reports it if it does.
    pub(crate) max: Option<u64>,
    /// The disturbance by a change: `hitless`, `brief`, `disruptive`, `driver reload`.
    pub(crate) tier: String,
    /// Whether a change takes the link of this interface down and up.
    pub(crate) resets_link: bool,
    /// Whether it can be set here, by a process with the privilege.
    pub(crate) settable: bool,
    /// The interface to the kernel that sets it, or the reason why it cannot be set.
    pub(crate) how: String,
    /// Its description in a sentence.
    pub(crate) doc: String,
}

/// The value of a knob at one place.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShownValue {
    /// `device`, `host`, `rx-0`, `tx-0`, `interrupt 0`, `napi of rx-0`.
    pub(crate) place: String,
    /// The value with its unit, as `latput set` accepts it.
    pub(crate) value: String,
    /// The driver's meaning of the value, if it differs from the obvious one: `dynamic
    /// conservative`.
    pub(crate) meaning: Option<String>,
}

/// A fact of the host that a reader needs to judge the values.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShownFact {
    /// `kernel`, `driver`, `cpu_model`.
    pub(crate) name: String,
    /// Its value as the host reports it.
    pub(crate) value: String,
}

/// The list of metrics.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MetricsDocument {
    /// Version of this document's schema: 1.
    pub(crate) schema: u32,
    /// The kind of workload whose metrics these are; `null`: all kinds.
    pub(crate) workload: Option<String>,
    /// The metrics in the order of tables.
    pub(crate) metrics: Vec<MetricDocument>,
}

/// One metric.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MetricDocument {
    /// The name in goals, CSV, JSON and the results file.
    pub(crate) name: String,
    /// The unit of values: `ns`, `bit/s`, `share of 1`.
    pub(crate) unit: String,
    /// `lower`, `higher` or `neither`.
    pub(crate) better: String,
    /// The summary of several runs: `mean` or `median`.
    pub(crate) summarised: String,
    /// The kinds of workload that can have it.
    pub(crate) workloads: Vec<String>,
    /// The field that a workload of these kinds needs for it; `null`: none. A `ping` needs no
    /// probe.
    pub(crate) needs: Option<String>,
    /// The definition in one sentence, with the formula or its source.
    pub(crate) definition: String,
}

/// The output of `latput log`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogDocument {
    /// Version of this document's schema: 1.
    pub(crate) schema: u32,
    /// Changes that are not committed: they wait to be confirmed, are being made, or were cut short.
    pub(crate) pending: Vec<PendingChange>,
    /// The committed changes, the newest first.
    pub(crate) entries: Vec<LoggedChange>,
    /// The reasons why other entries cannot be read.
    pub(crate) damaged: Vec<String>,
}

/// A change that is no entry of the journal yet.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PendingChange {
    /// When the change began, in milliseconds since 1970 (UTC).
    pub(crate) at_unix_ms: u64,
    /// The present name of the interface, or the last known one.
    pub(crate) interface: String,
    /// The inode number of the network namespace.
    pub(crate) network_namespace: u64,
    /// The command: `set`, `apply`, `undo`, `run`; empty if an older latput made the change.
    pub(crate) command: String,
    /// The name of who called sudo or logged in, or of the user; `uid 7` where it has no name.
    pub(crate) user: String,
    /// The process that made it.
    pub(crate) pid: u32,
    /// The entry that this change undoes; `null` if it is no undo.
    pub(crate) undoes: Option<u64>,
    /// `waiting` to be confirmed, `unwatched` where nobody would put it back in time, `in-use` by a running latput, or
    /// `unfinished`, which `latput restore` ends.
    pub(crate) state: String,
    /// Time left to confirm it, in nanoseconds; `null` unless it waits.
    pub(crate) left_ns: Option<u64>,
    /// The values that it changed; empty until all are written.
    pub(crate) values: Vec<LoggedValue>,
}

/// One committed change.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LoggedChange {
    /// The number in the journal, for `latput undo`.
    pub(crate) number: u64,
    /// When the change began, in milliseconds since 1970 (UTC).
    pub(crate) at_unix_ms: u64,
    /// The present name of the interface, or the last known one.
    pub(crate) interface: String,
    /// The inode number of the network namespace.
    pub(crate) network_namespace: u64,
    /// The command: `set`, `apply` or `undo`; empty if an older latput made the change.
    pub(crate) command: String,
    /// The name of who called sudo or logged in, or of the user; `uid 7` where it has no name.
    pub(crate) user: String,
    /// The entry that this change undid; `null` if it is no undo.
    pub(crate) undoes: Option<u64>,
    /// `in-force`, `in-part`, `undone`, `undo-unfinished`, `back` (put back by somebody else), `changed-since`,
    /// `changed-by-others`, `changed-by-waiting` (by a change that waits to be confirmed), `unknown`, `went-back` (nobody
    /// confirmed it), `before-boot`, `elsewhere` (another network namespace) or `gone`.
    pub(crate) state: String,
    /// The entry that undid or replaced it; `null` if none did.
    pub(crate) ended_by: Option<u64>,
    /// Why it went back; `null` unless the state is `went-back`.
    pub(crate) went_back: Option<String>,
    /// The values that it changed.
    pub(crate) values: Vec<LoggedValue>,
}

/// A value that a committed change replaced.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LoggedValue {
    /// The knob.
    pub(crate) knob: String,
    /// `device`, `host`, `rx-0`, `tx-0`, `interrupt 0`, `napi of rx-0`.
    pub(crate) place: String,
    /// The value before.
    pub(crate) before: String,
    /// The value after, as it was read back; `null` where the change took the place away, as that of a queue.
    pub(crate) written: Option<String>,
    /// The present value; `null` where it is not known.
    pub(crate) now: Option<String>,
    /// Whether it moved with the others without having been asked for.
    pub(crate) along: bool,
}

/// The output of `latput sim list`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SystemsDocument {
    /// Version of this document's schema: 1.
    pub(crate) schema: u32,
    /// The shipped profiles, by name.
    pub(crate) systems: Vec<SystemDocument>,
}

/// One system of the simulator.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SystemDocument {
    /// Its name, as in `sim:NAME`.
    pub(crate) name: String,
    /// Number of CPUs of the system under test.
    pub(crate) cores: u32,
    /// Rate of every link, in bits per second.
    pub(crate) rate_bps: u64,
    /// The source of its figures.
    pub(crate) source: String,
}

/// The output of `latput sim trace`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TraceDocument {
    /// Version of this document's schema: 1.
    pub(crate) schema: u32,
    /// The simulated system, as in `--on`.
    pub(crate) testbed: String,
    /// The workload's name.
    pub(crate) workload: String,
    /// The setting's name.
    pub(crate) setting: String,
    /// Seed of all random draws.
    pub(crate) seed: u64,
    /// Simulated time in the files, in nanoseconds.
    pub(crate) duration_ns: u64,
    /// Number of packets in the capture; one that went from host to host is there twice.
    pub(crate) packets: usize,
    /// Whether later packets were left out.
    pub(crate) is_cut: bool,
    /// The pcap-ng file.
    pub(crate) capture: String,
    /// The file of trace events.
    pub(crate) timeline: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_in_docs_are_those_of_the_documents() {
        check_type::<ShowDocument>("show");
        check_type::<MetricsDocument>("metrics");
        check_type::<LogDocument>("log");
        check_type::<error::ErrorDocument>("error");
        check_type::<error::RemarkDocument>("remark");
        check_type::<check::CheckDocument>("check");
        check_type::<keep::KeepCheckDocument>("keep-check");
        check_type::<fleet::FleetDocument>("fleet");
        check_type::<fleet::RolloutDocument>("fleet-apply");
        check_type::<fleet::FleetDoneDocument>("fleet-done");
        check_type::<fleet::FleetLogDocument>("fleet-log");
        check_type::<fleet::PairsDocument>("fleet-pairs");
        check_type::<fleet::ConfirmDocument>("fleet-confirm");
        check_type::<merge::MergeDocument>("merge");
        check_type::<watch::WatchDocument>("watch");
        check_type::<latput_experiment::ask_tell::SearchSaid>("search-said");
        check_type::<latput_experiment::ask_tell::SearchAnswer>("search-answer");
        check_type::<check::PlanDocument>("plan");
        check_type::<flent::ManifestDocument>("flent-manifest");
        check_type::<SystemsDocument>("systems");
        check_type::<TraceDocument>("trace");
        check_type::<latput_report::explained::FitDocument>("fit");
        check_type::<latput_report::explained::ExplainDocument>("explain");
        check_type::<latput_moderate::Status>("moderate");
        check_type::<latput_diagnose::Diagnosis>("diagnose");
        check_type::<latput_diagnose::HostsDiagnosis>("diagnose-hosts");
        check_type::<latput_diagnose::Snapshot>("snapshot");
        check_schema("results", latput_report::Document::json_schema());
        check_schema("prediction", latput_report::PredictionDocument::json_schema());
        check_schema("history", latput_report::history::json_schema());
        check_schema("comparison", latput_report::ComparisonDocument::json_schema());
    }

    #[track_caller]
    fn check_type<T: schemars::JsonSchema>(name: &str) {
        check_schema(name, serde_json::to_value(schemars::schema_for!(T)).unwrap());
    }

    #[track_caller]
    fn check_schema(name: &str, schema: serde_json::Value) {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema");
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        latput_testkit::blessed::file(format!("{folder}/{name}.json"), &text);
    }
}
