//! The `vm` testbed: trials on the two hosts of a QEMU guest, which exists only during the trials.
//!
//! Only latput uses the guest's cards, so their driver may be reloaded between two trials: the
//! agents end, the driver is loaded with other parameters, and new agents start.

mod parameters;

use std::collections::{BTreeMap, BTreeSet};

use latput_knobs::{Knob, Setting};
use latput_load::Stop;
use latput_protocol::control::LinkReset;
use latput_reach::Error as ReachError;
use latput_reach::held_guest::HeldGuest;
use latput_reach::host_spec::HostSpec;
use latput_runner::Error;
use latput_runner::trials::{PlanPart, Trial, TrialProgress, TrialRunner};
use latput_trial::observation::Role;
use latput_trial::overrun::ReceiveSide;
use latput_trial::plan::Method;
use latput_trial::results::HostFacts;
use latput_trial::{HostToday, Observation, Surroundings};
use latput_units::{CpuId, CpuSet, Nanos};
use latput_vm::{ENDPOINTS, GuestSpec};

use crate::agent_pool::AgentPool;

/// The agents in a guest, and the guest.
#[derive(Debug)]
pub struct GuestRunner {
    // Declared before the guest, so that agents end first. `None` after a failed reload.
    pool: Option<AgentPool>,
    guest: HeldGuest,
    notes: Vec<String>,
    /// The driver's current parameters.
    parameters: Vec<String>,
    agents: AgentOptions,
}

/// The settings for starting agents.
#[derive(Debug)]
struct AgentOptions {
    to_set: BTreeSet<Role>,
    interval: Option<Nanos>,
}

impl AgentOptions {
    fn start(&self, guest: &HeldGuest, stop: &Stop) -> Result<AgentPool, Error> {
        let pool = AgentPool::start(&build_host_specs(guest), &self.to_set, stop)?;
        Ok(pool.with_progress_interval(self.interval))
    }
}

impl GuestRunner {
    /// Boots the guest and starts an agent on each of its hosts.
    pub fn start(
        spec: GuestSpec,
        to_set: &BTreeSet<Role>,
        interval: Option<Nanos>,
        stop: &Stop,
    ) -> Result<Self, Error> {
        let guest = HeldGuest::start(spec, stop)?;
        let notes = collect_notes(&guest);
        let agents = AgentOptions { to_set: to_set.clone(), interval };
        let pool = Some(agents.start(&guest, stop)?);
        Ok(Self { pool, guest, notes, parameters: Vec::new(), agents })
    }

    /// Loads the driver with the parameters of a trial, unless it has them.
    fn load_driver(&mut self, trial: &Trial, stop: &Stop) -> Result<(), Error> {
        let testbed = format!("vm:{}", self.guest.spec());
        let failed = |problem| ReachError::Guest { testbed: testbed.clone(), problem };
        let wanted = parameters::module_parameters(&trial.set.by_role).map_err(failed)?;
        if wanted == self.parameters {
            return Ok(());
        }
        if self.guest.spec().driver.load_parameters().is_empty() {
            let problem = format!("the driver has no parameter {}", wanted.join(" "));
            return Err(ReachError::Guest { testbed, problem }.into());
        }
        tracing::info!(parameters = wanted.join(" "), "reloading the guest's driver");
        self.reload_driver(&wanted, stop)?;
        self.parameters = wanted;
        self.pool = Some(self.agents.start(&self.guest, stop)?);
        Ok(())
    }

    /// Ends the agents and loads the driver. Where a guest does not let its agents end, the next boot
    /// takes its place: all guests of a kind are the same machine.
    fn reload_driver(&mut self, wanted: &[String], stop: &Stop) -> Result<(), Error> {
        if let Some(pool) = self.pool.take()
            && let Err(stuck) = pool.close(stop, &mut |line| tracing::info!("{line}"))
        {
            if stop.is_raised() {
                return Err(Error::Interrupted);
            }
            let (_, console) = self.guest.check_console();
            tracing::warn!(%stuck, console, "booting the guest again");
            self.guest.start_again(stop)?;
        }
        Ok(self.guest.reload_driver(wanted)?)
    }

    /// Replaces the error of a broken line by the guest's end, if the guest has ended.
    fn explain_guest_end(&mut self, error: Error) -> Error {
        if !matches!(error, Error::Reach(ReachError::Agent { .. })) {
            return error;
        }
        let (true, console) = self.guest.check_console() else { return error };
        let problem =
            format!("the guest ended in the middle of a trial; its console ends with: {console}");
        ReachError::Guest { testbed: format!("vm:{}", self.guest.spec()), problem }.into()
    }
}

/// The hosts of a guest, the system under test first.
fn build_host_specs(guest: &HeldGuest) -> Vec<HostSpec> {
    let ways = ENDPOINTS.iter().zip(guest.launch_commands());
    let hosts = ways.zip([Role::Sut, Role::Generator]).map(|((host, way), role)| {
        let cpus: CpuSet = [CpuId(host.cpu)].into_iter().collect();
        HostSpec {
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
            ..HostSpec::from_launch_command(host.name, role, (way.via, way.program))
        }
    });
    hosts.collect()
}

