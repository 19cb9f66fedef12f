//! A mail store.

use std::path::Path;

use anyhow::Result;
use workloads::mail_store::{MailStore, Size};

use super::{life::Life, perform::Performer};

/// Two thirds of the file system, once as many mails go as come; assumed.
const STORE: Size = Size {
    users: 20,
    mails: 8,
    kept_days: 120.0,
};

pub(super) struct Mail {
    store: MailStore,
    performer: Performer,
}

impl Mail {
    pub(super) fn begin(folder: &Path, seed: u64) -> Result<Self> {
        Ok(Self {
            store: MailStore::new(STORE, seed),
            performer: Performer::new(folder.to_owned(), seed),
        })
    }
}

impl Life for Mail {
    fn day(&mut self) -> Result<()> {
        (self.store.day().into_iter()).try_for_each(|change| self.performer.perform(change))
    }
}
