//! The instructions that the programs here are made of, by name (Documentation/bpf/standardization/instruction-set.rst).

use std::os::fd::RawFd;

pub(super) const LOAD: u8 = 0x79; // target = *(u64 *)(source + offset)
pub(super) const LOAD_8: u8 = 0x71; // target = *(u8 *)(source + offset)
pub(super) const LOAD_32: u8 = 0x61; // target = *(u32 *)(source + offset)
pub(super) const STORE: u8 = 0x7b; // *(u64 *)(target + offset) = source
pub(super) const STORE_IMMEDIATE: u8 = 0x7a; // *(u64 *)(target + offset) = immediate
const STORE_IMMEDIATE_32: u8 = 0x62;
/// Two slots, of which the second has the upper half of the immediate. Source 1: it is a map's descriptor; 2: that of an
/// array, and the second slot has an offset into its first value.
const LOAD_WIDE: u8 = 0x18;
pub(super) const MOVE: u8 = 0xbf;
/// The lower half; of a pointer it makes a number.
pub(super) const MOVE_32: u8 = 0xbc;
pub(super) const MOVE_IMMEDIATE: u8 = 0xb7;
pub(super) const ADD: u8 = 0x0f;
pub(super) const ADD_IMMEDIATE: u8 = 0x07;
pub(super) const MULTIPLY_IMMEDIATE: u8 = 0x27;
pub(super) const SHIFT_LEFT: u8 = 0x67;
pub(super) const SHIFT_RIGHT_SIGNED: u8 = 0xc7;
pub(super) const CALL: u8 = 0x85;
pub(super) const JUMP: u8 = 0x05;
pub(super) const JUMP_IF_EQUAL: u8 = 0x15;
pub(super) const JUMP_IF_GREATER_SIGNED: u8 = 0x65;
pub(super) const JUMP_IF_SAME: u8 = 0x1d; // target == source
pub(super) const JUMP_IF_OTHER: u8 = 0x5d; // target != source
pub(super) const JUMP_IF_GREATER: u8 = 0x2d; // target > source, without signs
pub(super) const EXIT: u8 = 0x95;
pub(super) const AND: u8 = 0x5f;
pub(super) const AND_IMMEDIATE: u8 = 0x57;
pub(super) const OR: u8 = 0x4f;
pub(super) const OR_IMMEDIATE: u8 = 0x47;
pub(super) const SUBTRACT: u8 = 0x1f;
pub(super) const SHIFT_RIGHT: u8 = 0x77;
pub(super) const SHIFT_RIGHT_BY: u8 = 0x7f; // by a register
pub(super) const JUMP_IF_NOT_EQUAL: u8 = 0x55;
/// Atomic on `*(u64 *)(target + offset)`; the immediate says what.
pub(super) const ATOMIC: u8 = 0xdb;
pub(super) const ATOMIC_ADD: i32 = 0x00;
/// The source gets the old value (Linux 5.12).
pub(super) const ATOMIC_EXCHANGE: i32 = 0xe1;

// Helper functions, include/uapi/linux/bpf.h.
pub(super) const MAP_LOOKUP: i32 = 1;
pub(super) const MAP_UPDATE: i32 = 2;
pub(super) const KTIME_GET_NS: i32 = 5;
pub(super) const GET_CURRENT_TASK: i32 = 35;
pub(super) const GET_SOCKET_COOKIE: i32 = 46;
pub(super) const RINGBUF_OUTPUT: i32 = 130;
pub(super) const SKC_TO_TCP_SOCK: i32 = 137;
pub(super) const GET_CURRENT_TASK_BTF: i32 = 158;

/// One instruction: `struct bpf_insn`, little endian.
pub(super) const fn instruction(
    code: u8,
    target: u8,
    source: u8,
    offset: i16,
    immediate: i32,
) -> u64 {
    code as u64
        | (target as u64) << 8
        | (source as u64) << 12
        | ((offset as u16) as u64) << 16
        | ((immediate as u32) as u64) << 32
}

/// Puts a map into a register.
pub(super) const fn load_map(target: u8, map: RawFd) -> [u64; 2] {
    [instruction(LOAD_WIDE, target, 1, 0, map), instruction(0, 0, 0, 0, 0)]
}

/// Puts the address of a byte of an array's first value into a register.
pub(super) const fn load_map_value(target: u8, map: RawFd, offset: i32) -> [u64; 2] {
    [instruction(LOAD_WIDE, target, 2, 0, map), instruction(0, 0, 0, 0, offset)]
}

/// Puts a number into a register.
pub(super) const fn load_constant(target: u8, value: u64) -> [u64; 2] {
    // The first slot has the lower half above its code, and the second the upper half.
    let lower = value << 32;
    [instruction(LOAD_WIDE, target, 0, 0, 0) | lower, value & !0xffff_ffff]
}

/// Calls the kernel's function with this type number, one of those that programs may call.
pub(super) const fn call_kernel(type_number: u32) -> u64 {
    instruction(CALL, 0, 2, 0, type_number.cast_signed())
}

/// Leaves in r0 the address of this CPU's slot of `map`, zero where there is none:
/// `__u32 key = 0; r0 = bpf_map_lookup_elem(&map, &key);`. Registers 1 to 5 are lost.
pub(super) const fn look_up(map: RawFd) -> [u64; 6] {
    let [first, second] = load_map(1, map);
    [
        instruction(STORE_IMMEDIATE_32, 10, 0, -4, 0), // key = 0, on the stack
        instruction(MOVE, 2, 10, 0, 0),
        instruction(ADD_IMMEDIATE, 2, 0, 0, -4),
        first,
        second,
        instruction(CALL, 0, 0, 0, MAP_LOOKUP),
    ]
}
