//! Statistics for measurements that have tails, outliers and few repetitions.
//!
//! Pure: no I/O, no clock, no threads, no random draws.

pub mod agreement;
pub mod contrast;
pub mod estimate;
pub mod histogram;
pub mod linear;
pub mod mean;
pub mod nnls;
pub mod normal;
pub mod order;
pub mod outlier;
pub mod paired;
pub mod sequential;
pub mod share;
#[cfg(test)]
mod testing;
pub mod unpaired;
pub mod untrimmed;

pub use agreement::Agreement;
pub use contrast::Contrast;
pub use estimate::{Estimate, Method};
pub use histogram::Histogram;
pub use untrimmed::Untrimmed;
