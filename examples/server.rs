//! A server that embeds the engine: a thread and a session for each connection.
//!
//! It counts visits of pages, and speaks lines: `visit PAGE` and `visits PAGE` are answered by a number.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use ancile::{Engine, Globals, Number, Session, Verbs, key};

const CLIENTS: usize = 8;
const VISITS: usize = 50;

fn main() -> Result<(), Box<dyn Error>> {
    // Shards are threads of their own: leave processors to the server.
    let engine = Engine::builder().shards(1).arena_bytes(64 << 20).build()?;
    let store = engine.globals()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let visitor = |_| thread::spawn(move || visit(TcpStream::connect(address)?));
    let clients: Vec<_> = (0..CLIENTS).map(visitor).collect();
    for stream in listener.incoming().take(CLIENTS) {
        let (stream, session, store) = (stream?, engine.session()?, store.clone());
        thread::spawn(move || serve(stream, session, &store).unwrap());
    }
    for client in clients {
        client.join().expect("a client panicked")?;
    }
    let mut session = engine.session()?;
    let home = key!["visits", "home"]?;
    let visits = session.globals(&store).get_number(&home)?;
    println!("{CLIENTS} clients, {visits:?} visits");
    assert_eq!(visits, Some(((CLIENTS * VISITS) as i64).into()));
    Ok(engine.close()?)
}

fn serve(stream: TcpStream, mut session: Session, store: &Globals) -> Result<(), Box<dyn Error>> {
    let mut answers = stream.try_clone()?;
    for line in BufReader::new(stream).lines() {
        let mut globals = session.globals(store);
        let answer = match line?.split_once(' ') {
            Some(("visit", page)) => Some(globals.increment(&key!["visits", page]?, 1)?),
            Some(("visits", page)) => globals.get_number(&key!["visits", page]?)?,
            _ => None,
        };
        writeln!(answers, "{}", answer.unwrap_or(Number::ZERO))?;
    }
    Ok(())
}

/// A client, which waits for each answer.
fn visit(mut stream: TcpStream) -> std::io::Result<()> {
    let mut answers = BufReader::new(stream.try_clone()?).lines();
    for _ in 0..VISITS {
        writeln!(stream, "visit home")?;
        answers.next().transpose()?;
    }
    Ok(())
}
