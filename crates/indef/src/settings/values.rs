//! Values of the file, by the parsers of the command line.

use toml::de::DeValue;
use units::Bytes;

use super::key::Shown;

/// A scalar as it would stand on the command line.
fn word<'a>(value: &'a DeValue<'_>) -> Result<&'a str, String> {
    match value {
        DeValue::String(text) => Ok(text),
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str()),
        DeValue::Float(number) => Ok(number.as_str()),
        _ => Err("must be a text in quotes or a decimal number".to_owned()),
    }
}

/// A value that an option takes.
pub(super) fn parsed<T>(
    value: &DeValue<'_>,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<T, String> {
    parse(word(value)?)
}

/// The same, or `word` for none.
pub(super) fn parsed_or<T>(
    value: &DeValue<'_>,
    none: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    match word(value)? {
        text if text == none => Ok(None),
        text => parse(text)
            .map(Some)
            .map_err(|error| format!("{error}; or \"{none}\"")),
    }
}

/// `true` or `false`.
pub(super) fn truth(value: &DeValue<'_>) -> Result<bool, String> {
    value
        .as_bool()
        .ok_or_else(|| "must be true or false, without quotes".to_owned())
}

/// A list of texts.
pub(super) fn list<T>(
    value: &DeValue<'_>,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    let DeValue::Array(entries) = value else {
        return Err("must be a list, like [\"one\", \"two\"]".to_owned());
    };
    let one = |entry: &DeValue<'_>| {
        let text = entry
            .as_str()
            .ok_or("each entry must be a text in quotes")?;
        parse(text).map_err(|error| format!("\"{text}\": {error}"))
    };
    entries.iter().map(|entry| one(entry.get_ref())).collect()
}

/// An absolute path: a service has no working directory that a person would think of.
pub(super) fn absolute(text: &str) -> Result<std::path::PathBuf, String> {
    match text.starts_with('/') {
        true => Ok(text.into()),
        false => Err("must be a whole path, from / on".to_owned()),
    }
}

/// A path, shown.
pub(super) fn path(path: &std::path::Path) -> String {
    path.display().to_string()
}

/// A size, shown as exactly as it was written.
pub(super) fn exact(size: Bytes) -> String {
    let units = [
        ("TiB", 1 << 40),
        ("GiB", 1 << 30),
        ("MiB", 1 << 20),
        ("KiB", 1 << 10),
    ];
    let bytes = size.get();
    let whole = units
        .into_iter()
        .find(|(_, unit)| bytes.is_multiple_of(*unit));
    match whole {
        Some((name, unit)) => format!("{}{name}", bytes / unit),
        None => bytes.to_string(),
    }
}

/// A number, shown.
pub(super) fn number(number: f64) -> Shown {
    Shown::Number(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_that_is_shown_is_the_same_size() {
        for bytes in [1, 1000, 1024, 1536, 3 << 20, (1 << 30) + 1, 5 << 40] {
            let text = exact(Bytes(bytes));
            assert_eq!(text.parse::<Bytes>().unwrap(), Bytes(bytes), "{text}");
        }
        assert_eq!(exact(Bytes::gib(10)), "10GiB");
    }
}
