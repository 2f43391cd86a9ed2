//! socket_file
