//! The broker's own process: does what is on its list, and nothing else.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use latput_linux::process;
use latput_protocol::passing::{receive_message, send_message};

use super::admit;
use super::message::{
    BrokerOperation, BrokerReply, HostCall, HostInterface, LabPlace, LaunchCommand, MAX_BYTES,
    RunPermissions, pipe_all,
};
use crate::child::{OwnProcess, Pipes};
use crate::error::Error as RunError;
use crate::held_guest::OwnGuest;
use crate::held_lab::OwnLab;

/// Most processes at a time: each of the 66 hosts of a testbed has three at most.
const PROCESSES_MOST: usize = 256;
/// Most bytes of what a run may ask for: 66 hosts with long command lines.
const PERMITTED_BYTES_MOST: u64 = 16 << 20;

/// Most time of agents to end when their controller has gone without a word.
const PUT_BACK_WITHIN: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The reason why a broker could not serve.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// It has no line to a controller.
    #[error("cannot serve a controller")]
    Line(#[from] latput_linux::Error),
    /// It was not told what the run may ask for.
    #[error("cannot read what the run may ask for")]
    Permitted(#[source] io::Error),
}

/// Serves a controller until it ends, or says what no controller says. `permitted` is what its run may ask for, to the end.
pub fn serve_controller(permitted: impl Read, line: RawFd) -> Result<(), BrokerError> {
    let line = process::take_over(line)?;
    let mut text = Vec::new();
    permitted.take(PERMITTED_BYTES_MOST).read_to_end(&mut text).map_err(BrokerError::Permitted)?;
    let permitted = serde_json::from_slice(&text).map_err(|e| BrokerError::Permitted(e.into()))?;
    serve_line(permitted, &line);
    Ok(())
}

fn serve_line(permitted: RunPermissions, line: &OwnedFd) {
    let mut broker =
        Broker { permitted, lab: None, guest: None, processes: BTreeMap::new(), last_id: 0 };
    while let Ok((operation, files)) = receive_message::<BrokerOperation>(line, MAX_BYTES) {
        drop(files); // none is asked for
        let (reply, pipes) = broker.perform_operation(operation);
        let pipes: Vec<_> = pipes.iter().flatten().map(AsFd::as_fd).collect();
        if send_message(line, &reply, &pipes).is_err() {
            break;
        }
    }
    broker.shut_down();
}

struct Broker {
    permitted: RunPermissions,
    lab: Option<OwnLab>,
    guest: Option<OwnGuest>,
    processes: BTreeMap<u64, OwnProcess>,
    last_id: u64,
}

impl Broker {
    fn perform_operation(&mut self, operation: BrokerOperation) -> (BrokerReply, Pipes) {
        let reply = match operation {
            BrokerOperation::Start { way, call } => {
                return match self.find_refusal(&way, &call) {
                    Some(why) => (refused_reply(&why), Pipes::default()),
                    None => self.start(call.attach_pipes(way.to_command().args(call.to_args()))),
                };
            }
            BrokerOperation::StartGuard { words } => {
                return if self.permitted.guards.contains(&words) {
                    self.start(pipe_all(Command::new(&words[0]).args(&words[1..])))
                } else {
                    (refused_reply("it is not a guard of this run"), Pipes::default())
                };
            }
            BrokerOperation::HowEnded { id } => match self.processes.get(&id) {
                Some(process) => process
                    .how_it_ended()
                    .map_or(BrokerReply::Running, |how| BrokerReply::Ended { how }),
                None => refused_reply("there is no such process"),
            },
            BrokerOperation::Kill { id } => {
                self.processes.remove(&id).iter_mut().for_each(OwnProcess::kill);
                BrokerReply::Done
            }
            BrokerOperation::Leave { id } => {
                self.processes.remove(&id).iter_mut().for_each(OwnProcess::leave_running);
                BrokerReply::Done
            }
            BrokerOperation::Admit { word } => self.admit_hosts(&word),
            BrokerOperation::MakeLab => self.make_lab(),
            BrokerOperation::RemoveLab => {
                self.lab = None;
                BrokerReply::Done
            }
            BrokerOperation::BootGuest => self.boot_guest(),
            BrokerOperation::IsGuestReady => self.with_guest(|guest| {
                Ok(match guest.poll_ready()? {
                    Some(place) => BrokerReply::Guest(place),
                    None => BrokerReply::Running,
                })
            }),
            BrokerOperation::RunInGuest { words } => return self.run_in_guest(&words),
            BrokerOperation::LookAtGuest => self.with_guest(|guest| {
                let (is_ending, end) = guest.look();
                Ok(BrokerReply::GuestConsole { is_ending, end })
            }),
            BrokerOperation::EndGuest => {
                self.guest = None;
                BrokerReply::Done
            }
        };
        (reply, Pipes::default())
    }

    /// Lets agents that a controller has left behind put the hosts of the lab back, and removes it. What was set in the
    /// guest ends with it.
    fn shut_down(mut self) {
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
    fn find_refusal(&self, way: &LaunchCommand, call: &HostCall) -> Option<String> {
        let RunPermissions { ways, programs, interfaces, changes, .. } = &self.permitted;
        let is_known = |name: Option<&String>| {
            interfaces.contains(&HostInterface { way: way.clone(), name: name.cloned() })
        };
        let why = match call {
            HostCall::Command(command) => {
                if let Err(why) = command.check_words() {
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

    fn start(&mut self, command: &mut Command) -> (BrokerReply, Pipes) {
        if self.processes.len() >= PROCESSES_MOST {
            return (refused_reply("there are too many processes"), Pipes::default());
        }
        match OwnProcess::start(command) {
            Ok((process, pipes)) => {
                self.last_id += 1;
                self.processes.insert(self.last_id, process);
                (BrokerReply::Started { id: self.last_id }, pipes)
            }
            Err(error) => {
                let unknown = rustix::io::Errno::IO.raw_os_error();
                let errno = error.raw_os_error().unwrap_or(unknown);
                (BrokerReply::NotStarted { errno }, Pipes::default())
            }
        }
    }

    /// Takes the hosts of a results file: latput is started there, and their interfaces may be named.
    fn admit_hosts(&mut self, word: &str) -> BrokerReply {
        let Some(hosts) = self.permitted.hosts_of_results.take() else {
            return refused_reply("this run takes no hosts from results, or has them already");
        };
        match admit::resolve_launch_commands(word, hosts.bring.as_deref()) {
            Ok(ways) => {
                let interfaces =
                    ways.iter().map(|way| HostInterface { way: way.clone(), name: None });
                self.permitted.interfaces.extend(interfaces);
                self.permitted.ways.extend(ways);
                BrokerReply::Done
            }
            Err(why) => BrokerReply::Refused { why },
        }
    }

    fn boot_guest(&mut self) -> BrokerReply {
        let (Some(spec), None) = (self.permitted.guest, &self.guest) else {
            return refused_reply("this run boots no guest, or has one already");
        };
        match OwnGuest::boot(spec) {
            Ok(guest) => {
                self.permitted.ways.extend(guest.ways());
                self.guest = Some(guest);
                BrokerReply::Done
            }
            Err(error) => no_guest(&error),
        }
    }

    fn with_guest(
        &mut self,
        ask: impl FnOnce(&mut OwnGuest) -> Result<BrokerReply, latput_vm::Error>,
    ) -> BrokerReply {
        match &mut self.guest {
            Some(guest) => ask(guest).unwrap_or_else(|error| no_guest(&error)),
            None => refused_reply("this run has no guest"),
        }
    }

    fn run_in_guest(&mut self, words: &[String]) -> (BrokerReply, Pipes) {
        let mut files = Pipes::default();
        let reply = self.with_guest(|guest| {
            let [stream, lock] = guest.line(words)?.into_files();
            files = [Some(stream), Some(lock), None];
            Ok(BrokerReply::Done)
        });
        (reply, files)
    }

    fn make_lab(&mut self) -> BrokerReply {
        if !self.permitted.lab || self.lab.is_some() {
            return refused_reply("this run makes no lab, or has one already");
        }
        match OwnLab::build_lab(std::os::unix::process::parent_id()) {
            Ok(lab) => {
                let places = lab.list_hosts();
                self.permitted.ways.extend(places.iter().map(LabPlace::launch_command));
                self.permitted.lab = false;
                self.lab = Some(lab);
                BrokerReply::Lab(places.into())
            }
            Err(RunError::Lab { problem, permission }) => {
                BrokerReply::NoLab { problem, permission }
            }
            Err(error) => BrokerReply::NoLab { problem: error.to_string(), permission: false },
        }
    }
}

fn no_guest(error: &latput_vm::Error) -> BrokerReply {
    BrokerReply::NoGuest { problem: error.to_string() }
}

fn refused_reply(why: &str) -> BrokerReply {
    BrokerReply::Refused { why: format!("the broker refuses: {why}") }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use latput_protocol::control::ControllerId;
    use latput_protocol::passing::create_socket_pair;

    use super::super::command::{HostCommand, HostVerb, SetOptions, UndoOptions};
    use super::super::message::HostsOfResults;
    use super::*;
    use crate::target::Target;

    fn make_launch_command(via: &[&str]) -> LaunchCommand {
        LaunchCommand {
            via: via.iter().map(|&word| word.to_owned()).collect(),
            program: "latput".to_owned(),
        }
    }

    fn restore_call() -> HostCall {
        HostCall::Restore(ControllerId::default())
    }

    /// A broker in a thread that may only run `true latput ...`, and the line to it.
    fn start_broker() -> (OwnedFd, thread::JoinHandle<()>) {
        let (line, brokers) = create_socket_pair().unwrap();
        let place = |name: Option<&str>, via: &[&str]| HostInterface {
            way: make_launch_command(via),
            name: name.map(str::to_owned),
        };
        let permitted = RunPermissions {
            ways: vec![make_launch_command(&["true"])],
            interfaces: [place(Some("eth0"), &["true"]), place(None, &["env", "true"])].into(),
            guards: [vec!["true".to_owned(), "h1".to_owned()]].into(),
            ..RunPermissions::default()
        };
        (line, thread::spawn(move || serve_line(permitted, &brokers)))
    }

    fn send_operation(line: &OwnedFd, operation: &BrokerOperation) -> (BrokerReply, usize) {
        send_message(line, operation, &[]).unwrap();
        let (reply, files) = receive_message(line, MAX_BYTES).unwrap();
        (reply, files.len())
    }

    #[test]
    fn host_of_run_is_reached_until_end() {
        let (line, serving) = start_broker();
        let start =
            BrokerOperation::Start { way: make_launch_command(&["true"]), call: HostCall::Agent };
        let (BrokerReply::Started { id }, 3) = send_operation(&line, &start) else {
            panic!("it is permitted")
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        let how = loop {
            match send_operation(&line, &BrokerOperation::HowEnded { id }).0 {
                BrokerReply::Running if Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(1));
                }
                other => break other,
            }
        };
        assert_eq!(how, BrokerReply::Ended { how: "exit status: 0".to_owned() });
        assert_eq!(send_operation(&line, &BrokerOperation::Kill { id }).0, BrokerReply::Done);
        assert!(matches!(
            send_operation(&line, &BrokerOperation::HowEnded { id }).0,
            BrokerReply::Refused { .. }
        ));
        let restore =
            BrokerOperation::Start { way: make_launch_command(&["true"]), call: restore_call() };
        assert!(matches!(send_operation(&line, &restore), (BrokerReply::Started { .. }, 1)));
        drop(line);
        serving.join().unwrap();
    }

    fn make_command(via: &[&str], interface: &str, verb: HostVerb) -> BrokerOperation {
        let command = HostCommand { interface: interface.to_owned(), verb };
        BrokerOperation::Start { way: make_launch_command(via), call: HostCall::Command(command) }
    }

    #[test]
    fn fleet_broker_allows_only_requested_interfaces() {
        let (line, serving) = start_broker();
        let guard = |words: &[&str]| BrokerOperation::StartGuard {
            words: words.iter().map(|&word| word.to_owned()).collect(),
        };
        for permitted in [
            make_command(&["true"], "eth0", HostVerb::Look),
            make_command(&["env", "true"], "eth7", HostVerb::Look),
            guard(&["true", "h1"]),
        ] {
            assert!(
                matches!(send_operation(&line, &permitted), (BrokerReply::Started { .. }, 3)),
                "{permitted:?}"
            );
        }
        let set = HostVerb::Set(SetOptions { made_by: "x".to_owned(), ..SetOptions::default() });
        for refused in [
            make_command(&["true"], "eth1", HostVerb::Look),
            make_command(&["env", "true"], "eth7;id", HostVerb::Look),
            make_command(&["env"], "eth0", HostVerb::Look),
            make_command(&["true"], "eth0", set),
            make_command(&["true"], "eth0", HostVerb::Restore { made_by: None }),
            make_command(
                &["true"],
                "eth0",
                HostVerb::Undo(UndoOptions { entry: Some(1), ..UndoOptions::default() }),
            ),
            guard(&["true", "h2"]),
            guard(&["true"]),
            guard(&[]),
        ] {
            let answered = send_operation(&line, &refused);
            assert!(
                matches!(answered, (BrokerReply::Refused { .. }, 0)),
                "{refused:?} {answered:?}"
            );
        }
        drop(line);
        serving.join().unwrap();
    }

    #[test]
    fn results_hosts_are_taken_once_if_announced() {
        let (line, serving) = start_broker();
        let admit = |word: &str| BrokerOperation::Admit { word: word.to_owned() };
        assert!(matches!(
            send_operation(&line, &admit("netns://a")).0,
            BrokerReply::Refused { .. }
        ));
        drop(line);
        serving.join().unwrap();
        for (word, is_taken) in [("netns://a,netns://b", true), ("exec:true", false)] {
            let (line, brokers) = create_socket_pair().unwrap();
            let hosts_of_results = Some(HostsOfResults { bring: None });
            let permitted = RunPermissions { hosts_of_results, ..RunPermissions::default() };
            let serving = thread::spawn(move || serve_line(permitted, &brokers));
            assert_eq!(
                send_operation(&line, &admit(word)).0 == BrokerReply::Done,
                is_taken,
                "{word}"
            );
            assert!(matches!(
                send_operation(&line, &admit("netns://c")).0,
                BrokerReply::Refused { .. }
            ));
            let c = Target::parse("netns://c").unwrap().launch_command(None);
            let start = BrokerOperation::Start { way: c, call: HostCall::Agent };
            assert!(matches!(send_operation(&line, &start).0, BrokerReply::Refused { .. }));
            drop(line);
            serving.join().unwrap();
        }
    }

    #[test]
    fn foreign_request_is_refused_and_service_continues() {
        let (line, serving) = start_broker();
        let start =
            |via: &[&str], call| BrokerOperation::Start { way: make_launch_command(via), call };
        let program = LaunchCommand { program: "sh".to_owned(), ..make_launch_command(&["true"]) };
        for operation in [
            start(&["sh", "-c", "id"], HostCall::Agent),
            start(&["true", "--namespace", "/proc/1/ns/net"], restore_call()),
            start(&["true\0"], HostCall::Agent),
            start(&["tru\u{1b}[2Je"], HostCall::Agent),
            start(&[], HostCall::Agent),
            start(&["true"], HostCall::Programs),
            BrokerOperation::Start { way: program, call: HostCall::Agent },
            BrokerOperation::HowEnded { id: 1 },
            BrokerOperation::MakeLab,
        ] {
            let (reply, files) = send_operation(&line, &operation);
            assert!(
                matches!(reply, BrokerReply::Refused { .. }) && files == 0,
                "{operation:?} {reply:?}"
            );
        }
        // Of no process, and of no lab: there is nothing to be done.
        for operation in [BrokerOperation::Kill { id: 1 }, BrokerOperation::RemoveLab] {
            assert_eq!(send_operation(&line, &operation).0, BrokerReply::Done);
        }
        drop(line);
        serving.join().unwrap();
    }

    #[test]
    fn processes_are_bounded_by_the_run() {
        let (line, serving) = start_broker();
        let restore =
            BrokerOperation::Start { way: make_launch_command(&["true"]), call: restore_call() };
        let started = (0..=PROCESSES_MOST)
            .filter(|_| matches!(send_operation(&line, &restore).0, BrokerReply::Started { .. }))
            .count();
        assert_eq!(started, PROCESSES_MOST);
        drop(line);
        serving.join().unwrap();
    }

    #[test]
    fn invalid_operation_ends_the_broker() {
        let run = serde_json::json!({ "run": { "words": ["sh"] } });
        let more = serde_json::json!({ "start":
            { "way": make_launch_command(&["true"]), "call": "agent", "env": { "LD_PRELOAD": "x" } } });
        let long = serde_json::json!("x".repeat(MAX_BYTES));
        for message in [run, more, long, serde_json::json!(null)] {
            let (line, serving) = start_broker();
            thread::sleep(Duration::from_millis(20));
            assert!(!serving.is_finished(), "it waits");
            send_message(&line, &message, &[]).unwrap();
            serving.join().unwrap();
            assert!(receive_message::<BrokerReply>(&line, MAX_BYTES).is_err());
        }
    }

    #[test]
    fn file_that_comes_with_an_operation_is_closed() {
        let (line, serving) = start_broker();
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        send_message(&line, &BrokerOperation::RemoveLab, &[theirs.as_fd()]).unwrap();
        assert_eq!(receive_message::<BrokerReply>(&line, MAX_BYTES).unwrap().0, BrokerReply::Done);
        drop(theirs);
        assert!(ours.write_all(b"x").is_err(), "nobody has the other end");
        drop(line);
        serving.join().unwrap();
    }
}
