//! The broker's own process: does what is on its list, and nothing else.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use latput_linux::process;

use super::admit;
use super::message::{
    HostCall, HostInterface, LabPlace, MAX_BYTES, Operation, Permitted, Reply, Way, pipe_all,
};
use crate::child::{OwnProcess, Pipes};
use crate::error::Error as RunError;
use crate::held_guest::OwnGuest;
use crate::held_lab::OwnLab;
use crate::passing::{receive, send};

/// Most processes at a time: each of the 66 hosts of a testbed has three at most.
const PROCESSES_MOST: usize = 256;
/// Most bytes of what a run may ask for: 66 hosts with long command lines.
const PERMITTED_BYTES_MOST: u64 = 16 << 20;

/// Most time of agents to end when their controller has gone without a word.
const PUT_BACK_WITHIN: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The reason why a broker could not serve.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It has no line to a controller.
    #[error("cannot serve a controller")]
    Line(#[from] latput_linux::Error),
    /// It was not told what the run may ask for.
    #[error("cannot read what the run may ask for")]
    Permitted(#[source] io::Error),
}

/// Serves a controller until it ends, or says what no controller says. `permitted` is what its run may ask for, to the end.
pub fn serve(permitted: impl Read, line: RawFd) -> Result<(), Error> {
    let line = process::take_over(line)?;
    let mut text = Vec::new();
    permitted.take(PERMITTED_BYTES_MOST).read_to_end(&mut text).map_err(Error::Permitted)?;
    let permitted = serde_json::from_slice(&text).map_err(|e| Error::Permitted(e.into()))?;
    serve_line(permitted, &line);
    Ok(())
}

fn serve_line(permitted: Permitted, line: &OwnedFd) {
    let mut broker =
        Broker { permitted, lab: None, guest: None, processes: BTreeMap::new(), last_id: 0 };
    while let Ok((operation, files)) = receive::<Operation>(line, MAX_BYTES) {
        drop(files); // none is asked for
        let (reply, pipes) = broker.perform(operation);
        let pipes: Vec<_> = pipes.iter().flatten().map(AsFd::as_fd).collect();
        if send(line, &reply, &pipes).is_err() {
            break;
        }
    }
    broker.end();
}

struct Broker {
    permitted: Permitted,
    lab: Option<OwnLab>,
    guest: Option<OwnGuest>,
    processes: BTreeMap<u64, OwnProcess>,
    last_id: u64,
}

impl Broker {
    fn perform(&mut self, operation: Operation) -> (Reply, Pipes) {
        let reply = match operation {
            Operation::Start { way, call } => {
                return match self.refusal(&way, &call) {
                    Some(why) => (refused(&why), Pipes::default()),
                    None => self.start(call.pipe(way.command().args(call.args()))),
                };
            }
            Operation::StartGuard { words } => {
                return if self.permitted.guards.contains(&words) {
                    self.start(pipe_all(Command::new(&words[0]).args(&words[1..])))
                } else {
                    (refused("it is not a guard of this run"), Pipes::default())
                };
            }
            Operation::HowEnded { id } => match self.processes.get(&id) {
                Some(process) => {
                    process.how_it_ended().map_or(Reply::Running, |how| Reply::Ended { how })
                }
                None => refused("there is no such process"),
            },
            Operation::Kill { id } => {
                self.processes.remove(&id).iter_mut().for_each(OwnProcess::kill);
                Reply::Done
            }
            Operation::Leave { id } => {
                self.processes.remove(&id).iter_mut().for_each(OwnProcess::leave);
                Reply::Done
            }
            Operation::Admit { word } => self.admit(&word),
            Operation::MakeLab => self.make_lab(),
            Operation::RemoveLab => {
                self.lab = None;
                Reply::Done
            }
            Operation::BootGuest => self.boot_guest(),
            Operation::IsGuestReady => self.with_guest(|guest| {
                Ok(match guest.place()? {
                    Some(place) => Reply::Guest(place),
                    None => Reply::Running,
                })
            }),
            Operation::RunInGuest { words } => return self.run_in_guest(&words),
            Operation::LookAtGuest => self.with_guest(|guest| {
                let (is_ending, end) = guest.look();
                Ok(Reply::GuestConsole { is_ending, end })
            }),
            Operation::EndGuest => {
                self.guest = None;
                Reply::Done
            }
        };
        (reply, Pipes::default())
    }

    /// Lets agents that a controller has left behind put the hosts of the lab back, and removes it. What was set in the
    /// guest ends with it.
    fn end(mut self) {
        self.guest = None;
        let begun = Instant::now();
        while self.processes.values().any(|process| !process.has_ended())
            && begun.elapsed() < PUT_BACK_WITHIN
        {
            thread::sleep(LOOK_EVERY);
        }
        self.lab = None;
    }

    /// Why this is not on the list of the run; `None` if it is.
    fn refusal(&self, way: &Way, call: &HostCall) -> Option<String> {
        let Permitted { ways, programs, interfaces, changes, .. } = &self.permitted;
        let is_known = |name: Option<&String>| {
            interfaces.contains(&HostInterface { way: way.clone(), name: name.cloned() })
        };
        let why = match call {
            HostCall::Command(command) => {
                if let Err(why) = command.check() {
                    return Some(why);
                }
                if !is_known(Some(&command.interface)) && !is_known(None) {
                    "it is not an interface of this run"
                } else if command.is_change() && !changes {
                    "this run changes nothing"
                } else {
                    return None;
                }
            }
            _ if !ways.contains(way) => "it is not a host of this run",
            HostCall::Programs if !programs => "this run has no program",
            HostCall::Agent | HostCall::Programs | HostCall::Restore(_) => return None,
        };
        Some(why.to_owned())
    }

    fn start(&mut self, command: &mut Command) -> (Reply, Pipes) {
        if self.processes.len() >= PROCESSES_MOST {
            return (refused("there are too many processes"), Pipes::default());
        }
        match OwnProcess::start(command) {
            Ok((process, pipes)) => {
                self.last_id += 1;
                self.processes.insert(self.last_id, process);
                (Reply::Started { id: self.last_id }, pipes)
            }
            Err(error) => {
                let unknown = rustix::io::Errno::IO.raw_os_error();
                let errno = error.raw_os_error().unwrap_or(unknown);
                (Reply::NotStarted { errno }, Pipes::default())
            }
        }
    }

    /// Takes the hosts of a results file: latput is started there, and their interfaces may be named.
    fn admit(&mut self, word: &str) -> Reply {
        let Some(hosts) = self.permitted.hosts_of_results.take() else {
            return refused("this run takes no hosts from results, or has them already");
        };
        match admit::ways(word, hosts.bring.as_deref()) {
            Ok(ways) => {
                let interfaces =
                    ways.iter().map(|way| HostInterface { way: way.clone(), name: None });
                self.permitted.interfaces.extend(interfaces);
                self.permitted.ways.extend(ways);
                Reply::Done
            }
            Err(why) => Reply::Refused { why },
        }
    }

    fn boot_guest(&mut self) -> Reply {
        let (Some(spec), None) = (self.permitted.guest, &self.guest) else {
            return refused("this run boots no guest, or has one already");
        };
        match OwnGuest::boot(spec) {
            Ok(guest) => {
                self.permitted.ways.extend(guest.ways());
                self.guest = Some(guest);
                Reply::Done
            }
            Err(error) => no_guest(&error),
        }
    }

    fn with_guest(
        &mut self,
        ask: impl FnOnce(&mut OwnGuest) -> Result<Reply, latput_vm::Error>,
    ) -> Reply {
        match &mut self.guest {
            Some(guest) => ask(guest).unwrap_or_else(|error| no_guest(&error)),
            None => refused("this run has no guest"),
        }
    }

    fn run_in_guest(&mut self, words: &[String]) -> (Reply, Pipes) {
        let mut files = Pipes::default();
        let reply = self.with_guest(|guest| {
            let [stream, lock] = guest.line(words)?.into_files();
            files = [Some(stream), Some(lock), None];
            Ok(Reply::Done)
        });
        (reply, files)
    }

    fn make_lab(&mut self) -> Reply {
        if !self.permitted.lab || self.lab.is_some() {
            return refused("this run makes no lab, or has one already");
        }
        match OwnLab::make(std::os::unix::process::parent_id()) {
            Ok(lab) => {
                let places = lab.places();
                self.permitted.ways.extend(places.iter().map(LabPlace::way));
                self.permitted.lab = false;
                self.lab = Some(lab);
                Reply::Lab(places.into())
            }
            Err(RunError::Lab { problem, permission }) => Reply::NoLab { problem, permission },
            Err(error) => Reply::NoLab { problem: error.to_string(), permission: false },
        }
    }
}

fn no_guest(error: &latput_vm::Error) -> Reply {
    Reply::NoGuest { problem: error.to_string() }
}

fn refused(why: &str) -> Reply {
    Reply::Refused { why: format!("the broker refuses: {why}") }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::super::command::{HostCommand, HostSet, HostUndo, HostVerb};
    use super::super::message::HostsOfResults;
    use super::*;
    use crate::passing::pair;
    use crate::protocol::ControllerId;
    use crate::target::Target;

    fn way(via: &[&str]) -> Way {
        Way { via: via.iter().map(|&word| word.to_owned()).collect(), program: "latput".to_owned() }
    }

    fn restore_call() -> HostCall {
        HostCall::Restore(ControllerId::default())
    }

    /// A broker in a thread that may only run `true latput ...`, and the line to it.
    fn broker() -> (OwnedFd, thread::JoinHandle<()>) {
        let (line, brokers) = pair().unwrap();
        let place = |name: Option<&str>, via: &[&str]| HostInterface {
            way: way(via),
            name: name.map(str::to_owned),
        };
        let permitted = Permitted {
            ways: vec![way(&["true"])],
            interfaces: [place(Some("eth0"), &["true"]), place(None, &["env", "true"])].into(),
            guards: [vec!["true".to_owned(), "h1".to_owned()]].into(),
            ..Permitted::default()
        };
        (line, thread::spawn(move || serve_line(permitted, &brokers)))
    }

    fn ask(line: &OwnedFd, operation: &Operation) -> (Reply, usize) {
        send(line, operation, &[]).unwrap();
        let (reply, files) = receive(line, MAX_BYTES).unwrap();
        (reply, files.len())
    }

    #[test]
    fn host_of_run_is_reached_until_end() {
        let (line, serving) = broker();
        let start = Operation::Start { way: way(&["true"]), call: HostCall::Agent };
        let (Reply::Started { id }, 3) = ask(&line, &start) else { panic!("it is permitted") };
        let deadline = Instant::now() + Duration::from_secs(60);
        let how = loop {
            match ask(&line, &Operation::HowEnded { id }).0 {
                Reply::Running if Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(1));
                }
                other => break other,
            }
        };
        assert_eq!(how, Reply::Ended { how: "exit status: 0".to_owned() });
        assert_eq!(ask(&line, &Operation::Kill { id }).0, Reply::Done);
        assert!(matches!(ask(&line, &Operation::HowEnded { id }).0, Reply::Refused { .. }));
        let restore = Operation::Start { way: way(&["true"]), call: restore_call() };
        assert!(matches!(ask(&line, &restore), (Reply::Started { .. }, 1)));
        drop(line);
        serving.join().unwrap();
    }

    fn command(via: &[&str], interface: &str, verb: HostVerb) -> Operation {
        let command = HostCommand { interface: interface.to_owned(), verb };
        Operation::Start { way: way(via), call: HostCall::Command(command) }
    }

    #[test]
    fn fleet_broker_allows_only_requested_interfaces() {
        let (line, serving) = broker();
        let guard = |words: &[&str]| Operation::StartGuard {
            words: words.iter().map(|&word| word.to_owned()).collect(),
        };
        for permitted in [
            command(&["true"], "eth0", HostVerb::Look),
            command(&["env", "true"], "eth7", HostVerb::Look),
            guard(&["true", "h1"]),
        ] {
            assert!(matches!(ask(&line, &permitted), (Reply::Started { .. }, 3)), "{permitted:?}");
        }
        let set = HostVerb::Set(HostSet { made_by: "x".to_owned(), ..HostSet::default() });
        for refused in [
            command(&["true"], "eth1", HostVerb::Look),
            command(&["env", "true"], "eth7;id", HostVerb::Look),
            command(&["env"], "eth0", HostVerb::Look),
            command(&["true"], "eth0", set),
            command(&["true"], "eth0", HostVerb::Restore { made_by: None }),
            command(
                &["true"],
                "eth0",
                HostVerb::Undo(HostUndo { entry: Some(1), ..HostUndo::default() }),
            ),
            guard(&["true", "h2"]),
            guard(&["true"]),
            guard(&[]),
        ] {
            let answered = ask(&line, &refused);
            assert!(matches!(answered, (Reply::Refused { .. }, 0)), "{refused:?} {answered:?}");
        }
        drop(line);
        serving.join().unwrap();
    }

    #[test]
    fn results_hosts_are_taken_once_if_announced() {
        let (line, serving) = broker();
        let admit = |word: &str| Operation::Admit { word: word.to_owned() };
        assert!(matches!(ask(&line, &admit("netns://a")).0, Reply::Refused { .. }));
        drop(line);
        serving.join().unwrap();
        for (word, is_taken) in [("netns://a,netns://b", true), ("exec:true", false)] {
            let (line, brokers) = pair().unwrap();
            let hosts_of_results = Some(HostsOfResults { bring: None });
            let permitted = Permitted { hosts_of_results, ..Permitted::default() };
            let serving = thread::spawn(move || serve_line(permitted, &brokers));
            assert_eq!(ask(&line, &admit(word)).0 == Reply::Done, is_taken, "{word}");
            assert!(matches!(ask(&line, &admit("netns://c")).0, Reply::Refused { .. }));
            let c = Target::parse("netns://c").unwrap().way(None);
            let start = Operation::Start { way: c, call: HostCall::Agent };
            assert!(matches!(ask(&line, &start).0, Reply::Refused { .. }));
            drop(line);
            serving.join().unwrap();
        }
    }

    #[test]
    fn foreign_request_is_refused_and_service_continues() {
        let (line, serving) = broker();
        let start = |via: &[&str], call| Operation::Start { way: way(via), call };
        let program = Way { program: "sh".to_owned(), ..way(&["true"]) };
        for operation in [
            start(&["sh", "-c", "id"], HostCall::Agent),
            start(&["true", "--namespace", "/proc/1/ns/net"], restore_call()),
            start(&["true\0"], HostCall::Agent),
            start(&["tru\u{1b}[2Je"], HostCall::Agent),
            start(&[], HostCall::Agent),
            start(&["true"], HostCall::Programs),
            Operation::Start { way: program, call: HostCall::Agent },
            Operation::HowEnded { id: 1 },
            Operation::MakeLab,
        ] {
            let (reply, files) = ask(&line, &operation);
            assert!(
                matches!(reply, Reply::Refused { .. }) && files == 0,
                "{operation:?} {reply:?}"
            );
        }
        // Of no process, and of no lab: there is nothing to be done.
        for operation in [Operation::Kill { id: 1 }, Operation::RemoveLab] {
            assert_eq!(ask(&line, &operation).0, Reply::Done);
        }
        drop(line);
        serving.join().unwrap();
    }

    #[test]
    fn processes_are_bounded_by_the_run() {
        let (line, serving) = broker();
        let restore = Operation::Start { way: way(&["true"]), call: restore_call() };
        let started = (0..=PROCESSES_MOST)
            .filter(|_| matches!(ask(&line, &restore).0, Reply::Started { .. }))
            .count();
        assert_eq!(started, PROCESSES_MOST);
        drop(line);
        serving.join().unwrap();
    }

    #[test]
    fn invalid_operation_ends_the_broker() {
        let run = serde_json::json!({ "run": { "words": ["sh"] } });
        let more = serde_json::json!({ "start":
            { "way": way(&["true"]), "call": "agent", "env": { "LD_PRELOAD": "x" } } });
        let long = serde_json::json!("x".repeat(MAX_BYTES));
        for message in [run, more, long, serde_json::json!(null)] {
            let (line, serving) = broker();
            thread::sleep(Duration::from_millis(20));
            assert!(!serving.is_finished(), "it waits");
            send(&line, &message, &[]).unwrap();
            serving.join().unwrap();
            assert!(receive::<Reply>(&line, MAX_BYTES).is_err());
        }
    }

    #[test]
    fn file_that_comes_with_an_operation_is_closed() {
        let (line, serving) = broker();
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        send(&line, &Operation::RemoveLab, &[theirs.as_fd()]).unwrap();
        assert_eq!(receive::<Reply>(&line, MAX_BYTES).unwrap().0, Reply::Done);
        drop(theirs);
        assert!(ours.write_all(b"x").is_err(), "nobody has the other end");
        drop(line);
        serving.join().unwrap();
    }
}
