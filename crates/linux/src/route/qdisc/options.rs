//! The parameters of each queue discipline, in the kernel's layouts and units.
//!
//! `include/uapi/linux/pkt_sched.h`. The times of codel and fq are in microseconds unless said otherwise,
//! rates in bytes a second; tbf and netem keep some times in scheduler ticks of 64 ns
//! (`PSCHED_SHIFT`, `include/net/pkt_sched.h`).

use latput_knobs::Qdisc;
use latput_knobs::qdisc::ParameterValue;
use latput_units::{BitsPerSecond, Bytes, Nanos};

use crate::netlink::message::put;
use crate::netlink::{Attribute, Attributes, Malformed, malformed, uapi};

/// The type of one attribute of a discipline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Count,
    Size,
    Us,
    Ns,
    /// Bytes a second in 32 bits; all ones is no limit.
    ByteRate,
    Flag32,
    Flag8,
    /// The base-2 logarithm of a number.
    Log2,
}

/// The attributes of a discipline, with the names of their parameters.
type Fields = &'static [(u16, &'static str, Field)];

/// Disciplines whose options are attributes of one number each.
const FLAT: &[(&str, Fields)] = &[
    (
        "codel",
        &[
            (uapi::TCA_CODEL_TARGET, "target", Field::Us),
            (uapi::TCA_CODEL_LIMIT, "limit", Field::Count),
            (uapi::TCA_CODEL_INTERVAL, "interval", Field::Us),
            (uapi::TCA_CODEL_ECN, "ecn", Field::Flag32),
            (uapi::TCA_CODEL_CE_THRESHOLD, "ce_threshold", Field::Us),
        ],
    ),
    (
        "fq_codel",
        &[
            (uapi::TCA_FQ_CODEL_TARGET, "target", Field::Us),
            (uapi::TCA_FQ_CODEL_LIMIT, "limit", Field::Count),
            (uapi::TCA_FQ_CODEL_INTERVAL, "interval", Field::Us),
            (uapi::TCA_FQ_CODEL_ECN, "ecn", Field::Flag32),
            (uapi::TCA_FQ_CODEL_FLOWS, "flows", Field::Count),
            (uapi::TCA_FQ_CODEL_QUANTUM, "quantum", Field::Size),
            (uapi::TCA_FQ_CODEL_CE_THRESHOLD, "ce_threshold", Field::Us),
            (uapi::TCA_FQ_CODEL_DROP_BATCH_SIZE, "drop_batch", Field::Count),
            (uapi::TCA_FQ_CODEL_MEMORY_LIMIT, "memory_limit", Field::Size),
        ],
    ),
    (
        "fq",
        &[
            (uapi::TCA_FQ_PLIMIT, "limit", Field::Count),
            (uapi::TCA_FQ_FLOW_PLIMIT, "flow_limit", Field::Count),
            (uapi::TCA_FQ_QUANTUM, "quantum", Field::Size),
            (uapi::TCA_FQ_INITIAL_QUANTUM, "initial_quantum", Field::Size),
            (uapi::TCA_FQ_RATE_ENABLE, "pacing", Field::Flag32),
            (uapi::TCA_FQ_FLOW_MAX_RATE, "maxrate", Field::ByteRate),
            (uapi::TCA_FQ_BUCKETS_LOG, "buckets", Field::Log2),
            (uapi::TCA_FQ_FLOW_REFILL_DELAY, "refill_delay", Field::Us),
            (uapi::TCA_FQ_ORPHAN_MASK, "orphan_mask", Field::Count),
            (uapi::TCA_FQ_LOW_RATE_THRESHOLD, "low_rate_threshold", Field::ByteRate),
            (uapi::TCA_FQ_CE_THRESHOLD, "ce_threshold", Field::Us),
            (uapi::TCA_FQ_TIMER_SLACK, "timer_slack", Field::Ns),
            (uapi::TCA_FQ_HORIZON, "horizon", Field::Us),
            (uapi::TCA_FQ_HORIZON_DROP, "horizon_drop", Field::Flag8),
        ],
    ),
];

