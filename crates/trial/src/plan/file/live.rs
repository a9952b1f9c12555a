//! The fields of a workload that only `live` has.

use core::net::IpAddr;
use std::collections::BTreeMap;

use latput_knobs::Knob;
use toml::{Spanned, Value as Toml};

use super::program::TableField;
use super::{scalar_text, share_of, time_of};
use crate::live::{BUSY_AT_MOST_RANGE, Endpoint, EndpointFigure, Hours, Live, SAMPLES_CPU_RANGE};
use crate::workload::{FieldError, LIVE};

/// The fields that only a `live` workload has.
pub(super) const FIELDS: &[&str] = &[
    "ports",
    "peers",
    "by",
    "guard",
    "strikes",
    "slice",
    "pause",
    "most_per_setting",
    "busy_at_most",
    "samples_cpu",
    "hours",
    "disruptive",
    "observe",
    "endpoint",
    "endpoint_user",
    "metrics",
];

/// Reads the table of a live workload; `None` for any other kind.
pub(super) fn of_table(
    table: &BTreeMap<String, Spanned<Toml>>,
) -> Result<Option<Live>, FieldError> {
    if table.get("kind").and_then(|kind| kind.get_ref().as_str()) != Some(LIVE) {
        return Ok(None);
    }
    let field =
        |name: &'static str| TableField { name, value: table.get(name).map(Spanned::get_ref) };
    let time = |name: &'static str| {
        let value = table.get(name).map(|value| time_of(value.get_ref()));
        value.transpose().map_err(|problem| error(name, problem))
    };
    let plain = Live::default();
    let live = Live {
        ports: field("ports").read()?.unwrap_or_default(),
        peers: field("peers").read::<Vec<IpAddr>>()?.unwrap_or_default(),
        by: field("by").read()?,
        guards: guards(table)?,
        strikes: field("strikes").read()?.unwrap_or(plain.strikes),
        slice: time("slice")?.unwrap_or(plain.slice),
        pause: time("pause")?.unwrap_or(plain.pause),
        most_per_setting: time("most_per_setting")?,
        busy_at_most: match table.get("busy_at_most").map(Spanned::get_ref) {
            None => None,
            // All of the CPUs: `1.0` and `1` mean no percentage here.
            Some(Toml::Integer(1)) => Some(1.0),
            Some(Toml::Float(all)) if all.to_bits() == 1.0_f64.to_bits() => Some(1.0),
            Some(value) => Some(
                share_of(value, BUSY_AT_MOST_RANGE)
                    .map_err(|problem| error("busy_at_most", problem))?,
            ),
        },
        samples_cpu: match table.get("samples_cpu").map(Spanned::get_ref) {
            None => plain.samples_cpu,
            Some(value) => share_of(value, SAMPLES_CPU_RANGE)
                .map_err(|problem| error("samples_cpu", problem))?,
        },
        hours: field("hours").read::<Hours>()?,
        disruptive: knobs(field("disruptive").read()?.unwrap_or_default())?,
        observe: field("observe").read()?.unwrap_or_default(),
        endpoint: endpoint(&field)?,
    };
    Ok(Some(live))
}

/// One guard, or a list of them.
fn guards(table: &BTreeMap<String, Spanned<Toml>>) -> Result<Vec<String>, FieldError> {
    let Some(written) = table.get("guard") else { return Ok(Vec::new()) };
    let texts = match written.get_ref() {
        Toml::Array(guards) => guards.iter().map(scalar_text).collect(),
        single => scalar_text(single).map(|guard| vec![guard]),
    };
    texts.map_err(|problem| error("guard", problem))
}

fn knobs(names: Vec<String>) -> Result<Vec<Knob>, FieldError> {
    let knob = |name: String| {
        name.parse::<Knob>().map_err(|problem| error("disruptive", problem.to_string()))
    };
    names.into_iter().map(knob).collect()
}

fn endpoint<'a>(
    field: &dyn Fn(&'static str) -> TableField<'a>,
) -> Result<Option<Endpoint>, FieldError> {
    let url: Option<String> = field("endpoint").read()?;
    let metrics: Option<BTreeMap<String, String>> = field("metrics").read()?;
    let figures = metrics.unwrap_or_default().into_iter();
    let figures = figures.map(|(name, source)| EndpointFigure::parse(&name, &source));
    let figures: Vec<EndpointFigure> =
        figures.collect::<Result<_, _>>().map_err(|problem| error("metrics", problem))?;
    match url {
        None if figures.is_empty() => Ok(None),
        None => Err(error("metrics", "the figures are of an `endpoint`: name it".to_owned())),
        Some(url) => {
            let endpoint = Endpoint::parse(&url, figures);
            let endpoint = endpoint.map_err(|problem| error("endpoint", problem))?;
            let user: Option<String> = field("endpoint_user").read()?;
            let endpoint = match user {
                Some(user) => endpoint.run_as(user),
                None => Ok(endpoint),
            };
            endpoint.map(Some).map_err(|problem| error("endpoint_user", problem))
        }
    }
}

