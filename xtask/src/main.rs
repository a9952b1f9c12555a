//! latput.
fn main() {}
