//! Leave to write to a kernel.

/// Leave to write to a kernel, which each call of [`KernelWrite`](crate::KernelWrite) takes.
///
/// It has no public constructor and cannot be copied: only the transaction makes one, for one of its calls. Whoever holds a
/// kernel can read it, and change it through a transaction.
#[derive(Debug)]
pub struct WritePermit(());

impl WritePermit {
    /// The leave of a transaction that has kept its checkpoint.
    pub(super) const fn new() -> Self {
        Self(())
    }
}
