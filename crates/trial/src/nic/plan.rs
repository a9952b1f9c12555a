//! The text of a plan for an interface.

use std::fmt::Write as _;

use latput_knobs::{Knob, Tier, Value};
use latput_units::text::format_count;

use super::Nic;
use super::families::{FAMILIES, Family};

/// Most settings of the plan. Factors that would make more are written as comments.
pub const MOST_SETTINGS: usize = 1_000;
/// Fewest settings for a search, as `latput tune` has it: with fewer, confirming a winner takes longer.
const FEWEST_SEARCHED: usize = 20;

const WORKLOADS: &str = r#"
[[workload]]
kind = "tcp_rr" # 1 byte each way

[[workload]]
kind = "tcp_rr"
burst = 16 # 16 more requests in flight beside the first

[[workload]]
kind = "tcp_stream"
message_bytes = 32768
probe_hz = 1000 # ICMP echo beside it: latency under load
"#;

const METHOD: &str = r#"budget = "30min"
on_unsupported = "skip" # a level that the driver refuses is left out, and said
repetitions = { min = 5, max = 30 }
warmup = "200ms"
duration = "1s"
confidence = 0.99
half_width = 0.025
allow_link_reset = false # true also tries the levels that take the link down and up
"#;

const GOAL: &str =
    "goal = { minimize = \"latency_ns_p99\", where = [\"throughput_bps >= 0.95 today\"] }";

/// Most settings of a plan for live traffic: each takes minutes.
const MOST_LIVE_SETTINGS: usize = 8;
const LIVE_GOAL: &str =
    "goal = { minimize = \"sut_packet_cpu_ns\", where = [\"tcp_rtt_ns_p99 <= 1.05 today\"] }";
const LIVE_WORKLOAD: &str = r#"
[[workload]]
kind = "live" # what flows anyway
guard = ["tcp_rtt_ns_p99 <= 1.5 today", "tcp_retransmits_per_s <= 2 today"] # a broken one puts today's setting back at once
slice = "2s"

[method]
on_unsupported = "skip" # a level that the driver refuses is left out, and said
budget = "30min"
half_width = 0.025
"#;

/// How much a plan may vary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanSize {
    /// Most factors. They come in the order in which they usually matter.
    pub factors: usize,
    /// Most levels of a factor, with today's.
    pub levels: usize,
}

impl PlanSize {
    /// All that there is.
    pub const WHOLE: Self = Self { factors: usize::MAX, levels: usize::MAX };

    /// The next smaller size than what a plan with so many factors and levels has; `None` below two settings. Factors
    /// go before levels.
    pub const fn smaller(factors: usize, levels: usize) -> Option<Self> {
        match (factors, levels) {
            (2.., _) => Some(Self { factors: factors - 1, levels }),
            (_, 3..) => Some(Self { factors: 1, levels: levels - 1 }),
            _ => None,
        }
    }

    /// The factors that are kept, and those that are not, before those that were too many already.
    fn choose_factors(
        self,
        (mut kept, mut beyond): (Vec<Factor>, Vec<Factor>),
    ) -> (Vec<Factor>, Vec<Factor>) {
        let rest = kept.split_off(kept.len().min(self.factors));
        beyond.splice(0..0, rest);
        for factor in &mut kept {
            factor.levels.truncate(self.levels);
        }
        (kept, beyond)
    }
}

/// A factor of the plan.
struct Factor {
    family: &'static Family,
    knobs: Vec<Knob>,
    levels: Vec<Vec<Value>>,
}

impl Nic {
    /// A plan file for this interface as the system under test. Each factor begins with today's value. The
    /// error tells why there is nothing to vary.
    pub fn plan(&self) -> Result<String, String> {
        self.plan_of(PlanSize::WHOLE)
    }

