//! The kernel's numbers for messages and attributes, under the kernel's names.
//!
//! Each set is whole, so that a knob whose attribute the kernel has needs nothing here.
//! `tests/netlink_numbers.rs` writes the constants and says where the numbers come from.

#![expect(dead_code, reason = "the sets are whole, and latput uses a part of them")]

// Written by tests/netlink_numbers.rs from tests/netlink-numbers.txt.

// nlctrl, commands
pub(crate) const CTRL_CMD_UNSPEC: u8 = 0;
pub(crate) const CTRL_CMD_NEWFAMILY: u8 = 1;
pub(crate) const CTRL_CMD_DELFAMILY: u8 = 2;
pub(crate) const CTRL_CMD_GETFAMILY: u8 = 3;
pub(crate) const CTRL_CMD_NEWOPS: u8 = 4;
pub(crate) const CTRL_CMD_DELOPS: u8 = 5;
pub(crate) const CTRL_CMD_GETOPS: u8 = 6;
pub(crate) const CTRL_CMD_NEWMCAST_GRP: u8 = 7;
pub(crate) const CTRL_CMD_DELMCAST_GRP: u8 = 8;
pub(crate) const CTRL_CMD_GETMCAST_GRP: u8 = 9;
pub(crate) const CTRL_CMD_GETPOLICY: u8 = 10;

// nlctrl, ctrl-attrs
pub(crate) const CTRL_ATTR_UNSPEC: u16 = 0;
pub(crate) const CTRL_ATTR_FAMILY_ID: u16 = 1;
pub(crate) const CTRL_ATTR_FAMILY_NAME: u16 = 2;
pub(crate) const CTRL_ATTR_VERSION: u16 = 3;
pub(crate) const CTRL_ATTR_HDRSIZE: u16 = 4;
pub(crate) const CTRL_ATTR_MAXATTR: u16 = 5;
pub(crate) const CTRL_ATTR_OPS: u16 = 6;
pub(crate) const CTRL_ATTR_MCAST_GROUPS: u16 = 7;
pub(crate) const CTRL_ATTR_POLICY: u16 = 8;
pub(crate) const CTRL_ATTR_OP_POLICY: u16 = 9;
pub(crate) const CTRL_ATTR_OP: u16 = 10;

// nlctrl, op-attrs
pub(crate) const CTRL_ATTR_OP_UNSPEC: u16 = 0;
pub(crate) const CTRL_ATTR_OP_ID: u16 = 1;
pub(crate) const CTRL_ATTR_OP_FLAGS: u16 = 2;

// nlctrl, mcast-group-attrs
pub(crate) const CTRL_ATTR_MCAST_GRP_UNSPEC: u16 = 0;
pub(crate) const CTRL_ATTR_MCAST_GRP_NAME: u16 = 1;
pub(crate) const CTRL_ATTR_MCAST_GRP_ID: u16 = 2;

// ethtool, messages
pub(crate) const ETHTOOL_MSG_USER_NONE: u8 = 0;
pub(crate) const ETHTOOL_MSG_STRSET_GET: u8 = 1;
pub(crate) const ETHTOOL_MSG_LINKINFO_GET: u8 = 2;
pub(crate) const ETHTOOL_MSG_LINKINFO_SET: u8 = 3;
pub(crate) const ETHTOOL_MSG_LINKMODES_GET: u8 = 4;
pub(crate) const ETHTOOL_MSG_LINKMODES_SET: u8 = 5;
pub(crate) const ETHTOOL_MSG_LINKSTATE_GET: u8 = 6;
pub(crate) const ETHTOOL_MSG_DEBUG_GET: u8 = 7;
pub(crate) const ETHTOOL_MSG_DEBUG_SET: u8 = 8;
pub(crate) const ETHTOOL_MSG_WOL_GET: u8 = 9;
pub(crate) const ETHTOOL_MSG_WOL_SET: u8 = 10;
pub(crate) const ETHTOOL_MSG_FEATURES_GET: u8 = 11;
pub(crate) const ETHTOOL_MSG_FEATURES_SET: u8 = 12;
pub(crate) const ETHTOOL_MSG_PRIVFLAGS_GET: u8 = 13;
pub(crate) const ETHTOOL_MSG_PRIVFLAGS_SET: u8 = 14;
pub(crate) const ETHTOOL_MSG_RINGS_GET: u8 = 15;
pub(crate) const ETHTOOL_MSG_RINGS_SET: u8 = 16;
pub(crate) const ETHTOOL_MSG_CHANNELS_GET: u8 = 17;
pub(crate) const ETHTOOL_MSG_CHANNELS_SET: u8 = 18;
pub(crate) const ETHTOOL_MSG_COALESCE_GET: u8 = 19;
pub(crate) const ETHTOOL_MSG_COALESCE_SET: u8 = 20;
pub(crate) const ETHTOOL_MSG_PAUSE_GET: u8 = 21;
pub(crate) const ETHTOOL_MSG_PAUSE_SET: u8 = 22;
pub(crate) const ETHTOOL_MSG_EEE_GET: u8 = 23;
pub(crate) const ETHTOOL_MSG_EEE_SET: u8 = 24;
pub(crate) const ETHTOOL_MSG_TSINFO_GET: u8 = 25;
pub(crate) const ETHTOOL_MSG_CABLE_TEST_ACT: u8 = 26;
pub(crate) const ETHTOOL_MSG_CABLE_TEST_TDR_ACT: u8 = 27;
pub(crate) const ETHTOOL_MSG_TUNNEL_INFO_GET: u8 = 28;
pub(crate) const ETHTOOL_MSG_FEC_GET: u8 = 29;
pub(crate) const ETHTOOL_MSG_FEC_SET: u8 = 30;
pub(crate) const ETHTOOL_MSG_MODULE_EEPROM_GET: u8 = 31;
pub(crate) const ETHTOOL_MSG_STATS_GET: u8 = 32;
pub(crate) const ETHTOOL_MSG_PHC_VCLOCKS_GET: u8 = 33;
pub(crate) const ETHTOOL_MSG_MODULE_GET: u8 = 34;
pub(crate) const ETHTOOL_MSG_MODULE_SET: u8 = 35;
pub(crate) const ETHTOOL_MSG_PSE_GET: u8 = 36;
pub(crate) const ETHTOOL_MSG_PSE_SET: u8 = 37;
pub(crate) const ETHTOOL_MSG_RSS_GET: u8 = 38;
pub(crate) const ETHTOOL_MSG_PLCA_GET_CFG: u8 = 39;
pub(crate) const ETHTOOL_MSG_PLCA_SET_CFG: u8 = 40;
pub(crate) const ETHTOOL_MSG_PLCA_GET_STATUS: u8 = 41;
pub(crate) const ETHTOOL_MSG_MM_GET: u8 = 42;
pub(crate) const ETHTOOL_MSG_MM_SET: u8 = 43;
pub(crate) const ETHTOOL_MSG_MODULE_FW_FLASH_ACT: u8 = 44;
pub(crate) const ETHTOOL_MSG_PHY_GET: u8 = 45;
pub(crate) const ETHTOOL_MSG_TSCONFIG_GET: u8 = 46;
pub(crate) const ETHTOOL_MSG_TSCONFIG_SET: u8 = 47;
pub(crate) const ETHTOOL_MSG_RSS_SET: u8 = 48;
pub(crate) const ETHTOOL_MSG_RSS_CREATE_ACT: u8 = 49;
pub(crate) const ETHTOOL_MSG_RSS_DELETE_ACT: u8 = 50;
pub(crate) const ETHTOOL_MSG_MSE_GET: u8 = 51;

