//! The programs of a `command` workload: a benchmark of the user's own, and the server that it asks.
//!
//! A plan names each program by its words. No shell sees them. [`Placeholder`]s in them are replaced for each trial.

use std::collections::BTreeMap;

use latput_units::{CpuSet, Nanos, spelling};
use serde::{Deserialize, Serialize};

use crate::figures::{Figures, Parser};

mod placeholder;
mod words;

pub use self::placeholder::{Placeholder, substitute};
pub use self::words::{SplitError, split};

/// Most time that a server may take until it is ready, where a plan says nothing else.
const READY_WITHIN: Nanos = Nanos::from_s(30);
/// Most words of a command, and most environment variables.
const MOST_WORDS: usize = 1_000;
/// Most bytes of a word.
const MOST_WORD_BYTES: usize = 65_536;

/// The programs of a workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// The benchmark.
    pub command: ProgramCommand,
    /// The hosts that run it.
    #[serde(default)]
    pub on: RunsOn,
    /// The server, on the system under test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerProgram>,
    /// How long the server lives.
    #[serde(default)]
    pub lifetime: Lifetime,
    /// The figures to read in what the benchmark writes.
    #[serde(rename = "metrics", default)]
    pub figures: Figures,
    /// Most time that the benchmark may run beyond the time that it is told to run.
    pub timeout: Nanos,
    /// Run before each trial, where the benchmark runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare: Option<ProgramCommand>,
    /// Run after each trial, where the benchmark runs, also after one that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cleanup: Option<ProgramCommand>,
}

/// One program with its surroundings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramCommand {
    /// The program and its arguments, with placeholders.
    pub words: Vec<String>,
    /// Environment variables beside those of latput, with placeholders.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// The working folder; `None` is latput's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// The user to run as; `None` is latput's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The CPUs to run on; `None` is the host's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSet>,
}

/// The server of a workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerProgram {
    /// Command that runs.
    pub command: ProgramCommand,
    /// Sign that it is ready; `None` means that it is ready at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<ReadyWhen>,
    /// Most time until it is ready.
    pub ready_within: Nanos,
}

impl ServerProgram {
    /// A server that is ready at once.
    pub const fn plain(command: ProgramCommand) -> Self {
        Self { command, ready: None, ready_within: READY_WITHIN }
    }
}

/// Sign that a server is ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ReadyWhen {
    /// It accepts connections on this port of the measured interface.
    Tcp(u16),
    /// Its output matches this regular expression.
    Output(String),
    /// This command ends with exit status 0.
    Command(Vec<String>),
}

/// The hosts that run the benchmark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunsOn {
    /// Each generator.
    #[default]
    Generators,
    /// The first generator.
    Generator,
    /// The host of the controller, where `latput` was started.
    Controller,
}

/// How long a server lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifetime {
    /// From the first trial that needs it to the end of the run.
    #[default]
    Run,
    /// Until the setting changes.
    Setting,
    /// One trial.
    Trial,
}

impl ProgramCommand {
    /// A program in latput's own surroundings.
    pub const fn plain(words: Vec<String>) -> Self {
        Self { words, environment: BTreeMap::new(), folder: None, user: None, cpus: None }
    }

    /// Whether a word has this placeholder.
    pub fn uses(&self, wanted: Placeholder) -> bool {
        let mut uses = false;
        for word in self.words.iter().chain(self.environment.values()) {
            let _refused_before = substitute(word, |found| {
                uses |= found == wanted;
                Ok(String::new())
            });
        }
        uses
    }

    /// Refuses what no host could run.
    fn check(&self, port: Option<u16>, count: Option<u64>) -> Result<(), String> {
        if self.words.first().is_none_or(String::is_empty) {
            return Err("a command has at least one word, the program".to_owned());
        }
        let all = self.words.iter().chain(self.environment.values());
        if self.words.len() > MOST_WORDS || self.environment.len() > MOST_WORDS {
            return Err(format!("a command has more than {MOST_WORDS} words or variables"));
        }
        for word in all {
            if word.len() > MOST_WORD_BYTES || word.contains('\0') {
                return Err("a word of a command is too long or has a NUL".to_owned());
            }
            substitute(word, |found| match found {
                Placeholder::Port if port.is_none() => {
                    Err("`{port}` is the port of a server: give `ready = { tcp = PORT }`"
                        .to_owned())
                }
                Placeholder::Count if count.is_none() => {
                    Err("`{count}` is the workload's count: give `count = N`".to_owned())
                }
                _ => Ok(String::new()),
            })?;
        }
        let is_bad = |name: &String| name.is_empty() || name.contains(['=', '\0']);
        if let Some(name) = self.environment.keys().find(|name| is_bad(name)) {
            return Err(format!("`{name}` cannot be the name of an environment variable"));
        }
        Ok(())
    }

    /// The words as a person would type them.
    pub fn in_words(&self) -> String {
        words::join(&self.words)
    }
}

impl Program {
    /// The benchmark alone, with a minute beyond the time that it is told to run.
    pub fn plain(command: ProgramCommand) -> Self {
        Self {
            command,
            on: RunsOn::default(),
            server: None,
            lifetime: Lifetime::default(),
            figures: Figures::default(),
            timeout: Nanos::from_s(60),
            prepare: None,
            cleanup: None,
        }
    }