/// fq's "no threshold": 2^64 - 1 ns in microseconds, cut to 32 bits by its dump.
const FQ_NO_THRESHOLD_US: u32 = 0x4bc6_a7ef;
/// The weights of fq's bands (`fq_init`).
const FQ_WEIGHTS: [i32; 3] = [589_824, 196_608, 65_536];
/// Scheduler ticks are this many bits below nanoseconds.
const TICK_SHIFT: u32 = 6;
/// `TC_LINKLAYER_ETHERNET`: the kernel computes the time of a packet itself and needs no table.
const LINKLAYER_ETHERNET: u8 = 1;

/// tc(8)'s limit where none is given; the kernel's own would be no packet at all.
const NETEM_LIMIT: u32 = 1_000;

/// The value of `TCA_OPTIONS`; `None` where the discipline has none.
pub(super) fn encode(qdisc: &Qdisc) -> Result<Option<Vec<u8>>, String> {
    if qdisc.is_opaque() || qdisc.kind().is_empty() {
        return Err(format!("`{qdisc}` is no queue discipline that latput can set"));
    }
    let number = |name| qdisc.parameter(name).map(|value| number_of(value, name)).transpose();
    match qdisc.kind() {
        "pfifo" | "bfifo" => Ok(number("limit")?.map(|limit| limit.to_ne_bytes().to_vec())),
        "tbf" => encode_tbf(qdisc).map(Some),
        "netem" => encode_netem(qdisc).map(Some),
        kind => match FLAT.iter().find(|(name, _)| *name == kind) {
            Some((_, fields)) => encode_flat(qdisc, fields).map(Some),
            None => Ok(None),
        },
    }
}

/// From the value of `TCA_OPTIONS`; opaque where it holds what latput could not put back.
pub(super) fn decode(kind: &str, options: &[u8]) -> Result<Qdisc, Malformed> {
    let qdisc = Qdisc::from_kind(kind);
    match kind {
        "pfifo" | "bfifo" => decode_fifo(qdisc, options),
        "tbf" => decode_tbf(qdisc, options),
        "netem" => decode_netem(qdisc, options),
        kind => match FLAT.iter().find(|(name, _)| *name == kind) {
            Some((_, fields)) => decode_flat(qdisc, fields, options),
            None => Ok(qdisc),
        },
    }
}

/// A count, size, time in microseconds or switch as the kernel's 32 bits.
fn number_of(value: ParameterValue, name: &str) -> Result<u32, String> {
    let number = match value {
        ParameterValue::Count(count) => count,
        ParameterValue::Size(size) => size.get(),
        ParameterValue::Time(time) => time.as_ns() / 1_000,
        ParameterValue::Switch(on) => u64::from(on),
        ParameterValue::Rate(rate) => rate.get() / 8,
        ParameterValue::Share(millionths) => {
            (u64::from(millionths) * u64::from(u32::MAX) + 500_000) / 1_000_000
        }
    };
    u32::try_from(number).map_err(|_| format!("{name}={value} is too large for the kernel"))
}

fn encode_flat(qdisc: &Qdisc, fields: &[(u16, &str, Field)]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    for (attribute, name, field) in fields {
        let Some(value) = qdisc.parameter(name) else { continue };
        let number = match (field, value) {
            (Field::Ns, ParameterValue::Time(time)) => u32::try_from(time.as_ns())
                .map_err(|_| format!("{name}={value} is too large for the kernel"))?,
            (Field::Log2, ParameterValue::Count(count)) if count.is_power_of_two() => count.ilog2(),
            (Field::Log2, _) => return Err(format!("{name}={value} is not a power of two")),
            _ => number_of(value, name)?,
        };
        match field {
            Field::Flag8 => put(&mut bytes, *attribute, &[u8::from(number != 0)]),
            _ => put(&mut bytes, *attribute, &number.to_ne_bytes()),
        }
    }
    Ok(bytes)
}

