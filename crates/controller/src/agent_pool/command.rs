//! Trials of a `command` workload: programs make the traffic, and the agents count.

use std::net::IpAddr;
use std::time::Duration;

use latput_load::Stop;
use latput_protocol::control::{Answer, EarlyEnd, HostTrialResult, Request};
use latput_protocol::program::{ExitCause, MOST_KEPT, ProgramOutcome, ProgramSpec, StartRequest};
use latput_reach::host_spec::HostSpec;
use latput_runner::Error;
use latput_runner::trials::{Trial, TrialProgress};
use latput_trial::observation::Role;
use latput_trial::plan::Method;
use latput_trial::program::{Lifetime, Placeholder, Program, ProgramCommand, RunsOn, substitute};
use latput_trial::{Observation, Workload};
use latput_units::{CpuSet, Nanos};

use super::programs::ProgramHosts;
use super::{AgentPool, START_AHEAD, TRIAL_SLACK, report_left};
use crate::clock::ClockOffset;
use crate::combine::{IntervalJoiner, TrialContext};

pub(super) mod failure;
mod figures;
mod server;

use self::failure::{build_program_error, describe_failure};

/// Bytes kept of the output of a server, and of what prepares or cleans up.
const KEPT_BESIDE: usize = 64 << 10;
/// Time of the controller, the line and the process that starts a program.
const LAUNCH_AHEAD: Nanos = Nanos::from_ms(20);
/// Name of the controller's host in messages.
const HERE: &str = "controller";

/// A host that runs the benchmark.
#[derive(Clone, Debug)]
struct BenchmarkHost {
    spec: HostSpec,
    /// Its index among the agents; `None` for the controller.
    agent: Option<usize>,
    address: IpAddr,
    cpus: Option<CpuSet>,
}

/// Parts of a trial.
struct CommandTrial<'a> {
    trial: &'a Trial,
    workload: &'a Workload,
    program: &'a Program,
    method: &'a Method,
    /// Address of the system under test.
    sut: IpAddr,
    stop: &'a Stop,
}

/// Runs the benchmark once under the setting in force.
pub(super) fn run_command_trial(
    pool: &mut AgentPool,
    trial: &Trial,
    method: &Method,
    stop: &Stop,
    progress: &mut dyn TrialProgress,
) -> Result<Observation, Error> {
    let workload = &trial.load;
    let Some(program) = workload.program.as_deref() else {
        let problem = "it names no command".to_owned();
        return Err(Error::Traffic { workload: workload.name.clone(), problem });
    };
    let sut = pool.sut_agent().spec.address;
    let run = CommandTrial { trial, workload, program, method, sut, stop };
    let places = list_benchmark_hosts(pool, program);
    run.start_server(pool, &places, progress)?;
    for place in &places {
        pool.programs.ensure_host_started(&place.spec, stop)?;
    }
    let measured = run
        .run_auxiliary_command(pool, &places, program.prepare.as_ref(), "prepare")
        .and_then(|()| run.measure_benchmark(pool, &places, progress));
    let cleaned = match &measured {
        Err(error) if !error.is_transient() => Ok(()), // all programs end now
        _ => run.run_auxiliary_command(pool, &places, program.cleanup.as_ref(), "cleanup"),
    };
    pool.programs.end_servers(|server| server.lifetime != Lifetime::Trial)?;
    let observation = measured?;
    cleaned?;
    Ok(observation)
}

/// The hosts that run the benchmark.
fn list_benchmark_hosts(pool: &mut AgentPool, program: &Program) -> Vec<BenchmarkHost> {
    if program.on == RunsOn::Controller {
        let spec = HostSpec::for_this_host(HERE, Role::Generator);
        let address = pool.agents_of_role(Role::Generator).next().map(|agent| agent.spec.address);
        let address = address.unwrap_or(spec.address);
        return vec![BenchmarkHost { spec, agent: None, address, cpus: None }];
    }
    let generators = pool.agents().iter().enumerate();
    let generators = generators.filter(|(_, agent)| agent.spec.role == Role::Generator);
    let places = generators.map(|(idx, agent)| BenchmarkHost {
        spec: agent.spec.clone(),
        agent: Some(idx),
        address: agent.spec.address,
        cpus: Some(agent.opened().cpus.clone()),
    });
    places.take(if program.on == RunsOn::Generator { 1 } else { usize::MAX }).collect()
}

