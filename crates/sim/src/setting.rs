//! Knobs of a simulated host: the same settings and names as on a real host.

mod parameters;
mod refusal;
mod state;
#[cfg(test)]
mod tests;

use latput_knobs::profile::ModerationPoint;
use latput_knobs::qdisc::ParameterValue;
use latput_knobs::{Knob, Setting, Value};
use latput_trial::observation::Role;
use latput_units::{Bytes, CpuSet, Nanos};

use crate::machine::{AdaptiveModeration, Qdisc};
use crate::profile::{HostProfile, SystemProfile};
use crate::validate::InvalidValue;
use crate::vector::{Coalescing, Throttle};

pub use self::refusal::UnsupportedSetting;
pub(crate) use self::state::read_knob_state;

impl SystemProfile {
    /// Sets the knobs of the hosts with this role; refuses what this simulator does not model. Ranges
    /// are checked with the scenario.
    pub fn set_knobs(&mut self, role: Role, setting: &Setting) -> Result<(), InvalidValue> {
        // From here on the hosts may differ.
        self.generator.get_or_insert_with(|| self.sut.clone());
        for (&knob, value) in setting {
            if knob == Knob::Mtu {
                self.network.mtu = Bytes::new(require_count(knob, value)?);
                continue;
            }
            let host = match role {
                Role::Sut => &mut self.sut,
                Role::Generator | Role::Observer => {
                    self.generator.get_or_insert_with(|| self.sut.clone())
                }
            };
            host.set_knob(knob, value)?;
        }
        Ok(())
    }
}

const NO_BQL: &str = "left out: the profile's driver has no BQL";
const NO_DIM: &str = "left out: the profile's driver has no DIM";
const NO_FIFO: &str = "left out: the profile's NIC has no buffer to fill";

impl HostProfile {
    fn set_knob(&mut self, knob: Knob, value: &Value) -> Result<(), InvalidValue> {
        let (nic, stack) = (&mut self.nic, &mut self.stack);
        match knob {
            Knob::Txqueuelen => {
                let length = require_u32(knob, value)?;
                if let Qdisc::Pfifo { limit_packets } = &mut stack.qdisc {
                    *limit_packets = length;
                }
            }
            Knob::Qdisc => stack.qdisc = parse_qdisc(value, stack.qdisc)?,
            Knob::Gro => stack.gro = require_switch(knob, value)?,
            Knob::Tso => stack.tso = require_switch(knob, value)?,
            Knob::Threaded => stack.threaded = require_switch(knob, value)?,
            Knob::RpsCpus => {
                stack.rps_cores = require_cpus(knob, value)?.iter().map(|cpu| cpu.0).collect();
            }
            Knob::NapiDeferHardIrqs => stack.defer_hard_irqs = require_u32(knob, value)?,
            Knob::GroFlushTimeout => stack.gro_flush_timeout = require_time(knob, value)?,
            Knob::IrqSuspendTimeout => stack.irq_suspend_timeout = require_time(knob, value)?,
            Knob::NetdevMaxBacklog => stack.backlog_packets = require_u32(knob, value)?,
            Knob::BusyRead => stack.busy_poll = require_time(knob, value)?,
            Knob::BqlLimitMin | Knob::BqlLimitMax => {
                let bytes = Bytes::new(require_count(knob, value)?);
                let Some(bql) = &mut stack.bql else {
                    return Err(invalid_value(knob, value, NO_BQL));
                };
                *(if knob == Knob::BqlLimitMin { &mut bql.least } else { &mut bql.most }) = bytes;
            }
            Knob::AdaptiveRx | Knob::AdaptiveTx => {
                let is_on = require_switch(knob, value)?;
                let (wanted, flag) = if knob == Knob::AdaptiveRx {
                    ("left out: the profile's driver has none", &mut nic.adaptive_rx)
                } else {
                    (NO_DIM, &mut nic.adaptive_tx)
                };
                let has_it = match nic.adaptation {
                    Some(AdaptiveModeration::Dim) => true,
                    Some(_) => knob == Knob::AdaptiveRx,
                    None => false,
                };
                if !has_it {
                    return Err(invalid_value(knob, value, wanted));
                }
                *flag = is_on;
            }
            Knob::RxProfile | Knob::TxProfile
                if nic.adaptation != Some(AdaptiveModeration::Dim) =>
            {
                return Err(invalid_value(knob, value, NO_DIM));
            }
            Knob::RxProfile => nic.rx_profile = Some(parse_profile_points(knob, value)?),
            Knob::TxProfile => nic.tx_profile = Some(parse_profile_points(knob, value)?),
            _ if knob.module_parameter().is_some() => return nic.load_with(knob, value),
            Knob::RxUsecs if nic.parameters.interrupt_throttle_rate.is_some() => {
                let wanted = "left out: `interrupt-throttle-rate` sets the same interval";
                return Err(invalid_value(knob, value, wanted));
            }
            Knob::SmpAffinity => {
                nic.irq_cores = require_cpus(knob, value)?.iter().map(|cpu| cpu.0).collect();
            }
            Knob::CombinedChannels => nic.queues = require_u32(knob, value)?,
            Knob::RxRing => nic.rx_ring = require_u32(knob, value)?,
            Knob::TxRing => nic.tx_ring = require_u32(knob, value)?,
            Knob::PauseTx if nic.fifo == Bytes::new(0) => {
                return Err(invalid_value(knob, value, NO_FIFO));
            }
            Knob::PauseTx => nic.pause = require_switch(knob, value)?,
            _ => return nic.coalescing.set(knob, value),
        }
        Ok(())
    }
}

