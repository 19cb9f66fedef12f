//! Plans for later: whoever runs them may be somewhere else.

use std::{borrow::Cow, io, path::Path};

use indef_core::plan::FilePlan;

/// The plan with an absolute path, which means the same from any directory.
///
/// # Errors
///
/// The current directory is not known.
pub fn absolute(plan: &FilePlan) -> io::Result<Cow<'_, FilePlan>> {
    if plan.path.is_absolute() {
        return Ok(Cow::Borrowed(plan));
    }
    let moved = match (plan.root_len, plan.place()) {
        (Some(_), Some((root, _))) => {
            let root = match root.as_os_str().is_empty() {
                true => Path::new("."),
                false => root,
            };
            plan.with_root(&std::path::absolute(root)?)
        }
        _ => None,
    };
    Ok(Cow::Owned(match moved {
        Some(moved) => moved,
        None => FilePlan {
            path: std::path::absolute(&plan.path)?,
            root_len: None,
            ..plan.clone()
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_stays_the_root() {
        let mut plan = crate::resume::tests::plan(1);
        let here = std::env::current_dir().unwrap();
        for (path, root_len, root) in [
            ("a/file", Some(1), here.join("a")),
            ("file", Some(0), here.clone()),
            ("a/b/file", None, "/".into()),
        ] {
            plan.path = path.into();
            plan.root_len = root_len;
            let absolute = absolute(&plan).unwrap();
            assert_eq!(absolute.path, here.join(path));
            assert_eq!(absolute.place().unwrap().0, root);
        }
    }
}
