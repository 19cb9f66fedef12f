use super::*;

fn key() -> FileSystemKey {
    FileSystemKey::of(File::open("/proc").unwrap()).unwrap()
}

fn places(own: &Path, system: Option<&Path>) -> Places {
    Places {
        own: own.to_owned(),
        system: system.map(Path::to_owned),
    }
}

fn take(own: &Path, system: Option<&Path>) -> Result<Claim, Holder> {
    match Claim::take_in(places(own, system), [key()]) {
        Ok(claim) => Ok(claim),
        Err(ClaimError::Held(holder)) => Err(holder),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn the_second_is_told_who_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let first = take(dir.path(), None).unwrap();
    let holder = take(dir.path(), None).unwrap_err();
    assert_eq!(holder.pid, std::process::id());
    assert!(!holder.command.is_empty());
    drop(first);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    take(dir.path(), None).unwrap();
}

#[test]
fn a_user_sees_root_and_cannot_hold_root_up() {
    let (root, user) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    if !geteuid().is_root() {
        return;
    }
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
    // The user's run is first: root's goes ahead, and the user's run is notified.
    let mut of_user = take(user.path(), Some(root.path())).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    of_user.watch(move |holder| tell.send(holder.clone()).unwrap());
    let of_root = take(root.path(), None).unwrap();
    let holder = told.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!(holder.pid, std::process::id());
    drop(of_user);
    // Root's is first.
    let holder = take(user.path(), Some(root.path())).unwrap_err();
    assert_eq!(holder.pid, std::process::id());
    // A user cannot open root's lock, and so cannot take it; the file that tells who has it can be
    // read.
    for entry in fs::read_dir(root.path()).unwrap() {
        let entry = entry.unwrap();
        let (name, mode) = (entry.file_name(), entry.metadata().unwrap().mode() & 0o777);
        match entry.path().extension().and_then(|ending| ending.to_str()) {
            Some("lock") => assert_eq!(mode, 0o600),
            _ => assert_eq!(mode, 0o644, "{name:?}"),
        }
    }
    drop(of_root);
    take(user.path(), Some(root.path())).unwrap();
    // A directory that others may write is not trusted.
    let of_root = take(root.path(), None).unwrap();
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o777)).unwrap();
    take(user.path(), Some(root.path())).unwrap();
    drop(of_root);
}

#[test]
fn what_a_dead_process_left_holds_nobody_up() {
    let dir = tempfile::tempdir().unwrap();
    for text in [
        format!("{} 1 indef run /", std::process::id()),
        "4194304 7 indef run /".to_owned(),
        "0 0".to_owned(),
        "nonsense".to_owned(),
        String::new(),
    ] {
        fs::write(dir.path().join(format!("{}.run", key())), text).unwrap();
        fs::write(dir.path().join(format!("{}.lock", key())), "").unwrap();
        assert_eq!(living(dir.path(), &key()), None);
        take(dir.path(), None).unwrap();
    }
}

#[test]
fn of_two_that_want_the_same_one_gets_all() {
    let dir = tempfile::tempdir().unwrap();
    let won = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..200 {
                    if let Ok(_claim) = take(dir.path(), None) {
                        assert!(!won.swap(true, Ordering::SeqCst), "two have it");
                        won.store(false, Ordering::SeqCst);
                    }
                }
            });
        }
    });
}
