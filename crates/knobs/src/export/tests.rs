//! Every knob in every format.

use super::*;
use crate::catalogue::Knob;

mod types;

const FORMATS: [Format; 9] = [
    Format::SystemdLink,
    Format::NetworkManager,
    Format::Ethtool,
    Format::Netplan,
    Format::Tuned,
    Format::Udev,
    Format::Nmstate,
    Format::Ansible,
    Format::CloudInit,
];

/// Word of each knob in systemd.link, a keyfile, netplan and a script. Empty: no word there.
const KNOBS: &[(&str, [&str; 4])] = &[
    ("interrupt-throttle-rate=3", ["", "", "", ""]),
    ("rx-int-delay=0", ["", "", "", ""]),
    ("rx-abs-int-delay=8", ["", "", "", ""]),
    ("tx-int-delay=8", ["", "", "", ""]),
    ("tx-abs-int-delay=32", ["", "", "", ""]),
    (
        "combined-channels=4",
        ["CombinedChannels=4", "channels-combined=4", "", "ethtool -L eth0 combined 4"],
    ),
    ("rx-channels=4", ["RxChannels=4", "channels-rx=4", "", "ethtool -L eth0 rx 4"]),
    ("tx-channels=max", ["TxChannels=max", "", "", ""]),
    ("rx-ring=512", ["RxBufferSize=512", "ring-rx=512", "", "ethtool -G eth0 rx 512"]),
    ("tx-ring=0", ["", "ring-tx=0", "", "ethtool -G eth0 tx 0"]),
    ("rx-mini-ring=8", ["RxMiniBufferSize=8", "ring-rx-mini=8", "", "ethtool -G eth0 rx-mini 8"]),
    (
        "rx-jumbo-ring=8",
        ["RxJumboBufferSize=8", "ring-rx-jumbo=8", "", "ethtool -G eth0 rx-jumbo 8"],
    ),
    ("rx-buf-len=2048", ["", "", "", "ethtool -G eth0 rx-buf-len 2048"]),
    ("cqe-size=64", ["", "", "", "ethtool -G eth0 cqe-size 64"]),
    ("tx-push=on", ["", "", "", "ethtool -G eth0 tx-push on"]),
    ("rx-push=off", ["", "", "", "ethtool -G eth0 rx-push off"]),
    ("tx-push-buf-len=96", ["", "", "", "ethtool -G eth0 tx-push-buf-len 96"]),
    ("mtu=9000", ["MTUBytes=9000", "mtu=9000", "mtu: 9000", "ip link set dev eth0 mtu 9000"]),
    (
        "pause-autoneg=off",
        ["AutoNegotiationFlowControl=no", "pause-autoneg=false", "", "ethtool -A eth0 autoneg off"],
    ),
    ("pause-rx=on", ["RxFlowControl=yes", "pause-rx=true", "", "ethtool -A eth0 rx on"]),
    ("pause-tx=on", ["TxFlowControl=yes", "pause-tx=true", "", "ethtool -A eth0 tx on"]),
    ("eee=off", ["", "eee-enabled=false", "", "ethtool --set-eee eth0 eee off"]),
    ("eee-tx-lpi=off", ["", "", "", "ethtool --set-eee eth0 tx-lpi off"]),
    ("eee-tx-lpi-timer=20us", ["", "", "", "ethtool --set-eee eth0 tx-timer 20"]),
    (
        "rx-checksum=off",
        [
            "ReceiveChecksumOffload=no",
            "feature-rx=false",
            "receive-checksum-offload: false",
            "ethtool -K eth0 rx off",
        ],
    ),
    (
        "tx-checksum=on",
        [
            "TransmitChecksumOffload=yes",
            "feature-tx=true",
            "transmit-checksum-offload: true",
            "ethtool -K eth0 tx on",
        ],
    ),
    ("sg=on", ["", "feature-sg=true", "", "ethtool -K eth0 sg on"]),
    (
        "gro=off",
        [
            "GenericReceiveOffload=no",
            "feature-gro=false",
            "generic-receive-offload: false",
            "ethtool -K eth0 gro off",
        ],
    ),
    (
        "gso=off",
        [
            "GenericSegmentationOffload=no",
            "feature-gso=false",
            "generic-segmentation-offload: false",
            "ethtool -K eth0 gso off",
        ],
    ),
    (
        "tso=off",
        [
            "TCPSegmentationOffload=no|TCP6SegmentationOffload=no",
            "feature-tso=false",
            "tcp-segmentation-offload: false|tcp6-segmentation-offload: false",
            "ethtool -K eth0 tso off",
        ],
    ),
    (
        "tx-udp-segmentation=off",
        ["", "feature-tx-udp-segmentation=false", "", "ethtool -K eth0 tx-udp-segmentation off"],
    ),
    (
        "lro=off",
        [
            "LargeReceiveOffload=no",
            "feature-lro=false",
            "large-receive-offload: false",
            "ethtool -K eth0 lro off",
        ],
    ),
    (
        "rx-gro-hw=on",
        [
            "GenericReceiveOffloadHardware=yes",
            "feature-rx-gro-hw=true",
            "",
            "ethtool -K eth0 rx-gro-hw on",
        ],
    ),
    ("rx-gro-list=on", ["", "feature-rx-gro-list=true", "", "ethtool -K eth0 rx-gro-list on"]),
    (
        "rx-udp-gro-forwarding=on",
        ["", "feature-rx-udp-gro-forwarding=true", "", "ethtool -K eth0 rx-udp-gro-forwarding on"],
    ),
    ("rx-hashing=on", ["", "feature-rxhash=true", "", "ethtool -K eth0 rxhash on"]),
    ("rx-ntuple=on", ["NTupleFilter=yes", "feature-ntuple=true", "", "ethtool -K eth0 ntuple on"]),
    (
        "rx-vlan=on",
        [
            "ReceiveVLANCTAGHardwareAcceleration=yes",
            "feature-rxvlan=true",
            "",
            "ethtool -K eth0 rxvlan on",
        ],
    ),
    (
        "tx-vlan=on",
        [
            "TransmitVLANCTAGHardwareAcceleration=yes",
            "feature-txvlan=true",
            "",
            "ethtool -K eth0 txvlan on",
        ],
    ),
    (
        "tx-nocache-copy=on",
        ["", "feature-tx-nocache-copy=true", "", "ethtool -K eth0 tx-nocache-copy on"],
    ),
    (
        "gso-max-size=131072",
        [
            "GenericSegmentOffloadMaxBytes=131072",
            "",
            "",
            "ip link set dev eth0 gso_max_size 131072",
        ],
    ),
    ("gso-ipv4-max-size=131072", ["", "", "", "ip link set dev eth0 gso_ipv4_max_size 131072"]),
    ("gro-max-size=131072", ["", "", "", "ip link set dev eth0 gro_max_size 131072"]),
    ("gro-ipv4-max-size=131072", ["", "", "", "ip link set dev eth0 gro_ipv4_max_size 131072"]),
    (
        "txqueuelen=500",
        [
            "TransmitQueueLength=500",
            "tx-queue-length=500",
            "",
            "ip link set dev eth0 txqueuelen 500",
        ],
    ),
    (
        "qdisc=fq_codel limit=1000 target=5ms ecn=on",
        [
            "",
            "qdisc.root=fq_codel limit 1000 target 5000 ecn",
            "",
            "tc qdisc replace dev eth0 root fq_codel limit 1000 target 5000us ecn",
        ],
    ),
    (
        "queue-qdisc=fq",
        [
            "",
            "",
            "",
            "tc qdisc replace dev eth0 root handle 1: mq; for queue in \
             /sys/class/net/eth0/queues/tx-*; do tc qdisc replace dev eth0 parent \
             1:$(printf %x $((${queue##*-} + 1))) fq; done",
        ],
    ),
    (
        "bql-limit-min=0",
        ["", "", "", "tx-*/byte_queue_limits/limit_min; do echo 0 > \"$file\"; done"],
    ),
    (
        "bql-limit-max=30000",
        ["", "", "", "tx-*/byte_queue_limits/limit_max; do echo 30000 > \"$file\"; done"],
    ),
    ("rss-table=equal 4", ["", "", "", "ethtool -X eth0 equal 4"]),
    ("smp-affinity=0-1", ["", "", "", "echo 0-1 > /proc/irq/$irq/smp_affinity_list; done"]),
    ("rps-cpus=0-3,32", ["", "", "", "queues/rx-*/rps_cpus; do echo 1,0000000f > \"$file\"; done"]),
    ("rps-flow-cnt=4096", ["", "", "", "queues/rx-*/rps_flow_cnt; do echo 4096 > \"$file\"; done"]),
    ("xps-cpus=none", ["", "", "", "queues/tx-*/xps_cpus; do echo 0 > \"$file\"; done"]),
    ("xps-rxqs=0", ["", "", "", "queues/tx-*/xps_rxqs; do echo 1 > \"$file\"; done"]),
    ("rps-sock-flow-entries=32768", ["", "", "", "sysctl -w net.core.rps_sock_flow_entries=32768"]),
    ("busy-poll=50us", ["", "", "", "sysctl -w net.core.busy_poll=50"]),
    ("busy-read=50us", ["", "", "", "sysctl -w net.core.busy_read=50"]),
    ("netdev-budget=300", ["", "", "", "sysctl -w net.core.netdev_budget=300"]),
    ("netdev-budget-usecs=2ms", ["", "", "", "sysctl -w net.core.netdev_budget_usecs=2000"]),
    ("dev-weight=64", ["", "", "", "sysctl -w net.core.dev_weight=64"]),
    ("netdev-max-backlog=1000", ["", "", "", "sysctl -w net.core.netdev_max_backlog=1000"]),
    ("rmem-max=4194304", ["", "", "", "sysctl -w net.core.rmem_max=4194304"]),
    ("wmem-max=4194304", ["", "", "", "sysctl -w net.core.wmem_max=4194304"]),
    (
        "tcp-rmem=4096 131072 6291456",
        ["", "", "", "sysctl -w net.ipv4.tcp_rmem='4096 131072 6291456'"],
    ),
    (
        "tcp-wmem=4096 16384 4194304",
        ["", "", "", "sysctl -w net.ipv4.tcp_wmem='4096 16384 4194304'"],
    ),
    ("tcp-notsent-lowat=131072", ["", "", "", "sysctl -w net.ipv4.tcp_notsent_lowat=131072"]),
    (
        "tcp-limit-output-bytes=4194304",
        ["", "", "", "sysctl -w net.ipv4.tcp_limit_output_bytes=4194304"],
    ),
    ("tcp-autocorking=off", ["", "", "", "sysctl -w net.ipv4.tcp_autocorking=0"]),
    (
        "tcp-congestion-control=cubic",
        ["", "", "", "sysctl -w net.ipv4.tcp_congestion_control=cubic"],
    ),
    ("default-qdisc=fq", ["", "", "", "sysctl -w net.core.default_qdisc=fq"]),
    (
        "adaptive-rx=off",
        [
            "UseAdaptiveRxCoalesce=no",
            "coalesce-adaptive-rx=0",
            "",
            "ethtool -C eth0 adaptive-rx off",
        ],
    ),
    (
        "adaptive-tx=on",
        [
            "UseAdaptiveTxCoalesce=yes",
            "coalesce-adaptive-tx=1",
            "",
            "ethtool -C eth0 adaptive-tx on",
        ],
    ),
    ("cqe-mode-rx=on", ["", "", "", "ethtool -C eth0 cqe-mode-rx on"]),
    ("cqe-mode-tx=on", ["", "", "", "ethtool -C eth0 cqe-mode-tx on"]),
    (
        "rx-usecs=50us",
        ["RxCoalesceSec=50us", "coalesce-rx-usecs=50", "", "ethtool -C eth0 rx-usecs 50"],
    ),
    (
        "rx-frames=32",
        ["RxMaxCoalescedFrames=32", "coalesce-rx-frames=32", "", "ethtool -C eth0 rx-frames 32"],
    ),
    (
        "rx-usecs-irq=1s",
        [
            "RxCoalesceIrqSec=1000000us",
            "coalesce-rx-usecs-irq=1000000",
            "",
            "ethtool -C eth0 rx-usecs-irq 1000000",
        ],
    ),
    (
        "rx-frames-irq=0",
        [
            "RxMaxCoalescedIrqFrames=0",
            "coalesce-rx-frames-irq=0",
            "",
            "ethtool -C eth0 rx-frames-irq 0",
        ],
    ),
    (
        "tx-usecs=0us",
        ["TxCoalesceSec=0us", "coalesce-tx-usecs=0", "", "ethtool -C eth0 tx-usecs 0"],
    ),
    (
        "tx-frames=1",
        ["TxMaxCoalescedFrames=1", "coalesce-tx-frames=1", "", "ethtool -C eth0 tx-frames 1"],
    ),
    (
        "tx-usecs-irq=5us",
        ["TxCoalesceIrqSec=5us", "coalesce-tx-usecs-irq=5", "", "ethtool -C eth0 tx-usecs-irq 5"],
    ),
    (
        "tx-frames-irq=5",
        [
            "TxMaxCoalescedIrqFrames=5",
            "coalesce-tx-frames-irq=5",
            "",
            "ethtool -C eth0 tx-frames-irq 5",
        ],
    ),
    (
        "stats-block-usecs=1000us",
        [
            "StatisticsBlockCoalesceSec=1000us",
            "coalesce-stats-block-usecs=1000",
            "",
            "ethtool -C eth0 stats-block-usecs 1000",
        ],
    ),
    (
        "pkt-rate-low=1000",
        [
            "CoalescePacketRateLow=1000",
            "coalesce-pkt-rate-low=1000",
            "",
            "ethtool -C eth0 pkt-rate-low 1000",
        ],
    ),
    (
        "rx-usecs-low=5us",
        ["RxCoalesceLowSec=5us", "coalesce-rx-usecs-low=5", "", "ethtool -C eth0 rx-usecs-low 5"],
    ),
    (
        "rx-frames-low=5",
        [
            "RxMaxCoalescedLowFrames=5",
            "coalesce-rx-frames-low=5",
            "",
            "ethtool -C eth0 rx-frames-low 5",
        ],
    ),
    (
        "tx-usecs-low=5us",
        ["TxCoalesceLowSec=5us", "coalesce-tx-usecs-low=5", "", "ethtool -C eth0 tx-usecs-low 5"],
    ),
    (
        "tx-frames-low=5",
        [
            "TxMaxCoalescedLowFrames=5",
            "coalesce-tx-frames-low=5",
            "",
            "ethtool -C eth0 tx-frames-low 5",
        ],
    ),
    (
        "pkt-rate-high=9",
        [
            "CoalescePacketRateHigh=9",
            "coalesce-pkt-rate-high=9",
            "",
            "ethtool -C eth0 pkt-rate-high 9",
        ],
    ),
    (
        "rx-usecs-high=5us",
        [
            "RxCoalesceHighSec=5us",
            "coalesce-rx-usecs-high=5",
            "",
            "ethtool -C eth0 rx-usecs-high 5",
        ],
    ),
    (
        "rx-frames-high=5",
        [
            "RxMaxCoalescedHighFrames=5",
            "coalesce-rx-frames-high=5",
            "",
            "ethtool -C eth0 rx-frames-high 5",
        ],
    ),
    (
        "tx-usecs-high=5us",
        [
            "TxCoalesceHighSec=5us",
            "coalesce-tx-usecs-high=5",
            "",
            "ethtool -C eth0 tx-usecs-high 5",
        ],
    ),
    (
        "tx-frames-high=5",
        [
            "TxMaxCoalescedHighFrames=5",
            "coalesce-tx-frames-high=5",
            "",
            "ethtool -C eth0 tx-frames-high 5",
        ],
    ),
    (
        "sample-interval=2s",
        [
            "CoalescePacketRateSampleIntervalSec=2s",
            "coalesce-sample-interval=2",
            "",
            "ethtool -C eth0 sample-interval 2",
        ],
    ),
    ("tx-aggr-max-bytes=4096", ["", "", "", "ethtool -C eth0 tx-aggr-max-bytes 4096"]),
    ("tx-aggr-max-frames=8", ["", "", "", "ethtool -C eth0 tx-aggr-max-frames 8"]),
    ("tx-aggr-time-usecs=50us", ["", "", "", "ethtool -C eth0 tx-aggr-time-usecs 50"]),
    ("rx-profile=1,256 8,n,2", ["", "", "", "ethtool -C eth0 rx-profile 1,256,n_8,n,2"]),
    ("tx-profile=1,2", ["", "", "", "ethtool -C eth0 tx-profile 1,2,n"]),
    ("threaded=on", ["", "", "", "echo 1 > /sys/class/net/eth0/threaded"]),
    (
        "napi-defer-hard-irqs=100",
        ["", "", "", "echo 100 > /sys/class/net/eth0/napi_defer_hard_irqs"],
    ),
    ("gro-flush-timeout=50us", ["", "", "", "echo 50000 > /sys/class/net/eth0/gro_flush_timeout"]),
    ("irq-suspend-timeout=20ms", ["", "", "", ""]),
];

