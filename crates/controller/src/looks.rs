//! Records what a diagnosis reads, on several hosts at the same time.
//!
//! An agent on each host looks twice. It claims nothing and sets nothing.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use latput_linux::interfaces::Interface;
use latput_linux::look::LookTexts;
use latput_load::Stop;
use latput_reach::target::{ReachMethod, Target};
use latput_runner::Error;
use latput_units::Nanos;

use crate::agent_pool::HostInspector;
use crate::discover::{find_meant_interface, make_spec};

/// How often the wait between the looks checks the stop flag.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The looks at a host.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedHost {
    /// The interface.
    pub interface: String,
    /// The texts at the beginning and at the end.
    pub looks: [LookTexts; 2],
    /// Time between the looks, by the host's own clock.
    pub window: Nanos,
}

/// A look, with its time by the host's clock.
type TimedLook = Result<(Nanos, LookTexts), Error>;

/// An agent at work.
struct Recorder {
    inspector: HostInspector,
    interface: String,
    first: Option<(Nanos, LookTexts)>,
}

/// Names for hosts in messages: each is short, and no two are the same.
pub fn name_targets(targets: &[Target]) -> Vec<String> {
    let short = |target: &Target| match target.reach {
        ReachMethod::Command(_) => target.way_there().to_string(),
        _ => target.name(),
    };
    let names: Vec<String> = targets.iter().map(short).collect();
    let is_shared = |name: &String| names.iter().filter(|other| *other == name).count() > 1;
    let name = |(name, target): (&String, &Target)| {
        if is_shared(name) { target.to_string() } else { name.clone() }
    };
    names.iter().zip(targets).map(name).collect()
}

/// Looks at every host twice, at the same times, with this time between. A host that fails holds up no other, and has its
/// error. `bring` is the latput to take along where it is missing.
pub fn record_hosts(
    targets: &[Target],
    bring: Option<&Path>,
    window: Nanos,
    stop: &Stop,
) -> Vec<Result<RecordedHost, Error>> {
    let names = name_targets(targets);
    // All are on their way before the first is waited for.
    let started: Vec<Result<HostInspector, Error>> = targets
        .iter()
        .zip(&names)
        .map(|(target, name)| HostInspector::start(&make_spec(target, name, bring)))
        .collect();
    let opened = started.into_iter().zip(targets);
    let mut recorders: Vec<Result<Recorder, Error>> =
        opened.map(|(started, target)| open_recorder(started?, target, stop)).collect();
    let begun = Instant::now();
    let first = look_at_all(&mut recorders, stop);
    for (recorder, look) in recorders.iter_mut().zip(first) {
        keep_first(recorder, look);
    }
    while begun.elapsed() < window.as_duration() && !stop.is_raised() {
        thread::sleep(LOOK_EVERY.min(window.as_duration().saturating_sub(begun.elapsed())));
    }
    let second = look_at_all(&mut recorders, stop);
    recorders.into_iter().zip(second).map(|(recorder, look)| join_looks(recorder?, look)).collect()
}

/// Waits for an agent, and finds the interface that is meant.
fn open_recorder(
    mut inspector: HostInspector,
    target: &Target,
    stop: &Stop,
) -> Result<Recorder, Error> {
    let view = inspector.inspect_host(&[], None, stop)?;
    let Interface { name, .. } = find_meant_interface(target, &view)?;
    let interface = name.clone();
    Ok(Recorder { inspector, interface, first: None })
}

/// A look of every agent: all are asked before the first is waited for. `None` where there is no agent.
fn look_at_all(recorders: &mut [Result<Recorder, Error>], stop: &Stop) -> Vec<Option<TimedLook>> {
    let asked: Vec<Option<Result<(), Error>>> = recorders
        .iter_mut()
        .map(|recorder| {
            let Recorder { inspector, interface, .. } = recorder.as_mut().ok()?;
            Some(inspector.queue_record(interface))
        })
        .collect();
    let hear = |(recorder, asked): (&mut Result<Recorder, Error>, Option<Result<(), Error>>)| {
        let recorder = recorder.as_mut().ok()?;
        Some(asked?.and_then(|()| recorder.inspector.receive_record(stop)))
    };
    recorders.iter_mut().zip(asked).map(hear).collect()
}

/// Keeps the first look; a host that failed has its error from now on.
fn keep_first(recorder: &mut Result<Recorder, Error>, look: Option<TimedLook>) {
    match look {
        Some(Ok(look)) => {
            if let Ok(open) = recorder {
                open.first = Some(look);
            }
        }
        Some(Err(error)) => *recorder = Err(error),
        None => {}
    }
}

/// Joins the looks of a host. Where only the second fails the interface went away.
fn join_looks(recorder: Recorder, look: Option<TimedLook>) -> Result<RecordedHost, Error> {
    let Recorder { interface, first, .. } = recorder;
    let (Some((begun, before)), Some(look)) = (first, look) else {
        return Err(Error::Interrupted);
    };
    let (ended, after) = look.map_err(|error| match error {
        Error::Host { host, outcome, is_transient, .. } => Error::Host {
            host,
            message: format!("{interface} went away while it was observed: name one that stays"),
            outcome,
            is_transient,
        },
        other => other,
    })?;
    Ok(RecordedHost { interface, looks: [before, after], window: ended.saturating_sub(begun) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_names_of_their_own() {
        let parsed = |words: &[&str]| -> Vec<Target> {
            words.iter().map(|word| Target::parse(word).unwrap()).collect()
        };
        let names = name_targets(&parsed(&["ssh://root@a%eth0", "netns://b", "eth0"]));
        assert_eq!(names, ["a", "b", "this-host"]);
        let same = name_targets(&parsed(&["ssh://a%eth0", "ssh://a%eth1"]));
        assert_eq!(same, ["ssh://a%eth0", "ssh://a%eth1"]);
    }
}
