//! Trace events in JSON ("Trace Event Format", which Chrome and Perfetto read): times in microseconds with
//! three digits after the point, so whole nanoseconds.

use std::fmt::Write;

use super::log::{CoreSlice, QueueEvent, TraceLog};
use crate::agenda::Time;
use crate::core::PriorityLevel;
use crate::scenario::Scenario;

/// Threads of a host's timeline from here on are its NIC queues; below are its cores.
const FIRST_QUEUE: usize = 10_000;
/// How long the arrival of a packet is drawn.
const ARRIVAL_NS: Time = 20;

/// The whole document.
pub(super) fn write(scenario: &Scenario, log: &TraceLog) -> String {
    let mut out =
        EventWriter { text: String::from("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n") };
    for (idx, host) in scenario.hosts.iter().enumerate() {
        out.name(idx, None, &host.name);
    }
    for (host, core) in &log.core_hosts {
        out.name(*host, Some(*core), &format!("core {core}"));
    }
    for (host, queue) in &log.queue_hosts {
        out.name(*host, Some(FIRST_QUEUE + queue), &format!("NIC queue {queue}"));
    }
    for slice in &log.slices {
        let (host, core) = log.core_hosts[slice.core];
        out.write_slice(host, core, (slice.from, slice.to), &format_slice_label(slice, log));
    }
    for (at, queue, mark) in &log.marks {
        let (host, number) = log.queue_hosts[*queue];
        let core = scenario.hosts[host].nic.interrupt_core(number) as usize;
        out.write_mark(*at, (host, number, core), mark);
    }
    out.finish_document()
}

fn format_slice_label(slice: &CoreSlice, log: &TraceLog) -> String {
    match slice.level {
        PriorityLevel::Hardirq => String::from("hardirq"),
        PriorityLevel::Softirq => String::from("softirq"),
        PriorityLevel::Process | PriorityLevel::Idle | PriorityLevel::Switching => {
            let name = slice.task.and_then(|task| log.process_names.get(task as usize));
            name.cloned().unwrap_or_else(|| String::from("process"))
        }
    }
}

struct EventWriter {
    text: String,
}

impl EventWriter {
    /// `on` is the host and the thread of its timeline.
    fn write_event(&mut self, phase: char, name: &str, on: (usize, usize), at: Time, more: &str) {
        let (host, thread) = on;
        let name = escape_json(name);
        let (us, ns) = (at / 1_000, at % 1_000);
        // Writing to a string cannot fail.
        let _ = writeln!(
            self.text,
            "{{\"ph\":\"{phase}\",\"name\":\"{name}\",\"pid\":{},\"tid\":{thread},\"ts\":{us}.{ns:03}{more}}},",
            host + 1
        );
    }

    fn name(&mut self, host: usize, thread: Option<usize>, name: &str) {
        let what = if thread.is_some() { "thread_name" } else { "process_name" };
        let more = format!(",\"args\":{{\"name\":\"{}\"}}", escape_json(name));
        self.write_event('M', what, (host, thread.unwrap_or(0)), 0, &more);
    }

    fn write_slice(&mut self, host: usize, thread: usize, (from, to): (Time, Time), name: &str) {
        let span = to - from;
        let more = format!(",\"dur\":{}.{:03}", span / 1_000, span % 1_000);
        self.write_event('X', name, (host, thread), from, &more);
    }

    fn write_mark(
        &mut self,
        at: Time,
        (host, queue, core): (usize, usize, usize),
        mark: &QueueEvent,
    ) {
        let thread = FIRST_QUEUE + queue;
        match mark {
            QueueEvent::Arrived { packet } => {
                self.write_slice(host, thread, (at, at + ARRIVAL_NS), "packet arrives");
                self.write_event('b', "in ring", (host, thread), at, &in_ring(*packet));
                let flow = format!(",\"cat\":\"wait\",\"id\":{packet}");
                self.write_event('s', "waits for the interrupt", (host, thread), at, &flow);
            }
            QueueEvent::Taken { packet } => {
                self.write_event('e', "in ring", (host, thread), at, &in_ring(*packet));
            }
            QueueEvent::Interrupt { packets } => {
                let count = packets.len();
                let more = format!(",\"s\":\"t\",\"args\":{{\"packets\":{count}}}");
                self.write_event('i', "interrupt", (host, thread), at, &more);
                for packet in packets {
                    let flow = format!(",\"cat\":\"wait\",\"id\":{packet}");
                    self.write_event('f', "waits for the interrupt", (host, core), at, &flow);
                }
            }
            QueueEvent::Dropped => {
                self.write_event('i', "dropped: ring full", (host, thread), at, ",\"s\":\"t\"");
            }
        }
    }

    fn finish_document(mut self) -> String {
        // The last event ends the list without a comma.
        self.text.truncate(self.text.trim_end_matches([',', '\n']).len());
        self.text.push_str("\n]}\n");
        self.text
    }
}

fn in_ring(packet: u64) -> String {
    format!(",\"cat\":\"ring\",\"id\":{packet}")
}

/// Names come from profiles and may hold anything.
fn escape_json(text: &str) -> String {
    text.chars()
        .flat_map(|c| match c {
            '"' | '\\' => vec!['\\', c],
            c if c.is_control() => vec![' '],
            c => vec![c],
        })
        .collect()
}
