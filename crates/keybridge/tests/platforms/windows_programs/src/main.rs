//! Joins a Windows program with a TCP port of this machine, behind which a program of Linux is: under Wine
//! neither can use the pipes of the other.
//!
//! `relay PORT WORD...` sends the words as one line, with a zero byte between them, and then joins its own standard
//! input and output with the port. With `RELAY_PORT` in the environment that is the port, and all words
//! are sent. `relay PORT --pipe NAME` is a server of a named pipe, and joins each of its clients with a
//! connection of its own.

use std::io::{Error, Read, Result, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};

use tokio::net::windows::named_pipe::{NamedPipeServer, ServerOptions};

fn main() -> Result<()> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    if let Ok(port) = std::env::var("RELAY_PORT") {
        words.insert(0, port);
    }
    let (port, words) = words.split_first().ok_or_else(|| Error::other("a port is missing"))?;
    let port = port.parse().map_err(|error| Error::other(format!("{port}: {error}")))?;
    match words {
        [option, name] if option == "--pipe" => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(serve(name, port))
        }
        _ => join_standard_streams(port, words),
    }
}

/// Ends when the output ends, because the parent may keep the input open.
fn join_standard_streams(port: u16, words: &[String]) -> Result<()> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_nodelay(true)?;
    // Words of tests have no zero byte in them.
    stream.write_all(format!("{}\n", words.join("\0")).as_bytes())?;
    let to_port = stream.try_clone()?;
    std::thread::spawn(move || {
        let _ = carry(std::io::stdin(), &to_port);
        to_port.shutdown(Shutdown::Write)
    });
    carry(&stream, std::io::stdout())
}

/// Each piece goes on as it comes.
fn carry(mut from: impl Read, mut to: impl Write) -> Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = from.read(&mut buffer)?;
        let Some(piece) = buffer.get(..count).filter(|piece| !piece.is_empty()) else {
            return Ok(());
        };
        to.write_all(piece)?;
        to.flush()?;
    }
}

async fn serve(name: &str, port: u16) -> Result<()> {
    let mut server = ServerOptions::new().first_pipe_instance(true).create(name)?;
    // For whoever waits until it listens.
    println!("listening");
    loop {
        server.connect().await?;
        let client = std::mem::replace(&mut server, ServerOptions::new().create(name)?);
        tokio::spawn(join_client(client, port));
    }
}

async fn join_client(mut client: NamedPipeServer, port: u16) {
    let Ok(mut stream) = tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await else {
        return;
    };
    // A client that has gone needs no more.
    let _ = tokio::io::copy_bidirectional(&mut client, &mut stream).await;
}
