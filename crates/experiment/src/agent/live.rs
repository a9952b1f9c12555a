//! The agent's part of a block on live traffic: what the application tells of itself.

use super::Service;
use crate::live::LiveBlock;
use crate::protocol::{Answer, Failure};

impl Service<'_> {
    /// Runs a block.
    pub(super) fn live(&mut self, block: LiveBlock) -> Result<Answer, Failure> {
        self.prepared = super::Prepared::default();
        let seen = self.keeper.live(block, &|| false)?;
        Ok(Answer::Lived(Box::new(seen)))
    }
}
