//! Counts and least times that an output tells beside the metrics, read by other means than those of `latput_formats`.

use latput_formats::ImportFormat;
use latput_trial::figures::{Parser, ProgramFigures, decode};
use serde_json::Value;

use super::{FigureReader, value_of};

/// Numbers from here on are no counts and no times: programs print them for what they do not know.
const UNKNOWN: f64 = 1e15;

/// Figures that an output tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct IndependentCounts {
    /// Sent and arrived bytes.
    bytes: Option<(f64, f64)>,
    /// Sent and arrived packets; versions of a program have several such pairs, of which one gives the loss.
    packets: Vec<(f64, f64)>,
    least_ns: Option<f64>,
    /// Requests under way at once.
    outstanding: Option<f64>,
}

impl IndependentCounts {
    pub(crate) fn new(reader: FigureReader, bytes: &[u8]) -> Self {
        let Ok(text) = decode(bytes) else { return Self::default() };
        match reader {
            FigureReader::Program(Parser::Ping) => of_ping(&text),
            FigureReader::Program(Parser::Netperf)
            | FigureReader::Import(ImportFormat::Netperf) => of_netperf(&text),
            FigureReader::Program(Parser::Iperf3) | FigureReader::Import(ImportFormat::Iperf3) => {
                serde_json::from_str(&text).map(|value| of_iperf3(&value)).unwrap_or_default()
            }
            _ => Self::default(),
        }
    }

    /// The rule that figures break beside this.
    pub(crate) fn broken_by(&self, read: &ProgramFigures) -> Option<String> {
        if let Some((sent, arrived)) = self.bytes.filter(|(sent, arrived)| *arrived > sent * 1.11) {
            return Some(format!("{arrived} of {sent} bytes"));
        }
        if let Some(loss) = value_of(read, "loss_ratio")
            && !self.packets.is_empty()
        {
            let gives = |(sent, arrived): &(f64, f64)| {
                *arrived <= *sent && (1.0 - arrived / sent - loss).abs() <= 0.0102
            };
            if !self.packets.iter().any(gives) {
                return Some(format!("a loss of {loss} of {:?}", self.packets));
            }
        }
        let times = ["mean", "p50", "p90", "p99", "p999", "max"];
        let below = |least: &f64| {
            let times = times.map(|time| value_of(read, &format!("latency_ns_{time}")));
            times.into_iter().flatten().any(|time| time < least * 0.979)
        };
        let rate = value_of(read, "transactions_per_s").zip(value_of(read, "latency_ns_mean"));
        if let Some(((rate, mean), most)) = rate.zip(self.outstanding)
            && rate * mean / 1e9 > most * 1.11
        {
            return Some(format!("{rate} /s of {mean} ns with {most} at once"));
        }
        self.least_ns.filter(below).map(|least| format!("a time below the least, {least}"))
    }
}

fn of_ping(text: &str) -> IndependentCounts {
    let line = text.lines().find(|line| line.contains("packets transmitted")).unwrap_or_default();
    let numbers: Vec<f64> =
        line.split(", ").map_while(|part| part.split(' ').next()?.parse().ok()).collect();
    let least = text.lines().find(|line| line.contains("min/avg/max"));
    let least = least.and_then(|line| line.split(" = ").nth(1)?.split('/').next()?.parse().ok());
    IndependentCounts {
        packets: numbers.first().copied().zip(numbers.get(1).copied()).into_iter().collect(),
        least_ns: least.map(|ms: f64| ms * 1e6).filter(|ns| *ns < UNKNOWN),
        ..IndependentCounts::default()
    }
}

fn of_netperf(text: &str) -> IndependentCounts {
    let least: Vec<&str> = text.lines().filter_map(|it| it.strip_prefix("MIN_LATENCY=")).collect();
    let least = if let [one] = least[..] { one.trim().parse::<f64>().ok() } else { None };
    let rows: Vec<Vec<f64>> = if text.contains("UDP STREAM TEST") {
        let row = |line: &str| line.split_whitespace().map(|it| it.parse().ok()).collect();
        text.lines().filter_map(row).filter(|row: &Vec<f64>| !row.is_empty()).collect()
    } else {
        Vec::new()
    };
    let (packets, bytes) = match &rows[..] {
        [sender, receiver] if (sender.len(), receiver.len()) == (6, 4) => {
            let rates = Some((sender[5], receiver[3])).filter(|(sent, _)| *sent > 0.0);
            (vec![(sender[3], receiver[2])], rates)
        }
        _ => (Vec::new(), None),
    };
    let least_ns = least.map(|us| us * 1e3).filter(|ns| *ns < UNKNOWN);
    // After a loss of a datagram netperf begins its latencies anew, and of several iterations they are those of one.
    let is_steady = !text.contains("UDP") && !text.to_ascii_uppercase().contains("CONF");
    let bursts = ["BURST_SIZE=", "first burst "].map(|key| {
        let found = text.split(key).nth(1)?.split_whitespace().next()?;
        found.parse::<f64>().ok().filter(|_| text.matches(key).count() == 1)
    });
    let is_told = text.contains("BURST_SIZE") || text.contains("Initial Burst");
    let burst = if is_told { bursts[0] } else { bursts[1] };
    let outstanding = burst.filter(|burst| is_steady && *burst >= 0.0).map(|burst| burst + 1.0);
    IndependentCounts { bytes, packets, least_ns, outstanding }
}

fn of_iperf3(document: &Value) -> IndependentCounts {
    let end = &document["end"];
    let number = |sum: &str, key: &str| {
        end[sum][key].as_f64().filter(|number| *number > 0.0 && *number < UNKNOWN)
    };
    let lost = ["sum_received", "sum"].iter().find(|sum| end[**sum]["lost_percent"].is_number());
    let lost = lost
        .and_then(|sum| end[*sum]["lost_packets"].as_f64())
        .filter(|lost| (0.0..UNKNOWN).contains(lost));
    let all = ["sum_received", "sum_sent", "sum"].into_iter().filter_map(|sum| {
        let sent = number(sum, "packets")?;
        Some((sent, sent - lost?))
    });
    let bytes = number("sum_sent", "bytes").zip(number("sum_received", "bytes"));
    IndependentCounts { bytes, packets: all.collect(), ..IndependentCounts::default() }
}
