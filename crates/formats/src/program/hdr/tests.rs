//! Logs that the Java library and the crate `hdrhistogram` have written, and logs that nobody should trust.

use flate2::Compression;
use flate2::write::ZlibEncoder;
use latput_trial::figures::PrintedUnit;
use proptest::prelude::*;
use std::fmt::Write as _;
use std::io::Write as _;

use super::*;

const JAVA: &str = include_str!("../../../tests/program/hdr-java.hlog");
const TAGS: &str = include_str!("../../../tests/program/hdr-tags.hlog");
const V1: &str = include_str!("../../../tests/program/hdr-v1.hlog");
const CRATE: &str = include_str!("../../../tests/program/hdr-crate.hlog");
const SAID_BY_CRATE: &str = include_str!("../../../tests/program/hdr-crate.txt");

fn make_log(unit: &str, tag: Option<&str>) -> HistogramLog {
    HistogramLog {
        from: Source::File("a.hlog".to_owned()),
        unit: PrintedUnit::parse(unit).unwrap(),
        tag: tag.map(str::to_owned),
    }
}

fn read_text(text: &str, tag: Option<&str>) -> Result<ProgramFigures, String> {
    read(&make_log("ns", tag), &Text::from_bytes(text.as_bytes()))
        .map_err(|error| error.to_string())
}

/// The figures that `HistogramLogReaderWriterTest` of the Java library asserts: 1745879039 and 1796210687. It puts the counts, whose
/// buckets are 2^23 wide there, at their lowest value into buckets of 2^20, and gives the highest value of those. Here the
/// middle counts.
#[test]
fn java_log_reads_as_the_library_says() {
    let read = read_text(JAVA, None).unwrap();
    assert_eq!(read.transactions, Some(48_761));
    let latency = read.latency.unwrap();
    assert_eq!(latency.count(), 48_761);
    let near = |found: f64, expected: f64| (found / expected - 1.0).abs() < 1e-3;
    let middle = |highest: u32| f64::from(highest + 1 - (1 << 20) + (1 << 22));
    for (metric, said) in
        [(Metric::LatencyNsP999, 1_745_879_039), (Metric::LatencyNsMax, 1_796_210_687)]
    {
        assert!(near(read.metrics[&metric], middle(said)), "{:?}", read.metrics);
    }
    assert!(read.metrics.contains_key(&Metric::LatencyNsMean));
    // 62 intervals of a second.
    assert!((read.window.unwrap().as_secs_f64() - 62.0).abs() < 1.0, "{:?}", read.window);
    let in_us = super::read(&make_log("us", None), &Text::from_bytes(JAVA.as_bytes())).unwrap();
    assert!(near(in_us.metrics[&Metric::LatencyNsP50], 1e3 * read.metrics[&Metric::LatencyNsP50]));
}

#[test]
fn distributions_of_several_tags_are_not_mixed() {
    let [tagged, bare] = [Some("A"), None].map(|tag| {
        let is_of = |line: &&str| line.starts_with("Tag=") == tag.is_some();
        let lines: Vec<&str> = TAGS.lines().filter(is_of).collect();
        read_text(&lines.join("\n"), tag).unwrap()
    });
    // Both have half of the 32,290 samples that the Java library finds.
    assert_eq!((tagged.transactions, bare.transactions), (Some(16_145), Some(16_145)));
    assert_eq!(read_text(TAGS, Some("A")).unwrap(), tagged);
    let error = read_text(TAGS, None).unwrap_err();
    assert!(error.contains("several tags (none, `A`): name one by `tag`"), "{error}");
    let error = read_text(TAGS, Some("B")).unwrap_err();
    assert!(error.contains("no distribution of the tag `B`; there are: none, `A`"), "{error}");
}

#[test]
fn hdr_counts_equal_those_of_crate() {
    let mut left = MOST_BYTES;
    for (line, said) in
        CRATE.lines().filter(|line| line.starts_with("Tag=")).zip(SAID_BY_CRATE.lines())
    {
        let interval = LogInterval::parse(line).unwrap();
        let mut found = interval.tag.unwrap().to_owned();
        let plain = decompress_distribution(interval.distribution, &mut left).unwrap();
        let mut record = |value, count| {
            let _infallible = write!(found, " {value}:{count}");
            Some(())
        };
        decode_counts(&plain, &mut record).unwrap();
        assert_eq!(found, said);
    }
}

#[test]
fn hdr_log_in_stream_may_have_noise() {
    let text = format!("starting, please wait\n{JAVA}done, 1, 2, 3\n");
    let on_stream = HistogramLog { from: Source::Stdout, ..make_log("ns", None) };
    assert_eq!(
        super::read(&on_stream, &Text::from_bytes(text.as_bytes())).ok(),
        read_text(JAVA, None).ok()
    );
    let error = read_text(&text, None).unwrap_err();
    assert!(error.contains("line 1 is not an interval: `starting, please wait`"), "{error}");
}

