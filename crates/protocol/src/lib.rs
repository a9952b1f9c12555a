//! The language between the processes of latput: the messages, the lines that carry them, and the names that both ends
//! agree on.
//!
//! Read [`control`] first: a controller's requests to the agent of a host, and the answers. [`live`], [`host_view`] and
//! [`program`] have the larger ones. [`figure_line`] carries the figures of a program, and [`passing`] open files.

pub mod control;
pub mod figure_line;
pub mod folders;
pub mod host_view;
pub mod live;
pub mod passing;
pub mod program;
pub mod text;
