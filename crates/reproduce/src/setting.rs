//! The interrupt moderation of a row, and the hosts that have it.

use latput_policy::Policy;
use latput_policy::e1000::{E1000, ThrottleMode, throttle_interval};
use latput_sim::scenario::Host;
use latput_sim::vector::{InterruptDelay, Throttle};
use latput_units::Nanos;

use crate::row::{CsvRow, RowError};

/// The largest `InterruptThrottleRate`.
const MOST_HZ: u32 = 1_000_000;

/// The interrupt moderation of a row. Absent parts stay as in the profile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModerationSetting {
    /// The throttle (Intel).
    pub throttle: Option<ThrottleSetting>,
    /// Receive delay (`rx-usecs`).
    pub rx_delay: Option<Nanos>,
    /// Receive frames (`rx-frames`).
    pub rx_frames: Option<u32>,
    /// Transmit delay (`tx-usecs`).
    pub tx_delay: Option<Nanos>,
    /// Transmit frames (`tx-frames`).
    pub tx_frames: Option<u32>,
    /// Whether the other hosts have the same setting, if the text says so.
    pub on_both: Option<bool>,
}

/// A setting of `InterruptThrottleRate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThrottleSetting {
    /// 0.
    Off,
    /// Interrupts per second.
    Rate(u32),
    /// 1, 3 or 4.
    Dynamic(ThrottleMode),
}

impl ThrottleSetting {
    /// The setting of a module parameter.
    pub const fn from_parameter(value: u32) -> Self {
        match value {
            0 => Self::Off,
            1 => Self::Dynamic(ThrottleMode::Dynamic),
            3 => Self::Dynamic(ThrottleMode::Conservative),
            4 => Self::Dynamic(ThrottleMode::Simplified),
            rate => Self::Rate(rate),
        }
    }
}

impl ModerationSetting {
    /// Reads the columns of a row, then the text of `coalescing` for absent ones.
    pub fn from_row(row: &CsvRow<'_>) -> Result<Self, RowError> {
        let words = row.text("coalescing");
        let number =
            |column: &str, names: [&str; 2], most| match row.parse_whole(column, 0..=most)? {
                Some(value) => Ok(Some(value)),
                None => number_in_words(row, names, most),
            };
        let usecs = |column, name| {
            let value = number(column, [name, "all usecs"], 10_000_000)?;
            Ok(value.map(|us| Nanos::from_us(u64::from(us))))
        };
        let frames = |column, name| number(column, [name, "all frames"], 10_000);
        let printed = match row.parse_whole("itr_hz", 0..=MOST_HZ)? {
            Some(value) => Some(value),
            None => row.parse_whole("itr_hz_inferred", 0..=MOST_HZ)?,
        };
        let rx_delay = usecs("rx_usecs", "rx-usecs")?;
        // For tg3 the inferred rate only explains the microseconds.
        let is_delay = rx_delay.is_some();
        let throttle = match printed {
            _ if is_delay => None,
            Some(value) => Some(ThrottleSetting::from_parameter(value)),
            None => throttle_in_words(row)?,
        };
        Ok(Self {
            throttle,
            rx_delay,
            rx_frames: frames("rx_frames", "rx-frames")?,
            tx_delay: usecs("tx_usecs", "tx-usecs")?,
            tx_frames: frames("tx_frames", "tx-frames")?,
            on_both: sides_in_words(words),
        })
    }

    /// Sets a host. A dynamic throttle begins in its bulk class if the traffic `is_bulk`.
    pub fn apply_to_host(&self, host: &mut Host, is_bulk: bool) {
        let coalescing = &mut host.nic.coalescing;
        if let Some(throttle) = self.throttle {
            host.adaptive.throttle = None;
            match throttle {
                ThrottleSetting::Off => coalescing.throttle = Throttle::None,
                ThrottleSetting::Rate(hz) => {
                    let interval = throttle_interval(hz);
                    coalescing.throttle = match coalescing.throttle {
                        Throttle::HoldOff { .. } => Throttle::HoldOff { interval },
                        Throttle::None | Throttle::Gate { .. } => Throttle::Gate { interval },
                    };
                }
                ThrottleSetting::Dynamic(mode) => {
                    let start = if is_bulk {
                        E1000::after_bulk(mode)
                    } else {
                        E1000::after_single_packets(mode)
                    };
                    let policy = Policy::E1000(start);
                    let interval = policy.initial_moderation().delay;
                    coalescing.throttle = Throttle::Gate { interval };
                    // Small packets stay in the class of the handshakes: four of them have less
                    // than the 512 bytes of the next class.
                    let is_settled = !is_bulk && mode != ThrottleMode::Simplified;
                    host.adaptive.throttle = (!is_settled).then_some(policy);
                }
            }
        }
        // The delay while an interrupt is served is a separate parameter. A change of both
        // directions' delays changes it too.
        let moves =
            |from: Option<Nanos>, of: &InterruptDelay| from.is_some_and(|delay| delay != of.delay);
        if moves(self.rx_delay, &coalescing.rx) && moves(self.tx_delay, &coalescing.tx) {
            for delay in [&mut coalescing.rx, &mut coalescing.tx] {
                (delay.delay_irq, delay.frames_irq) = (None, None);
            }
        }
        let assign = |to: &mut Nanos, from: Option<Nanos>| *to = from.unwrap_or(*to);
        assign(&mut coalescing.rx.delay, self.rx_delay);
        assign(&mut coalescing.tx.delay, self.tx_delay);
        coalescing.rx.frames = self.rx_frames.unwrap_or(coalescing.rx.frames);
        coalescing.tx.frames = self.tx_frames.unwrap_or(coalescing.tx.frames);
    }
}

