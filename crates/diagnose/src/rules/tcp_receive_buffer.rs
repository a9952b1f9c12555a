//! `tcp-receive-buffer`: the receive buffer of TCP sockets is too small for what arrives.

use crate::evidence::{Evidence, SocketGrowth, percent, share_of};
use crate::finding::{Confidence, Finding, Judgement, Rule};
use crate::measures::buffers::{find_largest_buffer, raise_largest_buffer};
use crate::source::EvidenceSource;

/// The fewest dropped segments among a million that are harm.
const LEAST_PER_MILLION: f64 = 100.0;
/// The least part of segments that are copied together to make room: each costs CPU time, and nothing else.
const LEAST_COLLAPSED: f64 = 0.01;
/// The fewest of either that say anything.
const LEAST_COUNT: u64 = 10;
/// The part of its window that a connection must use in each round trip for the window to be the limit.
const USED: f64 = 0.8;
/// More than this part of it in a round trip cannot be: the figures of ss(8) are of another moment than the bytes.
const MOST_USED: f64 = 2.0;
/// The shortest round trip (ms) of which the window can be the limit: the smallest default window, 64 KiB, carries 500
/// Mbit/s at it.
const SHORTEST_RTT_MS: f64 = 1.0;
/// A largest buffer of fewer bytes was set by hand: the kernel's default is 6 MiB.
const SMALL_BUFFER: f64 = 262_144.0;
/// The least rate (bytes/s) at which a small buffer is felt, on a path of any length.
const LEAST_RATE: f64 = 1e6;
/// The counters of segments that a full buffer drops.
const DROPPED: &[&str] = &[
    "TcpExt.RcvPruned",
    "TcpExt.OfoPruned",
    "TcpExt.TCPRcvQDrop",
    "TcpExt.TCPOFODrop",
    "TcpExt.TCPBacklogDrop",
];

/// The row.
pub(crate) const RULE: Rule = Rule {
    id: "tcp-receive-buffer",
    subject: "TCP receive buffers",
    mechanism: "A TCP socket whose receive buffer is small for its path lets its sender send no more than that each round trip; \
                one that is full drops segments, or copies them together to make room.",
    judge,
};

fn judge(rule: &Rule, evidence: &Evidence<'_>) -> Judgement {
    let dropped = evidence.protocol_sum(DROPPED);
    let connections = evidence.active_connections();
    if dropped.is_none() && connections.is_none() {
        return Judgement::Unseen(EvidenceSource::Protocols);
    }
    let by_drops = judge_drops(rule, evidence, dropped.unwrap_or(0));
    let active = connections.unwrap_or_default();
    let found = by_drops
        .or_else(|| judge_window(rule, evidence, &active))
        .or_else(|| judge_small_buffer(rule, evidence, &active));
    found.map_or(Judgement::Healthy, Judgement::Fault)
}

/// Segments that were dropped or copied because the buffer was full.
fn judge_drops(rule: &Rule, evidence: &Evidence<'_>, dropped: u64) -> Option<Finding> {
    let pruned = evidence.protocol("TcpExt.PruneCalled").unwrap_or(0);
    let collapsed = evidence.protocol("TcpExt.TCPRcvCollapsed").unwrap_or(0);
    let pressure = evidence.protocol("TcpExt.TCPMemoryPressures").unwrap_or(0);
    let received = evidence.protocol("Tcp.InSegs");
    let share = received.map(|received| share_of(dropped, dropped + received));
    let copied = received.map_or(0.0, |received| share_of(collapsed, received));
    let is_loss =
        dropped >= LEAST_COUNT && share.is_none_or(|share| share * 1e6 >= LEAST_PER_MILLION);
    let is_work = collapsed >= LEAST_COUNT && pruned > 0 && copied >= LEAST_COLLAPSED;
    if !is_loss && !is_work {
        return None;
    }
    let of_all =
        share.map(|share| format!(" ({} of those received)", percent(share))).unwrap_or_default();
    let sentence = format!(
        "full receive buffers of TCP sockets dropped {dropped} segments{of_all}, and {collapsed} were copied together to make \
         room"
    );
    let (limit, confidence) = if pressure > 0 {
        ("net.ipv4.tcp_mem", Confidence::Certain)
    } else {
        ("net.ipv4.tcp_rmem", Confidence::Likely)
    };
    let now = evidence
        .sysctl(&limit.replace('.', "/"))
        .map(|is| format!(" (now {is})"))
        .unwrap_or_default();
    let remedy = if pressure > 0 {
        format!("raise {limit}{now}: the memory of all TCP sockets together is used up")
    } else {
        format!(
            "raise the third value of {limit}{now}, or net.core.rmem_max where the program sets SO_RCVBUF (`ss -tinm` tells: \
             rb); if data stands in Recv-Q, the program reads too slowly"
        )
    };
    let mut found = Finding::new(rule, confidence, sentence)
        .with("dropped_segments", dropped)
        .with("collapsed_segments", collapsed)
        .with("prune_calls", pruned)
        .with("memory_pressures", pressure)
        .with_remedy(remedy)
        .with_proof(
            "nstat -z TcpExtPruneCalled TcpExtRcvPruned TcpExtTCPRcvCollapsed TcpExtTCPBacklogDrop",
        );
    if let Some(share) = share {
        found = found.explaining_loss(share);
    }
    Some(found)
}