fn decode_flat(
    mut qdisc: Qdisc,
    fields: &[(u16, &str, Field)],
    options: &[u8],
) -> Result<Qdisc, Malformed> {
    let mut is_opaque = false;
    for attribute in Attributes::new(options) {
        let attribute = attribute?;
        let Some((_, name, field)) = fields.iter().find(|(kind, ..)| *kind == attribute.kind)
        else {
            is_opaque |= !is_default(qdisc.kind(), attribute);
            continue;
        };
        let number = if *field == Field::Flag8 {
            u32::from(attribute.as_u8()?)
        } else {
            attribute.as_u32()?
        };
        let is_fq = qdisc.kind() == "fq";
        let value = match field {
            Field::Count => ParameterValue::Count(number.into()),
            Field::Size => ParameterValue::Size(Bytes::new(number.into())),
            Field::Us if is_fq && *name == "ce_threshold" && number == FQ_NO_THRESHOLD_US => {
                continue;
            }
            Field::Us => ParameterValue::Time(Nanos::from_us(number.into())),
            Field::Ns => ParameterValue::Time(Nanos::from_ns(number.into())),
            Field::ByteRate if number == u32::MAX => continue,
            Field::ByteRate => ParameterValue::Rate(BitsPerSecond::new(u64::from(number) * 8)),
            Field::Flag32 | Field::Flag8 => ParameterValue::Switch(number != 0),
            Field::Log2 => ParameterValue::Count(1_u64.checked_shl(number).unwrap_or(0)),
        };
        qdisc.set(name, value);
    }
    Ok(if is_opaque { qdisc.into_opaque() } else { qdisc })
}

/// Whether an attribute that latput does not know holds what a new discipline has.
fn is_default(kind: &str, attribute: Attribute<'_>) -> bool {
    match (kind, attribute.kind) {
        ("fq", uapi::TCA_FQ_PRIOMAP) => attribute.payload == fq_priomap(),
        ("fq", uapi::TCA_FQ_WEIGHTS) => {
            let weights = FQ_WEIGHTS.iter().flat_map(|weight| weight.to_ne_bytes());
            attribute.payload.iter().copied().eq(weights)
        }
        _ => attribute.payload.iter().all(|byte| *byte == 0),
    }
}

/// `struct tc_prio_qopt` of fq's three bands (`sch_default_prio2band`).
fn fq_priomap() -> Vec<u8> {
    let mut bytes = 3_i32.to_ne_bytes().to_vec();
    bytes.extend([1, 2, 2, 2, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1]);
    bytes
}

fn decode_fifo(mut qdisc: Qdisc, options: &[u8]) -> Result<Qdisc, Malformed> {
    let limit = word(options, 0).ok_or(malformed("a fifo without its limit"))?;
    qdisc.set(
        "limit",
        if qdisc.kind() == "bfifo" {
            ParameterValue::Size(Bytes::new(limit.into()))
        } else {
            ParameterValue::Count(limit.into())
        },
    );
    Ok(qdisc)
}

/// The four bytes at a word's place.
fn word(bytes: &[u8], idx: usize) -> Option<u32> {
    let (words, _) = bytes.as_chunks::<4>();
    words.get(idx).copied().map(u32::from_ne_bytes)
}

/// `struct tc_ratespec` of a rate in bytes a second.
fn ratespec(bytes_per_second: u64) -> [u8; 12] {
    let mut spec = [0; 12];
    spec[1] = LINKLAYER_ETHERNET;
    let rate = u32::try_from(bytes_per_second).unwrap_or(u32::MAX);
    spec[8..].copy_from_slice(&rate.to_ne_bytes());
    spec
}

fn bytes_per_second(qdisc: &Qdisc, name: &str) -> Option<u64> {
    match qdisc.parameter(name) {
        Some(ParameterValue::Rate(rate)) => Some(rate.get() / 8),
        _ => None,
    }
}

fn size(qdisc: &Qdisc, name: &str) -> Result<Option<u32>, String> {
    qdisc.parameter(name).map(|value| number_of(value, name)).transpose()
}

