//! A store of checkpoints in memory, whose disk can be full and whose locks can be held.

use std::collections::{BTreeMap, BTreeSet};

use latput_knobs::{Checkpoint, CheckpointStore, StoreError};

use crate::fuse::Fuse;

/// Holds the promises of [`CheckpointStore`], and those that its user makes: what is saved must have
/// been claimed.
#[derive(Clone, Debug, Default)]
pub struct MemoryCheckpoints {
    kept: BTreeMap<Key, Checkpoint>,
    claimed: BTreeSet<Key>,
    /// Claimed by another process, with its id.
    foreign: BTreeMap<Key, u32>,
    failure: Option<StoreError>,
    saves_before_failure: u64,
    fuse: Fuse,
}

/// Namespace and interface.
type Key = (u64, String);

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
    pub fn lock_by(&mut self, pid: u32, namespace: u64, interface: &str) {
        self.foreign.insert((namespace, interface.to_owned()), pid);
    }

    /// The process that used the store is dead and another starts: locks are gone, files stay.
    pub fn next_process(&mut self) {
        self.claimed.clear();
        self.foreign.clear();
        self.failure = None;
    }

    /// The checkpoint kept for an interface.
    pub fn kept(&self, namespace: u64, interface: &str) -> Option<&Checkpoint> {
        self.kept.get(&(namespace, interface.to_owned()))
    }

    /// Whether there is neither a checkpoint nor a lock of ours.
    pub fn is_clear(&self) -> bool {
        self.kept.is_empty() && self.claimed.is_empty()
    }

    fn check_lock(&self, key: &Key) -> Result<(), StoreError> {
        match self.foreign.get(key) {
            Some(&pid) => Err(StoreError::Locked { interface: key.1.clone(), pid }),
            None => Ok(()),
        }
    }
}

impl CheckpointStore for MemoryCheckpoints {
    fn claim(&mut self, namespace: u64, interface: &str) -> Result<Option<Checkpoint>, StoreError> {
        self.fuse.alive().map_err(|_| dead("lock"))?;
        let key = (namespace, interface.to_owned());
        self.check_lock(&key)?;
        self.claimed.insert(key.clone());
        Ok(self.kept.get(&key).cloned())
    }

    fn save(&mut self, checkpoint: &Checkpoint) -> Result<(), StoreError> {
        let key = (checkpoint.namespace, checkpoint.interface.clone());
        assert!(self.claimed.contains(&key), "saved a checkpoint of {key:?} without a claim");
        self.fuse.step().map_err(|_| dead("write"))?;
        if let Some(error) = &self.failure {
            if self.saves_before_failure == 0 {
                return Err(error.clone());
            }
            self.saves_before_failure -= 1;
        }
        self.kept.insert(key, checkpoint.clone());
        Ok(())
    }

    fn remove(&mut self, namespace: u64, interface: &str) -> Result<(), StoreError> {
        let key = (namespace, interface.to_owned());
        self.fuse.step().map_err(|_| dead("remove"))?;
        self.check_lock(&key)?;
        self.kept.remove(&key);
        self.claimed.remove(&key);
        Ok(())
    }

    fn list(&self) -> Result<Vec<Result<Checkpoint, StoreError>>, StoreError> {
        self.fuse.alive().map_err(|_| dead("list"))?;
        Ok(self.kept.values().cloned().map(Ok).collect())
    }
}

fn dead(operation: &'static str) -> StoreError {
    StoreError::Io {
        path: "/run/latput".to_owned(),
        operation,
        reason: "the process was killed".to_owned(),
    }
}
