//! The version that `indef --version` tells: that of the package, and the commit where it is known.
//!
//! `INDEF_COMMIT` names it, or, in a checkout, Git does. A tree without either (an unpacked archive, perhaps within
//! another project's checkout) has a version without a commit. Nothing else of the machine goes into it.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// How much of a commit's name is told.
const DIGITS: usize = 12;

fn main() {
    println!("cargo:rerun-if-env-changed=INDEF_COMMIT");
    let package = env!("CARGO_PKG_VERSION");
    let version = match given().or_else(of_checkout) {
        Some(commit) => format!("{package} ({commit})"),
        None => package.to_owned(),
    };
    println!("cargo:rustc-env=INDEF_VERSION={version}");
}

/// The commit that whoever builds names; an empty one is none.
fn given() -> Option<String> {
    let named = env::var("INDEF_COMMIT").ok()?;
    commit(named.trim())
}

/// The commit that is checked out here, if the whole project is a checkout of its own.
fn of_checkout() -> Option<String> {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let project = fs::canonicalize(project).ok()?;
    let top = git(&project, &["rev-parse", "--show-toplevel"])?;
    if fs::canonicalize(top).ok()? != project {
        return None;
    }
    // The files that change when another commit is checked out or made.
    let head = git(&project, &["symbolic-ref", "--quiet", "HEAD"]);
    for name in ["HEAD", "packed-refs"].into_iter().chain(head.as_deref()) {
        let file = git(&project, &["rev-parse", "--git-path", name]).map(PathBuf::from)?;
        let file = project.join(file);
        if file.exists() {
            println!("cargo:rerun-if-changed={}", file.display());
        }
    }
    commit(&git(&project, &["rev-parse", "HEAD"])?)
}

fn commit(name: &str) -> Option<String> {
    let is_name = name.len() >= DIGITS && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_name.then(|| name[..DIGITS].to_owned())
}

fn git(folder: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(arguments)
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