    /// As [`plan`](Self::plan), of at most this size. What is left out of it is there as comments.
    pub fn plan_of(&self, size: PlanSize) -> Result<String, String> {
        let (kept, beyond) = size.choose_factors(self.factors(MOST_SETTINGS, |_| true));
        let settings: usize = kept.iter().map(|factor| factor.levels.len()).product();
        let left_out = self.left_out();
        if kept.is_empty() {
            let why: Vec<&str> = left_out.iter().map(String::as_str).collect();
            let interface = line(&self.interface);
            return Err(format!(
                "{interface} has nothing that a plan could vary{}; {}",
                self.stands_on().map(|words| format!(" ({})", words.join(" "))).unwrap_or_default(),
                why.join("; ")
            ));
        }
        let mut text = self.head(&kept, &beyond, MOST_SETTINGS, GOAL);
        if !left_out.is_empty() {
            text.push_str("\n# Not varied, and why:\n");
            text.extend(left_out.iter().map(|why| format!("# - {why}\n")));
        }
        text += WORKLOADS;
        text.push_str("\n[method]\n");
        if settings >= FEWEST_SEARCHED {
            text.push_str("design = \"search\" # the settings that promise most, not all\n");
        }
        Ok(text + METHOD)
    }

    /// A plan file for live traffic of this interface, of at most this size: few settings, whose changes disturb nothing. The
    /// error tells why there is nothing to vary.
    pub fn live_plan_of(&self, size: PlanSize) -> Result<String, String> {
        let is_hitless = |factor: &Factor| {
            let is_calm = |knob: &Knob| {
                let resets = self.settable(*knob).is_some_and(|known| known.resets_link);
                knob.spec().tier == Tier::Hitless && !resets
            };
            factor.knobs.iter().all(is_calm)
        };
        let (kept, beyond) = size.choose_factors(self.factors(MOST_LIVE_SETTINGS, is_hitless));
        if kept.is_empty() {
            let interface = line(&self.interface);
            return Err(format!(
                "{interface} has nothing that could be varied without disturbing its traffic"
            ));
        }
        Ok(self.head(&kept, &beyond, MOST_LIVE_SETTINGS, LIVE_GOAL) + LIVE_WORKLOAD)
    }

    /// The plan's text down to its factors: those that are varied, and as comments those that would make more than `most`
    /// settings.
    fn head(&self, kept: &[Factor], beyond: &[Factor], most: usize, goal: &str) -> String {
        let mut text = self.heading(kept.iter().map(|factor| factor.levels.len()).product(), goal);
        text.push_str("[factors]\n");
        text.extend(kept.iter().map(|factor| self.factor_text(factor)));
        if !beyond.is_empty() {
            let _ = writeln!(
                text,
                "\n# Worth a try too. All together would be more than {most} settings, or too many for the \
                 budget: replace a factor above."
            );
            text.extend(beyond.iter().map(|factor| commented(&self.factor_text(factor))));
        }
        text
    }

    /// The factors that together make at most so many settings, and those that would make more.
    fn factors(
        &self,
        most: usize,
        is_wanted: impl Fn(&Factor) -> bool,
    ) -> (Vec<Factor>, Vec<Factor>) {
        let mut settings = 1;
        let (mut kept, mut beyond) = (Vec::new(), Vec::new());
        let factors = FAMILIES.iter().filter_map(|family| self.factor(family));
        for factor in factors.filter(is_wanted) {
            if settings * factor.levels.len() <= most {
                settings *= factor.levels.len();
                kept.push(factor);
            } else {
                beyond.push(factor);
            }
        }
        (kept, beyond)
    }

    fn factor(&self, family: &'static Family) -> Option<Factor> {
        let is_settable = |knob: &Knob| self.settable(*knob).is_some();
        let may_vary = |knob: &Knob| is_settable(knob) && self.reason_against(*knob).is_none();
        let first = family.knobs.first().filter(|knob| may_vary(knob));
        let knobs: Vec<Knob> =
            first.map(|_| family.knobs.iter().copied().filter(is_settable).collect())?;
        let mut levels = (family.levels)(self, &knobs);
        let (today, others) = levels.split_first()?;
        let is_valid = |(knob, value): (&Knob, &Value)| knob.check_value(value).is_ok();
        // A plan could not hold it.
        if others.is_empty() || !knobs.iter().zip(today).all(is_valid) {
            return None;
        }
        let is_taken = |(knob, value): (&Knob, &Value)| {
            self.today(*knob).as_ref() == Some(value) || self.is_in_range(*knob, value)
        };
        levels.retain(|level| knobs.iter().zip(level).all(is_taken));
        (levels.len() > 1).then_some(Factor { family, knobs, levels })
    }

