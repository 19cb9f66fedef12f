//! From TOML to parameters. Every number must have value, unit, source and kind.

use toml::{
    Spanned,
    de::{DeString, DeTable, DeValue},
};

use super::{
    error::{ProfileError, ProfileMistake},
    parameter::{Kind, Parameter, Value},
};

/// A profile's text, taken apart.
pub(super) struct ProfileText<'a> {
    file: &'a str,
    text: &'a str,
    pub(super) name: String,
    pub(super) description: String,
    pub(super) parameters: Vec<Parameter>,
}

impl<'a> ProfileText<'a> {
    pub(super) fn parse(file: &'a str, text: &'a str) -> Result<Self, ProfileError> {
        let mut source = Self {
            file,
            text,
            name: String::new(),
            description: String::new(),
            parameters: Vec::new(),
        };
        let root = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            source.error_at(at, ProfileMistake::Toml(error))
        })?;
        let mut tables: Vec<_> = root.into_inner().into_iter().collect();
        tables.sort_by_key(|(_, value)| value.span().start);
        for (name, value) in tables {
            let at = name.span().start;
            let table_name = name.into_inner();
            let DeValue::Table(table) = value.into_inner() else {
                let outside = ProfileMistake::OutsideOfTables(table_name.into_owned());
                return Err(source.error_at(at, outside));
            };
            if table_name == "device" {
                source.take_device(table)?;
            } else {
                source.take_table(&table_name, table)?;
            }
        }
        if source.name.is_empty() {
            return Err(source.error_at(0, ProfileMistake::NoName));
        }
        Ok(source)
    }

    pub(super) fn error(&self, line: usize, mistake: ProfileMistake) -> ProfileError {
        ProfileError {
            file: self.file.to_owned(),
            line,
            mistake,
        }
    }

    fn line(&self, at: usize) -> usize {
        1 + self.text.as_bytes()[..at.min(self.text.len())]
            .iter()
            .filter(|&&byte| byte == b'\n')
            .count()
    }

    fn error_at(&self, at: usize, mistake: ProfileMistake) -> ProfileError {
        self.error(self.line(at), mistake)
    }

    fn take_device(&mut self, table: DeTable<'_>) -> Result<(), ProfileError> {
        for (key, value) in table {
            let at = key.span().start;
            let text = match (key.into_inner(), value.into_inner()) {
                (key, DeValue::String(text)) if !text.trim().is_empty() => (key, text),
                (key, _) => {
                    return Err(self.error_at(at, ProfileMistake::NoText(format!("device.{key}"))));
                }
            };
            match text.0.as_ref() {
                "name" => self.name = text.1.into_owned(),
                "description" => self.description = text.1.into_owned(),
                other => {
                    let key = format!("device.{other}");
                    let known = "name, description";
                    return Err(self.error_at(at, ProfileMistake::UnknownKey { key, known }));
                }
            }
        }
        Ok(())
    }

    fn take_table(&mut self, table_name: &str, table: DeTable<'_>) -> Result<(), ProfileError> {
        for (name, value) in table {
            let line = self.line(name.span().start);
            let parameter = self.parameter(table_name, &name, value.into_inner(), line)?;
            self.parameters.push(parameter);
        }
        Ok(())
    }

    fn parameter(
        &self,
        table_name: &str,
        name: &Spanned<DeString<'_>>,
        value: DeValue<'_>,
        line: usize,
    ) -> Result<Parameter, ProfileError> {
        let key = format!("{table_name}.{}", name.get_ref());
        let DeValue::Table(fields) = value else {
            return Err(self.error(line, ProfileMistake::BareValue(key)));
        };
        let mut number = None;
        let (mut unit, mut source, mut kind) = (None, None, None);
        for (field, value) in fields {
            let field = field.into_inner();
            let slot = match field.as_ref() {
                "value" => {
                    number = Some(self.value(&key, value.into_inner(), line)?);
                    continue;
                }
                "unit" => &mut unit,
                "source" => &mut source,
                "kind" => &mut kind,
                other => {
                    let key = format!("{key}.{other}");
                    let known = "value, unit, source, kind";
                    return Err(self.error(line, ProfileMistake::UnknownKey { key, known }));
                }
            };
            match value.into_inner() {
                DeValue::String(text) if !text.trim().is_empty() => *slot = Some(text.into_owned()),
                _ => return Err(self.error(line, ProfileMistake::NoText(format!("{key}.{field}")))),
            }
        }
        let missing = |field| {
            let key = key.clone();
            self.error(line, ProfileMistake::Incomplete { key, field })
        };
        let kind = kind.ok_or_else(|| missing("kind"))?;
        Ok(Parameter {
            value: number.ok_or_else(|| missing("value"))?,
            unit: unit.ok_or_else(|| missing("unit"))?,
            source: source.ok_or_else(|| missing("source"))?,
            kind: Kind::parse(&kind).ok_or_else(|| {
                let key = key.clone();
                self.error(line, ProfileMistake::UnknownKind { key, kind })
            })?,
            key,
            line,
        })
    }

    fn value(&self, key: &str, value: DeValue<'_>, line: usize) -> Result<Value, ProfileError> {
        let number = match value {
            DeValue::Boolean(flag) => return Ok(Value::Flag(flag)),
            DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str().parse().ok(),
            DeValue::Float(float) => float.as_str().parse().ok(),
            _ => None,
        };
        match number {
            Some(number) if f64::is_finite(number) && number >= 0.0 => Ok(Value::Number(number)),
            _ => Err(self.error(line, ProfileMistake::NoValue(key.to_owned()))),
        }
    }
}
