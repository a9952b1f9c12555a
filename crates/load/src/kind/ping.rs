//! ICMP echo as the whole load. It uses the prober of the latency probe and one connection that
//! signals the end.

use latput_units::{Bytes, CpuSet, Nanos};

use crate::clock::{now, sleep_until};
use crate::error::Error;
use crate::meter::Meter;
use crate::outcome::{DatagramsExchanged, ProbeOutcome, SenderOutcome};
use crate::probe::Prober;
use crate::workers::WorkerContext;

/// Longest sleep without a check for the end of the run.
const LONGEST_SLEEP: Nanos = Nanos::from_ms(20);

/// Sends echo requests in the window and receives answers for a while after it. A request and its
/// answer count in the slice of the request.
pub(crate) fn ask(
    worker: &WorkerContext<'_>,
    prober: &Prober,
    meter: &mut Meter<'_>,
) -> Result<Vec<ProbeOutcome>, Error> {
    meter.phase(now());
    // After the window only answers are awaited. The supervisor need not wait for them.
    let is_ending = || now() < worker.window.end() && (worker.is_ending() || worker.peer_closed());
    let probes = match prober.run(worker.window, &CpuSet::new(), is_ending) {
        Err(Error::Stopped) => return Err(worker.closed(None).err().unwrap_or(Error::Stopped)),
        probes => probes?,
    };
    // All answers may arrive before the window's end. An early close would look like a loss to the
    // far end.
    sleep_until(worker.window.end());
    meter.phase(now());
    Ok(probes)
}

/// The figures of one slice. `outcome` has the resource use of its thread.
pub(crate) fn outcome(
    probe: ProbeOutcome,
    payload: Bytes,
    outcome: SenderOutcome,
) -> SenderOutcome {
    let exchange = DatagramsExchanged {
        sent: probe.sent,
        answered: probe.received,
        lost: probe.sent.saturating_sub(probe.received),
        ..DatagramsExchanged::default()
    };
    SenderOutcome {
        sent_bytes: probe.sent * payload.get(),
        received_bytes: probe.received * payload.get(),
        transactions: Some(probe.received),
        latency: Some(probe.rtt.clone()),
        exchange: Some(exchange),
        probe: Some(probe),
        ..outcome
    }
}

/// At the other end the kernel answers. This end waits for the close of the connection.
pub(crate) fn wait(worker: &WorkerContext<'_>, meter: &mut Meter<'_>) -> Result<(), Error> {
    loop {
        let now = now();
        meter.phase(now);
        if worker.is_ending() || worker.peer_closed() {
            return worker.closed(None);
        }
        sleep_until(now + LONGEST_SLEEP);
    }
}
