//! A scan of a whole XFS reads its inodes in bulk, and answers as one that opens each file.

use std::{
    fs::{self, File},
    os::unix::fs::symlink,
    path::Path,
    time::Instant,
};

use crate::{
    common::{Ran, Run, indef_with_state},
    loop_scan_again::Covered,
    loop_scan_bulk::{LEAST, LONGEST, Trial, answer},
};

impl Trial {
    fn scan_path(&self, path: &Path, arguments: &[&str]) -> Ran {
        let mut command = indef_with_state(self.state.path());
        command.args(["scan", "--json", "--only-fragmented"]);
        command.args(arguments).arg(path).ran()
    }
}

#[test]
fn loop_xfs_a_scan_of_all_equals_a_full_one() {
    let Some(mut trial) = Trial::new("xfs", 19) else {
        return;
    };
    (0..12).for_each(|_| drop(trial.make()));
    trial.scratch.sync().unwrap();
    let (begun, mut rounds) = (Instant::now(), 0);
    trial.again("the beginning");
    while rounds < LEAST || begun.elapsed() < LONGEST && rounds < 40 {
        let number = 1 + trial.numbers.below(4_u32);
        let changes: Vec<_> = (0..number)
            .map(|_| match trial.numbers.percent(30) {
                true => trial.change_folders(),
                false => trial.change(),
            })
            .collect();
        if trial.numbers.percent(60) {
            trial.scratch.sync().unwrap();
        }
        trial.again(&format!("{changes:?} in round {rounds}"));
        rounds += 1;
    }
    eprintln!("{rounds} rounds");
}

#[test]
fn loop_xfs_a_scan_of_all_meets_what_a_walk_meets() {
    let Some(mut trial) = Trial::new("xfs", 20) else {
        return;
    };
    (0..8).for_each(|_| drop(trial.make()));
    let root = trial.scratch.path().to_owned();
    fs::create_dir(root.join("empty")).unwrap();
    // It has data, and no name.
    fs::copy(&trial.files[0], root.join("gone")).unwrap();
    let gone = File::open(root.join("gone")).unwrap();
    fs::remove_file(root.join("gone")).unwrap();
    // A name that no text has, and one that is the only one left of two.
    let odd = root.join("d0").join("a\nb \u{fffd}");
    fs::rename(&trial.files[1], &odd).unwrap();
    fs::hard_link(&odd, root.join("d1/other")).unwrap();
    fs::remove_file(&odd).unwrap();
    trial.scratch.sync().unwrap();
    trial.again("the beginning");
    drop(gone);
    // What is below a mount, or on it, is no part of it.
    {
        let _empty = Covered::new(root.join("empty"));
        fs::write(root.join("empty/file"), [1; 9000]).unwrap();
        trial.again("a mount on an empty directory");
        let _full = Covered::new(root.join("d0"));
        trial.again("a mount on files");
    }
    trial.again("no mount");
    // By another name of the same directory, and of a part of it.
    let link = trial.state.path().join("link");
    symlink(&root, &link).unwrap();
    for path in [&link, &root.join("d1")] {
        let full = trial.scan_path(path, &["--full"]);
        assert_eq!(answer(&trial.scan_path(path, &[])), answer(&full));
    }
}