    /// The benchmark's file name: `wrk`.
    pub fn name(&self) -> &str {
        let program = self.command.words.first().map_or("", String::as_str);
        program.rsplit('/').next().unwrap_or(program)
    }

    /// Whether the benchmark is told how long to run. Otherwise it ends by itself, and the window with it.
    pub fn runs_by_time(&self) -> bool {
        self.command.uses(Placeholder::DurationS)
    }

    /// Time from the benchmark's start to its first request.
    pub fn quiet_start(&self) -> Nanos {
        self.figures.parser.map_or(Nanos::ZERO, |parser| parser.row().quiet_start)
    }

    /// The port of the server's `ready`.
    pub fn port(&self) -> Option<u16> {
        match self.server.as_ref()?.ready {
            Some(ReadyWhen::Tcp(port)) => Some(port),
            _ => None,
        }
    }

    /// Refuses placeholders that do not exist or have no value, and commands that no host could run.
    ///
    /// # Errors
    ///
    /// The first problem, with the field that has it.
    pub fn check(&self, count: Option<u64>) -> Result<(), (&'static str, String)> {
        let port = self.port();
        let server = self.server.as_ref();
        let commands = [
            ("command", Some(&self.command)),
            ("server", server.map(|server| &server.command)),
            ("prepare", self.prepare.as_ref()),
            ("cleanup", self.cleanup.as_ref()),
        ];
        for (field, command) in commands {
            if let Some(command) = command {
                command.check(port, count).map_err(|problem| (field, problem))?;
            }
        }
        if self.figures.is_empty() {
            let name = self.name();
            let near = spelling::nearest_name(name, Parser::ALL.iter().map(|parser| parser.name()));
            let hint =
                near.map_or_else(String::new, |near| format!("did you mean `{near}`? Else "));
            let problem = format!(
                "latput does not know the output of `{name}`: {hint}say which figures to read in it, by `metrics` in \
                 a plan, or `--metric`"
            );
            return Err(("command", problem));
        }
        match server.and_then(|server| server.ready.as_ref()) {
            Some(ReadyWhen::Tcp(0)) => {
                Err(("server", "`ready`: a port is from 1 to 65535".to_owned()))
            }
            Some(ReadyWhen::Command(words)) => ProgramCommand::plain(words.clone())
                .check(port, count)
                .map_err(|problem| ("server", problem)),
            _ => Ok(()),
        }
    }

    /// Names the programs that would run, where and as whom, in sentences.
    pub fn described(&self) -> Vec<String> {
        let said = |what: &str, host: &str, command: &ProgramCommand| {
            let user = command.user.as_deref().map_or("the user of latput there", |user| user);
            format!("{what} on {host} as {user}: {}", command.in_words())
        };
        let on = match self.on {
            RunsOn::Generators => "each generator",
            RunsOn::Generator => "the first generator",
            RunsOn::Controller => "this host",
        };
        let sut = "the system under test";
        let ready = match self.server.as_ref().and_then(|server| server.ready.as_ref()) {
            Some(ReadyWhen::Command(words)) => Some(ProgramCommand::plain(words.clone())),
            _ => None,
        };
        let server = self.server.as_ref().map(|server| said("runs", sut, &server.command));
        let ready = ready.map(|ready| said("asks whether it is ready", sut, &ready));
        let prepare = self.prepare.as_ref().map(|command| said("prepares", on, command));
        let cleanup = self.cleanup.as_ref().map(|command| said("cleans up", on, command));
        let command = Some(said("runs", on, &self.command));
        [server, ready, prepare, command, cleanup].into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_values_are_refused_by_field() {
        let command = |words: &[&str]| {
            ProgramCommand::plain(words.iter().map(|word| (*word).to_owned()).collect())
        };
        let plain = |words: &[&str]| Program {
            figures: Figures { parser: Parser::of_command(words), ..Figures::default() },
            ..Program::plain(command(words))
        };
        let (field, problem) = plain(&["./our-own-load"]).check(None).unwrap_err();
        assert!(field == "command" && !problem.contains("did you mean"), "{problem}");
        let (_, problem) = plain(&["wrkk"]).check(None).unwrap_err();
        assert!(problem.contains("did you mean `wrk`?"), "{problem}");
        let program = plain(&["wrk", "http://{sut}:{port}/"]);
        assert!(program.check(None).unwrap_err().1.contains("ready"));
        let server = ServerProgram {
            ready: Some(ReadyWhen::Tcp(80)),
            ..ServerProgram::plain(command(&["nginx"]))
        };
        let program = Program { server: Some(server), ..program };
        assert_eq!(program.check(None), Ok(()));
        let program = plain(&["redis-benchmark", "-n", "{count}"]);
        assert_eq!(program.check(None).unwrap_err().0, "command");
        assert_eq!(program.check(Some(9)), Ok(()));
        let program = Program { cleanup: Some(command(&[])), ..program };
        assert_eq!(program.check(Some(9)).unwrap_err().0, "cleanup");
    }
}
