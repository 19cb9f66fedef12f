//! The tests that may run at the same time: the one list of tests that need the machine, or most of
//! it, for themselves, and of those that hardly need it. `target/test` has the processor time of each.

/// The company in which a test may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Company {
    /// Beside any test except one that runs alone.
    Any,
    /// Beside any test except another heavy one, and one that runs alone.
    Heavy,
    /// It mostly waits: beside as many others as run anyway, but for another one that waits, and one
    /// that runs alone.
    Waiting,
    /// Beside no test.
    Alone,
}

impl Company {
    /// Number of heavy tests, and number of waiting ones, that run at the same time.
    pub(crate) const AT_ONCE: usize = 1;
}

/// The tests of a test program (the name of its file) whose names begin with this. Other tests of
/// guests keep any company: most of the time a guest needs one processor or waits, and it takes at
/// most 1.5 GiB of memory.
const RULES: [(&str, &str, Company); 15] = [
    // Actors that sleep between their calls: some two seconds of processor time in a round.
    ("rounds", "loop_rounds::", Company::Waiting),
    // In a guest the same calls take both processors; where they are too slow, a round proves nothing,
    // and there is another one.
    ("rounds", "vm_rounds::", Company::Heavy),
    // Runs with `--rate`, screens, and a target that waits for its host: some tenths of a second of
    // processor time in several seconds.
    ("cli", "loop_claims::", Company::Waiting),
    ("cli", "loop_stop::", Company::Waiting),
    ("cli", "loop_top::", Company::Waiting),
    // For numbers, which are given out every 15 seconds.
    ("cli", "prometheus::loop_", Company::Waiting),
    ("serve", "patience::", Company::Waiting),
    ("probe", "mounted::", Company::Waiting),
    // For a device that is gone for a minute, or takes seconds for a write.
    ("vm_xfs_offload", "lost::", Company::Waiting),
    (
        "vm_serve",
        "vm_linux_6_12_private_namespaces",
        Company::Waiting,
    ),
    ("vm_serve", "vm_linux_6_12_reconnects", Company::Waiting),
    // It measures the time that flashd takes to answer.
    (
        "daemon",
        "loop_mount::loop_late_answers_fail_a_measuring_run",
        Company::Alone,
    ),
    // Two processes at full speed, and a third one that has to keep up with them.
    ("ground", "losses::", Company::Alone),
    // A reader that is to have a processor whenever it is counted, which is seldom.
    ("ground", "calls::", Company::Alone),
    // It counts the written bytes; a sync of another test has metadata written twice.
    (
        "btrfs",
        "loop_fewer_bytes_than_btrfs_filesystem_defragment",
        Company::Alone,
    ),
];

/// The company of a test.
pub(crate) fn of(target: &str, test: &str) -> Company {
    let rule = RULES.iter().find(|rule| matches(rule, target, test));
    rule.map_or(Company::Any, |(_, _, company)| *company)
}

/// The rules that no test matches.
pub(crate) fn stale(tests: &[(String, String)]) -> impl Iterator<Item = String> {
    let is_used = |rule| {
        tests
            .iter()
            .any(|(target, test)| matches(rule, target, test))
    };
    RULES
        .iter()
        .filter(move |rule| !is_used(*rule))
        .map(|(target, test, _)| format!("company: {target} {test}"))
}

fn matches((of, name, _): &(&str, &str, Company), target: &str, test: &str) -> bool {
    *of == target && test.starts_with(name)
}

/// The name without its modules.
pub(crate) fn last_part(test: &str) -> &str {
    test.rsplit("::").next().unwrap_or(test)
}
