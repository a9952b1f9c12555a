//! The trial of remedies: a finding's setting by turns with today's, with the machinery of `latput tune`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use latput_diagnose::diagnosis::RankedFinding;
use latput_diagnose::finding::{Finding, Harm};
use latput_diagnose::proof::{Proof, Verdict};
use latput_diagnose::rules::RULES;
use latput_diagnose::{Diagnosis, diagnose};
use latput_experiment::Testbed;
use latput_experiment::session::{QuietPolicy, RunOutcome};
use latput_knobs::{Knob, Tier, format_no_interface};
use latput_linux::confine::UsedFiles;
use latput_model::{TriedSetting, TriedVerdict, banned_settings};
use latput_reach::target::Target;
use latput_results::ResultsDb;
use latput_trial::metric::PreferredDirection;
use latput_trial::{Metric, Plan, Results};
use latput_units::Nanos;

use crate::commands::run;
use crate::commands::snapshot::check_window;
use crate::context::CliContext;
use crate::exit::{CliError, ExitReason};
use crate::live_args::WatchedTraffic;
use crate::output;
use crate::targets::{self, HostArgs, NamedTestbed};

use super::hosts::record_targets;
use super::print_diagnosis;

/// The name of the plan in messages.
const PLAN: &str = "--prove";
/// Most findings that are tried.
const MOST_TRIALS: usize = 20;
/// The index of the remedy among the settings of a run: today's is before it.
const REMEDY: usize = 1;
/// Findings whose remedy raises rates, or spares CPU time, and makes no round trip shorter.
const HOLD_BACK_RATES: [&str; 2] = ["tcp-receive-buffer", "tcp-send-buffer"];
const COST_CPU_TIME: [&str; 1] = ["offload-off"];
/// Findings whose losses the interface does not count. TCP sends them again.
const SEEN_BY_TCP: [&str; 1] = ["qdisc-drops"];

/// The flags of a trial.
#[derive(Debug, clap::Args)]
pub(super) struct ProveArgs {
    /// Try the remedies of so many findings, by default of one: the first that are a setting that changes without a link
    /// reset. Or that of the finding of this name. Each takes turns with today's setting under the traffic that is there.
    /// In the end everything is as it was.
    #[arg(long, value_name = "NUMBER|NAME", num_args = 0..=1, default_missing_value = "1")]
    prove: Option<ProvenFindings>,
    /// Longest time for the trial of each finding.
    #[arg(long, value_name = "TIME", default_value = "5min", value_parser = Nanos::from_text_or_seconds, requires = "prove")]
    budget: Nanos,
    /// The results file of the trials; runs are added to it.
    #[arg(
        short,
        long,
        default_value = "latput-results.db",
        value_name = "OUT",
        requires = "prove"
    )]
    output: PathBuf,
    #[command(flatten)]
    hosts: HostArgs,
    // Last, since its heading is that of all that follow.
    #[command(flatten)]
    watched: WatchedTraffic,
}

/// The findings whose remedies are tried.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ProvenFindings {
    /// The first that can be tried.
    First(usize),
    /// The one of this name.
    Named(&'static str),
}

impl ProvenFindings {
    /// Whether a finding is tried behind so many others.
    fn contains(&self, id: &str, chosen: usize) -> bool {
        match self {
            Self::First(most) => chosen < *most,
            Self::Named(name) => id == *name,
        }
    }
}

impl FromStr for ProvenFindings {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(rule) = RULES.iter().find(|rule| rule.id == text) {
            return Ok(Self::Named(rule.id));
        }
        match text.parse() {
            Ok(most @ 1..=MOST_TRIALS) => Ok(Self::First(most)),
            _ => Err(format!(
                "it is a number up to {MOST_TRIALS} or the name of a finding; an interface or a host stands before `--prove`"
            )),
        }
    }
}

/// The traffic of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrialTraffic {
    /// The traffic that is there.
    Live,
    /// latput's own.
    Own,
}

impl ProveArgs {
    /// Whether a trial is asked for.
    pub(super) const fn is_given(&self) -> bool {
        self.prove.is_some()
    }

    /// The latput to take along.
    pub(super) fn bring(&self) -> Option<&Path> {
        self.hosts.bring()
    }

