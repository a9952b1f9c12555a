//! `latput measure`: runs one workload now, with intervals and service demand.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use latput_linux::confine::UsedFiles;
use latput_model::ResultsSummary;
use latput_report::render_brief;
use latput_results::ResultsDb;
use latput_trial::plan::Method;
use latput_trial::workload::{self, COUNT, KINDS, PROBE_HZ, SOCKET_FIELDS};
use latput_trial::{Plan, Workload};
use latput_units::Nanos;
use latput_units::text::format_count;

use crate::command_args::{self, CommandArgs, KIND};
use crate::commands::{report, run};
use crate::context::CliContext;
use crate::exit::CliError;
use crate::factor_args::FactorArgs;
use crate::output;
use crate::precision::Precision;
use crate::progress::ProgressArgs;
use crate::quiet_args::QuietArgs;
use crate::targets::{self, HostArgs};

/// Measure one workload now.
///
/// It is repeated until its rate and the CPU utilisation of both ends are precise enough: by default 3 to 10 times,
/// to +/- 2.5% at 99%.
#[derive(Debug, clap::Args)]
#[command(after_help = after_help())]
pub(crate) struct Args {
    /// `loopback`, `lab`, `sim:SYSTEM`, `iperf3://HOST[:PORT]`, `netperf://HOST[:PORT]`, a testbed
    /// file that names hosts, or the hosts themselves: `HOST HOST` or `HOST,HOST`, the system under test first.
    #[arg(value_name = "TARGET")]
    target: String,
    #[command(flatten)]
    hosts: HostArgs,
    /// The kind of traffic; the kinds and their fields are listed below.
    #[arg(long, value_name = "KIND", required_unless_present = "command")]
    workload: Option<String>,
    #[command(flatten)]
    own: CommandArgs,
    /// The second host, and fields of the workload.
    #[arg(value_name = "HOST|FIELD=VALUE")]
    fields: Vec<String>,
    #[command(flatten)]
    factors: FactorArgs,
    /// Measurement window of one run.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = Nanos::from_text_or_seconds)]
    duration: Nanos,
    /// Traffic before the window.
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = Nanos::from_text_or_seconds)]
    warmup: Nanos,
    #[command(flatten)]
    precision: Precision,
    #[command(flatten)]
    quiet: QuietArgs,
    #[command(flatten)]
    watch: ProgressArgs,
    /// Keep the runs in this results file.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print every figure with its interval, CPU time by kind, packets and warnings.
    #[arg(short, long)]
    verbose: bool,
}

fn after_help() -> String {
    let mut text = String::from(
        "\
Examples:
  latput measure loopback --workload tcp_rr                  both ends on this host, no root needed
  latput measure lab --workload tcp_rr burst=16              between two namespaces, needs root
  latput measure rack.toml --workload udp_stream rate=2Gbps  on the hosts that a testbed file names
  latput measure ssh://root@server ssh://root@client --workload tcp_rr
  latput measure eth0 --peer ssh://root@client --workload tcp_stream
  latput measure lab --workload tcp_rr --factor tso=on,off   does it matter: each figure's change
  latput measure loopback --workload tcp_stream message_bytes=32768 probe_hz=100
  latput measure iperf3://192.0.2.7 --workload tcp_bidir     against an unmodified `iperf3 -s`
  latput measure netperf://192.0.2.7 --workload tcp_rr       against an unmodified netserver
  latput measure lab --workload tcp_rr rate_per_s=20000 connections=16

Kinds and their fields (defaults and ranges: docs/plans.md):
",
    );
    for kind in KINDS {
        let names: Vec<&str> = kind.fields.iter().map(|field| field.name).collect();
        let _ =
            writeln!(text, "  {:<11} {}\n  {:11} {}", kind.name, kind.about, "", names.join(" "));
    }
    let sockets: Vec<&str> = SOCKET_FIELDS.iter().map(|field| field.name).collect();
    let _ = write!(
        text,
        "  all but ping: {} congestion\n              sut_cpus generator_cpus {}\n  all: {}, ICMP echo beside \
         the traffic\n\nWithout --factor nothing is set on any host. With it everything is put back. \
         `docs/measuring.md` says what each figure means.",
        sockets.join(" "),
        COUNT.name,
        PROBE_HZ.name,
    );
    text.push_str("\n\n");
    text.push_str(command_args::EXAMPLES);
    text
}

