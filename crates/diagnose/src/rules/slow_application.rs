//! `slow-application`: a program on this host reads or answers slowly.

use crate::evidence::{Evidence, SocketGrowth};
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::parse::sockets::TcpSocket;
use crate::source::EvidenceSource;

/// The shortest time (ms) that data stands unread which is harm. A reader that shares its CPU waits for a few.
const SHORTEST_UNREAD_MS: f64 = 20.0;
/// The fewest unread bytes of a connection that is not read at all: programs may leave a few for ever.
const LEAST_UNREAD: u64 = 65_536;
/// The least part of looks at connections whose request is not answered.
const LEAST_WAITING: f64 = 0.75;
/// The fewest looks at connections that say anything.
const LEAST_LOOKS: usize = 4;
/// The fewest looks at connections that make it likely.
const LIKELY_LOOKS: usize = 10;
/// The shortest time (ms) to answer that is harm, on average. ss(8) tells it to the tick of a kernel, 1 to 10 ms.
const SHORTEST_ANSWER_MS: f64 = 20.0;

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "slow-application",
    subject: "programs of this host",
    mechanism: "The data is in the socket, and the program does not read it or takes its time to answer: the network has done its \
                part, and no setting of it helps.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let Some(all) = evidence.connections() else {
        return Judgement::Unseen(EvidenceSource::Sockets);
    };
    let found = judge_reading(rule, evidence, &all).or_else(|| judge_answers(rule, evidence, &all));
    found.map_or(Judgement::Healthy, Judgement::Fault)
}

