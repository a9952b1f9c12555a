//! The flag that makes a plan's factors without a file.

use std::fmt::Write as _;

use latput_trial::plan::BUILT_IN;
use latput_trial::{Plan, plan::Factor};

use crate::exit::CliError;

/// Where the built-in plan's factors begin, and its workloads.
const FACTORS: &str = "[factors]\n";
const WORKLOADS: &str = "[[workload]]";

/// Knobs to vary, with their levels.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct FactorArgs {
    /// Vary a knob: `gro=on,off`, `sut.rx-usecs=10us,50us`, or several knobs together
    /// (`gro-flush-timeout+napi-defer-hard-irqs=0us+0,50us+100`). Without `sut.` or `generator.` it is set on both
    /// ends. Separate levels that hold commas by `;`. May be repeated: all combinations are run.
    #[arg(long, value_name = "KNOB=LEVEL,LEVEL")]
    factor: Vec<String>,
}

impl FactorArgs {
    /// Whether there is a factor.
    pub(crate) const fn is_given(&self) -> bool {
        !self.factor.is_empty()
    }

    /// The factors. The error names the flag.
    pub(crate) fn parse_factors(&self) -> Result<Vec<Factor>, CliError> {
        if !self.is_given() {
            return Ok(Vec::new());
        }
        let text =
            format!("schema = 1\n{}[[workload]]\nkind = \"tcp_rr\"\n", self.render_factor_table()?);
        Ok(read(&text)?.factors)
    }

    /// The built-in plan with these factors in the place of its own, and with their names as its name.
    pub(crate) fn render_plan(&self) -> Result<String, CliError> {
        let (Some(from), Some(to)) = (BUILT_IN.find(FACTORS), BUILT_IN.find(WORKLOADS)) else {
            return Err(CliError::usage("the built-in plan has no factors to replace"));
        };
        let names: Vec<String> = self.parse_factors()?.iter().map(Factor::name).collect();
        let name = toml::Value::String(names.join(", "));
        let is_of_built_in = |line: &&str| line.starts_with('#') || line.starts_with("name = ");
        let head: Vec<&str> = BUILT_IN[..from].lines().filter(|it| !is_of_built_in(it)).collect();
        let (head, factors) = (head.join("\n"), self.render_factor_table()?);
        let text = format!("name = {name}\n{head}\n{factors}\n{}", &BUILT_IN[to..]);
        read(&text)?;
        Ok(text)
    }

    /// The table `[factors]` of a plan.
    fn render_factor_table(&self) -> Result<String, CliError> {
        let mut text = FACTORS.to_owned();
        for factor in &self.factor {
            let (name, levels) = factor.split_once('=').ok_or_else(|| {
                let message =
                    format!("--factor `{factor}`: write KNOB=LEVEL,LEVEL, such as `gro=on,off`");
                CliError::usage(message)
            })?;
            let together = name.split('+').count();
            let separator = if levels.contains(';') { ';' } else { ',' };
            let levels = levels.split(separator).map(|level| -> toml::Value {
                let values = if together > 1 { level.split('+').collect() } else { vec![level] };
                values
                    .into_iter()
                    .map(|value: &str| value.trim().to_owned())
                    .collect::<Vec<_>>()
                    .into()
            });
            let levels: toml::Value = levels.collect::<Vec<_>>().into();
            let name = toml::Value::String(name.trim().to_owned());
            let _ = writeln!(text, "{name} = {levels}");
        }
        Ok(text)
    }
}

/// Reads a made plan. An error is of the flag, and has no line.
fn read(text: &str) -> Result<Plan, CliError> {
    Plan::parse("--factor", text)
        .map_err(|error| CliError::usage(format!("--factor: {}", error.problem)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_args(factors: &[&str]) -> FactorArgs {
        FactorArgs { factor: factors.iter().map(|&factor| factor.to_owned()).collect() }
    }

    #[test]
    fn flags_make_the_factors_of_a_plan() {
        let text = make_args(&["gro=on,off", "sut.rx-usecs + sut.rx-frames=10us+0, 50us+8"])
            .render_plan()
            .unwrap();
        let plan = Plan::parse("p", &text).unwrap();
        assert_eq!(plan.combinations(), 4);
        let names: Vec<String> = plan.factors.iter().map(Factor::name).collect();
        assert_eq!(names, ["gro", "sut.rx-usecs + sut.rx-frames"]);
        assert_eq!(plan.name, "gro, sut.rx-usecs + sut.rx-frames");
        let built_in = Plan::parse("p", BUILT_IN).unwrap();
        assert_eq!((plan.workloads, plan.goal), (built_in.workloads, built_in.goal));
        let cpus = make_args(&["rps-cpus=none;0,2;0-3"]).parse_factors().unwrap();
        assert_eq!(cpus[0].levels.len(), 3);
        assert_eq!(make_args(&[]).parse_factors().unwrap(), []);
    }

    #[test]
    fn wrong_factor_is_refused_by_its_flag() {
        for (factor, expected) in [
            ("gro", "write KNOB=LEVEL,LEVEL"),
            ("gro=on,maybe", "--factor: gro: `maybe`"),
            ("groo=on", "groo"),
            ("gro=on,on", "are the same (on)"),
            ("gro-flush-timeout+napi-defer-hard-irqs=0us", "needs 2 values"),
        ] {
            let message = make_args(&[factor]).parse_factors().unwrap_err().message();
            assert!(message.contains(expected), "{factor}: {message}");
        }
    }
}
