//! Waits until a server is ready.

use std::thread;
use std::time::{Duration, Instant};

use latput_protocol::program::{ExitCause, KeptOutput, ReadyCheck, StartRequest};
use latput_units::Nanos;
use regex_lite::RegexBuilder;

use super::running::{self, ProgramState};

/// Interval between looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Most time of one run of a ready command.
const COMMAND_WITHIN: Nanos = Nanos::from_s(10);
/// Bytes kept of a ready command's output.
const COMMAND_KEEP: usize = 1 << 12;
/// Most memory of a compiled expression.
const REGEX_BYTES: usize = 1 << 20;

/// Waits until `server` is ready.
///
/// # Errors
///
/// It has ended, or is not ready within the time; in words that follow the server's name.
pub(super) fn wait_until_ready(
    server: &ProgramState,
    ready: &ReadyCheck,
    within: Nanos,
) -> Result<(), String> {
    let regex = match ready {
        ReadyCheck::Output { regex } => Some(
            RegexBuilder::new(regex)
                .size_limit(REGEX_BYTES)
                .multi_line(true)
                .build()
                .map_err(|error| format!("`ready`: {error}"))?,
        ),
        _ => None,
    };
    let deadline = Instant::now() + within.as_duration();
    let mut last = String::new();
    let mut seen = None;
    loop {
        if server.is_over() {
            return Err("ended before it was ready".to_owned());
        }
        let is_ready = match ready {
            ReadyCheck::Tcp { address, port } => running::is_listening(*address, *port),
            ReadyCheck::Output { .. } => {
                let length = server.output_length();
                let is_new = seen.replace(length) != Some(length);
                let matches = |output: &KeptOutput| {
                    regex.as_ref().is_some_and(|regex| {
                        regex.is_match(&output.head) || regex.is_match(&output.tail)
                    })
                };
                is_new && server.kept_outputs().iter().any(matches)
            }
            ReadyCheck::Command(program) => {
                let start = StartRequest {
                    id: 0,
                    at: None,
                    program: program.clone(),
                    timeout: Some(COMMAND_WITHIN),
                    files: Vec::new(),
                    keep: COMMAND_KEEP,
                    free_port: None,
                    tell_on: None,
                };
                let ended = running::run(&start, &ProgramState::default(), &|_, _| {});
                if let ExitCause::NotStarted { why } = ended.ending {
                    return Err(format!("cannot be asked whether it is ready: {why}"));
                }
                last =
                    format!("; the ready command: {} {}", ended.ending, ended.stderr.last_lines());
                ended.ending == ExitCause::Exited { status: 0 }
            }
        };
        if is_ready {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let what = match ready {
                ReadyCheck::Tcp { address, port } => {
                    format!("accepts no connection on {address} port {port}")
                }
                ReadyCheck::Output { regex } => format!("has not said `{regex}`"),
                ReadyCheck::Command(program) => {
                    format!("is not ready by `{}`", program.words.join(" "))
                }
            };
            return Err(format!("{what} after {within}{last}"));
        }
        thread::sleep(LOOK_EVERY);
    }
}
