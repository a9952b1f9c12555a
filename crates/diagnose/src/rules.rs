//! The findings: a row for each, in a file of its own. A new one is a file and a line here.

use crate::finding::Rule;

pub(crate) mod adaptive_flutter;
pub(crate) mod backlog_drops;
pub(crate) mod bql_pinned;
pub(crate) mod busy_poll_waste;
pub(crate) mod cloud_allowance;
pub(crate) mod conntrack;
pub(crate) mod cpu_full_of_softirq;
pub(crate) mod cpu_quota;
pub(crate) mod elephant_flow;
pub(crate) mod frequency;
pub(crate) mod idle;
pub(crate) mod idle_states;
pub(crate) mod irq_far_numa;
pub(crate) mod irq_moved;
pub(crate) mod irq_on_application_cpu;
pub(crate) mod irq_on_one_cpu;
pub(crate) mod knob_ignored;
pub(crate) mod listen_queue;
pub(crate) mod loss_on_path;
pub(crate) mod lro_forwarding;
pub(crate) mod moderation_too_long;
pub(crate) mod moderation_too_short;
pub(crate) mod mtu_black_hole;
pub(crate) mod mtu_mismatch;
pub(crate) mod nagle_delayed_ack;
pub(crate) mod napi_thread_starved;
pub(crate) mod no_fault;
pub(crate) mod no_free_vector;
pub(crate) mod offload_off;
pub(crate) mod pause_by_peer;
pub(crate) mod pause_by_us;
pub(crate) mod pcie_limit;
pub(crate) mod qdisc_bloat;
pub(crate) mod qdisc_drops;
pub(crate) mod receive_window;
pub(crate) mod reordering;
pub(crate) mod ring_too_small;
pub(crate) mod rps_only_hops;
pub(crate) mod rss_imbalance;
pub(crate) mod second_tuner;
pub(crate) mod slow_application;
pub(crate) mod slow_peer;
pub(crate) mod softirq_budget;
pub(crate) mod spurious_timeout;
pub(crate) mod steal;
pub(crate) mod tcp_receive_buffer;
pub(crate) mod tcp_send_buffer;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod tunnel_checksum;
pub(crate) mod udp_receive_buffer;
pub(crate) mod udp_send_buffer;

/// Every finding. Of two that explain as much, the first in this order is told first: causes before what follows from them.
pub const RULES: &[&Rule] = &[
    &conntrack::RULE,
    &listen_queue::RULE,
    &qdisc_drops::RULE,
    &udp_send_buffer::RULE,
    &udp_receive_buffer::RULE,
    &cloud_allowance::RULE,
    &lro_forwarding::RULE,
    &pcie_limit::RULE,
    &softirq_budget::RULE,
    &ring_too_small::RULE,
    &backlog_drops::RULE,
    &cpu_quota::RULE,
    &steal::RULE,
    &pause_by_peer::RULE,
    &pause_by_us::RULE,
    &no_free_vector::RULE,
    &irq_on_one_cpu::RULE,
    &rss_imbalance::RULE,
    &napi_thread_starved::RULE,
    &irq_on_application_cpu::RULE,
    &cpu_full_of_softirq::RULE,
    &knob_ignored::RULE,
    &moderation_too_long::RULE,
    &adaptive_flutter::RULE,
    &idle_states::RULE,
    &frequency::RULE,
    &irq_far_numa::RULE,
    &offload_off::RULE,
    &moderation_too_short::RULE,
    &rps_only_hops::RULE,
    &busy_poll_waste::RULE,
    &second_tuner::RULE,
    &irq_moved::RULE,
    &tcp_receive_buffer::RULE,
    &mtu_mismatch::RULE,
    &mtu_black_hole::RULE,
    &tunnel_checksum::RULE,
    &reordering::RULE,
    &spurious_timeout::RULE,
    &loss_on_path::RULE,
    &nagle_delayed_ack::RULE,
    &slow_application::RULE,
    &slow_peer::RULE,
    &tcp_send_buffer::RULE,
    &receive_window::RULE,
    &bql_pinned::RULE,
    &qdisc_bloat::RULE,
    &elephant_flow::RULE,
];

/// The answers where nothing is wrong: the first that fits is given, the last one always does.
pub const ANSWERS: &[&Rule] = &[&idle::RULE, &no_fault::RULE];

#[cfg(test)]
mod tests;
