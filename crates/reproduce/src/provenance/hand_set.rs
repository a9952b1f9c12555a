//! The constants set by hand with published figures in view. Constants from a text or a driver's
//! source, and round figures without effect on a row, are left out.

use latput_calibrate::parameter::{ACK_SHARE, BARE_SHARE, SENT_REMOTE_RATIO};
use latput_calibrate::{FixedParameter, Parameter};
use latput_sim::SystemProfile;
use schemars::JsonSchema;
use serde::Serialize;

use crate::calibrate::FitPlan;
use crate::delay_mtu::{NFS_SERVER, PROFILE as SLIDES_PROFILE};
use crate::experiment::{epoll_server as suspension, fq_codel as matrix};
use crate::system::SystemCatalog;

/// A constant that was chosen by hand to meet published rows.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HandSet {
    /// Its name in the code, or its key in the file.
    pub constant: String,
    /// Its value with the unit.
    pub value: String,
    /// The file of the constant.
    pub place: String,
    /// The tables, runs, rows or claims that it was chosen to match; empty for all rows of the fit.
    pub meets: Vec<&'static str>,
}

const PLANS: &str = "data/calibration.toml";
const MACHINES: &str = "data/machines.toml";
const MATRIX: &str = "crates/reproduce/src/experiment/fq_codel.rs";
const SHARES: &str = "crates/calibrate/src/parameter.rs";
const SUSPENSION: &str = "crates/reproduce/src/experiment/epoll_server.rs";
const SLIDES: &str = "crates/reproduce/src/delay_mtu/scenario.rs";

/// Claims that follow from the three coefficients of the slides' cost model.
const FROM_COSTS: [&str; 13] = [
    "T088", "T093", "T094", "T095", "T096", "T097", "T098", "T099", "T100", "T101", "T102", "T103",
    "T104",
];

/// The tables of bound processes.
const B_TABLES: [&str; 12] = [
    "B1_single",
    "B2_single",
    "B3_single",
    "B1_agg",
    "B2_agg",
    "B3_agg",
    "B1_bidir32k",
    "B2_bidir32k",
    "B3_bidir32k",
    "B1_stream",
    "B2_stream",
    "B3_stream",
];