#[test]
fn every_knob_is_exported_or_listed() {
    let named: Vec<Knob> = KNOBS.iter().map(|(text, _)| parse(text).0).collect();
    assert_eq!(named, Knob::ALL, "the table has every knob, in their order");
    for (text, [systemd, keyfile, netplan, script]) in KNOBS {
        check(Format::SystemdLink, text, systemd);
        check(Format::NetworkManager, text, keyfile);
        check(Format::Netplan, text, netplan);
        check(Format::Ethtool, text, script);
    }
}

#[test]
fn tuned_and_udev_lines_match_their_options() {
    let rule = "ACTION==\"add|move\", SUBSYSTEM==\"net\", KERNEL==\"eth0\", ";
    for (text, tuned, udev) in [
        ("mtu=9000", "mtu=9000", "RUN+=\"/bin/sh -c 'ip link set dev %k mtu 9000'\""),
        ("rx-ring=512", "ring=rx 512", "RUN+=\"/bin/sh -c 'ethtool -G %k rx 512'\""),
        ("rx-buf-len=2048", "", "RUN+=\"/bin/sh -c 'ethtool -G %k rx-buf-len 2048'\""),
        (
            "combined-channels=4",
            "channels=combined 4",
            "RUN+=\"/bin/sh -c 'ethtool -L %k combined 4'\"",
        ),
        ("gro=off", "features=gro off", "RUN+=\"/bin/sh -c 'ethtool -K %k gro off'\""),
        (
            "rx-usecs=50us",
            "coalesce=rx-usecs 50",
            "RUN+=\"/bin/sh -c 'ethtool -C %k rx-usecs 50'\"",
        ),
        ("pause-rx=on", "pause=rx on", "RUN+=\"/bin/sh -c 'ethtool -A %k rx on'\""),
        ("threaded=on", "", "ATTR{threaded}=\"1\""),
        ("busy-poll=50us", "", ""),
        ("tx-channels=max", "", ""),
    ] {
        let (knob, value) = parse(text);
        let setting = Setting::from([(knob, value)]);
        let export_to = |format| export(format, &eth0(), &setting, "a test");
        let (profile, rules) = (export_to(Format::Tuned), export_to(Format::Udev));
        let has = |text: &str, line: &str| text.lines().any(|found| found == line);
        assert!(tuned.is_empty() || has(&profile.text, tuned), "{text}: {}", profile.text);
        assert_eq!(profile.elsewhere.is_empty(), !tuned.is_empty(), "{text}");
        assert!(
            udev.is_empty() || has(&rules.text, &format!("{rule}{udev}")),
            "{text}: {}",
            rules.text
        );
        assert_eq!(rules.elsewhere.is_empty(), !udev.is_empty(), "{text}");
    }
}