// ethtool, header
pub(crate) const ETHTOOL_A_HEADER_UNSPEC: u16 = 0;
pub(crate) const ETHTOOL_A_HEADER_DEV_INDEX: u16 = 1;
pub(crate) const ETHTOOL_A_HEADER_DEV_NAME: u16 = 2;
pub(crate) const ETHTOOL_A_HEADER_FLAGS: u16 = 3;
pub(crate) const ETHTOOL_A_HEADER_PHY_INDEX: u16 = 4;

// ethtool, bitset-bit
pub(crate) const ETHTOOL_A_BITSET_BIT_UNSPEC: u16 = 0;
pub(crate) const ETHTOOL_A_BITSET_BIT_INDEX: u16 = 1;
pub(crate) const ETHTOOL_A_BITSET_BIT_NAME: u16 = 2;
pub(crate) const ETHTOOL_A_BITSET_BIT_VALUE: u16 = 3;

// ethtool, bitset-bits
pub(crate) const ETHTOOL_A_BITSET_BITS_UNSPEC: u16 = 0;
pub(crate) const ETHTOOL_A_BITSET_BITS_BIT: u16 = 1;

// ethtool, bitset
pub(crate) const ETHTOOL_A_BITSET_UNSPEC: u16 = 0;
pub(crate) const ETHTOOL_A_BITSET_NOMASK: u16 = 1;
pub(crate) const ETHTOOL_A_BITSET_SIZE: u16 = 2;
pub(crate) const ETHTOOL_A_BITSET_BITS: u16 = 3;
pub(crate) const ETHTOOL_A_BITSET_VALUE: u16 = 4;
pub(crate) const ETHTOOL_A_BITSET_MASK: u16 = 5;

// ethtool, features
pub(crate) const ETHTOOL_A_FEATURES_UNSPEC: u16 = 0;
pub(crate) const ETHTOOL_A_FEATURES_HEADER: u16 = 1;
pub(crate) const ETHTOOL_A_FEATURES_HW: u16 = 2;
pub(crate) const ETHTOOL_A_FEATURES_WANTED: u16 = 3;
pub(crate) const ETHTOOL_A_FEATURES_ACTIVE: u16 = 4;
pub(crate) const ETHTOOL_A_FEATURES_NOCHANGE: u16 = 5;

// ethtool, rings
pub(crate) const ETHTOOL_A_RINGS_UNSPEC: u16 = 0;
pub(crate) const ETHTOOL_A_RINGS_HEADER: u16 = 1;
pub(crate) const ETHTOOL_A_RINGS_RX_MAX: u16 = 2;
pub(crate) const ETHTOOL_A_RINGS_RX_MINI_MAX: u16 = 3;
pub(crate) const ETHTOOL_A_RINGS_RX_JUMBO_MAX: u16 = 4;
pub(crate) const ETHTOOL_A_RINGS_TX_MAX: u16 = 5;
pub(crate) const ETHTOOL_A_RINGS_RX: u16 = 6;
pub(crate) const ETHTOOL_A_RINGS_RX_MINI: u16 = 7;
pub(crate) const ETHTOOL_A_RINGS_RX_JUMBO: u16 = 8;
pub(crate) const ETHTOOL_A_RINGS_TX: u16 = 9;
pub(crate) const ETHTOOL_A_RINGS_RX_BUF_LEN: u16 = 10;
pub(crate) const ETHTOOL_A_RINGS_TCP_DATA_SPLIT: u16 = 11;
pub(crate) const ETHTOOL_A_RINGS_CQE_SIZE: u16 = 12;
pub(crate) const ETHTOOL_A_RINGS_TX_PUSH: u16 = 13;
pub(crate) const ETHTOOL_A_RINGS_RX_PUSH: u16 = 14;
pub(crate) const ETHTOOL_A_RINGS_TX_PUSH_BUF_LEN: u16 = 15;
pub(crate) const ETHTOOL_A_RINGS_TX_PUSH_BUF_LEN_MAX: u16 = 16;
pub(crate) const ETHTOOL_A_RINGS_HDS_THRESH: u16 = 17;
pub(crate) const ETHTOOL_A_RINGS_HDS_THRESH_MAX: u16 = 18;