/// Remarks on the guest for readers of the figures.
fn collect_notes(guest: &HeldGuest) -> Vec<String> {
    let mut notes = vec![format!(
        "{}: CPUs and NICs are emulated. Its figures compare settings, they do not show the speed of hardware",
        guest.description()
    )];
    match guest.run(&["vm", "probe"]) {
        Ok(output) if output.is_success() => {
            notes.extend(output.stdout_text().lines().map(str::to_owned));
        }
        Ok(output) => notes.push(format!("emulation not probed: {}", output.error_text().trim())),
        Err(error) => notes.push(format!("emulation not probed: {error}")),
    }
    notes
}

impl TrialRunner for GuestRunner {
    fn host_facts(&self) -> Vec<HostFacts> {
        self.pool.as_ref().map(TrialRunner::host_facts).unwrap_or_default()
    }

    /// The guest's kind: all guests of a kind are the same machine, so a run continues in the next
    /// boot.
    fn machine_id(&self) -> String {
        self.guest.description().to_owned()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.notes.clone();
        notes.extend(self.pool.iter().flat_map(TrialRunner::notes));
        notes
    }

    fn receive_sides(&self) -> Vec<ReceiveSide> {
        self.pool.as_ref().map(TrialRunner::receive_sides).unwrap_or_default()
    }

    fn read_knob_values(
        &mut self,
        knobs: &BTreeSet<Knob>,
        stop: &Stop,
    ) -> Result<Vec<HostToday>, Error> {
        let Some(pool) = self.pool.as_mut() else { return Ok(Vec::new()) };
        pool.read_knob_values(knobs, stop).map_err(|error| self.explain_guest_end(error))
    }

    fn watch_surroundings(&mut self, span: Nanos, stop: &Stop) -> Result<Vec<Surroundings>, Error> {
        let Some(pool) = self.pool.as_mut() else { return Ok(Vec::new()) };
        pool.watch_surroundings(span, stop).map_err(|error| self.explain_guest_end(error))
    }

    fn measure_trial(
        &mut self,
        trial: &Trial,
        method: &Method,
        stop: &Stop,
        progress: &mut dyn TrialProgress,
    ) -> Result<Observation, Error> {
        self.load_driver(trial, stop).map_err(|error| self.explain_guest_end(error))?;
        let mut on_hosts = trial.clone();
        parameters::remove_reload_knobs(&mut on_hosts.set.by_role);
        let pool = self.pool.as_mut().expect("loading ends with a pool, or with an error");
        pool.measure_trial(&on_hosts, method, stop, progress)
            .map_err(|error| self.explain_guest_end(error))
    }

    fn explain_unsupported(
        &mut self,
        wanted: PlanPart<'_>,
        method: &Method,
        stop: &Stop,
    ) -> Result<Option<String>, Error> {
        let mut without;
        let wanted = match wanted {
            PlanPart::Setting(by_role) | PlanPart::Rehearsed(by_role) => {
                match parameters::module_parameters(by_role) {
                    Ok(words) if words.is_empty() => {}
                    Ok(words) if self.guest.spec().driver.load_parameters().is_empty() => {
                        let spec = self.guest.spec();
                        let words = words.join(" ");
                        return Ok(Some(format!("vm:{spec}: the driver has no parameter {words}")));
                    }
                    Ok(_) => {}
                    Err(why) => return Ok(Some(why)),
                }
                without = by_role.clone();
                parameters::remove_reload_knobs(&mut without);
                match wanted {
                    PlanPart::Rehearsed(_) => PlanPart::Rehearsed(&without),
                    _ => PlanPart::Setting(&without),
                }
            }
            load @ PlanPart::Load(_) => load,
        };
        let Some(pool) = self.pool.as_mut() else { return Ok(None) };
        pool.explain_unsupported(wanted, method, stop)
            .map_err(|error| self.explain_guest_end(error))
    }

    /// Parameters of the driver are not in force before it is loaded with them.
    fn read_tried_values(
        &mut self,
        by_role: &BTreeMap<Role, Setting>,
        stop: &Stop,
    ) -> Result<Vec<HostToday>, Error> {
        let has_parameters =
            parameters::module_parameters(by_role).is_ok_and(|words| !words.is_empty());
        match &mut self.pool {
            Some(pool) if !has_parameters => {
                pool.read_tried_values(by_role, stop).map_err(|error| self.explain_guest_end(error))
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Nothing needs to be put back: the guest ends, and its settings with it.
    fn close(mut self: Box<Self>, _: &Stop, _: &mut dyn FnMut(&str)) -> Result<(), Error> {
        self.guest.shut_down();
        Ok(())
    }

    fn abort_run(mut self: Box<Self>, cause: Error, _: &Stop, _: &mut dyn FnMut(&str)) -> Error {
        self.guest.shut_down();
        cause
    }
}
