//! The words that say where trials run: a testbed, or one or two hosts.

use std::path::{Path, PathBuf};

use latput_experiment::Testbed;
use latput_experiment::discover::{self, Discovered};
use latput_experiment::target::Target;
use latput_linux::files;
use latput_linux::route::Route;
use latput_peers::Peer;
use latput_trial::Plan;
use latput_vm::GuestSpec;

use crate::context::Context;
use crate::exit::CliError;
use crate::output;

/// Before the name of a system to simulate.
pub(crate) const SIMULATED: &str = "sim:";
/// Before the driver of a guest's network cards.
const EMULATED: &str = "vm:";

/// What goes with hosts that are named in a word each.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct HostArgs {
    /// The host that makes the traffic, in one word; the one before is the system under test.
    #[arg(long, value_name = "HOST")]
    peer: Option<String>,
    /// The static latput to take along to hosts that have none of this version; without it this program.
    #[arg(long, value_name = "FILE")]
    bring: Option<PathBuf>,
    /// Keep what was found of the hosts as a testbed file.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

impl HostArgs {
    /// The testbed of a word, for this plan.
    pub(crate) fn open(
        &self,
        word: &str,
        plan: &Plan,
        context: &Context,
    ) -> Result<Testbed, CliError> {
        if plan.live().is_some() {
            return self.alone(word, context);
        }
        if let Some(testbed) = self.hosts(word, context)? {
            return Ok(testbed);
        }
        if let Some(peer) = Peer::parse(word) {
            return Ok(Testbed::third_party(peer.map_err(latput_experiment::Error::from)?, plan)?);
        }
        match word {
            "loopback" => Ok(Testbed::loopback()),
            "vm" => Ok(Testbed::vm(GuestSpec::default())),
            name => match (name.strip_prefix(SIMULATED), name.strip_prefix(EMULATED)) {
                (Some(system), _) => Ok(Testbed::simulator(system, plan)?),
                (None, Some(guest)) => Ok(Testbed::vm(guest.parse()?)),
                (None, None) => Ok(Testbed::from_file(Path::new(name))?),
            },
        }
    }

    /// The hosts of a word, and what was found of them is told; `None` where it names none. The lab, and those of a
    /// file, are hosts too.
    pub(crate) fn hosts(&self, word: &str, context: &Context) -> Result<Option<Testbed>, CliError> {
        if self.peer.is_none() && !is_hosts(word) {
            for (flag, is_given) in
                [("--bring", self.bring.is_some()), ("--save", self.save.is_some())]
            {
                if is_given {
                    let message = format!(
                        "{flag} goes with hosts such as ssh://root@server, not with `{word}`"
                    );
                    return Err(CliError::usage(message));
                }
            }
            return if word == "lab" { Ok(Some(Testbed::lab()?)) } else { Ok(None) };
        }
        let [sut, generator] = self.targets(word)?;
        if let Some(path) = &self.save {
            files::check(path)?;
        }
        output::remark(&format!("latput: looking for the way between {sut} and {generator}"));
        let found = discover::discover([&sut, &generator], self.bring.as_deref(), &context.stop)?;
        self.tell(&found)?;
        Ok(Some(Testbed::discovered(&found)))
    }

    /// The one host that has live traffic.
    fn alone(&self, word: &str, context: &Context) -> Result<Testbed, CliError> {
        if self.peer.is_some() || self.save.is_some() {
            let message = "live traffic has one host: leave out --peer and --save";
            return Err(CliError::usage(message));
        }
        let words = Target::split(word);
        let [_] = words[..] else { return Err(latput_experiment::Error::NoLiveTraffic.into()) };
        if !is_hosts(word) {
            return Err(latput_experiment::Error::NoLiveTraffic.into());
        }
        let target = Target::parse(word)?;
        let (host, warnings) = discover::alone(&target, self.bring.as_deref(), &context.stop)?;
        for warning in warnings {
            output::remark(&format!("latput: warning: {warning}"));
        }
        Ok(Testbed::alone(word, host))
    }

    fn targets(&self, word: &str) -> Result<[Target; 2], CliError> {
        let mut words = Target::split(word);
        words.extend(self.peer.as_deref());
        let here = Target { reach: latput_experiment::target::Reach::Here, at: None };
        match words.as_slice() {
            [sut, generator] => Ok([Target::parse(sut)?, Target::parse(generator)?]),
            [sut] if Target::is_told_by(sut) => Ok([Target::parse(sut)?, here]),
            [sut] => Err(CliError::usage(format!(
                "`{sut}` is an interface of this host: name the host at the other end as well, such as `--peer \
                 ssh://root@client`"
            ))),
            _ => Err(CliError::usage(
                "one host is the system under test and one makes the traffic: more need a testbed file",
            )),
        }
    }

    fn tell(&self, found: &Discovered) -> Result<(), CliError> {
        for said in &found.said {
            output::remark(&format!("latput: {said}"));
        }
        for warning in &found.warnings {
            output::remark(&format!("latput: warning: {warning}"));
        }
        if let Some(path) = &self.save {
            files::replace(path, found.file.as_bytes())?;
            output::remark(&format!("latput: testbed: {}", path.display()));
        }
        Ok(())
    }
}

/// Whether a word names hosts: it begins as one, or is an interface of this host and no file.
pub(crate) fn is_hosts(word: &str) -> bool {
    if Target::is_told_by(word) {
        return true;
    }
    let is_word = matches!(word, "lab" | "loopback" | "vm") || word.starts_with(SIMULATED);
    let first = Target::split(word)[0];
    let is_interface = || Route::open().is_ok_and(|route| route.link(first).is_ok());
    !is_word && !Path::new(word).exists() && is_interface()
}