impl Args {
    pub(crate) fn run(mut self, context: &CliContext) -> Result<ExitCode, CliError> {
        self.target = targets::take_hosts(self.target, &mut self.fields);
        let plan = self.build_plan()?;
        let interval = self.watch.checked_interval()?;
        let place = self.hosts.resolve_testbed(&self.target, &plan)?;
        place.give_up_rights(Some(&plan), &UsedFiles::new([], self.output.as_deref()), context)?;
        let testbed = place.open(context)?;
        // Without -o the runs are temporary, in SQLite's own temporary database.
        let file = self.output.clone().unwrap_or_default();
        let mut results_db = match &self.output {
            Some(path) => ResultsDb::create(path)?,
            None => ResultsDb::in_memory()?,
        };
        let text = format!("{plan:?}");
        let how = (interval, self.quiet.for_plan(&plan));
        let ended = run::run_plan(context, &plan, &text, &testbed, &mut results_db, how)?;
        drop(testbed);
        let summary = ResultsSummary::from_results(&ended.results);
        if context.json || self.verbose {
            report::print_report(context, &ended.results, &summary)?;
        } else {
            output::print_text(&render_brief(&ended.results, &summary, output::stdout_screen()))?;
        }
        match (&self.output, &ended.cause) {
            (Some(_), _) => run::conclude_run(&ended, &file),
            (None, None) => Ok(ExitCode::SUCCESS),
            (None, Some(cause)) => {
                let done = format_count(ended.results.rows.len(), "trial");
                let message = format!("{cause}; done before: {done}");
                Err(CliError::new(crate::exit::ExitReason::Partial, message))
            }
        }
    }

    fn build_workload(&self) -> Result<Workload, CliError> {
        match &self.workload {
            Some(kind) if !self.own.is_given() => workload_of(kind, &self.fields),
            Some(kind) if kind != KIND => Err(CliError::usage(format!(
                "--command is the workload, and so is `{kind}`: name one"
            ))),
            _ => {
                let fields = fields_of(&self.fields)?;
                let workload = self.own.build_workload(&fields)?;
                workload.ok_or_else(|| CliError::usage("there is no workload"))
            }
        }
    }

    fn build_plan(&self) -> Result<Plan, CliError> {
        let workload = self.build_workload()?;
        if !(Nanos::from_ms(50)..Nanos::from_s(3600)).contains(&self.duration)
            || self.warmup >= Nanos::from_s(3600)
        {
            return Err(CliError::usage("--duration must be from 50ms to 1h, --warmup below 1h"));
        }
        let mut method = Method {
            repetitions_min: 3,
            repetitions_max: 10,
            warmup: self.warmup,
            duration: self.duration,
            ..Method::default()
        };
        self.precision.apply_to_method(&mut method)?;
        self.quiet.beside.apply_to_method(&mut method);
        Ok(Plan {
            name: format!("measure {}", workload.name),
            goal: None,
            factors: self.factors.parse_factors()?,
            workloads: vec![workload],
            method,
        })
    }
}

/// A workload from its kind and `FIELD=VALUE` words.
pub(crate) fn workload_of(kind: &str, words: &[String]) -> Result<Workload, CliError> {
    let mut fields = fields_of(words)?;
    fields.insert("kind".to_owned(), kind.to_owned());
    workload::from_fields(&fields).map_err(|error| CliError::usage(error.to_string()))
}

/// The fields of `FIELD=VALUE` words.
fn fields_of(words: &[String]) -> Result<BTreeMap<String, String>, CliError> {
    let mut fields = BTreeMap::new();
    for word in words {
        let (name, value) = word.split_once('=').ok_or_else(|| {
            CliError::usage(format!("`{word}` is not FIELD=VALUE, such as `burst=16`"))
        })?;
        if name == "kind" || fields.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(CliError::usage(format!("`{name}` is given twice")));
        }
    }
    Ok(fields)
}
