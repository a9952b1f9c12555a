//! Knobs of a simulated host: the same settings and names as on a real host.

mod parameters;
mod refusal;
mod state;
#[cfg(test)]
mod tests;

use latput_knobs::profile::ProfilePoint;
use latput_knobs::qdisc::Parameter;
use latput_knobs::{Knob, Setting, Value};
use latput_trial::observation::Role;
use latput_units::{Bytes, CpuSet, Nanos};

use crate::machine::{Adaptation, Qdisc};
use crate::profile::{HostProfile, Profile};
use crate::validate::Invalid;
use crate::vector::{Coalescing, Throttle};

pub use self::refusal::Refused;
pub(crate) use self::state::state;

impl Profile {
    /// Sets the knobs of the hosts with this role; refuses what this simulator does not model. Ranges
    /// are checked with the scenario.
    pub fn set(&mut self, role: Role, setting: &Setting) -> Result<(), Invalid> {
        // From here on the hosts may differ.
        self.generator.get_or_insert_with(|| self.sut.clone());
        for (&knob, value) in setting {
            if knob == Knob::Mtu {
                self.network.mtu = Bytes::new(count(knob, value)?);
                continue;
            }
            let host = match role {
                Role::Sut => &mut self.sut,
                Role::Generator | Role::Observer => {
                    self.generator.get_or_insert_with(|| self.sut.clone())
                }
            };
            host.set(knob, value)?;
        }
        Ok(())
    }
}

