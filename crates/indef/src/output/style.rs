//! Colours, where they are permitted.

/// The tone of a fact or a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    /// Good news.
    Good,
    /// Something to look at.
    Warn,
    /// A failure.
    Bad,
}

/// Decorates text, or leaves it plain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    on: bool,
}

impl Style {
    /// With or without colours.
    pub(crate) const fn new(on: bool) -> Self {
        Self { on }
    }

    /// Without colours.
    #[cfg(test)]
    pub(crate) const fn plain() -> Self {
        Self { on: false }
    }

    /// Whether there are colours.
    pub(crate) const fn is_on(self) -> bool {
        self.on
    }

    /// A heading.
    pub(crate) fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    /// Titles and asides.
    pub(crate) fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }

    /// Good news.
    pub(crate) fn good(self, text: &str) -> String {
        self.wrap("32", text)
    }

    /// Something to look at.
    pub(crate) fn warn(self, text: &str) -> String {
        self.wrap("33", text)
    }

    /// A failure.
    pub(crate) fn bad(self, text: &str) -> String {
        self.wrap("31", text)
    }

    /// A bar of a histogram.
    pub(crate) fn bar(self, text: &str) -> String {
        self.wrap("36", text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.on && !text.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}
