//! Loads: their hosts and cores, their traffic, and what each traffic may have beyond its plain form.

use latput_units::Nanos;

use super::{Invalid, invalid, mtu, within};
use crate::agenda::LONGEST;
use crate::frame::{FrameKind, most_payload};
use crate::scenario::{Load, Scenario, Traffic, Transport};

impl Scenario {
    pub(super) fn check_load(&self, key: &str, load: &Load) -> Result<(), Invalid> {
        let last = self.hosts.len() - 1;
        within(&format!("{key}.from"), load.from, 0..=last)?;
        within(&format!("{key}.to"), load.to, 0..=last)?;
        if load.from == load.to && load.traffic != Traffic::Compute {
            return invalid(&format!("{key}.to"), load.to, "another host than `from`");
        }
        for (end, host, core) in
            [("from", load.from, load.from_core), ("to", load.to, load.to_core)]
        {
            let cores = self.hosts[host].machine.cores;
            within(&format!("{key}.{end}_core"), core.unwrap_or(0), 0..=cores - 1)?;
        }
        within(&format!("{key}.start"), load.start, Nanos::ZERO..=LONGEST)?;
        within(&format!("{key}.stop"), load.stop.unwrap_or(LONGEST), load.start..=LONGEST)?;
        let datagram = u64::from(most_payload(FrameKind::Udp, mtu(&self.network)));
        self.check_form(key, load, datagram)?;
        match load.traffic {
            Traffic::Datagrams { size, group, receive_batch, .. } if load.form.floods => {
                within(&format!("{key}.group"), group, 1..=1_024)?;
                within(&format!("{key}.receive_batch"), receive_batch, 1..=1_024)?;
                within(&format!("{key}.size"), size.get(), 1..=datagram)
            }
            Traffic::Datagrams { size, rate_pps, group, receive_batch, .. } => {
                within(&format!("{key}.group"), group, 1..=1_024)?;
                within(&format!("{key}.receive_batch"), receive_batch, 1..=1_024)?;
                within(&format!("{key}.size"), size.get(), 1..=datagram)?;
                within(&format!("{key}.rate_pps"), rate_pps, 1e-3..=1e9)
            }
            Traffic::Probe { rate_hz } => within(&format!("{key}.rate_hz"), rate_hz, 1e-3..=1e6),
            Traffic::RequestResponse {
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
                within(&format!("{key}.request"), request.get(), 1..=most)?;
                within(&format!("{key}.response"), response.get(), 1..=most)?;
                within(&format!("{key}.think"), think, Nanos::ZERO..=Nanos::from_s(60))?;
                within(&format!("{key}.burst"), burst, 0..=100_000)?;
                within(&format!("{key}.connections"), connections, 1..=100_000)?;
                let in_flight = u64::from(burst + 1) * u64::from(connections);
                within(&format!("{key}.burst x connections"), in_flight, 1..=10_000_000)
            }
            Traffic::Stream { message, connections } => {
                within(&format!("{key}.message"), message.get(), 1..=1 << 30)?;
                within(&format!("{key}.connections"), connections, 1..=100_000)
            }
            Traffic::Compute => Ok(()),
        }
    }

    /// Refuses fields of a load beyond its plain form that do not belong to its traffic.
    fn check_form(&self, key: &str, load: &Load, datagram: u64) -> Result<(), Invalid> {
        let form = &load.form;
        let is_rr = matches!(load.traffic, Traffic::RequestResponse { .. });
        let is_tcp =
            !matches!(load.traffic, Traffic::RequestResponse { transport: Transport::Udp, .. });
        let is_stream = matches!(load.traffic, Traffic::Stream { .. });
        let only = |present: bool, fits: bool, name: &str, of: &str| {
            if present && !fits {
                return invalid(&format!("{key}.form.{name}"), "set", &format!("left out: {of}"));
            }
            Ok(())
        };
        only(form.arrivals.is_some(), is_rr || is_stream, "arrivals", "only requests and streams")?;
        only(form.connects, is_rr && is_tcp, "connects", "only requests on TCP")?;
        only(form.connects, form.arrivals.is_none(), "connects", "not with arrivals")?;
        let has_burst = matches!(load.traffic, Traffic::RequestResponse { burst: 1.., .. });
        only(form.connects, !has_burst, "connects", "not with a burst")?;
        only(form.timeout > Nanos::ZERO, is_rr && !is_tcp, "timeout", "only requests on UDP")?;
        let is_datagrams = matches!(load.traffic, Traffic::Datagrams { .. });
        only(form.floods, is_datagrams, "floods", "only datagrams")?;
        only(form.gathers, is_stream, "gathers", "only streams")?;
        within(&format!("{key}.form.timeout"), form.timeout, Nanos::ZERO..=Nanos::from_s(600))?;
        if let Some(arrivals) = form.arrivals {
            within(&format!("{key}.form.arrivals.rate_hz"), arrivals.rate_hz, 1e-3..=1e9)?;
        }
        if let Some(payload) = form.payload {
            within(&format!("{key}.form.payload"), payload.get(), 0..=datagram)?;
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
                    invalid(&format!("{key}.counted_with"), other, wanted)
                }
            }
            None => Ok(()),
        }
    }
}
