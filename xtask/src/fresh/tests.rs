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