/// A line of a log with this header and these counts.
fn make_line(header: [u32; 4], [lowest, highest]: [u64; 2], ratio: f64, counts: &[u8]) -> String {
    let mut plain: Vec<u8> = header.iter().flat_map(|part| part.to_be_bytes()).collect();
    plain.extend([lowest, highest, ratio.to_bits()].iter().flat_map(|part| part.to_be_bytes()));
    plain.extend(counts);
    compress_line(&plain)
}

fn compress_line(plain: &[u8]) -> String {
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::best());
    zlib.write_all(plain).unwrap();
    let zlib = zlib.finish().unwrap();
    let length = u32::try_from(zlib.len()).unwrap();
    let packed = [&0x1c84_9314_u32.to_be_bytes()[..], &length.to_be_bytes(), &zlib].concat();
    format!("0.0,1.0,1.0,{}\n", STANDARD.encode(packed))
}

#[test]
fn unwritable_hdr_log_is_refused() {
    const V2: u32 = 0x1c84_9313;
    let bounds = [1, 3_600_000_000];
    let good = make_line([V2, 3, 0, 3], bounds, 1.0, &[2, 2, 2]);
    assert_eq!(read_text(&good, None).unwrap().transactions, Some(3));
    // The counts of -i64::MIN zeros, of i64::MAX samples, and of a value beyond 64 bits.
    let (zeros, many) = ([0xff; 9], [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    let far = [&zeros[..], &[2]].concat();
    let bomb = compress_line(&vec![0; usize::try_from(MOST_BYTES).unwrap() + 1]);
    for (text, why) in [
        (String::new(), "it has no interval"),
        ("#only a comment\n".to_owned(), "it has no interval"),
        (V1.to_owned(), "only the compressed form V2"),
        (format!("{good}1.0,1.0"), "line 2 is not an interval: `1.0,1.0`"),
        ("0.0,1.0,1.0,HIST*\n".to_owned(), "line 1: no base64"),
        ("0.0,1.0,1.0,HISTFAAA\n".to_owned(), "cut short"),
        ("0.0,1.0,1.0,HISTFAAAAAQAAAAA\n".to_owned(), "no zlib"),
        (make_line([V2, 99, 0, 3], bounds, 1.0, &[2]), "cut short"),
        (make_line([V2, u32::MAX, 0, 3], bounds, 1.0, &[2]), "cut short"),
        (make_line([V2, 1, 0, 3], bounds, 1.0, &[0x80]), "cut short"),
        (make_line([V2, 1, 7, 3], bounds, 1.0, &[2]), "shifted or of fractional"),
        (make_line([V2, 1, 0, 3], bounds, 0.5, &[2]), "shifted or of fractional"),
        (make_line([V2, 1, 0, 6], bounds, 1.0, &[2]), "impossible precision"),
        (make_line([V2, 1, 0, 3], [0, 9], 1.0, &[2]), "impossible precision"),
        (make_line([V2, 1, 0, 3], [u64::MAX, 9], 1.0, &[2]), "impossible precision"),
        (make_line([V2, 9, 0, 3], bounds, 1.0, &zeros), "are empty"),
        (make_line([V2, 9, 0, 3], bounds, 1.0, &many), "more samples than can be counted"),
        (make_line([V2, 10, 0, 3], bounds, 1.0, &far), "beyond the largest value"),
        (bomb, "more than 67108864 bytes unpacked"),
    ] {
        let error = read_text(&text, None).unwrap_err();
        assert!(error.contains(why), "{why}: {error}");
    }
    let long = Text::of_parts(good.as_bytes(), 1, good.as_bytes());
    let error = super::read(&make_log("ns", None), &long).unwrap_err();
    assert!(error.to_string().contains("it is too large"), "{error}");
}

proptest! {
    /// Whatever becomes of the unpacked bytes, reading ends with figures or a reason.
    #[test]
    fn changed_distributions_never_panic(at in 0_usize..400, byte: u8, cut in 0_usize..400) {
        let interval = CRATE.lines().find_map(LogInterval::parse).unwrap();
        let mut plain = decompress_distribution(interval.distribution, &mut MOST_BYTES.clone()).unwrap();
        let length = plain.len();
        plain[at % length] = byte;
        plain.truncate(length - cut % 40);
        let _either = read_text(&compress_line(&plain), None);
    }

    #[test]
    fn any_bytes_as_counts_never_panic(counts: Vec<u8>, digits in 0_u32..8, lowest: u64) {
        let length = u32::try_from(counts.len()).unwrap();
        let _either = read_text(&make_line([0x1c84_9313, length, 0, digits], [lowest, u64::MAX], 1.0, &counts), None);
    }

    #[test]
    fn any_text_never_panics(text in "(Tag=[a-z]{0,2},)?[0-9.e-]{0,8},[0-9.e-]{0,8},1,HIST[A-Za-z0-9+/=]{0,40}") {
        let _either = read_text(&text, None);
    }
}