fn encode_tbf(qdisc: &Qdisc) -> Result<Vec<u8>, String> {
    let rate = bytes_per_second(qdisc, "rate").filter(|rate| *rate > 0);
    let rate = rate.ok_or("tbf needs a rate above 0")?;
    let peak = bytes_per_second(qdisc, "peakrate").filter(|rate| *rate > 0);
    let burst = size(qdisc, "burst")?.ok_or("tbf needs a burst")?;
    let limit = size(qdisc, "limit")?.ok_or("tbf needs a limit")?;
    let minburst = size(qdisc, "minburst")?;
    if peak.is_some() && minburst.is_none() {
        return Err("tbf with peakrate needs minburst".to_owned());
    }
    let [buffer, mtu] = [(Some(burst), Some(rate)), (minburst, peak)]
        .map(|(size, rate)| size.zip(rate).map(|(size, rate)| burst_ticks(size, rate)));
    // struct tc_tbf_qopt: rate, peakrate, limit, buffer, mtu; a size that is sent too takes the place of its time.
    let mut parms = Vec::new();
    parms.extend_from_slice(&ratespec(rate));
    parms.extend_from_slice(&peak.map_or([0; 12], ratespec));
    parms.extend_from_slice(&limit.to_ne_bytes());
    for ticks in [buffer, mtu] {
        parms.extend_from_slice(&ticks.flatten().unwrap_or(0).to_ne_bytes());
    }
    let mut bytes = Vec::new();
    put(&mut bytes, uapi::TCA_TBF_PARMS, &parms);
    if buffer == Some(None) {
        put(&mut bytes, uapi::TCA_TBF_BURST, &burst.to_ne_bytes());
    }
    if rate > u64::from(u32::MAX) {
        put(&mut bytes, uapi::TCA_TBF_RATE64, &rate.to_ne_bytes());
    }
    if let Some(peak) = peak {
        if let (Some(None), Some(minburst)) = (mtu, minburst) {
            put(&mut bytes, uapi::TCA_TBF_PBURST, &minburst.to_ne_bytes());
        }
        if peak > u64::from(u32::MAX) {
            put(&mut bytes, uapi::TCA_TBF_PRATE64, &peak.to_ne_bytes());
        }
    }
    Ok(bytes)
}

/// The ticks that a burst takes at a rate, rounded up: [`burst_size`] gives the burst again, and the burst of some ticks gives
/// these. `None` if the kernel could not hold them (`PSCHED_TICKS2NS` in `tbf_change`, `net/sched/sch_tbf.c`).
fn burst_ticks(burst: u32, rate: u64) -> Option<u32> {
    let ns = u128::from(burst) * 1_000_000_000;
    let ticks = u32::try_from(ns.div_ceil(u128::from(rate) << TICK_SHIFT)).ok()?;
    u32::try_from(u64::from(ticks) << TICK_SHIFT).is_ok().then_some(ticks)
}

/// The bytes of a burst that takes so many ticks. A tick of more than half a byte is rounded down, as [`burst_ticks`] rounds up;
/// of a shorter one the nearest is right, whether the kernel or latput has rounded.
fn burst_size(ticks: u32, rate: u64) -> u64 {
    let bytes = (u128::from(ticks) << TICK_SHIFT) * u128::from(rate);
    let is_short = u128::from(rate) << TICK_SHIFT <= 500_000_000;
    let half = if is_short { 500_000_000 } else { 0 };
    u64::try_from((bytes + half) / 1_000_000_000).unwrap_or(u64::MAX)
}

