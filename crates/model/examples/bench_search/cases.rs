//! The simulated hosts, the traffic and the goals that searches are compared on.

use latput_model::Goal;
use latput_model::goal::OptimizeDirection;
use latput_trial::{Metric, Plan, Workload};

use crate::table::FigureTable;

/// Systems, each with the interrupt and RPS masks of its first and its other CPUs, and whether its
/// stack has segmentation offloads today.
const SYSTEMS: [SimulatedSystem; 5] = [
    SimulatedSystem {
        name: "server-10g",
        text: include_str!("../../../../data/systems/server-10g.toml"),
        rps: ["2", "1-3"],
        gro: true,
    },
    SimulatedSystem {
        name: "hs22-ixgbe",
        text: include_str!("../../../../data/systems/hs22-ixgbe.toml"),
        rps: ["1", "1-15"],
        gro: true,
    },
    SimulatedSystem {
        name: "bl25p-tg3",
        text: include_str!("../../../../data/systems/bl25p-tg3.toml"),
        rps: ["2", "0-3"],
        gro: false,
    },
    SimulatedSystem {
        name: "rx1620-e1000",
        text: include_str!("../../../../data/systems/rx1620-e1000.toml"),
        rps: ["0", "0-1"],
        gro: false,
    },
    SimulatedSystem {
        name: "rx1600-tg3-2.6.12",
        text: include_str!("../../../../data/systems/rx1600-tg3-2.6.12.toml"),
        rps: ["0", "0-1"],
        gro: false,
    },
];

/// One simulated host pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SimulatedSystem {
    pub(crate) name: &'static str,
    /// Its profile.
    pub(crate) text: &'static str,
    /// Masks to try beside none.
    rps: [&'static str; 2],
    /// Whether GRO is on today.
    gro: bool,
}

/// The traffic, one workload to a case.
const WORKLOADS: [(&str, &str); 6] = [
    ("rr", "kind = \"tcp_rr\""),
    ("rr-burst", "kind = \"tcp_rr\"\nburst = 16"),
    ("rr-many", "kind = \"tcp_rr\"\nrequest_bytes = 128\nresponse_bytes = 8192\nconnections = 8"),
    ("stream", "kind = \"tcp_stream\"\nprobe_hz = 10000"),
    ("udp", "kind = \"udp_stream\"\nrate = \"300Mbps\"\nprobe_hz = 10000"),
    ("reads", "kind = \"rpc_read\"\noutstanding = 2"),
];

/// Systems and traffic that the search was not shaped on.
const SYSTEMS_HELD_OUT: [SimulatedSystem; 3] = [
    SimulatedSystem {
        name: "rx1620-s2io",
        text: include_str!("../../../../data/systems/rx1620-s2io.toml"),
        rps: ["0", "0-1"],
        gro: false,
    },
    SimulatedSystem {
        name: "rx1600-e1000",
        text: include_str!("../../../../data/systems/rx1600-e1000.toml"),
        rps: ["0", "0-1"],
        gro: false,
    },
    SimulatedSystem {
        name: "rx1620-e1000-7",
        text: include_str!("../../../../data/systems/rx1620-e1000-7.toml"),
        rps: ["0", "0-1"],
        gro: false,
    },
];
const WORKLOADS_HELD_OUT: [(&str, &str); 4] = [
    ("rr-burst4", "kind = \"tcp_rr\"\nburst = 4"),
    ("rr-1k", "kind = \"tcp_rr\"\nrequest_bytes = 1024\nresponse_bytes = 1024\nconnections = 4"),
    ("udp-100", "kind = \"udp_stream\"\nrate = \"100Mbps\"\nprobe_hz = 10000"),
    ("reads6", "kind = \"rpc_read\"\noutstanding = 6"),
];

/// Which cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CaseSet {
    /// Those that the search was shaped on.
    Known,
    /// Others.
    HeldOut,
    /// The lab's hosts, as they were measured.
    Recorded,
}

impl CaseSet {
    pub(crate) const fn systems(self) -> &'static [SimulatedSystem] {
        match self {
            Self::Known => &SYSTEMS,
            Self::HeldOut => &SYSTEMS_HELD_OUT,
            Self::Recorded => &[],
        }
    }

    /// A name and a text each.
    pub(crate) const fn workloads(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Known => &WORKLOADS,
            Self::HeldOut => &WORKLOADS_HELD_OUT,
            Self::Recorded => &[],
        }
    }

    /// The plan of a table with a goal, if the set has it.
    pub(crate) fn find_plan(self, table: &FigureTable, goal: &str) -> Option<Plan> {
        if self == Self::Recorded {
            let mut plan = load_recorded_plan(&table.workload)?;
            set_search_goal(&mut plan, goal);
            return Some(plan);
        }
        let system = self.systems().iter().find(|one| one.name == table.system)?;
        let workload = self.workloads().iter().find(|one| one.0 == table.workload)?;
        Some(make_plan(system, workload.1, Some(goal)))
    }
}

