//! The three tiers, and the one list of tests that only `make proof` runs.
//!
//! | tier | tests |
//! |---|---|
//! | `check` | unit tests: of libraries and programs, without file systems and guests of their own |
//! | `test` | all but those on a further kernel (`FURTHER`) |
//! | `proof` | those, and longer versions of tests that repeat something (`LONGER`) |
//!
//! By hand, `cargo test` knows no tiers: it runs whatever is requested, and takes the variables of
//! `LONGER` from the environment.

use std::time::Duration;

use clap::ValueEnum;

use super::company::last_part;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Tier {
    /// Unit tests
    Check,
    /// Everything that a change must pass
    Test,
    /// Further kernels, and the long versions
    Proof,
}

/// The tests of a test program (the name of its file) whose names begin with this: the same as
/// another test, which `make test` runs, on one more kernel; and those with a kernel that is built
/// only on request (`cargo lab kernels --die-hints`).
const FURTHER: [(&str, &str); 35] = [
    ("vm_die_hints", "vm_"),
    ("vm_ext4_durable", "vm_6_1_the_patch_closes_the_window"),
    (
        "vm",
        "offload::vm_6_1_a_device_that_vanishes_leaves_every_file_whole",
    ),
    (
        "vm",
        "offload::vm_6_1_blocks_with_metadata_are_not_copied_by_the_device",
    ),
    ("vm", "offload::vm_6_1_encrypted_files_are_moved"),
    (
        "vm",
        "offload::vm_6_1_files_become_contiguous_on_qemus_device",
    ),
    ("vm", "offload::vm_6_1_nothing_is_lost_while_others_write"),
    ("vm", "offload::vm_6_1_what_cannot_be_moved_is_refused"),
    (
        "vm",
        "offload::vm_6_1_zones_that_are_left_are_finished_with_no_file_locked",
    ),
    ("vm", "several::vm_6_1_several_files_share_a_command"),
    ("vm", "several::vm_6_1_two_calls_keep_the_device_at_work"),
    (
        "vm",
        "several::vm_6_1_several_files_are_whole_whatever_happens_to_one",
    ),
    ("vm_offload", "vm_the_device_copies_on_6_1"),
    // Only there does the fault show, and only patches of 6.1 can bring it back.
    (
        "vm",
        "offload::vm_6_1_a_section_is_not_reset_while_its_zone_is_finished",
    ),
    ("vm", "power_cuts::vm_6_1_a_cut_amid_an_fsync_loses_nothing"),
    (
        "vm",
        "power_cuts::vm_6_1_fsyncs_of_one_file_at_once_lose_nothing",
    ),
    (
        "vm",
        "power_cuts::vm_6_12_fsyncs_of_one_file_at_once_lose_nothing",
    ),
    (
        "vm",
        "power_cuts::vm_6_1_an_fsync_beside_a_checkpoint_loses_nothing",
    ),
    (
        "vm",
        "power_cuts::vm_6_1_an_fsync_beside_a_move_loses_nothing",
    ),
    ("vm", "power_cuts::vm_6_1_power_cuts_leave_every_file_whole"),
    ("rounds", "vm_rounds::vm_6_1_round_f2fs_offload"),
    ("rounds", "vm_rounds::vm_6_1_round_f2fs"),
    ("rounds", "vm_rounds::vm_newest_round_ext4"),
    ("rounds", "vm_rounds::vm_6_12_round_ext4"),
    // Minutes, as all of the volume is written anew between runs; `make test` has what indef asks of the kernel there.
    ("rounds", "vm_rounds::vm_6_12_round_f2fs_compact"),
    ("vm_serve", "vm_linux_6_1_commands"),
    ("vm_serve", "vm_linux_6_1_filesystems"),
    (
        "vm",
        "space::vm_6_1_moved_files_survive_a_smaller_file_system",
    ),
    ("vm_trace", "vm_collects_on_the_newest"),
    ("vm", "offload::vm_6_1_files_become_contiguous_on_flashd"),
    // The kernel's own engine, whose first half `make test` runs; the device's has both there.
    ("conformance", "vm_f2fs::vm_6_12_f2fs_defragment_in_use"),
    ("vm_trace", "vm_collects_on_6_1"),
    ("conformance", "vm_quota::vm_6_1_owners_are_not_charged"),
    // A whole experiment: its parts have tests of their own.
    ("vm_experiment", "vm_varmail_is_aged_migrated_and_replayed"),
    // As its twins with fewer.
    ("shapes", "loop_fragment_makes_65536_fragments"),
];