// ethtool, channels
pub(crate) const ETHTOOL_A_CHANNELS_UNSPEC: u16 = 0;
pub(crate) const ETHTOOL_A_CHANNELS_HEADER: u16 = 1;
pub(crate) const ETHTOOL_A_CHANNELS_RX_MAX: u16 = 2;
pub(crate) const ETHTOOL_A_CHANNELS_TX_MAX: u16 = 3;
pub(crate) const ETHTOOL_A_CHANNELS_OTHER_MAX: u16 = 4;
pub(crate) const ETHTOOL_A_CHANNELS_COMBINED_MAX: u16 = 5;
pub(crate) const ETHTOOL_A_CHANNELS_RX_COUNT: u16 = 6;
pub(crate) const ETHTOOL_A_CHANNELS_TX_COUNT: u16 = 7;
pub(crate) const ETHTOOL_A_CHANNELS_OTHER_COUNT: u16 = 8;
pub(crate) const ETHTOOL_A_CHANNELS_COMBINED_COUNT: u16 = 9;

// ethtool, coalesce
pub(crate) const ETHTOOL_A_COALESCE_UNSPEC: u16 = 0;
pub(crate) const ETHTOOL_A_COALESCE_HEADER: u16 = 1;
pub(crate) const ETHTOOL_A_COALESCE_RX_USECS: u16 = 2;
pub(crate) const ETHTOOL_A_COALESCE_RX_MAX_FRAMES: u16 = 3;
pub(crate) const ETHTOOL_A_COALESCE_RX_USECS_IRQ: u16 = 4;
pub(crate) const ETHTOOL_A_COALESCE_RX_MAX_FRAMES_IRQ: u16 = 5;
pub(crate) const ETHTOOL_A_COALESCE_TX_USECS: u16 = 6;
pub(crate) const ETHTOOL_A_COALESCE_TX_MAX_FRAMES: u16 = 7;
pub(crate) const ETHTOOL_A_COALESCE_TX_USECS_IRQ: u16 = 8;
pub(crate) const ETHTOOL_A_COALESCE_TX_MAX_FRAMES_IRQ: u16 = 9;
pub(crate) const ETHTOOL_A_COALESCE_STATS_BLOCK_USECS: u16 = 10;
pub(crate) const ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX: u16 = 11;
pub(crate) const ETHTOOL_A_COALESCE_USE_ADAPTIVE_TX: u16 = 12;
pub(crate) const ETHTOOL_A_COALESCE_PKT_RATE_LOW: u16 = 13;
pub(crate) const ETHTOOL_A_COALESCE_RX_USECS_LOW: u16 = 14;
pub(crate) const ETHTOOL_A_COALESCE_RX_MAX_FRAMES_LOW: u16 = 15;
pub(crate) const ETHTOOL_A_COALESCE_TX_USECS_LOW: u16 = 16;
pub(crate) const ETHTOOL_A_COALESCE_TX_MAX_FRAMES_LOW: u16 = 17;
pub(crate) const ETHTOOL_A_COALESCE_PKT_RATE_HIGH: u16 = 18;
pub(crate) const ETHTOOL_A_COALESCE_RX_USECS_HIGH: u16 = 19;
pub(crate) const ETHTOOL_A_COALESCE_RX_MAX_FRAMES_HIGH: u16 = 20;
pub(crate) const ETHTOOL_A_COALESCE_TX_USECS_HIGH: u16 = 21;
pub(crate) const ETHTOOL_A_COALESCE_TX_MAX_FRAMES_HIGH: u16 = 22;
pub(crate) const ETHTOOL_A_COALESCE_RATE_SAMPLE_INTERVAL: u16 = 23;
pub(crate) const ETHTOOL_A_COALESCE_USE_CQE_MODE_TX: u16 = 24;
pub(crate) const ETHTOOL_A_COALESCE_USE_CQE_MODE_RX: u16 = 25;
pub(crate) const ETHTOOL_A_COALESCE_TX_AGGR_MAX_BYTES: u16 = 26;
pub(crate) const ETHTOOL_A_COALESCE_TX_AGGR_MAX_FRAMES: u16 = 27;
pub(crate) const ETHTOOL_A_COALESCE_TX_AGGR_TIME_USECS: u16 = 28;
pub(crate) const ETHTOOL_A_COALESCE_RX_PROFILE: u16 = 29;
pub(crate) const ETHTOOL_A_COALESCE_TX_PROFILE: u16 = 30;
pub(crate) const ETHTOOL_A_COALESCE_RX_CQE_FRAMES: u16 = 31;
pub(crate) const ETHTOOL_A_COALESCE_RX_CQE_NSECS: u16 = 32;

// ethtool, profile
pub(crate) const ETHTOOL_A_PROFILE_UNSPEC: u16 = 0;
pub(crate) const ETHTOOL_A_PROFILE_IRQ_MODERATION: u16 = 1;

