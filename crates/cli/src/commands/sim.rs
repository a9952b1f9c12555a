//! `latput sim`: direct use of the simulator.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use latput_experiment::simulator;
use latput_knobs::{Knob, Setting};
use latput_linux::files;
use latput_report::plain::render_table;
use latput_sim::trace::PacketTrace;
use latput_sim::{SystemProfile, facts};
use latput_trial::observation::Role;
use latput_trial::plan::Method;
use latput_trial::results::LabelledSetting;
use latput_trial::{Plan, Workload};
use latput_units::Nanos;

use crate::commands::snapshot::{check_window, join_looks, write_snapshot};
use crate::commands::{measure, run};
use crate::context::CliContext;
use crate::document::{SystemDocument, SystemsDocument, TraceDocument};
use crate::exit::CliError;
use crate::output;
use crate::targets;

/// The longest window, and the longest time before it.
const LONGEST: Nanos = Nanos::from_s(60);

/// List the simulator's systems, or look into a short run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    List(ListArgs),
    Trace(TraceArgs),
    Snapshot(SnapshotArgs),
}

/// List the systems that the simulator knows by name.
///
/// A profile of your own is a file: `sim:my.toml` (docs/simulator.md).
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput sim list
  latput tune --on sim:server-10g    one of them as the testbed")]
struct ListArgs {}

/// Write every packet of a short simulated run, and the activity of each core and NIC queue.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput sim trace --workload tcp_rr burst=16 -o trace
  latput sim trace --on sim:rx1620-e1000 --workload tcp_stream --duration 5ms -o trace
  latput sim trace --set gro-flush-timeout=50us,napi-defer-hard-irqs=100 --workload tcp_rr -o trace
  latput sim trace --plan plan.toml --trial 3 -o trace

The folder holds packets.pcapng (an interface for each host; for Wireshark, tshark, capinfos) and
timeline.json (for ui.perfetto.dev or chrome://tracing). `docs/simulator.md` describes them.")]
struct TraceArgs {
    #[command(flatten)]
    simulated: TrialArgs,
    /// Simulated time to write.
    #[arg(long, value_name = "TIME", default_value = "2ms", value_parser = Nanos::from_text_or_seconds)]
    duration: Nanos,
    /// The output folder; created if missing.
    #[arg(short, long, value_name = "FOLDER")]
    output: PathBuf,
}

/// Write what `latput diagnose` would read on a simulated host.
///
/// Its counters at the beginning and at the end of a run, and its settings, as the kernel and its
/// tools print them. What the model does not have is left out, such as TCP's sockets.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput sim snapshot --workload tcp_rr --set rx-usecs=250us -o slow.json
  latput diagnose slow.json")]
struct SnapshotArgs {
    #[command(flatten)]
    simulated: TrialArgs,
    /// `sut` or `generator`.
    #[arg(long, default_value = "sut", value_parser = role_parser())]
    host: Role,
    /// Simulated time between the two looks.
    #[arg(long = "for", value_name = "TIME", default_value = "1s", value_parser = Nanos::from_text_or_seconds)]
    window: Nanos,
    /// Write to this file instead of stdout.
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
}

/// Reads the name of a host of which there are looks.
fn role_parser() -> impl TypedValueParser<Value = Role> {
    let observed = [Role::Sut, Role::Generator];
    PossibleValuesParser::new(observed.map(Role::name))
        .map(move |name| if name == observed[0].name() { observed[0] } else { observed[1] })
}

/// One trial of a system.
#[derive(Debug, clap::Args)]
struct TrialArgs {
    /// `sim:SYSTEM`: a system's name or the file of its profile.
    #[arg(long, default_value = "sim:server-10g", value_name = "TESTBED")]
    on: String,
    /// The kind of traffic, as in `latput measure`.
    #[arg(long, value_name = "KIND", required_unless_present = "plan", conflicts_with = "plan")]
    workload: Option<String>,
    /// Fields of the workload.
    #[arg(value_name = "FIELD=VALUE", requires = "workload")]
    fields: Vec<String>,
    /// Knobs of both hosts.
    #[arg(long, value_name = "KNOB=VALUE,...", conflicts_with = "plan", value_delimiter = ',')]
    set: Vec<String>,
    /// Take setting and workload from this plan.
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Number of the plan's trial, from 1: settings in their order, each with every workload.
    #[arg(long, requires = "plan", default_value_t = 1, value_name = "NUMBER")]
    trial: usize,
    /// Simulated time before the window.
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = Nanos::from_text_or_seconds)]
    warmup: Nanos,
    /// Seed of all random draws.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Args {
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        match self.action {
            Action::List(_) => list_systems(context),
            Action::Trace(args) => args.run(context),
            Action::Snapshot(args) => args.run(),
        }
    }
}

fn list_systems(context: &CliContext) -> Result<ExitCode, CliError> {
    let profiles = SystemProfile::shipped_names().filter_map(SystemProfile::find_shipped);
    if context.json {
        let system = |profile: SystemProfile| SystemDocument {
            cores: profile.sut.machine.cores,
            rate_bps: profile.network.rate.get(),
            name: profile.name,
            source: profile.source,
        };
        let document = SystemsDocument { schema: 1, systems: profiles.map(system).collect() };
        output::print_json(&document)?;
        return Ok(ExitCode::SUCCESS);
    }
    let row = |profile: SystemProfile| {
        let cores = profile.sut.machine.cores.to_string();
        let name = format!("{}{}", targets::SIMULATED, profile.name);
        [name, cores, profile.network.rate.to_string(), profile.source]
    };
    let header = ["system", "CPUs", "link", "figures"];
    output::print_text(&render_table(
        header,
        profiles.map(row),
        1..=2,
        output::stdout_screen().columns,
    ))?;
    Ok(ExitCode::SUCCESS)
}