#[test]
fn nmstate_and_ansible_have_properties_below_ethtool() {
    for (text, nmstate, ansible) in [
        ("mtu=9000", "mtu: 9000", "mtu: 9000"),
        ("rx-ring=512", "ethtool:|ring:|rx: 512", "ethtool:|ring:|rx: 512"),
        ("rx-jumbo-ring=8", "ring:|rx-jumbo: 8", "ring:|rx_jumbo: 8"),
        ("tx-ring=max", "", ""),
        ("rx-usecs=50us", "coalesce:|rx-usecs: 50", "coalesce:|rx_usecs: 50"),
        ("tx-frames-irq=5", "coalesce:|tx-frames-irq: 5", "coalesce:|tx_frames_irq: 5"),
        ("adaptive-rx=off", "coalesce:|adaptive-rx: false", "coalesce:|adaptive_rx: false"),
        ("cqe-mode-rx=on", "", ""),
        ("tx-aggr-max-frames=8", "", ""),
        ("combined-channels=4", "", ""),
        ("pause-autoneg=on", "pause:|autoneg: true", ""),
        ("pause-rx=on", "", ""),
        ("sample-interval=2s", "", "coalesce:|sample_interval: 2"),
        ("gro=off", "feature:|rx-gro: false", "features:|gro: false"),
        (
            "tso=on",
            "feature:|tx-tcp-segmentation: true|tx-tcp6-segmentation: true",
            "features:|tso: true",
        ),
        ("tx-checksum=off", "", "features:|tx: false"),
        ("rx-gro-hw=on", "rx-gro-hw: true", "rx_gro_hw: true"),
        ("rx-gro-list=on", "rx-gro-list: true", ""),
        ("tx-nocache-copy=on", "tx-nocache-copy: true", "tx_nocache_copy: true"),
        ("eee=off", "", ""),
        ("txqueuelen=500", "", ""),
        ("threaded=on", "", ""),
    ] {
        check(Format::Nmstate, text, nmstate);
        check(Format::Ansible, text, ansible);
    }
}

