//! A simulated host: CPU costs, NIC and network stack.
//!
//! A system profile (`data/systems/*.toml`) or a test fills these structs.

use latput_policy::dim;
use latput_policy::polling::PollingSysctls;
use latput_units::{BitsPerSecond, Bytes, Nanos};
use serde::{Deserialize, Serialize};

use crate::bus::Bus;
use crate::vector::Coalescing;

/// CPU time of each operation of a host. An operation that a profile does not name costs nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, bound(serialize = "T: Default + PartialEq + Serialize"))]
pub struct CpuCosts<T = Nanos> {
    /// One hardware interrupt: entry, acknowledge, schedule the poll, exit.
    #[serde(rename = "interrupt_ns")]
    pub interrupt: T,
    /// One poll of a queue, whatever it finds.
    #[serde(rename = "poll_ns")]
    pub poll: T,
    /// One received packet in the driver and the lower stack.
    #[serde(rename = "rx_packet_ns")]
    pub rx_packet: T,
    /// Extra cost of the first packet of a poll, whose code is not in the caches.
    #[serde(rename = "rx_first_ns")]
    pub rx_first: T,
    /// Extra cost of a packet for a socket. Acknowledgements without data end in the protocol.
    #[serde(rename = "rx_data_ns")]
    pub rx_data: T,
    /// One packet handed to the stack, after GRO has merged what it can.
    #[serde(rename = "rx_merged_ns")]
    pub rx_merged: T,
    /// Extra cost of a received packet when its process last ran on another core. Acknowledgements
    /// without data do not touch the process.
    #[serde(rename = "rx_remote_ns")]
    pub rx_remote: T,
    /// One transmit completion.
    #[serde(rename = "tx_completion_ns")]
    pub tx_completion: T,
    /// Extra cost, on the interrupts' core, of a message from a process on another core: its memory
    /// is freed there.
    #[serde(rename = "tx_remote_ns")]
    pub tx_remote: T,
    /// One packet (with TSO one chunk) from the socket to the NIC.
    #[serde(rename = "tx_packet_ns")]
    pub tx_packet: T,
    /// One acknowledgement without data, made and sent.
    #[serde(rename = "ack_ns")]
    pub ack: T,
    /// One send or receive call.
    #[serde(rename = "syscall_ns")]
    pub syscall: T,
    /// User code per message or transaction.
    #[serde(rename = "user_ns")]
    pub user: T,
    /// Copying 1024 bytes between a process and the kernel.
    #[serde(rename = "copy_ns_per_kib")]
    pub copy_per_kib: T,
    /// Putting a sleeping process on a core.
    #[serde(rename = "wake_ns")]
    pub wake: T,
    /// Extra cost when another core woke the process: an inter-processor interrupt and the start of
    /// an idle core.
    #[serde(rename = "wake_remote_ns")]
    pub wake_remote: T,
    /// Putting an idle process to sleep. It still handles packets that come meanwhile.
    #[serde(rename = "sleep_ns")]
    pub sleep: T,
    /// Extra cost of a message when the process and its interrupts use different cores.
    #[serde(rename = "cross_core_ns")]
    pub cross_core: T,
    /// Cost of an interrupt to the interrupted process, beside its own time (cold caches).
    #[serde(rename = "preempted_ns")]
    pub preempted: T,
    /// A timer interrupt (deferral timer, polling tick).
    #[serde(rename = "timer_ns")]
    pub timer: T,
    /// Setting the deferral timer at the end of a poll. In a virtual machine the hypervisor does
    /// it. 0 if absent.
    #[serde(rename = "timer_arm_ns", skip_serializing_if = "is_nothing")]
    pub timer_arm: T,
    /// Enabling a queue's interrupts at the end of a poll: doorbells of its completion queues, and the sample of
    /// adaptive moderation. An epoll server only ([`crate::epoll_server`]), as the next two.
    #[serde(rename = "rearm_ns", skip_serializing_if = "is_nothing")]
    pub rearm: T,
    /// Extra cost of a received packet that is of another socket than the one before.
    #[serde(rename = "rx_socket_ns", skip_serializing_if = "is_nothing")]
    pub rx_socket: T,
    /// Extra cost of reading a message whose socket has left the cache, since many others came before it was read.
    #[serde(rename = "read_cold_ns", skip_serializing_if = "is_nothing")]
    pub read_cold: T,
    /// An interrupt from another core (RPS).
    #[serde(rename = "ipi_ns")]
    pub ipi: T,
    /// One packet through the backlog of another core (RPS), beside [`Self::rx_merged`].
    #[serde(rename = "backlog_packet_ns")]
    pub backlog_packet: T,
    /// Each cost varies uniformly by up to this share.
    pub jitter_ratio: f64,
}

