//! `latput watch`: lines in a pipe, and a screen on a pseudo-terminal, which is put back on every way out.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use latput_testkit::{isolate, needs};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use serde_json::Value;

use crate::json::check_schema;
use crate::two_hosts::run_ip;
use crate::{Place, wait_until};

const SCHEMA: &str = include_str!("../../../../docs/schema/watch.json");
const WATCH: [&str; 4] = ["watch", "lo", "--every", "500ms"];
const LEAVE: &[u8] = b"\x1b[?1049l";

/// A watch on a pseudo-terminal of its own.
struct WatchedTerminal {
    child: Child,
    controller: File,
    terminal: File,
    written: Arc<Mutex<Vec<u8>>>,
    /// Has the reading thread close its end of the terminal.
    is_closing: Arc<AtomicBool>,
    size: (u16, u16),
}

impl WatchedTerminal {
    fn start(place: &Place, size: (u16, u16), environment: &[(&str, &str)]) -> Self {
        let controller =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap();
        let terminal = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let (columns, rows) = size;
        let window = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, window).unwrap();
        let end = || Stdio::from(terminal.try_clone().unwrap());
        let mut command = place.latput_command(&WATCH);
        command.env_remove("COLUMNS").env_remove("NO_COLOR").env("TERM", "xterm-256color");
        command.envs(environment.iter().copied()).stdin(end()).stdout(end()).stderr(end());
        let child = command.spawn().unwrap();
        let controller = File::from(controller);
        let written = Arc::new(Mutex::new(Vec::new()));
        let is_closing = Arc::new(AtomicBool::new(false));
        let (mut reader, kept) = (controller.try_clone().unwrap(), Arc::clone(&written));
        let closing = Arc::clone(&is_closing);
        thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut part)
                && !closing.load(Ordering::Relaxed)
            {
                kept.lock().unwrap().extend_from_slice(&part[..count]);
            }
        });
        Self { child, controller, terminal, written, is_closing, size }
    }

    /// The screen now. What was shown before the command stands on the other one.
    fn screen(&self) -> String {
        let (columns, rows) = self.size;
        let size = |count| NonZero::new(count).unwrap();
        let mut parser = vt100::Parser::new(size(rows), size(columns), 0);
        parser.process(&self.written.lock().unwrap());
        parser.screen().rows(0, columns).collect::<Vec<String>>().join("\n")
    }

    fn wait_for(&self, text: &str) {
        wait_until(&format!("`{text}` on the screen"), || self.screen().contains(text));
    }

    fn press(&mut self, keys: &str) {
        self.controller.write_all(keys.as_bytes()).unwrap();
    }

    fn send(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Whether keys are shown and come by the line, as before the command.
    fn is_as_before(&self) -> bool {
        let modes = tcgetattr(&self.terminal).unwrap().local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    fn has_left(&self) -> bool {
        self.written.lock().unwrap().windows(LEAVE.len()).any(|part| part == LEAVE)
    }

    /// Waits for the end with this code, and looks whether the terminal is as it was.
    #[track_caller]
    fn end_with(mut self, code: i32) {
        assert_eq!(self.child.wait().unwrap().code(), Some(code), "{}", self.screen());
        assert!(self.is_as_before());
        wait_until("the first screen", || self.has_left());
    }
}

#[test]
fn screen_shows_figures_and_help() {
    let place = Place::new();
    for size in [(60, 20), (80, 24), (100, 30), (160, 50)] {
        let mut watched = WatchedTerminal::start(&place, size, &[]);
        for part in ["latput watch lo every 500ms", "in    ", "CPU   ", "findings", "q quit"] {
            watched.wait_for(part);
        }
        assert!(!watched.is_as_before());
        watched.press("?");
        watched.wait_for("pin the selected finding");
        watched.press("\u{1b}p");
        watched.wait_for("paused");
        watched.press("q");
        watched.end_with(0);
    }
}

#[test]
fn small_window_is_told_what_it_lacks() {
    let place = Place::new();
    let mut watched = WatchedTerminal::start(&place, (50, 10), &[]);
    watched.wait_for("needs 60 columns and 20 rows");
    let window = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&watched.terminal, window).unwrap();
    watched.size = (80, 24);
    watched.wait_for("findings");
    watched.press("q");
    watched.end_with(0);
}

