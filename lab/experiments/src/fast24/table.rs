//! A database's table that grows row by row between writes to another file, and a query that reads all of it.

use flash_model::Profile;
use units::Nanos;

use super::{
    device::drive,
    host::{File, Host, MIB},
};

/// The namespace, of which a part is never written: there is nothing to collect.
const DRIVE: u64 = 2048 * MIB;

/// The table, the device that it is on, and the host's time.
#[derive(Clone, Debug)]
pub struct Table {
    /// The device.
    pub profile: Profile,
    /// Rows.
    pub rows: u64,
    /// Bytes of a page.
    pub page: u64,
    /// Pages of each row alone.
    pub row_pages: u64,
    /// Rows that share one more page, which lies before the first one's.
    pub rows_in_leaf: u64,
    /// Bytes that are written to another file after each row.
    pub dummy: u64,
    /// Bytes that the kernel reads ahead at once.
    pub window: u64,
    /// The host's time for these bytes.
    pub per_window: Nanos,
}

impl Table {
    /// Speed of the query if the table was written in one go, in MB/s.
    #[must_use]
    pub fn contiguous(&self) -> f64 {
        let mut host = Host::new(drive(&self.profile, DRIVE), false, Nanos(0));
        let mut file = File::default();
        let pages = self.rows * self.row_pages + self.rows.div_ceil(self.rows_in_leaf);
        host.append(&mut file, (1 + pages) * self.page);
        self.select(&mut host, &file)
    }

    /// Speed of the query after rows were inserted one by one without a journal, in MB/s.
    ///
    /// Each row is a transaction: SQLite writes the first page (the change counter), the leaf that the row is in, and
    /// the row's own pages, and syncs.
    #[must_use]
    pub fn inserted(&self, hints: bool) -> f64 {
        let mut host = Host::new(drive(&self.profile, DRIVE), hints, Nanos(0));
        let (mut file, mut other) = (File::default(), File::default());
        host.append(&mut file, self.page);
        let mut leaf = 0;
        for row in 0..self.rows {
            host.overwrite_unsynced(&file, 0, self.page);
            let mut new = self.row_pages;
            if row % self.rows_in_leaf == 0 {
                leaf = file.len();
                new += 1;
            } else {
                host.overwrite_unsynced(&file, leaf, self.page);
            }
            host.append_unsynced(&mut file, new * self.page);
            host.sync();
            if self.dummy > 0 {
                host.append(&mut other, self.dummy);
            }
        }
        self.select(&mut host, &file)
    }

    fn select(&self, host: &mut Host, file: &File) -> f64 {
        let time = host.read_ahead(file, self.window, self.per_window);
        file.len() as f64 * 1e3 / time.0 as f64
    }
}
