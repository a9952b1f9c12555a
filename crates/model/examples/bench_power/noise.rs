//! Recorded noise: runs of equal settings, by workload, block and position in it.

use std::collections::BTreeMap;

use latput_units::Rng;

/// How many consecutive blocks are drawn together, so that slow drift and slow runs stay in.
const STRETCH: usize = 8;

/// The figures of one run by metric name.
pub(crate) type Run = BTreeMap<String, f64>;

/// The runs of one workload, block by block in the order of time.
pub(crate) type Blocks = Vec<Vec<Run>>;

/// Reads `design,time_s,workload,block,position,metric,value`; the workload's whole blocks.
pub(crate) fn read(csv: &str, workload: &str) -> Blocks {
    let mut blocks: BTreeMap<u32, BTreeMap<u32, Run>> = BTreeMap::new();
    for line in csv.lines().skip(1) {
        let [_, _, name, block, position, metric, value] =
            <[&str; 7]>::try_from(line.split(',').collect::<Vec<_>>()).expect("seven columns");
        if name == workload {
            let number = |text: &str| text.parse().expect("a number");
            let run = blocks.entry(number(block)).or_default().entry(number(position)).or_default();
            run.insert(metric.to_owned(), value.parse().expect("a number"));
        }
    }
    let blocks = blocks.into_values().map(|runs| runs.into_values().collect::<Vec<Run>>());
    let blocks: Blocks = blocks.collect();
    let most = blocks.iter().map(Vec::len).max().unwrap_or(0);
    blocks.into_iter().filter(|block| block.len() == most).collect()
}

/// `count` blocks in contiguous stretches from random places (a moving-block bootstrap), each block's runs
/// in a random order: the one at index `s` becomes setting `s`.
pub(crate) fn resample(blocks: &Blocks, count: usize, rng: &mut Rng) -> Blocks {
    let mut drawn = Vec::with_capacity(count);
    while drawn.len() < count {
        let start = rng.below(blocks.len());
        let stretch = STRETCH.min(count - drawn.len());
        drawn.extend((start..start + stretch).map(|idx| blocks[idx % blocks.len()].clone()));
    }
    for block in &mut drawn {
        rng.shuffle(block);
    }
    drawn
}
