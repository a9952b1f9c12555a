//! Every tuning constant of the policy, in one place.
//!
//! "Hand-set" means that nothing written tells how the value was found; "traced" names the entry of `docs/journal`.
//! `cargo xtask bench-policies --ablate` shows the gain of each one on the simulated loads.

use latput_units::Nanos;

/// Constants of [`ResponsePolicy`](super::ResponsePolicy). Rates are compared as logarithms: 0.18 is 18 to 20%.
/// Pairs of them are for all bytes, and for small packets beside bulk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResponseParams {
    // Slots: the measurements that the search compares.
    /// Polls that a slot has at least. Hand-set.
    pub slot_polls: u32,
    /// Time that a slot lasts at least: a few interrupts of a burst must not decide. Hand-set.
    pub slot_least: Nanos,
    /// Time after which a slot of fewer polls counts too. Hand-set.
    pub slot_most: Nanos,
    /// Scatter (logarithm) that a slot's rate should not exceed; a load that scatters more gets longer slots.
    /// Hand-set; the default of `DelayBounds::loss_ratio` is the same.
    pub slot_scatter: f64,
    /// How many times longer they get at most. Hand-set.
    pub slot_longest_ratio: f64,
    /// Polls of each vector after a change that still belong to the old delay. An observation of `slot_polls` polls
    /// belongs to the new one, although its first few do not. Hand-set.
    pub settling_polls: u32,
    /// Small packets per slot from which they are noticed beside bulk, and below which they are gone. Hand-set.
    pub small_seen: [u32; 2],
    /// Mean frame (byte) from which traffic is bulk: 4 x [`SMALL_BYTES`](crate::SMALL_BYTES).
    pub bulk_frame_bytes: u64,
    /// Gap between polls, beyond the delay, from which it is a pause. Hand-set.
    pub pause_least: Nanos,

    // Loads: what is learnt, and when it is another load.
    /// Scatter (logarithm) of a load's slots until it shows its own. Hand-set.
    pub scatter_first: f64,
    /// Deviation (logarithm) from a step's rate that makes another load, if two slots agree. Hand-set.
    pub jump_log: [f64; 2],
    /// The same for a daemon's samples, until the load's scatter is learnt. Traced: `2026-11-23-hold-turns.md`.
    pub jump_log_first: [f64; 2],
    /// Slots from which the scatter counts as learnt. Traced: `2026-11-23-hold-turns.md`.
    pub learnt_slots: u32,
    /// Distance of two slots of which one has small packets beside bulk and the other has none; over 1 is another
    /// load. Hand-set.
    pub small_change_distance: f64,
    /// Weight of the newest slot in a step's mean, once the step has more slots than its inverse. Hand-set.
    pub slot_weight: f64,
    /// The same for the rate of requests: a lost request keeps its client waiting for four samples. Traced:
    /// `2026-11-23-requests-beside-bulk.md`.
    pub requests_weight: f64,
    /// Time without a full slot after which a load counts as idle. Hand-set.
    pub idle_after: Nanos,
    /// Share of the usual packets below which a span counts as idle. Hand-set.
    pub idle_ratio: f64,
    /// Polls of one observation from which it is a daemon's sample, and not a driver's poll. Hand-set.
    pub sample_polls: u32,

    // Search: tests of steps, and holds.
    /// Slots that a test takes at most, if it also takes `test_least`. Hand-set.
    pub test_slots: u32,
    /// Time that a test takes before it ends undecided. Hand-set.
    pub test_least: Nanos,
    /// Standard errors beyond the allowed loss that a test accepts at its end. Hand-set.
    pub accept_errors: f64,
    /// Steps that the search climbs at once while none is known to be too high. Hand-set.
    pub climb_steps: usize,
    /// Share of a closed loop's loss from which a loss is a sign of waiting. Traced: `2026-11-22-hold-samples.md`.
    pub closed_loop_least: f64,
    /// Multiple of a closed loop's loss up to which waiting can explain a loss: each delay ends with a poll, which may
    /// take as long. Traced: `2026-11-23-hold-turns.md`.
    pub closed_loop_most: f64,
    /// Standard error of the prior belief that requests lose what a closed loop does, as a share of that loss.
    /// Hand-set, see `2026-11-23-requests-beside-bulk.md`.
    pub prior_error_ratio: f64,
    /// Standard errors beyond the allowed loss from which a partial sample decides. Traced:
    /// `2026-11-22-hold-samples.md`.
    pub early_errors: f64,
    /// Slots that an earlier test of a neighbour counts as: its figures are old. Hand-set.
    pub neighbour_slots: u32,
    /// Slots of the first hold; each next one is twice as long. Hand-set.
    pub hold_slots_first: u32,
    /// Slots of the longest hold. Hand-set.
    pub hold_slots_most: u32,
    /// The same where requests keep the delay short: their end does not change the bulk that they were beside.
    /// Hand-set, see `2026-11-23-requests-beside-bulk.md`.
    pub hold_slots_requests: u32,

    // Memory of earlier loads.
    /// Loads that are remembered. Hand-set.
    pub memory_loads: usize,
    /// Distance below which a load is the remembered one; at 1 it is another. Hand-set.
    pub same_load_distance: f64,
    /// Slots that a step counts as once its load is restored. Hand-set.
    pub restored_slots: u32,

    // Jumps of the rate, seen within a few polls. Traced: `2026-11-23-turns.md`.
    /// Time that polls are taken together for, if the delay is not longer: a piece.
    pub piece_least: Nanos,
    /// Difference (logarithm) from the expected rate from which a piece deviates; 0.6 is a factor of 1.8.
    pub piece_log: f64,
    /// Standard errors of a Poisson stream that it must differ by as well.
    pub piece_errors: f64,
    /// Deviating pieces in a row, all above or all below, that make another load.
    pub jump_pieces: u32,
    /// Negative log likelihood that they must exceed as well: exp(-12) is once in 160 000.
    pub jump_neg_log: f64,
    /// Mean deviation (logarithm) of a piece until a load shows its own.
    pub jitter_first: f64,
    /// Weight of the newest piece in it.
    pub jitter_weight: f64,
}

