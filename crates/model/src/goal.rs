//! Goals: what the owner of a host wants, such as
//! `minimize latency_ns_p99 where throughput_bps >= 0.95 best`.

/// A parsed goal.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// As it was written, or the named goal's meaning.
    pub text: String,
}