// ethtool, irq-moderation
pub(crate) const ETHTOOL_A_IRQ_MODERATION_UNSPEC: u16 = 0;
pub(crate) const ETHTOOL_A_IRQ_MODERATION_USEC: u16 = 1;
pub(crate) const ETHTOOL_A_IRQ_MODERATION_PKTS: u16 = 2;
pub(crate) const ETHTOOL_A_IRQ_MODERATION_COMPS: u16 = 3;

// ethtool, pause
pub(crate) const ETHTOOL_A_PAUSE_UNSPEC: u16 = 0;
pub(crate) const ETHTOOL_A_PAUSE_HEADER: u16 = 1;
pub(crate) const ETHTOOL_A_PAUSE_AUTONEG: u16 = 2;
pub(crate) const ETHTOOL_A_PAUSE_RX: u16 = 3;
pub(crate) const ETHTOOL_A_PAUSE_TX: u16 = 4;
pub(crate) const ETHTOOL_A_PAUSE_STATS: u16 = 5;
pub(crate) const ETHTOOL_A_PAUSE_STATS_SRC: u16 = 6;

// ethtool, eee
pub(crate) const ETHTOOL_A_EEE_UNSPEC: u16 = 0;
pub(crate) const ETHTOOL_A_EEE_HEADER: u16 = 1;
pub(crate) const ETHTOOL_A_EEE_MODES_OURS: u16 = 2;
pub(crate) const ETHTOOL_A_EEE_MODES_PEER: u16 = 3;
pub(crate) const ETHTOOL_A_EEE_ACTIVE: u16 = 4;
pub(crate) const ETHTOOL_A_EEE_ENABLED: u16 = 5;
pub(crate) const ETHTOOL_A_EEE_TX_LPI_ENABLED: u16 = 6;
pub(crate) const ETHTOOL_A_EEE_TX_LPI_TIMER: u16 = 7;

// netdev, operations
pub(crate) const NETDEV_CMD_DEV_GET: u8 = 1;
pub(crate) const NETDEV_CMD_DEV_ADD_NTF: u8 = 2;
pub(crate) const NETDEV_CMD_DEV_DEL_NTF: u8 = 3;
pub(crate) const NETDEV_CMD_DEV_CHANGE_NTF: u8 = 4;
pub(crate) const NETDEV_CMD_PAGE_POOL_GET: u8 = 5;
pub(crate) const NETDEV_CMD_PAGE_POOL_ADD_NTF: u8 = 6;
pub(crate) const NETDEV_CMD_PAGE_POOL_DEL_NTF: u8 = 7;
pub(crate) const NETDEV_CMD_PAGE_POOL_CHANGE_NTF: u8 = 8;
pub(crate) const NETDEV_CMD_PAGE_POOL_STATS_GET: u8 = 9;
pub(crate) const NETDEV_CMD_QUEUE_GET: u8 = 10;
pub(crate) const NETDEV_CMD_NAPI_GET: u8 = 11;
pub(crate) const NETDEV_CMD_QSTATS_GET: u8 = 12;
pub(crate) const NETDEV_CMD_BIND_RX: u8 = 13;
pub(crate) const NETDEV_CMD_NAPI_SET: u8 = 14;
pub(crate) const NETDEV_CMD_BIND_TX: u8 = 15;
pub(crate) const NETDEV_CMD_QUEUE_CREATE: u8 = 16;

// netdev, napi
pub(crate) const NETDEV_A_NAPI_IFINDEX: u16 = 1;
pub(crate) const NETDEV_A_NAPI_ID: u16 = 2;
pub(crate) const NETDEV_A_NAPI_IRQ: u16 = 3;
pub(crate) const NETDEV_A_NAPI_PID: u16 = 4;
pub(crate) const NETDEV_A_NAPI_DEFER_HARD_IRQS: u16 = 5;
pub(crate) const NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT: u16 = 6;
pub(crate) const NETDEV_A_NAPI_IRQ_SUSPEND_TIMEOUT: u16 = 7;
pub(crate) const NETDEV_A_NAPI_THREADED: u16 = 8;

// netdev, queue
pub(crate) const NETDEV_A_QUEUE_ID: u16 = 1;
pub(crate) const NETDEV_A_QUEUE_IFINDEX: u16 = 2;
pub(crate) const NETDEV_A_QUEUE_TYPE: u16 = 3;
pub(crate) const NETDEV_A_QUEUE_NAPI_ID: u16 = 4;
pub(crate) const NETDEV_A_QUEUE_DMABUF: u16 = 5;
pub(crate) const NETDEV_A_QUEUE_IO_URING: u16 = 6;
pub(crate) const NETDEV_A_QUEUE_XSK: u16 = 7;
pub(crate) const NETDEV_A_QUEUE_LEASE: u16 = 8;

// netdev, queue-type
pub(crate) const NETDEV_QUEUE_TYPE_RX: u32 = 0;
pub(crate) const NETDEV_QUEUE_TYPE_TX: u32 = 1;

