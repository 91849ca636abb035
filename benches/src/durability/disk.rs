//! The limit: how fast a disk takes blocks of the journal's length, synced now and then.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Instant;

use super::{Turn, Turns};
use crate::failure::Failure;

const BLOCK: usize = 64 << 10;
const BLOCKS: usize = 1024;

/// Writes a file over and over again, with a sync after each MiB.
pub(super) fn run(place: &Path, rounds: usize) -> Result<Vec<Turns>, Failure> {
    let path = place.join("disk");
    let mut file = File::create(&path)?;
    let block = vec![7; BLOCK];
    let mut turns = Vec::new();
    // The first one makes the file's blocks, and does not count.
    for round in 0..=rounds {
        file.seek(SeekFrom::Start(0))?;
        let (start, mut longest) = (Instant::now(), 0);
        for number in 0..BLOCKS {
            file.write_all(&block)?;
            if number % 16 == 15 {
                let sync = Instant::now();
                file.sync_data()?;
                longest = longest.max(sync.elapsed().as_micros() as u64);
            }
        }
        if round > 0 {
            turns.push(Turn {
                per_second: (BLOCK * BLOCKS) as f64 / start.elapsed().as_secs_f64(),
                longest_micros: longest,
            });
        }
    }
    std::fs::remove_file(path)?;
    Ok(vec![Turns {
        subject: "a plain file, synced each MiB".to_owned(),
        turns,
    }])
}
