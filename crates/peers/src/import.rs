//! Files of other programs.
