//! Quantities are read back from what is printed of them.

use latput_units::{BitsPerSecond, Bytes, CpuId, CpuSet, Nanos};
use proptest::prelude::*;

/// Numbers are read as `f64`, which is exact up to here.
const EXACT: u64 = 1 << 53;

proptest! {
    #[test]
    fn printed_time_is_read_back(ns in 0..EXACT) {
        let time = Nanos::from_ns(ns);
        prop_assert_eq!(time.to_string().parse(), Ok(time));
    }

    #[test]
    fn printed_size_is_read_back(bytes in 0..EXACT) {
        let size = Bytes::new(bytes);
        prop_assert_eq!(size.to_string().parse(), Ok(size));
    }

    #[test]
    fn printed_rate_is_read_back(bits in 0..EXACT) {
        let rate = BitsPerSecond::new(bits);
        prop_assert_eq!(rate.to_string().parse(), Ok(rate));
    }

    #[test]
    fn printed_set_of_cpus_is_read_back(cpus in prop::collection::btree_set(0..512_u32, 0..40)) {
        let set: CpuSet = cpus.into_iter().map(CpuId).collect();
        prop_assert_eq!(set.to_string().parse(), Ok(set));
    }

    #[test]
    fn no_text_makes_reading_panic(text in "\\PC{0,40}") {
        let _ = (text.parse::<Nanos>(), text.parse::<Bytes>(), text.parse::<BitsPerSecond>());
        let _ = text.parse::<CpuSet>();
    }
}
