//! Finds the deferrals of NAPI that have a wanted effect, and how long a slice must be to show it, by what is seen from
//! outside of latput: the application's own figure, and the time that the CPU's idle states leave.

use anyhow::{Context, Result, bail};
use latput_stats::order::middle;

use super::traffic::{ForeignTraffic, POLLS, TrafficFigures};

/// The deferrals that are tried first, in percent of today's.
const TRIED_PERCENT: &[u32] = &[105, 110, 120, 135, 150, 200, 300, 400];
/// Seconds of each look, and turns of today's and the other setting that the truth is told from.
const LOOK_S: u32 = 3;
const TURNS: u32 = 5;
/// How far the truth may be from what is wanted.
const TOLERANCE: f64 = 0.03;
/// Corrections of a deferral.
const MOST_TRIES: u32 = 3;
/// Looks of a second from which the noise of the tail is known.
const NOISE_LOOKS: usize = 20;
/// The noise between two slices at which a tail a fifth longer is banned within two slices in 19 of 20 runs: by
/// `latput_model::live::is_proven_above`, with a limit of 1.05 and a first slice that is half as long (simulated).
const WANTED_NOISE: f64 = 0.022;
/// Limits of a slice, seconds.
const SLICES_S: [f64; 2] = [1.0, 6.0];

/// A figure of the traffic.
#[derive(Clone, Copy, Debug)]
pub(super) enum OutsideFigure {
    Tail,
    PacketCpu,
}

impl OutsideFigure {
    fn read(self, shown: &TrafficFigures) -> f64 {
        match self {
            Self::Tail => shown.p99_ns,
            Self::PacketCpu => shown.packet_cpu_ns,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Tail => "p99 of requests",
            Self::PacketCpu => "CPU time of a packet",
        }
    }
}

/// A deferral, and what it truly does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deferral {
    microseconds: u32,
    today_us: u32,
    figure: OutsideFigure,
    /// The figure over today's.
    ratio: f64,
}

impl Deferral {
    /// A factor of so many settings that all defer so, beside today's.
    pub(super) fn format_factor(&self, settings: u32) -> String {
        let level = |us, polls| format!("[\"{us}us\", {polls}]");
        let others = (POLLS + 1..=POLLS + settings).map(|polls| level(self.microseconds, polls));
        let levels: Vec<String> =
            std::iter::once(level(self.today_us, POLLS)).chain(others).collect();
        format!("\"gro-flush-timeout + napi-defer-hard-irqs\" = [{}]", levels.join(", "))
    }

    pub(super) fn in_words(&self) -> String {
        let percent = 100.0 * (self.ratio - 1.0);
        let name = self.figure.name();
        let (percent, way) = if percent < 0.0 { (-percent, "less") } else { (percent, "more") };
        format!("{name} {percent:.0}% {way} ({} us, today {} us)", self.microseconds, self.today_us)
    }
}

/// The effects of today's deferral, which has none, and of each that is tried first.
pub(super) struct DeferralSweep(Vec<(u32, [f64; 2])>);

impl DeferralSweep {
    pub(super) fn run(traffic: &ForeignTraffic<'_>) -> Result<Self> {
        let one = |percent: &u32| {
            let microseconds = traffic.today_us * percent / 100;
            let logs = measure_effects(traffic, microseconds, 1)?;
            let [tail, cpu] = logs.map(|log| 100.0 * log.exp_m1());
            println!(
                "deferral of {microseconds} us: p99 {tail:+.0}%, CPU time of a packet {cpu:+.0}%"
            );
            Ok((microseconds, logs))
        };
        let today = Ok((traffic.today_us, [0.0; 2]));
        Ok(Self(
            std::iter::once(today).chain(TRIED_PERCENT.iter().map(one)).collect::<Result<_>>()?,
        ))
    }

    /// The deferral after which a figure is so many times today's.
    pub(super) fn find_deferral(
        &self,
        traffic: &ForeignTraffic<'_>,
        figure: OutsideFigure,
        wanted: f64,
    ) -> Result<Deferral> {
        let wanted_log = wanted.ln();
        let [mut low, mut high] = self.bracket_effect(figure, wanted_log).with_context(|| {
            format!(
                "no deferral that was tried makes the {} {wanted} times as large",
                figure.name()
            )
        })?;
        for _ in 0..MOST_TRIES {
            let part = (wanted_log - low.1) / (high.1 - low.1);
            let width = f64::from(high.0 - low.0);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a part of microseconds"
            )]
            let between = low.0 + (width * part.clamp(0.1, 0.9)).round() as u32;
            let found = Deferral::from_measurement(traffic, figure, between)?;
            if (found.ratio - wanted).abs() <= TOLERANCE {
                return Ok(found);
            }
            let here = (between, found.ratio.ln());
            if here.1 / wanted_log >= 1.0 {
                high = here;
            } else {
                low = here;
            }
            if high.0 <= low.0 + 1 {
                break;
            }
        }
        bail!("the {} does not follow the deferral: is the machine quiet?", figure.name())
    }

    /// The last deferral with less than the wanted effect, and the first with more.
    fn bracket_effect(&self, figure: OutsideFigure, wanted_log: f64) -> Option<[(u32, f64); 2]> {
        let of_figure =
            |(microseconds, logs): &(u32, [f64; 2])| (*microseconds, logs[figure as usize]);
        let mut neighbours =
            self.0.windows(2).map(|pair| [of_figure(&pair[0]), of_figure(&pair[1])]);
        neighbours.find(|[_, high]| high.1 / wanted_log >= 1.0)
    }
}

