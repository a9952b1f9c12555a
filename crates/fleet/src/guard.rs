//! The guards of a host that was changed: whether it is still as well as before, by its looks and by the user's commands.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use latput_trial::program::split;
use latput_units::{Nanos, spelling};

use crate::context::Error;
use crate::inventory::FleetHost;
use crate::judge::{describe_differences, find_differences};
use crate::look::InterfaceLook;

/// The shortest time over which faults are counted: the bound is allowed once at least.
const FAULTS_OVER_AT_LEAST: Nanos = Nanos::from_s(1);
/// The names that stand for a part of the host, in braces.
const PLACEHOLDERS: [&str; 3] = ["host", "interface", "target"];

/// Bounds of the guards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardLimits {
    /// Errors and drops that are allowed beside those of before the change, packets a second.
    pub faults_most_pps: u64,
}

/// A look, with its time on the controller's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimedLook {
    /// When it was answered.
    pub at: Nanos,
    /// The answer.
    pub look: InterfaceLook,
}

impl GuardLimits {
    /// The guard that is broken on a host, if any. `before` are two looks before the change, `since` the first after
    /// it.
    pub fn find_broken_guard(
        self,
        host: &FleetHost,
        before: &[TimedLook; 2],
        since: &TimedLook,
        now: &TimedLook,
    ) -> Option<String> {
        let (was, is) = (&before[1].look, &now.look);
        if was.is_up && !is.is_up {
            return Some(format!("{} is down, and was up before", is.name));
        }
        if was.has_carrier == Some(true) && is.has_carrier == Some(false) {
            return Some(format!("{} has no carrier, and had one before", is.name));
        }
        if was.driver != is.driver || was.index != is.index {
            return Some(format!("{} is not the same interface as before", is.name));
        }
        let missing = find_differences(host, is);
        if !missing.is_empty() {
            return Some(format!(
                "the setting is no longer in force: {}",
                describe_differences(&missing)
            ));
        }
        self.find_fault_excess(before, since, now)
    }

    /// Compares the rate of errors and drops with that of before. A counter that went back began anew.
    fn find_fault_excess(
        self,
        before: &[TimedLook; 2],
        since: &TimedLook,
        now: &TimedLook,
    ) -> Option<String> {
        let count = |from: &TimedLook, to: &TimedLook| {
            let length = to.at.saturating_sub(from.at);
            (to.look.faults.saturating_sub(from.look.faults), length)
        };
        let (earlier, earlier_length) = count(&before[0], &before[1]);
        let earlier_pps = match earlier_length.as_secs_f64() {
            0.0 => 0.0,
            seconds => earlier as f64 / seconds,
        };
        let (found, length) = count(since, now);
        let seconds = length.max(FAULTS_OVER_AT_LEAST).as_secs_f64();
        let allowed = (earlier_pps + self.faults_most_pps as f64) * seconds;
        (found as f64 > allowed).then(|| {
            format!(
                "{} errors and drops of {} in {seconds:.1} s; before the change {earlier_pps:.0} a second, and \
                 {} a second more are allowed",
                found, now.look.name, self.faults_most_pps
            )
        })
    }
}

/// The words of `--guard`. Refuses one that could never hold, before any host is changed: a program that is not there, and
/// a placeholder that was misspelt.
pub fn parse_command(line: &str) -> Result<Vec<String>, Error> {
    let wrong = |why: String| Error::Usage(format!("--guard `{line}`: {why}"));
    let words = split(line).map_err(|error| wrong(error.to_string()))?;
    if let Some((name, near)) = words.iter().find_map(|word| find_misspelt_placeholder(word)) {
        return Err(wrong(format!("there is no `{{{name}}}`: did you mean `{{{near}}}`?")));
    }
    match words.first() {
        Some(program) if !program.contains('{') && !is_there(program) => Err(wrong(format!(
            "there is no program `{program}` on this host, which runs the guards"
        ))),
        _ => Ok(words),
    }
}

/// The words of a guard for a host.
pub(crate) fn words_for_host(words: &[String], host: &FleetHost) -> Vec<String> {
    let values = [&host.name, &host.interface, &host.reach];
    let filled = |word: &String| {
        let parts = PLACEHOLDERS.iter().zip(values);
        parts.fold(word.clone(), |word, (name, value)| word.replace(&format!("{{{name}}}"), value))
    };
    words.iter().map(filled).collect()
}

