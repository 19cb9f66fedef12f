//! Both sides against each other, and each against one that is mistaken, silent or gone.

use std::{
    ffi::OsString,
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::{ffi::OsStringExt, net::UnixStream},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use indef_trace::{
    FileKey,
    collect::Sampling,
    store::{Cause, Foreign, StoreError, StoreProblem},
};
use units::Nanos;

use super::{
    Findings, NotTraced, Order, Refused,
    ask::{Limits, ask, trace},
    here::{lingers, not_traced},
    order::{Answer, Halt, line},
    serve::{serve_with, take_order},
};
use crate::error::Error;

/// Nobody here is slow on purpose, but the machine may be busy.
const AMPLE: Limits = Limits {
    begins: Duration::from_secs(120),
    late: Duration::from_secs(120),
    ends: Duration::from_secs(120),
};

fn order() -> Order {
    Order {
        time: Duration::from_millis(600_500),
        aside: true,
        sampling: Sampling::at_most_percent(1.0),
        // No name has to be text.
        paths: vec!["/srv".into(), OsString::from_vec(b"/srv/\xff\n".to_vec())],
        profile: "/var/lib/indef/watch/profile".into(),
    }
}

fn findings() -> Findings {
    let key = FileKey {
        dev: 1 << 40 | 7,
        inode: u64::MAX,
        generation: 3,
        subvolume: 256,
    };
    let findings = Findings {
        reads: 12,
        read_time: Some(Nanos(81_000)),
        requests_per_read: Some(1.5),
        ..Findings::default()
    };
    findings.with_files([(key, 12)])
}

/// What `ask` makes of somebody who does this with the other end.
fn asked(
    other: impl FnOnce(UnixStream) + Send,
    halt: Halt<'_>,
    limits: &Limits,
) -> Result<Option<Findings>, NotTraced> {
    let (ours, theirs) = UnixStream::pair().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || other(theirs));
        let told = ask(&ours, &order(), halt, limits);
        drop(ours);
        told
    })
}

/// The order, as it is read by somebody who then says what is to be said.
fn takes_the_order(mut connection: &UnixStream) {
    let mut text = String::new();
    BufReader::new(&mut connection)
        .read_line(&mut text)
        .unwrap();
    let taken: Order = serde_json::from_str(&text).unwrap();
    assert_eq!(taken, order());
}

fn says(mut connection: &UnixStream, answer: &Answer) {
    connection.write_all(&line(answer).unwrap()).unwrap();
}

/// Waits until the other side is gone.
fn stays(mut connection: &UnixStream) {
    let _ = connection.read_to_end(&mut Vec::new());
}

#[test]
fn what_is_ordered_is_traced_and_told() {
    let serves = |connection: UnixStream| {
        let traces = |taken: &Order, halt: Halt<'_>| {
            assert_eq!(*taken, order());
            assert!(!halt());
            Ok(findings())
        };
        serve_with(&connection, &mut || false, traces).unwrap();
    };
    let told = asked(serves, &mut || false, &AMPLE).unwrap().unwrap();
    assert_eq!(told, findings());
    let (key, reads) = told.files().next().unwrap();
    assert_eq!((key.inode, key.subvolume, reads), (u64::MAX, 256, 12));

    let fails = |connection: UnixStream| {
        let traces = |_: &Order, _: Halt<'_>| Err("this kernel has no BTF".to_owned().into());
        serve_with(&connection, &mut || false, traces).unwrap();
    };
    let error = asked(fails, &mut || false, &AMPLE).unwrap_err();
    assert_eq!(error, "this kernel has no BTF".to_owned().into());
    assert!(!error.may_pass);

    let is_locked = |connection: UnixStream| {
        let traces = |_: &Order, _: Halt<'_>| Err(NotTraced::for_now("it is locked".to_owned()));
        serve_with(&connection, &mut || false, traces).unwrap();
    };
    let error = asked(is_locked, &mut || false, &AMPLE).unwrap_err();
    assert_eq!(error, NotTraced::for_now("it is locked".to_owned()));
}

