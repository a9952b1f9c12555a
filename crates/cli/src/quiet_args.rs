//! The flags that say whether a run needs quiet hosts to begin.

use latput_experiment::session::Quiet;
use latput_trial::Plan;
use latput_units::Nanos;

/// Answer to other work that would spoil the run.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct QuietArgs {
    /// Wait up to this time, such as `2min`, until other work takes at most a fifth of a CPU on each host. Without it
    /// a run with a goal is refused on busier hosts.
    #[arg(long, value_name = "TIME", value_parser = Nanos::from_text_or_seconds)]
    quiet_within: Option<Nanos>,
    /// Start even if the hosts are busy.
    #[arg(long, conflicts_with = "quiet_within")]
    as_it_is: bool,
}

impl QuietArgs {
    /// Whether this plan needs quiet hosts: those whose answer is acted on, unless other work is part of the case.
    pub(crate) fn of(self, plan: &Plan) -> Quiet {
        match self.quiet_within {
            Some(within) => Quiet::Within(within),
            None if self.as_it_is || plan.method.beside || plan.goal.is_none() => Quiet::Anyhow,
            None => Quiet::Within(Nanos::ZERO),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_with_a_goal_needs_quiet_unless_told_otherwise() {
        let goal = "goal = \"latency\"\n";
        for (args, text, method, quiet) in [
            (QuietArgs::default(), goal, "", Quiet::Within(Nanos::ZERO)),
            (QuietArgs::default(), "", "", Quiet::Anyhow),
            (QuietArgs::default(), goal, "beside = true", Quiet::Anyhow),
            (QuietArgs { as_it_is: true, ..QuietArgs::default() }, goal, "", Quiet::Anyhow),
            (
                QuietArgs { quiet_within: Some(Nanos::from_s(9)), ..QuietArgs::default() },
                "",
                "",
                Quiet::Within(Nanos::from_s(9)),
            ),
        ] {
            let text =
                format!("schema = 1\n{text}[[workload]]\nkind = \"tcp_rr\"\n[method]\n{method}\n");
            assert_eq!(args.of(&Plan::parse("p.toml", &text).unwrap()), quiet, "{text}");
        }
    }
}
