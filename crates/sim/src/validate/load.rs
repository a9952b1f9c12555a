//! Loads: their hosts and cores, their traffic, and what each traffic may have beyond its plain form.

use latput_units::Nanos;

use super::{InvalidValue, check_range, mtu_bytes, reject_value};
use crate::agenda::LONGEST;
use crate::frame::{FrameKind, most_payload};
use crate::scenario::{Load, Scenario, TrafficKind, Transport};

impl Scenario {
    pub(super) fn check_load(&self, key: &str, load: &Load) -> Result<(), InvalidValue> {
        let last = self.hosts.len() - 1;
        check_range(&format!("{key}.from"), load.from, 0..=last)?;
        check_range(&format!("{key}.to"), load.to, 0..=last)?;
        if load.from == load.to && load.traffic != TrafficKind::Compute {
            return reject_value(&format!("{key}.to"), load.to, "another host than `from`");
        }
        for (end, host, core) in
            [("from", load.from, load.from_core), ("to", load.to, load.to_core)]
        {
            let cores = self.hosts[host].machine.cores;
            check_range(&format!("{key}.{end}_core"), core.unwrap_or(0), 0..=cores - 1)?;
        }
        check_range(&format!("{key}.start"), load.start, Nanos::ZERO..=LONGEST)?;
        check_range(&format!("{key}.stop"), load.stop.unwrap_or(LONGEST), load.start..=LONGEST)?;
        let datagram = u64::from(most_payload(FrameKind::Udp, mtu_bytes(&self.network)));
        self.check_form(key, load, datagram)?;
        match load.traffic {
            TrafficKind::Datagrams { size, group, receive_batch, .. } if load.form.floods => {
                check_range(&format!("{key}.group"), group, 1..=1_024)?;
                check_range(&format!("{key}.receive_batch"), receive_batch, 1..=1_024)?;
                check_range(&format!("{key}.size"), size.get(), 1..=datagram)
            }
            TrafficKind::Datagrams { size, rate_pps, group, receive_batch, .. } => {
                check_range(&format!("{key}.group"), group, 1..=1_024)?;
                check_range(&format!("{key}.receive_batch"), receive_batch, 1..=1_024)?;
                check_range(&format!("{key}.size"), size.get(), 1..=datagram)?;
                check_range(&format!("{key}.rate_pps"), rate_pps, 1e-3..=1e9)
            }
            TrafficKind::Probe { rate_hz } => {
                check_range(&format!("{key}.rate_hz"), rate_hz, 1e-3..=1e6)
            }
            TrafficKind::RequestResponse {
                transport,
                request,
                response,
                burst,
                connections,
                think,
            } => {
                let most = match transport {
                    Transport::Udp => datagram,
                    Transport::Tcp { .. } => 1 << 30,
                };
                check_range(&format!("{key}.request"), request.get(), 1..=most)?;
                check_range(&format!("{key}.response"), response.get(), 1..=most)?;
                check_range(&format!("{key}.think"), think, Nanos::ZERO..=Nanos::from_s(60))?;
                check_range(&format!("{key}.burst"), burst, 0..=100_000)?;
                check_range(&format!("{key}.connections"), connections, 1..=100_000)?;
                let in_flight = u64::from(burst + 1) * u64::from(connections);
                check_range(&format!("{key}.burst x connections"), in_flight, 1..=10_000_000)
            }
            TrafficKind::Stream { message, connections } => {
                check_range(&format!("{key}.message"), message.get(), 1..=1 << 30)?;
                check_range(&format!("{key}.connections"), connections, 1..=100_000)
            }
            TrafficKind::Compute => Ok(()),
        }
    }

    /// Refuses fields of a load beyond its plain form that do not belong to its traffic.
    fn check_form(&self, key: &str, load: &Load, datagram: u64) -> Result<(), InvalidValue> {
        let form = &load.form;
        let is_rr = matches!(load.traffic, TrafficKind::RequestResponse { .. });
        let is_tcp =
            !matches!(load.traffic, TrafficKind::RequestResponse { transport: Transport::Udp, .. });
        let is_stream = matches!(load.traffic, TrafficKind::Stream { .. });
        let only = |present: bool, fits: bool, name: &str, of: &str| {
            if present && !fits {
                return reject_value(
                    &format!("{key}.form.{name}"),
                    "set",
                    &format!("left out: {of}"),
                );
            }
            Ok(())
        };
        only(form.arrivals.is_some(), is_rr || is_stream, "arrivals", "only requests and streams")?;
        only(form.connects, is_rr && is_tcp, "connects", "only requests on TCP")?;
        only(form.connects, form.arrivals.is_none(), "connects", "not with arrivals")?;
        let has_burst = matches!(load.traffic, TrafficKind::RequestResponse { burst: 1.., .. });
        only(form.connects, !has_burst, "connects", "not with a burst")?;
        only(form.timeout > Nanos::ZERO, is_rr && !is_tcp, "timeout", "only requests on UDP")?;
        let is_datagrams = matches!(load.traffic, TrafficKind::Datagrams { .. });
        only(form.floods, is_datagrams, "floods", "only datagrams")?;
        only(form.gathers, is_stream, "gathers", "only streams")?;
        check_range(
            &format!("{key}.form.timeout"),
            form.timeout,
            Nanos::ZERO..=Nanos::from_s(600),
        )?;
        if let Some(arrivals) = form.arrivals {
            check_range(&format!("{key}.form.arrivals.rate_hz"), arrivals.rate_hz, 1e-3..=1e9)?;
        }
        if let Some(payload) = form.payload {
            check_range(&format!("{key}.form.payload"), payload.get(), 0..=datagram)?;
        }
        match load.counted_with {
            Some(other) => {
                let is_earlier = self.loads.get(other).is_some_and(|earlier| {
                    earlier.counted_with.is_none() && !std::ptr::eq(earlier, load)
                });
                let wanted = "the number of an earlier load that is counted by itself";
                if is_earlier {
                    Ok(())
                } else {
                    reject_value(&format!("{key}.counted_with"), other, wanted)
                }
            }
            None => Ok(()),
        }
    }
}
