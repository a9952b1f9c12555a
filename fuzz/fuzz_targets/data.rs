//! Any bytes as what comes on the data ports: the first bytes of a connection, and datagrams.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    latput_load::fuzzing::hello(bytes);
    latput_load::fuzzing::datagrams(bytes);
});