// rtnetlink, messages
pub(crate) const RTM_BASE: u16 = 16;
pub(crate) const RTM_NEWLINK: u16 = 16;
pub(crate) const RTM_DELLINK: u16 = 17;
pub(crate) const RTM_GETLINK: u16 = 18;
pub(crate) const RTM_SETLINK: u16 = 19;
pub(crate) const RTM_NEWADDR: u16 = 20;
pub(crate) const RTM_DELADDR: u16 = 21;
pub(crate) const RTM_GETADDR: u16 = 22;
pub(crate) const RTM_NEWROUTE: u16 = 24;
pub(crate) const RTM_DELROUTE: u16 = 25;
pub(crate) const RTM_GETROUTE: u16 = 26;
pub(crate) const RTM_NEWNEIGH: u16 = 28;
pub(crate) const RTM_DELNEIGH: u16 = 29;
pub(crate) const RTM_GETNEIGH: u16 = 30;
pub(crate) const RTM_NEWRULE: u16 = 32;
pub(crate) const RTM_DELRULE: u16 = 33;
pub(crate) const RTM_GETRULE: u16 = 34;
pub(crate) const RTM_NEWQDISC: u16 = 36;
pub(crate) const RTM_DELQDISC: u16 = 37;
pub(crate) const RTM_GETQDISC: u16 = 38;
pub(crate) const RTM_NEWTCLASS: u16 = 40;
pub(crate) const RTM_DELTCLASS: u16 = 41;
pub(crate) const RTM_GETTCLASS: u16 = 42;
pub(crate) const RTM_NEWTFILTER: u16 = 44;
pub(crate) const RTM_DELTFILTER: u16 = 45;
pub(crate) const RTM_GETTFILTER: u16 = 46;
pub(crate) const RTM_NEWACTION: u16 = 48;
pub(crate) const RTM_DELACTION: u16 = 49;
pub(crate) const RTM_GETACTION: u16 = 50;
pub(crate) const RTM_NEWPREFIX: u16 = 52;
pub(crate) const RTM_NEWMULTICAST: u16 = 56;
pub(crate) const RTM_DELMULTICAST: u16 = 57;
pub(crate) const RTM_GETMULTICAST: u16 = 58;
pub(crate) const RTM_NEWANYCAST: u16 = 60;
pub(crate) const RTM_DELANYCAST: u16 = 61;
pub(crate) const RTM_GETANYCAST: u16 = 62;
pub(crate) const RTM_NEWNEIGHTBL: u16 = 64;
pub(crate) const RTM_GETNEIGHTBL: u16 = 66;
pub(crate) const RTM_SETNEIGHTBL: u16 = 67;
pub(crate) const RTM_NEWNDUSEROPT: u16 = 68;
pub(crate) const RTM_NEWADDRLABEL: u16 = 72;
pub(crate) const RTM_DELADDRLABEL: u16 = 73;
pub(crate) const RTM_GETADDRLABEL: u16 = 74;
pub(crate) const RTM_GETDCB: u16 = 78;
pub(crate) const RTM_SETDCB: u16 = 79;
pub(crate) const RTM_NEWNETCONF: u16 = 80;
pub(crate) const RTM_DELNETCONF: u16 = 81;
pub(crate) const RTM_GETNETCONF: u16 = 82;
pub(crate) const RTM_NEWMDB: u16 = 84;
pub(crate) const RTM_DELMDB: u16 = 85;
pub(crate) const RTM_GETMDB: u16 = 86;
pub(crate) const RTM_NEWNSID: u16 = 88;
pub(crate) const RTM_DELNSID: u16 = 89;
pub(crate) const RTM_GETNSID: u16 = 90;
pub(crate) const RTM_NEWSTATS: u16 = 92;
pub(crate) const RTM_GETSTATS: u16 = 94;
pub(crate) const RTM_SETSTATS: u16 = 95;
pub(crate) const RTM_NEWCACHEREPORT: u16 = 96;
pub(crate) const RTM_NEWCHAIN: u16 = 100;
pub(crate) const RTM_DELCHAIN: u16 = 101;
pub(crate) const RTM_GETCHAIN: u16 = 102;
pub(crate) const RTM_NEWNEXTHOP: u16 = 104;
pub(crate) const RTM_DELNEXTHOP: u16 = 105;
pub(crate) const RTM_GETNEXTHOP: u16 = 106;
pub(crate) const RTM_NEWLINKPROP: u16 = 108;
pub(crate) const RTM_DELLINKPROP: u16 = 109;
pub(crate) const RTM_GETLINKPROP: u16 = 110;
pub(crate) const RTM_NEWVLAN: u16 = 112;
pub(crate) const RTM_DELVLAN: u16 = 113;
pub(crate) const RTM_GETVLAN: u16 = 114;
pub(crate) const RTM_NEWNEXTHOPBUCKET: u16 = 116;
pub(crate) const RTM_DELNEXTHOPBUCKET: u16 = 117;
pub(crate) const RTM_GETNEXTHOPBUCKET: u16 = 118;
pub(crate) const RTM_NEWTUNNEL: u16 = 120;
pub(crate) const RTM_DELTUNNEL: u16 = 121;
pub(crate) const RTM_GETTUNNEL: u16 = 122;

