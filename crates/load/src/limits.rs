//! Refuses a workload that is out of range, or bound to CPUs that are not its host's, before a socket is opened. The ranges are those of the fields in
//! `latput-trial`.

use latput_trial::workload::PROBE_HZ;
use latput_trial::{Probe, Workload};
use latput_units::{Bytes, CpuSet};

use crate::clock::Window;
use crate::error::Error;

/// Refuses a workload that is out of range. The ranges also bound the memory of a plan.
pub(crate) fn check(workload: &Workload) -> Result<(), Error> {
    workload.probe.map_or(Ok(()), check_probe)?;
    if !workload.traffic.is_of_latput() {
        return Err(Error::NotOurs);
    }
    Ok(workload.traffic.check()?)
}

/// Refuses slices for a workload that ends after a count.
pub(crate) fn check_window(workload: &Workload, window: Window) -> Result<(), Error> {
    if workload.count.is_some() && window.slices().is_some() {
        return Err(Error::CountInSlices);
    }
    Ok(())
}

/// Refuses a probe that is out of range.
pub(crate) fn check_probe(probe: Probe) -> Result<(), Error> {
    Ok(PROBE_HZ.check(probe.rate_hz.into())?)
}

/// The CPUs of an end: those that the workload names, or else all of `host`. An empty set means
/// every CPU.
pub(crate) fn cpus(host: CpuSet, binding: Option<&CpuSet>) -> Result<CpuSet, Error> {
    match binding {
        None => Ok(host),
        Some(asked) if host.is_empty() || asked.is_subset(&host) => Ok(asked.clone()),
        Some(asked) => Err(Error::NotItsCpus { asked: asked.clone(), host }),
    }
}

/// A size that [`check`] accepted, in bytes.
pub(crate) fn size(bytes: Bytes) -> usize {
    usize::try_from(bytes.get()).expect("sizes are checked to be at most 16 MiB")
}

#[cfg(test)]
mod tests {
    use latput_trial::Traffic;
    use latput_units::BitsPerSecond;

    use super::*;

    #[test]
    fn traffic_out_of_range_is_refused_by_field() {
        let check = |traffic, probe: Option<u32>| {
            let probe = probe.map(|rate_hz| Probe { rate_hz });
            check(&Workload { probe, ..Workload::plain("test", traffic) })
        };
        let datagrams =
            |bytes| Traffic::udp_stream(Bytes::new(bytes), BitsPerSecond::new(1_000_000));
        assert!(check(datagrams(18), Some(10_000)).is_ok());
        let too_short = check(datagrams(17), None).unwrap_err().to_string();
        assert!(
            too_short.contains("`datagram_bytes` must be a whole number from 18"),
            "{too_short}"
        );
        let too_fast = check(datagrams(18), Some(10_001)).unwrap_err().to_string();
        assert!(too_fast.contains("`probe_hz`"), "{too_fast}");
    }

    #[test]
    fn end_is_bound_within_its_host() {
        let set = |text: &str| text.parse::<CpuSet>().unwrap();
        assert_eq!(cpus(set("0-3"), None).unwrap(), set("0-3"));
        assert_eq!(cpus(set("0-3"), Some(&set("1,3"))).unwrap(), set("1,3"));
        assert_eq!(cpus(CpuSet::new(), Some(&set("7"))).unwrap(), set("7"));
        let error = cpus(set("0-1"), Some(&set("1-2"))).unwrap_err();
        assert!(matches!(error, Error::NotItsCpus { .. }), "{error}");
    }
}