    fn is_in_range(&self, knob: Knob, value: &Value) -> bool {
        let Some((min, max)) = self.settable(knob).map(|known| known.range) else { return false };
        match value {
            Value::Count(count) => (min..=max).contains(count),
            Value::Time(time) => {
                (min..=max).contains(&(time.as_ns() / knob.spec().time_unit().as_ns()))
            }
            _ => true,
        }
    }

    fn heading(&self, settings: usize, goal: &str) -> String {
        let interface = line(&self.interface);
        let mut text = format!(
            "# A plan for {interface} ({}), made from what `latput show` finds there. The first level of each factor \
             is\n# today's value, and all of them make {}. Edit it as you like.\n",
            line(&self.driver),
            format_count(settings, "setting")
        );
        for sentence in self.stands_on().into_iter().flatten() {
            let _ = writeln!(text, "# {sentence}");
        }
        let name = toml::Value::String(format!("settings of {}", self.interface));
        let _ = writeln!(text, "schema = 1\nname = {name}\n{goal}\n");
        text
    }

    /// Names the knobs of this interface and those of another, in sentences.
    fn stands_on(&self) -> Option<Vec<String>> {
        let interface = line(&self.interface);
        if let Some(parent) = &self.physical_function {
            return Some(vec![format!(
                "{interface} is a virtual function: its queues, moderation and offloads are its own; speed, flow \
                 control and the largest MTU belong to the physical function {} (`latput plan nic {0}` on its host).",
                line(parent)
            )]);
        }
        if self.lower.is_empty() {
            return None;
        }
        let names: Vec<String> = self.lower.iter().map(|name| line(name)).collect();
        let plans: Vec<String> =
            names.iter().map(|name| format!("`latput plan nic {name}`")).collect();
        Some(vec![
            format!(
                "{interface} ({}) is on top of {}. Its own knobs are MTU, queue discipline and those of the \
                 stack.",
                line(&self.driver),
                names.join(", ")
            ),
            format!(
                "Interrupts, moderation, rings, channels, NAPI and hardware offloads belong to the device \
                 below: {}.",
                plans.join(", ")
            ),
        ])
    }

    fn factor_text(&self, factor: &Factor) -> String {
        let Factor { family, knobs, levels } = factor;
        let tier = knobs.iter().map(|knob| knob.spec().tier).max().unwrap_or(Tier::Hitless);
        let resets: Vec<&str> = knobs
            .iter()
            .filter(|knob| self.settable(**knob).is_some_and(|known| known.resets_link))
            .map(|knob| knob.name())
            .collect();
        let resets = match resets.as_slice() {
            [] => String::new(),
            names => format!("; link reset: {} takes the link down and up", names.join(", ")),
        };
        let name: Vec<String> = knobs.iter().map(|knob| format!("sut.{knob}")).collect();
        let mut text = format!("# {} ({tier}{resets})\n\"{}\" = [\n", family.why, name.join(" + "));
        for (idx, level) in levels.iter().enumerate() {
            let values: Vec<String> = level
                .iter()
                .map(|value| toml::Value::String(value.to_string()).to_string())
                .collect();
            let today = if idx == 0 { " # today" } else { "" };
            let _ = writeln!(text, "    [{}],{today}", values.join(", "));
        }
        text.push_str("]\n");
        text
    }

    /// The knobs of the families that cannot be varied, each with the reason.
    fn left_out(&self) -> Vec<String> {
        let mut knobs: Vec<Knob> = Vec::new();
        for knob in FAMILIES.iter().flat_map(|family| family.knobs) {
            if !knobs.contains(knob) {
                knobs.push(*knob);
            }
        }
        let reason = |knob: &Knob| {
            let known = self.knobs.iter().find(|known| known.knob == *knob);
            let why = match known.map(super::NicKnob::today) {
                Some(Ok(_)) => self.reason_against(*knob)?.to_owned(),
                Some(Err(why)) => why,
                None => "not known here".to_owned(),
            };
            Some(format!("{knob}: {}", line(&why)))
        };
        knobs.iter().filter_map(reason).collect()
    }
}

/// A text of another host in one line.
fn line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn commented(text: &str) -> String {
    text.lines().flat_map(|line| ["# ", line, "\n"]).collect()
}

#[cfg(test)]
mod tests;
