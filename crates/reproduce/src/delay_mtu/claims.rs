//! Every claim of the slides as a check on the simulated grid.
//!
//! Orders must be exact, an onset must be met within a factor of two, a cost within 15 %. Rates on a plateau
//! are compared with 1 % of slack: their order there is noise. Where the slides' relation sign is lost
//! (`unreadable`), it is read as "about".

use latput_sim::Profile;

use super::costs::{Abg, WITHIN};
use super::{Claim, FILE, Flow, MTUS, Moderation, Seen, Sweep, TEXT};
use crate::row::Row;
use crate::table::Table;

/// The delays of the slides' own sweep end here.
const SWEEP: u64 = 640;
/// Less than this of the best rate is a loss.
const KEPT: f64 = 0.95;
/// At least this of the best rate is as good as the best.
const BEST: f64 = 0.997;
/// The large MTUs.
const LARGE: [u64; 3] = [3_000, 4_500, 6_000];

/// A claim's verdict, before its words are added.
struct Verdict {
    id: &'static str,
    wanted: String,
    seen: String,
    holds: bool,
}

fn verdict(
    id: &'static str,
    wanted: impl Into<String>,
    seen: impl Into<String>,
    holds: bool,
) -> Verdict {
    Verdict { id, wanted: wanted.into(), seen: seen.into(), holds }
}

/// The published file, by claim.
struct Published(Table);

impl Published {
    fn read() -> Self {
        Self(Table::parse(TEXT).expect("the file is shipped and tested"))
    }

    fn row(&self, id: &str) -> Row<'_> {
        let rows = (0..self.0.rows.len()).map(|idx| Row::new(&self.0, idx));
        rows.into_iter().find(|row| row.text("claim_id") == id).expect("the claim is in the file")
    }

    fn number(&self, id: &str) -> f64 {
        self.row(id).text("value").parse().expect("the claim has a number")
    }

    fn words(&self, id: &str) -> String {
        let row = self.row(id);
        let parts = ["quantity", "relation", "value", "unit"].map(|column| row.text(column));
        let parts = parts.map(|part| if part == "unreadable" { "about (sign lost)" } else { part });
        let mut words = format!("{}: {}", row.text("workload"), parts.join(" ").trim_end());
        if !row.text("conditions").is_empty() {
            words += &format!(", {}", row.text("conditions"));
        }
        words
    }
}

pub(super) fn all(sweep: &Sweep, profile: &Profile) -> Vec<Claim> {
    let published = Published::read();
    let ends = Ends { sweep, published: &published };
    let mut verdicts = ends.links();
    verdicts.extend(ends.udp());
    verdicts.extend(ends.tcp10());
    verdicts.extend(ends.nfs());
    verdicts.extend(ends.tcp3());
    verdicts.extend(ends.costs(profile));
    verdicts.extend(ends.summary());
    verdicts.sort_by_key(|verdict| verdict.id);
    let claim = |Verdict { id, wanted, seen, holds }| Claim {
        file: String::from(FILE),
        id: String::from(id),
        kind: String::from(kind(id)),
        claim: published.words(id),
        wanted,
        seen,
        holds,
    };
    verdicts.into_iter().map(claim).collect()
}

fn kind(id: &str) -> &'static str {
    const ONSETS: [&str; 14] = [
        "T058", "T059", "T063", "T066", "T067", "T068", "T070", "T071", "T072", "T074", "T077",
        "T078", "T079", "T080",
    ];
    if ONSETS.contains(&id) {
        "onset"
    } else if ("T083".."T105").contains(&id) {
        "cost"
    } else {
        "order"
    }
}

/// What is claimed and what was seen.
struct Ends<'a> {
    sweep: &'a Sweep,
    published: &'a Published,
}

type Curve = Vec<(u64, f64)>;

const RATE: fn(&Seen) -> f64 = |seen| seen.link_mbps;
const BUSY: fn(&Seen) -> f64 = |seen| seen.busy_percent;
const CPU: fn(&Seen) -> f64 = |seen| seen.busy_us_per_mb;
const BATCH: fn(&Seen) -> f64 = |seen| seen.packets_per_interrupt;

fn most(curve: &Curve) -> f64 {
    curve.iter().map(|point| point.1).fold(0.0, f64::max)
}

fn least(curve: &Curve) -> f64 {
    curve.iter().map(|point| point.1).fold(f64::MAX, f64::min)
}