impl TrialArgs {
    fn find_system(&self) -> Result<&str, CliError> {
        self.on.strip_prefix(targets::SIMULATED).ok_or_else(|| {
            let on = &self.on;
            CliError::usage(format!(
                "--on must be `sim:SYSTEM`, not `{on}`: only those are simulated"
            ))
        })
    }

    /// Setting, workload and method of the trial, with a window of this length.
    fn build_trial(
        &self,
        duration: Nanos,
    ) -> Result<(LabelledSetting, Workload, Method), CliError> {
        if duration > LONGEST || self.warmup > LONGEST || duration == Nanos::ZERO {
            return Err(CliError::usage(format!(
                "the window must be above 0; it and --warmup must be at most {LONGEST}"
            )));
        }
        let (set, load, method) = self.choose_trial()?;
        Ok((set, load, Method { duration, warmup: self.warmup, ..method }))
    }

    fn choose_trial(&self) -> Result<(LabelledSetting, Workload, Method), CliError> {
        if let Some(file) = &self.plan {
            let text = run::read_text(file)?;
            let plan = run::checked_plan(&file.display().to_string(), &text, None)?;
            return self.of_plan(&plan);
        }
        let kind = self.workload.as_deref().unwrap_or_default();
        let load = measure::workload_of(kind, &self.fields)?;
        let mut setting = Setting::new();
        for word in &self.set {
            let (name, value) = word
                .split_once('=')
                .ok_or_else(|| CliError::usage(format!("`{word}` is not KNOB=VALUE")))?;
            let usage = |error: String| CliError::usage(format!("--set {word}: {error}"));
            let knob: Knob = name.parse().map_err(|error| usage(format!("{error}")))?;
            let value = knob.parse_value(value).map_err(|error| usage(format!("{error}")))?;
            setting.insert(knob, value);
        }
        let both = [Role::Sut, Role::Generator].map(|role| (role, setting.clone()));
        let label =
            if self.set.is_empty() { "the profile's own".into() } else { self.set.join(" ") };
        Ok((LabelledSetting { label, by_role: both.into() }, load, Method::default()))
    }

    fn of_plan(&self, plan: &Plan) -> Result<(LabelledSetting, Workload, Method), CliError> {
        let settings = plan.settings();
        let count = settings.len() * plan.workloads.len();
        let nth = self.trial.checked_sub(1).filter(|nth| *nth < count).ok_or_else(|| {
            CliError::usage(format!("--trial must be from 1 to {count} in this plan"))
        })?;
        let load = plan.workloads[nth % plan.workloads.len()].clone();
        Ok((settings[nth / plan.workloads.len()].clone(), load, plan.method))
    }
}

impl SnapshotArgs {
    fn run(self) -> Result<ExitCode, CliError> {
        check_window(self.window)?;
        let system = self.simulated.find_system()?;
        let (set, load, method) = self.simulated.build_trial(self.window)?;
        let (looks, window) =
            simulator::look_at_trial(system, &set, &load, &method, self.simulated.seed, self.host)?;
        let snapshot = join_looks(facts::INTERFACE, looks, window.as_secs_f64())?;
        write_snapshot(&snapshot, self.output.as_deref())
    }
}

impl TraceArgs {
    fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        let system = self.simulated.find_system()?;
        let (set, load, method) = self.simulated.build_trial(self.duration)?;
        let trace = simulator::trace_trial(system, &set, &load, &method, self.simulated.seed)?;
        self.write(context, &trace, (&set, &load))
    }

    fn write(
        &self,
        context: &CliContext,
        trace: &PacketTrace,
        (set, load): (&LabelledSetting, &Workload),
    ) -> Result<ExitCode, CliError> {
        fs::create_dir_all(&self.output).map_err(|error| {
            let message = format!("cannot make {}: {error}", self.output.display());
            CliError::new(crate::exit::ExitReason::Failed, message)
        })?;
        let packets = self.output.join("packets.pcapng");
        files::replace(&packets, &trace.to_pcapng())?;
        let timeline = self.output.join("timeline.json");
        files::replace(&timeline, trace.to_timeline().as_bytes())?;
        if trace.is_cut() {
            output::print_remark(
                "cut off: later packets are left out; choose a shorter --duration",
            );
        }
        if context.json {
            let document = TraceDocument {
                schema: 1,
                testbed: self.simulated.on.clone(),
                workload: load.name.clone(),
                setting: set.label.clone(),
                seed: self.simulated.seed,
                duration_ns: self.duration.as_ns(),
                packets: trace.packet_count(),
                is_cut: trace.is_cut(),
                capture: packets.display().to_string(),
                timeline: timeline.display().to_string(),
            };
            output::print_json(&document)?;
            return Ok(ExitCode::SUCCESS);
        }
        output::print_text(&format!(
            "{}: {} packets\n{}: open it at ui.perfetto.dev\n",
            packets.display(),
            trace.packet_count(),
            timeline.display()
        ))?;
        Ok(ExitCode::SUCCESS)
    }
}