/// A connection whose sender fills the whole window in each round trip. The window of a healthy one is twice what it uses.
fn judge_window(
    rule: &Rule,
    evidence: &Evidence<'_>,
    active: &[SocketGrowth<'_>],
) -> Option<Finding> {
    let window_s = evidence.window_s()?;
    let used = active.iter().filter_map(|one| Some((measure_use(one, window_s)?, one)));
    let used = used.filter(|(used, _)| *used <= MOST_USED);
    let (used, worst) = used.max_by(|one, other| one.0.total_cmp(&other.0))?;
    if used < USED {
        return None;
    }
    let bytes = worst.now.figure("rcv_ssthresh")?;
    let rtt_ms = worst.now.figure("minrtt").or_else(|| worst.now.figure("rtt"))?;
    let rate = worst.grown("bytes_received") / window_s;
    let all: f64 = active.iter().map(|one| one.grown("bytes_received")).sum();
    let most = find_largest_buffer(evidence, "tcp_rmem").map(|most| most as f64);
    // Half of the buffer is for the kernel's own use, by default (`tcp_adv_win_scale`).
    let by_program = most.is_some_and(|most| bytes < most * 0.25);
    let change = raise_largest_buffer(evidence, "tcp_rmem").filter(|_| !by_program);
    let remedy = match most.filter(|_| by_program) {
        Some(most) => format!(
            "the program sets SO_RCVBUF, which net.core.rmem_max limits: let it set none, so that the buffer grows up to \
             {most:.0} bytes (net.ipv4.tcp_rmem), or a larger one"
        ),
        None => "raise the third value of net.ipv4.tcp_rmem, or net.core.rmem_max where the program sets SO_RCVBUF".to_owned(),
    };
    let sentence = format!(
        "a connection receives {:.1} Mbit/s, all that its window of {bytes:.0} bytes allows at a round trip of {rtt_ms:.1} ms",
        rate * 8.0 / 1e6
    );
    let found = Finding::new(rule, Confidence::Likely, sentence)
        .with("window_bytes", bytes)
        .with("rtt_ms", rtt_ms)
        .with("rate_bytes_per_s", rate)
        .with("window_used_share", used.min(1.0))
        // Its bytes wait for the window, those of others need not.
        .explaining_latency(worst.grown("bytes_received") / all.max(1.0) * used.min(1.0));
    Some(match change {
        Some(change) => found.with_change(evidence, &change),
        None => found.with_remedy(remedy).with_proof("ss -tinm"),
    })
}

/// A connection with much data whose window has grown to the end of a small buffer, on a path too short to measure.
fn judge_small_buffer(
    rule: &Rule,
    evidence: &Evidence<'_>,
    active: &[SocketGrowth<'_>],
) -> Option<Finding> {
    let most = find_largest_buffer(evidence, "tcp_rmem")? as f64;
    let change = raise_largest_buffer(evidence, "tcp_rmem")?;
    let window_s = evidence.window_s()?;
    let rate = |one: &SocketGrowth<'_>| one.grown("bytes_received") / window_s;
    let worst = active.iter().max_by(|one, other| rate(one).total_cmp(&rate(other)))?;
    let bytes = worst.now.figure("rcv_ssthresh")?;
    if most > SMALL_BUFFER || bytes < most * 0.25 || rate(worst) < LEAST_RATE {
        return None;
    }
    let sentence = format!(
        "a connection receives {:.1} Mbit/s into a window of {bytes:.0} bytes, all that net.ipv4.tcp_rmem allows",
        rate(worst) * 8.0 / 1e6
    );
    // A window that is filled this often is the limit; a rarer one may have a sender without more data.
    let is_filled_often = bytes / rate(worst) * 1000.0 < SHORTEST_RTT_MS;
    let confidence = if is_filled_often { Confidence::Likely } else { Confidence::Hint };
    let mut found = Finding::new(rule, confidence, sentence)
        .with("window_bytes", bytes)
        .with("rate_bytes_per_s", rate(worst))
        .with_change(evidence, &change);
    if is_filled_often {
        let all: f64 = active.iter().map(|one| one.grown("bytes_received")).sum();
        // Its bytes wait for the window, those of others need not.
        found = found.explaining_latency(worst.grown("bytes_received") / all.max(1.0));
    }
    Some(found)
}

/// The part of its window that a connection uses in each round trip.
fn measure_use(connection: &SocketGrowth<'_>, window_s: f64) -> Option<f64> {
    let now = connection.now;
    let rtt_ms = now.figure("minrtt").or_else(|| now.figure("rtt"))?;
    // A window that is full of data that nobody reads is the program's.
    if rtt_ms < SHORTEST_RTT_MS || now.receive_queue as f64 > now.figure("rcv_ssthresh")? * 0.5 {
        return None;
    }
    let in_round_trip = connection.grown("bytes_received") / window_s * rtt_ms / 1000.0;
    Some(in_round_trip / now.figure("rcv_ssthresh")?.max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::testing::{PlantedLooks, number};

    #[test]
    fn pruned_segments_are_found_with_share() {
        let looks = PlantedLooks::new()
            .tcp(&[("InSegs", 0, 9900)])
            .tcp_ext(&[
                ("PruneCalled", 5, 205),
                ("RcvPruned", 9, 109),
                ("TCPRcvCollapsed", 50, 950),
            ])
            .same("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n");
        let found = looks.find(&RULE);
        assert!((number(&found, "dropped_segments") - 100.0).abs() < 1e-9);
        assert_eq!(found.explains.loss_share, Some(0.01));
        assert!(found.remedy.unwrap().contains("net.ipv4.tcp_rmem (now 4096\t131072\t6291456)"));
    }

    #[test]
    fn memory_of_all_sockets_is_named() {
        let looks = PlantedLooks::new()
            .tcp(&[("InSegs", 0, 9900)])
            .tcp_ext(&[("RcvPruned", 9, 109), ("TCPMemoryPressures", 0, 3)]);
        assert!(looks.find(&RULE).remedy.unwrap().contains("net.ipv4.tcp_mem"));
    }

    #[test]
    fn full_window_at_long_path_is_found() {
        let row = "ESTAB 0 0 10.0.0.1:5201 10.0.0.2:50000\n\t cubic rtt:20/1 minrtt:20 rcv_ssthresh:65536 bytes_received:";
        let looks = PlantedLooks::new()
            .seconds(10)
            .sockets(&format!("{row}1000\n"), &format!("{row}32001000\n"))
            .same("proc/sys/net/ipv4/tcp_rmem", "4096 131072 131072\n");
        let found = looks.find(&RULE);
        assert!((number(&found, "window_bytes") - 65_536.0).abs() < 1e-9);
        assert!((number(&found, "rate_bytes_per_s") - 3.2e6).abs() < 1.0);
        assert_eq!(
            found.remedy.unwrap(),
            "latput set eth0 'tcp-rmem=4096 131072 6291456' --dry-run"
        );
        assert_eq!(
            found.prove.unwrap(),
            "latput diagnose eth0 --prove tcp-receive-buffer --peer HOST"
        );
    }

    #[test]
    fn small_buffer_is_judged_by_rate() {
        let row = "ESTAB 0 0 10.0.0.1:5201 10.0.0.2:50000\n\t cubic rtt:0.1/0 rcv_ssthresh:8192 bytes_received:";
        let receiving = |bytes: u64| {
            PlantedLooks::new()
                .seconds(10)
                .sockets(&format!("{row}0\n"), &format!("{row}{bytes}\n"))
        };
        assert_eq!(receiving(900_000_000).judge(&RULE), Judgement::Healthy);
        let small = |bytes| {
            receiving(bytes).same("proc/sys/net/ipv4/tcp_rmem", "4096 8192 16384\n").find(&RULE)
        };
        assert_eq!(small(900_000_000).confidence, Confidence::Likely);
        assert_eq!(small(30_000_000).confidence, Confidence::Hint);
    }

    #[test]
    fn window_with_room_is_healthy() {
        let row = "ESTAB 0 0 10.0.0.1:5201 10.0.0.2:50000\n\t cubic rtt:20/1 minrtt:20 rcv_ssthresh:3145728 bytes_received:";
        let looks = PlantedLooks::new()
            .seconds(10)
            .sockets(&format!("{row}1000\n"), &format!("{row}32001000\n"))
            .tcp(&[("InSegs", 0, 900_000)])
            .tcp_ext(&[("RcvPruned", 70_000_000, 70_000_000), ("TCPRcvCollapsed", 5, 9)]);
        assert_eq!(looks.judge(&RULE), Judgement::Healthy);
    }

    #[test]
    fn missing_counters_are_unseen() {
        let looks = PlantedLooks::new().seconds(5);
        assert_eq!(looks.judge(&RULE), Judgement::Unseen(EvidenceSource::Protocols));
    }
}