/// The first and the last delay at which a rate is as good as the best.
fn plateau(curve: &Curve) -> (u64, u64) {
    let mut good = curve.iter().filter(|point| point.1 >= BEST * most(curve)).map(|point| point.0);
    let first = good.next().unwrap_or(u64::MAX);
    (first, good.last().unwrap_or(first))
}

/// The first delay after the best rate at which a twentieth of that is lost.
fn onset(curve: &Curve) -> Option<u64> {
    let mut best: f64 = 0.0;
    for (delay, rate) in curve {
        best = best.max(*rate);
        if *rate < KEPT * best && best >= BEST * most(curve) {
            return Some(*delay);
        }
    }
    None
}

/// The first delay at which a cost is within 1 % of its least.
fn cheapest(curve: &Curve) -> u64 {
    let is_least = |point: &&(u64, f64)| point.1 <= 1.01 * least(curve);
    curve.iter().find(is_least).map_or(u64::MAX, |point| point.0)
}

fn at(curve: &Curve, delay: u64) -> f64 {
    curve.iter().find(|point| point.0 == delay).expect("a delay of the grid").1
}

fn is_near(seen: u64, published: f64) -> bool {
    let seen = seen as f64;
    (published / 2.0..=2.0 * published).contains(&seen)
}

/// Whether a range of delays has one within a factor of two of the published one.
fn reaches((first, last): (u64, u64), published: f64) -> bool {
    first as f64 <= 2.0 * published && last as f64 >= published / 2.0
}

fn never_rises(curve: &Curve, slack: f64) -> bool {
    curve.windows(2).all(|pair| pair[1].1 <= pair[0].1 + slack)
}

fn units(delay: Option<u64>) -> String {
    delay.map_or_else(|| String::from("none"), |delay| delay.to_string())
}

/// A figure of each MTU, for people.
fn by_mtu(mtus: &[u64], told: impl Fn(u64) -> String) -> String {
    let parts: Vec<String> = mtus.iter().map(|mtu| format!("{mtu}: {}", told(*mtu))).collect();
    parts.join("; ")
}

