use std::{path::Path, time::Instant};

use super::{
    company::Company,
    outcome::{Spent, TestOutcome},
    programs::{Program, ProgramKind},
    *,
};

/// `tests/program.sh`.
fn program() -> Program {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/test/tests");
    Program {
        name: "package/program".into(),
        target: "program".into(),
        kind: ProgramKind::Harness(folder.join("program.sh")),
        folder,
    }
}

fn job(test: &str) -> TestJob {
    TestJob {
        program: Rc::new(program()),
        test: test.into(),
        company: Company::Any,
        limit: Duration::from_secs(60),
        expected: Duration::from_secs(1),
        environment: Vec::new(),
    }
}

fn run_all(jobs: Vec<TestJob>, stop: &AtomicBool) -> Report {
    let mut report = Report::begin(Tier::Test);
    let run = Run::new().unwrap();
    report.expect(&jobs);
    let equipment = Equipment {
        run: &run,
        shared: &[],
        guests: None,
    };
    execute(Queue::new(jobs), 2, &equipment, &mut report, stop).unwrap();
    report
}

fn outcome(report: &Report, test: &str) -> TestOutcome {
    let of = |result: &&TestResult| result.test == test;
    report.results.iter().find(of).unwrap().outcome.clone()
}

/// Whether a process with this command line exists.
fn runs(command: &str) -> bool {
    let command: String = command.split(' ').map(|word| format!("{word}\0")).collect();
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| line == command.as_bytes())
    })
}

#[test]
fn results_come_from_the_harness_whatever_a_test_prints() {
    let tests = program().list().unwrap();
    let names = "good fails fakes lies hangs leaves waits skips ignored";
    assert_eq!(tests.join(" "), names);
    let jobs = tests
        .iter()
        .filter(|test| *test != "waits")
        .map(|test| TestJob {
            limit: Duration::from_secs(if test == "hangs" { 4 } else { 60 }),
            ..job(test)
        });
    let report = run_all(jobs.collect(), &AtomicBool::new(false));
    assert_eq!(report.results.len(), 8);
    assert_eq!(outcome(&report, "good"), TestOutcome::Passed);
    assert_eq!(outcome(&report, "fakes"), TestOutcome::Passed);
    assert_eq!(outcome(&report, "leaves"), TestOutcome::Passed);
    let failed =
        |test, why: &str| assert_eq!(outcome(&report, test), TestOutcome::Failed(why.into()));
    failed("fails", "exit status 101");
    failed("hangs", "no end after 4 s");
    failed("lies", "it ended before its harness said what came of it");
    let skipped =
        |test, why: &str| assert_eq!(outcome(&report, test), TestOutcome::Skipped(why.into()));
    skipped("skips", "no such thing");
    skipped("ignored", "ignored");
    // With the end of their output.
    let said = |test| {
        let of = |result: &&TestResult| result.test == test;
        report.results.iter().find(of).unwrap().said.clone()
    };
    assert!(said("hangs").contains("the last words"));
    assert!(said("fails").contains("that is why"));
    // No process is left, though these had left the test's process group.
    assert!(!runs("sleep 600"));
    assert!(!runs("sleep 601"));
    let counts = report.counts();
    assert_eq!((counts.passed, counts.failed, counts.skipped), (3, 3, 2));
    assert!(report.has_failed());
}

#[test]
fn a_signal_ends_everything() {
    let stop = AtomicBool::new(false);
    let begun = Instant::now();
    let report = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(500));
            stop.store(true, Ordering::Relaxed);
        });
        run_all(vec![job("waits"), job("waits"), job("waits")], &stop)
    });
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert_eq!(report.results.len(), 0);
    assert!(!runs("sleep 602"));
}

#[test]
fn the_longest_begins_and_company_is_kept() {
    let of = |test: &str, company, seconds| TestJob {
        company,
        expected: Duration::from_secs(seconds),
        ..job(test)
    };
    let mut queue = Queue::new(vec![
        of("short", Company::Any, 1),
        of("alone", Company::Alone, 100),
        of("round", Company::Heavy, 5),
        of("long", Company::Any, 50),
        of("longer round", Company::Heavy, 6),
        of("sleep", Company::Waiting, 9),
        of("nap", Company::Waiting, 8),
    ]);
    let mut take = |running: &[Company]| queue.take(running, 2).map(|job| job.test);
    // Those that cannot run beside each other come first.
    assert_eq!(take(&[]).unwrap(), "longer round");
    assert_eq!(take(&[Company::Heavy]).unwrap(), "long");
    // One that waits is no reason for others not to run, nor are they for it.
    let two = [Company::Heavy, Company::Any];
    assert_eq!(take(&two).unwrap(), "sleep");
    assert_eq!(take(&[two[0], two[1], Company::Waiting]), None);
    assert_eq!(take(&two).unwrap(), "nap");
    assert_eq!(take(&[Company::Any, Company::Waiting]).unwrap(), "round");
    assert_eq!(take(&[Company::Heavy]).unwrap(), "short");
    // Alone is alone.
    assert_eq!(take(&[Company::Heavy]), None);
    assert_eq!(take(&[]).unwrap(), "alone");
    assert_eq!(take(&[]), None);
    let mut queue = Queue::new(vec![of("short", Company::Any, 1)]);
    assert!(queue.take(&[Company::Alone], 2).is_none());
    assert!(queue.take(&[Company::Any, Company::Any], 2).is_none());
}