/// Data that stood unread at both looks, for longer than a reader needs.
fn judge_reading(
    rule: &Rule,
    evidence: &Evidence<'_>,
    all: &[SocketGrowth<'_>],
) -> Option<Finding> {
    let window_s = evidence.window_s()?;
    let unread = all.iter().filter_map(|one| Some((measure_unread(one, window_s)?, one)));
    let unread: Vec<(f64, &SocketGrowth<'_>)> =
        unread.filter(|(wait_ms, _)| *wait_ms >= SHORTEST_UNREAD_MS).collect();
    let (wait_ms, worst) = *unread.iter().max_by(|one, other| one.0.total_cmp(&other.0))?;
    let closed = evidence.protocol("TcpExt.TCPToZeroWindowAdv").unwrap_or(0);
    let bytes = worst.now.receive_queue.min(worst.then?.receive_queue);
    let sentence = format!(
        "{} connections had data that no program read at both looks: {bytes} bytes of the worst wait for {wait_ms:.0} ms, and \
         this host told senders {closed} times to stop",
        unread.len()
    );
    let received: f64 = all.iter().map(|one| one.grown("bytes_received")).sum();
    let of_unread: f64 = unread.iter().map(|(_, one)| one.grown("bytes_received")).sum();
    // Their bytes wait for the program; where nothing was received at all they wait for nothing else.
    let share = if received > 0.0 { of_unread / received } else { 1.0 };
    Some(
        Finding::new(rule, Confidence::Likely, sentence)
            .with("connections", unread.len() as u64)
            .with("unread_bytes", bytes)
            .with("unread_ms", wait_ms)
            .with("windows_closed", closed)
            .explaining_latency(share)
            .with_remedy(format!(
                "look at the program that reads {}: its CPU time, locks, disks; more threads or larger reads",
                name(worst.now)
            ))
            .with_proof("ss -tinp; nstat -z TcpExtTCPToZeroWindowAdv"),
    )
}

/// Milliseconds that the data which stood at both looks waits at the rate of reading: endless where nothing is read.
fn measure_unread(connection: &SocketGrowth<'_>, window_s: f64) -> Option<f64> {
    let standing = connection.now.receive_queue.min(connection.then?.receive_queue);
    let read = connection.grown("bytes_received");
    if standing == 0 || (read <= 0.0 && standing < LEAST_UNREAD) {
        return None;
    }
    let whole_window = window_s * 1000.0;
    Some((standing as f64 / read.max(1.0) * whole_window).min(whole_window))
}

/// Requests that a server on this host has received and not answered, by samples: each look at each connection is one.
fn judge_answers(
    rule: &Rule,
    evidence: &Evidence<'_>,
    all: &[SocketGrowth<'_>],
) -> Option<Finding> {
    let is_server = |one: &&SocketGrowth<'_>| {
        one.is_server() == Some(true)
            && one.takes_turns()
            && one.grown("bytes_received") > 0.0
            && one.grown("bytes_acked") > 0.0
    };
    let looks: Vec<&TcpSocket> =
        all.iter().filter(is_server).flat_map(SocketGrowth::seen).collect();
    let waits: Vec<f64> = looks.iter().filter_map(|look| measure_answer(look)).collect();
    let share = waits.len() as f64 / looks.len().max(1) as f64;
    if looks.len() < LEAST_LOOKS || share < LEAST_WAITING {
        return None;
    }
    // A look falls into the middle of a wait, on average.
    let wait_ms = waits.iter().sum::<f64>() / waits.len() as f64 * 2.0;
    if wait_ms < SHORTEST_ANSWER_MS {
        return None;
    }
    let confidence =
        if looks.len() >= LIKELY_LOOKS { Confidence::Likely } else { Confidence::Hint };
    let unread = looks.iter().filter(|look| look.receive_queue > 0).count();
    let sentence = format!(
        "in {} of {} looks at connections of this host's servers the request had come and was not answered ({unread} not even \
         read): the program takes about {wait_ms:.0} ms",
        waits.len(),
        looks.len()
    );
    let mut found = Finding::new(rule, confidence, sentence)
        .with("looks_waiting", waits.len() as u64)
        .with("looks", looks.len() as u64)
        .with("answer_ms", wait_ms)
        .with("looks_unread", unread as u64)
        .explaining_latency(share)
        .with_remedy(format!(
            "look at the program that serves {}: its CPU time, locks, disks, its own requests",
            looks.first().map_or("it", |look| look.local.as_str())
        ))
        .with_proof("ss -tinp; perf trace -p PID");
    if let Some((programs, busy)) = evidence.program_share() {
        found = found.with("program_share_of_busy", programs).with("cpu_busy_share", busy);
    }
    Some(found)
}

/// Milliseconds since a request that has no answer yet.
fn measure_answer(look: &TcpSocket) -> Option<f64> {
    let (sent, received) = (look.figure("lastsnd")?, look.figure("lastrcv")?);
    (received < sent && received > 0.0).then_some(received)
}

fn name(socket: &TcpSocket) -> &str {
    if socket.local.is_empty() { "the connection" } else { &socket.local }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::testing::{PlantedLooks, number};

    fn reader(unread: u64, bytes: u64) -> String {
        format!(
            "ESTAB {unread} 0 10.0.0.1:5201 10.0.0.2:50000\n\t cubic rtt:0.2/0.1 bytes_received:{bytes}\n"
        )
    }

    fn servers(count: u32, bytes: u64, sent: u32, received: u32) -> String {
        let row = |port: u32| {
            format!(
                "ESTAB 0 0 10.0.0.1:80 10.0.0.2:{}\n\t cubic rtt:0.2/0.1 bytes_acked:{bytes} bytes_received:{bytes} \
                 lastsnd:{sent} lastrcv:{received} lastack:{received}\n",
                40_000 + port
            )
        };
        (0..count).map(row).collect()
    }

    #[test]
    fn unread_data_is_found_with_wait() {
        let looks = PlantedLooks::new()
            .seconds(10)
            .sockets(&reader(3_000_000, 1000), &reader(4_000_000, 100_001_000))
            .tcp_ext(&[("TCPToZeroWindowAdv", 500, 590)]);
        let found = looks.find(&RULE);
        assert!((number(&found, "unread_ms") - 300.0).abs() < 1e-9);
        assert!((number(&found, "windows_closed") - 90.0).abs() < 1e-9);
        assert_eq!(found.explains.latency_share, Some(1.0));
    }

    #[test]
    fn fast_reader_and_leftovers_are_healthy() {
        let fast = PlantedLooks::new()
            .seconds(10)
            .sockets(&reader(3_000_000, 1000), &reader(4_000_000, 30_000_001_000));
        assert_eq!(fast.judge(&RULE), Judgement::Healthy);
        let leftover =
            PlantedLooks::new().seconds(10).sockets(&reader(31, 1000), &reader(31, 1000));
        assert_eq!(leftover.judge(&RULE), Judgement::Healthy);
    }

    #[test]
    fn slow_answers_are_found() {
        let looks = PlantedLooks::new().sockets(&servers(8, 1, 130, 40), &servers(8, 900, 170, 60));
        let found = looks.find(&RULE);
        assert!((number(&found, "answer_ms") - 100.0).abs() < 1e-9);
        assert_eq!(found.confidence, Confidence::Likely);
        assert!(found.remedy.unwrap().contains("serves 10.0.0.1:80"));
    }

    #[test]
    fn answered_requests_are_healthy() {
        let looks = PlantedLooks::new().sockets(&servers(8, 1, 40, 130), &servers(8, 900, 60, 170));
        assert_eq!(looks.judge(&RULE), Judgement::Healthy);
        let one_way = |text: String| text.replace("lastsnd", "data_segs_in:90 lastsnd");
        let data = PlantedLooks::new()
            .sockets(&servers(8, 1, 130, 40), &one_way(servers(8, 900, 170, 60)));
        assert_eq!(data.judge(&RULE), Judgement::Healthy, "no answer is due");
        let fast = PlantedLooks::new().sockets(&servers(8, 1, 8, 4), &servers(8, 900, 4, 0));
        assert_eq!(fast.judge(&RULE), Judgement::Healthy);
    }

    #[test]
    fn missing_connections_are_unseen() {
        let looks = PlantedLooks::new().tcp_ext(&[("TCPToZeroWindowAdv", 0, 900)]);
        assert_eq!(looks.judge(&RULE), Judgement::Unseen(EvidenceSource::Sockets));
    }
}
