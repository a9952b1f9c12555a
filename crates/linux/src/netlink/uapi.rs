//! The kernel's numbers for messages and attributes, under the kernel's names.
//!
//! Each set is whole, so that a knob whose attribute the kernel has needs nothing here. `build.rs` makes the constants
//! from `numbers.txt`, which says where they come from.

#![expect(dead_code, reason = "the sets are whole, and latput uses a part of them")]

include!(concat!(env!("OUT_DIR"), "/uapi.rs"));
