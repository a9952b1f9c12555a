//! The fields of a workload that name its programs.

use std::collections::BTreeMap;

use latput_units::{CpuSet, Nanos};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::{Spanned, Value as Toml};

use super::time_of;
use crate::figures::{Figures, Parser};
use crate::program::{Lifetime, Program, ProgramCommand, ReadyWhen, RunsOn, ServerProgram, split};
use crate::workload::{COMMAND, FieldError};

/// The fields that only a `command` workload has.
pub(super) const FIELDS: &[&str] = &[
    "command",
    "on",
    "server",
    "lifetime",
    "metrics",
    "timeout",
    "prepare",
    "cleanup",
    "environment",
    "folder",
    "user",
    "cpus",
];

/// A command: a list of words, or one text that is split as a shell does.
#[derive(Deserialize)]
#[serde(untagged)]
enum CommandWords {
    Text(String),
    List(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerTable {
    command: CommandWords,
    ready: Option<ReadyTable>,
    ready_within: Option<Toml>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    folder: Option<String>,
    user: Option<String>,
    cpus: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum ReadyTable {
    Tcp(u16),
    Output(String),
    Command(CommandWords),
}

/// The programs of a workload's table; `None` for any other kind.
pub(super) fn parse_table(
    table: &BTreeMap<String, Spanned<Toml>>,
) -> Result<Option<Program>, FieldError> {
    let kind = table.get("kind").and_then(|kind| kind.get_ref().as_str());
    if kind != Some(COMMAND) || !table.contains_key("command") {
        return Ok(None);
    }
    let field =
        |name: &'static str| TableField { name, value: table.get(name).map(Spanned::get_ref) };
    let main = ProgramCommand {
        words: field("command").words()?.unwrap_or_default(),
        environment: field("environment").read()?.unwrap_or_default(),
        folder: field("folder").read()?,
        user: field("user").read()?,
        cpus: cpus("cpus", field("cpus").read()?)?,
    };
    // Commands around the benchmark take its surroundings.
    let beside =
        |words: Option<Vec<String>>| words.map(|words| ProgramCommand { words, ..main.clone() });
    let (prepare, cleanup) = (beside(field("prepare").words()?), beside(field("cleanup").words()?));
    let mut figures: Figures = field("metrics").read()?.unwrap_or_default();
    if figures.is_empty() {
        figures.parser = Parser::of_command(&main.words);
    }
    let plain = Program { figures, ..Program::plain(main) };
    let timeout = match field("timeout").value {
        Some(value) => time("timeout", value)?,
        None => plain.timeout,
    };
    let server = field("server").read::<ServerTable>()?.map(server).transpose()?;
    let on: Option<RunsOn> = field("on").read()?;
    let lifetime: Option<Lifetime> = field("lifetime").read()?;
    Ok(Some(Program {
        on: on.unwrap_or_default(),
        server,
        lifetime: lifetime.unwrap_or_default(),
        timeout,
        prepare,
        cleanup,
        ..plain
    }))
}

fn server(table: ServerTable) -> Result<ServerProgram, FieldError> {
    let command = ProgramCommand {
        words: words("server", table.command)?,
        environment: table.environment,
        folder: table.folder,
        user: table.user,
        cpus: cpus("server", table.cpus)?,
    };
    let ready = match table.ready {
        None => None,
        Some(ReadyTable::Tcp(port)) => Some(ReadyWhen::Tcp(port)),
        Some(ReadyTable::Output(regex)) => Some(ReadyWhen::Output(regex)),
        Some(ReadyTable::Command(list)) => Some(ReadyWhen::Command(words("server", list)?)),
    };
    let plain = ServerProgram::plain(command);
    let ready_within = match &table.ready_within {
        Some(value) => time("server", value)?,
        None => plain.ready_within,
    };
    Ok(ServerProgram { ready, ready_within, ..plain })
}

/// One field of the table.
pub(super) struct TableField<'a> {
    pub(super) name: &'static str,
    pub(super) value: Option<&'a Toml>,
}

impl TableField<'_> {
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<Option<T>, FieldError> {
        let Some(value) = self.value else { return Ok(None) };
        let read = value.clone().try_into::<T>();
        read.map(Some).map_err(|problem| error(self.name, problem.message()))
    }

    fn words(&self) -> Result<Option<Vec<String>>, FieldError> {
        self.read::<CommandWords>()?.map(|list| words(self.name, list)).transpose()
    }
}

fn words(field: &str, words: CommandWords) -> Result<Vec<String>, FieldError> {
    match words {
        CommandWords::List(words) => Ok(words),
        CommandWords::Text(text) => {
            split(&text).map_err(|problem| error(field, problem.to_string()))
        }
    }
}

fn cpus(field: &str, text: Option<String>) -> Result<Option<CpuSet>, FieldError> {
    let Some(text) = text else { return Ok(None) };
    let cpus = text.parse::<CpuSet>().ok().filter(|cpus| !cpus.is_empty());
    cpus.map(Some)
        .ok_or_else(|| error(field, format!("must be CPUs such as `0-3,8`, not `{text}`")))
}

fn time(field: &str, value: &Toml) -> Result<Nanos, FieldError> {
    let time = time_of(value).map_err(|problem| error(field, problem))?;
    if (Nanos::from_ms(1)..=Nanos::from_s(86_400)).contains(&time) {
        return Ok(time);
    }
    Err(error(field, "must be from 1ms to one day".to_owned()))
}

fn error(field: &str, problem: impl Into<String>) -> FieldError {
    FieldError { field: field.to_owned(), problem: format!("`{field}`: {}", problem.into()) }
}

#[cfg(test)]
mod tests {
    use crate::plan::Plan;
    use crate::workload::Traffic;