#[test]
fn cloud_init_writes_and_applies_its_files() {
    let setting = setting(&["gro=off", "threaded=on", "busy-poll=50us", "smp-affinity=0"]);
    let Exported { text, elsewhere, .. } = export(Format::CloudInit, &eth0(), &setting, "a test");
    let rule = "      ACTION==\"add|move\", SUBSYSTEM==\"net\", KERNEL==\"eth0\"";
    assert!(text.starts_with("#cloud-config\n# a test\n"), "{text}");
    let (_, files) = text.split_once("write_files:\n").unwrap();
    let expected = format!(
        "  - path: /etc/udev/rules.d/90-latput-eth0.rules\n    content: |\n\
         {rule}, RUN+=\"/bin/sh -c 'ethtool -K %k gro off'\"\n{rule}, ATTR{{threaded}}=\"1\"\n  \
         - path: /etc/sysctl.d/90-latput.conf\n    content: |\n      net.core.busy_poll = 50\n\
         runcmd:\n  - [udevadm, control, --reload]\n  \
         - [udevadm, trigger, --action=add, /sys/class/net/eth0]\n  \
         - [sysctl, -p, /etc/sysctl.d/90-latput.conf]\n"
    );
    // In the order of writing, the host's own knobs may come first.
    let lines =
        |text: &str| text.lines().map(str::to_owned).collect::<std::collections::BTreeSet<_>>();
    let (files, _) = files.split_once("\n# cloud-init cannot express").unwrap();
    assert_eq!(lines(files), lines(&expected), "{text}");
    assert_eq!(elsewhere.len(), 1, "an interrupt has no file: {elsewhere:?}");
}

