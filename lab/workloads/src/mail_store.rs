//! A mail store, day by day, as Dovecot's format mdbox has it.
//!
//! Each user has containers, to the last of which mails are appended until it has 10 MiB (`mdbox_rotate_size`), and an
//! index log, which is begun anew at 1 MiB (`mail_index_log_rotate_max_size`; both values are Dovecot 2.3's defaults). Each mail is
//! durable before the next one arrives. Mails that users delete stay in their container until it is purged
//! (`doveadm purge`), once a month for each user: what is left of it is appended to the user's last container, and the old
//! one is deleted.
//!
//! Sizes of mails are gamma distributed with a mean of 16 KiB, as filebench's `varmail.f` has them. How many users there
//! are, how many mails they get, and for how long they keep them, is [`Size`], and assumed.

use crate::{
    Numbers,
    change::{Change, FileNumber},
    filebench::file_bytes,
};

/// `mdbox_rotate_size`.
const CONTAINER_BYTES: u64 = 10 << 20;
/// `mail_index_log_rotate_max_size`.
const INDEX_BYTES: u64 = 1 << 20;
/// An entry of the index log for a mail that arrives or goes: Dovecot's are some dozens of bytes to some hundreds, with what is
/// cached of the headers.
const ENTRY_BYTES: u64 = 400;
const MAIL_BYTES: u64 = 16 << 10;
/// Days between two purges of a user.
const PURGE_DAYS: u32 = 30;

/// How large a store is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Users.
    pub users: u32,
    /// Mails that a user gets in a day.
    pub mails: u32,
    /// Days that a mail is kept, on average (exponentially distributed).
    pub kept_days: f64,
}

impl Size {
    /// Bytes of mails that are kept, once as many are deleted as arrive.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let mails = f64::from(self.users) * f64::from(self.mails) * self.kept_days;
        (mails * MAIL_BYTES as f64) as u64
    }
}

#[derive(Clone, Copy, Debug)]
struct Mail {
    bytes: u64,
    /// The day on which its user deletes it.
    until: u32,
}

#[derive(Clone, Debug, Default)]
struct Container {
    file: FileNumber,
    mails: Vec<Mail>,
}

impl Container {
    fn bytes(&self) -> u64 {
        self.mails.iter().map(|mail| mail.bytes).sum()
    }
}

#[derive(Clone, Debug, Default)]
struct User {
    /// The last one is that to which mails are appended.
    containers: Vec<Container>,
    index: FileNumber,
    index_bytes: u64,
}

/// The store.
#[derive(Clone, Debug)]
pub struct MailStore {
    size: Size,
    numbers: Numbers,
    users: Vec<User>,
    day: u32,
    /// The number of the next file.
    next: FileNumber,
    changes: Vec<Change>,
}

impl MailStore {
    /// An empty store.
    #[must_use]
    pub fn new(size: Size, seed: u64) -> Self {
        let mut store = Self {
            size,
            numbers: Numbers::new(seed),
            users: vec![User::default(); size.users as usize],
            day: 0,
            next: 0,
            changes: Vec::new(),
        };
        for user in 0..store.users.len() {
            store.users[user].index = store.file();
        }
        store
    }

    /// The changes of the next day.
    pub fn day(&mut self) -> Vec<Change> {
        let mut mails: Vec<usize> = (0..self.users.len())
            .flat_map(|user| std::iter::repeat_n(user, self.size.mails as usize))
            .collect();
        self.numbers.shuffle(&mut mails);
        for user in mails {
            let days = -self.size.kept_days * (1.0 - self.numbers.fraction()).ln();
            let mail = Mail {
                bytes: file_bytes(&mut self.numbers, MAIL_BYTES),
                until: self.day.saturating_add(days as u32),
            };
            self.deliver(user, mail, true);
            self.note(user);
        }
        for user in 0..self.users.len() {
            if (self.day + user as u32).is_multiple_of(PURGE_DAYS) {
                self.purge(user);
            }
        }
        self.day += 1;
        std::mem::take(&mut self.changes)
    }

    fn file(&mut self) -> FileNumber {
        self.next += 1;
        self.next - 1
    }

    fn deliver(&mut self, user: usize, mail: Mail, durable: bool) {
        let has_room = |last: &Container| last.bytes() + mail.bytes <= CONTAINER_BYTES;
        if !self.users[user].containers.last().is_some_and(has_room) {
            let file = self.file();
            self.users[user].containers.push(Container {
                file,
                mails: Vec::new(),
            });
        }
        if let Some(last) = self.users[user].containers.last_mut() {
            last.mails.push(mail);
            self.changes.push(Change::Append {
                file: last.file,
                bytes: mail.bytes,
                durable,
            });
        }
    }

    /// An entry in the index log.
    fn note(&mut self, user: usize) {
        if self.users[user].index_bytes + ENTRY_BYTES > INDEX_BYTES {
            let new = self.file();
            let old = std::mem::replace(&mut self.users[user].index, new);
            self.users[user].index_bytes = 0;
            self.changes.push(Change::Delete(old));
        }
        let User {
            index, index_bytes, ..
        } = &mut self.users[user];
        *index_bytes += ENTRY_BYTES;
        self.changes.push(Change::Append {
            file: *index,
            bytes: ENTRY_BYTES,
            durable: false,
        });
    }

    fn purge(&mut self, user: usize) {
        let day = self.day;
        let is_deleted = move |mail: &Mail| mail.until <= day;
        let (purged, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.users[user].containers)
            .into_iter()
            .partition(|container| container.mails.iter().any(is_deleted));
        self.users[user].containers = kept;
        for container in purged {
            let left: Vec<Mail> = container
                .mails
                .into_iter()
                .filter(|mail| !is_deleted(mail))
                .collect();
            let last = left.len().saturating_sub(1);
            for (place, mail) in left.into_iter().enumerate() {
                self.deliver(user, mail, place == last);
            }
            self.changes.push(Change::Delete(container.file));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_store_holds_what_is_kept_and_what_is_not_purged_yet() {
        let size = Size {
            users: 10,
            mails: 8,
            kept_days: 60.0,
        };
        let mut store = MailStore::new(size, 3);
        let mut files = BTreeMap::new();
        for day in 0..365 {
            for change in store.day() {
                match change {
                    Change::Append { file, bytes, .. } => *files.entry(file).or_insert(0) += bytes,
                    Change::Delete(file) => assert!(files.remove(&file).is_some(), "day {day}"),
                }
            }
        }
        let bytes: u64 = files.values().sum();
        let part = bytes as f64 / size.bytes() as f64;
        assert!((0.9..1.6).contains(&part), "{part}");
        assert!(files.values().all(|bytes| *bytes <= CONTAINER_BYTES));
        // Each user has an index.
        assert!(files.len() > size.users as usize);
    }
}
