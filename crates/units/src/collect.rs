//! Maps and sets from iterators, in little code.
//!
//! `collect` sorts first. Its sort takes 4 KB of the program: for sets once per type, for maps at each call. An insertion
//! is compiled once per type.

use std::collections::{BTreeMap, BTreeSet};

/// Pairs that become a map.
pub trait IntoMap<K, V> {
    /// As `collect`: of several values of a key the last stays.
    fn into_map(self) -> BTreeMap<K, V>;
}

/// Values that become a set.
pub trait IntoSet<T> {
    /// As `collect`.
    fn into_set(self) -> BTreeSet<T>;
}

impl<K: Ord, V, I: IntoIterator<Item = (K, V)>> IntoMap<K, V> for I {
    fn into_map(self) -> BTreeMap<K, V> {
        let mut map = BTreeMap::new();
        map.extend(self);
        map
    }
}

impl<T: Ord, I: IntoIterator<Item = T>> IntoSet<T> for I {
    fn into_set(self) -> BTreeSet<T> {
        let mut set = BTreeSet::new();
        set.extend(self);
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_is_what_collect_makes() {
        let pairs = [(3, "c"), (1, "a"), (3, "d"), (2, "b")];
        assert_eq!(pairs.into_map(), pairs.into_iter().collect::<BTreeMap<_, _>>());
        assert_eq!(pairs.into_map()[&3], "d");
        assert_eq!(pairs.into_set(), pairs.into_iter().collect::<BTreeSet<_>>());
    }
}
