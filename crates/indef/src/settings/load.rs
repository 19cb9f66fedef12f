//! From files to settings.

use std::{
    collections::HashMap,
    ops::Range,
    path::{Path, PathBuf},
};

use toml::de::{DeTable, DeValue};

use super::{
    FILE,
    error::SettingsError,
    file::{self, Unread},
    keys::{AnyKey, KEYS, Settings},
};

/// Names that are as like as this are taken for misspelt.
const ALIKE: f64 = 0.75;

/// Settings, and where they come from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Loaded {
    pub(crate) settings: Settings,
    /// By full name; defaults have none.
    pub(crate) origins: HashMap<String, Origin>,
    /// The files that were read, in their order.
    pub(crate) files: Vec<PathBuf>,
}

/// Where a value was set last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) file: PathBuf,
    pub(crate) line: usize,
}

/// Read the configuration and its drop-ins. The usual file need not be there, one that is named must.
///
/// # Errors
///
/// All mistakes.
pub(crate) fn load(named: Option<&Path>) -> Result<Loaded, Vec<SettingsError>> {
    let (loaded, errors) = check(named);
    match errors.is_empty() {
        true => Ok(loaded),
        false => Err(errors),
    }
}

/// The same, with what could be read beside the mistakes.
pub(crate) fn check(named: Option<&Path>) -> (Loaded, Vec<SettingsError>) {
    let mut loaded = Loaded::default();
    let mut errors = Vec::new();
    let main = named.unwrap_or(Path::new(FILE));
    let unread = |file: &Path, message: String| SettingsError {
        file: file.to_owned(),
        line: None,
        key: None,
        message,
    };
    let mut take =
        |path: &Path, must_be: bool, errors: &mut Vec<SettingsError>| match file::read(path) {
            Ok(text) => {
                loaded.files.push(path.to_owned());
                apply(&text, path, &mut loaded, errors);
            }
            // Nobody makes a link for nothing: what it was to say would not hold.
            Err(Unread::Absent) if path.is_symlink() => {
                errors.push(unread(
                    path,
                    "is a link to a file that is not there".to_owned(),
                ));
            }
            Err(Unread::Absent) if !must_be => {}
            Err(Unread::Absent) => errors.push(unread(path, "there is no such file".to_owned())),
            Err(Unread::Because(why)) => errors.push(unread(path, why)),
        };
    take(main, named.is_some(), &mut errors);
    let folder = file::folder_of_drop_ins(main);
    match file::drop_ins(main) {
        Ok(drop_ins) => {
            for path in drop_ins {
                take(&path, false, &mut errors);
            }
        }
        Err(Unread::Absent) if folder.is_symlink() => {
            errors.push(unread(
                &folder,
                "is a link to a folder that is not there".to_owned(),
            ));
        }
        Err(Unread::Absent) => {}
        Err(Unread::Because(why)) => errors.push(unread(&folder, why)),
    }
    (loaded, errors)
}

/// Take the values of one file: they replace earlier ones, lists as a whole.
pub(super) fn apply(text: &str, file: &Path, loaded: &mut Loaded, errors: &mut Vec<SettingsError>) {
    let mut mistakes = Vec::new();
    let mut mistake = |line: Option<usize>, key: Option<String>, message: String| {
        mistakes.push(SettingsError {
            file: file.to_owned(),
            line,
            key,
            message,
        });
    };
    match DeTable::parse(text) {
        Err(error) => {
            let line = error.span().map(|span| line_of(text, &span));
            mistake(line, None, error.message().replace('\n', "; "));
        }
        Ok(document) => {
            let mut take = |section: &str, table: &DeTable<'_>| {
                for (name, value) in table {
                    let line = line_of(text, &name.span());
                    let full = match section {
                        "" => name.get_ref().to_string(),
                        section => format!("{section}.{}", name.get_ref()),
                    };
                    let Some(key) = find(section, name.get_ref()) else {
                        // A section, which is looked at by itself.
                        if !(section.is_empty() && is_section(name.get_ref(), value.get_ref())) {
                            let message = unknown(section, name.get_ref(), value.get_ref());
                            mistake(Some(line), Some(full), message);
                        }
                        continue;
                    };
                    match key.set(&mut loaded.settings, value.get_ref()) {
                        Ok(()) => {
                            let file = file.to_owned();
                            loaded.origins.insert(full, Origin { file, line });
                        }
                        Err(allowed) => mistake(Some(line), Some(full), allowed),
                    }
                }
            };
            take("", document.get_ref());
            for (name, value) in document.get_ref() {
                if let DeValue::Table(table) = value.get_ref()
                    && is_section(name.get_ref(), value.get_ref())
                {
                    take(name.get_ref(), table);
                }
            }
        }
    }
    mistakes.sort_by_key(|mistake| mistake.line);
    errors.append(&mut mistakes);
}

fn find(section: &str, name: &str) -> Option<&'static AnyKey> {
    (KEYS.iter()).find(|key| key.section == section && key.name == name)
}

fn is_section(name: &str, value: &DeValue<'_>) -> bool {
    matches!(value, DeValue::Table(_)) && sections().any(|section| section == name)
}

/// All sections, some several times.
fn sections() -> impl Iterator<Item = &'static str> {
    let sections = KEYS.iter().map(|key| key.section);
    sections.filter(|section| !section.is_empty())
}

/// What is wrong with an unknown key or section, and what was meant perhaps.
fn unknown(section: &str, name: &str, value: &DeValue<'_>) -> String {
    let is_table = matches!(value, DeValue::Table(_));
    if section.is_empty() && !is_table && sections().any(|section| section == name) {
        return format!("is a section: begin it with a line [{name}]");
    }
    if section.is_empty() && is_table {
        let like = most_like(
            name,
            sections().map(|section| (section, section.to_owned())),
        );
        return match like {
            Some(like) => format!("there is no such section; did you mean [{like}]?"),
            None => "there is no such section (indef config example shows all)".to_owned(),
        };
    }
    let keys = KEYS.iter().map(|key| (key.name, key.full_name()));
    match most_like(name, keys) {
        Some(like) => format!("there is no such key; did you mean {like}?"),
        None => "there is no such key (indef config example shows all)".to_owned(),
    }
}

/// The name that is most like this one, if one is, with what it is called in full.
fn most_like(name: &str, names: impl Iterator<Item = (&'static str, String)>) -> Option<String> {
    let name = name.replace('_', "-").to_lowercase();
    let rated = names.map(|(known, full)| (strsim::jaro_winkler(&name, known), full));
    rated
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, full)| full)
}

/// The line, from 1, on which a part of a text begins.
fn line_of(text: &str, span: &Range<usize>) -> usize {
    let before = text.as_bytes().get(..span.start).unwrap_or_default();
    before.iter().filter(|byte| **byte == b'\n').count() + 1
}
