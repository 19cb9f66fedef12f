//! A checksum in each row of `ranges`, so that a count that changed on the disk is noticed.
//!
//! SQLite finds pages that cannot be, but any eight bytes are a count. The checksum covers all other
//! columns of its row. It is computed by an SQL function, in the statement that writes the row; a
//! statement that changes a row checks it before, so that no damage gets a fresh checksum.

use rusqlite::{Connection, functions::FunctionFlags};

/// Columns that the checksum covers: file, start, length, and the counts. A count that is NULL is not a
/// number in memory.
const PLACE: usize = 3;
pub(super) const COUNTS: usize = 6;
/// Counts of version 2.
pub(super) const COUNTS_2: usize = 5;

/// The name of the SQL function.
const FUNCTION: &str = "row_checksum";

/// Let the statements of a connection compute checksums.
pub(super) fn define(connection: &Connection) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8
        | FunctionFlags::SQLITE_DETERMINISTIC
        | FunctionFlags::SQLITE_DIRECTONLY;
    connection.create_scalar_function(FUNCTION, -1, flags, |row| {
        let mut place = [0; PLACE];
        let mut counts = vec![0.0; row.len().saturating_sub(PLACE)];
        for (at, value) in place.iter_mut().enumerate() {
            *value = row.get(at)?;
        }
        for (at, value) in counts.iter_mut().enumerate() {
            *value = row.get::<Option<f64>>(PLACE + at)?.unwrap_or(f64::NAN);
        }
        Ok(of(place, &counts))
    })
}

/// The checksum of a row: FNV-1a over its values, folded to the 32 bits that a row has room for.
pub(super) fn of(place: [i64; PLACE], counts: &[f64]) -> i64 {
    // Zero has two signs, which are equal for SQLite, and there is more than one NaN.
    let counts = counts.iter().map(|count| match count.is_nan() {
        true => f64::NAN.to_bits(),
        false => (count + 0.0).to_bits(),
    });
    let words = place.map(i64::cast_unsigned).into_iter().chain(counts);
    let hash = words
        .flat_map(u64::to_le_bytes)
        .fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
        });
    // Signed, so that SQLite keeps it in four bytes.
    i64::from(((hash >> 32) as u32 ^ hash as u32).cast_signed())
}
