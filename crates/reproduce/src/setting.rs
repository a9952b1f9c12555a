//! The moderation that a row says was in force, and on which hosts.

use latput_moderate::Policy;
use latput_moderate::e1000::{E1000, Mode, throttle_interval};
use latput_sim::scenario::Host;
use latput_sim::vector::Throttle;
use latput_units::Nanos;

use crate::row::{Row, RowError};

/// What a row says of interrupt moderation; what it does not say stays as the profile has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moderation {
    /// The throttle (Intel).
    pub throttle: Option<Throttling>,
    /// Receive delay (`rx-usecs`).
    pub rx_delay: Option<Nanos>,
    /// Receive frames (`rx-frames`).
    pub rx_frames: Option<u32>,
    /// Transmit delay (`tx-usecs`).
    pub tx_delay: Option<Nanos>,
    /// Transmit frames (`tx-frames`).
    pub tx_frames: Option<u32>,
    /// Whether the text says that the other hosts were set alike.
    pub on_both: Option<bool>,
}

/// A setting of `InterruptThrottleRate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Throttling {
    /// 0.
    Off,
    /// Interrupts per second.
    Rate(u32),
    /// 1, 3 or 4.
    Dynamic(Mode),
}

impl Throttling {
    /// As the module parameter gives it.
    pub const fn from_parameter(value: u32) -> Self {
        match value {
            0 => Self::Off,
            1 => Self::Dynamic(Mode::Dynamic),
            3 => Self::Dynamic(Mode::Conservative),
            4 => Self::Dynamic(Mode::Simplified),
            rate => Self::Rate(rate),
        }
    }
}

impl Moderation {
    /// Reads the columns of a row, then the words of `coalescing` for what the columns leave open.
    pub fn of(row: &Row<'_>) -> Result<Self, RowError> {
        let usecs = |column| {
            let value = row.whole(column, 0..=10_000_000)?;
            Ok(value.map(|us| Nanos::from_us(u64::from(us))))
        };
        let words = row.text("coalescing");
        let printed = match row.whole("itr_hz", 0..=1_000_000)? {
            Some(value) => Some(value),
            None => row.whole("itr_hz_inferred", 0..=1_000_000)?,
        };
        let rx_delay = usecs("rx_usecs")?;
        // For tg3 the inferred rate only says what the microseconds mean.
        let is_delay = rx_delay.is_some();
        let throttle = match printed {
            _ if is_delay => None,
            Some(value) => Some(Throttling::from_parameter(value)),
            None => throttle_in_words(words),
        };
        Ok(Self {
            throttle,
            rx_delay,
            rx_frames: row.whole("rx_frames", 0..=10_000)?,
            tx_delay: usecs("tx_usecs")?,
            tx_frames: row.whole("tx_frames", 0..=10_000)?,
            on_both: sides_in_words(words),
        })
    }

    /// Sets a host; a dynamic throttle begins in its bulk class where the traffic `is_bulk`.
    pub fn apply(&self, host: &mut Host, is_bulk: bool) {
        let coalescing = &mut host.nic.coalescing;
        if let Some(throttle) = self.throttle {
            host.adaptive.throttle = None;
            match throttle {
                Throttling::Off => coalescing.throttle = Throttle::None,
                Throttling::Rate(hz) => {
                    let interval = throttle_interval(hz);
                    coalescing.throttle = match coalescing.throttle {
                        Throttle::HoldOff { .. } => Throttle::HoldOff { interval },
                        Throttle::None | Throttle::Gate { .. } => Throttle::Gate { interval },
                    };
                }
                Throttling::Dynamic(mode) => {
                    let start = if is_bulk {
                        E1000::after_bulk(mode)
                    } else {
                        E1000::after_single_packets(mode)
                    };
                    let policy = Policy::E1000(start);
                    let interval = policy.initial().delay;
                    coalescing.throttle = Throttle::Gate { interval };
                    host.adaptive.throttle = Some(policy);
                }
            }
        }
        let assign = |to: &mut Nanos, from: Option<Nanos>| *to = from.unwrap_or(*to);
        assign(&mut coalescing.rx.delay, self.rx_delay);
        assign(&mut coalescing.tx.delay, self.tx_delay);
        coalescing.rx.frames = self.rx_frames.unwrap_or(coalescing.rx.frames);
        coalescing.tx.frames = self.tx_frames.unwrap_or(coalescing.tx.frames);
    }
}

/// A throttle that only the text names.
fn throttle_in_words(words: &str) -> Option<Throttling> {
    let first = words.split(';').next().unwrap_or("");
    if let Some((_, rest)) = first.split_once("InterruptThrottleRate") {
        let digits: String = rest
            .chars()
            .skip_while(|c| !c.is_ascii_digit())
            .take_while(char::is_ascii_digit)
            .collect();
        return digits.parse().ok().map(Throttling::from_parameter);
    }
    (first.contains("InterruptThrottle disabled")).then_some(Throttling::Off)
}

fn sides_in_words(words: &str) -> Option<bool> {
    if words.contains("both s") || words.contains("both hosts") {
        return Some(true);
    }
    (words.contains("measured system") || words.contains("load generators")).then_some(false)
}
