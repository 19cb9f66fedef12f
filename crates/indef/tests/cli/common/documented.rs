//! Whether docs/json.md tells of the fields of a document.

use serde_json::Value;

/// Whether it tells of a field in this section. What many documents have stands elsewhere.
pub(crate) fn is_documented(section: &str, field: &str) -> bool {
    let page = include_str!("../../../../../docs/json.md");
    let is_it = |text: &&str| text.lines().next() == Some(section);
    let section = page.split("\n## ").find(is_it);
    let section = section.expect("a section of docs/json.md");
    let named = [format!("`{field}`"), format!("`{field}[]`")];
    ["schema", "made", "path_bytes"].contains(&field)
        || named.iter().any(|name| section.contains(name))
}

/// It tells of all fields of these objects, but not of those in them.
#[track_caller]
pub(crate) fn assert_documented(section: &str, objects: &[&Value]) {
    for object in objects {
        for field in object.as_object().expect("an object").keys() {
            assert!(is_documented(section, field), "{section}: {field}");
        }
    }
}
