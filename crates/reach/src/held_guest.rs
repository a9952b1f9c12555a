//! The guest of a run while it is held, here or at the broker.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use latput_load::Stop;
use latput_vm::{CommandOutput, ENDPOINTS, Guest, GuestCommand, GuestSpec, PROGRAM};

use crate::broker::client::{BrokerLine, get_broker};
use crate::broker::message::{GuestPlace, LaunchCommand};
use crate::error::Error;
use crate::host_spec::own_program;

/// How often a guest that boots is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A guest that has booted. It ends when this value is dropped.
#[derive(Debug)]
pub struct HeldGuest {
    spec: GuestSpec,
    place: GuestPlace,
    holder: GuestOwner,
}

#[derive(Debug)]
enum GuestOwner {
    Own(Box<OwnGuest>),
    Broker(BrokersGuest),
}

impl HeldGuest {
    /// Boots it, and waits until commands can be run in it.
    ///
    /// # Errors
    ///
    /// Why it does not boot; that the user stopped it.
    pub fn start(spec: GuestSpec, stop: &Stop) -> Result<Self, Error> {
        let mut holder =
            GuestOwner::boot_guest(spec).map_err(|problem| guest_error(spec, problem))?;
        let place = holder.wait_until_ready(spec, stop)?;
        Ok(Self { spec, place, holder })
    }

    /// Ends it, and boots another in its place.
    pub fn start_again(&mut self, stop: &Stop) -> Result<(), Error> {
        self.shut_down();
        *self = Self::start(self.spec, stop)?;
        Ok(())
    }

    /// Ends it at once. What was set in it is gone with it.
    pub fn shut_down(&mut self) {
        self.holder.end();
    }

    /// The options of the guest.
    pub const fn spec(&self) -> GuestSpec {
        self.spec
    }

    /// The guest in a line: the same for every guest of this kind on this machine.
    pub fn description(&self) -> &str {
        &self.place.description
    }

    /// How latput is started as its hosts, in their order.
    pub fn launch_commands(&self) -> [LaunchCommand; 2] {
        build_launch_commands(&self.place.folder)
    }

    /// Starts a command in it.
    ///
    /// # Errors
    ///
    /// It cannot be reached.
    pub fn start_command(&self, words: &[String]) -> Result<GuestCommand, Error> {
        let line = match &self.holder {
            GuestOwner::Own(guest) => guest.line(words).map_err(|error| error.to_string()),
            GuestOwner::Broker(guest) => {
                guest.broker_line().and_then(|broker| broker.run_in_guest(words))
            }
        };
        line.map_err(|problem| self.guest_error(problem))
    }

    /// Runs a command of latput in it, in the first namespace.
    pub fn run(&self, args: &[&str]) -> Result<CommandOutput, Error> {
        let words: Vec<String> =
            [PROGRAM].iter().chain(args).map(|&word| word.to_owned()).collect();
        self.start_command(&words)?
            .collect_output()
            .map_err(|error| self.guest_error(error.to_string()))
    }

    /// Loads the driver of the cards anew, with these parameters (`NAME=SUT,GENERATOR`), and connects the hosts again.
    /// What was set on the cards is gone, and so must be whoever uses them.
    pub fn reload_driver(&self, parameters: &[String]) -> Result<(), Error> {
        let args = ["vm", "reload"].into_iter().chain(parameters.iter().map(String::as_str));
        let output = self.run(&args.collect::<Vec<_>>())?;
        if output.is_success() {
            return Ok(());
        }
        Err(self
            .guest_error(format!("the driver was not reloaded: {}", output.error_text().trim())))
    }

    /// Whether it ends now or has ended, and what its console ends with.
    pub fn check_console(&mut self) -> (bool, String) {
        match &mut self.holder {
            GuestOwner::Own(guest) => guest.look(),
            GuestOwner::Broker(guest) => match guest.broker_line() {
                Ok(broker) => broker.look_at_guest(),
                Err(ended) => (true, ended),
            },
        }
    }

    fn guest_error(&self, problem: String) -> Error {
        guest_error(self.spec, problem)
    }
}

fn guest_error(spec: GuestSpec, problem: String) -> Error {
    Error::Guest { testbed: format!("vm:{spec}"), problem }
}

impl GuestOwner {
    fn boot_guest(spec: GuestSpec) -> Result<Self, String> {
        if let Some(broker) = get_broker() {
            broker.boot_guest()?;
            return Ok(Self::Broker(BrokersGuest(Some(broker))));
        }
        let guest = OwnGuest::boot(spec).map_err(|error| error.to_string())?;
        Ok(Self::Own(Box::new(guest)))
    }

    /// Waits until commands can be run.
    fn wait_until_ready(&mut self, spec: GuestSpec, stop: &Stop) -> Result<GuestPlace, Error> {
        loop {
            let place = match self {
                Self::Own(guest) => guest.poll_ready().map_err(|error| error.to_string()),
                Self::Broker(guest) => guest.broker_line().and_then(BrokerLine::poll_guest),
            };
            if let Some(place) = place.map_err(|problem| guest_error(spec, problem))? {
                return Ok(place);
            }
            if stop.is_raised() {
                return Err(Error::Interrupted);
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    fn end(&mut self) {
        match self {
            Self::Own(guest) => guest.0.terminate(),
            Self::Broker(guest) => guest.end(),
        }
    }
}

/// The guest of the broker; `None` after its end.
#[derive(Debug)]
struct BrokersGuest(Option<&'static BrokerLine>);

impl BrokersGuest {
    fn broker_line(&self) -> Result<&'static BrokerLine, String> {
        self.0.ok_or_else(|| "the guest has ended".to_owned())
    }

    fn end(&mut self) {
        self.0.take().iter().for_each(|broker| broker.end_guest());
    }
}

impl Drop for BrokersGuest {
    fn drop(&mut self) {
        self.end();
    }
}

/// The guest of this process.
#[derive(Debug)]
pub(crate) struct OwnGuest(Guest);

impl OwnGuest {
    /// Begins to boot it.
    pub(crate) fn boot(spec: GuestSpec) -> Result<Self, latput_vm::Error> {
        Guest::boot(spec).map(Self)
    }

    /// Where it is; `None` until commands can be run in it.
    pub(crate) fn poll_ready(&mut self) -> Result<Option<GuestPlace>, latput_vm::Error> {
        let place = |guest: &Guest| GuestPlace {
            folder: guest.folder().to_owned(),
            description: guest.description(),
        };
        Ok(self.0.is_ready()?.then(|| place(&self.0)))
    }

    pub(crate) fn ways(&self) -> [LaunchCommand; 2] {
        build_launch_commands(self.0.folder())
    }

    pub(crate) fn line(&self, words: &[String]) -> Result<GuestCommand, latput_vm::Error> {
        GuestCommand::open(self.0.folder(), words)
    }

    pub(crate) fn look(&mut self) -> (bool, String) {
        (self.0.is_ending(), self.0.console_tail())
    }
}

/// How latput is started as the hosts of the guest in this folder, in their order.
fn build_launch_commands(folder: &Path) -> [LaunchCommand; 2] {
    ENDPOINTS.map(|host| {
        let folder = PathBuf::from(folder).display().to_string();
        let attach = [own_program(), "vm".to_owned(), "attach".to_owned(), folder, "--".to_owned()];
        LaunchCommand {
            via: attach.into_iter().chain(host.exec_words()).collect(),
            program: PROGRAM.to_owned(),
        }
    })
}
