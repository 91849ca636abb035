//! The socket CONTROL in the directory of an open database: where other processes ask for a backup.
//!
//! ```text
//! asks     {"backup":"/where/to"}
//! answers  {"done":1048576,"all":73400320}      again and again
//!          {"backed_up":{"epoch":17,"bytes":73400320}}   or   {"error":"..."}
//! ```
//! One line each, and one who asks at a time. Who goes away before the end ends the backup. Only the
//! user whose process it is may connect. The socket's name is made by whoever has the lock of the
//! directory, so one that is there already is left over from a process that was killed.
//!
//! The thread sleeps until somebody connects, and ends when the engine is closed, which a backup under
//! way does not hold up.

use std::fs::{self, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{BackedUp, Source};
use crate::engine::directory::CONTROL;
use crate::error::BackupError;

/// How long somebody who has connected may take to ask, and to take an answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often progress is told.
const PAUSE: Duration = Duration::from_millis(100);
/// How long to wait after a connection that the system has refused to give.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);
/// No request is longer.
const REQUEST_BYTES_MAX: u64 = 64 << 10;

#[derive(Serialize, Deserialize)]
struct Request {
    backup: PathBuf,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Answer {
    Progress { done: u64, all: u64 },
    BackedUp { backed_up: Figures },
    Error { error: String },
}

#[derive(Serialize, Deserialize)]
struct Figures {
    epoch: u64,
    bytes: u64,
}

/// The socket of an open engine. Dropping it leaves it to its thread.
pub(in crate::engine) struct Control {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

struct Shared {
    listener: UnixListener,
    path: PathBuf,
    source: Source,
    is_closing: AtomicBool,
    /// Who is being answered.
    asker: Mutex<Option<UnixStream>>,
}

impl Control {
    /// Listens in the directory of a database, whose lock the caller has; or says why not.
    pub(in crate::engine) fn start(source: Source) -> Result<Self, String> {
        let path = source.path.join(CONTROL);
        let failed = |error: io::Error| {
            format!(
                "other processes cannot ask for backups at {}: {error}",
                path.display()
            )
        };
        let listener = listen(&path).map_err(failed)?;
        let shared = Arc::new(Shared {
            listener,
            path: path.clone(),
            source,
            is_closing: AtomicBool::new(false),
            asker: Mutex::new(None),
        });
        let body = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("ancile-control".to_owned())
            .spawn(move || body.serve())
            .map_err(failed)?;
        Ok(Self { shared, thread })
    }

    /// Ends what is under way, and the thread; gives up the name.
    pub(in crate::engine) fn stop(self) {
        self.shared.close();
        let _ = self.thread.join();
        let _ = fs::remove_file(&self.shared.path);
    }
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    // Nobody else may connect at any time.
    let new = path.with_extension("new");
    for left in [path, &new] {
        match fs::remove_file(left) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let listener = UnixListener::bind(&new)?;
    fs::set_permissions(&new, Permissions::from_mode(0o600))?;
    fs::rename(&new, path)?;
    Ok(listener)
}

impl Shared {
    fn close(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
        if let Some(asker) = &*self.asker.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = asker.shutdown(Shutdown::Both);
        }
        // Who sleeps in accept is woken with an error.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }

    fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::SeqCst)
    }

    fn serve(&self) {
        while !self.is_closing() {
            match self.listener.accept() {
                Ok((stream, _)) => self.answer(stream),
                Err(_) if self.is_closing() => return,
                // No descriptors are left, for instance.
                Err(_) => thread::sleep(REFUSED_PAUSE),
            }
        }
    }

    fn answer(&self, stream: UnixStream) {
        let set = |asker: Option<UnixStream>| {
            *self.asker.lock().unwrap_or_else(PoisonError::into_inner) = asker;
        };
        set(stream.try_clone().ok());
        // Who has gone away is told nothing.
        if !self.is_closing() {
            let _ = self.answer_to(stream);
        }
        set(None);
    }

    fn answer_to(&self, mut stream: UnixStream) -> io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut line = String::new();
        BufReader::new((&stream).take(REQUEST_BYTES_MAX)).read_line(&mut line)?;
        let request: Request = match serde_json::from_str(&line) {
            Ok(request) => request,
            Err(error) => return say(&mut stream, &Answer::error(error)),
        };
        let mut told = Instant::now();
        let done = self.source.run(&request.backup, &mut |done, all| {
            if self.is_closing() {
                return false;
            }
            if told.elapsed() < PAUSE {
                return true;
            }
            told = Instant::now();
            say(&mut stream, &Answer::Progress { done, all }).is_ok()
        });
        let answer = match done {
            Ok(BackedUp { epoch, bytes }) => Answer::BackedUp {
                backed_up: Figures { epoch, bytes },
            },
            Err(_) if self.is_closing() => Answer::error(BackupError::Closed),
            Err(error) => Answer::error(error),
        };
        say(&mut stream, &answer)
    }
}

impl Answer {
    fn error(error: impl ToString) -> Self {
        Self::Error {
            error: error.to_string(),
        }
    }
}

fn say(stream: &mut UnixStream, answer: &Answer) -> io::Result<()> {
    let line = serde_json::to_string(answer)? + "\n";
    stream.write_all(line.as_bytes())
}

/// Asks the process that has a database open for a backup; none if no process listens.
pub(super) fn ask(
    path: &Path,
    directory: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Option<Result<BackedUp, BackupError>> {
    let stream = UnixStream::connect(path.join(CONTROL)).ok()?;
    Some(ask_at(stream, directory, progress))
}

fn ask_at(
    mut stream: UnixStream,
    directory: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<BackedUp, BackupError> {
    let lost = |error: io::Error| BackupError::Remote(format!("the connection broke: {error}"));
    let request = Request {
        backup: std::path::absolute(directory).map_err(lost)?,
    };
    let line = serde_json::to_string(&request).map_err(|error| lost(error.into()))?;
    stream.write_all((line + "\n").as_bytes()).map_err(lost)?;
    for line in BufReader::new(stream).lines() {
        let answer = serde_json::from_str(&line.map_err(lost)?);
        match answer.map_err(|error| lost(error.into()))? {
            Answer::Progress { done, all } => progress(done, all),
            Answer::BackedUp { backed_up } => {
                return Ok(BackedUp {
                    epoch: backed_up.epoch,
                    bytes: backed_up.bytes,
                });
            }
            Answer::Error { error } => return Err(BackupError::Remote(error)),
        }
    }
    Err(BackupError::Remote("it went away".to_owned()))
}
