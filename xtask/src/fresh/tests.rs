use std::os::unix::fs::MetadataExt;

use super::{
    check_refusal,
    machine::{reach, registries},
    run::Output,
};

#[test]
fn apt_keeps_the_way_to_its_mirror_only() {
    let dump = "APT::Architecture \"amd64\";\n\
                Acquire::http::Proxy \"http://proxy.example:3128\";\n\
                Acquire::http::Proxy-Auto-Detect \"/usr/bin/find-proxy\";\n\
                Acquire::https::CaInfo \"/etc/ssl/ours.pem\";\n\
                Acquire::Check-Valid-Until \"false\";\n\
                Acquire::Languages:: \"none\";\n\
                DPkg::Post-Invoke:: \"rm -f /x\";\n";
    assert_eq!(
        reach(dump),
        "Acquire::http::Proxy \"http://proxy.example:3128\";\n\
         Acquire::https::CaInfo \"/etc/ssl/ours.pem\";\n\
         Acquire::Check-Valid-Until \"false\";\n"
    );
}

#[test]
fn cargo_keeps_its_registries_and_no_token() {
    let config = "[build]\nrustc-wrapper = \"x\"\n\
                  [source.crates-io]\nreplace-with = \"near\"\n\
                  [source.near]\nregistry = \"sparse+https://near.example/\"\n\
                  [registries.near]\nindex = \"sparse+https://near.example/\"\ntoken = \"secret\"\n\
                  [registry]\ntoken = \"secret\"\n";
    let kept = registries(config).unwrap();
    assert!(
        !kept.contains("secret") && !kept.contains("wrapper"),
        "{kept}"
    );
    let kept: toml::Table = kept.parse().unwrap();
    let near = kept["source"]["crates-io"]["replace-with"].as_str();
    assert_eq!(near, Some("near"));
    assert_eq!(
        kept["registries"]["near"]["index"].as_str(),
        Some("sparse+https://near.example/")
    );
    assert!(registries("").unwrap().is_empty());
}

#[test]
fn a_user_is_to_be_refused_early_and_told_why() {
    let refused = |success, text: &str| {
        check_refusal(&Output {
            success,
            text: text.to_owned(),
        })
        .is_ok()
    };
    let told = "indef: cannot be built without (packages of Debian): gcc clang libelf-dev x";
    assert!(refused(false, told));
    assert!(!refused(true, told));
    assert!(!refused(false, &format!("   Compiling libc\n{told}")));
    assert!(!refused(
        false,
        "indef: going on without: gcc clang libelf-dev x"
    ));
    assert!(!refused(false, "error: linker `cc` not found"));
}

/// A killed run leaves a root, with its processes and mounts.
#[test]
fn loop_a_killed_run_leaves_nothing_for_long() {
    if !rustix::process::geteuid().is_root() {
        scratch_fs::skip("chroot and loop devices need root");
        return;
    }
    let below = tempfile::tempdir().unwrap();
    let below = below.path().canonicalize().unwrap();
    let root = below.join("root-test");
    std::fs::create_dir(&root).unwrap();
    let image = root.join("image");
    std::fs::File::create(&image)
        .unwrap()
        .set_len(10 << 20)
        .unwrap();
    // The host's own programs serve in it, bound to places that no other process sees.
    let script = r#"
        set -e
        mkfs.ext4 -q "$1/image"
        loop=$(losetup --find --show "$1/image")
        mount --bind "$1" "$1"
        for folder in /bin /lib /lib64 /usr; do
            if [ -L "$folder" ]; then
                cp --no-dereference "$folder" "$1"
            elif [ -d "$folder" ]; then
                mkdir "$1$folder"
                mount --bind "$folder" "$1$folder"
            fi
        done
        mkdir "$1/mnt"
        mount "$loop" "$1/mnt"
        exec chroot "$1" sh -c 'sleep 599 & echo ready; exec sleep 599'
    "#;
    let mut child = std::process::Command::new("unshare")
        .args(["--mount", "--propagation=private", "sh", "-c", script, "sh"])
        .arg(&root)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let output = child.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut said).unwrap();
    assert_eq!(said, "ready\n");
    // By number: in a changed root the path of a file in other mounts begins elsewhere.
    let inode = std::fs::metadata(&image).unwrap().ino().to_string();
    let attached = || {
        let list = std::process::Command::new("losetup")
            .args(["--list", "--noheadings", "--output", "BACK-INO"])
            .output()
            .unwrap();
        assert!(list.status.success(), "{list:?}");
        let list = String::from_utf8_lossy(&list.stdout).into_owned();
        list.lines().any(|line| line.trim() == inode)
    };
    assert!(attached());

    super::root::remove_left_over(&below).unwrap();

    assert!(!child.wait().unwrap().success(), "it was killed");
    assert!(!root.exists());
    // The kernel detaches a device once its last mount is taken down.
    let began = std::time::Instant::now();
    while attached() {
        assert!(began.elapsed().as_secs() < 30, "still attached");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(std::path::Path::new("/etc").exists());
}
