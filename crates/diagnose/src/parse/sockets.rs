//! TCP connections as `ss -tin` prints them.

use std::collections::BTreeMap;

/// Options of a connection, which ss(8) prints before its congestion control.
const OPTIONS: [&str; 5] = ["ts", "sack", "ecn", "ecnseen", "fastopen"];

/// A connection: the words of its second line that have a number, such as `rtt:0.05/0.02` and `rwnd_limited:40ms(30.0%)`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TcpSocket {
    /// Bytes that were received and not read.
    pub receive_queue: u64,
    /// Bytes that were sent and not acknowledged, or wait to be sent.
    pub send_queue: u64,
    /// The local address, to match the two looks; absent from shared snapshots.
    pub local: String,
    /// The other end's address.
    pub peer: String,
    /// The congestion control, such as `cubic`; empty where ss(8) was not asked for it.
    pub congestion_control: String,
    /// Figures by the names of ss(8); those of two parts (`rtt:3/1`) have their first.
    pub figures: BTreeMap<String, f64>,
}

impl TcpSocket {
    /// A figure by the name of ss(8).
    pub fn figure(&self, name: &str) -> Option<f64> {
        self.figures.get(name).copied()
    }
}

/// Reads `ss -tin`: a line of state, queues and addresses, and an indented line of figures, which `-O` puts into the same
/// line. The head may be missing (`-H`).
pub(crate) fn parse_sockets(text: &str) -> Option<Vec<TcpSocket>> {
    let lines = text.lines().filter(|line| !line.starts_with("State"));
    let is_headed = text.starts_with("State");
    let mut found: Vec<TcpSocket> = Vec::new();
    for line in lines {
        if line.starts_with([' ', '\t']) {
            let socket = found.last_mut()?;
            socket.congestion_control = find_congestion_control(line.split_whitespace());
            socket.figures.extend(line.split_whitespace().filter_map(parse_figure));
        } else if !line.is_empty() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [_, receive, send, local, peer, ref rest @ ..] = words[..] else { return None };
            found.push(TcpSocket {
                receive_queue: receive.parse().ok()?,
                send_queue: send.parse().ok()?,
                local: local.to_owned(),
                peer: peer.to_owned(),
                congestion_control: find_congestion_control(rest.iter().copied()),
                figures: rest.iter().filter_map(|word| parse_figure(word)).collect(),
            });
        }
    }
    (is_headed || !found.is_empty()).then_some(found)
}

/// The word behind the options, which are words without a number, too.
fn find_congestion_control<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let mut names = words.take_while(|word| !word.contains(':'));
    names.find(|word| !OPTIONS.contains(word)).unwrap_or_default().to_owned()
}

/// The number at the beginning of `name:12.5ms(3%)`. A time in seconds is told in milliseconds.
fn parse_figure(word: &str) -> Option<(String, f64)> {
    let (name, value) = word.split_once(':')?;
    let end = value.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(value.len());
    let (number, unit) = value.split_at(end);
    let scale = if unit.starts_with('s') { 1000.0 } else { 1.0 };
    Some((name.to_owned(), number.parse::<f64>().ok()? * scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_follow_their_connection() {
        let text = "State Recv-Q Send-Q Local Address:Port Peer Address:PortProcess\n\
            ESTAB 0 2896 10.0.0.1:22 10.0.0.2:5000\n\
            \t ts sack cubic wscale:7,7 rto:204 rtt:3.1/0.5 cwnd:10 bytes_retrans:1448 busy:1200ms rwnd_limited:2s(30.0%)\n";
        let found = parse_sockets(text).unwrap();
        assert_eq!((found[0].send_queue, found[0].congestion_control.as_str()), (2896, "cubic"));
        let figures =
            ["rtt", "bytes_retrans", "busy", "rwnd_limited"].map(|name| found[0].figure(name));
        assert_eq!(figures, [Some(3.1), Some(1448.0), Some(1200.0), Some(2000.0)]);
        assert_eq!(parse_sockets("nonsense\n"), None);
        assert_eq!(parse_sockets("State Recv-Q\n\t rtt:1\n"), None, "figures of no connection");
    }
}