/// Each knob of the table above is either written or listed, in every format.
#[test]
fn no_format_drops_a_knob_without_a_word() {
    for format in FORMATS {
        let empty = export(format, &eth0(), &Setting::new(), "a test");
        for (text, _) in KNOBS {
            let Exported { text: said, elsewhere, is_empty, .. } = exported(format, text);
            assert_eq!(is_empty, elsewhere.len() == 1, "{format}: {text}: {said}");
            assert!(said.len() > empty.text.len(), "{format}: {text}: {said}");
        }
    }
}

#[test]
fn missing_words_have_file_and_line() {
    let rule = "ACTION==\"add|move\", SUBSYSTEM==\"net\", KERNEL==\"eth0\", ";
    let udev = Some("/etc/udev/rules.d/90-latput-eth0.rules");
    let cases = [
        ("gro-flush-timeout=50us", udev, format!("{rule}ATTR{{gro_flush_timeout}}=\"50000\"")),
        ("busy-poll=50us", Some("/etc/sysctl.d/90-latput.conf"), "net.core.busy_poll = 50".into()),
        (
            "rps-cpus=0-1",
            udev,
            format!(
                "{rule}RUN+=\"/bin/sh -c 'for file in /sys/class/net/%k/queues/rx-*/rps_cpus; \
                 do echo 3 > $$file; done'\""
            ),
        ),
        (
            "qdisc=fq limit=100",
            udev,
            format!("{rule}RUN+=\"/bin/sh -c 'tc qdisc replace dev %k root fq limit 100'\""),
        ),
        (
            "interrupt-throttle-rate=8000",
            Some("/etc/modprobe.d/latput.conf"),
            "options DRIVER InterruptThrottleRate=8000".into(),
        ),
        (
            "qdisc=default",
            None,
            "the kernel attaches its default by itself (net.core.default_qdisc)".into(),
        ),
    ];
    for (text, file, line) in cases {
        let found = exported(Format::SystemdLink, text).elsewhere.remove(0);
        assert_eq!((found.file.as_deref(), found.line.as_str()), (file, line.as_str()), "{text}");
    }
}

