//! A short, repeatable run of the fuzz targets' bodies, so that they stay compiled and true where no
//! fuzzer is installed.

use latput_load::fuzzing;
use latput_units::SeededRng;

const RUNS: u64 = 1_000;

#[test]
fn no_bytes_of_the_network_are_a_crash() {
    for seed in 0..RUNS {
        let mut rng = SeededRng::from_seed(seed);
        let length = rng.next_below(400);
        let mut bytes: Vec<u8> = (0..length).map(|_| rng.next_u64().to_le_bytes()[0]).collect();
        // Small numbers name requests and datagrams that there are.
        if seed % 2 == 0 {
            for byte in &mut bytes {
                *byte &= 3;
            }
        }
        if seed % 3 == 0 {
            let magic = b"latput-2";
            let shown = magic.len().min(bytes.len());
            bytes[..shown].copy_from_slice(&magic[..shown]);
        } else if let Some(size) = bytes.first_mut() {
            *size = 12 + *size % 40; // room for the headers
        }
        fuzzing::hello(&bytes);
        fuzzing::datagrams(&bytes);
    }
}