impl<T: Copy> CpuCosts<T> {
    /// The same costs in another unit or at another scale.
    pub fn map<U>(&self, convert: impl Fn(T) -> U) -> CpuCosts<U> {
        CpuCosts {
            interrupt: convert(self.interrupt),
            poll: convert(self.poll),
            rx_packet: convert(self.rx_packet),
            rx_first: convert(self.rx_first),
            rx_data: convert(self.rx_data),
            rx_merged: convert(self.rx_merged),
            rx_remote: convert(self.rx_remote),
            tx_completion: convert(self.tx_completion),
            tx_remote: convert(self.tx_remote),
            tx_packet: convert(self.tx_packet),
            ack: convert(self.ack),
            syscall: convert(self.syscall),
            user: convert(self.user),
            copy_per_kib: convert(self.copy_per_kib),
            wake: convert(self.wake),
            wake_remote: convert(self.wake_remote),
            sleep: convert(self.sleep),
            cross_core: convert(self.cross_core),
            preempted: convert(self.preempted),
            timer: convert(self.timer),
            timer_arm: convert(self.timer_arm),
            rearm: convert(self.rearm),
            rx_socket: convert(self.rx_socket),
            read_cold: convert(self.read_cold),
            ipi: convert(self.ipi),
            backlog_packet: convert(self.backlog_packet),
            jitter_ratio: self.jitter_ratio,
        }
    }
}

fn is_nothing<T: Default + PartialEq>(cost: &T) -> bool {
    *cost == T::default()
}

/// Placement of a woken process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WakePlacement {
    /// The core that takes the interrupt if no process is there, else its last one, else any free one.
    #[default]
    InterruptCoreFirst,
    /// Its last core if it is free, else any free one.
    LastCoreFirst,
}

/// The processor and its scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Machine {
    /// Number of cores.
    pub cores: u32,
    /// CPU costs.
    pub costs: CpuCosts,
    /// Start time of an idle core (C-state exit); counted as idle.
    #[serde(rename = "idle_exit_ns")]
    pub idle_exit: Nanos,
    /// CPU time by which a running process may exceed a waiting one before it is preempted.
    #[serde(rename = "time_slice_ns")]
    pub time_slice: Nanos,
    /// Placement of woken processes.
    pub placement: WakePlacement,
    /// How long a process waits for its own core and that of the interrupt if both are busy, before
    /// an idle core takes it at its next load balancing. It moves at once if absent.
    #[serde(rename = "steal_after_ns", skip_serializing_if = "Option::is_none")]
    pub steal_after: Option<Nanos>,
    /// The deviation of the NIC's clock, parts per million.
    ///
    /// The phase of two free-running throttles shifts as their clocks differ. Crystals differ by
    /// tens of parts per million, so a run of minutes covers every phase, but a simulated fraction
    /// of a second covers one. Clocks that differ by thousands make up for the short run: two
    /// periods of 477 us that differ by 8000 pass every phase in 60 ms.
    pub clock_ppm: i32,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            cores: 1,
            costs: CpuCosts::default(),
            idle_exit: Nanos::ZERO,
            time_slice: Nanos::from_ms(3),
            placement: WakePlacement::default(),
            steal_after: None,
            clock_ppm: 0,
        }
    }
}

/// How the driver learns of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriverMode {
    /// Interrupt, mask, poll with a budget, unmask.
    #[default]
    Napi,
    /// Every interrupt empties the ring into the backlog; nothing is masked (before NAPI).
    Interrupt,
    /// FreeBSD device polling on the clock tick, no interrupts.
    Polling,
}

/// The adaptive moderation of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdaptiveModeration {
    /// Linux's library for NICs with a delay of each direction.
    Dim,
    /// The classes of e1000 and e1000e (`InterruptThrottleRate` 3, their default).
    E1000,
    /// By mean frame size, as igb does.
    Igb,
    /// The per-ring sampling of ixgbe's own driver.
    Ixgbe,
}

/// Module parameters of Intel's drivers for gigabit NICs. Those not given stay as in the profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverParameters {
    /// `InterruptThrottleRate`: interrupts per second, or a mode.
    pub interrupt_throttle_rate: Option<u32>,
    /// `RxIntDelay`, in units of 1.024 us, as the others are.
    pub rx_int_delay: Option<u32>,
    /// `RxAbsIntDelay`.
    pub rx_abs_int_delay: Option<u32>,
    /// `TxIntDelay`.
    pub tx_int_delay: Option<u32>,
    /// `TxAbsIntDelay`.
    pub tx_abs_int_delay: Option<u32>,
}