#[test]
fn queue_disciplines_are_spelt_as_tc_does() {
    let tc = "tc qdisc replace dev eth0 root ";
    for (text, words) in [
        (
            "tbf rate=100Mbps burst=32KiB limit=64KiB",
            "tbf rate 100000000bit burst 32768 limit 65536",
        ),
        (
            "netem limit=10 delay=10ms jitter=1ms loss=0.1%",
            "netem limit 10 delay 10000us 1000us loss 0.1%",
        ),
        (
            "fq pacing=off timer_slack=10us horizon_drop=off",
            "fq nopacing timer_slack 10us horizon_cap",
        ),
        ("codel target=4999999ns ecn=off", "codel target 4999999ns noecn"),
        ("mq", "handle 1: mq"),
    ] {
        check(Format::Ethtool, &format!("qdisc={text}"), &format!("{tc}{words}"));
    }
    // bytes per second; and what NetworkManager does not know is said to belong elsewhere
    check(
        Format::NetworkManager,
        "qdisc=tbf rate=8Mbps burst=3000 limit=6000",
        "qdisc.root=tbf rate 1000000 burst 3000 limit 6000",
    );
    check(Format::NetworkManager, "qdisc=fq_codel drop_batch=64", "");
    check(Format::NetworkManager, "qdisc=fq_codel ecn=off", "");
    check(Format::NetworkManager, "qdisc=fq", "qdisc.root=fq");
}

#[test]
fn unwritable_ethtool_tables_are_listed() {
    check(Format::Ethtool, "rss-table=0x64 1x32", "ethtool -X eth0 weight 64 32");
    check(Format::Ethtool, "rss-table=1x64 0x64", "");
    check(Format::Ethtool, "rss-table=0 1 0", "");
}

