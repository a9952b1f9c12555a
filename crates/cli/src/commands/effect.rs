//! Whether a change has an effect: what live traffic makes of it.

use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use latput_knobs::effect::{self, EffectVerdict, Judgement};
use latput_linux::LinuxKernel;

use crate::context::Context;
use crate::output;

/// How long the interface's traffic is watched.
const WATCH: Duration = Duration::from_secs(1);
/// How often a request to stop is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What was found of a change.
#[derive(Debug)]
pub(crate) struct Effect {
    judgements: Vec<Judgement>,
}

/// Watches the interface's own traffic for a second. What cannot be watched is told and is no failure:
/// whoever calls this has a change under way.
pub(crate) fn verify(context: &Context, interface: &str) -> Effect {
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
            output::remark(&format!("latput: effect not verified: {error}"));
            return Effect { judgements: Vec::new() };
        }
    };
    let found = Effect { judgements };
    let nothing = "latput: effect not verified: nothing here asks for a gap between interrupts or polls \
                   (rx-usecs does, and gro-flush-timeout with napi-defer-hard-irqs, from 10us on)";
    let text = found.text();
    output::remark(if text.is_empty() { nothing } else { text.trim_end() });
    found
}

impl Effect {
    /// Whether the device does not do what it accepted.
    pub(crate) fn is_ignored(&self) -> bool {
        self.judgements.iter().any(|one| one.verdict == EffectVerdict::Ignored)
    }

    /// A line for each knob.
    fn text(&self) -> String {
        let mut text = String::new();
        for Judgement { knob, verdict, detail } in &self.judgements {
            let _ = writeln!(text, "latput: effect of {knob}: {verdict}: {detail}");
        }
        text
    }
}
