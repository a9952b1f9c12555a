//! Read-back of a simulated host: its values of every knob.

use std::collections::BTreeMap;

use latput_knobs::profile::ModerationPoint;
use latput_knobs::qdisc::ParameterValue;
use latput_knobs::{Knob, Place, State, Value};
use latput_units::{Bytes, CpuId, IntoMap, Nanos};

use crate::machine::{AdaptiveModeration, DriverMode, Qdisc};
use crate::scenario::{Host, Network};
use crate::vector::Coalescing;

/// The values of every knob of a host.
pub(crate) fn read_knob_state(host: &Host, network: &Network) -> State {
    let (nic, stack) = (&host.nic, &host.stack);
    let count = |count: u32| Value::Count(u64::from(count));
    let mut values = BTreeMap::from([
        (Knob::Mtu, Value::Count(network.mtu.get())),
        (Knob::Gro, Value::Switch(stack.gro)),
        (Knob::Tso, Value::Switch(stack.tso)),
        (Knob::Qdisc, Value::Qdisc(convert_qdisc(stack.qdisc))),
        (Knob::CombinedChannels, count(nic.queues)),
        (Knob::NetdevMaxBacklog, count(stack.backlog_packets)),
    ]);
    if let Qdisc::Pfifo { limit_packets } = stack.qdisc {
        values.insert(Knob::Txqueuelen, count(limit_packets));
    }
    if nic.fifo > Bytes::new(0) {
        values.insert(Knob::PauseTx, Value::Switch(nic.pause));
    }
    if !nic.handover {
        values.insert(Knob::RxRing, count(nic.rx_ring));
        values.insert(Knob::TxRing, count(nic.tx_ring));
        values.extend(list_moderation_values(&nic.coalescing));
    }
    if let Some(adaptation) = nic.adaptation {
        values.insert(Knob::AdaptiveRx, Value::Switch(nic.adaptive_rx));
        if adaptation == AdaptiveModeration::Dim {
            values.insert(Knob::AdaptiveTx, Value::Switch(nic.adaptive_tx));
            values.extend(build_profile_value(Knob::RxProfile, nic.rx_points()));
            values.extend(build_profile_value(Knob::TxProfile, nic.tx_points()));
        }
    }
    values.extend(nic.parameters.given_parameters().map(|(knob, value)| (knob, count(value))));
    if nic.driver == DriverMode::Napi {
        values.insert(Knob::BusyRead, Value::Time(stack.busy_poll));
    }
    let of_device = values.into_iter().map(|(knob, value)| ((knob, Place::Device), value));
    let mut values: BTreeMap<_, _> = of_device.into_map();
    for queue in 0..nic.queues {
        values.extend(of_queue(queue, host));
    }
    State(values)
}

fn of_queue(queue: u32, host: &Host) -> Vec<((Knob, Place), Value)> {
    let stack = &host.stack;
    let mut values = Vec::new();
    if host.nic.driver != DriverMode::Polling {
        // One CPU of each mask.
        let core = host.nic.interrupt_core(queue as usize);
        let cpu = Value::Cpus([CpuId(core)].into_iter().collect());
        values.push(((Knob::SmpAffinity, Place::Interrupt(queue)), cpu));
    }
    if let Some(bql) = stack.bql {
        let place = Place::TxQueue(queue);
        values.push(((Knob::BqlLimitMin, place), Value::Count(bql.least.get())));
        values.push(((Knob::BqlLimitMax, place), Value::Count(bql.most.get())));
    }
    if host.nic.driver == DriverMode::Napi {
        let rps = stack.rps_cores.iter().map(|core| CpuId(*core)).collect();
        values.push(((Knob::RpsCpus, Place::RxQueue(queue)), Value::Cpus(rps)));
        let deferrals = Value::Count(u64::from(stack.defer_hard_irqs));
        for (knob, value) in [
            (Knob::Threaded, Value::Switch(stack.threaded)),
            (Knob::NapiDeferHardIrqs, deferrals),
            (Knob::GroFlushTimeout, Value::Time(stack.gro_flush_timeout)),
            (Knob::IrqSuspendTimeout, Value::Time(stack.irq_suspend_timeout)),
        ] {
            values.push(((knob, Place::Napi(queue)), value));
        }
    }
    values
}

/// The moderation knobs of a NIC of this kind.
fn list_moderation_values(coalescing: &Coalescing) -> Vec<(Knob, Value)> {
    if coalescing.is_throttled() {
        return vec![(Knob::RxUsecs, Value::Time(coalescing.throttle.interval()))];
    }
    let (rx, tx) = (&coalescing.rx, &coalescing.tx);
    let count = |count: u32| Value::Count(u64::from(count));
    vec![
        (Knob::RxUsecs, Value::Time(rx.delay)),
        (Knob::RxFrames, count(rx.frames)),
        (Knob::RxUsecsIrq, Value::Time(rx.in_irq().delay)),
        (Knob::RxFramesIrq, count(rx.in_irq().frames)),
        (Knob::TxUsecs, Value::Time(tx.delay)),
        (Knob::TxFrames, count(tx.frames)),
        (Knob::TxUsecsIrq, Value::Time(tx.in_irq().delay)),
        (Knob::TxFramesIrq, count(tx.in_irq().frames)),
    ]
}

/// DIM's profile points.
fn build_profile_value(knob: Knob, points: [(u32, u32); 5]) -> Option<(Knob, Value)> {
    let point = |(delay_us, frames)| ModerationPoint {
        delay: Some(Nanos::from_us(u64::from(delay_us))),
        packets: Some(frames).filter(|frames| *frames > 0),
        completions: None,
    };
    let profile = latput_knobs::profile::Profile::new(points.map(point).to_vec())?;
    Some((knob, Value::Profile(profile)))
}

fn convert_qdisc(simulated: Qdisc) -> latput_knobs::Qdisc {
    match simulated {
        Qdisc::Pfifo { limit_packets } => {
            let mut qdisc = latput_knobs::Qdisc::from_kind("pfifo");
            qdisc.set("limit", ParameterValue::Count(u64::from(limit_packets)));
            qdisc
        }
        Qdisc::Bfifo { limit_bytes } => {
            let mut qdisc = latput_knobs::Qdisc::from_kind("bfifo");
            qdisc.set("limit", ParameterValue::Count(limit_bytes.get()));
            qdisc
        }
        Qdisc::FqCodel { limit_packets, target, interval } => {
            let mut qdisc = latput_knobs::Qdisc::from_kind("fq_codel");
            qdisc.set("limit", ParameterValue::Count(u64::from(limit_packets)));
            qdisc.set("target", ParameterValue::Time(target));
            qdisc.set("interval", ParameterValue::Time(interval));
            qdisc
        }
    }
}
