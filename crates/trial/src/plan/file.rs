//! Reads a plan file: TOML to a [`Plan`]. Unknown keys and impossible values are errors with their
//! line.

use std::collections::BTreeMap;
use std::ops::Range;

use latput_knobs::{Knob, Value};
use latput_units::file_words::{line_of, problem_of};
use latput_units::text::format_count;
use latput_units::{Nanos, text};
use serde::Deserialize;
use toml::{Spanned, Value as Toml};

use super::{Design, Factor, KnobOnRole, MAX_TRIALS, Method, OnUnsupported, Plan, PlanError};
use crate::observation::Role;
use crate::workload::{self, FieldError, Workload};

mod design;
mod live;
mod program;

const SCHEMA: i64 = 1;
/// Most levels of one factor, and most workloads of one plan.
const MAX_LIST: usize = 1_000;
/// Most bytes of a plan file.
const MAX_TEXT_BYTES: usize = 1 << 20;

/// Forms of the keys whose values are tables, lists, or one of two forms.
const WANTED: [(&str, &str); 5] = [
    ("goal", "a text such as \"latency\", or a table such as `{ minimize = \"latency_ns_p99\" }`"),
    ("factors", "a table: `[factors]`, and below it lines such as `mtu = [1500, 9000]`"),
    ("workload", "tables: `[[workload]]`, and below each lines such as `kind = \"tcp_rr\"`"),
    ("method", "a table: `[method]`, and below it lines such as `duration = \"2s\"`"),
    ("repetitions", "a table such as `{ min = 5, max = 30 }`"),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: Spanned<i64>,
    name: Option<Spanned<String>>,
    goal: Option<Spanned<GoalTable>>,
    #[serde(default)]
    factors: BTreeMap<Spanned<String>, Spanned<Vec<Toml>>>,
    #[serde(default)]
    workload: Vec<Spanned<BTreeMap<String, Spanned<Toml>>>>,
    #[serde(default)]
    method: MethodFile,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum GoalTable {
    Text(String),
    Minimize(GoalMinimize),
    Maximize(GoalMaximize),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GoalMinimize {
    minimize: String,
    #[serde(default)]
    r#where: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GoalMaximize {
    maximize: String,
    #[serde(default)]
    r#where: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct MethodFile {
    design: Option<Spanned<String>>,
    on_unsupported: Option<Spanned<String>>,
    /// The former name of `on_unsupported`; the error gives the new one.
    lacking: Option<Spanned<String>>,
    repetitions: Option<Spanned<Repetitions>>,
    warmup: Option<Spanned<Toml>>,
    duration: Option<Spanned<Toml>>,
    confidence: Option<Spanned<Toml>>,
    half_width: Option<Spanned<Toml>>,
    seed: Option<Spanned<u64>>,
    budget: Option<Spanned<Toml>>,
    #[serde(default)]
    allow_link_reset: bool,
    #[serde(default)]
    beside: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Repetitions {
    min: u32,
    max: u32,
}

/// The text being read, for turning byte offsets into lines.
struct Source<'a> {
    file: &'a str,
    text: &'a str,
}

impl Source<'_> {
    fn error(&self, span: Range<usize>, problem: impl Into<String>) -> PlanError {
        let start = span.start.min(self.text.len());
        let line = line_of(self.text, start);
        PlanError { file: self.file.to_owned(), line, problem: problem.into() }
    }
}

pub(super) fn parse(file: &str, text: &str) -> Result<Plan, PlanError> {
    let source = Source { file, text };
    if text.len() > MAX_TEXT_BYTES {
        return Err(source.error(0..0, "the file is longer than 1 MiB: this is not a plan"));
    }
    let parsed: File = toml::from_str(text).map_err(|error| {
        let span = error.span();
        let at = span.as_ref().map(|span| span.start);
        let problem = problem_of(error.message(), text, at, &WANTED);
        source.error(span.unwrap_or(0..0), name_table_of_field(problem))
    })?;
    if *parsed.schema.get_ref() != SCHEMA {
        let problem = format!(
            "this latput reads plans of schema {SCHEMA}, not {}: set `schema = {SCHEMA}`",
            parsed.schema.get_ref()
        );
        return Err(source.error(parsed.schema.span(), problem));
    }
    let mut plan = Plan {
        name: parsed.name.map_or_else(|| "unnamed plan".to_owned(), Spanned::into_inner),
        goal: parsed.goal.map(|goal| goal_text(goal.into_inner())),
        factors: factors(&source, &parsed.factors)?,
        workloads: workloads(&source, &parsed.workload)?,
        method: method(&source, &parsed.method)?,
    };
    plan.fit_live().map_err(|problem| source.error(0..0, problem))?;
    let refused = |problem| source.error(0..0, problem);
    design::check_suspension(&plan).map_err(refused)?;
    if plan.method.design == Some(Design::Search) {
        design::check_search(&plan).map_err(refused)?;
        return Ok(plan);
    }
    if plan.method.design == Some(Design::Slices) {
        design::check_slices(&plan).map_err(refused)?;
    }
    let trials = plan.trials_per_block().saturating_mul(u64::from(plan.method.repetitions_max));
    if trials > MAX_TRIALS {
        let problem = format!(
            "{} settings x workloads x {} repetitions are {trials} trials; at most {MAX_TRIALS} are \
             run: take fewer levels, fewer workloads, or a smaller `repetitions.max`",
            plan.trials_per_block(),
            plan.method.repetitions_max
        );
        return Err(source.error(0..0, problem));
    }
    Ok(plan)
}

/// The problem of a field that the whole plan does not have, with the table where it belongs if it is `[method]`'s.
fn name_table_of_field(problem: String) -> String {
    let field = problem.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`'));
    let Some((field, expected)) = field else { return problem };
    let of_method = toml::from_str::<MethodFile>("\"\" = 0").err();
    let is_of_method = of_method.is_some_and(|it| it.message().contains(&format!("`{field}`")));
    if expected.contains("`method`") && is_of_method {
        return format!("`{field}` belongs below `[method]`");
    }
    problem
}

fn goal_text(goal: GoalTable) -> String {
    let (verb, metric, conditions) = match goal {
        GoalTable::Text(text) => return text,
        GoalTable::Minimize(goal) => ("minimize", goal.minimize, goal.r#where),
        GoalTable::Maximize(goal) => ("maximize", goal.maximize, goal.r#where),
    };
    if conditions.is_empty() {
        format!("{verb} {metric}")
    } else {
        format!("{verb} {metric} where {}", conditions.join(" and "))
    }
}

fn factors(
    source: &Source<'_>,
    written: &BTreeMap<Spanned<String>, Spanned<Vec<Toml>>>,
) -> Result<Vec<Factor>, PlanError> {
    let mut seen: Vec<KnobOnRole> = Vec::new();
    let mut factors = Vec::new();
    for (name, levels) in written {
        let targets = targets(name.get_ref()).map_err(|p| source.error(name.span(), p))?;
        for target in &targets {
            let clash = seen.iter().find(|other| {
                other.knob == target.knob
                    && (other.role.is_none() || target.role.is_none() || other.role == target.role)
            });
            if clash.is_some() {
                let problem = format!("`{}` is set by two factors; keep one", target.knob);
                return Err(source.error(name.span(), problem));
            }
            seen.push(*target);
        }
        if levels.get_ref().is_empty() {
            let problem = format!("factor `{}` has no level: list at least one", name.get_ref());
            return Err(source.error(levels.span(), problem));
        }
        if levels.get_ref().len() > MAX_LIST {
            let problem = format!("factor `{}` has more than {MAX_LIST} levels", name.get_ref());
            return Err(source.error(levels.span(), problem));
        }
        let levels_span = levels.span();
        let levels = levels
            .get_ref()
            .iter()
            .map(|written| level(&targets, written))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|problem| source.error(levels.span(), problem))?;
        let factor = Factor { targets, levels };
        factor.check_levels().map_err(|problem| source.error(levels_span, problem))?;
        factors.push(factor);
    }
    Ok(factors)
}

/// `mtu`, `sut.mtu`, or several that move together: `gro-flush-timeout + napi-defer-hard-irqs`.
fn targets(name: &str) -> Result<Vec<KnobOnRole>, String> {
    name.split('+')
        .map(|part| {
            let part = part.trim();
            let (role, knob) = match part.split_once('.') {
                Some(("sut", knob)) => (Some(Role::Sut), knob),
                Some(("generator", knob)) => (Some(Role::Generator), knob),
                Some((other, _)) => {
                    return Err(format!(
                        "`{other}` is not a role: write `sut.`, `generator.`, or nothing for both"
                    ));
                }
                None => (None, part),
            };
            let knob = knob.parse::<Knob>().map_err(|error| error.to_string())?;
            Ok(KnobOnRole { role, knob })
        })
        .collect()
}

fn level(targets: &[KnobOnRole], written: &Toml) -> Result<Vec<Value>, String> {
    let values = match written {
        Toml::Array(values) => values.as_slice(),
        single => std::slice::from_ref(single),
    };
    if values.len() != targets.len() {
        return Err(format!(
            "a level needs {}, one for each of the factor's knobs; `{written}` has {}",
            format_count(targets.len(), "value"),
            values.len()
        ));
    }
    targets
        .iter()
        .zip(values)
        .map(|(target, value)| {
            target.knob.parse_value(&scalar_text(value)?).map_err(|error| error.to_string())
        })
        .collect()
}

/// A TOML scalar in the form of the command line.
fn scalar_text(value: &Toml) -> Result<String, String> {
    match value {
        Toml::String(text) => Ok(text.clone()),
        Toml::Integer(number) => Ok(number.to_string()),
        Toml::Boolean(on) => Ok(on.to_string()),
        other => Err(format!("`{other}` is neither a text, a whole number nor a truth value")),
    }
}

fn workloads(
    source: &Source<'_>,
    written: &[Spanned<BTreeMap<String, Spanned<Toml>>>],
) -> Result<Vec<Workload>, PlanError> {
    let mut workloads: Vec<Workload> = Vec::new();
    for table in written {
        let refused = |FieldError { field, problem }| {
            let span = table.get_ref().get(&field).map_or_else(|| table.span(), Spanned::span);
            source.error(span, problem)
        };
        let program = program::parse_table(table.get_ref()).map_err(refused)?;
        let live = live::of_table(table.get_ref()).map_err(refused)?;
        let own_fields = match (&program, &live) {
            (Some(_), _) => program::FIELDS,
            (_, Some(_)) => live::FIELDS,
            _ => &[],
        };
        for fields in grid(source, table, own_fields)? {
            let workload = match (program.clone(), live.clone()) {
                (Some(program), _) => workload::build_program_workload(&fields, program),
                (_, Some(live)) => workload::build_live_workload(&fields, live),
                _ => workload::from_fields(&fields),
            };
            let workload = workload.map_err(refused)?;
            if workloads.iter().any(|other| other.name == workload.name) {
                let problem =
                    format!("two workloads are `{}`: give one another `name`", workload.name);
                return Err(source.error(table.span(), problem));
            }
            workloads.push(workload);
        }
        if workloads.len() > MAX_LIST {
            return Err(source.error(table.span(), format!("more than {MAX_LIST} workloads")));
        }
    }
    if workloads.is_empty() {
        let problem = "the plan has no workload: add `[[workload]]` with `kind = \"tcp_rr\"`";
        return Err(source.error(0..0, problem));
    }
    Ok(workloads)
}

