//! The host's program for Windows, under Wine: with the real gpg-agent.exe at home, and targets of Linux.

mod commands;
mod editor;
mod gpg;
mod port;
mod ssh;
mod target;
mod wine;

use port::Port;
use target::Target;
use wine::Wine;
