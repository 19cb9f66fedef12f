//! A mail store.

use anyhow::Result;
use workloads::mail_store::{MailStore, Size};

use super::{
    life::{Life, Setting},
    perform::Performer,
};

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
    pub(super) fn begin(setting: &Setting<'_>) -> Self {
        Self {
            store: MailStore::new(STORE, setting.seed),
            performer: Performer::new(setting.folder.to_owned(), setting.seed),
        }
    }
}

impl Life for Mail {
    fn day(&mut self) -> Result<()> {
        (self.store.day().into_iter()).try_for_each(|change| self.performer.perform(change))
    }
}