impl HostProfile {
    fn set(&mut self, knob: Knob, value: &Value) -> Result<(), Invalid> {
        let (nic, stack) = (&mut self.nic, &mut self.stack);
        match knob {
            Knob::Txqueuelen => {
                let length = small(knob, value)?;
                if let Qdisc::Pfifo { limit_packets } = &mut stack.qdisc {
                    *limit_packets = length;
                }
            }
            Knob::Qdisc => stack.qdisc = qdisc(value, stack.qdisc)?,
            Knob::Gro => stack.gro = switch(knob, value)?,
            Knob::Tso => stack.tso = switch(knob, value)?,
            Knob::Threaded => stack.threaded = switch(knob, value)?,
            Knob::RpsCpus => stack.rps_cores = cpus(knob, value)?.iter().map(|cpu| cpu.0).collect(),
            Knob::NapiDeferHardIrqs => stack.defer_hard_irqs = small(knob, value)?,
            Knob::GroFlushTimeout => stack.gro_flush_timeout = time(knob, value)?,
            Knob::IrqSuspendTimeout => stack.irq_suspend_timeout = time(knob, value)?,
            Knob::NetdevMaxBacklog => stack.backlog_packets = small(knob, value)?,
            Knob::BusyRead => stack.busy_poll = time(knob, value)?,
            Knob::BqlLimitMin | Knob::BqlLimitMax => {
                let bytes = Bytes::new(count(knob, value)?);
                let Some(bql) = &mut stack.bql else {
                    return Err(wrong(knob, value, "left out: the profile's driver has no BQL"));
                };
                *(if knob == Knob::BqlLimitMin { &mut bql.least } else { &mut bql.most }) = bytes;
            }
            Knob::AdaptiveRx | Knob::AdaptiveTx => {
                let is_on = switch(knob, value)?;
                let (wanted, flag) = if knob == Knob::AdaptiveRx {
                    ("left out: the profile's driver has none", &mut nic.adaptive_rx)
                } else {
                    ("left out: the profile's driver has no DIM", &mut nic.adaptive_tx)
                };
                let has_it = match nic.adaptation {
                    Some(Adaptation::Dim) => true,
                    Some(_) => knob == Knob::AdaptiveRx,
                    None => false,
                };
                if !has_it {
                    return Err(wrong(knob, value, wanted));
                }
                *flag = is_on;
            }
            Knob::RxProfile | Knob::TxProfile if nic.adaptation != Some(Adaptation::Dim) => {
                return Err(wrong(knob, value, "left out: the profile's driver has no DIM"));
            }
            Knob::RxProfile => nic.rx_profile = Some(points(knob, value)?),
            Knob::TxProfile => nic.tx_profile = Some(points(knob, value)?),
            _ if knob.module_parameter().is_some() => return nic.load_with(knob, value),
            Knob::RxUsecs if nic.parameters.interrupt_throttle_rate.is_some() => {
                let wanted = "left out: `interrupt-throttle-rate` sets the same interval";
                return Err(wrong(knob, value, wanted));
            }
            Knob::SmpAffinity => {
                nic.irq_cores = cpus(knob, value)?.iter().map(|cpu| cpu.0).collect();
            }
            Knob::CombinedChannels => nic.queues = small(knob, value)?,
            Knob::RxRing => nic.rx_ring = small(knob, value)?,
            Knob::TxRing => nic.tx_ring = small(knob, value)?,
            Knob::PauseTx if nic.fifo == Bytes::new(0) => {
                return Err(wrong(
                    knob,
                    value,
                    "left out: the profile's NIC has no buffer to fill",
                ));
            }
            Knob::PauseTx => nic.pause = switch(knob, value)?,
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

    fn set(&mut self, knob: Knob, value: &Value) -> Result<(), Invalid> {
        if self.is_throttled() {
            return self.set_interval(knob, value);
        }
        match knob {
            Knob::RxUsecs => self.rx.delay = time(knob, value)?,
            Knob::RxFrames => self.rx.frames = small(knob, value)?,
            Knob::RxUsecsIrq => self.rx.delay_irq = Some(time(knob, value)?),
            Knob::RxFramesIrq => self.rx.frames_irq = Some(small(knob, value)?),
            Knob::TxUsecs => self.tx.delay = time(knob, value)?,
            Knob::TxFrames => self.tx.frames = small(knob, value)?,
            Knob::TxUsecsIrq => self.tx.delay_irq = Some(time(knob, value)?),
            Knob::TxFramesIrq => self.tx.frames_irq = Some(small(knob, value)?),
            other => return Err(wrong(other, value, "left out: the simulator does not model it")),
        }
        Ok(())
    }

    fn set_interval(&mut self, knob: Knob, value: &Value) -> Result<(), Invalid> {
        match knob {
            Knob::RxUsecs => {
                let interval = time(knob, value)?;
                // Intel's drivers take 1 and 3 as words for their adaptive modes.
                if [1, 3].map(Nanos::from_us).contains(&interval) {
                    return Err(wrong(knob, value, "0us, 2us or from 4us: it means a mode"));
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
                Err(wrong(knob, value, wanted))
            }
            other => Err(wrong(other, value, "left out: the simulator does not model it")),
        }
    }
}

/// The five points of DIM.
fn points(knob: Knob, value: &Value) -> Result<[(u32, u32); 5], Invalid> {
    let refused = |wanted: &str| wrong(knob, value, wanted);
    let Value::Profile(profile) = value else {
        return Err(refused("points of DIM"));
    };
    let point = |point: &ProfilePoint| match (point.delay, point.completions) {
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
fn qdisc(value: &Value, current: Qdisc) -> Result<Qdisc, Invalid> {
    let refused = |wanted: &str| wrong(Knob::Qdisc, value, wanted);
    let Value::Qdisc(asked) = value else {
        return Err(refused("a queue discipline"));
    };
    let known = ["limit", "target", "interval"];
    let names = asked.names().filter(|name| !known.contains(name)).collect::<Vec<_>>();
    if !names.is_empty() {
        return Err(refused(&format!("simulated without {}", names.join(", "))));
    }
    let limit = |default: u32| match asked.parameter("limit") {
        Some(Parameter::Count(count)) => {
            u32::try_from(count).map_err(|_| refused("limited to at most 4294967295 packets"))
        }
        _ => Ok(default),
    };
    let span = |name: &str, default: Nanos| match asked.parameter(name) {
        Some(Parameter::Time(span)) => span,
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

fn time(knob: Knob, value: &Value) -> Result<Nanos, Invalid> {
    match value {
        Value::Time(span) => Ok(*span),
        _ => Err(wrong(knob, value, "a duration")),
    }
}

fn count(knob: Knob, value: &Value) -> Result<u64, Invalid> {
    match value {
        Value::Count(count) => Ok(*count),
        _ => Err(wrong(knob, value, "a number")),
    }
}

fn small(knob: Knob, value: &Value) -> Result<u32, Invalid> {
    u32::try_from(count(knob, value)?).map_err(|_| wrong(knob, value, "0 to 4294967295"))
}

fn switch(knob: Knob, value: &Value) -> Result<bool, Invalid> {
    match value {
        Value::Switch(on) => Ok(*on),
        _ => Err(wrong(knob, value, "on or off")),
    }
}

fn cpus(knob: Knob, value: &Value) -> Result<CpuSet, Invalid> {
    match value {
        Value::Cpus(cpus) => Ok(cpus.clone()),
        _ => Err(wrong(knob, value, "a set of CPUs")),
    }
}

fn wrong(knob: Knob, value: &Value, wanted: &str) -> Invalid {
    Invalid { key: knob.to_string(), found: value.to_string(), wanted: wanted.to_owned() }
}