/// A name in braces that is near to a placeholder. Others belong to the program.
fn find_misspelt_placeholder(word: &str) -> Option<(&str, &'static str)> {
    let in_braces = word.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0));
    in_braces.filter(|name| !PLACEHOLDERS.contains(name)).find_map(|name| {
        let near = spelling::nearest_name(name, PLACEHOLDERS)?;
        Some((name, near))
    })
}

fn is_there(program: &str) -> bool {
    let is_program = |path: &Path| {
        path.metadata().is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return is_program(Path::new(program));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| is_program(&folder.join(program)))
}

#[cfg(test)]
mod tests {
    use latput_knobs::Knob;

    use super::*;
    use crate::judge::tests::sample_host;
    use crate::look::tests::sample_look;

    const GUARDS: GuardLimits = GuardLimits { faults_most_pps: 10 };

    fn timed_look(at_s: u64, faults: u64) -> TimedLook {
        let look = sample_look(Knob::Mtu, "1500").interface.unwrap();
        TimedLook { at: Nanos::from_s(at_s), look: InterfaceLook { faults, ..look } }
    }

    fn find_broken(before: [TimedLook; 2], since: &TimedLook, now: &TimedLook) -> Option<String> {
        GUARDS.find_broken_guard(&sample_host("a", &[(Knob::Mtu, "1500")]), &before, since, now)
    }

    #[track_caller]
    fn check_broken(change: impl Fn(&mut InterfaceLook), why: &str) {
        let mut now = timed_look(20, 0);
        change(&mut now.look);
        let said =
            find_broken([timed_look(0, 0), timed_look(5, 0)], &timed_look(6, 0), &now).unwrap();
        assert!(said.contains(why), "{said}");
    }

    #[test]
    fn unchanged_host_passes_each_guard() {
        let before = [timed_look(0, 0), timed_look(5, 0)];
        assert_eq!(find_broken(before, &timed_look(6, 0), &timed_look(20, 0)), None);
        check_broken(|found| found.is_up = false, "is down");
        check_broken(|found| found.has_carrier = Some(false), "no carrier");
        check_broken(|found| found.index = 9, "not the same interface");
        check_broken(
            |found| found.knobs[0].values[0].value = "1400".into(),
            "mtu is 1400, wanted 1500",
        );
        check_broken(|found| found.knobs.clear(), "mtu cannot be read");
    }

    #[test]
    fn what_was_down_before_may_stay_down() {
        let down = |at_s| {
            let mut look = timed_look(at_s, 0);
            (look.look.is_up, look.look.has_carrier) = (false, Some(false));
            look
        };
        assert_eq!(find_broken([down(0), down(5)], &down(6), &down(20)), None);
    }

    #[test]
    fn faults_may_reach_old_count_plus_bound() {
        let before = || [timed_look(0, 1000), timed_look(10, 2000)]; // 100 a second
        assert_eq!(find_broken(before(), &timed_look(11, 2000), &timed_look(21, 3100)), None);
        let said = find_broken(before(), &timed_look(11, 2000), &timed_look(21, 3101)).unwrap();
        assert!(said.contains("1101 errors and drops") && said.contains("100 a second"), "{said}");
        // The counter began anew.
        assert_eq!(find_broken(before(), &timed_look(11, 2000), &timed_look(21, 5)), None);
        // Two looks at the same time: the bound of one second.
        let before = || [timed_look(5, 0), timed_look(5, 0)];
        assert_eq!(find_broken(before(), &timed_look(6, 0), &timed_look(6, 10)), None);
        assert!(find_broken(before(), &timed_look(6, 0), &timed_look(6, 11)).is_some());
    }

    #[test]
    fn guard_that_could_never_hold_is_refused() {
        let refused = |line: &str| parse_command(line).unwrap_err().to_string();
        assert!(refused("nosuchcmd {host}").contains("no program `nosuchcmd`"));
        assert!(refused("./nowhere/check").contains("no program `./nowhere/check`"));
        assert!(
            refused("sh -c 'ping {hst}'").contains("there is no `{hst}`: did you mean `{host}`?")
        );
        assert!(refused("'").contains("--guard"));
        for line in
            ["sh -c 'ping {host}'", "sh -c 'a | awk \"{print}\"'", "{target}/check", "/bin/sh"]
        {
            assert!(parse_command(line).is_ok(), "{line}");
        }
    }
}
