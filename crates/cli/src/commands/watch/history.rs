//! The looks of a watched interface, and what their differences say.

use latput_diagnose::{Diagnosis, Evidence, Look, PathFigures, Snapshot, SnapshotError, diagnose};

use super::looks::TakenLook;

/// Figures of the time since the look before, and the findings where a full look ended it.
#[derive(Debug)]
pub(super) struct WindowView {
    /// The end of the window, since the start of the watch.
    pub(super) since_start_s: f64,
    /// The figures.
    pub(super) figures: PathFigures,
    /// The findings between the last two full looks, where the second has just come.
    pub(super) diagnosis: Option<Diagnosis>,
}

/// The last looks.
#[derive(Debug)]
pub(super) struct LookHistory {
    interface: String,
    newest: Option<TakenLook>,
    full: Option<TakenLook>,
    judged: Option<JudgedWindow>,
}

/// The time between two full looks.
#[derive(Debug)]
struct JudgedWindow {
    snapshot: Snapshot,
    figures: PathFigures,
}

impl LookHistory {
    pub(super) fn new(interface: &str) -> Self {
        Self { interface: interface.to_owned(), newest: None, full: None, judged: None }
    }

    /// Adds a look; of the first there is no window yet.
    pub(super) fn add(
        &mut self,
        mut taken: TakenLook,
    ) -> Result<Option<WindowView>, SnapshotError> {
        if let Some(full) = self.full.as_ref().filter(|_| !taken.is_full) {
            copy_device(&self.interface, &full.look, &mut taken.look);
        }
        let diagnosis = if taken.is_full { self.judge(&taken)? } else { None };
        let Some(before) = self.newest.replace(taken.clone()) else { return Ok(None) };
        let snapshot = self.compare(&before, &taken)?;
        let mut figures = PathFigures::from_evidence(&Evidence::from_snapshot(&snapshot));
        if let Some(judged) = &self.judged {
            figures = figures.completed_by(&judged.figures);
        }
        Ok(Some(WindowView { since_start_s: taken.seconds, figures, diagnosis }))
    }

    /// Forgets the looks, so that no window spans what comes between. What can be recorded stays.
    pub(super) fn forget(&mut self) {
        self.newest = None;
        self.full = None;
    }

    /// The last two full looks.
    pub(super) fn judged_snapshot(&self) -> Option<&Snapshot> {
        self.judged.as_ref().map(|judged| &judged.snapshot)
    }

    /// Judges the time since the full look before.
    fn judge(&mut self, taken: &TakenLook) -> Result<Option<Diagnosis>, SnapshotError> {
        let Some(before) = self.full.replace(taken.clone()) else { return Ok(None) };
        let snapshot = self.compare(&before, taken)?;
        let diagnosis = diagnose(&snapshot);
        let figures = PathFigures::from_evidence(&Evidence::from_snapshot(&snapshot));
        self.judged = Some(JudgedWindow { snapshot, figures });
        Ok(Some(diagnosis))
    }

    fn compare(&self, before: &TakenLook, after: &TakenLook) -> Result<Snapshot, SnapshotError> {
        let looks = [before, after].map(|taken| taken.look.clone());
        let [first, second] = looks;
        let mut made = Snapshot::from_looks(Some(&self.interface), first, second)?;
        made.window_s = Some(((after.seconds - before.seconds) * 1000.0).round() / 1000.0);
        Ok(made)
    }
}

/// Adds the texts of the device, which tell the interface's interrupts from others, to a look at counters alone.
fn copy_device(interface: &str, from: &Look, to: &mut Look) {
    let start = format!("sys/class/net/{interface}/device/");
    for (rest, text) in from.texts_below(&start) {
        to.insert(&format!("{start}{rest}"), text.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKETS: &str = "sys/class/net/eth0/statistics/rx_packets";

    fn taken(seconds: u32, is_full: bool, packets: u32) -> TakenLook {
        let mut look = Look::default();
        look.insert(PACKETS, format!("{packets}\n"));
        if is_full {
            look.insert("sys/class/net/eth0/device/msi_irqs/9", String::new());
        }
        let lines = format!("  CPU0\n 9: {packets} PCI virtio1-input.0\n");
        look.insert("proc/interrupts", lines);
        TakenLook { seconds: f64::from(seconds), is_full, is_there: true, look }
    }

    #[test]
    fn windows_follow_each_other() {
        let mut history = LookHistory::new("eth0");
        assert!(history.add(taken(0, true, 0)).unwrap().is_none());
        let light = history.add(taken(2, false, 200)).unwrap().unwrap();
        assert_eq!((light.figures.rx_pps, light.diagnosis.is_some()), (Some(100.0), false));
        assert_eq!(
            light.figures.interrupts_per_s,
            Some(100.0),
            "of a device known from the full look"
        );
        let full = history.add(taken(4, true, 1200)).unwrap().unwrap();
        assert_eq!(full.figures.rx_pps, Some(500.0));
        assert_eq!(full.diagnosis.unwrap().window_s, Some(4.0));
        assert_eq!(history.judged_snapshot().unwrap().window_s, Some(4.0));
    }

    #[test]
    fn forgotten_looks_make_no_window() {
        let mut history = LookHistory::new("eth0");
        history.add(taken(0, true, 0)).unwrap();
        history.add(taken(1, true, 100)).unwrap();
        history.forget();
        assert!(history.add(taken(60, true, 50)).unwrap().is_none());
        assert!(history.judged_snapshot().is_some());
    }
}
