//! Blocks on live traffic, on the one host that has it.

use latput_load::Stop;
use latput_trial::live::EndpointAt;
use latput_trial::program::ProgramCommand;
use latput_units::Nanos;

use super::command::failure::{error, failed};
use super::{START_AHEAD, TRIAL_SLACK};
use crate::controller::AgentPool;
use crate::error::Error;
use crate::figure_line::FigureLine;
use crate::live::{LiveBlock, LiveSeen};
use crate::program::message::{Ending, Start};
use crate::protocol::{Answer, Request};
use crate::runner::LiveRunner;

/// Bytes kept of what a command writes that tells figures.
const KEPT: usize = 16 << 10;
/// Time of such a command to tell its first figures.
const FIRST_WITHIN: Nanos = Nanos::from_ms(500);

/// A command that tells figures, and runs.
struct Told {
    line: FigureLine,
    is_new: bool,
    /// How it ended, if it ran before.
    ended: Option<String>,
}

impl LiveRunner for AgentPool {
    fn block(&mut self, mut block: LiveBlock, stop: &Stop) -> Result<LiveSeen, Error> {
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
        let clock = self.clocks(stop)?.into_iter().next().unwrap_or_default();
        block.at = clock.there(latput_load::now() + ahead + clock.round_trip);
        let within = (ahead + block.length()).as_duration() + TRIAL_SLACK;
        let sut = self.sut();
        match sut.call(&Request::Live(Box::new(block)), within, stop)? {
            Answer::Lived(mut seen) => {
                seen.notes.extend(note);
                Ok(*seen)
            }
            other => Err(sut.unexpected(other)),
        }
    }

    fn boot_id(&mut self) -> String {
        self.sut().opened().boot_id.clone()
    }
}

impl AgentPool {
    /// Starts the command that tells the figures, unless it runs.
    fn figures_of(&mut self, command: &ProgramCommand, stop: &Stop) -> Result<Told, Error> {
        let spec = self.sut().spec.clone();
        let programs = self.programs();
        let running = programs.figures.clone();
        let host = programs.on(&spec, stop)?;
        let mut ended = None;
        if let Some((id, line)) = &running {
            if !host.has_ended(*id)? {
                return Ok(Told { line: line.clone(), is_new: false, ended: None });
            }
            ended = host.take_end(*id).map(|ended| {
                format!("endpoint exec:{}; it is started again", failed(command, &ended))
            });
        }
        // The agent hears the same line as before.
        let line = match running {
            Some((_, line)) => line,
            None => FigureLine::generate().map_err(|why| Error::LiveTraffic {
                problem: format!("cannot make a secret: {why}"),
            })?,
        };
        let start = Start {
            id: 0,
            at: None,
            program: command.into(),
            timeout: None,
            files: Vec::new(),
            keep: KEPT,
            free_port: None,
            tell_on: Some(line.clone()),
        };
        let id = host.launch(start)?;
        host.await_start(id, stop)?;
        if let Some(end) = host.end_of(id)?
            && matches!(end.ending, Ending::NotStarted { .. })
        {
            return Err(error(&spec.name, failed(command, end), end));
        }
        programs.figures = Some((id, line.clone()));
        Ok(Told { line, is_new: true, ended })
    }
}
