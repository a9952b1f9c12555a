//! One program: started when it is due, read, ended when it is told to or has run too long.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use latput_linux::process::OsClock;
use latput_protocol::figure_line::FigureSender;
use latput_protocol::program::{
    ExitCause, KeptOutput, MOST_FILES, MOST_KEPT, ProgramOutcome, ProgramSpec, StartRequest,
};
use latput_units::{Clock, IntoMap, Nanos};
use rustix::fs::{Mode, OFlags};

use super::hold::{self, GRACE, ProgramEvent};
use super::kept::OutputBuffer;

/// User of programs that tell figures, where root would run them.
const NOBODY: &str = "nobody";
/// Interval at which a running program is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Most time of a holder to end beyond the grace of its program.
const HOLDER_WITHIN: Duration = Duration::from_secs(1);
/// Most time to read on after the program has ended. Only a process that has left an uncontained program holds an output
/// open so long.
const READ_ON: Duration = Duration::from_millis(500);
/// Most bytes of a word of the first process.
const MOST_SAID: usize = 1 << 16;
/// Most time to find out whether a port is free.
pub(super) const CONNECT_WITHIN: Duration = Duration::from_millis(500);

/// State of a running program that other threads see.
#[derive(Debug, Default)]
pub(super) struct ProgramState {
    /// Whether it is to end.
    told: AtomicBool,
    /// Whether it has ended, or could not be started.
    over: AtomicBool,
    outputs: Mutex<Option<[SharedKeeper; 2]>>,
}

type SharedKeeper = Arc<Mutex<OutputBuffer>>;

