//! The flags that name a benchmark of the user's own as the workload.

use std::collections::BTreeMap;

use latput_trial::figures::{Figures, Parser};
use latput_trial::metric::PreferredDirection;
use latput_trial::plan::Design;
use latput_trial::program::{Program, ProgramCommand, ReadyWhen, ServerProgram, split};
use latput_trial::workload::{COMMAND, COUNT, build_program_workload};
use latput_trial::{Metric, Plan, Workload};

use crate::exit::CliError;

/// How the flags are used, for the help of the commands that have them.
pub(crate) const EXAMPLES: &str = "\
A benchmark of your own (docs/workloads/README.md; `latput` knows the output of wrk, redis-benchmark, pgbench, fio and others):
  --command 'wrk -t2 -c50 -d{duration_s} --latency http://{sut}/'
  --server 'redis-server --bind {sut} --port 6379 --protected-mode no --save \"\"' --ready tcp:6379 \\
      --command 'redis-benchmark -h {sut} -p {port} -t get -n {count} --csv' --count 200000
  --command './mine {sut}' --metric 'rps=/Requests\\/sec:\\s+(\\S+)/'
The words are not read by a shell. To use one, name it: --command 'sh -c \"...\"'.";

/// A benchmark of the user's own.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct CommandArgs {
    /// The workload is this command, on each generator. Placeholders: `{sut}`, `{generator}`,
    /// `{duration_s}`, `{count}`, `{cpus}`, `{port}`.
    #[arg(long, value_name = "COMMAND")]
    command: Option<String>,
    /// The server that it asks, on the system under test.
    #[arg(long, value_name = "COMMAND", requires = "command")]
    server: Option<String>,
    /// Sign that the server is ready: `tcp:PORT`, `output:REGEX` or `command:COMMAND`.
    #[arg(long, value_name = "WHAT", requires = "server")]
    ready: Option<String>,
    /// A figure in its output: NAME=/REGEX/, NAME=json:POINTER or NAME=csv:COLUMN; NAME may have a unit and a direction
    /// (`p99[us,lower]`). May be repeated.
    #[arg(long, value_name = "NAME=PLACE", requires = "command")]
    metric: Vec<String>,
    /// The value of `{count}`.
    #[arg(long, value_name = "NUMBER", requires = "command")]
    count: Option<u64>,
}

impl CommandArgs {
    /// Whether there is a command.
    pub(crate) const fn is_given(&self) -> bool {
        self.command.is_some()
    }

    /// The workload of the flags, with other fields such as `name`; `None` without a command.
    pub(crate) fn build_workload(
        &self,
        fields: &BTreeMap<String, String>,
    ) -> Result<Option<Workload>, CliError> {
        let Some(command) = &self.command else { return Ok(None) };
        let command = split_words("--command", command)?;
        let figures = Figures::of_options(&command, &self.metric)
            .map_err(|error| CliError::usage(format!("--metric: {error}")))?;
        let server = match &self.server {
            None => None,
            Some(server) => {
                let command = ProgramCommand::plain(split_words("--server", server)?);
                let ready = self.ready.as_deref().map(parse_ready).transpose()?;
                Some(ServerProgram { ready, ..ServerProgram::plain(command) })
            }
        };
        let program = Program { figures, server, ..Program::plain(ProgramCommand::plain(command)) };
        let mut fields = fields.clone();
        if let Some(count) = self.count
            && fields.insert(COUNT.name.to_owned(), count.to_string()).is_some()
        {
            return Err(CliError::usage("`count` is given twice"));
        }
        let workload = build_program_workload(&fields, program);
        workload.map(Some).map_err(|error| CliError::usage(format!("--{}: {error}", error.field)))
    }

    /// Puts the command in the place of the plan's workloads. A plan of latput's own gets a goal for it.
    pub(crate) fn replace_workloads(
        &self,
        plan: &mut Plan,
        is_own_plan: bool,
    ) -> Result<(), CliError> {
        let Some(workload) = self.build_workload(&BTreeMap::new())? else { return Ok(()) };
        if is_own_plan {
            plan.goal =
                workload.program.as_ref().and_then(|program| default_goal(&program.figures));
        }
        plan.name = format!("{} with {}", plan.name, workload.name);
        plan.workloads = vec![workload];
        if plan.method.design == Some(Design::Slices) {
            plan.method.design = Some(Design::Blocks);
        }
        Ok(())
    }

    /// A plan's text with the command in the place of its workloads, and with a goal for it.
    pub(crate) fn replace_workloads_in_text(&self, text: String) -> Result<String, CliError> {
        let Some(workload) = self.build_workload(&BTreeMap::new())? else { return Ok(text) };
        let (Some(from), Some(to)) = (text.find("[[workload]]"), text.find("[method]")) else {
            return Ok(text);
        };
        let goal = workload.program.as_ref().and_then(|program| default_goal(&program.figures));
        let goal =
            goal.map_or_else(String::new, |goal| format!("goal = {}", toml::Value::String(goal)));
        let is_goal = |line: &&str| line.starts_with("goal = ");
        let old = text.lines().find(is_goal).unwrap_or_default();
        let head = text[..from].replacen(old, &goal, usize::from(!old.is_empty()));
        Ok(format!("{head}{}\n{}", self.render_workload_table()?, &text[to..]))
    }