impl Coalescing {
    /// Whether `rx-usecs` is the time between two interrupts, as on Intel's NICs, rather than a delay of
    /// each direction.
    pub fn is_throttled(&self) -> bool {
        self.throttle != Throttle::None
    }

    fn set(&mut self, knob: Knob, value: &Value) -> Result<(), InvalidValue> {
        if self.is_throttled() {
            return self.set_interval(knob, value);
        }
        match knob {
            Knob::RxUsecs => self.rx.delay = require_time(knob, value)?,
            Knob::RxFrames => self.rx.frames = require_u32(knob, value)?,
            Knob::RxUsecsIrq => self.rx.delay_irq = Some(require_time(knob, value)?),
            Knob::RxFramesIrq => self.rx.frames_irq = Some(require_u32(knob, value)?),
            Knob::TxUsecs => self.tx.delay = require_time(knob, value)?,
            Knob::TxFrames => self.tx.frames = require_u32(knob, value)?,
            Knob::TxUsecsIrq => self.tx.delay_irq = Some(require_time(knob, value)?),
            Knob::TxFramesIrq => self.tx.frames_irq = Some(require_u32(knob, value)?),
            other => {
                return Err(invalid_value(
                    other,
                    value,
                    "left out: the simulator does not model it",
                ));
            }
        }
        Ok(())
    }

    fn set_interval(&mut self, knob: Knob, value: &Value) -> Result<(), InvalidValue> {
        match knob {
            Knob::RxUsecs => {
                let interval = require_time(knob, value)?;
                // Intel's drivers take 1 and 3 as words for their adaptive modes.
                if [1, 3].map(Nanos::from_us).contains(&interval) {
                    return Err(invalid_value(
                        knob,
                        value,
                        "0us, 2us or from 4us: it means a mode",
                    ));
                }
                self.throttle = match self.throttle {
                    // A clock without a period does not tick: nothing is held back.
                    Throttle::Gate { .. } if interval == Nanos::ZERO => Throttle::None,
                    throttle => throttle.with_interval(interval),
                };
                Ok(())
            }
            Knob::RxFrames
            | Knob::RxUsecsIrq
            | Knob::RxFramesIrq
            | Knob::TxUsecs
            | Knob::TxFrames
            | Knob::TxUsecsIrq
            | Knob::TxFramesIrq => {
                let wanted = "left out: the profile's NIC has `rx-usecs` for both directions";
                Err(invalid_value(knob, value, wanted))
            }
            other => Err(invalid_value(other, value, "left out: the simulator does not model it")),
        }
    }
}