/// Fields that list several values make a workload for each combination.
fn grid(
    source: &Source<'_>,
    table: &Spanned<BTreeMap<String, Spanned<Toml>>>,
    own_fields: &[&str],
) -> Result<Vec<BTreeMap<String, String>>, PlanError> {
    let mut combinations = vec![BTreeMap::new()];
    let is_own = |field: &String| own_fields.contains(&field.as_str());
    for (field, value) in table.get_ref().iter().filter(|(field, _)| !is_own(field)) {
        let values = match value.get_ref() {
            Toml::Array(values) if values.is_empty() => {
                return Err(source.error(value.span(), format!("`{field}` lists no value")));
            }
            Toml::Array(values) => values.as_slice(),
            single => std::slice::from_ref(single),
        };
        if values.len().saturating_mul(combinations.len()) > MAX_LIST {
            return Err(source.error(value.span(), format!("more than {MAX_LIST} workloads")));
        }
        let texts = values
            .iter()
            .map(scalar_text)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|problem| source.error(value.span(), format!("`{field}`: {problem}")))?;
        combinations = combinations
            .iter()
            .flat_map(|fields: &BTreeMap<String, String>| {
                texts.iter().map(move |text| {
                    let mut fields = fields.clone();
                    fields.insert(field.clone(), text.clone());
                    fields
                })
            })
            .collect();
    }
    Ok(combinations)
}

