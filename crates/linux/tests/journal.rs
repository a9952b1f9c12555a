//! The journal of committed changes: numbers, bounds, damaged entries, commits at once.
#![allow(clippy::unwrap_used, reason = "a failure in a helper is a failed test")]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;

use latput_knobs::{Checkpoint, CheckpointStore, Context, Device, LinkResets, Maker, Slot};

use latput_linux::FileCheckpoints;
use latput_units::Nanos;

fn change(index: u32) -> Checkpoint {
    let context = Context {
        boot_id: "b".to_owned(),
        namespace: 7,
        namespace_cookie: None,
        pid: 1,
        now_unix_ms: 1,
        since_boot: Nanos::ZERO,
        link_resets: LinkResets::Refused,
        by: Maker { command: "set".to_owned(), user: "uid 0".to_owned(), run: None },
        undoes: None,
    };
    Checkpoint::new(&context, "eth0", Device { index, ..Device::default() })
}

fn commit(folder: &Path, index: u32) -> Option<u64> {
    let mut store = FileCheckpoints::new(folder);
    let slot = Slot { namespace: 7, index };
    store.claim(slot, "eth0").unwrap();
    store.save(&change(index)).unwrap();
    store.archive(slot).unwrap()
}

#[test]
fn commit_turns_the_checkpoint_into_the_next_entry() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!([commit(folder.path(), 2), commit(folder.path(), 3)], [Some(1), Some(2)]);
    let store = FileCheckpoints::new(folder.path());
    assert_eq!(store.list(), Ok(Vec::new()), "no checkpoint is left");
    let entries = store.journal().entries().unwrap();
    assert_eq!(entries, [(2, Ok(change(3))), (1, Ok(change(2)))]);
    let journal = folder.path().join("journal");
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(&journal), mode(&journal.join("1.json"))), (0o700, 0o600));
    let mut store = FileCheckpoints::new(folder.path());
    assert_eq!(store.archive(Slot { namespace: 7, index: 9 }), Ok(None), "nothing was changed");
}

#[test]
fn unreadable_entry_hides_no_other() {
    let folder = tempfile::tempdir().unwrap();
    for index in 2..5 {
        commit(folder.path(), index);
    }
    let journal = folder.path().join("journal");
    fs::write(journal.join("2.json"), "{").unwrap();
    fs::write(journal.join("notes.txt"), "").unwrap();
    fs::write(journal.join("x.json"), "{}").unwrap();
    let entries = FileCheckpoints::new(folder.path()).journal().entries().unwrap();
    let numbers: Vec<u64> = entries.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [3, 2, 1]);
    let text = entries[1].1.as_ref().unwrap_err().to_string();
    assert!(text.contains("2.json") && entries[2].1.is_ok(), "{text}");
    assert_eq!(commit(folder.path(), 5), Some(4));
}

#[test]
fn simultaneous_commits_get_own_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let mut numbers: Vec<u64> = thread::scope(|scope| {
        let folder = folder.path();
        let start = |index| scope.spawn(move || commit(folder, index).unwrap());
        let commits: Vec<_> = (2..34).map(start).collect();
        commits.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=32).collect::<Vec<u64>>());
}

#[test]
fn bounded_journal_reuses_no_number() {
    let folder = tempfile::tempdir().unwrap();
    commit(folder.path(), 2);
    let journal = folder.path().join("journal");
    for number in 2..=1010 {
        fs::copy(journal.join("1.json"), journal.join(format!("{number}.json"))).unwrap();
    }
    assert_eq!(commit(folder.path(), 3), Some(1011));
    let entries = FileCheckpoints::new(folder.path()).journal().entries().unwrap();
    assert_eq!((entries.len(), entries[999].0), (1000, 12));
}