/// The throttle of the text.
fn throttle_in_words(row: &CsvRow<'_>) -> Result<Option<ThrottleSetting>, RowError> {
    let is_off = own_words(row).contains("InterruptThrottle disabled");
    let rate = number_in_words(row, ["InterruptThrottleRate"; 2], MOST_HZ)?;
    Ok(rate.map(ThrottleSetting::from_parameter).or(is_off.then_some(ThrottleSetting::Off)))
}

/// The text about the measured system. Text after a semicolon is about the others.
fn own_words<'a>(row: &CsvRow<'a>) -> &'a str {
    row.text("coalescing").split(';').next().unwrap_or("")
}

/// The number after the first of `names` that occurs in the text.
fn number_in_words(row: &CsvRow<'_>, names: [&str; 2], most: u32) -> Result<Option<u32>, RowError> {
    let words = own_words(row);
    // `rx-usecs-irq` is another parameter.
    let behind = |name| Some(words.split_once(name)?.1).filter(|rest| !rest.starts_with('-'));
    let Some((name, rest)) = names.into_iter().find_map(|name| Some((name, behind(name)?))) else {
        return Ok(None);
    };
    let digits: String =
        rest.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    if digits.is_empty() {
        return Ok(None);
    }
    let number = digits.parse().ok().filter(|number| *number <= most);
    let wrong =
        || row.field_error("coalescing", format!("`{name} {digits}` must be at most {most}"));
    number.map(Some).ok_or_else(wrong)
}

fn sides_in_words(words: &str) -> Option<bool> {
    if words.contains("both s") || words.contains("both hosts") {
        return Some(true);
    }
    (words.contains("measured system") || words.contains("load generators")).then_some(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::CsvTable;

    #[test]
    fn words_say_what_the_columns_leave_open() {
        let us = |us| Some(Nanos::from_us(us));
        let all =
            parse_moderation("about 1000 interrupts/s (all usecs 1000, all frames 100)").unwrap();
        assert_eq!((all.rx_delay, all.rx_frames), (us(1_000), Some(100)));
        assert_eq!((all.tx_delay, all.tx_frames), (us(1_000), Some(100)));
        let one =
            parse_moderation("rx-usecs-irq 3, rx-frames 1 on both sides, else default").unwrap();
        assert_eq!((one.rx_delay, one.rx_frames, one.on_both), (None, Some(1), Some(true)));
        let others =
            parse_moderation("default; load generators with InterruptThrottleRate 0").unwrap();
        assert_eq!((others.throttle, others.on_both), (None, Some(false)));
        let off = parse_moderation("InterruptThrottle disabled").unwrap();
        assert_eq!(off.throttle, Some(ThrottleSetting::Off));
        let rate = parse_moderation("InterruptThrottleRate=8000").unwrap();
        assert_eq!(rate.throttle, Some(ThrottleSetting::Rate(8_000)));
    }

    #[test]
    fn impossible_number_in_words_is_named() {
        let error = parse_moderation("InterruptThrottleRate 99999999999").unwrap_err().to_string();
        assert!(
            error.contains("column `coalescing`: `InterruptThrottleRate 99999999999`"),
            "{error}"
        );
        let error = parse_moderation("rx-usecs 10000001").unwrap_err().to_string();
        assert!(error.contains("must be at most 10000000"), "{error}");
    }

    #[test]
    fn both_delays_follow_served_interrupt() {
        let in_irq = |words: &str| {
            let systems = crate::system::SystemCatalog::load_shipped();
            let mut host = crate::experiment::build_host(
                "sut",
                latput_trial::observation::Role::Sut,
                &systems.expect_profile("bl25p-tg3").sut,
            );
            host.nic.coalescing.rx.frames_irq = Some(5);
            parse_moderation(words).unwrap().apply_to_host(&mut host, false);
            host.nic.coalescing.rx.frames_irq
        };
        assert_eq!(in_irq("tg3 default"), Some(5));
        assert_eq!(in_irq("rx-usecs 40"), Some(5));
        assert_eq!(in_irq("all usecs 1000, all frames 100"), None);
    }

    fn parse_moderation(words: &str) -> Result<ModerationSetting, RowError> {
        let table = CsvTable {
            header: vec![String::from("coalescing")],
            rows: vec![vec![words.to_owned()]],
        };
        ModerationSetting::from_row(&CsvRow::new(&table, 0))
    }
}