impl CommandTrial<'_> {
    /// The time from the benchmark's start to the window, and the most length of the window.
    fn plan_window(&self) -> (Nanos, Nanos) {
        let by_time = self.program.runs_by_time();
        let longest = if by_time { self.method.duration } else { self.program.timeout };
        (self.method.before_window_of(self.program), longest)
    }

    /// A program with its placeholders replaced, on CPUs of its own or those of its host.
    fn build_program_spec(
        &self,
        command: &ProgramCommand,
        address: IpAddr,
        cpus: Option<&CpuSet>,
    ) -> Result<ProgramSpec, Error> {
        let cpus = command.cpus.as_ref().or(cpus);
        let value = |placeholder| -> Result<String, String> {
            Ok(match placeholder {
                Placeholder::Sut => self.sut.to_string(),
                Placeholder::Generator => address.to_string(),
                Placeholder::DurationS => self.method.whole_seconds().to_string(),
                Placeholder::Count => self.workload.count.ok_or("there is no `count`")?.to_string(),
                Placeholder::Cpus => match cpus {
                    Some(cpus) => cpus.to_string(),
                    None => latput_linux::process::online_cpus()
                        .map_err(|error| error.to_string())?
                        .to_string(),
                },
                Placeholder::Port => self.program.port().ok_or("there is no port")?.to_string(),
            })
        };
        let filled = |text: &String| {
            substitute(text, value)
                .map_err(|problem| Error::Traffic { workload: self.workload.name.clone(), problem })
        };
        Ok(ProgramSpec {
            words: command.words.iter().map(filled).collect::<Result<_, _>>()?,
            environment: command
                .environment
                .iter()
                .map(|(name, text)| Ok((name.clone(), filled(text)?)))
                .collect::<Result<_, Error>>()?,
            cpus: cpus.cloned(),
            ..ProgramSpec::from(command)
        })
    }

    /// Runs what prepares or cleans up, on every place.
    fn run_auxiliary_command(
        &self,
        pool: &mut AgentPool,
        places: &[BenchmarkHost],
        command: Option<&ProgramCommand>,
        what: &str,
    ) -> Result<(), Error> {
        let Some(command) = command else { return Ok(()) };
        for place in places {
            let start = StartRequest {
                id: 0,
                at: None,
                program: self.build_program_spec(command, place.address, place.cpus.as_ref())?,
                timeout: Some(self.program.timeout),
                files: Vec::new(),
                keep: KEPT_BESIDE,
                free_port: None,
                tell_on: None,
            };
            let host = pool.programs.ensure_host_started(&place.spec, self.stop)?;
            let id = host.launch_program(start)?;
            let within = self.program.timeout.as_duration() + TRIAL_SLACK;
            let ended = host.await_end(id, within, self.stop)?;
            if ended.ending != (ExitCause::Exited { status: 0 }) {
                let problem = describe_failure(command, &ended);
                return Err(build_program_error(
                    &place.spec.name,
                    format!("{what}: {problem}"),
                    &ended,
                ));
            }
        }
        Ok(())
    }

    /// Runs the benchmark while the agents count.
    fn measure_benchmark(
        &self,
        pool: &mut AgentPool,
        places: &[BenchmarkHost],
        progress: &mut dyn TrialProgress,
    ) -> Result<Observation, Error> {
        self.drop_traffic(pool)?;
        let clocks = pool.measure_clock_offsets(self.stop)?;
        let slowest = clocks.iter().map(|clock| clock.round_trip).max().unwrap_or_default();
        let at = latput_load::now() + START_AHEAD + LAUNCH_AHEAD + slowest;
        let (warmup, window) = self.plan_window();
        let (timeout, early_end) = if self.program.runs_by_time() {
            let longest = Nanos::from_s(self.method.whole_seconds());
            (longest.saturating_add(self.program.timeout), EarlyEnd::AtBreak)
        } else {
            (self.program.timeout, EarlyEnd::AtCount)
        };
        let running = self.launch_benchmark(pool, places, (at, &clocks), timeout)?;
        let interval = pool.interval;
        for (agent, clock) in pool.agents().iter_mut().zip(&clocks) {
            agent.queue_request(&Request::Go {
                at: clock.remote_time(at),
                warmup,
                duration: window,
                interval,
                turns: None,
                early_end,
            })?;
        }
        let names = pool.agents().iter().map(|agent| agent.spec.name.clone()).collect();
        let mut joiner = IntervalJoiner::new(names, &self.workload.traffic);
        let mut heard = |host, line| {
            for interval in joiner.add_interval(host, line) {
                progress.report_interval(&interval);
            }
        };
        let within = (warmup + window).as_duration() + TRIAL_SLACK;
        let mut ends = |programs: &mut ProgramHosts| -> Result<bool, Error> {
            let mut all = true;
            for (host, id) in &running {
                all &= programs.host(host).has_ended(*id)?;
            }
            Ok(all)
        };
        let finished =
            pool.await_finished(within, self.stop, &mut heard, Some((&mut ends, early_end)));
        if finished.is_err() {
            // Another attempt must not run beside this one.
            for (host, id) in &running {
                pool.programs.host(host).end_and_forget(*id)?;
            }
        }
        let mut finished = finished?;
        report_left(&mut finished, progress);
        let ended = self.await_benchmark_ends(
            &mut pool.programs,
            &running,
            timeout.as_duration(),
            progress,
        )?;
        let figures = figures::read(self.program, &ended)?;
        let boot_ids: Vec<String> =
            pool.opened_hosts().map(|opened| opened.boot_id.clone()).collect();
        let joined = TrialContext {
            workload: self.workload,
            duration: finished.iter().map(measured_window).min().unwrap_or(window),
            slices: None,
            parts: Vec::new(),
            clocks,
            boot_ids,
        };
        let observations = joined.join_observations(finished)?;
        let mut observation = observations.into_iter().next().expect("there are no slices");
        figures::store_figures(figures, &ended, &mut observation);
        Ok(observation)
    }

    /// Starts the benchmark on every place at `at` of this host's clock.
    fn launch_benchmark(
        &self,
        pool: &mut AgentPool,
        places: &[BenchmarkHost],
        (at, clocks): (Nanos, &[ClockOffset]),
        timeout: Nanos,
    ) -> Result<Vec<(String, u32)>, Error> {
        let mut running = Vec::new();
        for place in places {
            let start = StartRequest {
                id: 0,
                at: Some(place.agent.map_or(at, |idx| clocks[idx].remote_time(at))),
                program: self.build_program_spec(
                    &self.program.command,
                    place.address,
                    place.cpus.as_ref(),
                )?,
                timeout: Some(timeout),
                files: self.program.figures.files().into_iter().map(str::to_owned).collect(),
                keep: MOST_KEPT,
                free_port: None,
                tell_on: None,
            };
            let id =
                pool.programs.ensure_host_started(&place.spec, self.stop)?.launch_program(start)?;
            running.push((place.spec.name.clone(), id));
        }
        Ok(running)
    }

    /// Drops what an earlier trial has prepared, and opens the probe.
    fn drop_traffic(&self, pool: &mut AgentPool) -> Result<(), Error> {
        for agent in pool.agents() {
            match agent.send_request(&Request::Abort, self.stop)? {
                Answer::Aborted => {}
                other => return Err(agent.unexpected_answer(other)),
            }
        }
        let Some(probe) = self.workload.probe else { return Ok(()) };
        let (_, prober) = super::find_senders(pool.agents(), &self.workload.traffic);
        let agent = &mut pool.agents()[prober];
        match agent.send_request(&Request::Probe { probe, peer: self.sut }, self.stop)? {
            Answer::Probing => Ok(()),
            other => Err(agent.unexpected_answer(other)),
        }
    }

    /// The ends of the benchmark, each of which is good.
    fn await_benchmark_ends(
        &self,
        programs: &mut ProgramHosts,
        running: &[(String, u32)],
        within: Duration,
        progress: &mut dyn TrialProgress,
    ) -> Result<Vec<(String, ProgramOutcome)>, Error> {
        let mut ends = Vec::new();
        for (host, id) in running {
            let ended = programs.host(host).await_end(*id, within + TRIAL_SLACK, self.stop)?;
            report_containment(programs, host, progress);
            ends.push((host.clone(), ended));
        }
        for (host, ended) in &ends {
            if ended.ending != (ExitCause::Exited { status: 0 }) {
                let problem = describe_failure(&self.program.command, ended);
                return Err(build_program_error(host, problem, ended));
            }
        }
        Ok(ends)
    }
}

/// Length of the window that a host has counted.
fn measured_window(part: &HostTrialResult) -> Nanos {
    part.slices.first().map_or(Nanos::ZERO, |slice| slice.host.window)
}

/// Says once that programs may leave something running.
fn report_containment(programs: &mut ProgramHosts, host: &str, progress: &mut dyn TrialProgress) {
    if !programs.host(host).is_uncontained() || programs.is_told {
        return;
    }
    programs.is_told = true;
    progress.report_remark(&format!(
        "latput: {host}: cannot make a PID namespace. If latput is killed by SIGKILL, programs that left their \
         session keep running (run as root, or allow user namespaces)"
    ));
}