#[test]
fn script_has_one_command_per_table() {
    let setting = setting(&["gro=off", "tso=off", "adaptive-rx=off", "rx-usecs=50us", "mtu=9000"]);
    let script = export(Format::Ethtool, &eth0(), &setting, "setting `x`\nrm -rf /").text;
    assert!(script.starts_with("#!/bin/sh\n# setting `x` rm -rf /\n"), "{script}");
    let commands = script.split_once("set -eu\n\n").unwrap().1;
    assert_eq!(
        commands,
        "ip link set dev eth0 mtu 9000\n\
         ethtool -K eth0 gro off tso off\n\
         ethtool -C eth0 adaptive-rx off rx-usecs 50\n"
    );
}

#[test]
fn match_is_written_in_each_format() {
    let mac = Match::Mac("52:54:00:00:00:01".to_owned());
    check_match(&mac, Format::SystemdLink, "[Match]\nPermanentMACAddress=52:54:00:00:00:01\n");
    check_match(&mac, Format::Netplan, "match:\n        macaddress: \"52:54:00:00:00:01\"\n");
    check_match(
        &mac,
        Format::Nmstate,
        "identifier: mac-address\n    mac-address: \"52:54:00:00:00:01\"\n",
    );
    check_match(&mac, Format::Ansible, "    mac: \"52:54:00:00:00:01\"\n");
    check_match(&Match::Name, Format::Ansible, "    interface_name: \"eth0\"\n");
    let path = Match::Path("pci-0000:02:00.0".to_owned());
    check_match(&path, Format::SystemdLink, "[Match]\nPath=pci-0000:02:00.0\n");
    let driver = Match::Driver("e1000e".to_owned());
    check_match(&driver, Format::SystemdLink, "[Match]\nDriver=e1000e\n");
    check_match(&driver, Format::Netplan, "driver: e1000e\n");
    check_match(&Match::Name, Format::SystemdLink, "OriginalName=eth0\n");
}

#[test]
fn names_that_would_need_quoting_are_refused() {
    for name in
        ["", "a b", "$(reboot)", "eth0;reboot", "\"", "eth0\n", "sixteen-letters-", "-x", "e'"]
    {
        assert!(Target::new(name, Match::Name).is_err(), "{name}");
    }
    for name in ["eth0", "enp3s0f1", "br-lan", "eth0.100", "x_y"] {
        assert!(Target::new(name, Match::Name).is_ok(), "{name}");
    }
    let matched = |text: &str| Target::new("eth0", Match::Driver(text.to_owned()));
    assert!(matched("a\"b").is_err() && matched("a\nb").is_err() && matched("").is_err());
    let error = matched(&"\n".repeat(100_000)).unwrap_err().to_string();
    assert!(error.len() < 400, "{error}");
}

#[test]
fn setting_without_export_words_says_so() {
    let text = exported(Format::Netplan, "busy-poll=50us").text;
    assert!(text.contains("can express none of these settings; see below"), "{text}");
    assert!(!text.contains("\nnetwork:"), "{text}");
    let text = exported(Format::SystemdLink, "gro-flush-timeout=50us").text;
    let said = "systemd.link can express none of these settings; see the udev rule below.";
    assert!(text.contains(said), "{text}");
}

fn eth0() -> Target {
    in_entry(Target::new("eth0", Match::Name).unwrap(), NetplanDeviceType::Ethernets)
}

fn in_entry(target: Target, device_type: NetplanDeviceType) -> Target {
    let entry = NetplanEntry { device_type, id: "eth0".to_owned(), is_found: false };
    target.in_netplan_entry(entry).unwrap().of_kind("ethernet")
}

/// As `netplan generate` 0.106 takes them.
#[test]
fn netplan_key_depends_on_type() {
    let setting = setting(&["mtu=1400", "gro=off"]);
    for (device_type, has_mtu, has_offloads) in [
        (NetplanDeviceType::Ethernets, true, true),
        (NetplanDeviceType::Wifis, true, true),
        (NetplanDeviceType::Modems, true, false),
        (NetplanDeviceType::Bonds, true, false),
        (NetplanDeviceType::Vrfs, false, false),
        (NetplanDeviceType::Vxlans, false, false),
    ] {
        let mac = Match::Mac("52:54:00:00:00:01".to_owned());
        let target = in_entry(Target::new("eth0", mac).unwrap(), device_type);
        let exported = export(Format::Netplan, &target, &setting, "");
        let said: String = exported.text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(said.contains("mtu: 1400"), has_mtu, "{said}");
        assert_eq!(said.contains("receive-offload: false"), has_offloads, "{said}");
        assert_eq!(said.contains("match:"), device_type == NetplanDeviceType::Ethernets, "{said}");
        let left = 2 - usize::from(has_mtu) - usize::from(has_offloads);
        assert_eq!(exported.elsewhere.len(), left, "{exported:?}");
    }
}

