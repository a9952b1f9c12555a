//! The flags on other work of the hosts: whether a run needs quiet hosts to begin, and whether that work is part of the case.

use latput_experiment::session::QuietPolicy;
use latput_trial::Plan;
use latput_trial::plan::Method;
use latput_units::Nanos;

/// Answer to other work of the hosts.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct QuietArgs {
    /// Wait up to this time, such as `2min`, until other work takes at most a fifth of a CPU on each host. Without it
    /// a run with a goal is refused on busier hosts.
    #[arg(long, value_name = "TIME", value_parser = Nanos::from_text_or_seconds)]
    quiet_within: Option<Nanos>,
    /// Start even if the hosts are busy.
    #[arg(long, conflicts_with = "quiet_within")]
    as_it_is: bool,
    #[command(flatten)]
    pub(crate) beside: BesideArg,
}

/// Whether other work is part of the case.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct BesideArg {
    /// The hosts' other work is part of the case: it makes no trial unfit, and the answer says what it holds beside.
    #[arg(long)]
    beside: bool,
}

impl BesideArg {
    /// Lets other work be part of a plan's case. To be called before [`QuietArgs::for_plan`].
    pub(crate) const fn apply_to_method(self, method: &mut Method) {
        method.beside |= self.beside;
    }

    /// The flag as a line of a plan's text, because a run is resumed only under exactly the same one.
    pub(crate) const fn plan_line(self) -> &'static str {
        if self.beside { "# --beside\n" } else { "" }
    }
}

impl QuietArgs {
    /// Whether this plan needs quiet hosts: those whose answer is acted on, unless other work is part of the case.
    pub(crate) fn for_plan(self, plan: &Plan) -> QuietPolicy {
        match self.quiet_within {
            Some(within) => QuietPolicy::Within(within),
            None if self.as_it_is || plan.method.beside || plan.goal.is_none() => {
                QuietPolicy::Anyhow
            }
            None => QuietPolicy::Within(Nanos::ZERO),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_with_goal_needs_quiet_by_default() {
        let goal = "goal = \"latency\"\n";
        for (args, text, method, quiet) in [
            (QuietArgs::default(), goal, "", QuietPolicy::Within(Nanos::ZERO)),
            (QuietArgs::default(), "", "", QuietPolicy::Anyhow),
            (QuietArgs::default(), goal, "beside = true", QuietPolicy::Anyhow),
            (QuietArgs { as_it_is: true, ..QuietArgs::default() }, goal, "", QuietPolicy::Anyhow),
            (
                QuietArgs { quiet_within: Some(Nanos::from_s(9)), ..QuietArgs::default() },
                "",
                "",
                QuietPolicy::Within(Nanos::from_s(9)),
            ),
        ] {
            let text =
                format!("schema = 1\n{text}[[workload]]\nkind = \"tcp_rr\"\n[method]\n{method}\n");
            assert_eq!(args.for_plan(&Plan::parse("p.toml", &text).unwrap()), quiet, "{text}");
        }
    }

    #[test]
    fn beside_flag_includes_other_work() {
        let text = "schema = 1\ngoal = \"latency\"\n[[workload]]\nkind = \"tcp_rr\"\n";
        for (beside, quiet, line) in [
            (false, QuietPolicy::Within(Nanos::ZERO), ""),
            (true, QuietPolicy::Anyhow, "# --beside\n"),
        ] {
            let mut plan = Plan::parse("p.toml", text).unwrap();
            let args = BesideArg { beside };
            args.apply_to_method(&mut plan.method);
            assert_eq!((plan.method.beside, QuietArgs::default().for_plan(&plan)), (beside, quiet));
            assert_eq!(args.plan_line(), line);
        }
    }
}
