//! Links that die come back by themselves.
