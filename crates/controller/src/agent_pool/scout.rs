//! An agent that only looks at its host: it claims nothing and sets nothing.

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use latput_linux::look::LookTexts;
use latput_load::Stop;
use latput_protocol::control::{Answer, InspectRequest, Request, SCHEMA};
use latput_protocol::host_view::HostView;
use latput_reach::host_spec::HostSpec;
use latput_runner::Error;
use latput_units::Nanos;

use super::agent::{AgentLine, round_trips};
use crate::clock::ClockOffset;

/// After its line is closed an agent that holds nothing has so long to end. One that is still on its way has what it
/// brought to remove.
const END_WITHIN: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// A look of a diagnosis runs ten programs, of which a driver may hold up several for seconds.
const RECORDED_WITHIN: Duration = Duration::from_secs(60);

/// An agent that only looks at its host.
#[derive(Debug)]
pub(crate) struct HostInspector {
    spec: HostSpec,
    line: AgentLine,
}

impl HostInspector {
    /// Starts it; of the host only the way to it must be known.
    pub(crate) fn start(spec: &HostSpec) -> Result<Self, Error> {
        Ok(Self { spec: spec.clone(), line: AgentLine::start(spec)? })
    }

    /// Asks for the host's interfaces; with the ways to addresses, and of one interface the knobs that can be set.
    pub(crate) fn inspect_host(
        &mut self,
        toward: &[IpAddr],
        interface: Option<&str>,
        stop: &Stop,
    ) -> Result<HostView, Error> {
        self.line.queue_request(&Request::Look(InspectRequest {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            toward: toward.to_vec(),
            interface: interface.map(str::to_owned),
        }))?;
        match self.line.receive_answer(self.spec.first_answer_within(), stop)? {
            Answer::Seen(view) => Ok(*view),
            other => Err(self.line.unexpected_answer(other)),
        }
    }

    /// Asks for what a diagnosis reads of the host and this interface; [`Self::receive_record`] waits for it.
    pub(crate) fn queue_record(&mut self, interface: &str) -> Result<(), Error> {
        self.line.queue_request(&Request::Record { interface: interface.to_owned() })
    }

    /// The look that was asked for, and its time by the host's `CLOCK_MONOTONIC`.
    pub(crate) fn receive_record(&mut self, stop: &Stop) -> Result<(Nanos, LookTexts), Error> {
        match self.line.receive_answer(RECORDED_WITHIN, stop)? {
            Answer::Recorded { at, texts } => Ok((at, texts)),
            other => Err(self.line.unexpected_answer(other)),
        }
    }

    /// Its clock against this one's.
    pub(crate) fn measure_clock_offset(&mut self, stop: &Stop) -> Result<ClockOffset, Error> {
        Ok(ClockOffset::from_round_trips(&round_trips(&mut self.line, stop)?).unwrap_or_default())
    }
}

impl Drop for HostInspector {
    fn drop(&mut self) {
        self.line.close();
        let deadline = Instant::now() + END_WITHIN;
        while !self.line.has_ended() && Instant::now() < deadline {
            let _last_words = self.line.hear_out();
            thread::sleep(LOOK_EVERY);
        }
    }
}
