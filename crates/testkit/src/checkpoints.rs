//! A store of checkpoints in memory, whose disk can be full and whose locks can be held.

use std::collections::{BTreeMap, BTreeSet};

use latput_knobs::{Checkpoint, CheckpointStore, Slot, StoreError};

use crate::fuse::Fuse;

/// Holds the promises of [`CheckpointStore`], and those that its user makes: what is saved must have
/// been claimed.
#[derive(Clone, Debug, Default)]
pub struct MemoryCheckpoints {
    kept: BTreeMap<Slot, Checkpoint>,
    /// The committed changes, oldest first; the first has number 1.
    journal: Vec<Checkpoint>,
    claimed: BTreeSet<Slot>,
    /// Claimed by another process, with its id.
    foreign: BTreeMap<Slot, u32>,
    failure: Option<StoreError>,
    saves_before_failure: u64,
    fuse: Fuse,
}

impl MemoryCheckpoints {
    /// A store whose user dies with this fuse.
    pub fn with_fuse(fuse: Fuse) -> Self {
        Self { fuse, ..Self::default() }
    }

    /// The disk is full after this many more saves.
    pub fn fill_disk_after(&mut self, saves: u64) {
        self.fail_after(
            saves,
            StoreError::Io {
                path: "/run/latput/eth0.json".to_owned(),
                operation: "write",
                reason: "no space left on device".to_owned(),
            },
        );
    }

    /// Saves fail with `error` after this many more.
    pub fn fail_after(&mut self, saves: u64, error: StoreError) {
        self.failure = Some(error);
        self.saves_before_failure = saves;
    }

    /// Another process holds this interface.
    pub fn lock_by(&mut self, pid: u32, slot: Slot) {
        self.foreign.insert(slot, pid);
    }

    /// The process that used the store is dead and another starts: locks are gone, files stay.
    pub fn next_process(&mut self) {
        self.claimed.clear();
        self.foreign.clear();
        self.failure = None;
    }

    /// The checkpoint kept for the interface that had this name.
    pub fn kept(&self, interface: &str) -> Option<&Checkpoint> {
        self.kept.values().find(|kept| kept.interface == interface)
    }

    /// The committed changes, oldest first; the first has number 1.
    pub fn journal(&self) -> &[Checkpoint] {
        &self.journal
    }

    /// Whether there is neither a checkpoint nor a lock of ours.
    pub fn is_clear(&self) -> bool {
        self.kept.is_empty() && self.claimed.is_empty()
    }

    fn check_lock(&self, slot: Slot, interface: &str) -> Result<(), StoreError> {
        match self.foreign.get(&slot) {
            Some(&pid) => Err(StoreError::Locked { interface: interface.to_owned(), pid }),
            None => Ok(()),
        }
    }
}

impl CheckpointStore for MemoryCheckpoints {
    fn claim(&mut self, slot: Slot, interface: &str) -> Result<Option<Checkpoint>, StoreError> {
        self.fuse.check_alive().map_err(|_| dead("lock"))?;
        self.check_lock(slot, interface)?;
        self.claimed.insert(slot);
        Ok(self.kept.get(&slot).cloned())
    }

    fn save(&mut self, checkpoint: &Checkpoint) -> Result<(), StoreError> {
        let slot = checkpoint.slot();
        assert!(self.claimed.contains(&slot), "saved a checkpoint of {slot} without a claim");
        self.fuse.step().map_err(|_| dead("write"))?;
        if let Some(error) = &self.failure {
            if self.saves_before_failure == 0 {
                return Err(error.clone());
            }
            self.saves_before_failure -= 1;
        }
        self.kept.insert(slot, checkpoint.clone());
        Ok(())
    }

    fn remove(&mut self, slot: Slot) -> Result<(), StoreError> {
        self.fuse.step().map_err(|_| dead("remove"))?;
        self.check_lock(slot, &format!("interface {}", slot.index))?;
        self.kept.remove(&slot);
        self.claimed.remove(&slot);
        Ok(())
    }

    fn archive(&mut self, slot: Slot) -> Result<Option<u64>, StoreError> {
        self.fuse.step().map_err(|_| dead("journal"))?;
        self.check_lock(slot, &format!("interface {}", slot.index))?;
        self.claimed.remove(&slot);
        let Some(committed) = self.kept.remove(&slot) else { return Ok(None) };
        self.journal.push(committed);
        Ok(Some(self.journal.len() as u64))
    }

    fn list(&self) -> Result<Vec<Result<Checkpoint, StoreError>>, StoreError> {
        self.fuse.check_alive().map_err(|_| dead("list"))?;
        Ok(self.kept.values().cloned().map(Ok).collect())
    }

    fn peek(&self, slot: Slot, interface: &str) -> Result<Option<Checkpoint>, StoreError> {
        self.check_lock(slot, interface)?;
        Ok(self.kept.get(&slot).cloned())
    }
}

fn dead(operation: &'static str) -> StoreError {
    StoreError::Io {
        path: "/run/latput".to_owned(),
        operation,
        reason: "the process was killed".to_owned(),
    }
}
