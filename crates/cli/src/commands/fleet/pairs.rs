//! `latput fleet pairs` and `confirm`: whether a winner is one on several pairs of hosts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use latput_fleet::confirm::{ConfirmPlan, JointVerdict, NamedPair, name_pairs, read_pairs};
use latput_fleet::pairs::{PAIRS_MOST, render_text};
use latput_linux::confine::UsedFiles;
use latput_model::PairsSummary;
use latput_model::pairs::confirming_plan;
use latput_reach::broker::message::RunPermissions;
use latput_results::ResultsDb;
use latput_trial::results::LabelledSetting;
use latput_trial::{Plan, Results};
use latput_units::text::format_count;

use super::fleet_context;
use crate::commands::proven::proven_setting;
use crate::commands::report::{file_of, load_results, setting_of};
use crate::context::{CliContext, keep_only_files};
use crate::document::fleet::{ConfirmDocument, PairsDocument};
use crate::exit::{CliError, ExitReason};
use crate::output;
use crate::precision::Precision;
use crate::quiet_args::BesideArg;

/// Compare the results of one plan on several pairs of hosts.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput run plan.toml --on pair1.toml -o pair1.db      and the same for pair2 and pair3
  latput fleet pairs pair1.db pair2.db pair3.db

`stable`: every pair proves the setting better than the first setting, and the pairs agree within their
intervals. Only such a setting is recommended. `unstable`: the pairs differ. `worse`: a pair proves it worse,
or short of a limit. `unproven`: a pair does not prove it better. Exit code 1: no setting is recommended. `unstable`: the pairs differ.
`worse`: proven worse, or short of a limit, on a pair. `unproven`: not proven better on each. Exit code 1 where none
is recommended.")]
pub(super) struct Pairs {
    /// A results file of each pair, `FILE` or `FILE#RUN`.
    #[arg(value_name = "RESULTS", required = true, num_args = 2..)]
    files: Vec<String>,
}

/// Measure what a run recommends beside today's setting on three pairs of hosts or more.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput fleet confirm latput-results.db ssh://root@s1,ssh://root@c1 ssh://root@s2,ssh://root@c2 ssh://root@s3,ssh://root@c3
  latput fleet confirm latput-results.db -i inventory.toml --group web
  latput fleet confirm latput-results.db rack1.toml rack2.toml rack3.toml --setting 50us --repetitions 10..30
  latput fleet confirm latput-results.db -i inventory.toml --check    whether the pairs can be measured

