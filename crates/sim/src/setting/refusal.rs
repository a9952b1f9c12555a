//! Refusals of a simulated host: settings that the simulator could store but not follow.

use std::collections::BTreeMap;

use latput_knobs::{Knob, Setting, Value};
use latput_trial::observation::Role;
use latput_units::Nanos;

use crate::machine::{DriverMode, Qdisc};
use crate::profile::{HostProfile, SystemProfile};

/// A knob or value without a model, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnsupportedSetting(String);

impl SystemProfile {
    /// Applies settings to the profile as to hosts. Refuses what [`Self::set_knobs`] would accept but the
    /// simulator does not follow.
    pub fn apply_settings(
        &mut self,
        by_role: &BTreeMap<Role, Setting>,
    ) -> Result<(), UnsupportedSetting> {
        apply_by_role(by_role, self).map_err(UnsupportedSetting)
    }
}

fn apply_by_role(
    by_role: &BTreeMap<Role, Setting>,
    profile: &mut SystemProfile,
) -> Result<(), String> {
    // From here on the hosts may differ.
    profile.generator.get_or_insert_with(|| profile.sut.clone());
    let of = |role| by_role.get(&role).and_then(|setting| setting.get(&Knob::Mtu));
    if of(Role::Sut) != of(Role::Generator) {
        return Err(String::from(
            "the simulator has one `mtu` for both hosts: set it on both, without `sut.` or \
             `generator.`",
        ));
    }
    for (role, setting) in by_role {
        for (knob, value) in setting {
            check_supported(*role, host_for_role(profile, *role), *knob, value)?;
        }
        profile.set_knobs(*role, setting).map_err(|invalid| invalid.to_string())?;
        needs_deferral(host_for_role(profile, *role))?;
    }
    Ok(())
}

fn host_for_role(profile: &SystemProfile, role: Role) -> &HostProfile {
    match role {
        Role::Sut => &profile.sut,
        Role::Generator | Role::Observer => profile.generator.as_ref().unwrap_or(&profile.sut),
    }
}

/// Refuses a value that would have no effect, or another one than on a host.
fn check_supported(
    role: Role,
    host: &HostProfile,
    knob: Knob,
    value: &Value,
) -> Result<(), String> {
    let is_of_napi = matches!(
        knob,
        Knob::RpsCpus
            | Knob::Threaded
            | Knob::NapiDeferHardIrqs
            | Knob::GroFlushTimeout
            | Knob::IrqSuspendTimeout
            | Knob::BusyRead
    );
    if is_of_napi && host.nic.driver != DriverMode::Napi {
        return Err(format!("`{knob}`: the profile's driver does not use NAPI; leave it out"));
    }
    match (value, host.stack.qdisc) {
        (Value::Count(_), Qdisc::FqCodel { .. }) if knob == Knob::Txqueuelen => Err(format!(
            "`{knob}` does nothing here: the profile's queue discipline is fq_codel, which has a \
             limit of its own; leave the knob out"
        )),
        (Value::Count(0), _) if knob == Knob::Txqueuelen => {
            Err(format!("`{knob}` is simulated from 1 packet on, not 0"))
        }
        (Value::Cpus(cpus), _) => match cpus.iter().find(|cpu| cpu.0 >= host.machine.cores) {
            Some(cpu) => Err(format!(
                "`{knob}` names CPU {cpu}: the profile's {} has CPUs 0 to {}",
                role.name(),
                host.machine.cores.saturating_sub(1)
            )),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Without deferred interrupts the timer only bounds how long GRO holds packets between polls. Here
/// GRO holds nothing longer than a poll.
fn needs_deferral(host: &HostProfile) -> Result<(), String> {
    let stack = &host.stack;
    let is_timer_alone = stack.gro_flush_timeout > Nanos::ZERO && stack.defer_hard_irqs == 0;
    if is_timer_alone && stack.gro {
        return Err(String::from(
            "the simulator has no model of `gro-flush-timeout` without `napi-defer-hard-irqs`: move \
             them together, as \"gro-flush-timeout + napi-defer-hard-irqs\" = [[\"0us\", 0], \
             [\"50us\", 100]]",
        ));
    }
    Ok(())
}
