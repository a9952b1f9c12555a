//! One line per run: the setting, the workload, and every figure, each column with its unit.

use std::collections::BTreeSet;

use latput_knobs::{Knob, Value, ValueKind};
use latput_trial::observation::{HostObservation, Role};
use latput_trial::results::Row;
use latput_trial::{Metric, Results};
use latput_units::{IntoSet, Nanos};

use crate::document::collect_parameters;
use crate::next::SIMULATED;
use crate::view::{CPU_PARTS, cpu_shares};

/// Payload columns: of the traffic, and of the reverse flow of bulk.
const FLOWS: [&str; 4] =
    ["sent_bytes", "received_bytes", "reverse_sent_bytes", "reverse_received_bytes"];
/// The columns that do not depend on the plan.
const FIRST: [&str; 8] = [
    "run_idx",
    "block",
    "started_unix_ms",
    "setting_idx",
    "setting",
    "workload_idx",
    "workload",
    "kind",
];

/// All finished runs in the format of RFC 4180 (CRLF, quotes where needed), with a header. A field
/// is empty if the workload lacks the figure or the host could not measure it, and the start of a simulated run.
pub fn render_csv(results: &Results) -> String {
    let parameters = parameter_names(results);
    let knobs = knob_columns(results);
    let mut header: Vec<String> = FIRST.iter().map(|&name| name.to_owned()).collect();
    header.extend(parameters.iter().cloned());
    header.extend(knobs.iter().map(|&(role, knob)| knob_column(role, knob)));
    let own: Vec<Metric> = results.custom_metrics().into_iter().map(Metric::Custom).collect();
    header.extend(Metric::ALL.iter().map(ToString::to_string));
    for role in [Role::Sut, Role::Generator] {
        let part_column = |part: &&str| format!("{}_cpu_{part}_ratio", role.name());
        header.extend(CPU_PARTS.iter().map(part_column));
    }
    header.extend(FLOWS.iter().map(|&name| name.to_owned()));
    header.push("checks_failed".to_owned());
    for metric in &own {
        // A plan may call a metric like a column or a knob.
        let name = metric.to_string();
        header.push(if header.contains(&name) { format!("figure_{name}") } else { name });
    }

    let mut text = format_line(&header);
    for (idx, row) in results.rows.iter().enumerate() {
        let mut fields = row_fields(results, idx, row, &parameters, &knobs);
        let workload = results.workloads.get(row.workload);
        fields.extend(own.iter().map(|metric| {
            format_optional(workload.and_then(|w| metric.value(&w.traffic, &row.observation)))
        }));
        text += &format_line(&fields);
    }
    text
}

