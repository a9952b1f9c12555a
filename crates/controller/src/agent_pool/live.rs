//! Blocks on live traffic, on the one host that has it.

use latput_load::Stop;
use latput_protocol::control::{Answer, Request};
use latput_protocol::figure_line::FigureLine;
use latput_protocol::live::{LiveBlock, LiveSeen};
use latput_protocol::program::{ExitCause, StartRequest};
use latput_runner::Error;
use latput_runner::trials::LiveRunner;
use latput_trial::live::EndpointAt;
use latput_trial::program::ProgramCommand;
use latput_units::Nanos;

use super::command::failure::{build_program_error, describe_failure};
use super::{AgentPool, START_AHEAD, TRIAL_SLACK};

/// Bytes kept of what a command writes that tells figures.
const KEPT: usize = 16 << 10;
/// Time of such a command to tell its first figures.
const FIRST_WITHIN: Nanos = Nanos::from_ms(500);

/// A command that tells figures, and runs.
struct FigureCommand {
    line: FigureLine,
    is_new: bool,
    /// How it ended, if it ran before.
    ended: Option<String>,
}

impl LiveRunner for AgentPool {
    fn run_block(&mut self, mut block: LiveBlock, stop: &Stop) -> Result<LiveSeen, Error> {
        let mut note = None;
        let mut ahead = START_AHEAD;
        let endpoint = block.watch.endpoint.as_ref();
        if let Some(EndpointAt::Exec(command)) = endpoint.map(|endpoint| endpoint.at.clone()) {
            let told = self.figures_of(&command, stop)?;
            (block.told_on, note) = (Some(told.line), told.ended);
            if told.is_new {
                ahead = FIRST_WITHIN;
            }
        }
        let clock = self.measure_clock_offsets(stop)?.into_iter().next().unwrap_or_default();
        block.at = clock.remote_time(latput_load::now() + ahead + clock.round_trip);
        let within = (ahead + block.length()).as_duration() + TRIAL_SLACK;
        let sut = self.sut_agent();
        match sut.send_request_within(&Request::Live(Box::new(block)), within, stop)? {
            Answer::Lived(mut seen) => {
                seen.notes.extend(note);
                Ok(*seen)
            }
            other => Err(sut.unexpected_answer(other)),
        }
    }

    fn boot_id(&mut self) -> String {
        self.sut_agent().opened().boot_id.clone()
    }
}

impl AgentPool {
    /// Starts the command that tells the figures, unless it runs.
    fn figures_of(
        &mut self,
        command: &ProgramCommand,
        stop: &Stop,
    ) -> Result<FigureCommand, Error> {
        let spec = self.sut_agent().spec.clone();
        let programs = &mut self.programs;
        let running = programs.figures.clone();
        let host = programs.ensure_host_started(&spec, stop)?;
        let mut ended = None;
        if let Some((id, line)) = &running {
            if !host.has_ended(*id)? {
                return Ok(FigureCommand { line: line.clone(), is_new: false, ended: None });
            }
            ended = host.take_end(*id).map(|ended| {
                format!("endpoint exec:{}; it is started again", describe_failure(command, &ended))
            });
        }
        // The agent hears the same line as before.
        let line = match running {
            Some((_, line)) => line,
            None => FigureLine::generate().map_err(|why| Error::LiveTraffic {
                problem: format!("cannot make a secret: {why}"),
            })?,
        };
        let start = StartRequest {
            id: 0,
            at: None,
            program: command.into(),
            timeout: None,
            files: Vec::new(),
            keep: KEPT,
            free_port: None,
            tell_on: Some(line.clone()),
        };
        let id = host.launch_program(start)?;
        host.await_start(id, stop)?;
        if let Some(end) = host.end_of(id)?
            && matches!(end.ending, ExitCause::NotStarted { .. })
        {
            return Err(build_program_error(&spec.name, describe_failure(command, end), end));
        }
        programs.figures = Some((id, line.clone()));
        Ok(FigureCommand { line, is_new: true, ended })
    }
}
