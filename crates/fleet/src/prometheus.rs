//! A text file for `node_exporter`'s textfile collector, in the Prometheus text format 0.0.4.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use latput_units::Nanos;

use crate::judge::{HostState, JudgedHost};

/// The states of hosts as metrics. `ended_unix_s` is the end of the look in seconds since 1970.
pub fn render_metrics(judged: &[JudgedHost], ended_unix_s: u64, took: Nanos) -> String {
    let mut text = String::new();
    write_header(&mut text, "latput_fleet_hosts", "Hosts of a group by state.");
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for JudgedHost { host, .. } in judged {
        for outcome in HostState::OUTCOMES {
            counts.entry((&host.group, outcome.name())).or_default();
        }
    }
    for JudgedHost { host, state, .. } in judged {
        *counts.entry((&host.group, state.name())).or_default() += 1;
    }
    for ((group, state), count) in counts {
        let group = escape_label(group);
        let _ = writeln!(text, "latput_fleet_hosts{{group=\"{group}\",state=\"{state}\"}} {count}");
    }
    write_header(
        &mut text,
        "latput_fleet_host_state",
        "The state of a host: 1 for the one that it is in.",
    );
    for JudgedHost { host, state, .. } in judged {
        let labels = format_labels(&host.group, &host.name, &host.interface);
        let state = state.name();
        let _ = writeln!(text, "latput_fleet_host_state{{{labels},state=\"{state}\"}} 1");
    }
    write_header(
        &mut text,
        "latput_fleet_knob_drifted",
        "Places where a knob does not have its wanted value.",
    );
    for JudgedHost { host, state, .. } in judged {
        let HostState::Drifted(differences) = state else { continue };
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        for difference in differences {
            *places.entry(difference.knob.name()).or_default() += 1;
        }
        let labels = format_labels(&host.group, &host.name, &host.interface);
        for (knob, count) in places {
            let _ = writeln!(text, "latput_fleet_knob_drifted{{{labels},knob=\"{knob}\"}} {count}");
        }
    }
    write_header(
        &mut text,
        "latput_fleet_last_look_timestamp_seconds",
        "End of the last look at the fleet.",
    );
    let _ = writeln!(text, "latput_fleet_last_look_timestamp_seconds {ended_unix_s}");
    write_header(
        &mut text,
        "latput_fleet_look_duration_seconds",
        "Duration of the last look at the fleet.",
    );
    let _ = writeln!(text, "latput_fleet_look_duration_seconds {:.3}", took.as_secs_f64());
    text
}

fn write_header(text: &mut String, name: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
}

fn format_labels(group: &str, host: &str, interface: &str) -> String {
    let (group, host, interface) =
        (escape_label(group), escape_label(host), escape_label(interface));
    format!("group=\"{group}\",host=\"{host}\",interface=\"{interface}\"")
}

/// A label's value: backslash, quote and line feed are escaped.
fn escape_label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use latput_knobs::Knob;

    use super::*;
    use crate::inventory::FleetHost;
    use crate::judge::KnobDifference;
    use crate::judge::tests::sample_host;

    #[test]
    fn every_state_is_counted_even_empty() {
        let host = |name: &str, state| JudgedHost {
            host: FleetHost { group: "we\"b".into(), ..sample_host(name, &[]) },
            state,
            look: None,
        };
        let difference = |place: &str| KnobDifference {
            knob: Knob::Mtu,
            place: place.into(),
            wanted: "1500".into(),
            value: None,
            problem: None,
        };
        let drifted = HostState::Drifted(vec![difference("device"), difference("rx-0")]);
        let judged = [host("a", HostState::Same), host("b", drifted), host("c", HostState::Same)];
        let text = render_metrics(&judged, 1_790_000_000, Nanos::from_ms(1500));
        for line in [
            "latput_fleet_hosts{group=\"we\\\"b\",state=\"same\"} 2",
            "latput_fleet_hosts{group=\"we\\\"b\",state=\"unreachable\"} 0",
            "latput_fleet_host_state{group=\"we\\\"b\",host=\"b\",interface=\"eth0\",state=\"drifted\"} 1",
            "latput_fleet_knob_drifted{group=\"we\\\"b\",host=\"b\",interface=\"eth0\",knob=\"mtu\"} 2",
            "latput_fleet_last_look_timestamp_seconds 1790000000",
            "latput_fleet_look_duration_seconds 1.500",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        assert_eq!(text.matches("# TYPE").count(), 5);
    }

    /// The dashboard and the alerts ask for what is written, and for states that there are.
    #[test]
    fn monitoring_examples_use_known_metrics() {
        let written = render_metrics(&[], 0, Nanos::ZERO);
        for example in [
            include_str!("../../../examples/grafana/latput.json"),
            include_str!("../../../examples/grafana/rules.yml"),
            include_str!("../../../examples/grafana/rules-test.yml"),
        ] {
            let (mut asked, mut states) = (0, 0);
            let example = example.replace("\\\"", "\"");
            for line in example.lines().filter(|line| line.contains("latput_fleet_")) {
                for part in line.split("latput_fleet_").skip(1) {
                    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
                    let name = &part[..part.find(|c| !is_name(c)).unwrap_or(part.len())];
                    assert!(written.contains(&format!("# TYPE latput_fleet_{name} ")), "{name}");
                    asked += 1;
                }
                let of_state = |after: &str| {
                    let words = after.trim_start_matches(['=', '~', '!']).strip_prefix('"')?;
                    Some(words.split('"').next()?.to_owned())
                };
                for state in line.split("state").skip(1).filter_map(of_state) {
                    let is_state = |it| HostState::OUTCOMES.iter().any(|one| one.name() == it);
                    assert!(state.split('|').all(is_state), "{line}");
                    states += 1;
                }
            }
            assert!(asked > 2 && states > 1, "{asked} {states}");
        }
    }
}
