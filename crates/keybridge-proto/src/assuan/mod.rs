//! assuan
