//! The keeper of a host: the process of an agent that has rights.
//!
//! `latput agent --stdio` is two processes. The keeper sets knobs and reads counters. It starts the agent's own process
//! ([`crate::agent`]), which gives up every right before it reads the control line, and makes the traffic. The keeper reads
//! nothing but the agent's messages, does what the messages in `keeper_line.rs` list, and puts its host back when the agent ends, is
//! killed or hangs.

mod look;
pub(crate) mod rights;
mod statsd;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use latput_linux::others::Benchmark;
use latput_linux::{CounterSnapshot, process};
use latput_load::{Stop, Window};
use latput_protocol::control::{Answer, EarlyEnd, Failure, Request, make_failure};
use latput_protocol::passing;
use latput_protocol::text::format_error_chain;
use rustix::process::{Pid, Signal, kill_process};

use crate::host::{EndsEarly, HostSession};
use crate::keeper_line::{AgentLine, CountRequest, KeeperOperation, KeeperReply, WindowCounts};

/// Most time of an agent to end after its host is put back: it writes its last answer.
const END_WITHIN: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Interval at which a signal is looked for.
const SIGNAL_LOOK_EVERY: Duration = Duration::from_millis(50);

/// Why a keeper could not serve its agent to the end.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// The agent's process could not be started.
    #[error("cannot start the process that talks to the controller")]
    Start(#[source] io::Error),
    /// The agent's process was killed. The host is as it was.
    #[error("the process that talks to the controller ended ({0}); the host was put back")]
    AgentKilled(ExitStatus),
    /// The host could not be put back.
    #[error("{}", .0.message)]
    Host(Failure),
}

/// Starts an agent and keeps its host. Returns the agent's exit code.
pub fn run(stop: &Stop) -> Result<u8, KeeperError> {
    let (link, agents_link) = UnixStream::pair().map_err(KeeperError::Start)?;
    let (rights, agents_rights) = passing::create_socket_pair().map_err(KeeperError::Start)?;
    let mut agent = start([agents_link.into(), agents_rights]).map_err(KeeperError::Start)?;
    let line = AgentLine::open(link).map_err(KeeperError::Start)?;
    let serving_rights = thread::spawn(move || rights::serve_privileged_requests(&rights));
    let is_over = Arc::new(AtomicBool::new(false));
    thread::spawn({
        let (pid, stop, is_over) = (Pid::from_child(&agent), stop.clone(), Arc::clone(&is_over));
        move || tell_of_signal(pid, &stop, &is_over)
    });
    let served = serve_agent(&line, stop);
    is_over.store(true, Ordering::Relaxed);
    let ended = await_agent_exit(&mut agent);
    // Its last socket is closed: what was made for it is removed.
    let _removed = serving_rights.join();
    match (served, ended.code().and_then(|code| u8::try_from(code).ok())) {
        (_, Some(code)) if code != 0 => Ok(code), // it has said why
        (Err(failure), _) => Err(KeeperError::Host(failure)),
        (Ok(()), Some(code)) => Ok(code),
        (Ok(()), None) => Err(KeeperError::AgentKilled(ended)),
    }
}

/// Starts the agent's process from this program's own file, which may have no name any more. It ends with this thread.
fn start(files: [OwnedFd; 2]) -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("latput").args(["agent", "--stdio", "--kept"]);
    command.args(files.iter().map(|file| file.as_raw_fd().to_string()));
    process::hand_over(&mut command, files.into());
    process::end_with_this_thread(&mut command).spawn()
}

/// Passes a signal on to the agent, which ends as if the controller had told it to.
fn tell_of_signal(agent: Pid, stop: &Stop, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        if stop.is_raised() {
            let _gone = kill_process(agent, Signal::TERM);
            return;
        }
        thread::sleep(SIGNAL_LOOK_EVERY);
    }
}

/// Waits until the agent has ended, and kills it after a while.
fn await_agent_exit(agent: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + END_WITHIN;
    loop {
        match agent.try_wait() {
            Ok(Some(status)) => return status,
            Ok(None) if Instant::now() < deadline => thread::sleep(LOOK_EVERY),
            _ => {
                let _gone = agent.kill();
                return agent
                    .wait()
                    .unwrap_or_else(|_| ExitStatus::from_raw(Signal::KILL.as_raw()));
            }
        }
    }
}

/// Does what the agent asks until it ends, and puts the host back.
fn serve_agent(line: &AgentLine, stop: &Stop) -> Result<(), Failure> {
    let mut host = None;
    while let Some(operation) = line.next(stop) {
        let reply = match operation {
            KeeperOperation::Host(request) if matches!(*request, Request::Close) => break,
            KeeperOperation::Host(request) => KeeperReply::Answer(
                handle_request(&mut host, *request, line).unwrap_or_else(Answer::Failed),
            ),
            KeeperOperation::Count(wanted) => count_window(host.as_mut(), &wanted, line)
                .map_or_else(
                    |failure| KeeperReply::Answer(Answer::Failed(failure)),
                    KeeperReply::Counted,
                ),
        };
        line.send_reply(&reply);
    }
    let closed = host.map_or_else(|| Ok(Vec::new()), HostSession::close);
    let answer = match &closed {
        Ok(left) => Answer::Closed { why: String::new(), left: left.clone() },
        Err(failure) => Answer::Failed(failure.clone()),
    };
    line.send_reply(&KeeperReply::Answer(answer));
    closed.map(drop)
}

