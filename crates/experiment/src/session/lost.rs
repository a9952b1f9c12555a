//! Trials whose traffic broke: which errors repeat, what is told of them, and when they end the run.

use latput_runner::Error;
use latput_runner::trials::Trial;

use super::RunSession;

/// Most attempts at a trial whose traffic breaks.
pub(super) const ATTEMPTS: u32 = 3;

/// This many lost trials in a row end a run: the path is broken, not the trial.
const MAX_LOST_IN_A_ROW: u32 = 3;

/// The lost trials of a run.
#[derive(Debug, Default)]
pub(super) struct LostTrials {
    /// The attempts at one trial that are not told yet: an error that repeats is told once.
    held: Option<HeldLoss>,
    /// The last error and how often in a row it came, over all trials.
    repeated: Option<(String, u32)>,
    /// Number of missing trials, and the error of the last one.
    missing: Option<(usize, String)>,
    /// Number of lost trials in a row.
    in_a_row: u32,
}

/// Attempts at a trial that failed with the same words.
#[derive(Debug)]
struct HeldLoss {
    what: String,
    words: String,
    attempts: u32,
    /// Whether an earlier trial was lost by the same.
    is_known: bool,
}

impl HeldLoss {
    /// `tcp_rr, today in block 0 was lost and tried again: ...`.
    fn describe_loss(&self, then: &str) -> String {
        let Self { what, words, attempts, is_known } = self;
        let attempts = if *attempts > 1 { format!(" {attempts} times") } else { String::new() };
        if *is_known {
            format!("{what} was lost{attempts} and {then}: the same error again")
        } else {
            format!("{what} was lost{attempts} and {then}: {words}")
        }
    }
}

/// The words of an error without its numbers: a port or a time differs from try to try.
fn strip_numbers(words: &str) -> String {
    words.split(|c: char| c.is_ascii_digit()).filter(|part| !part.is_empty()).collect()
}

impl LostTrials {
    /// Counts the attempt. Returns what is to be told of the ones before, if those had another cause.
    fn add(&mut self, what: String, words: String) -> Option<String> {
        let pattern_now = strip_numbers(&words);
        let times = match &mut self.repeated {
            Some((last, times)) if *last == pattern_now => {
                *times += 1;
                *times
            }
            repeated => {
                *repeated = Some((pattern_now.clone(), 1));
                1
            }
        };
        match &mut self.held {
            Some(held) if held.what == what && strip_numbers(&held.words) == pattern_now => {
                held.attempts += 1;
                None
            }
            held => {
                let now = HeldLoss { what, words, attempts: 1, is_known: times > 1 };
                held.replace(now).map(|before| before.describe_loss("tried again"))
            }
        }
    }

    /// How often in a row the last error came.
    fn repeat_count(&self) -> u32 {
        self.repeated.as_ref().map_or(0, |(_, times)| *times)
    }

    /// The error of a run that ended with all else done, if trials are missing.
    pub(super) fn into_error(self) -> Option<Error> {
        self.missing.map(|(trials, why)| Error::TrialsLost { trials, why })
    }
}

impl RunSession<'_> {
    /// Notes the attempt of this number, counted from 1, whose traffic broke. Ends the run where the same would come again: after [`MAX_LOST_IN_A_ROW`] lost
    /// trials in a row, and after one if nothing like it has ever worked.
    pub(super) fn note_lost_attempt(
        &mut self,
        trial: &Trial,
        error: Error,
        attempt: u32,
    ) -> Result<(), Error> {
        let what = format!("{}, {} in block {}", trial.load.name, trial.set.label, trial.block);
        if let Some(before) = self.lost.add(what, error.to_string()) {
            self.store_note(before)?;
        }
        if attempt < ATTEMPTS {
            return Ok(());
        }
        self.lost.in_a_row += 1;
        let times = self.lost.repeat_count();
        let rows = &self.results.rows;
        let has_worked = match error {
            Error::Program { .. } => rows.iter().any(|row| row.workload == trial.workload),
            _ => !rows.is_empty(),
        };
        let is_hopeless = !has_worked && times >= ATTEMPTS;
        if is_hopeless || self.lost.in_a_row == MAX_LOST_IN_A_ROW {
            self.lost.held = None; // the run's error tells it
            let is_repeated = times > 1;
            return Err(if is_repeated {
                Error::Repeated { times, cause: Box::new(error) }
            } else {
                error
            });
        }
        self.tell_lost("given up")?;
        let missing = self.lost.missing.as_ref().map_or(0, |(trials, _)| *trials) + 1;
        self.lost.missing = Some((missing, error.to_string()));
        Ok(())
    }

    /// A trial has ended: what is held of its lost attempts is told, and no error repeats.
    pub(super) fn end_losses(&mut self) -> Result<(), Error> {
        self.tell_lost("tried again")?;
        (self.lost.in_a_row, self.lost.repeated) = (0, None);
        Ok(())
    }

    /// Tells the attempts that are not told yet.
    pub(super) fn tell_lost(&mut self, then: &str) -> Result<(), Error> {
        match self.lost.held.take() {
            Some(held) => self.store_note(held.describe_loss(then)),
            None => Ok(()),
        }
    }

    fn store_note(&mut self, text: String) -> Result<(), Error> {
        self.progress.report_remark(&text);
        self.results.notes.push(text);
        Ok(self.db.update_header(self.id, &self.results)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add_losses(tries: &[(&str, &str)]) -> (Vec<String>, LostTrials) {
        let mut lost = LostTrials::default();
        let told =
            tries.iter().filter_map(|(what, words)| lost.add((*what).into(), (*words).into()));
        (told.collect(), lost)
    }

    #[test]
    fn same_words_are_held_and_counted() {
        let (told, lost) = add_losses(&[("a", "port 41: refused"), ("a", "port 42: refused")]);
        assert!(told.is_empty());
        assert_eq!(lost.repeat_count(), 2);
        let held = lost.held.unwrap();
        assert_eq!(
            held.describe_loss("given up"),
            "a was lost 2 times and given up: port 41: refused"
        );
    }

    #[test]
    fn another_error_is_told_at_once() {
        let (told, lost) = add_losses(&[("a", "refused"), ("a", "reset")]);
        assert_eq!(told, ["a was lost and tried again: refused"]);
        assert_eq!(lost.repeat_count(), 1);
    }

    #[test]
    fn next_trial_does_not_repeat_words() {
        let (_, lost) = add_losses(&[("a", "refused"), ("b", "refused"), ("b", "refused")]);
        assert_eq!(lost.repeat_count(), 3);
        let held = lost.held.unwrap();
        assert_eq!(
            held.describe_loss("given up"),
            "b was lost 2 times and given up: the same error again"
        );
    }
}
