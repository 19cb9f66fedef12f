//! The crates that an installed indef is made of.

#[test]
fn the_product_carries_no_software_ssd_and_nothing_of_the_laboratory() {
    let mut cargo = source_tree::cargo();
    cargo.args(["tree", "--locked", "--package=indef", "--edges=normal"]);
    let output = cargo.args(["--prefix=none", "--format={p}"]).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    let tree = String::from_utf8(output.stdout).unwrap();
    // NAME vVERSION, and the folder of a crate of ours.
    assert!(tree.lines().any(|line| line.starts_with("indef-fs v")));
    let lab = source_tree::root().join("lab");
    let lab = lab.to_str().unwrap();
    let is_foreign = |line: &&str| {
        line.starts_with("flashd ") || line.starts_with("nvme-") || line.contains(lab)
    };
    let foreign: Vec<&str> = tree.lines().filter(is_foreign).collect();
    assert!(foreign.is_empty(), "{foreign:#?}");
}