    /// Refuses flags of a trial where none is asked for, and those that exclude each other.
    pub(super) fn check(&self) -> Result<(), CliError> {
        if self.hosts.save().is_some() {
            return Err(CliError::usage("--save is for `latput tune` and `latput hosts`"));
        }
        let is_own = self.hosts.has_peer();
        if !self.is_given() && (is_own || self.watched.is_given()) {
            return Err(CliError::usage("the flags of a trial need --prove"));
        }
        if is_own && self.watched.is_given() {
            return Err(CliError::usage(
                "--peer makes latput's own traffic, the other flags are of the traffic that is there: leave out one of them",
            ));
        }
        Ok(())
    }

    fn traffic(&self) -> TrialTraffic {
        if self.hosts.has_peer() { TrialTraffic::Own } else { TrialTraffic::Live }
    }

    /// Diagnoses the host of this word and tries its first remedies. The rights of this process are given up before.
    pub(super) fn prove_on(
        &self,
        word: &str,
        window: Nanos,
        context: &CliContext,
    ) -> Result<ExitCode, CliError> {
        check_window(window)?;
        if !targets::is_hosts(word) {
            return Err(CliError::usage(format_no_interface(word)));
        }
        let target = Target::parse(word)?;
        let plan = self.plan_without_factors()?;
        ResultsDb::check_path(&self.output)?;
        let place = self.hosts.resolve_testbed(word, &plan)?;
        let files = UsedFiles::new([], [self.output.as_path()]);
        place.give_up_rights(Some(&plan), &files, context)?;
        let recorded = record_targets(&[target], self.bring(), window, context);
        let snapshot = recorded.into_iter().next();
        let snapshot = snapshot.unwrap_or_else(|| Err(CliError::usage("no host is named")))?;
        let mut diagnosis = diagnose(&snapshot);
        // The findings are told even if a trial fails.
        let tried = self.try_findings(&mut diagnosis, place, context);
        let code = print_diagnosis(&diagnosis, word, context)?;
        tried.map(|()| code)
    }

    /// The plan as far as it is known before anything was found.
    fn plan_without_factors(&self) -> Result<Plan, CliError> {
        let kind = match self.traffic() {
            TrialTraffic::Live => "live",
            TrialTraffic::Own => "tcp_rr",
        };
        let text = format!("schema = 1\n[[workload]]\nkind = \"{kind}\"\n");
        let mut plan = Plan::parse(PLAN, &text).map_err(latput_runner::Error::from)?;
        self.finish_plan(&mut plan, &[])?;
        Ok(plan)
    }

    /// Adds what the flags say to a plan.
    fn finish_plan(&self, plan: &mut Plan, allowed: &[Knob]) -> Result<(), CliError> {
        if self.traffic() == TrialTraffic::Live {
            self.watched.apply_to_plan(plan, allowed)?;
        }
        plan.method.budget = Some(self.budget);
        // Whatever else runs on the host is part of what is slow.
        plan.method.beside = true;
        run::check_guards(PLAN, plan)
    }

    /// Tries as many findings as are asked for, in their order.
    fn try_findings(
        &self,
        diagnosis: &mut Diagnosis,
        place: NamedTestbed<'_>,
        context: &CliContext,
    ) -> Result<(), CliError> {
        let wanted = self.prove.as_ref().unwrap_or(&ProvenFindings::First(1));
        let mut chosen = Vec::new();
        for (idx, found) in diagnosis.findings.iter_mut().enumerate() {
            let disruptive = self.watched.disruptive_knobs();
            match find_obstacle(&found.finding, disruptive, self.traffic()) {
                Some(why) => found.untried = Some(why),
                None if wanted.contains(found.finding.id, chosen.len()) => chosen.push(idx),
                None => {}
            }
        }
        if chosen.is_empty() {
            output::print_remark(
                "latput: nothing is tried: no remedy here is a setting that changes without a link reset",
            );
            return Ok(());
        }
        let (testbed, mut results_db) = run::open_both(|| place.open(context), &self.output)?;
        for idx in chosen {
            self.try_finding(&mut diagnosis.findings[idx], &testbed, &mut results_db, context)?;
        }
        Ok(())
    }

