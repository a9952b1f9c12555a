//! Requests and responses of one byte: many instances from several generators, one instance, or
//! two.

use latput_sim::scenario::{Load, TrafficKind, Transport};
use latput_units::{Bytes, Nanos};

use super::{NetworkExperiment, OTHER, ReportedFigures, SUT, behind_switch, build_hosts};
use crate::row::{CsvRow, RowError, whole_number};
use crate::system::{PublishedMachine, SystemCatalog};

/// netperf's `-b`.
const BURSTS: std::ops::RangeInclusive<u32> = 0..=10_000;
const INSTANCES: std::ops::RangeInclusive<u32> = 1..=64;

/// One instance of netperf with messages of one size.
pub(super) fn build_request_load(from: usize, to: usize, bytes: u64, burst: u32) -> Load {
    let traffic = TrafficKind::RequestResponse {
        transport: Transport::Tcp { nodelay: true },
        request: Bytes::new(bytes),
        response: Bytes::new(bytes),
        burst,
        connections: 1,
        think: Nanos::ZERO,
    };
    Load::new(from, to, traffic)
}

/// Instances on the generators in turn, toward the measured system.
pub(super) fn build_aggregate_experiment(
    row: &CsvRow<'_>,
    systems: &SystemCatalog,
) -> Result<NetworkExperiment, RowError> {
    let (machine, profile) = systems.for_row(row)?;
    let burst = row.parse_required_whole("first_burst", BURSTS)?;
    let instances = row.parse_required_whole("concurrent", INSTANCES)?;
    let generators = count_generators(row, machine)?.min(instances) as usize;
    let [sut, generator] = build_hosts(row, (machine, profile), false)?;
    let mut all = vec![sut];
    all.extend(std::iter::repeat_n(generator, generators));
    let loads = (0..instances as usize)
        .map(|instance| build_request_load(OTHER + instance % generators, SUT, 1, burst))
        .collect();
    Ok(NetworkExperiment {
        scenario: behind_switch(profile, all, loads),
        reading: ReportedFigures::Transactions,
    })
}

/// The number of generators: a number, a range (as many as instances, up to its end), or the
/// machine's usual number.
fn count_generators(row: &CsvRow<'_>, machine: &PublishedMachine) -> Result<u32, RowError> {
    let text = row.text("load_generators");
    if text.is_empty() {
        return Ok(machine.generators);
    }
    let most = text.rsplit('-').next().unwrap_or(text);
    let count = whole_number::<u32>(most.trim());
    count.filter(|count| (1..=64).contains(count)).ok_or_else(|| {
        row.field_error(
            "load_generators",
            format!("`{text}` must be a number from 1 to 64, or a range"),
        )
    })
}

/// netperf runs on the measured system, towards the other one.
pub(super) fn build_single_experiment(
    row: &CsvRow<'_>,
    systems: &SystemCatalog,
) -> Result<NetworkExperiment, RowError> {
    let (machine, profile) = systems.for_row(row)?;
    let burst = row.parse_required_whole("first_burst", BURSTS)?;
    let instances = row.parse_required_whole("concurrent", INSTANCES)?;
    let loads = (0..instances).map(|_| build_request_load(SUT, OTHER, 1, burst)).collect();
    let hosts = build_hosts(row, (machine, profile), false)?.into();
    let mut scenario = behind_switch(profile, hosts, loads);
    // One transaction at a time needs a longer window.
    scenario.duration = Nanos::from_ms(400);
    Ok(NetworkExperiment { scenario, reading: ReportedFigures::Transactions })
}

/// Two instances between two hosts, each on its own CPU. The rows report each and their sum.
pub(super) fn two_concurrent(
    row: &CsvRow<'_>,
    systems: &SystemCatalog,
) -> Result<NetworkExperiment, RowError> {
    let (machine, profile) = systems.for_row(row)?;
    let burst = burst_in_words(row, row.text("workload")).unwrap_or(128);
    let which = match row.text("row") {
        "total" => None,
        "instance" => match row.parse_whole("instance", 1..=2)? {
            Some(instance) => Some(instance as usize - 1),
            None => return Err(row.field_error("instance", "is empty; it must be 1 or 2")),
        },
        other => {
            return Err(row.field_error("row", format!("`{other}` must be `instance` or `total`")));
        }
    };
    // One saturates the CPU without interrupts; the other gets the rest of the CPU with them. The
    // published rates differ by more than a factor of two, so neither process moved.
    let bound = |core| Load {
        from_core: Some(core),
        to_core: Some(core),
        ..build_request_load(SUT, OTHER, 1, burst)
    };
    let loads = (0..2).map(bound).collect();
    let hosts = build_hosts(row, (machine, profile), false)?.into();
    let scenario = behind_switch(profile, hosts, loads);
    Ok(NetworkExperiment { scenario, reading: ReportedFigures::Instance(which) })
}

/// The number after `first burst`, or after `-b` of netperf's options.
pub(super) fn burst_in_words(row: &CsvRow<'_>, words: &str) -> Option<u32> {
    let number = |text: &str, after: &str| {
        let rest = text.split_once(after)?.1.trim_start();
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    };
    number(words, "first burst ").or_else(|| number(row.text("netperf_options"), " -b "))
}