/// The NIC and its driver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a property of a NIC by itself")]
pub struct Nic {
    /// How the driver learns of packets.
    pub driver: DriverMode,
    /// Pairs of a receive and a transmit queue, each with its vector.
    pub queues: u32,
    /// Receive descriptors per queue.
    pub rx_ring: u32,
    /// Transmit descriptors per queue.
    pub tx_ring: u32,
    /// The moderation of every vector.
    pub coalescing: Coalescing,
    /// The adaptive moderation of the driver.
    pub adaptation: Option<AdaptiveModeration>,
    /// Whether it adapts the receive side, or the vector's throttle (`adaptive-rx`).
    pub adaptive_rx: bool,
    /// Whether it adapts the transmit side (`adaptive-tx`; DIM only).
    pub adaptive_tx: bool,
    /// DIM's profile points for receive, if they differ from the library's (`rx-profile`):
    /// microseconds and frames, 0 frames for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rx_profile: Option<[(u32, u32); 5]>,
    /// DIM's profile points for transmit (`tx-profile`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tx_profile: Option<[(u32, u32); 5]>,
    /// Module parameters.
    #[serde(skip)]
    pub parameters: DriverParameters,
    /// The core of each queue's interrupt. A shorter list repeats; an empty one means core 0.
    pub irq_cores: Vec<u32>,
    /// Buffer in the NIC for packets without a free descriptor.
    #[serde(rename = "fifo_bytes")]
    pub fifo: Bytes,
    /// Whether the NIC asks the sender to pause when the buffer is half full (802.3x).
    pub pause: bool,
    /// The bus between NIC and memory, if it may be a limit. Packets wait for it in the buffer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bus: Option<Bus>,
    /// Rate of both directions of its link to the switch, if it is not the network's.
    #[serde(rename = "link_bps")]
    pub link: Option<BitsPerSecond>,
    /// Whether there is no wire (veth): a sent packet is in the memory of the other end, so there
    /// are no transmit completions and no ring information.
    pub handover: bool,
}

impl Nic {
    /// The core that takes the interrupts of a queue.
    pub fn interrupt_core(&self, queue: usize) -> u32 {
        match self.irq_cores.as_slice() {
            [] => 0,
            cores => cores[queue % cores.len()],
        }
    }

    /// DIM's profile points for receive: microseconds and frames, 0 for no limit.
    pub fn rx_points(&self) -> [(u32, u32); 5] {
        self.rx_profile.unwrap_or(dim::DimProfile::RxEqe.points())
    }

    /// DIM's profile points for transmit.
    pub fn tx_points(&self) -> [(u32, u32); 5] {
        self.tx_profile.unwrap_or(dim::DimProfile::TxEqe.points())
    }
}

impl Default for Nic {
    fn default() -> Self {
        Self {
            driver: DriverMode::Napi,
            queues: 1,
            rx_ring: 256,
            tx_ring: 256,
            coalescing: Coalescing::default(),
            adaptation: None,
            adaptive_rx: false,
            adaptive_tx: false,
            rx_profile: None,
            tx_profile: None,
            parameters: DriverParameters::default(),
            irq_cores: Vec::new(),
            fifo: Bytes::new(0),
            pause: false,
            bus: None,
            link: None,
            handover: false,
        }
    }
}

/// The queue discipline of every transmit queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Qdisc {
    /// First in, first out, with tail drop (pfifo, or `pfifo_fast` with one traffic class).
    Pfifo {
        /// Most packets (`txqueuelen`).
        limit_packets: u32,
    },
    /// First in, first out, limited by bytes (bfifo).
    Bfifo {
        /// Most bytes.
        limit_bytes: Bytes,
    },
    /// Fair queues with controlled delay (RFC 8290).
    FqCodel {
        /// Most packets in all queues.
        limit_packets: u32,
        /// Acceptable standing delay.
        #[serde(rename = "target_ns")]
        target: Nanos,
        /// Time for which the delay may exceed the target.
        #[serde(rename = "interval_ns")]
        interval: Nanos,
    },
}

impl Qdisc {
    /// `pfifo_fast` with Linux's default queue length.
    pub const PFIFO_FAST: Self = Self::Pfifo { limit_packets: 1_000 };
    /// `fq_codel` with Linux's defaults.
    pub const FQ_CODEL: Self = Self::FqCodel {
        limit_packets: 10_240,
        target: Nanos::from_ms(5),
        interval: Nanos::from_ms(100),
    };
}

