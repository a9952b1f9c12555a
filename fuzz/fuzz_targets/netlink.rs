//! Any bytes as a datagram of a netlink socket.
#![no_main]

libfuzzer_sys::fuzz_target!(|datagram: &[u8]| latput_linux::fuzzing::netlink(datagram));