#[test]
fn unknown_netplan_entry_gets_nothing() {
    let target = Target::new("eth0", Match::Name).unwrap();
    let setting = setting(&["mtu=1400"]);
    let exported = export(Format::Netplan, &target, &setting, "");
    assert!(exported.is_empty && exported.elsewhere.len() == 1, "{exported:?}");
    assert_eq!(lines_by_hand(Format::Netplan, &setting), ["mtu: 1400"]);
}

fn parse(assignment: &str) -> (Knob, Value) {
    crate::parse_assignment(assignment).unwrap()
}

fn setting(assignments: &[&str]) -> Setting {
    assignments.iter().map(|text| parse(text)).collect()
}

fn exported(format: Format, assignment: &str) -> Exported {
    export(format, &eth0(), &setting(&[assignment]), "test")
}

/// The lines are all there, or the knob is listed.
#[track_caller]
fn check(format: Format, assignment: &str, lines: &str) {
    assert!(FORMATS.contains(&format));
    let Exported { text, elsewhere, .. } = exported(format, assignment);
    let (knob, value) = parse(assignment);
    if lines.is_empty() {
        assert_eq!(elsewhere.len(), 1, "{assignment}: {text}");
        assert_eq!((elsewhere[0].knob, &elsewhere[0].value), (knob, &value.to_string()));
        assert!(text.contains(&elsewhere[0].line) && !elsewhere[0].line.is_empty(), "{text}");
    } else {
        assert!(elsewhere.is_empty(), "{assignment}: {elsewhere:?}");
        for line in lines.split('|') {
            let found = text.lines().any(|found| {
                let found = found.trim();
                found == line
                    || (line.contains("; do echo") && found.ends_with(line))
                    || (line.contains("$irq") && found.ends_with(line))
            });
            assert!(found, "{format}: `{line}` is missing in:\n{text}");
        }
    }
}

#[track_caller]
fn check_match(matched: &Match, format: Format, words: &str) {
    let target = Target::new("eth0", matched.clone()).unwrap();
    let target = in_entry(target, NetplanDeviceType::Ethernets);
    let text = export(format, &target, &setting(&["mtu=1400"]), "test").text;
    assert!(text.contains(words), "{text}");
}

#[test]
fn origin_with_other_characters_stays_one_comment() {
    let target = Target::new("eth0", Match::Name).unwrap();
    let setting = Setting::new();
    for end in ["\u{2028}", "\u{2029}", "\u{85}", "\n", "\r", "\u{feff}", "é"] {
        let origin = format!("label{end}network: {{}}");
        for format in FORMATS {
            let text = export(format, &target, &setting, &origin).text;
            assert!(text.contains("# label network: {}\n"), "{format}: {text}");
            assert!(text.is_ascii(), "{format}: {text}");
        }
    }
}

#[test]
fn link_file_names_interface_as_the_displaced_one() {
    let target = Target::new("eth0", Match::Name).unwrap();
    let setting = [(Knob::Mtu, Value::Count(9000))].into();
    let link = |target: &Target| export(Format::SystemdLink, target, &setting, "").text;
    let policies = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.contains("Policy=")).map(str::to_owned).collect()
    };
    assert_eq!(policies(&link(&target)).len(), 3, "the default's");
    let masked = target.clone().in_place_of(None);
    assert!(policies(&link(&masked)).is_empty(), "nothing renames it, and nothing is to");
    assert!(link(&masked).contains("[Link]\nMTUBytes=9000"));
    let displaced = "[Match]\nKind=bridge\n[Link]\nNamePolicy=keep kernel\nMACAddressPolicy = none\nMTUBytes=1\n";
    let copied = link(&target.clone().in_place_of(Some(displaced)));
    assert_eq!(policies(&copied), ["NamePolicy=keep kernel", "MACAddressPolicy=none"]);
    assert!(copied.contains("MTUBytes=9000") && !copied.contains("MTUBytes=1\n"), "{copied}");
    let named = "[Link]\nNamePolicy=\nName=lan0\n#Name=x\nAlternativeName=a\nAlternativeName=b\nName=lan1\n";
    let copied = link(&target.clone().in_place_of(Some(named)));
    let expected =
        "[Link]\nNamePolicy=\nAlternativeName=a\nAlternativeName=b\nName=lan1\nMTUBytes=9000\n";
    assert!(copied.ends_with(expected), "{copied}");
    let hostile = "[Link]\nNamePolicy=keep\u{2028}x\n[Match]\nNamePolicy=mac\n";
    assert!(policies(&link(&target.in_place_of(Some(hostile)))).is_empty());
}