impl Deferral {
    /// True effect of a deferral on a figure.
    pub(super) fn from_measurement(
        traffic: &ForeignTraffic<'_>,
        figure: OutsideFigure,
        microseconds: u32,
    ) -> Result<Self> {
        let log = measure_effects(traffic, microseconds, TURNS)?[figure as usize];
        let found = Self { microseconds, today_us: traffic.today_us, figure, ratio: log.exp() };
        println!("measured: {}", found.in_words());
        Ok(found)
    }
}

/// The logarithms of the figures under a deferral over today's: the medians of turns of both.
fn measure_effects(
    traffic: &ForeignTraffic<'_>,
    microseconds: u32,
    turns: u32,
) -> Result<[f64; 2]> {
    let mut logs = [Vec::new(), Vec::new()];
    for turn in 0..turns {
        let under = |deferral| {
            traffic.set_deferral(deferral)?;
            traffic.measure_figures(LOOK_S)
        };
        // The order changes, so that a steady drift of the load cancels out.
        let (today, other) = if turn % 2 == 0 {
            let today = under(traffic.today_us)?;
            (today, under(microseconds)?)
        } else {
            let other = under(microseconds)?;
            (under(traffic.today_us)?, other)
        };
        for (logs, figure) in logs.iter_mut().zip([OutsideFigure::Tail, OutsideFigure::PacketCpu]) {
            logs.push((figure.read(&other) / figure.read(&today)).ln());
        }
    }
    traffic.set_deferral(traffic.today_us)?;
    Ok(logs.map(|logs| middle(logs).expect("there are turns")))
}

/// The slice that shows a longer tail, in seconds, by how much the tail varies from second to second.
pub(super) fn slice_for_tail(traffic: &ForeignTraffic<'_>) -> Result<f64> {
    let looks = (0..NOISE_LOOKS).map(|_| Ok(traffic.measure_figures(1)?.p99_ns));
    let noise_1s = estimate_noise(&looks.collect::<Result<Vec<f64>>>()?);
    let seconds = slice_s(noise_1s);
    println!(
        "p99 of requests differs by {:.1}% between neighbouring seconds: slices of {seconds:.1} s",
        100.0 * noise_1s
    );
    Ok(seconds)
}

/// Root of the mean square of the logarithms of ratios of neighbours, of which every other is used.
fn estimate_noise(looks: &[f64]) -> f64 {
    let logs: Vec<f64> = looks.chunks_exact(2).map(|pair| (pair[1] / pair[0]).ln()).collect();
    (logs.iter().map(|log| log * log).sum::<f64>() / logs.len().max(1) as f64).sqrt()
}

fn slice_s(noise_1s: f64) -> f64 {
    (noise_1s / WANTED_NOISE).powi(2).clamp(SLICES_S[0], SLICES_S[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slice_length_follows_the_noise() {
        assert!(estimate_noise(&[100.0, 110.0, 90.0, 99.0]) > 0.09);
        assert!((slice_s(0.044) - 4.0).abs() < 1e-9);
        assert!((slice_s(0.0) - 1.0).abs() < 1e-9 && (slice_s(9.0) - 6.0).abs() < 1e-9);
    }

    #[test]
    fn deferrals_surround_the_effect() {
        let sweep = DeferralSweep(vec![
            (10, [0.0; 2]),
            (20, [0.0, 0.01]),
            (40, [0.1, -0.05]),
            (80, [0.3, -0.2]),
        ]);
        assert_eq!(sweep.bracket_effect(OutsideFigure::Tail, 0.2), Some([(40, 0.1), (80, 0.3)]));
        assert_eq!(
            sweep.bracket_effect(OutsideFigure::PacketCpu, -0.1),
            Some([(40, -0.05), (80, -0.2)])
        );
        assert_eq!(sweep.bracket_effect(OutsideFigure::Tail, 0.5), None);
    }
}
