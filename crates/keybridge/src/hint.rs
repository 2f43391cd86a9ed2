//! What a person can do about an error.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What a person can do about an error: one line of text, which is also what programs get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hint {
    /// Advice in words.
    Say(Cow<'static, str>),
    /// A command as it is typed in a shell, and what it does. `doctor` shows it as a fix.
    Run(Cow<'static, str>, Cow<'static, str>),
}

impl Hint {
    /// Advice that is known beforehand.
    pub(crate) const fn say(text: &'static str) -> Self {
        Self::Say(Cow::Borrowed(text))
    }

    /// A command that is known beforehand, and what it does.
    pub(crate) const fn run(command: &'static str, effect: &'static str) -> Self {
        Self::Run(Cow::Borrowed(command), Cow::Borrowed(effect))
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Say(text) => f.write_str(text),
            Self::Run(command, effect) => write!(f, "`{command}` {effect}"),
        }
    }
}

impl From<String> for Hint {
    fn from(text: String) -> Self {
        Self::Say(text.into())
    }
}

impl From<&str> for Hint {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<&Self> for Hint {
    fn from(hint: &Self) -> Self {
        hint.clone()
    }
}

impl Serialize for Hint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Text from another process is only shown: no command is taken from it.
impl<'de> Deserialize<'de> for Hint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}