fn error(field: &str, problem: String) -> FieldError {
    FieldError { field: field.to_owned(), problem: format!("`{field}`: {problem}") }
}

#[cfg(test)]
mod tests {
    use latput_units::Nanos;

    use crate::Traffic;
    use crate::plan::Plan;

    fn parsed(workload: &str) -> Result<Plan, String> {
        let text = format!(
            "schema = 1\n[factors]\n\"sut.gro-flush-timeout\" = [\"0us\", \"20us\"]\n[[workload]]\nkind = \"live\"\n{workload}"
        );
        Plan::parse("plan.toml", &text).map_err(|error| error.to_string())
    }

    #[test]
    fn live_plan_names_scope_and_guards() {
        let plan = parsed(
            "ports = [443]\npeers = [\"10.0.0.7\"]\nby = \"port\"\nguard = [\"tcp_rtt_ns_p99 <= 1.2 today\"]\nslice = \"1s\"\n\
             pause = \"500ms\"\nmost_per_setting = \"60s\"\nbusy_at_most = 0.9\nsamples_cpu = \"2%\"\nhours = \"22:00-06:00 UTC\"\ndisruptive = [\"rx-ring\"]\n\
             endpoint = \"http://127.0.0.1:9100/metrics\"\n\
             metrics = { live_plan_errors = \"counter errors_total{code=\\\"500\\\"}\" }\n",
        )
        .unwrap();
        let load = &plan.workloads[0];
        let live = load.live.as_deref().unwrap();
        assert_eq!((load.traffic, load.name.as_str()), (Traffic::Live, "live"));
        assert_eq!(live.by, Some(crate::live::GroupBy::Port));
        assert_eq!((live.slice, live.pause), (Nanos::from_s(1), Nanos::from_ms(500)));
        assert!((live.samples_cpu - 0.02).abs() < 1e-12, "{live:?}");
        assert_eq!(live.endpoint.as_ref().unwrap().figures.len(), 1);
        let stored = serde_json::to_string(load).unwrap();
        assert_eq!(serde_json::from_str::<crate::Workload>(&stored).unwrap(), *load);
        for all in ["1", "1.0", "\"100%\""] {
            let plan = parsed(&format!("busy_at_most = {all}\n")).unwrap();
            assert_eq!(plan.workloads[0].live.as_deref().unwrap().busy_at_most, Some(1.0), "{all}");
        }
        let plain = parsed("").unwrap();
        assert_eq!(plain.workloads[0].live.as_deref(), Some(&crate::live::Live::default()));
    }

    #[test]
    fn impossible_fields_are_refused_by_name() {
        for (workload, expected) in [
            ("ports = [70000]", "`ports`"),
            ("peers = [\"server\"]", "`peers`"),
            ("by = \"host\"", "`by`"),
            ("guard = [[1]]", "`guard`"),
            ("slice = \"1ms\"", "`slice` must be from"),
            ("busy_at_most = 2.0", "`busy_at_most`"),
            ("samples_cpu = \"20%\"", "`samples_cpu`"),
            ("hours = \"22:00-06:00\"", "write `22:00-06:00 UTC`"),
            ("disruptive = [\"rx-rings\"]", "`disruptive`"),
            ("metrics = { live_plan_a = \"gauge a\" }", "name it"),
            ("endpoint = \"http://10.0.0.1/\"", "which figures"),
            (
                "endpoint_user = \"a\"\nendpoint = \"http://10.0.0.1/\"\nmetrics = { live_plan_a = \"gauge a\" }",
                "only a command",
            ),
            ("endpoint = \"exec:a 'b\"", "`endpoint`"),
            ("probe_hz = 100", "no probe"),
            ("burst = 1", "no field `burst`"),
            ("[[workload]]\nkind = \"tcp_rr\"", "the only one"),
        ] {
            let error = parsed(workload).unwrap_err();
            assert!(error.contains(expected), "{workload}: {error}");
        }
    }

    #[test]
    fn knobs_that_disturb_traffic_are_named_twice() {
        let text = |more: &str| {
            format!(
                "schema = 1\n[factors]\n\"sut.rx-ring\" = [256, 512]\n[[workload]]\nkind = \"live\"\n{more}"
            )
        };
        let error = Plan::parse("p.toml", &text("")).unwrap_err().to_string();
        assert!(error.contains("disruptive = [\"rx-ring\"]"), "{error}");
        assert!(Plan::parse("p.toml", &text("disruptive = [\"rx-ring\"]")).is_ok());
    }
}