/// The same for tests that repeat something, with the variable for the number of repetitions, or of
/// seconds.
const LONGER: [(&str, &str, &str, &str); 22] = [
    ("conformance", "vm_f2fs::", "INDEF_WHOLE_SUITE", "1"),
    ("cli", "loop_stop::loop_kills_on_", "INDEF_KILLS", "200"),
    (
        "fast24",
        "the_committed_figures_of_collecting",
        "INDEF_WHOLE_FAST24",
        "1",
    ),
    (
        "figures",
        "the_figures_of_indef_come_out_again",
        "INDEF_WHOLE_FIGURES",
        "1",
    ),
    ("fleet", "the_committed_result", "INDEF_WHOLE_FLEET", "1"),
    ("nvme-wire", "tests::", "INDEF_WIRE_CASES", "200000"),
    (
        "outside",
        "loop_a_program_outside",
        "INDEF_OUTSIDE_BY_CARGO",
        "1",
    ),
    ("probe", "beside_", "INDEF_PROBE_ROUNDS", "40"),
    ("probe", "qlc_is_", "INDEF_PROBE_DEVICES", "30"),
    ("probe", "tlc_is_", "INDEF_PROBE_DEVICES", "30"),
    ("probe", "mounted::loop_", "INDEF_PROBE_MOUNTED", "1"),
    (
        "probe",
        "with_the_data_of_others",
        "INDEF_PROBE_ROUNDS",
        "100",
    ),
    ("serve", "fuzz::", "INDEF_SERVE_FUZZ_SECONDS", "600"),
    ("vm_die_hints", "vm_power_cuts", "INDEF_POWER_CUTS", "100"),
    ("vm_ext4_durable", "vm_", "INDEF_POWER_CUTS", "100"),
    (
        "vm",
        "offload::vm_6_12_a_killed_process",
        "INDEF_KILLS",
        "24",
    ),
    (
        "vm",
        "offload::vm_6_12_nothing_is_lost",
        "INDEF_CHURN_SECONDS",
        "600",
    ),
    (
        "vm",
        "offload::vm_6_1_nothing_is_lost",
        "INDEF_CHURN_SECONDS",
        "600",
    ),
    ("vm", "power_cuts::vm_", "INDEF_POWER_CUTS", "40"),
    ("vm_xfs_offload", "power::", "INDEF_POWER_CUTS", "1000"),
    ("vm_zbd", "vm_", "INDEF_WHOLE_SUITE", "1"),
    ("xfs", "writers::", "INDEF_HAMMER_SECONDS", "600"),
];

impl Tier {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Test => "test",
            Self::Proof => "proof",
        }
    }

    /// Returns the variables for its environment if a test belongs to this tier, else `None`.
    pub(crate) fn takes(
        self,
        target: &str,
        test: &str,
    ) -> Option<Vec<(&'static str, &'static str)>> {
        let further = || {
            let mut all = FURTHER.iter();
            all.any(|(of, name)| *of == target && begins_with(test, name))
        };
        match self {
            Self::Check => {
                let name = last_part(test);
                let is_unit = !name.starts_with("loop_") && !name.starts_with("vm_");
                is_unit.then(Vec::new)
            }
            Self::Test => (!further()).then(Vec::new),
            Self::Proof => {
                let variables: Vec<_> = LONGER
                    .iter()
                    .filter(|(of, name, ..)| *of == target && begins_with(test, name))
                    .map(|(_, _, variable, value)| (*variable, *value))
                    .collect();
                (further() || !variables.is_empty()).then_some(variables)
            }
        }
    }

    /// Time limit of one test. The longest of `make test` needs some two minutes on two busy
    /// processors; the tests of guests have limits of their own, which are more informative.
    pub(crate) fn limit(self, test: &str) -> Duration {
        let minutes = match self {
            Self::Check => 2,
            Self::Test if last_part(test).starts_with("vm_") => 20,
            Self::Test => 10,
            Self::Proof => 180,
        };
        Duration::from_secs(60 * minutes)
    }
}

/// Whether a test's name begins with the words of an entry: `vm_6_12` does not with those of `vm_6_1`.
fn begins_with(test: &str, name: &str) -> bool {
    test.strip_prefix(name)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('_') || name.ends_with(['_', ':']))
}

/// The list entries that match no test.
pub(crate) fn stale(tests: &[(String, String)]) -> impl Iterator<Item = String> {
    let longer = LONGER.into_iter().map(|(of, name, ..)| (of, name));
    FURTHER
        .into_iter()
        .chain(longer)
        .filter(|(of, name)| {
            let is = |(target, test): &(String, String)| target == of && begins_with(test, name);
            !tests.iter().any(is)
        })
        .map(|(of, name)| format!("tiers: {of} {name}"))
}
