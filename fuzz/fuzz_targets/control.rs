//! Any bytes as the lines of a controller, and of an agent.
#![no_main]

use latput_protocol::control::{Answer, Request, read_line, write_line};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut requests = bytes;
    while let Ok(request) = read_line::<Request>(&mut requests) {
        write_line(&mut Vec::new(), &request).expect("memory takes all");
    }
    let mut answers = bytes;
    while let Ok(answer) = read_line::<Answer>(&mut answers) {
        write_line(&mut Vec::new(), &answer).expect("memory takes all");
    }
});