fn row_fields(
    results: &Results,
    idx: usize,
    row: &Row,
    parameter_names: &BTreeSet<String>,
    knobs: &BTreeSet<(Role, Knob)>,
) -> Vec<String> {
    let setting = results.settings.get(row.setting);
    let workload = results.workloads.get(row.workload);
    // A simulated trial depends on nothing but its plan, seed and profile: not on when it was computed.
    let is_simulated = results.testbed.starts_with(SIMULATED);
    let mut fields = vec![
        idx.to_string(),
        row.block.to_string(),
        if is_simulated { String::new() } else { row.started_unix_ms.to_string() },
        row.setting.to_string(),
        setting.map_or_else(String::new, |setting| setting.label.clone()),
        row.workload.to_string(),
        workload.map_or_else(String::new, |workload| workload.name.clone()),
        workload.map_or_else(String::new, |workload| workload.traffic.kind().to_owned()),
    ];
    let own = workload.map(collect_parameters).unwrap_or_default();
    for name in parameter_names {
        let value = own.iter().find(|(own_name, _)| own_name == name);
        fields.push(value.map_or_else(String::new, |(_, value)| value.to_string()));
    }
    for (role, knob) in knobs {
        let value = setting.and_then(|setting| setting.by_role.get(role)?.get(knob));
        fields.push(value.map_or_else(String::new, knob_value));
    }
    for metric in Metric::ALL {
        let value = workload.and_then(|w| metric.value(&w.traffic, &row.observation));
        fields.push(format_optional(value));
    }
    for role in [Role::Sut, Role::Generator] {
        let mut hosts = row.observation.hosts.iter();
        let shares = hosts.find(|host| host.role == role).map(HostObservation::cpu);
        let shares = shares.and_then(|time| cpu_shares(&time));
        fields.extend((0..CPU_PARTS.len()).map(|part| format_optional(shares.map(|s| s[part]))));
    }
    let flow = &row.observation.traffic;
    // Without a window there are no counts.
    let counted =
        |bytes: u64, window| if window > Nanos::ZERO { bytes.to_string() } else { String::new() };
    fields.push(counted(flow.sent_bytes, flow.sender_window));
    fields.push(counted(flow.received_bytes, flow.receiver_window));
    let reverse = flow.reverse.map(|flow| [flow.sent_bytes, flow.received_bytes]);
    fields.extend((0..2).map(|idx| reverse.map_or_else(String::new, |it| it[idx].to_string())));
    let failed = row.observation.checks.iter().filter(|check| !check.passed);
    fields.push(failed.map(|check| check.name.as_str()).collect::<Vec<_>>().join(";"));
    fields
}

fn parameter_names(results: &Results) -> BTreeSet<String> {
    results.workloads.iter().flat_map(collect_parameters).map(|(name, _)| name).into_set()
}

fn knob_columns(results: &Results) -> BTreeSet<(Role, Knob)> {
    let by_role = results.settings.iter().flat_map(|setting| &setting.by_role);
    by_role.flat_map(|(&role, knobs)| knobs.keys().map(move |&knob| (role, knob))).into_set()
}

/// `sut_gro_flush_timeout_ns`: the kernel's name, as sysfs spells it, and the unit.
fn knob_column(role: Role, knob: Knob) -> String {
    let unit = match (knob.spec().kind, knob.spec().unit) {
        (ValueKind::Time, _) => "_ns",
        (ValueKind::Count, "byte") => "_bytes",
        (ValueKind::Count, "packet") => "_packets",
        (ValueKind::Count, _) => "_count",
        _ => "",
    };
    format!("{}_{}{unit}", role.name(), knob.name().replace('-', "_"))
}

fn knob_value(value: &Value) -> String {
    if let Value::Time(time) = value { time.as_ns().to_string() } else { value.to_string() }
}

/// The figure with all its digits; empty without one.
fn format_optional(value: Option<f64>) -> String {
    value.filter(|value| value.is_finite()).map_or_else(String::new, |value| value.to_string())
}

pub(crate) fn format_line(fields: &[String]) -> String {
    let quoted: Vec<String> = fields.iter().map(|field| quote_field(field)).collect();
    quoted.join(",") + "\r\n"
}

/// Quotes a field by RFC 4180, section 2, rules 5 to 7. A text that a spreadsheet would compute
/// gets an apostrophe before it.
fn quote_field(field: &str) -> String {
    let is_formula =
        field.starts_with(['=', '+', '-', '@', '\t', '\r']) && field.parse::<f64>().is_err();
    let field = if is_formula { format!("'{field}") } else { field.to_owned() };
    if field.contains(['"', ',', '\r', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_no_formula() {
        for (field, cell) in [
            ("=1+1", "'=1+1"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("-2+cmd|' /C calc'!A0", "'-2+cmd|' /C calc'!A0"),
            ("=HYPERLINK(\"x\")", "\"'=HYPERLINK(\"\"x\"\")\""),
            ("-1.5e-3", "-1.5e-3"),
            ("+7", "+7"),
            ("rx-usecs=0", "rx-usecs=0"),
            ("", ""),
        ] {
            assert_eq!(quote_field(field), cell);
        }
    }
}
