//! The server of a `command` workload: started under the setting, waited for, and shared by trials.

use std::net::IpAddr;

use latput_protocol::program::{ExitCause, ReadyCheck, StartRequest};
use latput_reach::host_spec::HostSpec;
use latput_runner::Error;
use latput_runner::trials::TrialProgress;
use latput_trial::program::{Lifetime, ProgramCommand, ReadyWhen, ServerProgram};
use latput_units::CpuSet;

use super::failure::{describe_failure, last_words};
use super::{BenchmarkHost, CommandTrial, KEPT_BESIDE, report_containment};
use crate::agent_pool::programs::{LiveServer, ProgramHosts};
use crate::agent_pool::{ANSWER_WITHIN, AgentPool};

impl CommandTrial<'_> {
    /// Starts the server, unless it lives from before.
    pub(super) fn start_server(
        &self,
        pool: &mut AgentPool,
        places: &[BenchmarkHost],
        progress: &mut dyn TrialProgress,
    ) -> Result<(), Error> {
        let Some(server) = &self.program.server else { return Ok(()) };
        let label = &self.trial.set.label;
        pool.programs
            .end_servers(|live| live.lifetime == Lifetime::Run || live.setting == *label)?;
        let (spec, cpus) = (pool.sut_agent().spec.clone(), pool.sut_agent().opened().cpus.clone());
        let programs = &mut pool.programs;
        programs.ensure_host_started(&spec, self.stop)?;
        let is_same =
            |live: &LiveServer| live.server == *server && live.lifetime == self.program.lifetime;
        if let Some(at) = programs.servers.iter().position(is_same) {
            let LiveServer { id, .. } = programs.servers[at];
            if !programs.host(&spec.name).has_ended(id)? {
                return Ok(());
            }
            programs.servers.remove(at);
            let ended = programs.host(&spec.name).take_end(id);
            let how = ended.map_or_else(
                || format!("`{}` has ended", server.command.in_words()),
                |ended| describe_failure(&server.command, &ended),
            );
            progress.report_remark(&format!(
                "latput: {}: server {how}; it is started again",
                spec.name
            ));
        }
        let address = places.first().map_or(self.sut, |place| place.address);
        let start = StartRequest {
            id: 0,
            at: None,
            program: self.build_program_spec(&server.command, address, Some(&cpus))?,
            timeout: None,
            files: Vec::new(),
            keep: KEPT_BESIDE,
            free_port: self.program.port().map(|port| (self.sut, port)),
            tell_on: None,
        };
        let id = programs.host(&spec.name).launch_program(start)?;
        programs.servers.push(LiveServer {
            server: server.clone(),
            lifetime: self.program.lifetime,
            setting: label.clone(),
            host: spec.name.clone(),
            id,
        });
        self.await_ready(programs, &spec, server, (id, address), &cpus)?;
        report_containment(programs, &spec.name, progress);
        Ok(())
    }

    /// Waits until the server is ready.
    fn await_ready(
        &self,
        programs: &mut ProgramHosts,
        spec: &HostSpec,
        server: &ServerProgram,
        (id, generator): (u32, IpAddr),
        cpus: &CpuSet,
    ) -> Result<(), Error> {
        let host = programs.host(&spec.name);
        host.await_start(id, self.stop)?;
        let ready = match &server.ready {
            None => None,
            Some(ReadyWhen::Tcp(port)) => Some(ReadyCheck::Tcp { address: self.sut, port: *port }),
            Some(ReadyWhen::Output(regex)) => Some(ReadyCheck::Output { regex: regex.clone() }),
            Some(ReadyWhen::Command(words)) => {
                let command = ProgramCommand { words: words.clone(), ..server.command.clone() };
                Some(ReadyCheck::Command(self.build_program_spec(
                    &command,
                    generator,
                    Some(cpus),
                )?))
            }
        };
        let is_ready = match ready {
            Some(ready) => host.await_ready(id, ready, server.ready_within, self.stop)?,
            None => Ok(()),
        };
        let Err(why) = is_ready else { return Ok(()) };
        if !host.has_ended(id)? {
            host.stop_program(id)?;
        }
        let ended = host.await_end(id, ANSWER_WITHIN, self.stop)?;
        programs.servers.retain(|live| live.id != id || live.host != spec.name);
        let problem = match ended.ending {
            ExitCause::Told => {
                format!("server `{}` {why}{}", server.command.in_words(), last_words(&ended))
            }
            _ => format!("server {}", describe_failure(&server.command, &ended)),
        };
        Err(Error::Program { host: spec.name.clone(), problem, is_transient: false })
    }
}
