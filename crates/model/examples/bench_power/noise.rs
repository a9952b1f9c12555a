//! Recorded noise: slices or trials of equal settings, by workload, in the order of time.

use std::collections::BTreeMap;

use latput_trial::{Traffic, Workload};
use latput_units::SeededRng;

use crate::synthetic::{rr_workload, stream_workload};

/// How many consecutive rounds are drawn together, so that slow drift and slow runs stay in: with five
/// settings of 250 ms, a stint of 10 s.
pub(crate) const STRETCH: usize = 8;

/// Rate, p99 (of round trips, or of the probe beside bulk) in nanoseconds, service demand.
pub(crate) type Figures = [f64; 3];

/// One workload's recording: whole rounds, each with its figures in the order of time.
pub(crate) struct NoiseRecording {
    pub(crate) workload: Workload,
    rounds: Vec<Vec<Figures>>,
}

/// Reads `design,time_s,workload,block,position,metric,value`: every workload that has round trips.
pub(crate) fn read(csv: &str) -> Vec<NoiseRecording> {
    let burst = Workload::plain("tcp_rr burst=16", Traffic::tcp_rr(16));
    let known = [rr_workload("tcp_rr"), burst, stream_workload("tcp_stream")];
    let noise = known.into_iter().map(|workload| {
        let names = if workload.traffic.is_transactional() {
            ["transactions_per_s", "latency_ns_p99", "sut_service_demand_us"]
        } else {
            ["throughput_bps", "probe_ns_p99", "sut_service_demand_us"]
        };
        let mut rounds: BTreeMap<u32, BTreeMap<u32, Figures>> = BTreeMap::new();
        for line in csv.lines().skip(1) {
            let [_, _, name, block, position, metric, value] =
                <[&str; 7]>::try_from(line.split(',').collect::<Vec<_>>()).expect("seven columns");
            let place = names.iter().position(|one| *one == metric);
            if let Some(place) = place.filter(|_| name == workload.name) {
                let number = |text: &str| text.parse().expect("a number");
                let round = rounds.entry(number(block)).or_default();
                round.entry(number(position)).or_insert([f64::NAN; 3])[place] =
                    value.parse().expect("a number");
            }
        }
        let rounds = rounds.into_values().map(|round| round.into_values().collect::<Vec<_>>());
        let rounds: Vec<Vec<Figures>> = rounds.collect();
        let most = rounds.iter().map(Vec::len).max().unwrap_or(0);
        NoiseRecording {
            workload,
            rounds: rounds.into_iter().filter(|round| round.len() == most).collect(),
        }
    });
    noise.filter(|noise| !noise.rounds.is_empty()).collect()
}

impl NoiseRecording {
    /// Rounds of `settings` runs that were adjacent in time, from one stretch at a random place, each in a
    /// random order: the run at index `s` becomes setting `s`. With fewer settings a stretch has more
    /// rounds.
    fn draw_stretch(&self, settings: usize, rng: &mut SeededRng) -> Vec<Vec<Figures>> {
        let start = rng.next_below(self.rounds.len());
        let rounds = (start..start + STRETCH).map(|idx| &self.rounds[idx % self.rounds.len()]);
        let runs: Vec<Figures> = rounds.flatten().copied().collect();
        let mut rounds: Vec<Vec<Figures>> =
            runs.chunks_exact(settings).map(<[Figures]>::to_vec).collect();
        for round in &mut rounds {
            rng.shuffle(round);
        }
        rounds
    }

    /// `count` rounds in stretches from random places (a moving-block bootstrap).
    pub(crate) fn resample_rounds(
        &self,
        settings: usize,
        count: usize,
        rng: &mut SeededRng,
    ) -> Vec<Vec<Figures>> {
        let mut drawn = Vec::with_capacity(count + STRETCH);
        while drawn.len() < count {
            drawn.extend(self.draw_stretch(settings, rng));
        }
        drawn.truncate(count);
        drawn
    }
}