// rt-link, link-attrs
pub(crate) const IFLA_UNSPEC: u16 = 0;
pub(crate) const IFLA_ADDRESS: u16 = 1;
pub(crate) const IFLA_BROADCAST: u16 = 2;
pub(crate) const IFLA_IFNAME: u16 = 3;
pub(crate) const IFLA_MTU: u16 = 4;
pub(crate) const IFLA_LINK: u16 = 5;
pub(crate) const IFLA_QDISC: u16 = 6;
pub(crate) const IFLA_STATS: u16 = 7;
pub(crate) const IFLA_COST: u16 = 8;
pub(crate) const IFLA_PRIORITY: u16 = 9;
pub(crate) const IFLA_MASTER: u16 = 10;
pub(crate) const IFLA_WIRELESS: u16 = 11;
pub(crate) const IFLA_PROTINFO: u16 = 12;
pub(crate) const IFLA_TXQLEN: u16 = 13;
pub(crate) const IFLA_MAP: u16 = 14;
pub(crate) const IFLA_WEIGHT: u16 = 15;
pub(crate) const IFLA_OPERSTATE: u16 = 16;
pub(crate) const IFLA_LINKMODE: u16 = 17;
pub(crate) const IFLA_LINKINFO: u16 = 18;
pub(crate) const IFLA_NET_NS_PID: u16 = 19;
pub(crate) const IFLA_IFALIAS: u16 = 20;
pub(crate) const IFLA_NUM_VF: u16 = 21;
pub(crate) const IFLA_VFINFO_LIST: u16 = 22;
pub(crate) const IFLA_STATS64: u16 = 23;
pub(crate) const IFLA_VF_PORTS: u16 = 24;
pub(crate) const IFLA_PORT_SELF: u16 = 25;
pub(crate) const IFLA_AF_SPEC: u16 = 26;
pub(crate) const IFLA_GROUP: u16 = 27;
pub(crate) const IFLA_NET_NS_FD: u16 = 28;
pub(crate) const IFLA_EXT_MASK: u16 = 29;
pub(crate) const IFLA_PROMISCUITY: u16 = 30;
pub(crate) const IFLA_NUM_TX_QUEUES: u16 = 31;
pub(crate) const IFLA_NUM_RX_QUEUES: u16 = 32;
pub(crate) const IFLA_CARRIER: u16 = 33;
pub(crate) const IFLA_PHYS_PORT_ID: u16 = 34;
pub(crate) const IFLA_CARRIER_CHANGES: u16 = 35;
pub(crate) const IFLA_PHYS_SWITCH_ID: u16 = 36;
pub(crate) const IFLA_LINK_NETNSID: u16 = 37;
pub(crate) const IFLA_PHYS_PORT_NAME: u16 = 38;
pub(crate) const IFLA_PROTO_DOWN: u16 = 39;
pub(crate) const IFLA_GSO_MAX_SEGS: u16 = 40;
pub(crate) const IFLA_GSO_MAX_SIZE: u16 = 41;
pub(crate) const IFLA_PAD: u16 = 42;
pub(crate) const IFLA_XDP: u16 = 43;
pub(crate) const IFLA_EVENT: u16 = 44;
pub(crate) const IFLA_NEW_NETNSID: u16 = 45;
pub(crate) const IFLA_IF_NETNSID: u16 = 46;
pub(crate) const IFLA_TARGET_NETNSID: u16 = 46;
pub(crate) const IFLA_CARRIER_UP_COUNT: u16 = 47;
pub(crate) const IFLA_CARRIER_DOWN_COUNT: u16 = 48;
pub(crate) const IFLA_NEW_IFINDEX: u16 = 49;
pub(crate) const IFLA_MIN_MTU: u16 = 50;
pub(crate) const IFLA_MAX_MTU: u16 = 51;
pub(crate) const IFLA_PROP_LIST: u16 = 52;
pub(crate) const IFLA_ALT_IFNAME: u16 = 53;
pub(crate) const IFLA_PERM_ADDRESS: u16 = 54;
pub(crate) const IFLA_PROTO_DOWN_REASON: u16 = 55;
pub(crate) const IFLA_PARENT_DEV_NAME: u16 = 56;
pub(crate) const IFLA_PARENT_DEV_BUS_NAME: u16 = 57;
pub(crate) const IFLA_GRO_MAX_SIZE: u16 = 58;
pub(crate) const IFLA_TSO_MAX_SIZE: u16 = 59;
pub(crate) const IFLA_TSO_MAX_SEGS: u16 = 60;
pub(crate) const IFLA_ALLMULTI: u16 = 61;
pub(crate) const IFLA_DEVLINK_PORT: u16 = 62;
pub(crate) const IFLA_GSO_IPV4_MAX_SIZE: u16 = 63;
pub(crate) const IFLA_GRO_IPV4_MAX_SIZE: u16 = 64;
pub(crate) const IFLA_DPLL_PIN: u16 = 65;
pub(crate) const IFLA_MAX_PACING_OFFLOAD_HORIZON: u16 = 66;
pub(crate) const IFLA_NETNS_IMMUTABLE: u16 = 67;
pub(crate) const IFLA_HEADROOM: u16 = 68;
pub(crate) const IFLA_TAILROOM: u16 = 69;

// rt-link, linkinfo-attrs
pub(crate) const IFLA_INFO_UNSPEC: u16 = 0;
pub(crate) const IFLA_INFO_KIND: u16 = 1;
pub(crate) const IFLA_INFO_DATA: u16 = 2;
pub(crate) const IFLA_INFO_XSTATS: u16 = 3;
pub(crate) const IFLA_INFO_SLAVE_KIND: u16 = 4;
pub(crate) const IFLA_INFO_SLAVE_DATA: u16 = 5;

// rt-link, linkinfo-veth-attrs
pub(crate) const VETH_INFO_UNSPEC: u16 = 0;
pub(crate) const VETH_INFO_PEER: u16 = 1;

// rt-link, ifla6-attrs
pub(crate) const IFLA_INET6_UNSPEC: u16 = 0;
pub(crate) const IFLA_INET6_FLAGS: u16 = 1;
pub(crate) const IFLA_INET6_CONF: u16 = 2;
pub(crate) const IFLA_INET6_STATS: u16 = 3;
pub(crate) const IFLA_INET6_MCAST: u16 = 4;
pub(crate) const IFLA_INET6_CACHEINFO: u16 = 5;
pub(crate) const IFLA_INET6_ICMP6STATS: u16 = 6;
pub(crate) const IFLA_INET6_TOKEN: u16 = 7;
pub(crate) const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
pub(crate) const IFLA_INET6_RA_MTU: u16 = 9;

