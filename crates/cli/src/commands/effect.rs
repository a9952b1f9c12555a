//! Measures the effect of a change on live traffic.

use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use latput_knobs::effect::{self, EffectVerdict, Judgement};
use latput_linux::LinuxKernel;

use crate::context::CliContext;
use crate::output;

/// Duration of the measurement.
const WATCH: Duration = Duration::from_secs(1);
/// Interval of checking for a stop.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The effect of a change.
#[derive(Debug)]
pub(crate) struct MeasuredEffect {
    judgements: Vec<Judgement>,
}

/// Observes the interface's own traffic for a second. Effects that cannot be measured are remarks
/// and not errors, because the caller has a change in progress.
pub(crate) fn measure_effect(context: &CliContext, interface: &str) -> MeasuredEffect {
    let wait = || {
        let begun = Instant::now();
        while begun.elapsed() < WATCH && !context.stop.is_raised() {
            thread::sleep(LOOK_EVERY);
        }
    };
    let state = LinuxKernel::open().map(|kernel| kernel.read_all(interface));
    let seen = state.and_then(|state| Ok((state, latput_linux::effect::watch(interface, wait)?)));
    let judgements = match seen {
        Ok((state, seen)) => effect::judge(&state, seen),
        Err(error) => {
            output::print_remark(&format!("latput: effect not verified: {error}"));
            return MeasuredEffect { judgements: Vec::new() };
        }
    };
    let found = MeasuredEffect { judgements };
    let nothing = "latput: effect not verified: none of these knobs delays interrupts or polls (rx-usecs does, \
                   or gro-flush-timeout with napi-defer-hard-irqs, from 10us)";
    let text = found.render_text();
    output::print_remark(if text.is_empty() { nothing } else { text.trim_end() });
    found
}

impl MeasuredEffect {
    /// Whether the device ignores an accepted value.
    pub(crate) fn is_ignored(&self) -> bool {
        self.judgements.iter().any(|one| one.verdict == EffectVerdict::Ignored)
    }

    /// One line for each knob.
    fn render_text(&self) -> String {
        let mut text = String::new();
        for Judgement { knob, verdict, detail } in &self.judgements {
            let _ = writeln!(text, "latput: effect of {knob}: {verdict}: {detail}");
        }
        text
    }
}
