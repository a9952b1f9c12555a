//! The findings: a row for each, in a file of its own. A new one is a file and a line here.

use crate::finding::Rule;

pub(crate) mod bql_pinned;
pub(crate) mod conntrack;
pub(crate) mod elephant_flow;
pub(crate) mod idle;
pub(crate) mod listen_queue;
pub(crate) mod loss_on_path;
pub(crate) mod mtu_black_hole;
pub(crate) mod mtu_mismatch;
pub(crate) mod nagle_delayed_ack;
pub(crate) mod no_fault;
pub(crate) mod qdisc_bloat;
pub(crate) mod qdisc_drops;
pub(crate) mod receive_window;
pub(crate) mod reordering;
pub(crate) mod slow_application;
pub(crate) mod slow_peer;
pub(crate) mod spurious_timeout;
pub(crate) mod tcp_receive_buffer;
pub(crate) mod tcp_send_buffer;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod tunnel_checksum;
pub(crate) mod udp_receive_buffer;
pub(crate) mod udp_send_buffer;

/// Every finding. Of two that explain as much, the first in this order is told first.
pub const RULES: &[&Rule] = &[
    &conntrack::RULE,
    &listen_queue::RULE,
    &qdisc_drops::RULE,
    &udp_send_buffer::RULE,
    &udp_receive_buffer::RULE,
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