/// A time with its unit, or a number of seconds.
fn time_of(value: &Toml) -> Result<Nanos, String> {
    let text = match value {
        Toml::Float(seconds) => seconds.to_string(),
        other => scalar_text(other)?,
    };
    Nanos::from_text_or_seconds(&text).map_err(|error| error.to_string())
}

/// A share: `"2.5%"`, or a bare number if it can mean one thing only within the bounds. The error tells both readings.
fn share_of(value: &Toml, (low, high): (f64, f64)) -> Result<f64, String> {
    let allowed = low - SHARE_ROUNDING..=high + SHARE_ROUNDING;
    let bare = match value {
        Toml::Float(number) => number.to_string(),
        Toml::Integer(number) => number.to_string(),
        Toml::String(text) => text.clone(),
        _ => String::new(),
    };
    let share = match text::bare_share(&bare) {
        Some(readings) if readings.iter().all(|share| allowed.contains(share)) => {
            let both = readings.map(|share| format!("\"{}\"", text::written_share(share)));
            return Err(format!("may mean {}: write one of them", both.join(" or ")));
        }
        // A number of TOML is a share of 1.
        Some([_, whole]) if matches!(value, Toml::Float(_)) => Some(whole),
        _ => text::parse_percent(&bare),
    };
    share.filter(|share| allowed.contains(share)).map(|share| share.clamp(low, high)).ok_or_else(
        || {
            let [low, high] = [low, high].map(text::written_share);
            format!("must be from \"{low}\" to \"{high}\"")
        },
    )
}