impl Ends<'_> {
    fn curve(&self, flow: Flow, mtu: u64, end: u64, figure: fn(&Seen) -> f64) -> Curve {
        self.sweep.curve(flow, mtu, end, figure)
    }

    fn delayed(&self, flow: Flow, mtu: u64, delay: u64) -> &Seen {
        self.sweep.at(flow, mtu, Moderation::Delay(delay))
    }

    /// Arrival rate, losses, disks.
    fn links(&self) -> Vec<Verdict> {
        let rate = most(&self.curve(Flow::Udp10, 1_500, SWEEP, |seen| seen.frames_per_s));
        let published = self.published.number("T006");
        let lost = |flow: Flow| -> u64 {
            let of = |mtu: &u64| -> f64 {
                let curve = self.curve(flow, *mtu, SWEEP, |seen| seen.lost as f64);
                curve.iter().map(|point| point.1).sum()
            };
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
            let lost = MTUS.iter().map(of).sum::<f64>() as u64;
            lost
        };
        let (udp, tcp) = (lost(Flow::Udp10), lost(Flow::Tcp10));
        let fast = self.delayed(Flow::Nfs, 1_500, 40).link_mbps;
        let slow = self.delayed(Flow::NfsSlowDisk, 1_500, 40).link_mbps;
        let none = "none in the slides' sweep";
        vec![
            verdict(
                "T006",
                format!("within 1 % of {published}"),
                format!("{rate:.0}"),
                (rate / published - 1.0).abs() < 0.01,
            ),
            verdict("T043", none, udp.to_string(), udp == 0),
            verdict("T048", none, tcp.to_string(), tcp == 0),
            verdict(
                "T055",
                "servers that take twice as long give less",
                format!("{fast:.0} and {slow:.0} Mbit/s"),
                slow < KEPT * fast,
            ),
        ]
    }

    fn udp(&self) -> Vec<Verdict> {
        let rate = |mtu| self.curve(Flow::Udp10, mtu, 2_000, RATE);
        let by = self.published.number("T058");
        let reached = MTUS.iter().all(|mtu| plateau(&rate(*mtu)).0 as f64 <= by);
        let busy = |mtu| self.curve(Flow::Udp10, mtu, 2_800, BUSY);
        let until = self.published.number("T059");
        let falls = MTUS.iter().all(|mtu| never_rises(&busy(*mtu), 0.3));
        let harmed =
            MTUS.iter().any(|mtu| rate(*mtu).windows(2).any(|pair| pair[1].1 < 0.995 * pair[0].1));
        let cpu = |mtu, delay| self.delayed(Flow::Udp10, mtu, delay).busy_us_per_mb;
        let quadrupled = [10, 20, 40, 80, 160].map(|delay| {
            let from = cpu(1_500, delay);
            (from - cpu(6_000, delay), from - cpu(1_500, 4 * delay))
        });
        let given = |mtu, delay| self.delayed(Flow::Udp10, mtu, delay).goodput_mbps;
        let (size_gain, delay_gain) =
            (given(6_000, 10) - given(1_500, 10), given(1_500, 640) - given(1_500, 10));
        vec![
            verdict(
                "T058",
                format!("99.7 % of the best by {by} units"),
                by_mtu(&MTUS, |mtu| plateau(&rate(mtu)).0.to_string()),
                reached,
            ),
            verdict(
                "T059",
                format!("never rises; least within a factor of two of {until} at MTU 1500"),
                format!("least from {}", cheapest(&busy(1_500))),
                falls && is_near(cheapest(&busy(1_500)), until),
            ),
            verdict(
                "T060",
                "no longer delay has less",
                by_mtu(&MTUS, |mtu| {
                    format!("{:.1} to {:.1} Mbit/s", least(&rate(mtu)), most(&rate(mtu)))
                }),
                !harmed,
            ),
            verdict(
                "T061",
                "four times the MTU saves more CPU than four times the delay, and gives more payload",
                format!(
                    "saved {:.0} and {:.0} us/MB at 10, {:.0} and {:.0} at 160; gained {size_gain:.1} and \
                     {delay_gain:.1} Mbit/s",
                    quadrupled[0].0, quadrupled[0].1, quadrupled[4].0, quadrupled[4].1
                ),
                quadrupled.iter().all(|it| it.0 > it.1) && size_gain > delay_gain,
            ),
        ]
    }

    fn tcp10(&self) -> Vec<Verdict> {
        let rate = |mtu| self.curve(Flow::Tcp10, mtu, 4_000, RATE);
        let busy = |mtu| self.curve(Flow::Tcp10, mtu, SWEEP, BUSY);
        let share = |flow| {
            let curve = self.curve(flow, 1_500, SWEEP, RATE);
            at(&curve, 10) / most(&curve)
        };
        let (tcp, udp) = (share(Flow::Tcp10), share(Flow::Udp10));
        let number = |id| self.published.number(id);
        let link = |mtu| most(&rate(mtu));
        let near = |id, mtus: &[u64], told: &dyn Fn(u64) -> (u64, u64)| {
            let published = number(id);
            verdict(
                id,
                format!("99.7 % of the best within a factor of two of {published}"),
                by_mtu(mtus, |mtu| format!("{} to {}", told(mtu).0, told(mtu).1)),
                mtus.iter().all(|mtu| reaches(told(*mtu), published)),
            )
        };
        let best = |mtu| plateau(&rate(mtu));
        let spot = |delay: u64| {
            [Flow::Udp10, Flow::Tcp10].iter().all(|flow| {
                MTUS.iter().all(|mtu| {
                    let rate = self.curve(*flow, *mtu, SWEEP, RATE);
                    let cpu = self.curve(*flow, *mtu, SWEEP, CPU);
                    at(&rate, delay) >= 0.97 * most(&rate) && at(&cpu, delay) <= 1.05 * least(&cpu)
                })
            })
        };
        let spots: Vec<u64> = [320, 480, 640].into_iter().filter(|delay| spot(*delay)).collect();
        let dynamic = |mtu| self.sweep.at(Flow::Tcp10, mtu, Moderation::Dynamic);
        let fixed = |mtu| self.delayed(Flow::Tcp10, mtu, SWEEP);
        let pair = |figure: fn(&Seen) -> f64| {
            by_mtu(&MTUS, |mtu| format!("{:.1}, {:.1}", figure(dynamic(mtu)), figure(fixed(mtu))))
        };
        let decay = number("T078");
        vec![
            verdict(
                "T062",
                "a smaller share of the best at delay 10 than for UDP, MTU 1500",
                format!("{:.1} % and {:.1} %", 100.0 * tcp, 100.0 * udp),
                tcp < udp,
            ),
            verdict(
                "T063",
                "least within a factor of two of 480",
                by_mtu(&MTUS, |mtu| cheapest(&busy(mtu)).to_string()),
                MTUS.iter().all(|mtu| is_near(cheapest(&busy(*mtu)), number("T063"))),
            ),
            verdict(
                "T064",
                "more than 993 with the largest MTU",
                by_mtu(&LARGE, |mtu| format!("{:.1}", link(mtu))),
                link(6_000) > number("T064"),
            ),
            verdict(
                "T065",
                "within 1 % of 970 with MTU 1500, less than with the large ones",
                format!("{:.1}", link(1_500)),
                (link(1_500) / number("T065") - 1.0).abs() <= 0.01
                    && LARGE.iter().all(|mtu| link(1_500) < link(*mtu)),
            ),
            near("T066", &LARGE, &best),
            near("T067", &MTUS[..1], &best),
            verdict(
                "T068",
                "97 % of the best rate and within 5 % of the least CPU, both loads, within a factor of two of 640",
                format!("{spots:?}"),
                !spots.is_empty(),
            ),
            verdict(
                "T078",
                "a twentieth lost within a factor of two of 2000",
                by_mtu(&MTUS, |mtu| units(onset(&rate(mtu)))),
                MTUS.iter().all(|mtu| onset(&rate(*mtu)).is_some_and(|at| is_near(at, decay))),
            ),
            verdict(
                "T081",
                "5 or 6 packets to an acknowledgement at 640 and MTU 1500",
                format!("{:.1}", fixed(1_500).packets_per_ack),
                (4.5..6.5).contains(&fixed(1_500).packets_per_ack),
            ),
            verdict(
                "T108",
                "lower than at 640, every MTU",
                pair(RATE),
                MTUS.iter().all(|mtu| dynamic(*mtu).link_mbps < fixed(*mtu).link_mbps),
            ),
            verdict(
                "T109",
                "higher than at 640, every MTU",
                pair(BUSY),
                MTUS.iter().all(|mtu| dynamic(*mtu).busy_percent > fixed(*mtu).busy_percent),
            ),
        ]
    }

    fn nfs(&self) -> Vec<Verdict> {
        let rate = |mtu| self.curve(Flow::Nfs, mtu, 960, RATE);
        let cpu = |mtu| self.curve(Flow::Nfs, mtu, 960, CPU);
        let number = |id| self.published.number(id);
        let growth = |mtu| {
            let curve = self.curve(Flow::Nfs, mtu, SWEEP, BATCH);
            at(&curve, SWEEP) / at(&curve, 40)
        };
        let near = |id, mtus: &[u64]| {
            verdict(
                id,
                format!("99.7 % of the best within a factor of two of {}", number(id)),
                by_mtu(mtus, |mtu| {
                    let (first, last) = plateau(&rate(mtu));
                    format!("{first} to {last}")
                }),
                mtus.iter().all(|mtu| reaches(plateau(&rate(*mtu)), number(id))),
            )
        };
        let drops = |mtu, figure| {
            let curve = self.curve(Flow::Nfs, mtu, SWEEP, figure);
            at(&curve, SWEEP) / at(&curve, 160)
        };
        let joint = |mtu: &u64| {
            let (rate, cpu) = (rate(*mtu), cpu(*mtu));
            rate.iter().any(|(delay, seen)| {
                *seen >= KEPT * most(&rate) && at(&cpu, *delay) <= 1.05 * least(&cpu)
            })
        };
        vec![
            verdict(
                "T069",
                "16 times the delay gives less than 8 times the packets",
                by_mtu(&MTUS, |mtu| format!("{:.1} times", growth(mtu))),
                MTUS.iter().all(|mtu| growth(*mtu) < 8.0),
            ),
            near("T070", &LARGE),
            near("T071", &MTUS[..1]),
            verdict(
                "T072",
                "a twentieth lost within a factor of two of 80",
                by_mtu(&MTUS, |mtu| units(onset(&rate(mtu)))),
                MTUS.iter()
                    .all(|mtu| onset(&rate(*mtu)).is_some_and(|at| is_near(at, number("T072")))),
            ),
            verdict(
                "T073",
                "from 160 to 640 CPU falls as the rate does, more than its time for a MB",
                by_mtu(&MTUS, |mtu| {
                    let [rate, busy, cpu] = [RATE, BUSY, CPU].map(|it| 100.0 * drops(mtu, it));
                    format!("rate to {rate:.0} %, CPU to {busy:.0} %, of a MB to {cpu:.0} %")
                }),
                MTUS.iter().all(|mtu| {
                    drops(*mtu, BUSY) < KEPT
                        && drops(*mtu, BUSY) < drops(*mtu, CPU)
                        && drops(*mtu, RATE) < drops(*mtu, CPU)
                }),
            ),
            verdict(
                "T074",
                "least CPU for a MB within a factor of two of 320",
                by_mtu(&MTUS, |mtu| cheapest(&cpu(mtu)).to_string()),
                MTUS.iter().all(|mtu| is_near(cheapest(&cpu(*mtu)), number("T074"))),
            ),
            verdict(
                "T075",
                "no delay has 95 % of the best rate within 5 % of the least CPU",
                by_mtu(&MTUS, |mtu| String::from(if joint(&mtu) { "one has" } else { "none" })),
                !MTUS.iter().any(joint),
            ),
        ]
    }

    fn tcp3(&self) -> Vec<Verdict> {
        let rate = |mtu| self.curve(Flow::Tcp3, mtu, 2_000, RATE);
        let ten = |mtu| self.curve(Flow::Tcp10, mtu, 4_000, RATE);
        let (decay, good) = (self.published.number("T077"), self.published.number("T079"));
        let cpu = |mtu| {
            let curve = self.curve(Flow::Tcp3, mtu, 960, CPU);
            at(&curve, 480) / least(&curve)
        };
        let kept = |mtu| at(&rate(mtu), 480) / most(&rate(mtu));
        let narrower = |mtu: &u64| {
            onset(&rate(*mtu)).unwrap_or(u64::MAX) < onset(&ten(*mtu)).unwrap_or(u64::MAX)
        };
        vec![
            verdict(
                "T076",
                "its loss begins sooner",
                by_mtu(&MTUS, |mtu| {
                    format!("{} and {}", units(onset(&rate(mtu))), units(onset(&ten(mtu))))
                }),
                MTUS.iter().all(narrower),
            ),
            verdict(
                "T077",
                "a twentieth lost within a factor of two of 320",
                by_mtu(&MTUS, |mtu| units(onset(&rate(mtu)))),
                MTUS.iter().all(|mtu| onset(&rate(*mtu)).is_some_and(|at| is_near(at, decay))),
            ),
            verdict(
                "T079",
                format!("CPU for a MB at {good} within 10 % of the least"),
                by_mtu(&MTUS, |mtu| format!("{:+.1} %", 100.0 * (cpu(mtu) - 1.0))),
                MTUS.iter().all(|mtu| cpu(*mtu) <= 1.10),
            ),
            verdict(
                "T080",
                "at 480 still 85 % of the best rate",
                by_mtu(&MTUS, |mtu| format!("{:.0} %", 100.0 * kept(mtu))),
                MTUS.iter().all(|mtu| kept(*mtu) >= 0.85 && cpu(*mtu) <= 1.10),
            ),
        ]
    }

    /// The cost model, and what follows from it.
    fn costs(&self, profile: &Profile) -> Vec<Verdict> {
        const EVALUATED: [(&str, f64, f64); 12] = [
            ("T093", 1_500.0, 1.0),
            ("T094", 1_500.0, 10.0),
            ("T095", 1_500.0, 40.0),
            ("T096", 3_000.0, 1.0),
            ("T097", 3_000.0, 10.0),
            ("T098", 3_000.0, 40.0),
            ("T099", 4_500.0, 1.0),
            ("T100", 4_500.0, 10.0),
            ("T101", 4_500.0, 40.0),
            ("T102", 6_000.0, 1.0),
            ("T103", 6_000.0, 10.0),
            ("T104", 6_000.0, 40.0),
        ];
        let of_profile = Abg::of(profile, self.sweep);
        let recovered = Abg::recovered(self.sweep);
        let jiffy_ns = 1e6 * self.published.number("T089");
        // Jiffies for a million bytes, for a thousand packets and for a thousand interrupts.
        let published = |id, each: f64| self.published.number(id) * jiffy_ns / each;
        let is_within = |seen: f64, wanted: f64| (seen / wanted - 1.0).abs() <= WITHIN;
        let cost = |id, published: f64, pick: fn(&Abg) -> f64| {
            let wanted = format!(
                "within 15 % of {published} ns as published and {} ns of the profile",
                (1e3 * pick(&of_profile)).round() / 1e3
            );
            let seen = recovered.as_ref().map(pick);
            verdict(
                id,
                wanted,
                seen.map_or_else(|| String::from("not identified"), |ns| format!("{ns:.3} ns")),
                seen.is_some_and(|ns| is_within(ns, published) && is_within(ns, pick(&of_profile))),
            )
        };
        let mut verdicts = vec![
            cost("T083", published("T083", 1e6), |abg| abg.a),
            cost("T084", published("T084", 1e3), |abg| abg.b),
            cost("T085", published("T085", 1e3), |abg| abg.g),
        ];
        let abg = recovered.unwrap_or(Abg { a: 0.0, b: 0.0, g: 0.0 });
        verdicts.extend(EVALUATED.map(|(id, mtu, batch)| {
            let jiffies = abg.us_per_mb(mtu, batch) * 1e3 / jiffy_ns;
            let wanted = self.published.number(id);
            verdict(
                id,
                format!("within 15 % of {wanted}, from the recovered costs"),
                format!("{jiffies:.4}"),
                is_within(jiffies, wanted),
            )
        }));
        // What is left of the CPU time of a MB without its interrupts.
        let rest = |delay: u64| {
            let seen = self.delayed(Flow::Udp10, 1_500, delay);
            let packets = 1e6 / 1_472.0;
            seen.busy_us_per_mb - 1e-3 * abg.g * packets / seen.packets_per_interrupt
        };
        let rests: Curve = [10, 40, 160, SWEEP].map(|delay| (delay, rest(delay))).to_vec();
        let by_mtu = abg.us_per_mb(1_500.0, 10.0) - abg.us_per_mb(6_000.0, 10.0);
        let by_batch = abg.us_per_mb(1_500.0, 10.0) - abg.us_per_mb(1_500.0, 40.0);
        verdicts.push(verdict(
            "T087",
            "without interrupts a MB costs the same at every delay, within 5 % (UDP, MTU 1500)",
            format!("{:.0} to {:.0} us", least(&rests), most(&rests)),
            most(&rests) <= 1.05 * least(&rests),
        ));
        verdicts.push(verdict(
            "T088",
            "four times the MTU saves more than four times the packets per interrupt",
            format!("{by_mtu:.0} and {by_batch:.0} us/MB"),
            by_mtu > by_batch,
        ));
        verdicts
    }

    fn summary(&self) -> Vec<Verdict> {
        const FLOWS: [Flow; 4] = [Flow::Udp10, Flow::Tcp10, Flow::Tcp3, Flow::Nfs];
        let fine = |flow: &Flow| {
            let delay = match flow {
                Flow::Udp10 | Flow::Tcp10 => SWEEP,
                Flow::Tcp3 => 320,
                Flow::Nfs | Flow::NfsSlowDisk => 40,
            };
            MTUS.windows(2).all(|pair| {
                let [small, large] = [pair[0], pair[1]].map(|mtu| self.delayed(*flow, mtu, delay));
                large.goodput_mbps >= 0.995 * small.goodput_mbps
                    && large.busy_us_per_mb <= small.busy_us_per_mb
            })
        };
        let falls = |flow: &Flow| {
            MTUS.iter().all(|mtu| never_rises(&self.curve(*flow, *mtu, SWEEP, BUSY), 0.5))
        };
        let named = |is_good: &dyn Fn(&Flow) -> bool| {
            let bad: Vec<String> = FLOWS
                .iter()
                .filter(|flow| !is_good(flow))
                .map(|flow| format!("{flow:?}"))
                .collect();
            if bad.is_empty() { String::from("none") } else { bad.join(", ") }
        };
        let kept = |flow: Flow, end: u64| {
            let curve = self.curve(flow, 1_500, end, RATE);
            curve.last().map_or(0.0, |last| last.1) / most(&curve)
        };
        let (udp, tcp3, nfs) =
            (kept(Flow::Udp10, 2_000), kept(Flow::Tcp3, 2_000), kept(Flow::Nfs, 960));
        vec![
            verdict(
                "T105",
                "no load loses rate or needs more CPU for a MB, at the longest delay that costs it nothing by the slides (640, 320, 40)",
                format!("loads that do: {}", named(&fine)),
                FLOWS.iter().all(fine),
            ),
            verdict(
                "T106",
                "no load's CPU share rises by half a point",
                format!("loads that do: {}", named(&falls)),
                FLOWS.iter().all(falls),
            ),
            verdict(
                "T107",
                "some loads lose half of their rate, another nothing",
                format!(
                    "kept at their longest delay: UDP {:.0} %, three TCP {:.0} %, NFS {:.0} %",
                    100.0 * udp,
                    100.0 * tcp3,
                    100.0 * nfs
                ),
                udp > BEST && tcp3 < 0.5 && nfs < 0.5,
            ),
        ]
    }
}
