//! `latput restore`: finish the undo of a change that was cut short.

use std::process::ExitCode;

use latput_experiment::host;
use latput_knobs::CheckpointStore;
use latput_knobs::transaction::{self, Restored};
use latput_linux::{FileCheckpoints, LinuxKernel, checkpoint};

use crate::commands::set;
use crate::context::Context;
use crate::exit::{Code, Failure};
use crate::output;

/// Put back what an earlier, unfinished change left (after a kill -9, a crash, a stranded rollback).
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput restore --dry-run    what would be put back
  latput restore

Checkpoints of another boot or namespace are refused and kept.")]
pub(crate) struct Args {
    /// Print what would be put back and do nothing.
    #[arg(long)]
    dry_run: bool,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let mut store = FileCheckpoints::new(&host::checkpoints_dir());
        let origin = checkpoint::context()?;
        let mut worst: Option<Failure> = None;
        let mut count = 0;
        let listed =
            store.list().map_err(|error| Failure { code: Code::Failed, error: error.into() })?;
        for kept in listed {
            count += 1;
            let done = match kept {
                Ok(checkpoint) if self.dry_run => {
                    let kernel = LinuxKernel::open()?;
                    transaction::plan_restore(&kernel, &origin, &checkpoint)
                        .map_err(Failure::from)
                        .and_then(|changes| {
                            set::tell(context, &checkpoint.interface, &changes, "would change")
                        })
                }
                Ok(checkpoint) => {
                    let mut kernel = LinuxKernel::open()?;
                    transaction::restore(&mut kernel, &mut store, &origin, &checkpoint)
                        .map_err(Failure::from)
                        .and_then(|restored| tell(context, &checkpoint.interface, &restored))
                }
                Err(error) => Err(Failure { code: Code::Failed, error: error.into() }),
            };
            // One checkpoint that cannot be used must not keep the others from being put back.
            if let Err(failure) = done
                && let Some(earlier) = worst.replace(failure)
            {
                output::remark(&format!("latput: error: {:#}", earlier.error));
            }
        }
        match worst {
            Some(failure) => Err(failure),
            None if count == 0 => {
                output::print("nothing to restore\n")?;
                Ok(ExitCode::SUCCESS)
            }
            None => Ok(ExitCode::SUCCESS),
        }
    }
}

fn tell(context: &Context, interface: &str, restored: &Restored) -> Result<ExitCode, Failure> {
    match restored {
        Restored::Done { changes, .. } => set::tell(context, interface, changes, "put back"),
        Restored::InterfaceGone { .. } => {
            output::print(&format!("{interface} is gone: nothing is left to put back\n"))?;
            Ok(ExitCode::SUCCESS)
        }
        Restored::NothingToDo => {
            output::print(&format!("{interface}: nothing to put back\n"))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