fn decode_tbf(mut qdisc: Qdisc, options: &[u8]) -> Result<Qdisc, Malformed> {
    let parms = Attributes::new(options).find_kind(uapi::TCA_TBF_PARMS)?;
    let parms = parms.ok_or(malformed("tbf without its parameters"))?.payload;
    let at = |idx| word(parms, idx).ok_or(malformed("tbf's parameters are cut short"));
    // struct tc_ratespec: cell_log, linklayer, overhead, cell_align, mpu, rate.
    let is_plain = |from: usize| {
        let spec = parms.get(from..from + 8).unwrap_or_default();
        matches!(spec, [_, 0 | LINKLAYER_ETHERNET, 0, 0, _, _, 0, 0])
    };
    let mut is_opaque = !is_plain(0) || !is_plain(12);
    for attribute in Attributes::new(options) {
        let attribute = attribute?;
        is_opaque |= !matches!(
            attribute.kind,
            uapi::TCA_TBF_PARMS
                | uapi::TCA_TBF_BURST
                | uapi::TCA_TBF_PBURST
                | uapi::TCA_TBF_RATE64
                | uapi::TCA_TBF_PRATE64
                | uapi::TCA_TBF_PAD
        ) && !is_default("tbf", attribute);
    }
    let wide = |kind| -> Result<Option<u64>, Malformed> {
        Attributes::new(options).find_kind(kind)?.map(|attribute| attribute.as_u64()).transpose()
    };
    let rate = wide(uapi::TCA_TBF_RATE64)?.unwrap_or(at(2)?.into());
    let peak = wide(uapi::TCA_TBF_PRATE64)?.unwrap_or(at(5)?.into());
    let limit = at(6)?;
    let buffer = at(7)?;
    let mtu = at(8)?;
    // The kernel keeps a burst as the time that it takes at the rate.
    let burst = |ticks, rate| ParameterValue::Size(Bytes::new(burst_size(ticks, rate)));
    qdisc.set("rate", ParameterValue::Rate(BitsPerSecond::new(rate.saturating_mul(8))));
    qdisc.set("burst", burst(buffer, rate));
    qdisc.set("limit", ParameterValue::Size(Bytes::new(limit.into())));
    if peak > 0 {
        qdisc.set("peakrate", ParameterValue::Rate(BitsPerSecond::new(peak.saturating_mul(8))));
        qdisc.set("minburst", burst(mtu, peak));
    }
    Ok(if is_opaque { qdisc.into_opaque() } else { qdisc })
}

fn encode_netem(qdisc: &Qdisc) -> Result<Vec<u8>, String> {
    let time = |name| match qdisc.parameter(name) {
        Some(ParameterValue::Time(time)) => time.as_ns(),
        _ => 0,
    };
    let (delay, jitter) = (time("delay"), time("jitter"));
    let ticks = |ns: u64| u32::try_from(ns >> TICK_SHIFT).unwrap_or(u32::MAX);
    let limit = size(qdisc, "limit")?.unwrap_or(NETEM_LIMIT);
    let [loss, duplicate] = ["loss", "duplicate"].map(|name| size(qdisc, name));
    // struct tc_netem_qopt: latency, limit, loss, gap, duplicate, jitter.
    let words =
        [ticks(delay), limit, loss?.unwrap_or(0), 0, duplicate?.unwrap_or(0), ticks(jitter)];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    put(&mut bytes, uapi::TCA_NETEM_LATENCY64, &delay.to_ne_bytes());
    put(&mut bytes, uapi::TCA_NETEM_JITTER64, &jitter.to_ne_bytes());
    if let Some(rate) = bytes_per_second(qdisc, "rate") {
        let low = u32::try_from(rate).unwrap_or(u32::MAX);
        // struct tc_netem_rate: rate, overheads, cell size.
        let words = [low, 0, 0, 0];
        let spec: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        put(&mut bytes, uapi::TCA_NETEM_RATE, &spec);
        if low == u32::MAX {
            put(&mut bytes, uapi::TCA_NETEM_RATE64, &rate.to_ne_bytes());
        }
    }
    Ok(bytes)
}

