//! The programs of a testbed: the processes that run them, by host, and the servers that live on between trials.

use std::collections::BTreeMap;

use latput_load::Stop;
use latput_protocol::figure_line::FigureLine;
use latput_reach::host_spec::HostSpec;
use latput_runner::Error;
use latput_trial::program::{Lifetime, ServerProgram};

use super::program_host::ProgramHost;

/// A server that was started.
#[derive(Debug)]
pub(crate) struct LiveServer {
    /// The program.
    pub(crate) server: ServerProgram,
    pub(crate) lifetime: Lifetime,
    /// Label of the setting that it was started under.
    pub(crate) setting: String,
    /// Name of its host.
    pub(crate) host: String,
    /// Its number there.
    pub(crate) id: u32,
}

/// The processes that run programs. Dropping it ends every program.
#[derive(Debug, Default)]
pub(crate) struct ProgramHosts {
    hosts: BTreeMap<String, ProgramHost>,
    pub(crate) servers: Vec<LiveServer>,
    /// The program that tells the figures of live traffic, by its number.
    pub(crate) figures: Option<(u32, FigureLine)>,
    /// Whether it was said that programs are not contained.
    pub(crate) is_told: bool,
}

impl ProgramHosts {
    /// The process that runs programs on a host; it is started if there is none yet.
    pub(crate) fn ensure_host_started(
        &mut self,
        spec: &HostSpec,
        stop: &Stop,
    ) -> Result<&mut ProgramHost, Error> {
        if !self.hosts.contains_key(&spec.name) {
            self.hosts.insert(spec.name.clone(), ProgramHost::start(spec, stop)?);
        }
        Ok(self.host(&spec.name))
    }

    /// The process of a host that was started before.
    pub(crate) fn host(&mut self, name: &str) -> &mut ProgramHost {
        self.hosts.get_mut(name).expect("it was started before")
    }

    /// Ends the servers that are not to live on.
    pub(crate) fn end_servers(
        &mut self,
        lives_on: impl Fn(&LiveServer) -> bool,
    ) -> Result<(), Error> {
        let (kept, over): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.servers).into_iter().partition(|server| lives_on(server));
        self.servers = kept;
        for LiveServer { host, id, .. } in over {
            self.host(&host).end_and_forget(id)?;
        }
        Ok(())
    }

    /// Closes every line at once, so that the hosts end their programs in parallel.
    pub(super) fn close(&mut self) {
        self.hosts.values_mut().for_each(ProgramHost::close);
    }
}
