//! The state of a watched interface that is shown, and how keys change it.

use latput_diagnose::diagnosis::RankedFinding;
use latput_diagnose::{PathFigures, StageRecord, StageSummary};

use super::history::WindowView;
use super::keys::Key;

/// A finding on the screen.
#[derive(Clone, Debug)]
pub(super) struct WatchedFinding {
    pub(super) found: RankedFinding,
    /// Stays when it is found no more.
    pub(super) is_pinned: bool,
    /// Whether the last judged window has it.
    pub(super) is_current: bool,
}

impl WatchedFinding {
    fn id(&self) -> &'static str {
        self.found.finding.id
    }
}

/// Effect of a key beyond what is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyEffect {
    /// None.
    Shown,
    /// No looks are taken any more.
    Paused,
    /// Looks are taken again.
    Resumed,
    /// The last judged window is to be written to a file.
    Record,
    /// The watch ends.
    Quit,
}

/// Everything that is shown.
#[derive(Debug)]
pub(super) struct WatchState {
    pub(super) interface: String,
    /// The time between two looks, in words.
    pub(super) every: String,
    /// Whether the interface was missing in the last look.
    pub(super) is_gone: bool,
    pub(super) is_paused: bool,
    pub(super) shows_help: bool,
    /// The end of the last window, since the start; `None` before the first.
    pub(super) since_start_s: Option<f64>,
    pub(super) figures: PathFigures,
    pub(super) findings: Vec<WatchedFinding>,
    /// Sources that the last diagnosis lacks.
    pub(super) unseen: Vec<String>,
    /// Waits by stage in the last spans that were traced; none where nothing is.
    pub(super) stages: Vec<StageSummary>,
    /// Stages that are not seen, with the reasons.
    pub(super) unseen_stages: Vec<String>,
    /// Outcome of the last key.
    pub(super) message: Option<String>,
    /// The finding whose detail is shown; else that of the first.
    selected: Option<&'static str>,
}

impl WatchState {
    pub(super) fn new(interface: &str, every: &str) -> Self {
        Self {
            interface: interface.to_owned(),
            every: every.to_owned(),
            is_gone: false,
            is_paused: false,
            shows_help: false,
            since_start_s: None,
            figures: PathFigures::default(),
            findings: Vec::new(),
            unseen: Vec::new(),
            stages: Vec::new(),
            unseen_stages: Vec::new(),
            message: None,
            selected: None,
        }
    }

    /// Shows a window. Findings stay those of the last judged one.
    pub(super) fn show_window(&mut self, window: WindowView) {
        self.is_gone = false;
        self.since_start_s = Some(window.since_start_s);
        self.figures = window.figures;
        let Some(diagnosis) = window.diagnosis else { return };
        self.unseen = diagnosis.unseen;
        let mut findings: Vec<WatchedFinding> = diagnosis
            .findings
            .into_iter()
            .map(|found| WatchedFinding { found, is_pinned: false, is_current: true })
            .collect();
        for mut pinned in self.findings.drain(..).filter(|known| known.is_pinned) {
            if let Some(found) = findings.iter_mut().find(|found| found.id() == pinned.id()) {
                found.is_pinned = true;
            } else {
                pinned.is_current = false;
                findings.push(pinned);
            }
        }
        self.findings = findings;
    }

    /// Shows the waits since the look before. A window without a traced span leaves those of the last one.
    pub(super) fn show_stages(&mut self, record: &StageRecord) {
        if record.traced_s > 0.0 {
            self.stages = record.summarise();
        }
        self.unseen_stages.clone_from(&record.unseen);
    }

    /// Everything that is not seen.
    pub(super) fn list_unseen(&self) -> Vec<String> {
        self.unseen.iter().chain(&self.unseen_stages).cloned().collect()
    }

    /// Shows that the interface is missing. Pinned findings stay.
    pub(super) fn show_gone(&mut self) {
        self.is_gone = true;
        self.figures = PathFigures::default();
        self.stages.clear();
        self.findings.retain(|known| known.is_pinned);
        for pinned in &mut self.findings {
            pinned.is_current = false;
        }
    }

    /// The place of the finding whose detail is shown.
    pub(super) fn selected_place(&self) -> usize {
        let is_selected = |known: &WatchedFinding| Some(known.id()) == self.selected;
        self.findings.iter().position(is_selected).unwrap_or(0)
    }

    pub(super) fn apply_key(&mut self, key: Key) -> KeyEffect {
        self.message = None;
        match key {
            Key::Char('q') => return KeyEffect::Quit,
            Key::Char('?') => self.shows_help = !self.shows_help,
            Key::Escape => self.shows_help = false,
            Key::Char('p' | ' ') => {
                self.is_paused = !self.is_paused;
                return if self.is_paused { KeyEffect::Paused } else { KeyEffect::Resumed };
            }
            Key::Char('s') => return KeyEffect::Record,
            Key::Char('f') | Key::Enter => {
                let place = self.selected_place();
                if let Some(known) = self.findings.get_mut(place) {
                    known.is_pinned = !known.is_pinned;
                    self.selected = Some(known.id());
                }
            }
            Key::Char('j') | Key::Down => self.select(self.selected_place() + 1),
            Key::Char('k') | Key::Up => self.select(self.selected_place().saturating_sub(1)),
            Key::Char(_) => {}
        }
        KeyEffect::Shown
    }

    fn select(&mut self, place: usize) {
        let place = place.min(self.findings.len().saturating_sub(1));
        self.selected = self.findings.get(place).map(WatchedFinding::id);
    }
}