fn decode_netem(mut qdisc: Qdisc, options: &[u8]) -> Result<Qdisc, Malformed> {
    let short = malformed("netem's parameters are cut short");
    let at = |idx| word(options, idx).ok_or(short);
    let share = |raw: u32| {
        let millionths =
            (u64::from(raw) * 1_000_000 + u64::from(u32::MAX) / 2) / u64::from(u32::MAX);
        ParameterValue::Share(u32::try_from(millionths).unwrap_or(1_000_000))
    };
    let mut delay = u64::from(at(0)?) << TICK_SHIFT;
    let mut jitter = u64::from(at(5)?) << TICK_SHIFT;
    let mut rate = 0;
    // A gap reorders; so do the parts below, of which latput knows nothing but that they are there.
    let mut is_opaque = at(3)? != 0;
    let is_set = |attribute: Attribute<'_>| attribute.payload.iter().any(|byte| *byte != 0);
    for attribute in Attributes::new(options.get(24..).ok_or(short)?) {
        let attribute = attribute?;
        match attribute.kind {
            uapi::TCA_NETEM_LATENCY64 => delay = attribute.as_u64()?,
            uapi::TCA_NETEM_JITTER64 => jitter = attribute.as_u64()?,
            uapi::TCA_NETEM_RATE => {
                is_opaque |=
                    attribute.payload.get(4..).is_some_and(|rest| rest.iter().any(|b| *b != 0));
                rate = rate.max(word(attribute.payload, 0).ok_or(short)?.into());
            }
            uapi::TCA_NETEM_RATE64 => rate = attribute.as_u64()?,
            uapi::TCA_NETEM_CORR
            | uapi::TCA_NETEM_REORDER
            | uapi::TCA_NETEM_CORRUPT
            | uapi::TCA_NETEM_LOSS
            | uapi::TCA_NETEM_ECN
            | uapi::TCA_NETEM_SLOT => {
                is_opaque |= is_set(attribute);
            }
            // The kernel draws one where none is given.
            uapi::TCA_NETEM_PRNG_SEED | uapi::TCA_NETEM_PAD => {}
            _ => is_opaque |= is_set(attribute),
        }
    }
    qdisc.set("limit", ParameterValue::Count(at(1)?.into()));
    qdisc.set("delay", ParameterValue::Time(Nanos::from_ns(delay)));
    qdisc.set("jitter", ParameterValue::Time(Nanos::from_ns(jitter)));
    qdisc.set("loss", share(at(2)?));
    qdisc.set("duplicate", share(at(4)?));
    if rate > 0 {
        qdisc.set("rate", ParameterValue::Rate(BitsPerSecond::new(rate.saturating_mul(8))));
    }
    Ok(if is_opaque { qdisc.into_opaque() } else { qdisc })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_survive_the_kernels_layouts() {
        for text in [
            "pfifo limit=100",
            "bfifo limit=100000B",
            "codel limit=1000 target=5ms interval=100ms ecn=off ce_threshold=1ms",
            "fq_codel limit=10240 flows=1024 quantum=1514B target=5ms interval=100ms \
             memory_limit=33554432B drop_batch=64 ecn=on",
            "fq limit=10000 flow_limit=100 buckets=1024 quantum=3028B initial_quantum=15140B \
             pacing=on maxrate=1Gbps refill_delay=40ms timer_slack=10us horizon=10s horizon_drop=on",
            "netem limit=1000 delay=10ms jitter=1ms loss=0.1% duplicate=100% rate=1Gbps",
            "netem limit=1 delay=0us jitter=0us loss=0% duplicate=0% rate=100Gbps",
            "noqueue",
            "mq",
            "pfifo_fast",
        ] {
            let qdisc: Qdisc = text.parse().unwrap();
            let options = encode(&qdisc).unwrap().unwrap_or_default();
            assert_eq!(decode(qdisc.kind(), &options).unwrap().to_string(), text);
        }
    }

    #[test]
    fn token_bucket_comes_back_as_a_time() {
        let qdisc: Qdisc = "tbf rate=100Mbps burst=32000 limit=64000".parse().unwrap();
        let options = encode(&qdisc).unwrap().unwrap();
        let mut answer = options[4..40].to_vec();
        // 32000 bytes at 12.5 MB/s are 2.56 ms, 40000 ticks.
        answer[28..32].copy_from_slice(&40_000_u32.to_ne_bytes());
        let mut bytes = Vec::new();
        put(&mut bytes, uapi::TCA_TBF_PARMS, &answer);
        let read = decode("tbf", &bytes).unwrap();
        assert_eq!(read.to_string(), "tbf rate=100Mbps burst=32000B limit=64000B");
        assert!(read.is_same(&qdisc));
        assert!(decode("tbf", &bytes[..30]).is_err() && decode("tbf", &[]).is_err());
    }

    #[test]
    fn unrestorable_qdisc_is_opaque() {
        let qdisc: Qdisc = "netem delay=1ms".parse().unwrap();
        let mut options = encode(&qdisc).unwrap().unwrap();
        put(&mut options, uapi::TCA_NETEM_CORR, &[0; 12]);
        assert!(!decode("netem", &options).unwrap().is_opaque());
        put(&mut options, uapi::TCA_NETEM_REORDER, &[1, 0, 0, 0, 0, 0, 0, 0]);
        assert!(decode("netem", &options).unwrap().is_opaque());
        assert!(decode("cake", &[1, 2, 3]).unwrap().is_opaque());
        // Attributes that latput does not know, unless they hold what a new discipline has.
        let with = |text: &str, attribute: u16, payload: &[u8]| {
            let qdisc: Qdisc = text.parse().unwrap();
            let mut options = encode(&qdisc).unwrap().unwrap_or_default();
            put(&mut options, attribute, payload);
            decode(qdisc.kind(), &options).unwrap().is_opaque()
        };
        let weights: Vec<u8> = FQ_WEIGHTS.iter().flat_map(|weight| weight.to_ne_bytes()).collect();
        assert!(!with("fq", uapi::TCA_FQ_WEIGHTS, &weights));
        assert!(with("fq", uapi::TCA_FQ_WEIGHTS, &[1; 12]));
        assert!(!with("fq", uapi::TCA_FQ_PRIOMAP, &fq_priomap()));
        assert!(with("fq", uapi::TCA_FQ_PRIOMAP, &[2; 20]));
        let selector = uapi::TCA_FQ_CODEL_CE_THRESHOLD_SELECTOR;
        assert!(!with("fq_codel", selector, &[0]) && with("fq_codel", selector, &[1]));
        assert!(!with("codel", 99, &[0; 4]) && with("codel", 99, &[0, 1]));
        // struct tc_ratespec: linklayer at 1, overhead at 2.
        let tbf = |at: usize, byte: u8| {
            let qdisc: Qdisc = "tbf rate=100Mbps burst=32000 limit=64000".parse().unwrap();
            let mut options = encode(&qdisc).unwrap().unwrap();
            options[4 + at] = byte;
            decode("tbf", &options).unwrap().is_opaque()
        };
        assert!(!tbf(1, 1) && tbf(1, 2) && tbf(2, 24) && tbf(6, 64) && tbf(13, 2) && tbf(14, 4));
        assert!(encode(&Qdisc::from_kind("cake")).is_err());
    }

    #[test]
    fn values_beyond_the_kernels_units_are_refused() {
        for text in [
            "fq buckets=1000",
            "pfifo limit=4294967296",
            "fq timer_slack=5s",
            "tbf rate=0 burst=1 limit=1",
            "tbf rate=1Mbps burst=1 limit=1 peakrate=2Mbps",
        ] {
            assert!(encode(&text.parse().unwrap()).is_err(), "{text}");
        }
    }

    #[test]
    fn unlimited_values_are_left_out() {
        let mut options = Vec::new();
        put(&mut options, uapi::TCA_FQ_FLOW_MAX_RATE, &u32::MAX.to_ne_bytes());
        put(&mut options, uapi::TCA_FQ_CE_THRESHOLD, &FQ_NO_THRESHOLD_US.to_ne_bytes());
        assert_eq!(decode("fq", &options).unwrap().to_string(), "fq");
    }

    #[test]
    fn bursts_survive_as_ticks() {
        for rate in
            [125, 1_000, 125_000, 1_250_000, 12_500_000, 125_000_000, 1_250_000_000, 12_500_000_000]
        {
            for burst in [1, 1_500, 1_514, 1_515, 9_014, 32_000, 131_072, 1 << 20] {
                let Some(ticks) = burst_ticks(burst, rate) else { continue };
                let size = burst_size(ticks, rate);
                assert!(size >= u64::from(burst), "{burst} at {rate}: {size}");
                let again = u32::try_from(size).unwrap();
                assert_eq!(burst_ticks(again, rate), Some(ticks), "{burst} at {rate}");
            }
            // Ticks that the kernel has made of the sizes of tc.
            for ticks in [1, 2, 3, 10, 157, 1_600, 40_000] {
                let Ok(size) = u32::try_from(burst_size(ticks, rate)) else { continue };
                let once = burst_ticks(size, rate).unwrap();
                assert_eq!(burst_size(once, rate), u64::from(size), "{ticks} at {rate}");
                if rate << TICK_SHIFT >= 1_000_000_000 {
                    assert_eq!(once, ticks, "at {rate}");
                }
            }
        }
    }
}