fn handle_request(
    host: &mut Option<HostSession>,
    request: Request,
    line: &AgentLine,
) -> Result<Answer, Failure> {
    match (host, request) {
        (_, Request::Look(look)) => {
            look::inspect_host(&look).map(|seen| Answer::Seen(Box::new(seen)))
        }
        (_, Request::Record { interface }) => look::record_look(&interface),
        (host @ None, Request::Open(open)) => {
            line.set_lease(open.lease);
            let (opened_host, opened) = HostSession::open(open)?;
            *host = Some(opened_host);
            Ok(Answer::Opened(Box::new(opened)))
        }
        (Some(host), Request::Read { knobs }) => Ok(Answer::Values { values: host.read(&knobs) }),
        (Some(host), Request::Survey) => {
            host.survey_interface().map(|nic| Answer::Surveyed(Box::new(nic)))
        }
        (Some(host), Request::Watch { span }) => host
            .watch_surroundings(span, line.halt_flag())
            .map(|seen| Answer::Watched(Box::new(seen))),
        (Some(host), Request::Set { setting }) => host.apply_setting(&setting).map(|_| Answer::Set),
        (Some(host), Request::Rehearse { setting }) => {
            host.rehearse_setting(&setting).map(|()| Answer::Rehearsed)
        }
        (Some(host), Request::Live(block)) => {
            line.begin_count();
            let is_told = || line.has_reached_count();
            let seen = host.run_live_block(&block, line.halt_flag(), &is_told)?;
            Ok(Answer::Lived(Box::new(seen)))
        }
        (Some(host), Request::Link) => host.await_link(line.halt_flag()).map(|()| Answer::Linked),
        _ => Err(make_failure("a keeper does not do this, or not now")),
    }
}

fn count_window(
    host: Option<&mut HostSession>,
    wanted: &CountRequest,
    line: &AgentLine,
) -> Result<WindowCounts, Failure> {
    let host = host.ok_or_else(|| make_failure("no host is open to be counted"))?;
    let window = build_window(wanted)?;
    line.begin_count();
    let mut tell = |snapshot: &CounterSnapshot| {
        let CounterSnapshot { at, interface } = *snapshot;
        line.send_reply(&KeeperReply::Snapshot { at, interface });
    };
    let is_reached = || line.has_reached_count();
    let is_over = (wanted.early_end != EarlyEnd::Never)
        .then_some(EndsEarly { is_over: &is_reached, early_end: wanted.early_end });
    if let Some(turns) = &wanted.turns {
        return host.take_turns(window, turns, line.halt_flag(), &mut tell);
    }
    let benchmark = if wanted.is_of_programs { Benchmark::OfPrograms } else { Benchmark::OfLatput };
    host.observe_window(window, benchmark, line.halt_flag(), is_over, &mut tell)
}

/// The window of a request to start.
pub(crate) fn build_window(wanted: &CountRequest) -> Result<Window, Failure> {
    let CountRequest { at, warmup, duration, turns, .. } = wanted;
    if turns.as_ref().is_some_and(|turns| !turns.is_whole()) {
        return Err(make_failure("a slice has no setting"));
    }
    let window = Window::starting_after(*at, *warmup, *duration).and_then(|window| {
        turns.as_ref().map_or(Ok(window), |turns| window.in_slices(turns.slices))
    });
    window.map_err(|error| make_failure(format_error_chain(&error)))
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Write};

    use latput_load::Key;
    use latput_protocol::control::{read_line, write_line};
    use latput_trial::{Traffic, Workload};
    use serde_json::json;

    use super::*;

    /// A keeper in a thread, and the agent's end of the line to it.
    fn start_keeper() -> (UnixStream, thread::JoinHandle<Result<(), Failure>>) {
        let (link, agents) = UnixStream::pair().unwrap();
        let serving =
            thread::spawn(move || serve_agent(&AgentLine::open(link).unwrap(), &Stop::new()));
        (agents, serving)
    }

    #[test]
    fn unlisted_request_is_refused_without_change() {
        let (mut line, serving) = start_keeper();
        let mut answers = BufReader::new(line.try_clone().unwrap());
        let key = Key::generate().unwrap();
        let send = Request::Send {
            workload: Workload::plain("own", Traffic::tcp_rr(0)),
            key,
            peer: std::net::Ipv4Addr::LOCALHOST.into(),
            port: 1,
        };
        let host = |request: Request| json!({ "do": { "host": request } });
        let set = Request::Set { setting: latput_knobs::Setting::default() };
        let count = json!({ "do": { "count": {
            "at": 0, "warmup": 0, "duration": 1, "turns": null, "early_end": "never",
            "is_of_programs": false
        } } });
        // It would be a path.
        let record = Request::Record { interface: "../../etc".to_owned() };
        for message in
            [host(send), host(Request::Ping), host(Request::Clock), host(record), host(set), count]
        {
            write_line(&mut line, &message).unwrap();
            let reply: KeeperReply = read_line(&mut answers).unwrap();
            assert!(
                matches!(reply, KeeperReply::Answer(Answer::Failed(_))),
                "{message}: {reply:?}"
            );
        }
        write_line(&mut line, &host(Request::Close)).unwrap();
        let reply: KeeperReply = read_line(&mut answers).unwrap();
        assert!(matches!(reply, KeeperReply::Answer(Answer::Closed { .. })), "{reply:?}");
        serving.join().unwrap().unwrap();
    }

    #[test]
    fn what_is_no_message_ends_the_keeper() {
        for words in ["hello\n", "{\"do\":{\"run\":\"sh\"}}\n", "{\"do\":"] {
            let (mut line, serving) = start_keeper();
            line.write_all(words.as_bytes()).unwrap();
            if !words.ends_with('\n') {
                line.shutdown(std::net::Shutdown::Write).unwrap();
            }
            serving.join().unwrap().unwrap();
        }
    }
}