/// States for the tests of what is shown.
#[cfg(test)]
pub(super) mod fixture {
    use latput_diagnose::stages::{BUCKETS, CpuWaits, find_bucket};
    use latput_diagnose::{
        Evidence, Look, PathFigures, Snapshot, Stage, StageHistogram, StageRecord, diagnose,
    };

    use super::{WatchState, WindowView};

    const SNMP: &str = "Udp: InDatagrams OutDatagrams RcvbufErrors SndbufErrors\nUdp: ";

    fn look(count: u64, cpus: u32) -> Look {
        let mut look = Look::default();
        let mut insert = |name: &str, text: String| look.insert(name, text);
        for (name, times) in [("rx_packets", 1), ("tx_packets", 2), ("rx_bytes", 1500)] {
            insert(
                &format!("sys/class/net/eth0/statistics/{name}"),
                format!("{}\n", count * times),
            );
        }
        insert("proc/net/snmp", format!("{SNMP}{count} {count} {} {}\n", count / 10, count / 20));
        let ticks = count / 100;
        let stat = |cpu| format!("cpu{cpu} {ticks} 0 {ticks} {} 0 0 {ticks} 0\n", ticks * 2);
        insert("proc/stat", (0..cpus).map(stat).collect());
        let column = |cpu| format!(" CPU{cpu}");
        let head = (0..cpus).map(column).collect::<Vec<_>>().concat();
        let counts = format!(" {}", count / 4).repeat(usize::try_from(cpus).unwrap());
        let line = |queue| format!(" {}: {counts} PCI-MSI eth0-TxRx-{queue}\n", 30 + queue);
        insert("proc/interrupts", format!("{head}\n{}", (0..cpus).map(line).collect::<String>()));
        let busy = "cubic rtt:0.25/0.1 bytes_received:";
        let row = format!("ESTAB 0 0 10.0.0.1:22 10.0.0.2:50000\n\t {busy}{count}\n");
        insert("ss_-tin", format!("State Recv-Q Send-Q Local Address:Port Peer\n{row}"));
        look
    }

    /// A window with losses in UDP's buffers, on a host of so many CPUs.
    pub(in super::super) fn lossy_window(cpus: u32) -> WindowView {
        let looks = [1000, 21_000].map(|count| look(count, cpus));
        let [before, after] = looks;
        let mut snapshot = Snapshot::from_looks(Some("eth0"), before, after).unwrap();
        snapshot.window_s = Some(1.0);
        let figures = PathFigures::from_evidence(&Evidence::from_snapshot(&snapshot));
        WindowView { since_start_s: 1.0, figures, diagnosis: Some(diagnose(&snapshot)) }
    }

    /// Waits of a traced span.
    fn traced_record() -> StageRecord {
        let mut counts = [0; BUCKETS];
        counts[find_bucket(12_500)] = 40;
        let waits = StageHistogram::from_counts(&counts, 500_000);
        let of_stage = |stage| CpuWaits { cpu: 0, stage, waits: waits.clone() };
        let waits = [Stage::Softirq, Stage::Wakeup].map(of_stage).to_vec();
        StageRecord { traced_s: 1.0, packets: 80, unseen: Vec::new(), waits }
    }

    /// A state that shows it.
    pub(in super::super) fn lossy_state(cpus: u32) -> WatchState {
        let mut state = WatchState::new("eth0", "1 s");
        state.show_window(lossy_window(cpus));
        state.show_stages(&traced_record());
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinned_finding_stays_when_found_no_more() {
        let mut state = fixture::lossy_state(2);
        let first = state.findings[0].id();
        assert!(state.findings.len() > 1, "{:?}", state.findings);
        state.apply_key(Key::Enter);
        let mut quiet = fixture::lossy_window(2);
        quiet.diagnosis.as_mut().unwrap().findings.clear();
        state.show_window(quiet);
        assert_eq!(state.findings.len(), 1);
        let kept = &state.findings[0];
        assert_eq!((kept.id(), kept.is_pinned, kept.is_current), (first, true, false));
        state.apply_key(Key::Char('f'));
        state.show_gone();
        assert!(state.findings.is_empty());
    }

    #[test]
    fn waits_stay_until_next_traced_span() {
        let mut state = fixture::lossy_state(2);
        let shown = state.stages.clone();
        assert_eq!(shown.len(), 2);
        state.show_stages(&StageRecord::new_unseen("no right".to_owned()));
        assert_eq!(state.stages, shown);
        assert_eq!(state.list_unseen().last().unwrap(), "no right");
        state.show_stages(&StageRecord { traced_s: 1.0, ..StageRecord::default() });
        assert!(state.stages.is_empty() && state.unseen_stages.is_empty());
    }

    #[test]
    fn selection_follows_its_finding() {
        let mut state = fixture::lossy_state(2);
        state.apply_key(Key::Down);
        let selected = state.findings[1].id();
        state.findings.swap(0, 1);
        assert_eq!(state.findings[state.selected_place()].id(), selected);
        for _ in 0..9 {
            state.apply_key(Key::Char('j'));
        }
        assert_eq!(state.selected_place(), state.findings.len() - 1);
    }

    #[test]
    fn keys_have_the_effects_of_the_help() {
        let mut state = fixture::lossy_state(1);
        assert_eq!(state.apply_key(Key::Char('p')), KeyEffect::Paused);
        assert_eq!(state.apply_key(Key::Char('p')), KeyEffect::Resumed);
        assert_eq!(state.apply_key(Key::Char('s')), KeyEffect::Record);
        state.apply_key(Key::Char('?'));
        assert!(state.shows_help);
        state.apply_key(Key::Escape);
        assert!(!state.shows_help);
        assert_eq!(state.apply_key(Key::Char('q')), KeyEffect::Quit);
    }
}