#[test]
fn cargos_messages_name_the_programs() {
    let artifact = |id: &str, kind: &str, name: &str, test: bool, executable: &str| {
        format!(
            r#"{{"reason":"compiler-artifact","package_id":"{id}","manifest_path":"/w/p/Cargo.toml","target":{{"kind":["{kind}"],"crate_types":["bin"],"name":"{name}"}},"profile":{{"opt_level":"0","test":{test}}},"features":[],"executable":{executable}}}"#
        )
    };
    let library = artifact(
        "path+file:///w/q#0.1.0",
        "lib",
        "indef_pipeline",
        false,
        "null",
    );
    let messages = [
        library.replace("[],", r#"[],"filenames":["/t/q.rmeta","/t/q.rlib"],"#),
        artifact("path+file:///w/p#0.1.0", "lib", "p", false, "null"),
        artifact("path+file:///w/p#0.1.0", "lib", "p", true, "\"/t/p-1\""),
        artifact(
            "path+file:///w/p#0.1.0",
            "test",
            "ext4",
            true,
            "\"/t/ext4-1\"",
        ),
        artifact(
            "path+file:///w/tool#indef@0.1.0",
            "bin",
            "indef",
            true,
            "\"/t/indef-1\"",
        ),
        artifact(
            "path+file:///w/tool#indef@0.1.0",
            "bin",
            "indef",
            false,
            "\"/t/indef\"",
        ),
        artifact("path+file:///w/p#0.1.0", "example", "e", false, "\"/t/e\""),
        r#"{"reason":"build-script-executed","package_id":"x#1","out_dir":"/o"}"#.into(),
        r#"{"reason":"build-finished","success":true}"#.into(),
    ];
    let built = programs::artifacts(messages.join("\n").as_bytes()).unwrap();
    let shared = [("INDEF_PIPELINE", "/t/q.rlib"), ("INDEF", "/t/indef")];
    assert_eq!(built.shared, shared.map(|(name, path)| (name, path.into())));
    let names: Vec<_> = built
        .programs
        .iter()
        .map(|one| (&*one.name, &*one.target))
        .collect();
    let expected = [("indef/bin", "indef/bin"), ("p", "p"), ("p/ext4", "ext4")];
    assert_eq!(names, expected);
    assert_eq!(built.programs[0].folder, Path::new("/w/p"));
    assert!(programs::artifacts("no JSON".as_bytes()).is_err());
}

#[test]
fn what_repeats_another_test_is_for_the_proof() {
    let takes = |tier: Tier, target, test| tier.takes(target, test);
    let none = || Some(Vec::new());
    assert_eq!(takes(Tier::Check, "units", "tests::adds"), none());
    assert_eq!(takes(Tier::Check, "units", "tests::loop_adds"), None);
    let twin = ("rounds", "vm_rounds::vm_6_1_round_f2fs");
    assert_eq!(takes(Tier::Test, twin.0, twin.1), None);
    assert_eq!(takes(Tier::Proof, twin.0, twin.1), none());
    // 6.1 is listed, and is no beginning of 6.12.
    assert_eq!(takes(Tier::Test, "vm_trace", "vm_collects_on_6_1"), None);
    assert_eq!(takes(Tier::Test, "vm_trace", "vm_collects_on_6_12"), none());
    let repeats = ("cli", "loop_stop::loop_kills_on_ext4");
    assert_eq!(takes(Tier::Test, repeats.0, repeats.1), none());
    let more = Some(vec![("INDEF_KILLS", "200")]);
    assert_eq!(takes(Tier::Proof, repeats.0, repeats.1), more);
    assert_eq!(takes(Tier::Proof, "units", "tests::adds"), None);
    // Entries that match no test are found.
    let listed = [(repeats.0.to_owned(), repeats.1.to_owned())];
    let stale: Vec<_> = tiers::stale(&listed).collect();
    assert!(stale.contains(&"tiers: rounds vm_rounds::vm_6_1_round_f2fs".to_owned()));
    assert!(!stale.contains(&"tiers: cli loop_stop::loop_kills_on_".to_owned()));
}

/// Not with `--doc`, which would have all built once more.
#[test]
fn doc_tests_run_with_what_was_built() {
    let arguments = programs::doc_arguments(vec!["--workspace".into()]);
    assert_eq!(
        arguments,
        ["test", "--locked", "--workspace", "--", "(line "]
    );
}

#[test]
fn doc_tests_are_counted_one_by_one() {
    let docs = TestJob {
        program: Rc::new(Program {
            kind: ProgramKind::Docs(Vec::new()),
            ..program()
        }),
        ..job("all")
    };
    let said = "test src/lib.rs - one (line 3) ... ok\ntest src/lib.rs - two (line 9) - compile ... ok\n\
                test src/lib.rs - three (line 12) ... ignored\ntest result: ok. 2 passed";
    let status = |code: i32| {
        use std::os::unix::process::ExitStatusExt;
        outcome::End::Exited(std::process::ExitStatus::from_raw(code << 8))
    };
    let results =
        |end, said: &str| outcome::results(&docs, end, Spent::default(), said.into(), None);
    let good = results(status(0), said);
    assert_eq!(good.len(), 3);
    assert_eq!(good[1].test, "src/lib.rs - two (line 9) - compile");
    assert_eq!(good[2].outcome, TestOutcome::Skipped("ignored".into()));
    // A doc test that does not build has no tests that could say so.
    let broken = results(status(101), "error: no such crate");
    assert_eq!(broken.len(), 1);
    assert_eq!(
        broken[0].outcome,
        TestOutcome::Failed("exit status 101".into())
    );
    let failed = results(status(101), "test src/lib.rs - one (line 3) ... FAILED\n");
    assert_eq!(failed.len(), 1);
    assert!(failed[0].said.contains("FAILED"));
}
