//! What goes wrong before a bridge works: a clear error with its exit status, and nothing left behind.
