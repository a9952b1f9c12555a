//! `cargo bench -p latput-sim`: the scenarios of `examples/speed.rs`, packets per second of CPU time.

#[path = "../examples/speed.rs"]
mod speed;

fn main() {
    speed::main();
}