    /// The table `[[workload]]` of a plan.
    fn render_workload_table(&self) -> Result<String, CliError> {
        let mut table = toml::Table::new();
        let list = |flag: &str, line: &str| split_words(flag, line).map(toml::Value::from);
        table.insert("kind".to_owned(), KIND.into());
        if let Some(command) = &self.command {
            table.insert("command".to_owned(), list("--command", command)?);
            let words = split_words("--command", command)?;
            let figures = Figures::of_options(&words, &self.metric)
                .map_err(|error| CliError::usage(format!("--metric: {error}")))?;
            let metrics = toml::Value::try_from(&figures).map_err(plan_write_error)?;
            table.insert("metrics".to_owned(), metrics);
        }
        if let Some(count) = self.count {
            let count = i64::try_from(count).map_err(plan_write_error)?;
            table.insert(COUNT.name.to_owned(), count.into());
        }
        if let Some(server) = &self.server {
            let mut of_server = toml::Table::new();
            of_server.insert("command".to_owned(), list("--server", server)?);
            if let Some(ready) = self.ready.as_deref().map(parse_ready).transpose()? {
                let (what, value) = match ready {
                    ReadyWhen::Tcp(port) => ("tcp", i64::from(port).into()),
                    ReadyWhen::Output(regex) => ("output", regex.into()),
                    ReadyWhen::Command(words) => ("command", words.into()),
                };
                let table = toml::Table::from_iter([(what.to_owned(), value)]);
                of_server.insert("ready".to_owned(), table.into());
            }
            table.insert("server".to_owned(), of_server.into());
        }
        let all = toml::Table::from_iter([("workload".to_owned(), vec![table].into())]);
        toml::to_string(&all).map_err(plan_write_error)
    }

    /// Lines of a plan's text that keep the flags, so that another command is another run.
    pub(crate) fn format_plan_comments(&self) -> String {
        let flags = [("command", &self.command), ("server", &self.server), ("ready", &self.ready)];
        let flags = flags.into_iter().filter_map(|(name, value)| Some((name, value.clone()?)));
        let metrics = self.metric.iter().map(|metric| ("metric", metric.clone()));
        let count = self.count.map(|count| ("count", count.to_string()));
        let line = |(name, value): (&str, String)| {
            format!("# --{name} {}\n", value.replace(['\n', '\r'], " "))
        };
        flags.chain(metrics).chain(count).map(line).collect()
    }
}

/// Goal for these figures where the user names none: the first of the user's own, or less latency for the rate of
/// today.
fn default_goal(figures: &Figures) -> Option<String> {
    for metric in figures.metrics() {
        match metric.preferred_direction() {
            PreferredDirection::Higher => return Some(format!("maximize {metric}")),
            PreferredDirection::Lower => return Some(format!("minimize {metric}")),
            PreferredDirection::Neither => {}
        }
    }
    let gives = figures.parser.map_or(&[][..], |parser: Parser| parser.row().gives);
    let has = |metric: Metric| gives.contains(&metric.name());
    let (rate, p99) = (Metric::TransactionsPerS, Metric::LatencyNsP99);
    match (has(rate), has(p99)) {
        (true, true) => Some(format!("minimize {p99} where {rate} >= 0.95 today")),
        (true, false) => Some(format!("maximize {rate}")),
        (false, true) => Some(format!("minimize {p99}")),
        (false, false) => {
            has(Metric::ThroughputBps).then(|| format!("maximize {}", Metric::ThroughputBps))
        }
    }
}

fn plan_write_error(error: impl std::fmt::Display) -> CliError {
    CliError::usage(format!("the command cannot be written into a plan: {error}"))
}

fn split_words(flag: &str, line: &str) -> Result<Vec<String>, CliError> {
    split(line).map_err(|error| CliError::usage(format!("{flag} `{line}`: {error}")))
}

fn parse_ready(text: &str) -> Result<ReadyWhen, CliError> {
    let wrong = || {
        CliError::usage(format!(
            "--ready `{text}`: write `tcp:PORT`, `output:REGEX` or `command:COMMAND`"
        ))
    };
    let (what, value) = text.split_once(':').ok_or_else(wrong)?;
    match what {
        "tcp" => Ok(ReadyWhen::Tcp(value.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?)),
        "output" if !value.is_empty() => Ok(ReadyWhen::Output(value.to_owned())),
        "command" => Ok(ReadyWhen::Command(split_words("--ready", value)?)),
        _ => Err(wrong()),
    }
}

/// The name of the workload's kind.
pub(crate) const KIND: &str = COMMAND;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_plan_has_the_same_command() {
        let text = |word: &str| Some(word.to_owned());
        let args = CommandArgs {
            command: text("./mine -d {duration_s} --to '{sut} x' {count}"),
            server: text("redis-server --save \"\" --port 6379"),
            ready: text("tcp:6379"),
            metric: vec!["rps=/Requests: (\\S+)/".to_owned(), "p99[us,lower]=json:/a/b".to_owned()],
            count: Some(2000),
        };
        let saved =
            args.replace_workloads_in_text(latput_trial::plan::BUILT_IN.to_owned()).unwrap();
        let plan = Plan::parse("saved.toml", &saved).unwrap();
        assert_eq!(plan.workloads, [args.build_workload(&BTreeMap::new()).unwrap().unwrap()]);
        assert_eq!(plan.goal.as_deref(), Some("maximize rps"));
        assert_eq!(plan.combinations(), 5, "the factors and the method stay");
        let plain = CommandArgs::default().replace_workloads_in_text("x".to_owned()).unwrap();
        assert_eq!(plain, "x");
    }
}