    fn parsed(workload: &str) -> Result<Plan, String> {
        let text = format!("schema = 1\n[[workload]]\nkind = \"command\"\n{workload}");
        Plan::parse("plan.toml", &text).map_err(|error| error.to_string())
    }

    #[test]
    fn plan_names_a_server_and_a_benchmark() {
        let plan = parsed(
            "name = \"redis get\"\n\
             server = { command = [\"redis-server\", \"--port\", \"6379\", \"--save\", \"\"], ready = { tcp = 6379 }, user = \"nobody\" }\n\
             command = \"redis-benchmark -h {sut} -p {port} -n {count} --csv\"\n\
             count = [1000, 2000]\nlifetime = \"setting\"\non = \"generator\"\ntimeout = \"5s\"\n\
             environment = { LC_ALL = \"C\" }\nprepare = [\"true\"]\n",
        );
        let error = parsed("name = \"x\"\ncommand = \"ping {count}\"\ncount = [1, 2]").unwrap_err();
        assert!(error.contains("two workloads are `x`"), "{error}");
        let error = plan.unwrap_err();
        assert!(error.contains("two workloads are `redis get`"), "{error}");
        let plan =
            parsed("command = \"/usr/bin/redis-benchmark -n {count}\"\ncount = [1000, 2000]")
                .unwrap();
        let names: Vec<&str> = plan.workloads.iter().map(|load| load.name.as_str()).collect();
        assert_eq!(names, ["redis-benchmark count=1000", "redis-benchmark count=2000"]);
        assert_eq!(plan.workloads[0].traffic, Traffic::Command);
        assert!(!plan.workloads[0].program.as_ref().unwrap().runs_by_time());
    }

    #[test]
    fn stored_workload_keeps_its_programs() {
        let plan = parsed(
            "command = [\"wrk\", \"-d{duration_s}\"]\nserver = { command = \"nginx -g 'daemon off;'\", ready = { output = \"up\" } }",
        )
        .unwrap();
        let stored = serde_json::to_string(&plan.workloads[0]).unwrap();
        let read: crate::Workload = serde_json::from_str(&stored).unwrap();
        assert_eq!(read, plan.workloads[0]);
        let server = read.program.unwrap().server.unwrap();
        assert_eq!(server.command.words, ["nginx", "-g", "daemon off;"]);
    }

    #[test]
    fn impossible_fields_are_refused_by_name() {
        for (workload, expected) in [
            ("", "no `command`"),
            ("command = []", "at least one word"),
            ("command = \"ping | b\"", "sh -c"),
            ("command = \"wrk {durations}\"", "did you mean `{duration_s}`"),
            ("command = \"wrk {port}\"", "give `ready"),
            ("command = \"ping\"\nserver = { command = \"b\", redy = 1 }", "redy"),
            (
                "command = \"ping\"\nserver = { command = \"b\", ready = { tcp = 99999 } }",
                "`server`",
            ),
            ("command = \"ping\"\nlifetime = \"week\"", "`lifetime`"),
            ("command = \"ping\"\non = \"moon\"", "`on`"),
            ("command = \"ping\"\ntimeout = \"0s\"", "1ms"),
            ("command = \"ping\"\ncpus = \"x\"", "must be CPUs"),
            ("command = \"ping\"\nburst = 3", "no field `burst`"),
            ("command = \"ping\"\nprobe_hz = 10", "{duration_s}"),
        ] {
            let error = parsed(workload).unwrap_err();
            assert!(error.contains(expected), "{workload}: {error}");
        }
        let error =
            Plan::parse("p", "schema = 1\n[[workload]]\nkind = \"tcp_rr\"\ncommand = \"ping\"")
                .unwrap_err();
        assert!(error.to_string().contains("`command`"), "{error}");
    }
}