impl ProgramState {
    pub(super) fn tell_to_end(&self) {
        self.told.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Bytes that have come so far.
    pub(super) fn output_length(&self) -> u64 {
        self.each_output(OutputBuffer::total_bytes).into_iter().sum()
    }

    /// Standard output and standard error so far.
    pub(super) fn kept_outputs(&self) -> Vec<KeptOutput> {
        self.each_output(OutputBuffer::to_kept_output)
    }

    fn each_output<T>(&self, look: impl Fn(&OutputBuffer) -> T) -> Vec<T> {
        let outputs = lock(&self.outputs);
        outputs.iter().flatten().map(|output| look(&lock(output))).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a program to its end. `started` is called with the time and whether it is contained.
pub(super) fn run(
    start: &StartRequest,
    shared: &ProgramState,
    started: &dyn Fn(Nanos, bool),
) -> ProgramOutcome {
    let folder = start.program.folder.as_deref().map_or(Path::new(""), Path::new);
    let files = start.files.iter().take(MOST_FILES);
    let before: Vec<_> = files.clone().map(|path| read_file_state(&folder.join(path))).collect();
    let mut ended = start_and_watch(start, shared, started);
    if !matches!(ended.ending, ExitCause::NotStarted { .. }) {
        let read = |(path, before): (&String, Option<FileState>)| {
            (path.clone(), read_file(&folder.join(path), before, start.keep))
        };
        ended.files = files.zip(before).map(read).into_map();
    }
    shared.over.store(true, Ordering::Release);
    ended
}

fn start_and_watch(
    start: &StartRequest,
    shared: &ProgramState,
    started: &dyn Fn(Nanos, bool),
) -> ProgramOutcome {
    if let Some((address, port)) = start.free_port
        && is_listening(address, port)
    {
        return not_started_outcome(format!(
            "another program listens on port {port} of {address}: end it, or choose another port"
        ));
    }
    if let Some(at) = start.at {
        while !shared.told.load(Ordering::Relaxed) {
            let left = at.saturating_sub(OsClock.now());
            if left == Nanos::ZERO {
                break;
            }
            thread::sleep(left.as_duration().min(LOOK_EVERY));
        }
    }
    let sender = match start.tell_on.as_ref().map(FigureSender::open).transpose() {
        Ok(sender) => sender,
        Err(error) => {
            return not_started_outcome(format!("its figures cannot be passed on: {error}"));
        }
    };
    let spawned = UnixStream::pair().and_then(|(line, theirs)| Ok((hold::start(theirs)?, line)));
    match spawned {
        Ok((mut holder, mut line)) => {
            let keep = start.keep.min(MOST_KEPT);
            let readers = [
                OutputReader::collect_from(
                    holder.stdout.take().expect("it is piped"),
                    keep,
                    sender,
                ),
                OutputReader::collect_from(holder.stderr.take().expect("it is piped"), keep, None),
            ];
            *lock(&shared.outputs) = Some(readers.each_ref().map(|it| Arc::clone(&it.output)));
            hold::name(&mut line, &as_whom(start));
            let (ending, began, at) = watch_program(start, shared, started, &mut holder, line);
            let [stdout, stderr] = readers.map(OutputReader::finish_reading);
            ProgramOutcome { ending, began, ended: at, stdout, stderr, files: BTreeMap::new() }
        }
        Err(error) => {
            not_started_outcome(format!("cannot start the process that holds it: {error}"))
        }
    }
}

/// The program with its user.
fn as_whom(start: &StartRequest) -> ProgramSpec {
    let mut program = start.program.clone();
    if start.tell_on.is_some() && rustix::process::geteuid().is_root() {
        program.user = program.user.or_else(|| Some(NOBODY.to_owned()));
    }
    program
}

fn not_started_outcome(why: String) -> ProgramOutcome {
    let now = OsClock.now();
    let (stdout, stderr) = (KeptOutput::default(), KeptOutput::default());
    let ending = ExitCause::NotStarted { why };
    ProgramOutcome { ending, began: now, ended: now, stdout, stderr, files: BTreeMap::new() }
}

/// Follows a program until its holder has ended. Returns how it ended, and when it began and ended.
fn watch_program(
    start: &StartRequest,
    shared: &ProgramState,
    started: &dyn Fn(Nanos, bool),
    holder: &mut Child,
    line: UnixStream,
) -> (ExitCause, Nanos, Nanos) {
    let begun = Instant::now();
    let mut began = OsClock.now();
    let mut end: Option<(ExitCause, Nanos)> = None;
    let mut told: Option<(Instant, ExitCause)> = None;
    let _blocks_otherwise = line.set_read_timeout(Some(LOOK_EVERY));
    let mut said = FirstProcessLine { from: BufReader::new(&line), word: Vec::new() };
    while end.is_none() {
        match said.next() {
            Ok(Some(ProgramEvent::Started { at, contained })) => {
                began = at;
                started(at, contained);
            }
            Ok(Some(ProgramEvent::Ended { ending, at })) => end = Some((ending, at)),
            Ok(None) => {}
            Err(_) => break, // the first process is gone
        }
        let why = match start.timeout {
            _ if shared.told.load(Ordering::Relaxed) => Some(ExitCause::Told),
            Some(timeout) if begun.elapsed() >= timeout.as_duration() => {
                Some(ExitCause::TimedOut { timeout })
            }
            _ => None,
        };
        match (&told, why) {
            (None, Some(why)) => {
                let _gone = line.shutdown(std::net::Shutdown::Write);
                told = Some((Instant::now(), why));
            }
            (Some((since, _)), _) if since.elapsed() > GRACE + HOLDER_WITHIN => break,
            _ => {}
        }
    }
    if end.is_none() {
        let _gone = holder.kill(); // and all others with it
    }
    let _unwaitable = holder.wait();
    let (ending, at) = end.unwrap_or_else(|| (ExitCause::Lost, OsClock.now()));
    let ending = match told {
        Some((_, why)) if !matches!(ending, ExitCause::NotStarted { .. }) => why,
        _ => ending,
    };
    (ending, began, at)
}

/// The words of the first process.
struct FirstProcessLine<R> {
    from: BufReader<R>,
    /// The part of a word that has come.
    word: Vec<u8>,
}

impl<R: Read> FirstProcessLine<R> {
    /// The next one, if it comes soon.
    fn next(&mut self) -> io::Result<Option<ProgramEvent>> {
        match self.from.by_ref().take(MOST_SAID as u64).read_until(b'\n', &mut self.word) {
            Ok(_) if self.word.ends_with(b"\n") => {
                let said = serde_json::from_slice(&self.word);
                self.word.clear();
                Ok(Some(said?))
            }
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock
                | io::ErrorKind::TimedOut
                | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            },
        }
    }
}

/// A thread that keeps an output, and passes it on.
struct OutputReader {
    output: SharedKeeper,
    thread: JoinHandle<()>,
}

impl OutputReader {
    fn collect_from(
        from: impl Read + Send + 'static,
        keep: usize,
        mut sender: Option<FigureSender>,
    ) -> Self {
        let output = Arc::new(Mutex::new(OutputBuffer::new(keep)));
        let kept = Arc::clone(&output);
        let thread = thread::spawn(move || {
            let mut from = from;
            let mut buffer = vec![0; 65_536];
            loop {
                match from.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(length) => {
                        lock(&kept).push(&buffer[..length]);
                        if let Some(sender) = &mut sender {
                            sender.push(&buffer[..length]);
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
            sender.iter_mut().for_each(FigureSender::send_last_snapshot);
        });
        Self { output, thread }
    }

    fn finish_reading(self) -> KeptOutput {
        let deadline = Instant::now() + READ_ON;
        while !self.thread.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        lock(&self.output).to_kept_output()
    }
}

/// Whether somebody accepts connections.
pub(super) fn is_listening(address: IpAddr, port: u16) -> bool {
    TcpStream::connect_timeout(&SocketAddr::new(address, port), CONNECT_WITHIN).is_ok()
}

/// State of a file that a write changes: device, inode, length, and when it was modified.
type FileState = (u64, u64, u64, i64, i64);

/// `None` where there is no file.
fn read_file_state(path: &Path) -> Option<FileState> {
    let it = path.metadata().ok()?;
    Some((it.dev(), it.ino(), it.len(), it.mtime(), it.mtime_nsec()))
}

/// Reads the text that a program has written to a file, whose state was `before` when the program began.
fn read_file(path: &Path, before: Option<FileState>, keep: usize) -> Result<KeptOutput, String> {
    let mut keeper = OutputBuffer::new(keep.min(MOST_KEPT));
    let name = path.display();
    let failed = |error: io::Error| format!("cannot read `{name}`: {error}");
    // Not waiting: a pipe that nobody writes to would hold the trial.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty());
    let file = std::fs::File::from(file.map_err(|errno| failed(errno.into()))?);
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(format!("`{name}` is not a file"));
    }
    if before.is_some() && read_file_state(path) == before {
        return Err(format!("`{name}` is older than the program"));
    }
    keeper.read(file).map_err(failed)?;
    Ok(keeper.to_kept_output())
}
