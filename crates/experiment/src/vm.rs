//! The `vm` testbed: trials on the two hosts of a QEMU guest, which exists only during the trials.
//!
//! Only latput uses the guest's cards, so their driver may be reloaded between two trials: the
//! agents end, the driver is loaded with other parameters, and new agents start.

mod parameters;

use std::collections::BTreeSet;

use latput_knobs::Knob;
use latput_load::Stop;
use latput_trial::observation::Role;
use latput_trial::overrun::ReceiveSide;
use latput_trial::plan::Method;
use latput_trial::results::HostFacts;
use latput_trial::{HostToday, Surroundings};
use latput_units::{CpuId, CpuSet, Nanos};
use latput_vm::{Guest, GuestSpec, HOSTS, PROGRAM};

use crate::controller::AgentPool;
use crate::error::Error;
use crate::host_spec::HostSpec;
use crate::protocol::LinkReset;
use crate::runner::Wanted;
use crate::runner::{Trial, TrialEvent, TrialRunner};

/// The agents in a guest, and the guest.
#[derive(Debug)]
pub(crate) struct Emulated {
    // Declared before the guest, so that agents end first. `None` after a failed reload.
    pool: Option<AgentPool>,
    guest: Guest,
    notes: Vec<String>,
    /// The driver's current parameters.
    parameters: Vec<String>,
    agents: Agents,
}

/// The settings for starting agents.
#[derive(Debug)]
struct Agents {
    program: String,
    to_set: BTreeSet<Role>,
    interval: Option<Nanos>,
}

impl Agents {
    fn start(&self, guest: &Guest, stop: &Stop) -> Result<AgentPool, Error> {
        let pool = AgentPool::start(&hosts(guest, &self.program), &self.to_set, stop)?;
        Ok(pool.with_progress_interval(self.interval))
    }
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
        let failed = failed(spec);
        let guest = match Guest::start(spec, &|| stop.is_raised()) {
            Err(_) if stop.is_raised() => return Err(Error::Interrupted),
            other => other.map_err(failed)?,
        };
        let notes = notes(&guest);
        let agents = Agents { program: program.to_owned(), to_set: to_set.clone(), interval };
        let pool = Some(agents.start(&guest, stop)?);
        Ok(Self { pool, guest, notes, parameters: Vec::new(), agents })
    }

    /// Loads the driver with the parameters of a trial, unless it has them.
    fn load(&mut self, trial: &Trial, stop: &Stop) -> Result<(), Error> {
        let testbed = format!("vm:{}", self.guest.spec());
        let failed = |problem| Error::Guest { testbed: testbed.clone(), problem };
        let wanted = parameters::of(&trial.set.by_role).map_err(failed)?;
        if wanted == self.parameters {
            return Ok(());
        }
        if self.guest.spec().driver.parameters().is_empty() {
            let problem = format!("the driver has no parameter {}", wanted.join(" "));
            return Err(Error::Guest { testbed, problem });
        }
        tracing::info!(parameters = wanted.join(" "), "reloading the guest's driver");
        self.reload(&wanted, stop)?;
        self.parameters = wanted;
        self.pool = Some(self.agents.start(&self.guest, stop)?);
        Ok(())
    }

    /// Ends the agents and loads the driver. Where a guest does not let its agents end, the next boot
    /// takes its place: all guests of a kind are the same machine.
    fn reload(&mut self, wanted: &[String], stop: &Stop) -> Result<(), Error> {
        let failed = failed(self.guest.spec());
        if let Some(pool) = self.pool.take()
            && let Err(stuck) = pool.close(stop, &mut |line| tracing::info!("{line}"))
        {
            if stop.is_raised() {
                return Err(Error::Interrupted);
            }
            tracing::warn!(%stuck, console = self.guest.console(), "booting the guest again");
            self.guest.end();
            self.guest = Guest::start(self.guest.spec(), &|| stop.is_raised()).map_err(&failed)?;
        }
        self.guest.reload(wanted).map_err(failed)
    }

    /// Nothing needs to be put back: the guest ends, and its settings with it.
    fn end(mut self) {
        self.guest.end();
    }

    /// Replaces the error of a broken line by the guest's end, if the guest has ended.
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