impl ResponseParams {
    /// The values in use.
    pub const DEFAULT: Self = Self {
        slot_polls: 24,
        slot_least: Nanos::from_us(600),
        slot_most: Nanos::from_ms(6),
        slot_scatter: 0.02,
        slot_longest_ratio: 8.0,
        settling_polls: 3,
        small_seen: [12, 4],
        bulk_frame_bytes: 4 * crate::SMALL_BYTES as u64,
        pause_least: Nanos::from_ms(2),
        scatter_first: 0.03,
        jump_log: [0.18, 0.4],
        jump_log_first: [0.7, 2.0],
        learnt_slots: 6,
        small_change_distance: 2.0,
        slot_weight: 1.0 / 12.0,
        requests_weight: 1.0 / 16.0,
        idle_after: Nanos::from_ms(40),
        idle_ratio: 1.0 / 8.0,
        sample_polls: 4,
        test_slots: 6,
        test_least: Nanos::from_ms(12),
        accept_errors: 1.0,
        climb_steps: 3,
        closed_loop_least: 0.5,
        closed_loop_most: 2.0,
        prior_error_ratio: 0.25,
        early_errors: 4.0,
        neighbour_slots: 2,
        hold_slots_first: 12,
        hold_slots_most: 400,
        hold_slots_requests: 50,
        memory_loads: 4,
        same_load_distance: 0.6,
        restored_slots: 4,
        piece_least: Nanos::from_us(100),
        piece_log: 0.6,
        piece_errors: 3.0,
        jump_pieces: 3,
        jump_neg_log: 12.0,
        jitter_first: 0.3,
        jitter_weight: 0.01,
    };
}

impl Default for ResponseParams {
    fn default() -> Self {
        Self::DEFAULT
    }
}
