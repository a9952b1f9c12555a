//! Idle states and frequencies of the CPUs.

use std::collections::BTreeMap;

use crate::evidence::{Evidence, growth_of};
use crate::snapshot::Look;

const FOLDER: &str = "sys/devices/system/cpu/cpu";

/// A CPU's use of an idle state within the window.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct IdleUse {
    pub(crate) cpu: u32,
    pub(crate) name: String,
    /// Microseconds until it is awake again, as the driver tells.
    pub(crate) exit_us: f64,
    pub(crate) entries: u64,
}

/// The use of every idle state of every CPU; `None` where the kernel has none, as in most guests.
pub(crate) fn find_idle_uses(evidence: &Evidence<'_>) -> Option<Vec<IdleUse>> {
    let [before, after] = evidence.looks();
    let uses = after.texts_below(FOLDER).filter_map(|(rest, usage)| {
        let (cpu, state) = rest.strip_suffix("/usage")?.split_once("/cpuidle/")?;
        let folder = format!("{FOLDER}{cpu}/cpuidle/{state}");
        let number = |look: &Look, file: &str| {
            look.text(&format!("{folder}/{file}"))?.trim().parse::<u64>().ok()
        };
        let name = after.text(&format!("{folder}/name")).unwrap_or(state).trim().to_owned();
        Some(IdleUse {
            cpu: cpu.parse().ok()?,
            name,
            exit_us: number(after, "latency")? as f64,
            entries: growth_of(number(before, "usage")?, usage.trim().parse().ok()?)?,
        })
    });
    let uses: Vec<IdleUse> = uses.collect();
    (!uses.is_empty()).then_some(uses)
}

/// A CPU's frequencies, in kHz.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CpuFrequency {
    /// The higher of both looks.
    pub(crate) now: f64,
    /// The one that it keeps with all CPUs busy where the driver tells it, else the highest.
    pub(crate) expected: f64,
    /// The highest that is allowed.
    pub(crate) allowed: Option<f64>,
    pub(crate) governor: String,
}

/// The frequencies of every CPU that tells them.
pub(crate) fn find_frequencies(evidence: &Evidence<'_>) -> Option<BTreeMap<u32, CpuFrequency>> {
    let [before, after] = evidence.looks();
    let cpus = after.texts_below(FOLDER).filter_map(|(rest, _)| {
        let cpu = rest.strip_suffix("/cpufreq/scaling_cur_freq")?;
        let text = |look: &Look, file: &str| {
            look.text(&format!("{FOLDER}{cpu}/cpufreq/{file}")).map(|text| text.trim().to_owned())
        };
        let number = |look: &Look, file: &str| text(look, file)?.parse::<f64>().ok();
        let now = number(before, "scaling_cur_freq")?.max(number(after, "scaling_cur_freq")?);
        // Turbo is shared: with many CPUs busy half of the highest frequency is an ordinary one.
        let expected = number(after, "base_frequency")
            .or_else(|| Some(number(after, "cpuinfo_max_freq")? * 0.55))?;
        let frequency = CpuFrequency {
            now,
            expected,
            allowed: number(after, "scaling_max_freq"),
            governor: text(after, "scaling_governor").unwrap_or_default(),
        };
        Some((cpu.parse().ok()?, frequency))
    });
    let found: BTreeMap<u32, CpuFrequency> = cpus.collect();
    (!found.is_empty()).then_some(found)
}
