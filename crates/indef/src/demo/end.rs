//! An early end of the demo: a result that must never happen, or the user.

use anyhow::{Result, bail};
use indef_engine::Cancel;

/// Return an error for a result that must never happen.
pub(super) fn judge(contents_equal: bool, fsck: Option<bool>) -> Result<()> {
    if !contents_equal {
        bail!("contents differ after the run: this must never happen, please report it");
    }
    if fsck == Some(false) {
        bail!(
            "the file system is not clean after the run: this must never happen, please report it"
        );
    }
    Ok(())
}

pub(super) fn stop_if(cancel: &Cancel) -> Result<()> {
    if cancel.is_cancelled() {
        bail!("stopped");
    }
    Ok(())
}
