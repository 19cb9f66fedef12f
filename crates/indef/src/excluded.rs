//! What a walk left out as it was told to, for documents and for a person.

use indef_engine::collect::Excluded;
use serde::{Deserialize, Serialize};

use crate::output::counted;

/// Numbers in `totals`.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ExcludedJson {
    /// By `--exclude`.
    files_excluded: u64,
    /// By `--exclude`: nothing is known of what lies in them.
    directories_excluded: u64,
    /// By `--min-size`.
    files_too_small: u64,
}

impl From<Excluded> for ExcludedJson {
    fn from(excluded: Excluded) -> Self {
        Self {
            files_excluded: excluded.files,
            directories_excluded: excluded.directories,
            files_too_small: excluded.small,
        }
    }
}

impl ExcludedJson {
    /// In words, if there is anything.
    pub(crate) fn text(self) -> Option<String> {
        let kinds = [
            (self.files_excluded, "file", "files"),
            (self.directories_excluded, "folder", "folders"),
        ];
        let named: Vec<String> = (kinds.into_iter())
            .filter(|(number, ..)| *number > 0)
            .map(|(number, one, many)| counted(number, one, many))
            .collect();
        let mut parts = Vec::new();
        if !named.is_empty() {
            parts.push(format!("{} (--exclude)", named.join(" and ")));
        }
        if self.files_too_small > 0 {
            let small = counted(self.files_too_small, "smaller file", "smaller files");
            parts.push(format!("{small} (--min-size)"));
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_there_is_is_told() {
        let text = |files, directories, small| {
            ExcludedJson::from(Excluded {
                files,
                directories,
                small,
            })
            .text()
        };
        assert_eq!(text(0, 0, 0), None);
        assert_eq!(text(1, 2, 0).unwrap(), "1 file and 2 folders (--exclude)");
        assert_eq!(
            text(0, 1, 1200).unwrap(),
            "1 folder (--exclude), 1,200 smaller files (--min-size)"
        );
    }
}