#[test]
fn recorded_window_can_be_diagnosed() {
    let place = Place::new();
    let mut watched = WatchedTerminal::start(&place, (80, 24), &[]);
    watched.wait_for("findings");
    wait_until("findings", || !watched.screen().contains("none yet"));
    watched.press("s");
    watched.wait_for("recorded: latput diagnose lo-");
    watched.press("q");
    watched.end_with(0);
    let files = std::fs::read_dir(place.path("")).unwrap();
    let mut names = files.filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    let recorded = names.find(|name| name.starts_with("lo-")).unwrap();
    place.run(&["diagnose", &recorded]).expect(0, &["lo, "]);
}

#[test]
fn signals_put_the_terminal_back() {
    let place = Place::new();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
        let watched = WatchedTerminal::start(&place, (80, 24), &[]);
        watched.wait_for("findings");
        watched.send(signal);
        watched.end_with(0);
    }
}

#[test]
fn stopped_watch_gives_the_terminal_back() {
    let place = Place::new();
    let mut watched = WatchedTerminal::start(&place, (80, 24), &[]);
    watched.wait_for("findings");
    watched.send(Signal::TSTP);
    let stat = format!("/proc/{}/stat", watched.child.id());
    let is_stopped = || std::fs::read_to_string(&stat).unwrap().contains(") T ");
    wait_until("the stop", is_stopped);
    assert!(watched.is_as_before());
    wait_until("the first screen", || watched.has_left());
    watched.written.lock().unwrap().clear();
    watched.send(Signal::CONT);
    watched.wait_for("findings");
    assert!(!watched.is_as_before());
    watched.press("q");
    watched.end_with(0);
}

#[test]
fn closed_terminal_ends_the_watch() {
    let place = Place::new();
    let watched = WatchedTerminal::start(&place, (80, 24), &[]);
    watched.wait_for("findings");
    watched.is_closing.store(true, Ordering::Relaxed);
    let WatchedTerminal { mut child, controller, terminal, .. } = watched;
    // The reading thread has the last end of the terminal, until the next screen wakes it.
    drop((controller, terminal));
    wait_until("the end", || child.try_wait().unwrap().is_some());
}

#[test]
fn screen_without_colour_has_no_bold_text() {
    let place = Place::new();
    let mut watched = WatchedTerminal::start(&place, (80, 24), &[("NO_COLOR", "1")]);
    watched.wait_for("findings");
    watched.press("q");
    let written = Arc::clone(&watched.written);
    watched.end_with(0);
    let written = written.lock().unwrap();
    assert!(!written.windows(4).any(|part| part == b"\x1b[1m"));
}

#[test]
fn pipe_gets_a_line_for_each_window() {
    let place = Place::new();
    let ran = place.run(&[&WATCH[..], &["--for", "2s"]].concat());
    ran.expect(0, &["in ", " | out ", "drops: "]);
    assert!((2..=4).contains(&ran.out.lines().count()), "{ran:#?}");
    assert!(!ran.out.contains('\u{1b}'));
    let dumb = WatchedTerminal::start(&place, (80, 24), &[("TERM", "dumb")]);
    dumb.wait_for(" | out ");
    assert!(dumb.is_as_before() && !dumb.has_left());
    dumb.send(Signal::TERM);
    let WatchedTerminal { mut child, .. } = dumb;
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn each_json_line_follows_the_schema() {
    let ran = Place::new().run(&[&WATCH[..], &["--for", "2s", "--json"]].concat());
    ran.expect(0, &[]);
    for line in ran.out.lines() {
        check_schema(SCHEMA, line);
    }
    let last: Value = serde_json::from_str(ran.out.lines().next_back().unwrap()).unwrap();
    assert_eq!(last["schema"], 1);
    assert_eq!(last["interface"], "lo");
    assert!(last["rx_pps"].is_number(), "{last}");
}

#[test]
fn bad_words_are_refused() {
    let place = Place::new();
    place.run(&["watch", "no-such-nic0"]).expect(2, &["no-such-nic0"]);
    place.run(&["watch", "lo", "--every", "1ms"]).expect(2, &["`--every` is at least 500ms"]);
}

#[needs("root", "ip")]
#[test]
fn missing_interface_ends_lines() {
    isolate();
    run_ip(&["link", "add", "zzw0", "type", "veth", "peer", "name", "zzw1"]);
    let place = Place::new();
    let mut child = place.start(&["watch", "zzw0", "--every", "500ms"]);
    let told = |file: &str| std::fs::read_to_string(place.path(file)).unwrap();
    wait_until("the first line", || told("stdout").contains(" | out "));
    run_ip(&["link", "delete", "zzw0"]);
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(told("stderr").contains("zzw0 went away while it was watched"), "{}", told("stderr"));
}
