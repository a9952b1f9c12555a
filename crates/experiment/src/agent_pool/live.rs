//! Blocks on live traffic, on the one host that has it.

use std::time::Duration;

use latput_load::Stop;
use latput_trial::live::EndpointAt;
use latput_trial::program::ProgramCommand;

use super::command::failure::{error, failed};
use super::{START_AHEAD, TRIAL_SLACK};
use crate::controller::AgentPool;
use crate::error::Error;
use crate::figure_line::FigureLine;
use crate::live::{LiveBlock, LiveSeen};
use crate::program::message::{Ending, ProgramSpec, Start};
use crate::protocol::{Answer, Request};
use crate::runner::LiveRunner;

/// Bytes kept of what a command writes that tells figures.
const KEPT: usize = 16 << 10;
/// Time of such a command to tell its first figures.
const FIRST_WITHIN: Duration = Duration::from_millis(300);

impl LiveRunner for AgentPool {
    fn block(&mut self, mut block: LiveBlock, stop: &Stop) -> Result<LiveSeen, Error> {
        let mut note = None;
        let endpoint = block.watch.endpoint.as_ref();
        if let Some(EndpointAt::Exec(command)) = endpoint.map(|endpoint| endpoint.at.clone()) {
            let (line, ended) = self.figures_of(&command, stop)?;
            (block.told_on, note) = (Some(line), ended);
        }
        let clock = self.clocks(stop)?.into_iter().next().unwrap_or_default();
        block.at = clock.there(latput_load::now() + START_AHEAD + clock.round_trip);
        let within = block.length().as_duration() + TRIAL_SLACK;
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
    /// Starts the command that tells the figures, unless it runs. Returns the line that it tells them on, and how it ended
    /// if it ran before.
    fn figures_of(
        &mut self,
        command: &ProgramCommand,
        stop: &Stop,
    ) -> Result<(FigureLine, Option<String>), Error> {
        let spec = self.sut().spec.clone();
        let programs = self.programs();
        let running = programs.figures.clone();
        let host = programs.on(&spec, stop)?;
        let mut note = None;
        if let Some((id, line)) = &running {
            if !host.has_ended(*id)? {
                return Ok((line.clone(), None));
            }
            note = host.take_end(*id).map(|ended| {
                format!("endpoint exec:{}; it is started again", failed(command, &ended))
            });
        }
        // The agent hears the same line as before.
        let line = match running {
            Some((_, line)) => line,
            None => FigureLine::generate().map_err(|why| Error::LiveTraffic {
                problem: format!("no secret can be had: {why}"),
            })?,
        };
        let start = Start {
            id: 0,
            at: None,
            program: ProgramSpec {
                words: command.words.clone(),
                environment: command.environment.clone(),
                folder: command.folder.clone(),
                user: command.user.clone(),
                cpus: command.cpus.clone(),
            },
            timeout: None,
            files: Vec::new(),
            keep: KEPT,
            free_port: None,
            tell_on: Some(line.clone()),
        };
        let id = host.launch(start)?;
        host.await_start(id, stop)?;
        std::thread::sleep(FIRST_WITHIN);
        if let Some(ended) = host.end_of(id)?
            && matches!(ended.ending, Ending::NotStarted { .. })
        {
            return Err(error(&spec.name, failed(command, ended), ended));
        }
        programs.figures = Some((id, line.clone()));
        Ok((line, note))
    }
}
