//! Both zoned SSDs carry F2FS, and flashd's outlives its guest.

use std::{sync::Arc, time::Duration};

use guest::{
    Guest, Outcome, Release, Zns, ZnsDevice, ZnsOptions, ZnsSetup, require, standing::Session,
};

/// Data is in zones, metadata is not, and a clean unmount leaves a clean file
/// system.
const WRITE: &str = r#"
set -e
dd if=/dev/zero bs=64k count=64 | tr '\0' 'z' >$ZNS_MOUNT/file
md5sum <$ZNS_MOUNT/file
sync
cat /sys/block/${ZNS_ZONED#/dev/}/queue/zoned
grep -q " $ZNS_MOUNT f2fs .*mode=lfs" /proc/mounts
umount $ZNS_MOUNT
fsck.f2fs $ZNS_CONVENTIONAL >/dev/null
"#;

const READ: &str = r#"
set -e
md5sum <$ZNS_MOUNT/file
umount $ZNS_MOUNT
"#;

fn run(release: Release, zns: &Zns, setup: ZnsSetup, script: &str) -> Option<Outcome> {
    let guest = require(Guest::with(release))?;
    let guest = require(guest.zns(zns, setup))?.cpus(1);
    let outcome = require(guest.run(["sh", "-c", script]))?;
    assert_eq!(
        outcome.status,
        0,
        "{}\n{}",
        String::from_utf8_lossy(&outcome.stderr),
        outcome.console
    );
    println!("{release}: up after {:?}", outcome.boot);
    Some(outcome)
}

#[test]
fn vm_f2fs_on_flashd() {
    let zns = Zns::new(ZnsOptions::default()).unwrap();
    let Some(first) = run(Release::Linux6_1, &zns, ZnsSetup::Mounted, WRITE) else {
        return;
    };
    // The next kernel finds the data that the first one has left.
    let second = run(Release::Linux6_12, &zns, ZnsSetup::Kept, READ).unwrap();
    let said = String::from_utf8_lossy(&first.stdout);
    let said: Vec<&str> = said.lines().collect();
    assert_eq!(said[1], "host-managed");
    assert_eq!(String::from_utf8_lossy(&second.stdout).trim(), said[0]);
    let device = zns.flashd().unwrap();
    assert!(device.stats().model.host_written_bytes > 4 << 20);
}

#[test]
fn vm_f2fs_on_qemus_device() {
    let options = ZnsOptions {
        device: ZnsDevice::Qemu,
        ..ZnsOptions::default()
    };
    let zns = Zns::new(options).unwrap();
    for release in Release::ALL {
        run(release, &zns, ZnsSetup::Mounted, WRITE);
    }
}

/// A failed set-up ends the guest, and the error names the cause.
#[test]
fn vm_an_ssd_that_cannot_be_set_up_is_said() {
    let zns = Zns::new(ZnsOptions {
        mount: "no_such_option".into(),
        ..ZnsOptions::default()
    })
    .unwrap();
    let Some(guest) = require(Guest::with(Release::Linux6_12)) else {
        return;
    };
    let Some(guest) = require(guest.zns(&zns, ZnsSetup::Mounted)) else {
        return;
    };
    let error = guest.cpus(1).run(["true"]).unwrap_err().to_string();
    assert!(error.contains("could not be set up"), "{error}");
    assert!(error.contains("mount"), "{error}");
}

/// One boot, several commands, the device's state between them.
#[test]
fn vm_a_session_takes_commands() {
    let zns = Zns::new(ZnsOptions::default()).unwrap();
    let Some(guest) = require(Guest::with(Release::Linux6_12)) else {
        return;
    };
    let Some(guest) = require(guest.zns(&zns, ZnsSetup::Mounted)) else {
        return;
    };
    let Some(session) = require(Session::start(guest.cpus(1), Arc::default())) else {
        return;
    };
    let minute = Duration::from_secs(60);
    let written = || zns.flashd().unwrap().stats().model.host_written_bytes;
    let before = written();
    let write =
        "dd if=/dev/urandom of=$ZNS_MOUNT/file bs=64k count=32 2>/dev/null; sync; echo '  ='";
    let said = session.run(["sh", "-c", write], minute).unwrap();
    assert_eq!(
        (said.status, said.stdout.as_slice()),
        (0, b"  =\n".as_slice())
    );
    assert!(written() - before >= 2 << 20);
    // At the same time, each with a status and both outputs of its own.
    std::thread::scope(|scope| {
        for n in 1..=3 {
            let session = &session;
            scope.spawn(move || {
                let script = format!("sleep 1; echo out{n}; echo err{n} >&2; exit {n}");
                let said = session.run(["sh", "-c", &script], minute).unwrap();
                assert_eq!(said.status, n);
                assert_eq!(said.stdout, format!("out{n}\n").into_bytes());
                assert_eq!(said.stderr, format!("err{n}\n").into_bytes());
            });
        }
    });
    // A command that takes too long is ended, with all processes that it has
    // started.
    let error = session
        .run(
            ["sh", "-c", "sleep 1000 & sleep 1000"],
            Duration::from_secs(1),
        )
        .unwrap_err();
    assert!(error.to_string().contains("ended after"), "{error}");
    let said = session.run(["pidof", "sleep"], minute).unwrap();
    assert_eq!(
        said.status,
        1,
        "{:?}",
        String::from_utf8_lossy(&said.stdout)
    );
    let error = session.run(["no-such-program"], minute).unwrap_err();
    assert!(error.to_string().contains("no such program"), "{error}");
    session.end().unwrap();
}