// rt-link, inet6-addr-gen-mode
pub(crate) const IN6_ADDR_GEN_MODE_EUI64: u8 = 0;
pub(crate) const IN6_ADDR_GEN_MODE_NONE: u8 = 1;
pub(crate) const IN6_ADDR_GEN_MODE_STABLE_PRIVACY: u8 = 2;
pub(crate) const IN6_ADDR_GEN_MODE_RANDOM: u8 = 3;

// rt-link, stats-attrs
pub(crate) const IFLA_STATS_UNSPEC: u16 = 0;
pub(crate) const IFLA_STATS_LINK_64: u16 = 1;
pub(crate) const IFLA_STATS_LINK_XSTATS: u16 = 2;
pub(crate) const IFLA_STATS_LINK_XSTATS_SLAVE: u16 = 3;
pub(crate) const IFLA_STATS_LINK_OFFLOAD_XSTATS: u16 = 4;
pub(crate) const IFLA_STATS_AF_SPEC: u16 = 5;

// rt-addr, addr-attrs
pub(crate) const IFA_UNSPEC: u16 = 0;
pub(crate) const IFA_ADDRESS: u16 = 1;
pub(crate) const IFA_LOCAL: u16 = 2;
pub(crate) const IFA_LABEL: u16 = 3;
pub(crate) const IFA_BROADCAST: u16 = 4;
pub(crate) const IFA_ANYCAST: u16 = 5;
pub(crate) const IFA_CACHEINFO: u16 = 6;
pub(crate) const IFA_MULTICAST: u16 = 7;
pub(crate) const IFA_FLAGS: u16 = 8;
pub(crate) const IFA_RT_PRIORITY: u16 = 9;
pub(crate) const IFA_TARGET_NETNSID: u16 = 10;
pub(crate) const IFA_PROTO: u16 = 11;

// rt-neigh, neighbour-attrs
pub(crate) const NDA_UNSPEC: u16 = 0;
pub(crate) const NDA_DST: u16 = 1;
pub(crate) const NDA_LLADDR: u16 = 2;
pub(crate) const NDA_CACHEINFO: u16 = 3;
pub(crate) const NDA_PROBES: u16 = 4;
pub(crate) const NDA_VLAN: u16 = 5;
pub(crate) const NDA_PORT: u16 = 6;
pub(crate) const NDA_VNI: u16 = 7;
pub(crate) const NDA_IFINDEX: u16 = 8;
pub(crate) const NDA_MASTER: u16 = 9;
pub(crate) const NDA_LINK_NETNSID: u16 = 10;
pub(crate) const NDA_SRC_VNI: u16 = 11;
pub(crate) const NDA_PROTOCOL: u16 = 12;
pub(crate) const NDA_NH_ID: u16 = 13;
pub(crate) const NDA_FDB_EXT_ATTRS: u16 = 14;
pub(crate) const NDA_FLAGS_EXT: u16 = 15;
pub(crate) const NDA_NDM_STATE_MASK: u16 = 16;
pub(crate) const NDA_NDM_FLAGS_MASK: u16 = 17;

// rt-route, route-attrs
pub(crate) const RTA_UNSPEC: u16 = 0;
pub(crate) const RTA_DST: u16 = 1;
pub(crate) const RTA_SRC: u16 = 2;
pub(crate) const RTA_IIF: u16 = 3;
pub(crate) const RTA_OIF: u16 = 4;
pub(crate) const RTA_GATEWAY: u16 = 5;
pub(crate) const RTA_PRIORITY: u16 = 6;
pub(crate) const RTA_PREFSRC: u16 = 7;
pub(crate) const RTA_METRICS: u16 = 8;
pub(crate) const RTA_MULTIPATH: u16 = 9;
pub(crate) const RTA_PROTOINFO: u16 = 10;
pub(crate) const RTA_FLOW: u16 = 11;
pub(crate) const RTA_CACHEINFO: u16 = 12;
pub(crate) const RTA_SESSION: u16 = 13;
pub(crate) const RTA_MP_ALGO: u16 = 14;
pub(crate) const RTA_TABLE: u16 = 15;
pub(crate) const RTA_MARK: u16 = 16;
pub(crate) const RTA_MFC_STATS: u16 = 17;
pub(crate) const RTA_VIA: u16 = 18;
pub(crate) const RTA_NEWDST: u16 = 19;
pub(crate) const RTA_PREF: u16 = 20;
pub(crate) const RTA_ENCAP_TYPE: u16 = 21;
pub(crate) const RTA_ENCAP: u16 = 22;
pub(crate) const RTA_EXPIRES: u16 = 23;
pub(crate) const RTA_PAD: u16 = 24;
pub(crate) const RTA_UID: u16 = 25;
pub(crate) const RTA_TTL_PROPAGATE: u16 = 26;
pub(crate) const RTA_IP_PROTO: u16 = 27;
pub(crate) const RTA_SPORT: u16 = 28;
pub(crate) const RTA_DPORT: u16 = 29;
pub(crate) const RTA_NH_ID: u16 = 30;
pub(crate) const RTA_FLOWLABEL: u16 = 31;

// tc, attrs
pub(crate) const TCA_UNSPEC: u16 = 0;
pub(crate) const TCA_KIND: u16 = 1;
pub(crate) const TCA_OPTIONS: u16 = 2;
pub(crate) const TCA_STATS: u16 = 3;
pub(crate) const TCA_XSTATS: u16 = 4;
pub(crate) const TCA_RATE: u16 = 5;
pub(crate) const TCA_FCNT: u16 = 6;
pub(crate) const TCA_STATS2: u16 = 7;
pub(crate) const TCA_STAB: u16 = 8;
pub(crate) const TCA_PAD: u16 = 9;
pub(crate) const TCA_DUMP_INVISIBLE: u16 = 10;
pub(crate) const TCA_CHAIN: u16 = 11;
pub(crate) const TCA_HW_OFFLOAD: u16 = 12;
pub(crate) const TCA_INGRESS_BLOCK: u16 = 13;
pub(crate) const TCA_EGRESS_BLOCK: u16 = 14;
pub(crate) const TCA_DUMP_FLAGS: u16 = 15;
pub(crate) const TCA_EXT_WARN_MSG: u16 = 16;

