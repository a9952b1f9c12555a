//! Blocks on live traffic, on the one host that has it.

use latput_load::Stop;

use super::{START_AHEAD, TRIAL_SLACK};
use crate::controller::AgentPool;
use crate::error::Error;
use crate::live::{LiveBlock, LiveSeen};
use crate::protocol::{Answer, Request};
use crate::runner::LiveRunner;

impl LiveRunner for AgentPool {
    fn block(&mut self, mut block: LiveBlock, stop: &Stop) -> Result<LiveSeen, Error> {
        let clock = self.clocks(stop)?.into_iter().next().unwrap_or_default();
        block.at = clock.there(latput_load::now() + START_AHEAD + clock.round_trip);
        let within = block.length().as_duration() + TRIAL_SLACK;
        let sut = self.sut();
        match sut.call(&Request::Live(Box::new(block)), within, stop)? {
            Answer::Lived(seen) => Ok(*seen),
            other => Err(sut.unexpected(other)),
        }
    }

    fn boot_id(&mut self) -> String {
        self.sut().opened().boot_id.clone()
    }
}