/// The five points of DIM.
fn parse_profile_points(knob: Knob, value: &Value) -> Result<[(u32, u32); 5], InvalidValue> {
    let refused = |wanted: &str| invalid_value(knob, value, wanted);
    let Value::Profile(profile) = value else {
        return Err(refused("points of DIM"));
    };
    let point = |point: &ModerationPoint| match (point.delay, point.completions) {
        (Some(delay), None) if point.packets != Some(0) => {
            let delay_us = u32::try_from(delay.as_ns() / 1_000).ok()?;
            Some((delay_us, point.packets.unwrap_or(0)))
        }
        _ => None,
    };
    let points = profile.points().iter().map(point).collect::<Option<Vec<_>>>();
    points
        .and_then(|points| points.try_into().ok())
        .ok_or_else(|| refused("five points of a delay and packets, without completions"))
}

/// A discipline of the simulator's: `pfifo`, `pfifo_fast` (as one band) or `fq_codel`.
fn parse_qdisc(value: &Value, current: Qdisc) -> Result<Qdisc, InvalidValue> {
    let refused = |wanted: &str| invalid_value(Knob::Qdisc, value, wanted);
    let Value::Qdisc(asked) = value else {
        return Err(refused("a queue discipline"));
    };
    let known = ["limit", "target", "interval"];
    let names = asked.names().filter(|name| !known.contains(name)).collect::<Vec<_>>();
    if !names.is_empty() {
        return Err(refused(&format!("simulated without {}", names.join(", "))));
    }
    let limit = |default: u32| match asked.parameter("limit") {
        Some(ParameterValue::Count(count)) => {
            u32::try_from(count).map_err(|_| refused("limited to at most 4294967295 packets"))
        }
        _ => Ok(default),
    };
    let span = |name: &str, default: Nanos| match asked.parameter(name) {
        Some(ParameterValue::Time(span)) => span,
        _ => default,
    };
    match (asked.kind(), Qdisc::FQ_CODEL, Qdisc::PFIFO_FAST) {
        ("fq_codel", Qdisc::FqCodel { limit_packets, target, interval }, _) => Ok(Qdisc::FqCodel {
            limit_packets: limit(limit_packets)?,
            target: span("target", target),
            interval: span("interval", interval),
        }),
        ("pfifo" | "pfifo_fast", _, Qdisc::Pfifo { limit_packets }) => {
            let length = match current {
                Qdisc::Pfifo { limit_packets } => limit_packets,
                Qdisc::Bfifo { .. } | Qdisc::FqCodel { .. } => limit_packets,
            };
            Ok(Qdisc::Pfifo { limit_packets: limit(length)? })
        }
        _ => Err(refused("`pfifo`, `pfifo_fast` or `fq_codel` in the simulator")),
    }
}

fn require_time(knob: Knob, value: &Value) -> Result<Nanos, InvalidValue> {
    match value {
        Value::Time(span) => Ok(*span),
        _ => Err(invalid_value(knob, value, "a duration")),
    }
}

fn require_count(knob: Knob, value: &Value) -> Result<u64, InvalidValue> {
    match value {
        Value::Count(count) => Ok(*count),
        _ => Err(invalid_value(knob, value, "a number")),
    }
}

fn require_u32(knob: Knob, value: &Value) -> Result<u32, InvalidValue> {
    u32::try_from(require_count(knob, value)?)
        .map_err(|_| invalid_value(knob, value, "0 to 4294967295"))
}

fn require_switch(knob: Knob, value: &Value) -> Result<bool, InvalidValue> {
    match value {
        Value::Switch(on) => Ok(*on),
        _ => Err(invalid_value(knob, value, "on or off")),
    }
}

fn require_cpus(knob: Knob, value: &Value) -> Result<CpuSet, InvalidValue> {
    match value {
        Value::Cpus(cpus) => Ok(cpus.clone()),
        _ => Err(invalid_value(knob, value, "a set of CPUs")),
    }
}

fn invalid_value(knob: Knob, value: &Value, wanted: &str) -> InvalidValue {
    InvalidValue { key: knob.to_string(), found: value.to_string(), wanted: wanted.to_owned() }
}
