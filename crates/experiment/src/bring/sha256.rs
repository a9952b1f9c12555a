//! SHA-256 (FIPS 180-4), to compare a file here with what `sha256sum` says of it elsewhere.

/// Fractional parts of the cube roots of the first 64 primes (FIPS 180-4, section 4.2.2).
const K: [u32; 64] = [
    0x428a_2f98,
    0x7137_4491,
    0xb5c0_fbcf,
    0xe9b5_dba5,
    0x3956_c25b,
    0x59f1_11f1,
    0x923f_82a4,
    0xab1c_5ed5,
    0xd807_aa98,
    0x1283_5b01,
    0x2431_85be,
    0x550c_7dc3,
    0x72be_5d74,
    0x80de_b1fe,
    0x9bdc_06a7,
    0xc19b_f174,
    0xe49b_69c1,
    0xefbe_4786,
    0x0fc1_9dc6,
    0x240c_a1cc,
    0x2de9_2c6f,
    0x4a74_84aa,
    0x5cb0_a9dc,
    0x76f9_88da,
    0x983e_5152,
    0xa831_c66d,
    0xb003_27c8,
    0xbf59_7fc7,
    0xc6e0_0bf3,
    0xd5a7_9147,
    0x06ca_6351,
    0x1429_2967,
    0x27b7_0a85,
    0x2e1b_2138,
    0x4d2c_6dfc,
    0x5338_0d13,
    0x650a_7354,
    0x766a_0abb,
    0x81c2_c92e,
    0x9272_2c85,
    0xa2bf_e8a1,
    0xa81a_664b,
    0xc24b_8b70,
    0xc76c_51a3,
    0xd192_e819,
    0xd699_0624,
    0xf40e_3585,
    0x106a_a070,
    0x19a4_c116,
    0x1e37_6c08,
    0x2748_774c,
    0x34b0_bcb5,
    0x391c_0cb3,
    0x4ed8_aa4a,
    0x5b9c_ca4f,
    0x682e_6ff3,
    0x748f_82ee,
    0x78a5_636f,
    0x84c8_7814,
    0x8cc7_0208,
    0x90be_fffa,
    0xa450_6ceb,
    0xbef9_a3f7,
    0xc671_78f2,
];
/// Fractional parts of the square roots of the first 8 primes (section 5.3.3).
const INITIAL: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// The hash of `bytes`, in 64 hexadecimal digits.
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    let mut state = INITIAL;
    let (blocks, rest) = bytes.as_chunks::<64>();
    blocks.iter().for_each(|block| add(&mut state, block));
    let mut end = rest.to_vec();
    end.push(0x80);
    end.resize(if end.len() > 56 { 120 } else { 56 }, 0);
    end.extend(((bytes.len() as u64) * 8).to_be_bytes());
    end.as_chunks::<64>().0.iter().for_each(|block| add(&mut state, block));
    state.map(|word| format!("{word:08x}")).concat()
}

/// Section 6.2.2.
fn add(state: &mut [u32; 8], block: &[u8; 64]) {
    let mut schedule = [0_u32; 64];
    for (word, bytes) in schedule.iter_mut().zip(block.as_chunks::<4>().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    for t in 16..64 {
        let (a, b) = (schedule[t - 15], schedule[t - 2]);
        let small_0 = a.rotate_right(7) ^ a.rotate_right(18) ^ (a >> 3);
        let small_1 = b.rotate_right(17) ^ b.rotate_right(19) ^ (b >> 10);
        schedule[t] = schedule[t - 16]
            .wrapping_add(small_0)
            .wrapping_add(schedule[t - 7])
            .wrapping_add(small_1);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for (constant, word) in K.iter().zip(schedule) {
        let big_1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let choice = (e & f) ^ (!e & g);
        let first =
            h.wrapping_add(big_1).wrapping_add(choice).wrapping_add(*constant).wrapping_add(word);
        let big_0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let majority = (a & b) ^ (a & c) ^ (b & c);
        let second = big_0.wrapping_add(majority);
        (h, g, f, e) = (g, f, e, d.wrapping_add(first));
        (d, c, b, a) = (c, b, a, first.wrapping_add(second));
    }
    for (word, add) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *word = word.wrapping_add(add);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_examples_of_the_standard_have_their_hash() {
        check(b"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        check(b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        let two_blocks = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        check(two_blocks, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    }

    #[test]
    fn every_length_around_a_block_has_the_hash_that_sha256sum_gives() {
        for length in [1, 55, 56, 57, 63, 64, 65, 119, 120, 128, 100_003] {
            let bytes: Vec<u8> =
                (0..length).map(|n: u32| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect();
            let started =
                Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
            let Ok(mut sum) = started else { return }; // not installed
            sum.stdin.take().unwrap().write_all(&bytes).unwrap();
            let said = sum.wait_with_output().unwrap().stdout;
            check(&bytes, std::str::from_utf8(&said[..64]).unwrap());
        }
    }

    #[track_caller]
    fn check(bytes: &[u8], expected: &str) {
        assert_eq!(hexadecimal(bytes), expected, "{} bytes", bytes.len());
    }
}
