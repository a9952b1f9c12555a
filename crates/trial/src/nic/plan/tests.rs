//! Plans of drawn interfaces, and the levels of known ones.

use std::collections::BTreeSet;

use latput_knobs::ValueKind;
use latput_units::{CpuId, CpuSet, SeededRng};

use super::*;
use crate::Plan;
use crate::nic::NicKnob;
use crate::observation::Role;
use crate::plan::Design;

#[test]
fn plan_of_any_interface_parses() {
    let mut made = 0;
    for seed in 0..500 {
        let nic = drawn(seed);
        let Ok(text) = nic.plan() else { continue };
        made += 1;
        let plan = Plan::parse("nic.toml", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let settings = plan.settings();
        assert!((2..=MOST_SETTINGS).contains(&settings.len()), "{seed}: {}", settings.len());
        let labels: BTreeSet<&str> = settings.iter().map(|set| set.label.as_str()).collect();
        assert_eq!(labels.len(), settings.len(), "{seed}: two settings have one label");
        assert!(
            !settings[0].by_role.contains_key(&Role::Generator),
            "only the system under test is set"
        );
        for (knob, value) in &settings[0].by_role[&Role::Sut] {
            assert_eq!(Some(value), nic.today(*knob).as_ref(), "{seed}: {knob}");
        }
        for factor in &plan.factors {
            assert!((2..=6).contains(&factor.levels.len()), "{seed}: {}", factor.name());
            for (target, values) in factor.targets.iter().zip(columns(&factor.levels)) {
                let (min, max) = nic.settable(target.knob).unwrap().range;
                let is_beyond =
                    |value: &&Value| matches!(value, Value::Count(n) if !(min..=max).contains(n));
                let today = nic.today(target.knob).unwrap();
                let beyond = values.iter().filter(|value| **value != today).find(is_beyond);
                assert_eq!(beyond, None, "{seed}: {}", target.knob);
            }
        }
        let is_searched = plan.method.design == Some(Design::Search);
        assert_eq!(is_searched, settings.len() >= FEWEST_SEARCHED, "{seed}");
        assert!(!plan.method.allow_link_reset);
    }
    assert!(made > 400, "{made} of 500");
}

#[test]
fn levels_are_multiples_around_today_and_off() {
    let mut nic = nic(&[(Knob::RxUsecs, "40us"), (Knob::AdaptiveRx, "on"), (Knob::RxFrames, "8")]);
    nic.interface = "eth7".to_owned();
    let expected = [
        ["40us", "on", "8"],
        ["40us", "off", "8"],
        ["0us", "off", "1"],
        ["10us", "off", "8"],
        ["160us", "off", "8"],
    ];
    check(&nic, "sut.rx-usecs + sut.adaptive-rx + sut.rx-frames", &expected);
    // e1000e's 3 is a mode, and so would 1 and 4 be.
    check(
        &self::nic(&[(Knob::RxUsecs, "3us")]),
        "sut.rx-usecs",
        &[["3us"], ["0us"], ["20us"], ["100us"]],
    );
    let mut ring = self::nic(&[(Knob::RxRing, "256")]);
    ring.knobs[0].range.1 = 512;
    check(&ring, "sut.rx-ring", &[["256"], ["64"], ["512"]]);
    let deferral = self::nic(&[(Knob::GroFlushTimeout, "80us"), (Knob::NapiDeferHardIrqs, "2")]);
    let expected = [["80us", "2"], ["0us", "0"], ["20us", "100"], ["320us", "100"]];
    check(&deferral, "sut.gro-flush-timeout + sut.napi-defer-hard-irqs", &expected);
}

#[test]
fn single_coalescing_field_is_a_factor() {
    // virtio-net has packets alone, igc delays alone.
    let packets = [["23"], ["1"], ["5"], ["92"]];
    check(&nic(&[(Knob::RxFrames, "23")]), "sut.rx-frames", &packets);
    check(&nic(&[(Knob::TxFrames, "23")]), "sut.tx-frames", &packets);
    check(&nic(&[(Knob::RxFrames, "1")]), "sut.rx-frames", &[["1"], ["8"], ["32"]]);
    check(&nic(&[(Knob::RxFrames, "0")]), "sut.rx-frames", &[["0"], ["1"], ["8"], ["32"]]);
    let adaptive = nic(&[(Knob::RxFrames, "23"), (Knob::AdaptiveRx, "on")]);
    let expected = [["23", "on"], ["23", "off"], ["1", "off"], ["5", "off"], ["92", "off"]];
    check(&adaptive, "sut.rx-frames + sut.adaptive-rx", &expected);
    let delays = nic(&[(Knob::RxUsecs, "3us"), (Knob::TxUsecs, "3us")]);
    for name in ["sut.rx-usecs", "sut.tx-usecs"] {
        check(&delays, name, &[["3us"], ["0us"], ["20us"], ["100us"]]);
    }
    // Beside a delay it moves with that.
    let mut both = nic(&[(Knob::RxUsecs, "40us"), (Knob::RxFrames, "8")]);
    assert!(!both.plan().unwrap().contains("\"sut.rx-frames"));
    both.knobs[0].obstacle = Some("n/a".to_owned());
    let text = both.plan().unwrap();
    assert_eq!(text.matches("\"sut.rx-frames\" = [").count(), 1, "{text}");
    assert_eq!(text.matches("# - rx-usecs: n/a\n").count(), 1, "{text}");
    assert_eq!(text.matches("# - tx-frames: ").count(), 1, "{text}");
}

#[test]
fn queues_and_cpus_decide_on_steering() {
    let mut one_queue = nic(&[(Knob::RpsCpus, "none"), (Knob::SmpAffinity, "0-3")]);
    check(&one_queue, "sut.rps-cpus", &[["none"], ["0-3"]]);
    check(&one_queue, "sut.smp-affinity", &[["0-3"], ["0"], ["3"]]);
    for knob in &mut one_queue.knobs {
        knob.places = 4;
    }
    assert!(one_queue.plan().is_err(), "a queue for each CPU: nothing to steer");
}

#[test]
fn fixed_knobs_are_named_with_reason() {
    let mut nic = nic(&[(Knob::Gro, "on"), (Knob::Lro, "off"), (Knob::RxRing, "256")]);
    nic.knobs[1].obstacle = Some("the driver\ncannot change it".to_owned());
    nic.knobs[2].values.push(Value::Count(512));
    let text = nic.plan().unwrap();
    assert!(text.contains("# - lro: the driver cannot change it\n"), "{text}");
    assert!(text.contains("# - rx-ring: its 1 places have 2 different values"), "{text}");
    assert!(text.contains("\"sut.gro\" = ["), "{text}");
    nic.knobs.remove(0);
    let nothing = nic.plan().unwrap_err();
    assert!(
        nothing.contains("nothing that a plan could vary") && nothing.contains("lro:"),
        "{nothing}"
    );
}

#[test]
fn change_that_takes_the_link_down_is_marked() {
    let mut nic = nic(&[(Knob::RxRing, "256"), (Knob::Gro, "on")]);
    nic.knobs[0].resets_link = true;
    let text = nic.plan().unwrap();
    assert!(
        text.contains("(disruptive; link reset: rx-ring takes the link down and up)"),
        "{text}"
    );
    assert!(text.contains("(brief)"), "{text}");
}

#[test]
fn what_belongs_to_the_interface_below_is_said() {
    let mut vlan = nic(&[(Knob::Gro, "on")]);
    (vlan.driver, vlan.lower) = ("vlan".to_owned(), vec!["eth0".to_owned()]);
    let text = vlan.plan().unwrap();
    assert!(
        text.contains("eth0 (vlan) is on top of eth0") && text.contains("`latput plan nic eth0`"),
        "{text}"
    );
    let mut function = nic(&[(Knob::Gro, "on")]);
    function.physical_function = Some("pf0".to_owned());
    assert!(function.plan().unwrap().contains("the physical function pf0"));
}

#[test]
fn hostile_names_stay_in_comments() {
    let mut nic = nic(&[(Knob::Gro, "on")]);
    nic.interface = "a\"\n[x]\\".to_owned();
    nic.driver = "d\nmethod = 1".to_owned();
    let text = nic.plan().unwrap();
    assert_eq!(Plan::parse("nic.toml", &text).unwrap().name, "settings of a\"\n[x]\\");
}

#[track_caller]
fn check<const N: usize>(nic: &Nic, name: &str, expected: &[[&str; N]]) {
    let text = nic.plan().unwrap();
    let plan = Plan::parse("nic.toml", &text).unwrap();
    let factor = plan
        .factors
        .iter()
        .find(|factor| factor.name() == name)
        .unwrap_or_else(|| panic!("{text}"));
    let levels: Vec<Vec<String>> =
        factor.levels.iter().map(|level| level.iter().map(ToString::to_string).collect()).collect();
    assert_eq!(levels, expected);
}

fn columns(levels: &[Vec<Value>]) -> Vec<Vec<Value>> {
    (0..levels[0].len()).map(|at| levels.iter().map(|level| level[at].clone()).collect()).collect()
}

fn nic(knobs: &[(Knob, &str)]) -> Nic {
    let knob = |&(knob, value): &(Knob, &str)| NicKnob {
        knob,
        values: vec![knob.parse_value(value).unwrap()],
        places: 1,
        obstacle: None,
        range: (knob.spec().min, knob.spec().max),
        resets_link: false,
    };
    Nic {
        interface: "eth0".to_owned(),
        driver: "drawn".to_owned(),
        cpus: "0-3".parse().unwrap(),
        knobs: knobs.iter().map(knob).collect(),
        ..Nic::default()
    }
}

/// An interface with any knobs, values and limits.
fn drawn(seed: u64) -> Nic {
    let mut rng = SeededRng::from_seed(seed);
    let cpus: CpuSet = (0..=8).take(1 + drawn_size(&mut rng, 9)).map(CpuId).collect();
    let mut knobs = Vec::new();
    for &knob in Knob::ALL {
        let spec = knob.spec();
        let mut draw = |below: u64| rng.next_u64() % below.max(1);
        let size = 1 << draw(24);
        let number = spec.min + draw(size).min(spec.max - spec.min);
        let value = match spec.kind {
            ValueKind::Count => Value::Count(number),
            ValueKind::Time => Value::Time(spec.time_unit().saturating_mul(number)),
            ValueKind::Switch => Value::Switch(draw(2) == 0),
            ValueKind::Cpus => Value::Cpus((0..4).take_while(|_| draw(3) > 0).map(CpuId).collect()),
            _ => continue,
        };
        let most = if draw(2) == 0 { spec.max } else { number + draw(4096).min(spec.max - number) };
        knobs.push(NicKnob {
            knob,
            values: if draw(8) == 0 { Vec::new() } else { vec![value] },
            places: [1, 2, 8][usize::from(draw(2) == 0) + usize::from(draw(2) == 0)],
            obstacle: (draw(4) == 0).then(|| "no\tsuch\nthing".to_owned()),
            range: (spec.min, most),
            resets_link: draw(2) == 0,
        });
    }
    let lower = if seed.is_multiple_of(5) { vec!["eth9".to_owned()] } else { Vec::new() };
    Nic {
        interface: "eth0".to_owned(),
        driver: "drawn".to_owned(),
        lower,
        cpus,
        knobs,
        ..Nic::default()
    }
}

fn drawn_size(rng: &mut SeededRng, below: u64) -> usize {
    usize::try_from(rng.next_u64() % below).unwrap()
}

#[test]
fn veth_varies_its_napi_or_gro() {
    let mut veth = nic(&[(Knob::Gro, "off"), (Knob::Threaded, "off")]);
    veth.driver = "veth".to_owned();
    let text = veth.plan().unwrap();
    assert!(text.contains("\"sut.gro\" = [\n    [\"off\"], # today\n    [\"on\"],\n]"), "{text}");
    assert!(!text.contains("\"sut.threaded\"") && text.contains("# - threaded: a veth"), "{text}");
    let on = [(Knob::Gro, "on"), (Knob::GroFlushTimeout, "0us"), (Knob::NapiDeferHardIrqs, "0")];
    let mut veth = nic(&on);
    veth.driver = "veth".to_owned();
    let text = veth.plan().unwrap();
    assert!(!text.contains("\"sut.gro\"") && text.contains("\"sut.gro-flush-timeout +"), "{text}");
    assert!(text.contains("--factor sut.gro=on,off` varies it alone"), "{text}");
}

#[test]
fn small_plan_keeps_the_first_factors() {
    let of = [
        (Knob::GroFlushTimeout, "0us"),
        (Knob::NapiDeferHardIrqs, "0"),
        (Knob::Gro, "on"),
        (Knob::Tso, "on"),
    ];
    let nic = nic(&of);
    let plan = |size| Plan::parse("plan.toml", &nic.plan_of(size).unwrap()).unwrap();
    let (mut size, mut found) = (PlanSize::WHOLE, Vec::new());
    loop {
        let plan = plan(size);
        let levels = plan.factors.iter().map(|factor| factor.levels.len()).max().unwrap();
        let factors = plan.factors.len();
        found.push((factors, levels));
        let Some(smaller) = PlanSize::smaller(factors, levels) else { break };
        size = smaller;
    }
    assert_eq!(found, [(3, 4), (2, 4), (1, 4), (1, 3), (1, 2)]);
    assert_eq!(plan(size).factors[0].name(), "sut.gro-flush-timeout + sut.napi-defer-hard-irqs");
    let text = nic.plan_of(size).unwrap();
    assert!(text.contains("# \"sut.gro\" = ["), "{text}");
}