    /// Tries a finding's setting, and keeps the verdict in the finding. An error ends all trials.
    fn try_finding(
        &self,
        found: &mut RankedFinding,
        testbed: &Testbed,
        results_db: &mut ResultsDb,
        context: &CliContext,
    ) -> Result<(), CliError> {
        let metric = choose_metric(&found.finding, self.traffic());
        let text = render_plan(&found.finding, metric, self.traffic());
        let mut plan = match Plan::parse(PLAN, &text) {
            Ok(plan) => plan,
            Err(error) => {
                found.untried = Some(error.problem);
                return Ok(());
            }
        };
        self.finish_plan(&mut plan, &knobs_of(&found.finding))?;
        // Other flags are another run.
        let text = format!("{text}# --prove --budget {} {:?}\n", self.budget, self.watched);
        output::print_remark(&format!(
            "latput: trying {} by turns with today's setting, judged by {metric}, at most {}",
            describe_settings(&found.finding),
            self.budget
        ));
        let how = (None, QuietPolicy::Anyhow);
        let ended = match run::run_plan(context, &plan, &text, testbed, results_db, how) {
            Ok(ended) => ended,
            // The host is unchanged, and other settings may be possible.
            Err(error)
                if matches!(error.code, ExitReason::Failed | ExitReason::Usage)
                    && !context.stop.is_raised() =>
            {
                found.untried = Some(error.message());
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        keep_verdict(found, &ended, metric);
        run::conclude_run(&ended, &self.output).map(drop)
    }
}

/// The reason why a finding is only proposed; `None` where it can be tried.
fn find_obstacle(finding: &Finding, disruptive: &[Knob], traffic: TrialTraffic) -> Option<String> {
    if finding.settings.is_empty() {
        return Some("its remedy is no setting of latput".to_owned());
    }
    finding.settings.iter().find_map(|change| {
        let knob = match change.knob.parse::<Knob>() {
            Ok(knob) => knob,
            Err(error) => return Some(error.to_string()),
        };
        let spec = knob.spec();
        if spec.is_for_new_sockets && traffic == TrialTraffic::Live {
            return Some(format!(
                "only connections that are opened afterwards take {knob}: --peer tries it with latput's own"
            ));
        }
        let is_heavy = spec.resets_link || spec.tier >= Tier::Disruptive;
        (is_heavy && !disruptive.contains(&knob)).then(|| {
            format!(
                "a change of {knob} may take the link down: `--disruptive {knob}` tries it where the driver does without"
            )
        })
    })
}

/// The knobs of a finding's settings, all of which exist.
fn knobs_of(finding: &Finding) -> Vec<Knob> {
    finding.settings.iter().filter_map(|change| change.knob.parse::<Knob>().ok()).collect()
}

fn describe_settings(finding: &Finding) -> String {
    let settings = finding.settings.iter().map(|one| format!("{}={}", one.knob, one.value));
    settings.collect::<Vec<_>>().join(" ")
}

/// The figure in which a finding does harm.
fn choose_metric(finding: &Finding, traffic: TrialTraffic) -> Metric {
    let harm = if COST_CPU_TIME.contains(&finding.id) {
        Harm::Cpu
    } else {
        finding.explains.main_harm().unwrap_or(Harm::Latency)
    };
    if HOLD_BACK_RATES.contains(&finding.id) {
        return match traffic {
            TrialTraffic::Live => Metric::TcpThroughputBps,
            TrialTraffic::Own => Metric::ThroughputBps,
        };
    }
    match (harm, traffic) {
        (Harm::Loss, TrialTraffic::Live) if SEEN_BY_TCP.contains(&finding.id) => {
            Metric::TcpRetransmitsPerS
        }
        (Harm::Loss, TrialTraffic::Live) => Metric::SutDropsPerS,
        (Harm::Loss, TrialTraffic::Own) => Metric::RetransmitsPerS,
        (Harm::Latency, TrialTraffic::Live) => Metric::TcpRttNsP50,
        (Harm::Latency, TrialTraffic::Own) => Metric::LatencyNsP50,
        // Of a byte, not of a packet: a remedy may make packets larger.
        (Harm::Cpu, TrialTraffic::Live) => Metric::SutKbCpuNs,
        (Harm::Cpu, TrialTraffic::Own) => Metric::SutServiceDemandUs,
    }
}

/// The goal of a plan that has one figure.
fn describe_goal(metric: Metric) -> String {
    let direction = match metric.preferred_direction() {
        PreferredDirection::Higher => "maximize",
        PreferredDirection::Lower | PreferredDirection::Neither => "minimize",
    };
    format!("{direction} {metric}")
}

/// A plan of today's setting and a finding's.
fn render_plan(finding: &Finding, metric: Metric, traffic: TrialTraffic) -> String {
    let quoted = |text: &str| toml::Value::from(text).to_string();
    let list = |words: Vec<String>| format!("[{}]", words.join(", "));
    let prefix = if traffic == TrialTraffic::Own { "sut." } else { "" };
    let names = finding.settings.iter().map(|change| format!("{prefix}{}", change.knob));
    let name = names.collect::<Vec<_>>().join(" + ");
    let level = list(finding.settings.iter().map(|change| quoted(&change.value)).collect());
    let workload = match traffic {
        TrialTraffic::Live => {
            let knobs = finding.settings.iter().map(|change| quoted(&change.knob)).collect();
            format!("kind = \"live\"\ndisruptive = {}", list(knobs))
        }
        TrialTraffic::Own if metric == Metric::LatencyNsP50 => "kind = \"tcp_rr\"".to_owned(),
        TrialTraffic::Own => "kind = \"tcp_stream\"".to_owned(),
    };
    format!(
        "schema = 1\nname = {}\ngoal = {}\n[factors]\n{} = [{level}]\n[[workload]]\n{workload}\n",
        quoted(finding.id),
        quoted(&describe_goal(metric)),
        quoted(&name)
    )
}

/// Keeps the verdict of a run, also of one that ended early.
fn keep_verdict(found: &mut RankedFinding, ended: &RunOutcome, metric: Metric) {
    let results = &ended.results;
    if results.settings.len() <= REMEDY {
        found.untried = Some("the host has this setting already".to_owned());
        return;
    }
    let tried = TriedSetting::from_results(results, REMEDY, metric);
    let is_banned = banned_settings(results).contains(&REMEDY);
    found.verdict = match tried.verdict {
        _ if is_banned => Verdict::Undecided,
        TriedVerdict::Better => Verdict::Blamed,
        TriedVerdict::NoGain => Verdict::Cleared,
        TriedVerdict::Undecided => Verdict::Undecided,
    };
    let reason = if is_banned {
        Some(describe_ban(results))
    } else if tried.change.is_none() && tried.ratio.is_none() {
        Some(format!("the traffic has no {metric} to compare"))
    } else {
        None
    };
    found.proof = Some(Proof {
        metric: metric.to_string(),
        change_ratio: tried.change.map(|change| change - 1.0),
        interval_ratio: tried.ratio.as_ref().map(|ratio| [ratio.low - 1.0, ratio.high - 1.0]),
        level: tried.confidence,
        pairs: tried.pairs,
        no_gain_over_ratio: tried.no_gain_over.filter(|_| !is_banned),
        decided_after_s: tried.decided_after.map(Nanos::as_secs_f64),
        reason,
    });
}

/// Tells why a setting was banned: the note of the run, if there is one.
fn describe_ban(results: &Results) -> String {
    let note = results.notes.iter().find(|note| note.contains("banned"));
    note.cloned().unwrap_or_else(|| "the setting was banned: a guard of the run broke".to_owned())
}

#[cfg(test)]
mod tests {
    use latput_diagnose::finding::KnobChange;
    use latput_diagnose::{Look, Snapshot};

    use super::*;

    /// The finding of a qdisc that drops, with these settings.
    fn finding(settings: &str) -> Finding {
        let look = |drops: u32| {
            let mut look = Look::default();
            let rows = format!(
                "[{{\"kind\":\"tbf\",\"dev\":\"eth0\",\"root\":true,\"bytes\":{drops}000,\"packets\":{drops}0,\
                 \"drops\":{drops},\"overlimits\":{drops},\"requeues\":0,\"backlog\":0,\"qlen\":0}}]"
            );
            look.insert("tc_-s_-j_qdisc", rows);
            look.insert("sys/class/net/eth0/statistics/tx_packets", format!("{drops}0\n"));
            look
        };
        let snapshot = Snapshot::from_looks(Some("eth0"), look(1), look(9000)).unwrap();
        let found = diagnose(&snapshot).findings.swap_remove(0).finding;
        Finding { settings: KnobChange::parse_all(settings), ..found }
    }

    #[test]
    fn findings_are_chosen_by_number_or_name() {
        let parsed = |text: &str| text.parse::<ProvenFindings>();
        assert_eq!(parsed("2"), Ok(ProvenFindings::First(2)));
        assert_eq!(parsed("offload-off"), Ok(ProvenFindings::Named("offload-off")));
        for wrong in ["0", "21", "eth0", ""] {
            assert!(parsed(wrong).unwrap_err().contains("before `--prove`"), "{wrong}");
        }
        assert!(ProvenFindings::Named("steal").contains("steal", 9));
        assert!(!ProvenFindings::First(2).contains("steal", 2));
    }

    #[test]
    fn plan_has_todays_setting_and_the_remedy() {
        for (settings, traffic, metric) in [
            ("gro=on", TrialTraffic::Live, Metric::SutKbCpuNs),
            ("qdisc=fq_codel", TrialTraffic::Live, Metric::TcpRetransmitsPerS),
            ("adaptive-rx=off rx-usecs=8us", TrialTraffic::Live, Metric::TcpRttNsP50),
            ("smp-affinity=0,2-3", TrialTraffic::Live, Metric::TcpRttNsP50),
            ("rx-usecs=8us", TrialTraffic::Own, Metric::LatencyNsP50),
            ("tso=on", TrialTraffic::Own, Metric::SutServiceDemandUs),
            ("'tcp-rmem=4096 8192 99999'", TrialTraffic::Live, Metric::TcpThroughputBps),
        ] {
            let found = finding(settings);
            let plan = Plan::parse(PLAN, &render_plan(&found, metric, traffic)).unwrap();
            assert_eq!(plan.combinations(), 1, "{settings}");
            assert_eq!(plan.goal, Some(describe_goal(metric)));
            assert_eq!(plan.live().is_some(), traffic == TrialTraffic::Live);
            let targets = &plan.factors[0].targets;
            assert_eq!(targets.len(), found.settings.len(), "{settings}");
        }
    }

    #[test]
    fn link_resets_and_advice_are_only_proposed() {
        let (none, ring): (&[Knob], &[Knob]) = (&[], &[Knob::RxRing]);
        for (settings, disruptive, told) in [
            ("", none, Some("no setting of latput")),
            ("gro=on", none, None),
            ("qdisc=fq_codel", none, None),
            ("rx-ring=4096", none, Some("--disruptive rx-ring")),
            ("rx-ring=4096", ring, None),
            ("lro=off", none, Some("--disruptive lro")),
            ("mtu=9000", none, Some("may take the link down")),
            ("no-knob=1", none, Some("no-knob")),
            ("'tcp-rmem=1 2 3'", none, Some("opened afterwards")),
        ] {
            let obstacle = find_obstacle(&finding(settings), disruptive, TrialTraffic::Live);
            assert_eq!(obstacle.is_some(), told.is_some(), "{settings}: {obstacle:?}");
            let said = obstacle.unwrap_or_default();
            assert!(said.contains(told.unwrap_or_default()), "{settings}: {said}");
        }
        let new_sockets = finding("'tcp-rmem=1 2 3'");
        assert_eq!(find_obstacle(&new_sockets, none, TrialTraffic::Own), None);
    }

    #[test]
    fn figure_is_that_of_the_harm() {
        let mut found = finding("qdisc=fq_codel");
        let live = |found: &Finding| choose_metric(found, TrialTraffic::Live);
        assert_eq!((found.id, live(&found)), ("qdisc-drops", Metric::TcpRetransmitsPerS));
        found.id = "ring-too-small";
        assert_eq!(live(&found), Metric::SutDropsPerS);
        found.explains = latput_diagnose::finding::Explained::default();
        assert_eq!(live(&found), Metric::TcpRttNsP50);
        let cpu = found.explaining_cpu(0.4);
        assert_eq!(live(&cpu), Metric::SutKbCpuNs);
        assert_eq!(choose_metric(&cpu, TrialTraffic::Own), Metric::SutServiceDemandUs);
        found = finding("tso=on");
        for (id, metric) in
            [("offload-off", Metric::SutKbCpuNs), ("tcp-send-buffer", Metric::TcpThroughputBps)]
        {
            found.id = id;
            assert_eq!(live(&found), metric);
        }
    }
}