inventory.toml:
  schema = 1
  [group.web]
  pairs = [[\"ssh://root@s1\", \"ssh://root@c1\"], [\"ssh://root@s2\", \"ssh://root@c2\"], [\"ssh://root@s3\", \"ssh://root@c3\"]]

The pairs are measured one after the other, each as by `latput run`, with the workloads and the goal of
RESULTS.

`confirmed`: every pair proves the setting better than its own setting of today, and the pairs agree within
their intervals. `unstable`: the pairs differ. `worse`: a pair proves it worse, or short of a limit.
`unproven`: a pair does not prove it better.

Exit code 0 confirmed, 7 worse, 1 unstable or unproven, 6 where pairs are missing. The same command then
resumes with the missing pairs.")]
pub(super) struct Confirm {
    /// The results file of `latput tune` or `latput run`, `FILE` or `FILE#RUN`.
    #[arg(value_name = "RESULTS")]
    results: String,
    /// A pair of hosts, `HOST,HOST`: the system under test, then the one that makes the traffic; or a testbed file. 3 to 64.
    #[arg(value_name = "PAIR", conflicts_with = "inventory")]
    pairs: Vec<String>,
    /// The pairs: a file of groups (.toml), each with `pairs`.
    #[arg(short, long, value_name = "FILE")]
    inventory: Option<PathBuf>,
    /// Only the pairs of this group. May be repeated.
    #[arg(long, value_name = "NAME", requires = "inventory")]
    group: Vec<String>,
    /// A setting other than the recommended one of the results file, by label or a unique part of it.
    #[arg(long, value_name = "SETTING")]
    setting: Option<String>,
    /// The folder of the pairs' results files; created if missing.
    #[arg(short, long, default_value = "latput-pairs", value_name = "FOLDER")]
    output: PathBuf,
    #[command(flatten)]
    precision: Precision,
    #[command(flatten)]
    beside: BesideArg,
    /// Only check whether every pair can be measured, and how long that takes. Nothing is set.
    #[arg(long)]
    check: bool,
    /// Allow changes that take the link of a pair's interface down and up.
    #[arg(long)]
    allow_link_reset: bool,
    /// The static latput to copy to hosts without this version; by default this program.
    #[arg(long, value_name = "FILE")]
    bring: Option<PathBuf>,
}

impl Pairs {
    pub(super) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        if self.files.len() > PAIRS_MOST {
            return Err(CliError::usage(format!("give at most {PAIRS_MOST} results files")));
        }
        let twice =
            self.files.iter().enumerate().find(|(at, file)| self.files[..*at].contains(file));
        if let Some((_, file)) = twice {
            return Err(CliError::usage(format!("{file} is given twice: each pair counts once")));
        }
        keep_only_files(&UsedFiles::new(self.files.iter().map(|name| file_of(name).0), []))?;
        let results =
            self.files.iter().map(|file| load_results(file)).collect::<Result<Vec<_>, _>>()?;
        let summary = PairsSummary::from_results(&results).map_err(CliError::usage)?;
        if self.files.len() == 2 {
            output::print_remark(
                "latput: two pairs say little about a third: measure three if you have them",
            );
        }
        if context.json {
            output::print_json(&PairsDocument::new(&self.files, &summary))?;
        } else {
            output::print_text(&render_text(&self.files, &summary))?;
        }
        Ok(if summary.recommended.is_some() { ExitReason::Done } else { ExitReason::Failed }.into())
    }
}

impl Confirm {
    pub(super) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        let listed = self.inventory.as_ref().map(|path| read_pairs(path, &self.group));
        let words = listed.unwrap_or_else(|| Ok(self.pairs.clone()))?;
        let pairs = name_pairs(&words, self.bring.as_deref(), &self.output)?;
        let (file, _) = file_of(&self.results);
        self.leave_rights(&pairs, file, context)?;
        let confirming = self.load_confirm_plan()?;
        output::print_remark(&format!(
            "latput: setting `{}` of {} beside today's on {}",
            latput_report::make_printable(&confirming.label),
            self.results,
            format_count(pairs.len(), "pair")
        ));
        if !self.check {
            make_folder(&self.output)?;
        }
        let mut runs = confirming.look_at_all(pairs, fleet_context(context));
        if !self.check {
            confirming.measure_all(&mut runs, fleet_context(context));
        }
        let verdict = JointVerdict::from_runs(&runs)?;
        if context.json {
            let document = ConfirmDocument::new(&self.results, &confirming, &runs, &verdict);
            output::print_json(&document)?;
        } else {
            output::print_text(&verdict.render_text(&confirming, &runs))?;
        }
        Ok(ExitReason::from(verdict.ending(&runs)).into())
    }

    /// Gives up the rights of this process before a results file is read. The broker starts latput on these hosts.
    fn leave_rights(
        &self,
        pairs: &[NamedPair],
        results: &Path,
        context: &CliContext,
    ) -> Result<(), CliError> {
        let ways = pairs.iter().flat_map(NamedPair::ways).collect();
        let permitted = RunPermissions { ways, ..RunPermissions::default() };
        // A folder that is not there yet is made by who owns the one around it.
        let outputs: Vec<&Path> = if self.output.exists() {
            pairs.iter().map(|pair| pair.file.as_path()).collect()
        } else {
            vec![&self.output]
        };
        context.leave_rights_to_broker(&permitted, &UsedFiles::new([results], outputs))
    }

    /// Reads what is to be confirmed.
    fn load_confirm_plan(&self) -> Result<ConfirmPlan, CliError> {
        let (path, run) = file_of(&self.results);
        let wrong = |why: String| CliError::usage(format!("{}: {why}", self.results));
        let db = ResultsDb::open(path)?;
        let results = db.load_chosen(run)?;
        if self.setting.is_none() && results.is_imported() {
            return Err(wrong(
                "it was imported from a report, and anybody can have edited it. Check its settings, then name one \
                 with --setting"
                    .to_owned(),
            ));
        }
        let chosen = match &self.setting {
            Some(name) => setting_of(&results, name)?,
            None => proven_setting(&results)?,
        };
        let text = db.plan_text(run)?;
        let kept = Plan::parse("its plan", &text).map_err(|error| wrong(error.to_string()))?;
        let mut plan = confirming_plan(&kept, &results, chosen).map_err(wrong)?;
        self.precision.apply_to_method(&mut plan.method)?;
        self.beside.apply_to_method(&mut plan.method);
        plan.method.allow_link_reset = self.allow_link_reset;
        let labelled = &results.settings[chosen];
        let plan_text = self.plan_text(&text, &results, labelled);
        Ok(ConfirmPlan { label: labelled.label.clone(), plan, plan_text })
    }

    /// The text of the plan, with what is confirmed and the flags: a pair's run is resumed only under exactly the same.
    fn plan_text(&self, text: &str, results: &Results, labelled: &LabelledSetting) -> String {
        let values = labelled.by_role.iter().flat_map(|(role, set)| {
            set.iter().map(|(knob, value)| format!("# {}.{knob}={value}\n", role.name()))
        });
        let goal = results.goal.as_deref().unwrap_or_default().replace(['\n', '\r'], " ");
        let reset = if self.allow_link_reset { "# --allow-link-reset\n" } else { "" };
        format!(
            "{}\n# fleet confirm\n{}# --goal {goal}\n# {} {}\n{reset}{}{}",
            text.trim_end(),
            values.collect::<String>(),
            results.confidence,
            results.half_width,
            self.precision.plan_lines(),
            self.beside.plan_line()
        )
    }
}

fn make_folder(folder: &Path) -> Result<(), CliError> {
    let made =
        fs::create_dir(folder).or_else(|error| if folder.is_dir() { Ok(()) } else { Err(error) });
    made.map_err(|error| {
        CliError::usage(format!(
            "{}: cannot make the folder of the pairs' results files: {error}: name another with -o",
            folder.display()
        ))
    })
}
