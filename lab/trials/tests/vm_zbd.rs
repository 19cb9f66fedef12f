//! fio's own tests of zoned devices (t/zbd in its source, of the same version as the installed fio)
//! against a target of this process, with Debian's Linux 6.12 as the host ([`zbd`]).
//!
//! `make test` runs a selection; with `INDEF_WHOLE_SUITE`, and in `make proof`, every case is run:
//! it passes, or is an exception that docs/flashd.md explains.

use guest::{Guest, require};
use zbd::{Disk, LAST_KNOWN, PROGRAMS, Suite};

const WHOLE: &str = "INDEF_WHOLE_SUITE";
/// Numbers of cases to run instead, separated by commas.
const CASES: &str = "INDEF_ZBD_CASES";

fn run(disk: Disk, selection: &[u32]) {
    let has = |program: &&str| scratch_fs::require_program(program);
    if !PROGRAMS.iter().all(has) {
        return;
    }
    // An archive may have the package without its source.
    let suite = match Suite::of_installed_fio() {
        Ok(suite) => suite,
        Err(error) => return scratch_fs::skip(&error.to_string()),
    };
    let all = suite.cases().unwrap();
    assert!(all.len() >= LAST_KNOWN as usize, "{all:?}");
    let cases = match std::env::var(CASES) {
        Ok(numbers) => numbers
            .split(',')
            .map(|number| number.parse().unwrap())
            .collect(),
        Err(_) if std::env::var_os(WHOLE).is_some() => all,
        Err(_) => selection.to_vec(),
    };
    let Some(guest) = require(Guest::with(zbd::HOST)) else {
        return;
    };
    let Some(ran) = require(zbd::run(disk, &suite, &cases, guest.shared())) else {
        return;
    };
    for case in &ran.cases {
        println!("{disk}: {case}");
    }
    println!("{disk}: {:?} after {:?}", ran.elapsed, ran.boot);
    assert!(ran.unexpected.is_empty(), "{}", ran.unexpected.join("\n\n"));
}

#[test]
fn vm_regular_disk() {
    run(Disk::Regular, &[37, 49]);
}

#[test]
fn vm_whole_zones() {
    run(Disk::Whole, &[4, 8, 24, 42]);
}

#[test]
fn vm_limited_zones() {
    run(Disk::Limited, &[5, 13, 17, 33]);
}