// tc, codel-attrs
pub(crate) const TCA_CODEL_UNSPEC: u16 = 0;
pub(crate) const TCA_CODEL_TARGET: u16 = 1;
pub(crate) const TCA_CODEL_LIMIT: u16 = 2;
pub(crate) const TCA_CODEL_INTERVAL: u16 = 3;
pub(crate) const TCA_CODEL_ECN: u16 = 4;
pub(crate) const TCA_CODEL_CE_THRESHOLD: u16 = 5;

// tc, fq-codel-attrs
pub(crate) const TCA_FQ_CODEL_UNSPEC: u16 = 0;
pub(crate) const TCA_FQ_CODEL_TARGET: u16 = 1;
pub(crate) const TCA_FQ_CODEL_LIMIT: u16 = 2;
pub(crate) const TCA_FQ_CODEL_INTERVAL: u16 = 3;
pub(crate) const TCA_FQ_CODEL_ECN: u16 = 4;
pub(crate) const TCA_FQ_CODEL_FLOWS: u16 = 5;
pub(crate) const TCA_FQ_CODEL_QUANTUM: u16 = 6;
pub(crate) const TCA_FQ_CODEL_CE_THRESHOLD: u16 = 7;
pub(crate) const TCA_FQ_CODEL_DROP_BATCH_SIZE: u16 = 8;
pub(crate) const TCA_FQ_CODEL_MEMORY_LIMIT: u16 = 9;
pub(crate) const TCA_FQ_CODEL_CE_THRESHOLD_SELECTOR: u16 = 10;
pub(crate) const TCA_FQ_CODEL_CE_THRESHOLD_MASK: u16 = 11;

// tc, fq-attrs
pub(crate) const TCA_FQ_UNSPEC: u16 = 0;
pub(crate) const TCA_FQ_PLIMIT: u16 = 1;
pub(crate) const TCA_FQ_FLOW_PLIMIT: u16 = 2;
pub(crate) const TCA_FQ_QUANTUM: u16 = 3;
pub(crate) const TCA_FQ_INITIAL_QUANTUM: u16 = 4;
pub(crate) const TCA_FQ_RATE_ENABLE: u16 = 5;
pub(crate) const TCA_FQ_FLOW_DEFAULT_RATE: u16 = 6;
pub(crate) const TCA_FQ_FLOW_MAX_RATE: u16 = 7;
pub(crate) const TCA_FQ_BUCKETS_LOG: u16 = 8;
pub(crate) const TCA_FQ_FLOW_REFILL_DELAY: u16 = 9;
pub(crate) const TCA_FQ_ORPHAN_MASK: u16 = 10;
pub(crate) const TCA_FQ_LOW_RATE_THRESHOLD: u16 = 11;
pub(crate) const TCA_FQ_CE_THRESHOLD: u16 = 12;
pub(crate) const TCA_FQ_TIMER_SLACK: u16 = 13;
pub(crate) const TCA_FQ_HORIZON: u16 = 14;
pub(crate) const TCA_FQ_HORIZON_DROP: u16 = 15;
pub(crate) const TCA_FQ_PRIOMAP: u16 = 16;
pub(crate) const TCA_FQ_WEIGHTS: u16 = 17;
pub(crate) const TCA_FQ_OFFLOAD_HORIZON: u16 = 18;

// tc, tbf-attrs
pub(crate) const TCA_TBF_UNSPEC: u16 = 0;
pub(crate) const TCA_TBF_PARMS: u16 = 1;
pub(crate) const TCA_TBF_RTAB: u16 = 2;
pub(crate) const TCA_TBF_PTAB: u16 = 3;
pub(crate) const TCA_TBF_RATE64: u16 = 4;
pub(crate) const TCA_TBF_PRATE64: u16 = 5;
pub(crate) const TCA_TBF_BURST: u16 = 6;
pub(crate) const TCA_TBF_PBURST: u16 = 7;
pub(crate) const TCA_TBF_PAD: u16 = 8;

// tc, netem-attrs
pub(crate) const TCA_NETEM_UNSPEC: u16 = 0;
pub(crate) const TCA_NETEM_CORR: u16 = 1;
pub(crate) const TCA_NETEM_DELAY_DIST: u16 = 2;
pub(crate) const TCA_NETEM_REORDER: u16 = 3;
pub(crate) const TCA_NETEM_CORRUPT: u16 = 4;
pub(crate) const TCA_NETEM_LOSS: u16 = 5;
pub(crate) const TCA_NETEM_RATE: u16 = 6;
pub(crate) const TCA_NETEM_ECN: u16 = 7;
pub(crate) const TCA_NETEM_RATE64: u16 = 8;
pub(crate) const TCA_NETEM_PAD: u16 = 9;
pub(crate) const TCA_NETEM_LATENCY64: u16 = 10;
pub(crate) const TCA_NETEM_JITTER64: u16 = 11;
pub(crate) const TCA_NETEM_SLOT: u16 = 12;
pub(crate) const TCA_NETEM_SLOT_DIST: u16 = 13;
pub(crate) const TCA_NETEM_PRNG_SEED: u16 = 14;
