//! Figures of an application: over HTTP, in a file, by statsd, or as a command's output.

use std::io::Read;
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use latput_formats::prometheus::{self, Scrape};
use latput_formats::statsd::{self, StatsdTotals};
use latput_protocol::figure_line::{FigureInbox, FigureLine};
use latput_trial::live::{Endpoint, EndpointAt};
use latput_units::Nanos;

use super::http;
use crate::keeper::rights::KeeperClient;

/// The application of this host.
#[derive(Debug)]
pub(in crate::agent) struct ApplicationScraper {
    rights: KeeperClient,
    statsd: Option<StatsdReceiver>,
    /// Figures of a command.
    told: Option<FigureInbox>,
}

/// A socket that the application sends to.
#[derive(Debug)]
struct StatsdReceiver {
    endpoint: Endpoint,
    totals: Arc<Mutex<StatsdTotals>>,
}

impl ApplicationScraper {
    pub(in crate::agent) const fn new(rights: KeeperClient) -> Self {
        Self { rights, statsd: None, told: None }
    }

    /// Makes the socket of the endpoint, if it has one that is not there yet. `told_on` is that of a command.
    ///
    /// # Errors
    ///
    /// Why it cannot be made, and the remedy.
    pub(super) fn open(
        &mut self,
        endpoint: &Endpoint,
        told_on: Option<&FigureLine>,
    ) -> Result<(), String> {
        if let Some(line) =
            told_on.filter(|line| self.told.as_ref().is_none_or(|it| it.line != **line))
        {
            let inbox = FigureInbox::open(line);
            let inbox =
                inbox.map_err(|error| format!("cannot receive the command's figures: {error}"))?;
            self.told = Some(inbox);
        }
        let EndpointAt::Statsd(path) = &endpoint.at else { return Ok(()) };
        if self.statsd.as_ref().is_some_and(|statsd| statsd.endpoint == *endpoint) {
            return Ok(());
        }
        let socket = self.rights.open_statsd(path).map_err(|error| {
            format!(
                "cannot make the socket {path} ({error}). Name a new path in an existing folder"
            )
        })?;
        let totals = Arc::new(Mutex::new(StatsdTotals::new(&endpoint.figures)));
        let read = {
            let totals = Arc::clone(&totals);
            move || receive_datagrams(&socket, &totals)
        };
        // It reads also between blocks: a sender waits for a socket that is full.
        thread::Builder::new()
            .name("statsd".to_owned())
            .spawn(read)
            .map_err(|error| format!("cannot start a thread: {error}"))?;
        self.statsd = Some(StatsdReceiver { endpoint: endpoint.clone(), totals });
        Ok(())
    }

    /// Reads its figures of now. A command's have the time at which they came.
    ///
    /// # Errors
    ///
    /// Why nothing can be read.
    pub(super) fn scrape_endpoint(
        &self,
        endpoint: &Endpoint,
        within: Duration,
    ) -> Result<(Option<Nanos>, Scrape), String> {
        let (at, text) = match &endpoint.at {
            EndpointAt::Exec(_) => {
                let told = self.told.as_ref().ok_or("its command was not started")?;
                let (at, text) = told.latest_snapshot()?;
                (Some(at), text)
            }
            EndpointAt::Http { address, path } => (None, http::get(*address, path, within)?),
            EndpointAt::File(path) => (None, self.read_file(path)?),
            EndpointAt::Statsd(_) => {
                let statsd = self.statsd.as_ref().ok_or("its socket is not open")?;
                let totals = statsd.totals.lock().unwrap_or_else(PoisonError::into_inner);
                return Ok((None, totals.to_scrape()));
            }
        };
        Ok((at, Scrape::read(&text, &endpoint.figures)?))
    }

    /// A file's text; one that is too long is cut just behind the limit, and refused by whoever reads it.
    fn read_file(&self, path: &str) -> Result<String, String> {
        let read = || {
            let mut bytes = Vec::new();
            let most = prometheus::MOST_BYTES as u64 + 1;
            self.rights.open_file(path)?.take(most).read_to_end(&mut bytes)?;
            Ok::<_, std::io::Error>(bytes)
        };
        let bytes = read().map_err(|error| match error.kind() {
            std::io::ErrorKind::PermissionDenied => {
                format!("{error}: everybody must be able to read it (chmod o+r, and o+x for its folders)")
            }
            std::io::ErrorKind::InvalidInput => "it is not a regular file".to_owned(),
            _ => error.to_string(),
        })?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Adds what comes, until the process ends.
fn receive_datagrams(socket: &UnixDatagram, totals: &Mutex<StatsdTotals>) {
    let mut buffer = vec![0; statsd::MOST_BYTES];
    loop {
        match socket.recv(&mut buffer) {
            Ok(count) => {
                totals.lock().unwrap_or_else(PoisonError::into_inner).add(&buffer[..count]);
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}
