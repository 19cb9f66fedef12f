//! Ageing a directory the way real programs do: files that grow at the same time, and a database.
//!
//! Four writers append to their files in turn, in small pieces, so that each new piece of a file
//! lies past pieces of the others. One of them writes a long piece now and then: those parts stay
//! contiguous, and a planner should leave them alone. Meanwhile SQLite inserts and updates rows, a
//! transaction at a time.
//!
//! Pieces must be placed in the order in which they are written: ext4 would gather small writes
//! before it places them, so there each piece is reserved first, as databases and download programs
//! do; elsewhere pieces are written with direct I/O, or, where that is not direct (F2FS on zones),
//! written back one by one. And they are written one at a time: XFS gives writers that allocate at
//! the same moment an allocation group each, where none of them interferes with another.

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Barrier, Mutex, PoisonError},
    thread,
};

use anyhow::{Context, Result, anyhow};
use indef_core::Draw;
use indef_engine::Cancel;
use loop_fs::AlignedBuffer;
use rusqlite::Connection;
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use units::Bytes;

use crate::output::Name;

const BLOCK: u64 = 4096;
/// The longest piece that a writer appends.
const LONGEST: u64 = 128 << 10;
/// Number of the writers' pieces for each transaction of the database.
const PIECES_PER_TRANSACTION: usize = 16;
const NAMES: [&str; 4] = ["orders.log", "events.log", "download.img", "mixed.dat"];

/// The way in which a piece is placed on the device as soon as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pieces {
    /// It is reserved beforehand.
    Reserved,
    /// It is written with direct I/O.
    Direct,
    /// It is written back at once.
    WrittenBack,
}

/// Make aged files of `size` in all under `dir`, and return their paths. `place` selects the way in
/// which pieces are placed. Ends early when `cancel` is set.
pub(super) fn age(dir: &Path, size: Bytes, place: Pieces, cancel: &Cancel) -> Result<Vec<PathBuf>> {
    let each = size.get() / (NAMES.len() as u64 + 1) / BLOCK * BLOCK;
    let pieces: Vec<Vec<u64>> = (0..NAMES.len()).map(|n| piece_sizes(n, each)).collect();
    let rounds = pieces.iter().map(Vec::len).max().unwrap_or(0);
    let mut files = files(dir);
    let database = files.pop().unwrap_or_default();
    // Every party waits for all others after each round, whatever went wrong in it: a party that
    // left would let the others wait for ever.
    let turn = Barrier::new(NAMES.len() + 1);
    let (turn, pen) = (&turn, &Mutex::new(()));
    thread::scope(|scope| {
        let writers: Vec<_> = (0..NAMES.len())
            .map(|n| {
                let (path, sizes) = (&files[n], &pieces[n]);
                scope.spawn(move || {
                    let mut writer = PieceWriter::create(path, n as u64, place);
                    for round in 0..rounds {
                        if let (Ok(ready), Some(length), false) =
                            (&mut writer, sizes.get(round), cancel.is_cancelled())
                        {
                            let _held = pen.lock().unwrap_or_else(PoisonError::into_inner);
                            if let Err(error) = ready.append(*length) {
                                writer = Err(error);
                            }
                        }
                        turn.wait();
                    }
                    writer
                        .and_then(|writer| Ok(writer.buffered.sync_all()?))
                        .with_context(|| format!("{}: cannot write it", Name(path)))
                })
            })
            .collect();
        let mut shop = Shop::create(&database, each, rounds.div_ceil(PIECES_PER_TRANSACTION));
        for round in 0..rounds {
            if let (Ok(open), 0, false) = (
                &mut shop,
                round % PIECES_PER_TRANSACTION,
                cancel.is_cancelled(),
            ) && let Err(error) = open.transact()
            {
                shop = Err(error);
            }
            turn.wait();
        }
        let mut result = shop
            .map(drop)
            .with_context(|| format!("{}: SQLite cannot write it", Name(&database)));
        for writer in writers {
            let written = writer
                .join()
                .map_err(|_| anyhow!("a writer of the demo panicked"))?;
            result = result.and(written);
        }
        result
    })?;
    files.push(database);
    // This writes back the database's last pages, and the names.
    rustix::fs::syncfs(&File::open(dir)?)?;
    Ok(files)
}

/// The files that [`age`] makes, the database last.
pub(super) fn files(dir: &Path) -> Vec<PathBuf> {
    let names = NAMES.iter().chain(["shop.sqlite"].iter());
    names.map(|name| dir.join(name)).collect()
}

/// The pieces in which writer `n` appends its file: 4 to 16 KiB; the last writer's are 4 KiB with
/// a long one after every 32.
fn piece_sizes(n: usize, total: u64) -> Vec<u64> {
    let mut numbers = Draw::new(n as u64 + 1);
    let mut sizes = Vec::new();
    let mut left = total;
    while left > 0 {
        let size = match n == NAMES.len() - 1 {
            true if sizes.len() % 33 == 32 => LONGEST,
            true => BLOCK,
            false => BLOCK * (1 + numbers.next() % 4),
        };
        sizes.push(size.min(left));
        left -= size.min(left);
    }
    sizes
}

