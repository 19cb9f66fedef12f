//! A checksum in each row, so that a value that changed on the disk is noticed.
//!
//! SQLite finds pages that cannot be, but any eight bytes are a count. The checksum covers all other
//! columns of its row. It is computed by an SQL function, in the transaction that writes the row; a
//! statement that changes a row checks it before, so that no damage gets a fresh checksum.
//!
//! Rows of `ranges` are many: theirs is computed in the statement that writes them, from numbers alone. Those of
//! files, sessions and settings have values of all types ([`seal`]).

use rusqlite::{Connection, functions::FunctionFlags, types::ValueRef};

use super::tables::Sealed;

/// Columns that the checksum of a range covers: file, start, length, and the counts. A count that is NULL is not a
/// number in memory.
const PLACE: usize = 3;
pub(super) const COUNTS: usize = 6;
/// Counts of version 2.
pub(super) const COUNTS_2: usize = 5;

/// The names of the SQL functions.
const OF_RANGE: &str = "row_checksum";
const OF_VALUES: &str = "values_checksum";

/// Let the statements of a connection compute checksums.
pub(super) fn define(connection: &Connection) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8
        | FunctionFlags::SQLITE_DETERMINISTIC
        | FunctionFlags::SQLITE_DIRECTONLY;
    connection.create_scalar_function(OF_RANGE, -1, flags, |row| {
        let mut place = [0; PLACE];
        let mut counts = vec![0.0; row.len().saturating_sub(PLACE)];
        for (at, value) in place.iter_mut().enumerate() {
            *value = row.get(at)?;
        }
        for (at, value) in counts.iter_mut().enumerate() {
            *value = row.get::<Option<f64>>(PLACE + at)?.unwrap_or(f64::NAN);
        }
        Ok(of(place, &counts))
    })?;
    connection.create_scalar_function(OF_VALUES, -1, flags, |row| {
        Ok(of_values((0..row.len()).map(|at| row.get_raw(at))))
    })
}

/// The checksum of a range.
pub(super) fn of(place: [i64; PLACE], counts: &[f64]) -> i64 {
    // Zero has two signs, which are equal for SQLite, and there is more than one NaN.
    let counts = counts.iter().map(|count| match count.is_nan() {
        true => f64::NAN.to_bits(),
        false => (count + 0.0).to_bits(),
    });
    let words = place.map(i64::cast_unsigned).into_iter().chain(counts);
    let mut hash = Fnv::new();
    words.for_each(|word| hash.add(&word.to_le_bytes()));
    hash.folded()
}

/// The checksum of values, each with its type and its length.
fn of_values<'a>(values: impl Iterator<Item = ValueRef<'a>>) -> i64 {
    let mut hash = Fnv::new();
    for value in values {
        match value {
            ValueRef::Null => hash.add(&[0]),
            ValueRef::Integer(number) => {
                hash.add(&[1]);
                hash.add(&number.to_le_bytes());
            }
            ValueRef::Real(number) => {
                hash.add(&[2]);
                hash.add(&(number + 0.0).to_bits().to_le_bytes());
            }
            ValueRef::Text(bytes) => hash.add_bytes(3, bytes),
            ValueRef::Blob(bytes) => hash.add_bytes(4, bytes),
        }
    }
    hash.folded()
}

/// FNV-1a.
struct Fnv(u64);

impl Fnv {
    fn new() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
        }
    }

    fn add_bytes(&mut self, kind: u8, bytes: &[u8]) {
        self.add(&[kind]);
        self.add(&(bytes.len() as u64).to_le_bytes());
        self.add(bytes);
    }

    /// The 32 bits that a row has room for: signed, so that SQLite keeps them in four bytes.
    fn folded(self) -> i64 {
        i64::from(((self.0 >> 32) as u32 ^ self.0 as u32).cast_signed())
    }
}

/// Give the row of this number its checksum, in the transaction that wrote it.
pub(super) fn seal(connection: &Connection, table: Sealed, id: i64) -> rusqlite::Result<()> {
    let (name, checksum) = (table.name(), table.checksum());
    let seal = format!("UPDATE {name} SET checksum = {checksum} WHERE id = ?1");
    connection.prepare_cached(&seal)?.execute([id])?;
    Ok(())
}
