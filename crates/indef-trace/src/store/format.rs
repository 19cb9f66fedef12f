//! The numbers that mark a file as a store.

/// The schema's version, SQLite's `user_version`.
pub(super) const VERSION: i64 = 5;

/// SQLite's `application_id`: "inDf".
pub(super) const APPLICATION: i32 = 0x696E_4466;

/// The first bytes of every SQLite database (SQLite file format, §1.3).
pub(super) const SQLITE: &[u8; 16] = b"SQLite format 3\0";
