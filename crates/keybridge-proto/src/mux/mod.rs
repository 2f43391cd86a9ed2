//! mux
