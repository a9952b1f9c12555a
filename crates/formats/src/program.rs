//! Figures in the output of benchmark programs.

use latput_trial::figures::{Figures, FiguresError, Output, ProgramFigures};

/// Reads the figures.
///
/// # Errors
///
/// One is not there, is no number, or is there with several values.
pub fn read(figures: &Figures, output: &Output) -> Result<ProgramFigures, FiguresError> {
    Ok(ProgramFigures { metrics: figures.read_own(output)?, ..ProgramFigures::default() })
}