/// An error of the guest, with the testbed's name.
fn failed(spec: GuestSpec) -> impl Fn(latput_vm::Error) -> Error {
    move |error| Error::Guest { testbed: format!("vm:{spec}"), problem: error.to_string() }
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
            link_reset: LinkReset::AllowedOnControl,
            is_named_twice: false,
            // The guest ends with the controller; on a busy machine its agents may be slow to hear it.
            lease: Nanos::from_s(60),
            may_be_brought: false,
        }
    });
    hosts.collect()
}

/// Remarks on the guest for readers of the figures.
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
        self.pool.as_ref().map(TrialRunner::hosts).unwrap_or_default()
    }

    /// The guest's kind: all guests of a kind are the same machine, so a run continues in the next
    /// boot.
    fn machine(&self) -> String {
        self.guest.description()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.notes.clone();
        notes.extend(self.pool.iter().flat_map(TrialRunner::notes));
        notes
    }

    fn receive_sides(&self) -> Vec<ReceiveSide> {
        self.pool.as_ref().map(TrialRunner::receive_sides).unwrap_or_default()
    }

    fn today(&mut self, knobs: &BTreeSet<Knob>, stop: &Stop) -> Result<Vec<HostToday>, Error> {
        let Some(pool) = self.pool.as_mut() else { return Ok(Vec::new()) };
        pool.today(knobs, stop).map_err(|error| self.explained(error))
    }

    fn look(&mut self, span: Nanos, stop: &Stop) -> Result<Vec<Surroundings>, Error> {
        let Some(pool) = self.pool.as_mut() else { return Ok(Vec::new()) };
        pool.look(span, stop).map_err(|error| self.explained(error))
    }

    fn trials(
        &mut self,
        todo: Vec<Trial>,
        method: &Method,
        stop: &Stop,
        tell: &mut dyn FnMut(TrialEvent) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for mut trial in todo {
            self.load(&trial, stop).map_err(|error| self.explained(error))?;
            parameters::strip(&mut trial.set.by_role);
            let pool = self.pool.as_mut().expect("loading ends with a pool, or with an error");
            pool.trials(vec![trial], method, stop, tell).map_err(|error| self.explained(error))?;
        }
        Ok(())
    }

    fn unsupported(
        &mut self,
        wanted: Wanted<'_>,
        method: &Method,
        stop: &Stop,
    ) -> Result<Option<String>, Error> {
        let mut without;
        let wanted = match wanted {
            Wanted::Setting(by_role) | Wanted::Rehearsed(by_role) => {
                match parameters::of(by_role) {
                    Ok(words) if words.is_empty() => {}
                    Ok(words) if self.guest.spec().driver.parameters().is_empty() => {
                        let why = format!("the driver has no parameter {}", words.join(" "));
                        return Ok(Some(why));
                    }
                    Ok(_) => {}
                    Err(why) => return Ok(Some(why)),
                }
                without = by_role.clone();
                parameters::strip(&mut without);
                match wanted {
                    Wanted::Rehearsed(_) => Wanted::Rehearsed(&without),
                    _ => Wanted::Setting(&without),
                }
            }
            load @ Wanted::Load(_) => load,
        };
        let Some(pool) = self.pool.as_mut() else { return Ok(None) };
        pool.unsupported(wanted, method, stop).map_err(|error| self.explained(error))
    }

    /// Like [`Self::abandon`].
    fn close(self: Box<Self>, _: &Stop, _: &mut dyn FnMut(&str)) -> Result<(), Error> {
        self.end();
        Ok(())
    }

    fn abandon(self: Box<Self>, cause: Error, _: &Stop, _: &mut dyn FnMut(&str)) -> Error {
        self.end();
        cause
    }
}