#[test]
fn what_a_store_does_not_take_now_it_may_take_later() {
    let store = |problem| StoreError {
        path: "/var/lib/indef/watch/profile".into(),
        problem,
    };
    let broken = |errno: i32| {
        let cause = Cause::Io(io::Error::from_raw_os_error(errno));
        store(StoreProblem::System(cause))
    };
    let (eio, enotdir) = (5, 20);
    for passes in [
        store(StoreProblem::Locked),
        store(StoreProblem::Full),
        broken(eio),
    ] {
        let why = passes.to_string();
        assert_eq!(not_traced(passes.into()), NotTraced::for_now(why));
    }
    for lasts in [
        store(StoreProblem::Foreign(Foreign::NoDatabase)),
        broken(enotdir),
    ] {
        assert!(!not_traced(lasts.into()).may_pass);
    }
    // The name of each file would make each of them a reason of its own.
    let rescued = |name: &str| {
        not_traced(Error::Rescued {
            path: Path::new("/run/indef").join(name),
            why: store(StoreProblem::Full),
        })
    };
    assert!(rescued("a").may_pass && rescued("a").why.ends_with("kept in /run/indef"));
    assert_eq!(rescued("a"), rescued("b"));
}

#[test]
fn a_store_is_tried_again_until_it_is_late_or_the_end_is_asked_for() {
    let pause = Duration::from_millis(10);
    let soon = Instant::now() + Duration::from_secs(600);
    assert!(lingers(soon, pause, || false));
    assert!(!lingers(soon, Duration::from_secs(300), || true));
    assert!(!lingers(Instant::now(), pause, || false));
}

/// Somebody who traces until he is to stop.
fn traces_on(_: &Order, halt: Halt<'_>) -> Result<Findings, NotTraced> {
    while !halt() {
        thread::sleep(Duration::from_millis(5));
    }
    Ok(findings())
}

#[test]
fn a_stop_on_either_side_ends_it_and_loses_nothing() {
    let serves =
        |connection: UnixStream| serve_with(&connection, &mut || false, traces_on).unwrap();
    let mut looks = 0;
    let mut halt = || {
        looks += 1;
        looks > 2
    };
    let told = asked(serves, &mut halt, &AMPLE);
    assert_eq!(told, Ok(Some(findings())));

    let is_stopped =
        |connection: UnixStream| serve_with(&connection, &mut || true, traces_on).unwrap();
    let told = asked(is_stopped, &mut || false, &AMPLE);
    assert_eq!(told, Ok(Some(findings())));
}

#[test]
fn who_asked_and_is_gone_ends_it() {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    ours.write_all(&line(&order()).unwrap()).unwrap();
    thread::scope(|scope| {
        let served = scope.spawn(|| serve_with(&theirs, &mut || false, traces_on));
        let mut begins = String::new();
        BufReader::new(&mut ours).read_line(&mut begins).unwrap();
        assert_eq!(begins, "\"Begins\"\n");
        drop(ours);
        served.join().unwrap().unwrap();
    });
}

#[test]
fn who_traced_and_is_gone_is_no_lasting_reason() {
    let dies = |connection: UnixStream| {
        takes_the_order(&connection);
        says(&connection, &Answer::Begins);
    };
    let error = asked(dies, &mut || false, &AMPLE).unwrap_err();
    assert!(
        error.may_pass && error.why.contains("ended before it told"),
        "{error:?}"
    );
    // Turned away, as where there are as many connections as there may be: with and without the order read.
    assert_eq!(asked(|_| {}, &mut || false, &AMPLE), Ok(None));
    let reads = |connection: UnixStream| takes_the_order(&connection);
    assert_eq!(asked(reads, &mut || false, &AMPLE), Ok(None));
}

