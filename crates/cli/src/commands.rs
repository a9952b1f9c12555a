//! The subcommands.

pub(crate) mod agent;
pub(crate) mod apply;
pub(crate) mod broker;
pub(crate) mod calibrate;
mod change;
mod check;
pub(crate) mod completions;
pub(crate) mod confirm;
pub(crate) mod diagnose;
pub(crate) mod effect;
pub(crate) mod explain;
pub(crate) mod export_settings;
pub(crate) mod fleet;
pub(crate) mod history;
pub(crate) mod hosts;
pub(crate) mod import;
mod interface_type;
mod journal;
pub(crate) mod keep;
pub(crate) mod lab;
pub(crate) mod log;
pub(crate) mod man;
pub(crate) mod measure;
pub(crate) mod merge;
pub(crate) mod metrics;
pub(crate) mod model;
pub(crate) mod moderate;
mod netplan;
mod next;
pub(crate) mod plan;
pub(crate) mod program;
mod proven;
pub(crate) mod report;
pub(crate) mod reproduce;
pub(crate) mod restore;
pub(crate) mod run;
pub(crate) mod search;
pub(crate) mod set;
pub(crate) mod show;
pub(crate) mod sim;
pub(crate) mod snapshot;
mod stages;
pub(crate) mod tune;
pub(crate) mod undo;
pub(crate) mod vm;
pub(crate) mod watch;
pub(crate) mod watcher;
mod way_back;

use std::io;
use std::process::ExitCode;

use clap::Subcommand;

use crate::context::CliContext;
use crate::exit::CliError;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Tune(Box<tune::Args>),
    Run(run::Args),
    Search(search::Args),
    Merge(merge::Args),
    Measure(measure::Args),
    Show(show::Args),
    Diagnose(diagnose::Args),
    Snapshot(snapshot::Args),
    Watch(watch::Args),
    Set(set::Args),
    Confirm(confirm::Args),
    Restore(restore::Args),
    Log(log::Args),
    Undo(undo::Args),
    Apply(apply::Args),
    Keep(keep::Args),
    Fleet(fleet::Args),
    Moderate(moderate::Args),
    ExportSettings(export_settings::Args),
    Report(report::Args),
    History(history::Args),
    Metrics(metrics::Args),
    Model(model::Args),
    Explain(explain::Args),
    Reproduce(reproduce::Args),
    Calibrate(calibrate::Args),
    Plan(plan::Args),
    Import(import::Args),
    Hosts(hosts::Args),
    Lab(lab::Args),
    Sim(sim::Args),
    Vm(vm::Args),
    Agent(agent::Args),
    Completions(completions::Args),
    Man(man::Args),
    #[command(name = latput_reach::broker::COMMAND, hide = true)]
    Broker(broker::Args),
    #[command(name = keep::wanted::READER, hide = true)]
    ReadSetting(keep::wanted::Args),
    #[command(hide = true)]
    Program(program::Args),
    #[command(hide = true)]
    Watcher(watcher::Args),
    /// Serve a daemon's metrics; started by `latput moderate`: clients at stdin, the daemon at stdout.
    #[command(name = latput_moderate::METRICS_SERVER, hide = true)]
    MetricsServer,
}

impl Command {
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        match self {
            Self::Tune(args) => args.run(context),
            Self::Run(args) => args.run(context),
            Self::Search(args) => args.run(context),
            Self::Merge(args) => args.run(context),
            Self::Measure(args) => args.run(context),
            Self::Show(args) => args.run(context),
            Self::Diagnose(args) => args.run(context),
            Self::Snapshot(args) => args.run(context),
            Self::Watch(args) => args.run(context),
            Self::Set(args) => args.run(context),
            Self::Confirm(args) => args.run(context),
            Self::Restore(args) => args.run(context),
            Self::Log(args) => args.run(context),
            Self::Undo(args) => args.run(context),
            Self::Apply(args) => args.run(context),
            Self::Keep(args) => args.run(context),
            Self::Fleet(args) => args.run(context),
            Self::Moderate(args) => args.run(context),
            Self::ExportSettings(args) => args.run(context),
            Self::Report(args) => args.run(context),
            Self::History(args) => args.run(context),
            Self::Metrics(args) => args.run(context),
            Self::Model(args) => args.run(context),
            Self::Explain(args) => args.run(context),
            Self::Reproduce(args) => args.run(context),
            Self::Calibrate(args) => args.run(context),
            Self::Plan(args) => args.run(context),
            Self::Import(args) => args.run(context),
            Self::Hosts(args) => args.run(context),
            Self::Lab(args) => args.run(context),
            Self::Sim(args) => args.run(context),
            Self::Vm(args) => args.run(context),
            Self::Agent(args) => args.run(context),
            Self::Completions(args) => args.run(),
            Self::Man(args) => args.run(),
            Self::Broker(args) => args.run(),
            Self::ReadSetting(args) => args.run(),
            Self::Program(args) => args.run(context),
            Self::Watcher(args) => args.run(context),
            Self::MetricsServer => {
                latput_moderate::serve_metrics(io::stdin(), io::stdout())?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}
