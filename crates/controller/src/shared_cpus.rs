//! CPUs of two ends on one machine: each has its own, as far as there are any.

use latput_linux::lab;
use latput_trial::surroundings::SHARED_CPUS;
use latput_units::CpuSet;

/// The note, where two ends share a CPU.
pub fn note_shared_cpus(cpus: [&CpuSet; 2]) -> Option<String> {
    has_common_cpu(cpus).then(|| SHARED_CPUS.to_owned())
}

fn has_common_cpu([first, second]: [&CpuSet; 2]) -> bool {
    first.iter().any(|cpu| second.contains(cpu))
}

/// CPUs for the system under test and the generator of one machine: those that are said, and of what is left to both a
/// half each, as in the lab. A single CPU goes to both.
pub(crate) fn divide_cpus(allowed: [&CpuSet; 2], said: [Option<&CpuSet>; 2]) -> [CpuSet; 2] {
    let without = |cpus: &CpuSet, other: &CpuSet| -> CpuSet {
        let left: CpuSet = cpus.iter().filter(|cpu| !other.contains(*cpu)).collect();
        if left.is_empty() { cpus.clone() } else { left }
    };
    match said {
        [Some(sut), Some(generator)] => [sut.clone(), generator.clone()],
        [Some(sut), None] => [sut.clone(), without(allowed[1], sut)],
        [None, Some(generator)] => [without(allowed[0], generator), generator.clone()],
        [None, None] if !has_common_cpu(allowed) => allowed.map(CpuSet::clone),
        [None, None] => {
            let both: CpuSet = allowed[0].iter().filter(|cpu| allowed[1].contains(*cpu)).collect();
            let [generator, sut] = lab::split(&both);
            [without(allowed[0], &generator), without(allowed[1], &sut)]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_one_machine_get_own_cpus() {
        for (allowed, said, expected) in [
            (["0-1", "0-1"], ["", ""], ["1", "0"]),
            (["0-3", "0-3"], ["", ""], ["2-3", "0-1"]),
            (["0-3", "0-3"], ["0", ""], ["0", "1-3"]),
            (["0-3", "0-3"], ["", "0-1"], ["2-3", "0-1"]),
            (["0-3", "0-3"], ["0-1", "1-2"], ["0-1", "1-2"]),
            (["0-1", "2-3"], ["", ""], ["0-1", "2-3"]),
            (["0", "0-1"], ["", ""], ["0", "1"]),
            (["0", "0"], ["", ""], ["0", "0"]),
            (["0", "0"], ["0", ""], ["0", "0"]),
        ] {
            let read = |text: &str| text.parse::<CpuSet>().unwrap();
            let cpus = allowed.map(read);
            let words = said.map(|text| (!text.is_empty()).then(|| read(text)));
            let found = divide_cpus([&cpus[0], &cpus[1]], [words[0].as_ref(), words[1].as_ref()]);
            assert_eq!(found.map(|cpus| cpus.to_string()), expected, "{allowed:?} {said:?}");
        }
    }

    #[test]
    fn only_a_cpu_of_both_is_told_of() {
        let [none, low, high, all] = ["none", "0", "1", "0-1"].map(|text| text.parse().unwrap());
        for (cpus, is_told) in
            [([&low, &high], false), ([&low, &all], true), ([&none, &all], false)]
        {
            assert_eq!(note_shared_cpus(cpus).is_some(), is_told, "{cpus:?}");
        }
    }
}
