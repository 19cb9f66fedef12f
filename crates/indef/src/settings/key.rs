//! One key of a section: what it means, how it is read and shown.

use toml::de::DeValue;

/// A key of a section `S`.
pub(super) struct Key<S> {
    /// Its name, which is also that of the option of `indef run` that it stands for.
    pub(super) name: &'static str,
    /// What it means, where there is no such option.
    pub(super) about: Option<&'static str>,
    /// What else can be written than the option takes.
    pub(super) also: Option<&'static str>,
    /// Take a value. The error says what is allowed.
    pub(super) set: fn(&mut S, &DeValue<'_>) -> Result<(), String>,
    /// The value, as it would be written in the file.
    pub(super) show: fn(&S) -> Shown,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Shown {
    Text(String),
    Number(f64),
    Truth(bool),
    List(Vec<String>),
}

impl Shown {
    pub(super) fn text(text: impl ToString) -> Self {
        Self::Text(text.to_string())
    }

    /// A value, or a word where there is none.
    pub(super) fn or(value: Option<impl ToString>, word: &str) -> Self {
        Self::Text(value.map_or_else(|| word.to_owned(), |value| value.to_string()))
    }

    /// In TOML.
    pub(crate) fn toml(&self) -> String {
        match self {
            Self::Text(text) => quoted(text),
            Self::Number(number) => number.to_string(),
            Self::Truth(truth) => truth.to_string(),
            Self::List(list) => {
                let list: Vec<String> = list.iter().map(|text| quoted(text)).collect();
                format!("[{}]", list.join(", "))
            }
        }
    }
}

/// A basic string (TOML 1.0).
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_values_are_toml() {
        let text = "a \"quoted\" \\ path\n\u{7f}é";
        let toml = Shown::text(text).toml();
        let value = DeValue::parse(&toml).unwrap();
        assert_eq!(value.get_ref().as_str(), Some(text), "{toml}");
        assert_eq!(Shown::Number(5.0).toml(), "5");
        assert_eq!(Shown::Number(12.5).toml(), "12.5");
        let list = Shown::List(vec!["a".into(), "b\"".into()]).toml();
        assert_eq!(list, r#"["a", "b\""]"#);
    }
}
