//! Guests keep their contract: run a command, return its output and status, and end.

use std::{fs, time::Duration};

use guest::{Guest, LabError, Outcome, Release, require};
use units::Bytes;

/// Everything that succeeds, in one boot for each kernel.
const SCRIPT: &str = r#"
set -e
uname -r
pwd
cat "$0"
echo complaint >&2
mkfs.ext4 -q /dev/vda
mount -t ext4 /dev/vda /mnt
echo kept >/mnt/file
umount /mnt
mount -t ext4 /dev/vda /mnt
cat /mnt/file
cat /share/from-host
echo from the guest >/share/from-guest
# Its output can be opened again, as programs do.
echo again >/dev/stdout
test -e /sys/kernel/btf/vmlinux
test -e /sys/kernel/tracing/events/block/block_rq_issue/id
exit 7
"#;

fn everything(release: Release) {
    let Some(guest) = require(Guest::with(release)) else {
        return;
    };
    if !scratch_fs::require_program("mkfs.ext4") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let ours = folder.path().join("it's ours");
    fs::write(&ours, "content\n").unwrap();
    fs::write(folder.path().join("from-host"), "from the host\n").unwrap();
    let kernel = guest.kernel().version().to_owned();
    let outcome = require(
        guest
            .copy(&ours)
            .with_tools()
            .disk(Bytes::mib(64))
            .share(folder.path())
            .run([
                "sh".as_ref(),
                "-c".as_ref(),
                SCRIPT.as_ref(),
                ours.as_os_str(),
            ]),
    );
    let Some(outcome) = outcome else { return };
    let here = std::env::current_dir().unwrap();
    let expected = format!(
        "{kernel}\n{}\ncontent\nkept\nfrom the host\nagain\n",
        here.display()
    );
    assert_eq!(text(&outcome.stderr), "complaint\n");
    assert_eq!(text(&outcome.stdout), expected);
    assert_eq!(outcome.status, 7);
    match release.series() {
        Some(series) => assert!(kernel.starts_with(series), "{kernel}"),
        None => assert!(major_and_minor(&kernel) > (6, 12), "{kernel}"),
    }
    let back = fs::read_to_string(folder.path().join("from-guest")).unwrap();
    assert_eq!(back, "from the guest\n");
}

fn major_and_minor(version: &str) -> (u32, u32) {
    let mut numbers = version.split('.').map(|number| number.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn vm_everything_on_6_1() {
    everything(Release::Linux6_1);
}

#[test]
fn vm_everything_on_6_12() {
    everything(Release::Linux6_12);
}

#[test]
fn vm_everything_on_the_newest() {
    everything(Release::Newest);
}

/// There are no patches for it: the error says so, and nothing else happens.
#[test]
fn vm_the_newest_has_no_offload() {
    let Some(guest) = require(Guest::with(Release::Newest)) else {
        return;
    };
    let version = guest.kernel().version().to_owned();
    let error = guest
        .with_patched(guest::Patched::F2fs)
        .unwrap_err()
        .to_string();
    assert!(error.contains("no patches for Linux newest"), "{error}");
    assert!(error.contains(&version), "{error}");
}

/// `None` where there is no guest here; else the error of a command that must not end well.
fn error_of(command: &str, timeout: Duration) -> Option<LabError> {
    let guest = require(Guest::with(Release::Linux6_12))?;
    match guest.timeout(timeout).run(["sh", "-c", command]) {
        Err(error @ LabError::Unavailable { .. }) => {
            let _ = require::<Outcome>(Err(error));
            None
        }
        Err(error) => Some(error),
        Ok(outcome) => panic!("it came to a result: {outcome:?}"),
    }
}

#[test]
fn vm_a_panic_is_no_result() {
    let error = error_of("echo c >/proc/sysrq-trigger", Duration::from_secs(60));
    if let Some(error) = error {
        let LabError::Died { console, .. } = &error else {
            panic!("{error}");
        };
        // Only the end of it is kept: how far back that reaches depends on the call trace.
        assert!(console.contains("sysrq_handle_crash"), "{console}");
    }
}

#[test]
fn vm_what_takes_too_long_is_ended() {
    let error = error_of("sleep 1000", Duration::from_secs(1));
    if let Some(error) = error {
        assert!(matches!(error, LabError::TimedOut { .. }), "{error}");
    }
}

#[test]
fn vm_what_is_not_there_is_said_before_anything_boots() {
    let Some(guest) = require(Guest::with(Release::Linux6_12)) else {
        return;
    };
    let error = guest.run(["no-such-program-anywhere"]).unwrap_err();
    assert!(error.to_string().contains("no such program"), "{error}");

    let guest = Guest::with(Release::Linux6_12).unwrap();
    let error = guest.copy("/no/such/file").run(["true"]).unwrap_err();
    assert!(error.to_string().contains("/no/such/file"), "{error}");

    let guest = Guest::with(Release::Linux6_12).unwrap();
    let error = guest.load("no-such-module").run(["true"]).unwrap_err();
    assert!(error.to_string().contains("no_such_module"), "{error}");

    assert!("5.4".parse::<Release>().is_err());
}
