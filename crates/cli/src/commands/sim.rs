//! `latput sim`: direct use of the simulator.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use latput_experiment::simulator;
use latput_knobs::{Knob, Setting};
use latput_linux::files;
use latput_report::plain::render_table;
use latput_sim::SystemProfile;
use latput_sim::trace::PacketTrace;
use latput_trial::observation::Role;
use latput_trial::plan::Method;
use latput_trial::results::LabelledSetting;
use latput_trial::{Plan, Workload};
use latput_units::Nanos;

use crate::commands::{measure, run};
use crate::context::CliContext;
use crate::document::{SystemDocument, SystemsDocument, TraceDocument};
use crate::exit::CliError;
use crate::output;
use crate::targets;

/// List the simulator's systems, or trace a short run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    List(ListArgs),
    Trace(TraceArgs),
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
    /// Simulated time to write.
    #[arg(long, value_name = "TIME", default_value = "2ms", value_parser = Nanos::from_text_or_seconds)]
    duration: Nanos,
    /// Simulated time before the window.
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = Nanos::from_text_or_seconds)]
    warmup: Nanos,
    /// Seed of all random draws.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The output folder; created if missing.
    #[arg(short, long, value_name = "FOLDER")]
    output: PathBuf,
}

impl Args {
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        match self.action {
            Action::List(_) => list_systems(context),
            Action::Trace(args) => args.run(context),
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

impl TraceArgs {
    fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        let system = self.on.strip_prefix(targets::SIMULATED).ok_or_else(|| {
            let on = &self.on;
            CliError::usage(format!(
                "--on must be `sim:SYSTEM`, not `{on}`: only those have traces"
            ))
        })?;
        let most = Nanos::from_s(60);
        if self.duration > most || self.warmup > most || self.duration == Nanos::ZERO {
            return Err(CliError::usage(
                "--duration must be above 0; both --duration and --warmup must be at most 60s",
            ));
        }
        let (set, load, mut method) = self.build_trial()?;
        (method.duration, method.warmup) = (self.duration, self.warmup);
        let trace = simulator::trace_trial(system, &set, &load, &method, self.seed)?;
        self.write(context, &trace, (&set, &load))
    }

    fn build_trial(&self) -> Result<(LabelledSetting, Workload, Method), CliError> {
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
        // Only the times of the method are used, and flags set them.
        let method = Method { warmup: self.warmup, duration: self.duration, ..Method::default() };
        let both = [Role::Sut, Role::Generator].map(|role| (role, setting.clone()));
        let label =
            if self.set.is_empty() { "the profile's own".into() } else { self.set.join(" ") };
        Ok((LabelledSetting { label, by_role: both.into() }, load, method))
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
                testbed: self.on.clone(),
                workload: load.name.clone(),
                setting: set.label.clone(),
                seed: self.seed,
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
