//! ICMP echo as the whole load: the same prober as beside traffic, and a connection that says when it
//! is over.

use latput_units::{Bytes, CpuSet, Nanos};

use crate::clock::{now, sleep_until};
use crate::error::Error;
use crate::meter::Meter;
use crate::outcome::{DatagramsExchanged, ProbeOutcome, SenderOutcome};
use crate::probe::Prober;
use crate::workers::WorkerContext;

/// Longest sleep without a look whether the run should end.
const LONGEST_SLEEP: Nanos = Nanos::from_ms(20);

/// Sends echo requests in the window, and takes answers for a while after it. Requests, answers and
/// times count in the slice in which the request was sent.
pub(crate) fn ask(
    worker: &WorkerContext<'_>,
    prober: &Prober,
    meter: &mut Meter<'_>,
) -> Result<Vec<ProbeOutcome>, Error> {
    meter.phase(now());
    // After the window only answers are waited for, which the supervisor need not.
    let is_ending = || now() < worker.window.end() && (worker.is_ending() || worker.peer_closed());
    let probes = match prober.run(worker.window, &CpuSet::new(), is_ending) {
        Err(Error::Stopped) => return Err(worker.closed(None).err().unwrap_or(Error::Stopped)),
        probes => probes?,
    };
    // The last answer may be there before the window is over; the far end would take that for a loss.
    sleep_until(worker.window.end());
    meter.phase(now());
    Ok(probes)
}

/// The figures of one slice, of which `outcome` has what its thread used.
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

/// At the other end the kernel answers; here is only waited until the connection is closed.
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
