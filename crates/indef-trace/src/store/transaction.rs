//! Transactions: all of the work, or none.

use rusqlite::{Transaction, TransactionBehavior};

use super::{
    error::{Result, StoreError, meaning},
    handle::Store,
};

/// Why a transaction was given up.
pub(super) enum Stop {
    Error(rusqlite::Error),
    /// The file would grow beyond its size.
    TooLarge,
    /// Another store could not be read.
    Other(StoreError),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Other(error)
    }
}

impl From<rusqlite::Error> for Stop {
    fn from(error: rusqlite::Error) -> Self {
        Self::Error(error)
    }
}

impl Store {
    /// Run a transaction that adds no ranges.
    pub(super) fn write<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T> {
        let begin = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate);
        begin
            .and_then(|transaction| {
                let done = work(&transaction)?;
                transaction.commit()?;
                Ok(done)
            })
            .map_err(|error| meaning(&self.path, error))
    }
}