#[test]
fn who_is_silent_is_given_up() {
    let limits = Limits {
        begins: Duration::from_millis(10),
        ..AMPLE
    };
    let error = asked(|it| stays(&it), &mut || false, &limits).unwrap_err();
    assert!(
        error.may_pass && error.why.contains("does not begin"),
        "{error:?}"
    );

    let begins = |connection: UnixStream| {
        takes_the_order(&connection);
        says(&connection, &Answer::Begins);
        // Its end is asked for, and it does not care.
        while (&connection).write_all(b"\"Begins\"\n").is_ok() {
            thread::sleep(Duration::from_millis(10));
        }
    };
    let limits = Limits {
        ends: Duration::from_millis(10),
        ..AMPLE
    };
    let error = asked(begins, &mut || true, &limits).unwrap_err();
    assert!(
        error.may_pass && error.why.contains("asked to end"),
        "{error:?}"
    );
}

#[test]
fn answers_that_are_none_are_errors() {
    for text in [
        &b"hello\n"[..],
        b"\"Begins\"\n{}\n",
        b"\0\n",
        b"{\"Traced\":{\"reads\":-1}}\n",
    ] {
        let says = |connection: UnixStream| {
            takes_the_order(&connection);
            (&connection).write_all(text).unwrap();
            stays(&connection);
        };
        let error = asked(says, &mut || false, &AMPLE).unwrap_err();
        assert!(error.may_pass, "{error:?}");
    }
    let never_ends = |connection: UnixStream| {
        takes_the_order(&connection);
        while (&connection).write_all(&[b'x'; 1 << 16]).is_ok() {}
    };
    let error = asked(never_ends, &mut || false, &AMPLE).unwrap_err();
    assert!(error.why.contains("without an end"), "{error:?}");
}

#[test]
fn orders_that_are_none_are_refused() {
    let whole = line(&order()).unwrap();
    let mut more = serde_json::to_value(order()).unwrap();
    more["layer"] = "syscall".into();
    let mut less = serde_json::to_value(order()).unwrap();
    less.as_object_mut().unwrap().remove("profile");
    let texts = [
        b"".to_vec(),
        b"hello\n".to_vec(),
        whole[..whole.len() - 1].to_vec(),
        [&whole[..], &whole[..]].concat(),
        line(&more).unwrap(),
        line(&less).unwrap(),
    ];
    for text in texts {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(&text).unwrap();
        ours.shutdown(std::net::Shutdown::Write).unwrap();
        let served = serve_with(&theirs, &mut || false, |_, _| panic!("nothing is traced"));
        assert!(
            matches!(served, Err(Refused::NotUnderstood(_))),
            "{served:?}"
        );
        drop(theirs);
        let mut told = String::new();
        ours.read_to_string(&mut told).unwrap();
        assert!(
            told.starts_with("{\"Failed\":\"the order is not understood"),
            "{told}"
        );
    }
    // One that does not come to an end.
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    ours.write_all(b"{").unwrap();
    let taken = take_order(&theirs, Duration::from_millis(50));
    assert!(matches!(taken, Err(Refused::NotUnderstood(_))), "{taken:?}");
    // Stdin that is none.
    let file = std::fs::File::open("/dev/null").unwrap();
    let none = UnixStream::from(std::os::fd::OwnedFd::from(file));
    let served = serve_with(&none, &mut || false, |_, _| panic!("nothing is traced"));
    assert!(
        matches!(served, Err(Refused::NoConnection(_))),
        "{served:?}"
    );
}

/// In this process, which fails, as there is no such place for a profile.
#[test]
fn where_nobody_listens_it_traces_by_itself() {
    let order = Order {
        profile: "/dev/null/profile".into(),
        ..order()
    };
    let alone = trace(None, &order, &mut || false).unwrap_err();
    assert!(
        !alone.may_pass && alone.why.contains("/dev/null/profile"),
        "{alone:?}"
    );
    let nobody = trace(Some(Path::new("/dev/null/socket")), &order, &mut || false).unwrap_err();
    let NotTraced { why, may_pass } = nobody;
    assert!(!may_pass && why.starts_with(&alone.why), "{why}");
    assert!(
        why.contains("nobody traces for it at /dev/null/socket"),
        "{why}"
    );
}