fn make_constant(
    constant: &str,
    value: impl ToString,
    place: &str,
    meets: &[&'static str],
) -> HandSet {
    HandSet {
        constant: constant.to_owned(),
        value: value.to_string(),
        place: place.to_owned(),
        meets: meets.to_vec(),
    }
}

/// The hand-set constants of a profile: fixed costs of its plan, and those of its file and of the
/// code.
pub(super) fn hand_set_keys(
    profile: &SystemProfile,
    plan: Option<&FitPlan>,
    systems: &SystemCatalog,
) -> Vec<HandSet> {
    let file = format!("data/systems/{}.toml", profile.name);
    let given = plan.into_iter().flat_map(|plan| &plan.fixed);
    let given = given.map(|FixedParameter { parameter, value }| {
        let value = format!("{value} {}", parameter.unit());
        make_constant(&parameter.to_string(), value, PLANS, &[])
    });
    let mut all: Vec<HandSet> = given.collect();
    all.extend(of_file(profile, &file));
    all.extend(match profile.name.as_str() {
        "hs22-ixgbe" => of_matrix(),
        SLIDES_PROFILE => vec![make_constant("NFS_SERVER", NFS_SERVER, SLIDES, &["T072"])],
        "memcached-mlx5" => of_suspension(),
        _ => Vec::new(),
    });
    let frames = systems.machines().filter(|machine| machine.profile == profile.name);
    let frames = frames.filter_map(|machine| machine.others_rx_frames);
    all.extend(frames.map(|frames| make_constant("others_rx_frames", frames, MACHINES, &["S07"])));
    all.extend(plan.into_iter().flat_map(of_shares));
    all
}

/// The constants of the profile's file.
fn of_file(profile: &SystemProfile, file: &str) -> Vec<HandSet> {
    let machine = &profile.sut.machine;
    let (nic, stack) = (&profile.sut.nic, &profile.sut.stack);
    let mut all = Vec::new();
    if let Some(wait) = machine.steal_after {
        all.push(make_constant("steal_after_ns", wait, file, &[]));
    }
    let clock = || format!("{} ppm, the others' the opposite", machine.clock_ppm);
    match profile.name.as_str() {
        "bl25p-tg3" => {
            all.push(make_constant("receive_buffer_bytes", stack.receive_buffer, file, &["S07"]));
        }
        "dragonfly-em" => {
            all.push(make_constant("network.rate_bps", profile.network.rate, file, &["idle"]));
        }
        "freebsd-em" => {
            all.push(make_constant("generator.machine.costs", "the client's", file, &[]));
        }
        "memcached-mlx5" => {
            let jitter = profile.network.latency_jitter_ratio;
            all.push(make_constant("idle_exit_ns", machine.idle_exit, file, &[]));
            all.push(make_constant("latency_jitter_ratio", jitter, file, &[]));
            all.push(make_constant("syscall_ns", machine.costs.syscall, file, &[]));
            all.push(make_constant("timer_arm_ns", machine.costs.timer_arm, file, &[]));
            all.push(make_constant("user_ns", machine.costs.user, file, &[]));
        }
        "rx1600-e1000" => {
            let interval = nic.coalescing.throttle.interval();
            all.push(make_constant("clock_ppm", clock(), file, &["A01", "R01"]));
            all.push(make_constant("throttle.interval_ns", interval, file, &["A01", "R01"]));
        }
        "rx1620-e1000-7" => {
            let single = ["B1_single", "B2_single", "B3_single"];
            all.push(make_constant("clock_ppm", clock(), file, &single));
        }
        "rx1600-tg3-2.6.12" => {
            let delay = format!("{}, {} frames", nic.coalescing.rx.delay, nic.coalescing.rx.frames);
            all.push(make_constant("coalescing.rx", delay, file, &["A09"]));
        }
        SLIDES_PROFILE => {
            let costs = &machine.costs;
            let packet = costs.backlog_packet + costs.rx_merged;
            let of_coefficient = |claim| [&[claim], &FROM_COSTS[..]].concat();
            all.push(make_constant(
                "copy_ns_per_kib",
                costs.copy_per_kib,
                file,
                &of_coefficient("T083"),
            ));
            all.push(make_constant(
                "backlog_packet_ns + rx_merged_ns",
                packet,
                file,
                &of_coefficient("T084"),
            ));
            all.push(make_constant("interrupt_ns", costs.interrupt, file, &of_coefficient("T085")));
            all.push(make_constant("ack_ns", costs.ack, file, &["T106"]));
            let window = stack.receive_buffer;
            all.push(make_constant(
                "receive_buffer_bytes",
                window,
                file,
                &["T077", "T078", "T080"],
            ));
        }
        _ => {}
    }
    all
}

/// The constants of the matrix: the queue before the NIC, and the replacement of the collapse with
/// spread receive work.
fn of_matrix() -> Vec<HandSet> {
    let code = |constant, value: &dyn ToString, meets| {
        make_constant(constant, value.to_string(), MATRIX, meets)
    };
    vec![
        code("FIFO_BYTES", &matrix::FIFO_BYTES, &["Q02"]),
        code("FIFO_BEHIND_BQL_BYTES", &matrix::FIFO_BEHIND_BQL_BYTES, &["Q04"]),
        code("SPREAD_WINDOW", &matrix::SPREAD_WINDOW, &["Q01", "Q06", "Q23"]),
        code("SPREAD_FIFO", &matrix::SPREAD_FIFO, &["Q01"]),
        code("SPREAD_FIFO_RPS", &matrix::SPREAD_FIFO_RPS, &["Q23"]),
        code("SPREAD_FAIR", &matrix::SPREAD_FAIR, &["Q06"]),
        code("SPREAD_SERVER", &matrix::SPREAD_SERVER, &["Q06"]),
        code("SPREAD_SERVER_RPS", &matrix::SPREAD_SERVER_RPS, &["Q19"]),
    ]
}

/// The constants of the experiment on suspended interrupts.
fn of_suspension() -> Vec<HandSet> {
    vec![
        make_constant("CONNECTIONS", suspension::CONNECTIONS, SUSPENSION, &[]),
        make_constant("QUIET_RATE_HZ", suspension::QUIET_RATE_HZ, SUSPENSION, &[]),
        make_constant("QUIET_SHARE", suspension::QUIET_SHARE, SUSPENSION, &[]),
    ]
}

/// Fixed ratios of costs to fitted ones.
fn of_shares(plan: &FitPlan) -> Vec<HandSet> {
    let is_free = |wanted| plan.free.iter().any(|free| free.parameter == wanted);
    let mut all = Vec::new();
    if is_free(Parameter::RxPacket) {
        all.push(make_constant("BARE_SHARE", BARE_SHARE, SHARES, &["S03"]));
    }
    if is_free(Parameter::Remote) {
        all.push(make_constant("SENT_REMOTE_RATIO", SENT_REMOTE_RATIO, SHARES, &[]));
    }
    if is_free(Parameter::TxPacket) && !is_free(Parameter::Ack) {
        all.push(make_constant("ACK_SHARE", ACK_SHARE, SHARES, &B_TABLES));
    }
    all
}
