//! The `vm` testbed: trials on the two hosts of a QEMU guest, which exists for as long as they run.

use std::collections::BTreeSet;

use latput_load::Stop;
use latput_trial::observation::Role;
use latput_trial::overrun::ReceiveSide;
use latput_trial::plan::Method;
use latput_trial::results::HostFacts;
use latput_units::{CpuId, CpuSet, Nanos};
use latput_vm::{Guest, GuestSpec, HOSTS, PROGRAM};

use crate::controller::Crew;
use crate::error::Error;
use crate::runner::{News, Trial, TrialRunner};
use crate::testbed::HostSpec;

/// Agents in a guest.
#[derive(Debug)]
pub(crate) struct Emulated {
    // Before the guest, so that agents end in order where they still can.
    crew: Crew,
    guest: Guest,
    notes: Vec<String>,
}

impl Emulated {
    /// Boots the guest and starts an agent on each of its hosts. `program` is this latput.
    pub(crate) fn start(
        spec: GuestSpec,
        program: &str,
        to_set: &BTreeSet<Role>,
        interval: Option<Nanos>,
        stop: &Stop,
    ) -> Result<Self, Error> {
        let failed = |error: latput_vm::Error| Error::Guest {
            testbed: format!("vm:{spec}"),
            problem: error.to_string(),
        };
        let guest = match Guest::start(spec, &|| stop.is_raised()) {
            Err(_) if stop.is_raised() => return Err(Error::Interrupted),
            other => other.map_err(failed)?,
        };
        let notes = notes(&guest);
        let crew = Crew::start(&hosts(&guest, program), to_set, stop)?.telling_every(interval);
        Ok(Self { crew, guest, notes })
    }

    /// An agent's line breaks when the guest ends: that is what is told then.
    fn explained(&mut self, error: Error) -> Error {
        if !matches!(error, Error::Agent { .. }) || !self.guest.is_ending() {
            return error;
        }
        Error::Guest {
            testbed: format!("vm:{}", self.guest.spec()),
            problem: format!(
                "the guest ended in the middle of a trial; its console ends with: {}",
                self.guest.console()
            ),
        }
    }
}

/// The hosts of a guest, the system under test first.
fn hosts(guest: &Guest, program: &str) -> Vec<HostSpec> {
    let folder = guest.folder().display().to_string();
    let hosts = HOSTS.iter().zip([Role::Sut, Role::Generator]).map(|(host, role)| {
        let attach = [program, "vm", "attach", &folder, "--"].map(str::to_owned);
        let cpus: CpuSet = [CpuId(host.cpu)].into_iter().collect();
        HostSpec {
            name: host.name.to_owned(),
            role,
            via: [attach.to_vec(), host.exec_words()].concat(),
            program: PROGRAM.to_owned(),
            interface: host.interface.to_owned(),
            address: host.address,
            cpus: Some(cpus),
            // Needs the kernel's netdev family, which Debian 12's does not have.
            binds_napi_threads: false,
        }
    });
    hosts.collect()
}

/// What a reader of the figures must know of the guest.
fn notes(guest: &Guest) -> Vec<String> {
    let mut notes = vec![format!(
        "{}: its CPUs and cards are emulated, so its figures compare settings and say nothing of the \
         speed of hardware",
        guest.description()
    )];
    match guest.run(&[PROGRAM, "vm", "probe"]) {
        Ok(output) if output.is_success() => {
            notes.extend(output.text().lines().map(str::to_owned));
        }
        Ok(output) => notes.push(format!("emulation not probed: {}", output.error_text().trim())),
        Err(error) => notes.push(format!("emulation not probed: {error}")),
    }
    notes
}

impl TrialRunner for Emulated {
    fn hosts(&self) -> Vec<HostFacts> {
        self.crew.hosts()
    }

    /// Every guest of a kind is the same machine, though each is another boot: a run goes on in the
    /// next one.
    fn machine(&self) -> String {
        self.guest.description()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.notes.clone();
        notes.extend(TrialRunner::notes(&self.crew));
        notes
    }

    fn receive_sides(&self) -> Vec<ReceiveSide> {
        self.crew.receive_sides()
    }

    fn is_simulated(&self) -> bool {
        false
    }

    fn trials(
        &mut self,
        todo: Vec<Trial>,
        method: &Method,
        stop: &Stop,
        tell: &mut dyn FnMut(News) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.crew.trials(todo, method, stop, tell).map_err(|error| self.explained(error))
    }

    fn close(self: Box<Self>, stop: &Stop) -> Result<(), Error> {
        self.crew.close(stop)
    }

    /// Nothing needs to be put back: the guest ends, and its settings with it.
    fn abandon(self: Box<Self>) -> Result<(), Error> {
        let Self { crew, mut guest, .. } = *self;
        guest.end();
        drop(crew);
        Ok(())
    }
}