/// Limits of BQL, if the driver has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BqlLimits {
    /// `limit_min`.
    #[serde(rename = "least_bytes")]
    pub least: Bytes,
    /// `limit_max`.
    #[serde(rename = "most_bytes")]
    pub most: Bytes,
}

/// The network stack's settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of a host")]
pub struct NetworkStack {
    /// Most packets of one poll (`NAPI_POLL_WEIGHT`).
    pub napi_weight: u32,
    /// Most packets of one softirq run before ksoftirqd takes over.
    pub softirq_packets: u32,
    /// Longest softirq run before ksoftirqd takes over.
    #[serde(rename = "softirq_time_ns")]
    pub softirq_time: Nanos,
    /// Packets that reach the sockets together: 1 before Linux 4.19, 8 since (`gro_normal_batch`).
    pub delivery_batch: u32,
    /// Whether consecutive TCP segments of one poll are merged.
    pub gro: bool,
    /// Whether the NIC gets chunks of up to 64 KiB.
    pub tso: bool,
    /// `napi-defer-hard-irqs`.
    pub defer_hard_irqs: u32,
    /// `gro-flush-timeout`.
    #[serde(rename = "gro_flush_timeout_ns")]
    pub gro_flush_timeout: Nanos,
    /// `irq-suspend-timeout`: how long a process that prefers to poll keeps interrupts off after it
    /// found packets; 0 is off.
    #[serde(rename = "irq_suspend_timeout_ns")]
    pub irq_suspend_timeout: Nanos,
    /// Whether polling processes set `SO_PREFER_BUSY_POLL`, so that deferral does not disturb them.
    pub prefer_busy_poll: bool,
    /// `threaded`: a kernel thread per queue polls.
    pub threaded: bool,
    /// How long an idle process polls its queue before it sleeps (`SO_BUSY_POLL`); 0 is off. NAPI
    /// only.
    #[serde(rename = "busy_poll_ns")]
    pub busy_poll: Nanos,
    /// Cores that RPS spreads flows over; empty is off.
    pub rps_cores: Vec<u32>,
    /// `netdev_max_backlog`.
    pub backlog_packets: u32,
    /// The queue discipline of every transmit queue.
    pub qdisc: Qdisc,
    /// Byte queue limits.
    pub bql: Option<BqlLimits>,
    /// Socket receive buffer.
    #[serde(rename = "receive_buffer_bytes")]
    pub receive_buffer: Bytes,
    /// Socket send buffer.
    #[serde(rename = "send_buffer_bytes")]
    pub send_buffer: Bytes,
    /// Whether data is acknowledged when the process has read it and the window can move, not with
    /// every second segment. This is Linux's rule (`__tcp_ack_snd_check`); it matters when soft
    /// interrupts deliver many segments at once.
    pub acks_when_read: bool,
    /// TCP's congestion control.
    pub congestion: CongestionControl,
    /// The sysctls of FreeBSD device polling.
    #[serde(skip)]
    pub polling: PollingSysctls,
}

/// TCP congestion control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CongestionControl {
    /// RFC 5681 and RFC 6582.
    Reno,
    /// RFC 9438; Linux's default.
    #[default]
    Cubic,
}

impl NetworkStack {
    /// Whether processes prefer to poll and a timer takes over when they stop.
    pub(crate) fn prefers_with_timer(&self) -> bool {
        let defers = self.defer_hard_irqs > 0 && self.gro_flush_timeout > Nanos::ZERO;
        self.prefer_busy_poll && (defers || self.irq_suspend_timeout > Nanos::ZERO)
    }
}

impl Default for NetworkStack {
    fn default() -> Self {
        Self {
            napi_weight: 64,
            softirq_packets: 3_000,
            softirq_time: Nanos::from_ms(2),
            delivery_batch: 1,
            gro: false,
            tso: false,
            defer_hard_irqs: 0,
            gro_flush_timeout: Nanos::ZERO,
            irq_suspend_timeout: Nanos::ZERO,
            prefer_busy_poll: false,
            threaded: false,
            busy_poll: Nanos::ZERO,
            rps_cores: Vec::new(),
            backlog_packets: 1_000,
            qdisc: Qdisc::PFIFO_FAST,
            bql: None,
            receive_buffer: Bytes::new(212_992),
            send_buffer: Bytes::new(212_992),
            acks_when_read: false,
            congestion: CongestionControl::default(),
            polling: PollingSysctls::default(),
        }
    }
}