/// Rounding error of a share after its percentage was divided: 99.9 / 100 is above 0.999.
const SHARE_ROUNDING: f64 = 1e-12;

fn method(source: &Source<'_>, written: &MethodFile) -> Result<Method, PlanError> {
    let defaults = Method::default();
    let time = |field: &Option<Spanned<Toml>>, default, name, range: Range<Nanos>| {
        let Some(field) = field else { return Ok(default) };
        let value = time_of(field.get_ref())
            .map_err(|problem| source.error(field.span(), format!("`{name}`: {problem}")))?;
        if range.contains(&value) {
            return Ok(value);
        }
        let problem = format!("`{name}` must be from {} to below {}", range.start, range.end);
        Err(source.error(field.span(), problem))
    };
    let share = |field: &Option<Spanned<Toml>>, default, name, low: f64, high: f64| {
        let Some(field) = field else { return Ok(default) };
        share_of(field.get_ref(), (low, high))
            .map_err(|problem| source.error(field.span(), format!("`{name}` {problem}")))
    };
    let hour = Nanos::from_s(3600);
    let (repetitions_min, repetitions_max) = match &written.repetitions {
        None => (defaults.repetitions_min, defaults.repetitions_max),
        Some(field) => {
            let Repetitions { min, max } = *field.get_ref();
            if min == 0 || min > max {
                let problem = "`repetitions` needs 1 <= min <= max";
                return Err(source.error(field.span(), problem));
            }
            (min, max)
        }
    };
    let budget = match &written.budget {
        None => None,
        some => {
            Some(time(some, Nanos::ZERO, "budget", Nanos::from_s(1)..hour.saturating_mul(240))?)
        }
    };
    Ok(Method {
        design: one_of(source, "design", written.design.as_ref(), DESIGNS, OLD_DESIGNS)?,
        on_unsupported: on_unsupported(source, written)?,
        repetitions_min,
        repetitions_max,
        warmup: time(&written.warmup, defaults.warmup, "warmup", Nanos::ZERO..hour)?,
        duration: time(&written.duration, defaults.duration, "duration", Nanos::from_ms(50)..hour)?,
        confidence: share(&written.confidence, defaults.confidence, "confidence", 0.5, 0.999)?,
        half_width: share(&written.half_width, defaults.half_width, "half_width", 0.001, 0.5)?,
        seed: written.seed.as_ref().map(|seed| *seed.get_ref()),
        budget,
        allow_link_reset: written.allow_link_reset,
        beside: written.beside,
        first: false,
    })
}

