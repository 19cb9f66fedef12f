use super::*;

fn one(text: &str, parse: fn(&str) -> Vec<Source>) -> Source {
    let [source] = &parse(text)[..] else {
        panic!("not one entry: {text}");
    };
    source.clone()
}

fn best(text: &str) -> Mirror {
    Mirror::among(&one_line_form(text)).unwrap()
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

#[test]
fn a_line() {
    let source = one(
        "# ours\ndeb http://mirror.example/debian bookworm main contrib # near\n\
         deb-src http://mirror.example/debian bookworm main\n\n# deb http://off.example a b\n",
        one_line_form,
    );
    assert_eq!(source.uris, ["http://mirror.example/debian"]);
    assert_eq!(source.suites, ["bookworm"]);
    assert_eq!(source.components, ["main", "contrib"]);
    assert_eq!(source.options, []);
}

#[test]
fn a_line_with_options() {
    let source = one(
        "deb [ arch=amd64,arm64 Signed-By=/k/a.gpg trusted=yes ]\thttps://m.example/d trixie main",
        one_line_form,
    );
    assert_eq!(source.uris, ["https://m.example/d"]);
    assert_eq!(source.option("signed-by"), Some("/k/a.gpg"));
    assert_eq!(source.option("trusted"), Some("yes"));
    assert_eq!(source.option("arch"), None, "it is for that entry only");
    assert_eq!(
        one("deb[trusted=yes] file:/m sid main", one_line_form).uris,
        ["file:/m"]
    );
}

#[test]
fn lines_that_are_none() {
    for line in ["deb", "deb [a=b", "debian http://x y", "deb http://x", "x"] {
        assert_eq!(one_line_form(line), [], "{line}");
    }
}

#[test]
fn a_stanza() {
    let source = one(
        "# A comment\nTypes: deb deb-src\n# One within\nURIs: http://m.example/debian\n \
         https://n.example/debian\nsuites: bookworm bookworm-updates\nComponents: main\n\
         Enabled: yes\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n",
        deb822_form,
    );
    assert_eq!(
        source.uris,
        ["http://m.example/debian", "https://n.example/debian"]
    );
    assert_eq!(source.suites, ["bookworm", "bookworm-updates"]);
    assert_eq!(
        source.options,
        [(
            "signed-by".to_owned(),
            "/usr/share/keyrings/debian-archive-keyring.gpg".to_owned()
        )]
    );
}

#[test]
fn stanzas_that_are_off_or_of_sources_do_not_count() {
    let text = "Types: deb\nURIs: http://a\nSuites: sid\nComponents: main\nEnabled: no\n\n\
                Types: deb-src\nURIs: http://b\nSuites: sid\nComponents: main\n \n\
                Types: deb\nURIs: http://c\nSuites: sid\nComponents: main\n";
    assert_eq!(one(text, deb822_form).uris, ["http://c"]);
}

#[test]
fn a_key_within_the_entry_is_kept_as_it_stands() {
    let key =
        "\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mDMEZ\n -----END PGP PUBLIC KEY BLOCK-----";
    let text = format!(
        "Types: deb\nURIs: http://m/debian\nSuites: sid\nComponents: main\nSigned-By:{key}\n"
    );
    let mirror = Mirror::among(&deb822_form(&text)).unwrap();
    assert_eq!(mirror.keyring(), None);
    let entry = mirror.entry(&["trixie"], "amd64");
    assert!(entry.ends_with(&format!("signed-by: {key}\n")), "{entry}");
    assert_eq!(deb822_form(&entry).len(), 1);
}

#[test]
fn a_line_ending_of_another_system_is_none() {
    let source = one("deb http://m/debian sid main\r\n", one_line_form);
    assert_eq!(source.components, ["main"]);
    let text = "Types: deb\r\nURIs: http://m\r\nSuites: sid\r\nComponents: main\r\n\r\n";
    assert_eq!(one(text, deb822_form).suites, ["sid"]);
}

#[test]
fn the_archive_is_told_from_others_with_its_suites() {
    let of_key = "deb [signed-by=/k/vendor.gpg] https://vendor.example/debian bookworm main\n\
                  deb [signed-by=/k/debian-archive-keyring.gpg] http://m.example/d bookworm main\n";
    assert_eq!(best(of_key).uris(), ["http://m.example/d"]);
    let of_updates = "deb https://vendor.example/debian bookworm main\n\
                      deb http://m.example/d bookworm main\n\
                      deb http://m.example/d bookworm-updates main\n";
    assert_eq!(best(of_updates).uris(), ["http://m.example/d"]);
    let of_path =
        "deb http://vendor.example bookworm main\ndeb http://m.example/debian/ sid main\n";
    assert_eq!(best(of_path).uris(), ["http://m.example/debian/"]);
    let first = "deb http://a/debian sid main\ndeb http://b/debian sid main\n";
    assert_eq!(best(first).uris(), ["http://a/debian"]);
}

#[test]
fn what_is_not_the_archive_is_never_taken() {
    for line in [
        "deb http://m/debian-security bookworm-security main",
        "deb http://m/debian-security buster/updates-security main",
        "deb http://m/docker bookworm stable",
        "deb http://m/sdk cloud-sdk-bookworm main",
        "deb http://m/pg bookworm-pgdg main",
        "deb http://m/ubuntu noble main",
        "deb cdrom:[Debian]/ bookworm main",
        "deb http://m/flat ./",
    ] {
        let sources = one_line_form(line);
        assert_eq!(Mirror::among(&sources), None, "{line}");
    }
}

#[test]
fn an_entry_for_other_suites_keeps_keys_and_options() {
    let mirror = best(
        "deb [arch=arm64 signed-by=/k/debian-archive.gpg check-valid-until=no] http://m/debian bookworm main contrib",
    );
    assert_eq!(mirror.keyring(), Some(Path::new("/k/debian-archive.gpg")));
    let entry = mirror.entry(&["trixie", "trixie-updates"], "amd64");
    assert_eq!(
        entry,
        "Types: deb\nURIs: http://m/debian\nSuites: trixie trixie-updates\nComponents: main\n\
         Architectures: amd64\nsigned-by: /k/debian-archive.gpg\ncheck-valid-until: no\n"
    );
    let again = Mirror::among(&deb822_form(&entry)).unwrap();
    assert_eq!(again, mirror);
    assert_eq!(
        mirror.source_entry(&["trixie"]),
        "Types: deb-src\nURIs: http://m/debian\nSuites: trixie\nComponents: main\n\
         signed-by: /k/debian-archive.gpg\ncheck-valid-until: no\n"
    );
}

#[test]
fn files_are_read_by_their_ending() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write(
        "list",
        "https://near.example/debian\tpriority:1\n# no\nhttps://far.example/debian\n",
    );
    write("a.list.off", "deb http://off.example/debian sid main\n");
    write("b.list", "deb http://vendor.example/x sid main\n");
    let list = folder.path().join("list");
    write(
        "debian.sources",
        &format!(
            "Types: deb\nURIs: mirror+file://{}\nSuites: bookworm\nComponents: main\n",
            list.display()
        ),
    );
    let absent = folder.path().join("sources.list");
    let mirror = Mirror::configured(Some(&absent), Some(folder.path())).unwrap();
    assert_eq!(
        mirror.uris(),
        strings(&["https://near.example/debian", "https://far.example/debian"])
    );
    fs::remove_file(list).unwrap();
    let mirror = Mirror::configured(Some(&absent), Some(folder.path())).unwrap();
    assert_eq!(mirror.uris(), ["http://vendor.example/x"]);
    assert!(Mirror::configured(Some(&absent), None).is_err());
}