/// Appends pieces to one file.
struct PieceWriter {
    buffered: File,
    /// The file opened for direct I/O, where pieces are written with it.
    direct: Option<File>,
    place: Pieces,
    piece: AlignedBuffer,
    numbers: Draw,
    length: u64,
}

impl PieceWriter {
    fn create(path: &Path, seed: u64, place: Pieces) -> Result<Self> {
        let buffered = OpenOptions::new().write(true).create_new(true).open(path)?;
        let direct = OpenOptions::new()
            .write(true)
            .custom_flags(OFlags::DIRECT.bits() as i32)
            .open(path);
        Ok(Self {
            buffered,
            // A file system without direct I/O gets plain writes.
            direct: direct.ok().filter(|_| place == Pieces::Direct),
            place,
            piece: AlignedBuffer::new(LONGEST as usize),
            numbers: Draw::new(seed + 100),
            length: 0,
        })
    }

    fn append(&mut self, length: u64) -> Result<()> {
        let content = &mut self.piece.slice()[..length as usize];
        for word in content.chunks_exact_mut(8) {
            word.copy_from_slice(&self.numbers.next().to_le_bytes());
        }
        match &self.direct {
            Some(direct) => direct.write_all_at(content, self.length)?,
            None => {
                if self.place != Pieces::WrittenBack {
                    fallocate(&self.buffered, FallocateFlags::empty(), self.length, length)?;
                }
                self.buffered.write_all_at(content, self.length)?;
                if self.place == Pieces::WrittenBack {
                    linux_abi::cache::write_and_wait(&self.buffered, self.length, length)?;
                }
            }
        }
        self.length += length;
        Ok(())
    }
}

/// A database that grows, and whose rows change.
struct Shop {
    connection: Connection,
    numbers: Draw,
    rows_per_transaction: u64,
    rows: u64,
}

impl Shop {
    const ROW: u64 = 1 << 10;

    fn create(path: &Path, size: u64, transactions: usize) -> Result<Self> {
        fs::File::create_new(path)?;
        let connection = Connection::open(path)?;
        connection.execute_batch(
            "PRAGMA journal_mode = TRUNCATE; PRAGMA synchronous = NORMAL; \
             CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT, goods BLOB);",
        )?;
        Ok(Self {
            connection,
            numbers: Draw::new(7),
            rows_per_transaction: (size / Self::ROW).div_ceil(transactions.max(1) as u64),
            rows: 0,
        })
    }

    /// Insert new orders, and change a few old ones.
    fn transact(&mut self) -> Result<()> {
        let transaction = self.connection.transaction()?;
        {
            let mut insert = transaction
                .prepare_cached("INSERT INTO orders (customer, goods) VALUES (?1, ?2)")?;
            for _ in 0..self.rows_per_transaction {
                let goods: Vec<u8> = (0..Self::ROW / 8)
                    .flat_map(|_| self.numbers.next().to_le_bytes())
                    .collect();
                insert.execute((format!("customer {}", self.numbers.next() % 10_000), goods))?;
            }
            let mut change =
                transaction.prepare_cached("UPDATE orders SET customer = ?1 WHERE id = ?2")?;
            self.rows += self.rows_per_transaction;
            for _ in 0..4 {
                let row = (self.numbers.next() % self.rows + 1) as i64;
                change.execute(("customer moved", row))?;
            }
        }
        Ok(transaction.commit()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_whole_blocks_and_add_up() {
        for n in 0..NAMES.len() {
            let sizes = piece_sizes(n, 1 << 20);
            assert_eq!(sizes.iter().sum::<u64>(), 1 << 20);
            assert!(
                sizes
                    .iter()
                    .all(|size| size % BLOCK == 0 && *size <= LONGEST)
            );
        }
    }

    #[test]
    fn a_failing_writer_ends_the_ageing_with_an_error_and_no_hang() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("events.log"), "in the way").unwrap();
        let error = age(dir.path(), Bytes::mib(1), Pieces::Direct, &Cancel::new()).unwrap_err();
        assert!(format!("{error:#}").contains("events.log"), "{error:#}");
    }

    #[test]
    fn aged_files_have_the_size_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let files = age(
            dir.path(),
            Bytes::mib(4),
            Pieces::WrittenBack,
            &Cancel::new(),
        )
        .unwrap();
        assert_eq!(files.len(), NAMES.len() + 1);
        let total: u64 = files.iter().map(|f| fs::metadata(f).unwrap().len()).sum();
        assert!((3 << 20..6 << 20).contains(&total), "{total}");
    }
}
