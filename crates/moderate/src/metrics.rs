//! The status in Prometheus' text format.

use std::fmt::Write as _;

use crate::status::{State, Status};

/// The text format (Prometheus, "Exposition formats", version 0.0.4).
pub(crate) fn render_exposition(status: &Status) -> String {
    let mut text =
        ExpositionWriter { out: String::new(), interface: escape_label(&status.interface) };
    let seconds = |ns: u64| ns as f64 / 1e9;
    text.write_gauge("delay_seconds", "Delay that holds.", seconds(status.delay_ns));
    text.write_gauge(
        "max_delay_seconds",
        "Longest delay of the goal.",
        seconds(status.max_delay_ns),
    );
    text.write_gauge("uptime_seconds", "Since the start.", status.uptime_s);
    text.write_counter("decisions_total", "Samples decided on.", status.decisions);
    text.write_counter("changes_total", "Changes of the delay.", status.changes);
    text.write_counter("proposals_total", "Changes that an observer would make.", status.proposals);
    text.write_counter("failures_total", "Changes that failed.", status.failures);
    text.write_counter("rx_dropped_total", "Packets dropped on the way in.", status.rx_dropped);
    text.write_gauge("rx_packets_per_second", "Packets in.", status.rx_pps);
    text.write_gauge("tx_packets_per_second", "Packets out.", status.tx_pps);
    text.write_gauge("rx_bits_per_second", "Bits in.", status.rx_bps);
    text.write_gauge("tx_bits_per_second", "Bits out.", status.tx_bps);
    if let Some(rate) = status.interrupts_per_s {
        text.write_gauge("interrupts_per_second", "Interrupts of the interface.", rate);
    }
    if let Some(busy) = status.busy_ratio {
        text.write_gauge("cpu_busy_ratio", "Share of the machine's CPU time in use.", busy);
    }
    if let Some(met) = status.is_budget_met {
        text.write_gauge(
            "cpu_budget_met",
            "Whether the CPU budget is kept.",
            f64::from(u8::from(met)),
        );
    }
    text.write_header("state", "gauge", "What the daemon does: 1 for the state it is in.");
    for state in [State::Holding, State::Observing, State::Waiting, State::Released] {
        let is = u8::from(state == status.state);
        let interface = &text.interface;
        let name = state.name();
        let line =
            format!("latput_moderate_state{{interface=\"{interface}\",state=\"{name}\"}} {is}\n");
        text.out.push_str(&line);
    }
    text.out
}

struct ExpositionWriter {
    out: String,
    interface: String,
}

impl ExpositionWriter {
    fn write_header(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.out, "# HELP latput_moderate_{name} {help}");
        let _ = writeln!(self.out, "# TYPE latput_moderate_{name} {kind}");
    }

    fn write_gauge(&mut self, name: &str, help: &str, value: f64) {
        self.write_header(name, "gauge", help);
        let interface = &self.interface;
        let _ = writeln!(self.out, "latput_moderate_{name}{{interface=\"{interface}\"}} {value}");
    }

    fn write_counter(&mut self, name: &str, help: &str, value: u64) {
        self.write_header(name, "counter", help);
        let interface = &self.interface;
        let _ = writeln!(self.out, "latput_moderate_{name}{{interface=\"{interface}\"}} {value}");
    }
}

/// A label's value: names of interfaces may hold quotes and backslashes.
fn escape_label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn every_sample_has_a_type_and_a_value() {
        let text = render_exposition(&sample_status());
        let mut typed = Vec::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                typed.push(rest.split(' ').next().unwrap().to_owned());
            } else if !line.starts_with('#') {
                let (name, rest) = line.split_once('{').unwrap();
                assert!(typed.contains(&name.to_owned()), "{line}");
                rest.rsplit(' ').next().unwrap().parse::<f64>().unwrap();
            }
        }
        assert!(
            text.contains("latput_moderate_delay_seconds{interface=\"eth\\\"0\"} 0.00005"),
            "{text}"
        );
        assert!(text.contains("state=\"holding\"} 1"), "{text}");
    }

    /// The dashboard and the alerts ask for what is served, and for states that there are.
    #[test]
    fn monitoring_examples_use_known_metrics() {
        let text = render_exposition(&sample_status());
        let served = |name: &str| text.contains(&format!("# TYPE {name} "));
        for example in [
            include_str!("../../../examples/grafana/latput.json"),
            include_str!("../../../examples/grafana/rules.yml"),
            include_str!("../../../examples/grafana/rules-test.yml"),
        ] {
            let mut asked = 0;
            for (at, _) in example.match_indices("latput_moderate_") {
                let rest = &example[at..];
                let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
                let name = &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())];
                assert!(served(name), "{name}");
                asked += 1;
                let Some(state) = rest.strip_prefix("latput_moderate_state{state=\"") else {
                    continue;
                };
                let state = state.split('"').next().unwrap_or_default();
                assert!(text.contains(&format!("state=\"{state}\"")), "{state}");
            }
            assert!(asked > 3, "{example}");
        }
    }

    pub(crate) fn sample_status() -> Status {
        Status {
            schema: crate::status::SCHEMA,
            interface: "eth\"0".to_owned(),
            pid: 1,
            state: State::Holding,
            goal: "balanced".to_owned(),
            knobs: vec!["rx-usecs".to_owned()],
            delay_ns: 50_000,
            max_delay_ns: 100_000,
            ring: 256,
            uptime_s: 1.5,
            decisions: 30,
            changes: 2,
            proposals: 0,
            failures: 0,
            last_proposal: None,
            last_change: None,
            rx_pps: 1e5,
            rx_bps: 1e9,
            tx_pps: 1e5,
            tx_bps: 1e9,
            rx_dropped: 0,
            interrupts_per_s: Some(8000.0),
            busy_ratio: Some(0.25),
            is_budget_met: Some(false),
            frontier: Vec::new(),
            released: Vec::new(),
        }
    }
}
