//! Texts of an iperf3 server's error numbers.

/// The text of an error number (`src/iperf_api.h` and `src/iperf_error.c`), for those that a server
/// can send.
pub fn error_text(code: u32, errno: u32) -> String {
    let text = match code {
        0 => "the test failed without a reason",
        4 | 5 => "the test would last too long for this server",
        6 => "too many parallel streams",
        7 | 20 => "the size of a send is not one that it takes",
        8 => "the socket buffer is larger than it takes",
        13 => "an option that it does not have on that system",
        27 => "the total rate is larger than the server's limit",
        28 => "the test's interval is not one that it takes",
        110 => "it received an unknown state",
        111 | 112 => "a state could not be exchanged",
        114 => "it could not read the parameters",
        115..=117 => "results could not be exchanged",
        120 => "it was stopped",
        121 => "it is busy with another test",
        122 => "it cannot set TCP_NODELAY",
        123 => "it cannot set the segment size",
        124 => "it cannot set the size of the socket buffers",
        129 => "it cannot make a socket nonblocking",
        131 => "it does not have the protocol",
        132 => "it cannot bind itself to the CPU that was asked for",
        134 => "it does not have the congestion control that was asked for",
        140 => "it cannot set the pacing rate",
        141 => "the socket buffers did not get the size that was asked for",
        142 => "it wants a user name and a password, which latput does not have",
        160 => "the test lasted longer than the server allows",
        200..=208 => "a stream could not be opened or read",
        301 | 300 => "a timer could not be set",
        _ => "it failed with an error that this latput does not know",
    };
    let system = i32::try_from(errno).ok().filter(|errno| *errno > 0);
    let system = system.map_or_else(String::new, |errno| {
        format!(": {}", std::io::Error::from_raw_os_error(errno))
    });
    format!("{text} (iperf3 error {code}){system}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_numbers_have_words() {
        assert!(error_text(142, 0).contains("user name"));
        assert!(error_text(27, 0).ends_with("(iperf3 error 27)"));
        assert!(error_text(134, 2).contains("No such file"));
        assert!(error_text(u32::MAX, u32::MAX).contains("does not know"));
    }
}