/// The plan that was measured on the lab, with one of its workloads.
pub(crate) fn load_recorded_plan(workload: &str) -> Option<Plan> {
    let text = include_str!("../../../../data/search/lab.toml");
    let mut plan = Plan::parse("lab.toml", text).expect("the lab's plan reads");
    plan.workloads.retain(|one| one.name == workload);
    (!plan.workloads.is_empty()).then_some(plan)
}

/// Makes it a search for a goal.
fn set_search_goal(plan: &mut Plan, goal: &str) {
    let tail = workload_metrics(&plan.workloads[0])[1].name();
    plan.goal = Some(goal.replace("TAIL", tail));
    plan.method.design = Some(latput_trial::plan::Design::Search);
}

/// The goals: `TAIL` is the tail that the workload has.
pub(crate) const GOALS: [(&str, &str); 3] = [
    ("latency", "minimize TAIL"),
    ("cpu", "minimize sut_service_demand_us where rate >= 0.95 first"),
    ("balanced", "minimize TAIL * sut_service_demand_us where rate >= 0.95 best"),
];

/// The figures that a trial gives here, in the order of tables.
pub(crate) const FIGURES: usize = 3;

/// The rate, the tail and the CPU cost of a workload.
pub(crate) fn workload_metrics(workload: &Workload) -> [Metric; FIGURES] {
    if workload.traffic.is_transactional() {
        return [Metric::TransactionsPerS, Metric::LatencyNsP99, Metric::SutServiceDemandUs];
    }
    let tail = if workload.probe.is_some() { Metric::ProbeNsP99 } else { Metric::LatencyNsP99 };
    [Metric::ThroughputBps, tail, Metric::SutServiceDemandUs]
}

/// The plan of one case; the first level of each factor is today's.
pub(crate) fn make_plan(system: &SimulatedSystem, workload: &str, goal: Option<&str>) -> Plan {
    let (gro, [one, all]) = (system.gro, system.rps);
    let text = format!(
        r#"
        schema = 1
        name = "{name}"
        [factors]
        "sut.gro-flush-timeout + sut.napi-defer-hard-irqs" = [
            ["0us", 0], ["10us", 100], ["20us", 100], ["35us", 100], ["50us", 100], ["80us", 100],
            ["125us", 100], ["250us", 100]]
        mtu = [1500, 9000]
        "sut.rps-cpus" = ["none", "{one}", "{all}"]
        "sut.gro" = [{gro}, {other}]
        "sut.threaded" = [false, true]
        [[workload]]
        {workload}
        [method]
        warmup = "20ms"
        duration = "{window}"
        "#,
        name = system.name,
        other = !gro,
        // These many packets give a tail; more would only take longer.
        window = if system.gro && !workload.contains("tcp_rr\"") { "60ms" } else { "200ms" },
    );
    let mut plan = Plan::parse("case", &text).expect("the cases are plans");
    if let Some(goal) = goal {
        set_search_goal(&mut plan, goal);
    }
    plan
}

/// A goal in terms of [`FIGURES`]: which of them the cost is made of, and which is bounded.
#[derive(Clone, Debug)]
pub(crate) struct GoalTerms {
    /// Figures whose logarithms add up to the cost.
    pub(crate) cost: Vec<usize>,
    /// The bound on the rate, as a share of its best or of today's.
    pub(crate) limit: Option<RateLimit>,
}

/// A bound from below on the rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateLimit {
    pub(crate) of_best: bool,
    pub(crate) share: f64,
}

impl GoalTerms {
    /// Of a case's plan.
    pub(crate) fn from_plan(plan: &Plan) -> Self {
        let workload = &plan.workloads[0];
        let goal = Goal::parse(plan.goal.as_ref().expect("a case has a goal")).expect("it reads");
        assert_eq!(goal.direction, OptimizeDirection::Minimize, "costs are minimised here");
        let figures = workload_metrics(workload);
        let index = |metric| figures.iter().position(|one| *one == metric).expect("a figure");
        let cost =
            goal.objective.iter().map(|figure| index(figure.measure.metric_for(&workload.traffic)));
        let limit = goal.conditions.first().map(|condition| {
            assert_eq!(
                index(condition.figure.measure.metric_for(&workload.traffic)),
                0,
                "of the rate"
            );
            let of_best = condition.reference == Some(latput_model::goal::LimitReference::Best);
            RateLimit { of_best, share: condition.number }
        });
        Self { cost: cost.collect(), limit }
    }
}