const DESIGNS: &[(&str, Design)] =
    &[("blocks", Design::Blocks), ("slices", Design::Slices), ("search", Design::Search)];
/// Former names of designs.
const OLD_DESIGNS: &[(&str, Design)] = &[("grid", Design::Blocks)];
const ON_UNSUPPORTED: &[(&str, OnUnsupported)] =
    &[("refuse", OnUnsupported::Refuse), ("skip", OnUnsupported::Skip)];

fn on_unsupported(source: &Source<'_>, written: &MethodFile) -> Result<OnUnsupported, PlanError> {
    if let Some(old) = &written.lacking {
        let problem = "`lacking` is called `on_unsupported` now, and \"leave_out\" is \"skip\"";
        return Err(source.error(old.span(), problem));
    }
    let field = written.on_unsupported.as_ref();
    Ok(one_of(source, "on_unsupported", field, ON_UNSUPPORTED, &[])?.unwrap_or_default())
}

/// A field that takes one of a few words.
fn one_of<T: Copy>(
    source: &Source<'_>,
    name: &str,
    written: Option<&Spanned<String>>,
    words: &[(&str, T)],
    old_words: &[(&str, T)],
) -> Result<Option<T>, PlanError> {
    let Some(field) = written else { return Ok(None) };
    let found = words.iter().chain(old_words).find(|(word, _)| word == field.get_ref());
    found.map(|(_, meaning)| Some(*meaning)).ok_or_else(|| {
        let quoted: Vec<String> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
        let (last, others) = quoted.split_last().expect("a field has words to choose from");
        let words = format!("{} or {last}", others.join(", "));
        let problem = format!("`{name}` must be {words}, not `{}`", field.get_ref());
        source.error(field.span(), problem)
    })
}

