//! Programs whose jumps lead to labels, in place of counted instructions.

use super::code::{JUMP, instruction};

/// A place in a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label(usize);

/// A program that is being made.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    code: Vec<u64>,
    /// Where each label is, once it is placed.
    labels: Vec<Option<usize>>,
    /// Where jumps are, and where they lead.
    jumps: Vec<(usize, Label)>,
}

impl Assembly {
    /// Makes a label, to be placed later.
    pub(super) fn new_label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Places a label here.
    pub(super) fn place(&mut self, label: Label) {
        self.labels[label.0] = Some(self.code.len());
    }

    /// Adds instructions without jumps.
    pub(super) fn add(&mut self, instructions: &[u64]) {
        self.code.extend_from_slice(instructions);
    }

    /// Jumps to a label further on.
    pub(super) fn jump(&mut self, label: Label) {
        self.jump_by(instruction(JUMP, 0, 0, 0, 0), label);
    }

    /// Jumps if a register compares so with a number.
    pub(super) fn jump_if(&mut self, code: u8, register: u8, number: i32, label: Label) {
        self.jump_by(instruction(code, register, 0, 0, number), label);
    }

    /// Jumps if two registers compare so.
    pub(super) fn jump_if_both(&mut self, code: u8, [one, other]: [u8; 2], label: Label) {
        self.jump_by(instruction(code, one, other, 0, 0), label);
    }

    fn jump_by(&mut self, jump: u64, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.code.push(jump);
    }

    /// The instructions, with the distances of the jumps.
    pub(super) fn finish(mut self) -> Vec<u64> {
        for (at, label) in self.jumps {
            let to = self.labels[label.0].expect("a label that was placed");
            // From behind the jump; the verifier refuses endless loops, so that all lead on.
            let distance = u16::try_from(to - at - 1).expect("a short program");
            self.code[at] |= u64::from(distance) << 16;
        }
        self.code
    }
}

#[cfg(test)]
mod tests {
    use super::super::code::{EXIT, JUMP_IF_EQUAL, JUMP_IF_SAME, MOVE_IMMEDIATE};
    use super::*;

    #[test]
    fn jumps_lead_to_their_labels() {
        let mut made = Assembly::default();
        let (end, middle) = (made.new_label(), made.new_label());
        made.jump_if(JUMP_IF_EQUAL, 1, 7, end);
        made.jump_if_both(JUMP_IF_SAME, [1, 2], middle);
        made.jump(end);
        made.place(middle);
        made.add(&[instruction(MOVE_IMMEDIATE, 0, 0, 0, 1)]);
        made.place(end);
        made.add(&[instruction(EXIT, 0, 0, 0, 0)]);
        let expected = [
            instruction(JUMP_IF_EQUAL, 1, 0, 3, 7),
            instruction(JUMP_IF_SAME, 1, 2, 1, 0),
            instruction(JUMP, 0, 0, 1, 0),
            instruction(MOVE_IMMEDIATE, 0, 0, 0, 1),
            instruction(EXIT, 0, 0, 0, 0),
        ];
        assert_eq!(made.finish(), expected);
    }
}
