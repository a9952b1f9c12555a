//! The findings: a row for each, in a file of its own. A new one is a file and a line here.

use crate::finding::Rule;

pub(crate) mod udp_receive_buffer;
pub(crate) mod udp_send_buffer;

/// Every finding. Of two that explain as much, the first in this order is told first.
pub const RULES: &[&Rule] = &[
    &udp_send_buffer::RULE,
    &udp_receive_buffer::RULE,
];