impl Default for Method {
    /// netperf's defaults: at least 3 and at most 30 repetitions, +/- 2.5% at 99%.
    fn default() -> Self {
        Self {
            design: None,
            on_unsupported: OnUnsupported::Refuse,
            repetitions_min: 5,
            repetitions_max: 30,
            warmup: Nanos::from_ms(200),
            duration: Nanos::from_s(2),
            confidence: 0.99,
            half_width: 0.025,
            seed: None,
            budget: None,
            allow_link_reset: false,
            beside: false,
            first: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::BUILT_IN;
    use crate::workload::Traffic;

    #[test]
    fn built_in_plan_is_what_the_manual_says() {
        let plan = Plan::parse("built-in", BUILT_IN).unwrap();
        assert_eq!(plan.trials_per_block(), 15);
        let settings = plan.settings();
        let labels: Vec<&str> = settings.iter().map(|setting| setting.label.as_str()).collect();
        let expected = ["0us", "20us", "50us", "125us", "500us"];
        assert_eq!(labels, expected.map(|value| format!("gro-flush-timeout={value}")));
        let last = &settings[4].by_role;
        assert_eq!(last[&Role::Sut], last[&Role::Generator]);
        assert_eq!(last[&Role::Sut][&Knob::NapiDeferHardIrqs], Value::Count(100));
        assert_eq!(settings[0].by_role[&Role::Sut][&Knob::NapiDeferHardIrqs], Value::Count(0));
        let names: Vec<&str> = plan.workloads.iter().map(|load| load.name.as_str()).collect();
        assert_eq!(names, ["tcp_rr", "tcp_rr burst=16", "tcp_stream"]);
        assert_eq!(plan.workloads[2].probe.map(|probe| probe.rate_hz), Some(1000));
        assert!(plan.method.repetitions_min >= 5);
        let goal = plan.goal.unwrap();
        assert_eq!(goal, "minimize latency_ns_p99 where throughput_bps >= 0.95 today");
    }

    #[test]
    fn share_bounds_are_inclusive() {
        let method = |line: &str| {
            let text = format!("schema = 1\n[[workload]]\nkind = \"tcp_rr\"\n[method]\n{line}\n");
            Plan::parse("plan.toml", &text).map(|plan| plan.method)
        };
        for (text, share) in [("\"50%\"", 0.5), ("\"99.9%\"", 0.999), ("0.999", 0.999)] {
            let found = method(&format!("confidence = {text}")).unwrap().confidence;
            assert_eq!(found.to_bits(), f64::to_bits(share), "{text}");
        }
        for (text, share) in [("\"0.1%\"", 0.001), ("\"50%\"", 0.5)] {
            let found = method(&format!("half_width = {text}")).unwrap().half_width;
            assert_eq!(found.to_bits(), f64::to_bits(share), "{text}");
        }
        let both = method("half_width = 0.2").unwrap_err().problem;
        assert_eq!(both, "`half_width` may mean \"0.2%\" or \"20%\": write one of them");
        assert!(method("confidence = \"99.91%\"").is_err() && method("confidence = 0.49").is_err());
    }

    #[test]
    fn designs_are_named_and_slices_checked() {
        let design = |method: &str, knob: &str| {
            let text = format!(
                "schema = 1\n[factors]\n{knob}\n[[workload]]\nkind = \"tcp_rr\"\n[method]\n{method}\n"
            );
            let plan = Plan::parse("plan.toml", &text);
            plan.map(|plan| plan.method.design).map_err(|error| error.problem)
        };
        let cheap = "gro-flush-timeout = [\"0us\", \"20us\"]";
        assert_eq!(design("", cheap), Ok(None));
        assert_eq!(design("design = \"slices\"", cheap), Ok(Some(Design::Slices)));
        assert_eq!(design("design = \"blocks\"", cheap), Ok(Some(Design::Blocks)));
        assert_eq!(design("design = \"grid\"", cheap), Ok(Some(Design::Blocks)), "the old name");
        let unknown = design("design = \"x\"", cheap).unwrap_err();
        assert_eq!(unknown, "`design` must be `blocks`, `slices` or `search`, not `x`");
        let why = |knob| design("design = \"slices\"", knob).unwrap_err();
        assert!(why("mtu = [1500, 9000]").contains("a change of `mtu` disturbs traffic"));
        assert!(why("txqueuelen = [10]").contains("one setting"), "{}", why("txqueuelen = [10]"));
    }

    #[test]
    fn settings_are_a_cross_product() {
        let plan = parsed(
            "[factors]\nmtu = [1500, 9000]\n\"sut.gro-flush-timeout\" = [\"0us\", \"1ms\"]\n\
             [[workload]]\nkind = \"tcp_rr\"",
        );
        let settings = plan.settings();
        assert_eq!(settings.len(), 4);
        assert_eq!(settings[3].label, "mtu=9000 sut.gro-flush-timeout=1ms");
        assert!(!settings[3].by_role[&Role::Generator].contains_key(&Knob::GroFlushTimeout));
    }

    #[test]
    fn plan_without_factors_has_one_setting() {
        let settings = parsed("[[workload]]\nkind = \"tcp_rr\"").settings();
        assert_eq!(settings.len(), 1);
        assert!(settings[0].by_role.is_empty());
    }

    #[test]
    fn list_in_workload_multiplies_workloads() {
        let plan = parsed("[[workload]]\nkind = \"tcp_rr\"\nburst = [0, 16]\nconnections = [1, 8]");
        assert_eq!(plan.workloads.len(), 4);
        assert_eq!(plan.workloads[3].name, "tcp_rr burst=16 connections=8");
        let Traffic::TcpRr { burst: 16, connections: 8, .. } = plan.workloads[3].traffic else {
            panic!("{:?}", plan.workloads[3]);
        };
    }

    #[test]
    fn unknown_keys_are_refused_with_their_line() {
        check("colour = 1", 3, "colour");
        check("[[workload]]\nkind = \"tcp_rr\"\nbursts = 3", 5, "no field `bursts`");
        check("[[workload]]\nkind = \"tcp_stream\"\nburst = 3", 5, "no field `burst`");
        check("[[workload]]\nkind = \"tcp_fly\"", 4, "the kinds are tcp_rr");
        check("[[workload]]\nkind = \"tcp_rr\"\n[method]\nduratoin = \"1s\"", 6, "duratoin");
        check("[factors]\nmtuu = [1500]\n[[workload]]\nkind = \"tcp_rr\"", 4, "mtu");
        check("[factors]\n\"sat.mtu\" = [1500]\n[[workload]]\nkind = \"tcp_rr\"", 4, "not a role");
    }

    /// A plan with every key.
    const WHOLE: &str = r#"
        schema = 1
        name = "whole"
        goal = { minimize = "latency_ns_p99", where = ["throughput_bps >= 0.95 today"] }
        factors = { mtu = [1500, 9000], "gro-flush-timeout + napi-defer-hard-irqs" = [["20us", 100]] }
        workload = [{ kind = "tcp_rr", burst = 16, connections = [1, 8] }, { kind = "live", port = 80 }]
        [method]
        design = "blocks"
        on_unsupported = "skip"
        lacking = "skip"
        repetitions = { min = 5, max = 30 }
        warmup = "1s"
        duration = "2s"
        confidence = "99%"
        half_width = "2.5%"
        seed = 7
        budget = "20min"
        allow_link_reset = true
        beside = true
        "#;

    #[test]
    fn wrong_values_are_told_in_plan_words() {
        let whole: toml::Table = WHOLE.parse().unwrap();
        for (section, known) in
            [("", whole.clone()), ("[method]\n", whole["method"].as_table().unwrap().clone())]
        {
            let error =
                Plan::parse("", &format!("schema = 1\n{section}no-such-key = 1")).unwrap_err();
            let keys = error.problem.split('`').skip(3).step_by(2);
            for key in keys {
                assert!(known.contains_key(key), "`{key}` is not in the whole plan");
            }
        }
        let refused = latput_testkit::check_wrong_values(&whole, |text| {
            Plan::parse("plan.toml", text).err().map(|error| error.problem)
        });
        assert!(refused > 150, "{refused}");
        check(
            "[method]\nrepetitions = 5",
            4,
            "`repetitions` must be a table such as `{ min = 5, max = 30 }`, not 5",
        );
    }

    #[test]
    fn impossible_values_are_refused_by_line() {
        check(
            "[factors]\n\"gro-flush-timeout\" = [\"50\"]\n[[workload]]\nkind = \"tcp_rr\"",
            4,
            "50us",
        );
        check(
            "[factors]\n\"gro-flush-timeout\" = [50]\n[[workload]]\nkind = \"tcp_rr\"",
            4,
            "50us",
        );
        check("[factors]\nmtu = [\"9kbit\"]\n[[workload]]\nkind = \"tcp_rr\"", 4, "mtu");
        check("[factors]\nmtu = [99999999]\n[[workload]]\nkind = \"tcp_rr\"", 4, "mtu");
        check("[factors]\nmtu = [1.5]\n[[workload]]\nkind = \"tcp_rr\"", 4, "whole number");
        check("[[workload]]\nkind = \"udp_stream\"\nrate = \"5 apples\"", 5, "bit rate");
        check("[[workload]]\nkind = \"tcp_rr\"\nburst = 1\nrate_per_s = 9", 5, "closed loop");
        check("[[workload]]\nkind = \"udp_rr\"\ngaps = \"fixed\"", 5, "give `rate_per_s`");
        check("[[workload]]\nkind = \"tcp_rr\"\nburst = -1", 5, "whole number from 0");
        check("[[workload]]\nkind = \"tcp_rr\"\nconnections = 0", 5, "from 1 to 1000");
        check("[[workload]]\nkind = \"tcp_rr\"\n[method]\nduration = \"1us\"", 6, "`duration`");
        check(
            "[[workload]]\nkind = \"tcp_rr\"\n[method]\nconfidence = 99",
            6,
            "from \"50%\" to \"99.9%\"",
        );
        check(
            "[[workload]]\nkind = \"tcp_rr\"\n[method]\nrepetitions = { min = 9, max = 3 }",
            6,
            "min <= max",
        );
    }

    #[test]
    fn quantities_are_written_as_the_peers_write_them() {
        let plan = parsed(
            "[[workload]]\nkind = \"udp_stream\"\nrate = \"1G\"\ndatagram_bytes = \"1k\"\n\
             [method]\nduration = 1\nwarmup = 0.25\nconfidence = \"95%\"\nhalf_width = \"5%\"",
        );
        let traffic = plan.workloads[0].traffic;
        assert_eq!(traffic.value("rate"), Some(1_000_000_000));
        assert_eq!(traffic.value("datagram_bytes"), Some(1024));
        assert_eq!(plan.method.duration, Nanos::from_s(1));
        assert_eq!(plan.method.warmup, Nanos::from_ms(250));
        assert!((plan.method.confidence - 0.95).abs() < 1e-12);
        assert!((plan.method.half_width - 0.05).abs() < 1e-12);
    }

    #[test]
    fn empty_and_endless_plans_are_refused() {
        check("", 1, "no workload");
        check(
            "[factors]\n\"rx-usecs + rx-frames\" = [[\"20us\", 100], [20, 100]]\n\
             [[workload]]\nkind = \"tcp_rr\"",
            4,
            "levels 1 and 2 of `rx-usecs + rx-frames` are the same (20us, 100)",
        );
        check("[factors]\nmtu = []\n[[workload]]\nkind = \"tcp_rr\"", 4, "no level");
        check("[[workload]]\nkind = \"tcp_rr\"\nburst = []", 5, "lists no value");
        check(
            "[factors]\nmtu = [1500]\n\"sut.mtu\" = [9000]\n[[workload]]\nkind = \"tcp_rr\"",
            5,
            "two factors",
        );
        check("[factors]\n\"mtu + gro\" = [[1500]]\n[[workload]]\nkind = \"tcp_rr\"", 4, "needs 2");
        check(
            "[[workload]]\nkind = \"tcp_rr\"\n[[workload]]\nkind = \"tcp_rr\"",
            5,
            "another `name`",
        );
        let many: Vec<String> = (0..400).map(|i| i.to_string()).collect();
        let many = many.join(", ");
        check(
            &format!(
                "[factors]\ntxqueuelen = [{many}]\n\"napi-defer-hard-irqs\" = [{many}]\n\
                 [[workload]]\nkind = \"tcp_rr\"\n[method]\nrepetitions = {{ min = 5, max = 6250 }}"
            ),
            1,
            "1000000000 trials",
        );
        let error = Plan::parse("plan.toml", "schema = 7\n[[workload]]").unwrap_err();
        assert!(error.to_string().starts_with("plan.toml:1: this latput reads"), "{error}");
    }

    #[test]
    fn field_of_method_is_sent_there() {
        let at_top = |field: &str| {
            let error = Plan::parse("plan.toml", &format!("schema = 1\n{field}\n")).unwrap_err();
            (error.line, error.problem)
        };
        for field in ["seed = 4", "repetitions = { min = 4, max = 4 }", "beside = true"] {
            let name = field.split(' ').next().unwrap();
            assert_eq!(at_top(field), (2, format!("`{name}` belongs below `[method]`")));
        }
        assert!(at_top("sead = 4").1.contains("unknown field `sead`, expected one of"));
    }

    fn parsed(text: &str) -> Plan {
        Plan::parse("plan.toml", &format!("schema = 1\nname = \"test\"\n{text}")).unwrap()
    }

    /// `text` follows two lines of a good plan.
    #[track_caller]
    fn check(text: &str, line: usize, expected: &str) {
        let text = format!("schema = 1\nname = \"test\"\n{text}");
        let error = Plan::parse("plan.toml", &text).unwrap_err();
        assert!(error.problem.contains(expected), "{error}");
        assert_eq!(error.line, line, "{error}");
    }
}
