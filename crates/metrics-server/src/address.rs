//! Where to listen.

use std::{fmt, net::SocketAddr, path::PathBuf, str::FromStr};

/// A place on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A socket in the file system, for its owner and group.
    Unix(PathBuf),
    /// A port of this machine alone.
    Loopback(SocketAddr),
}

/// From what a person writes, `unix:PATH` or `127.0.0.1:PORT`; the error says what is allowed.
impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path);
            return match path.is_absolute() {
                true => Ok(Self::Unix(path)),
                false => Err("write the whole path, like unix:/run/indef/metrics".to_owned()),
            };
        }
        match text.parse::<SocketAddr>() {
            Ok(address) if address.ip().is_loopback() && address.port() > 0 => {
                Ok(Self::Loopback(address))
            }
            Ok(address) if address.port() == 0 => Err("a port is needed".to_owned()),
            // There is neither encryption nor a password.
            Ok(address) => Err(format!(
                "{} is no loopback address: whoever reaches it could read names of folders here; let \
                 an exporter or a proxy on this machine serve others",
                address.ip()
            )),
            Err(_) => Err("write unix:/PATH or 127.0.0.1:PORT".to_owned()),
        }
    }
}

/// As it is written.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Loopback(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_listened_to() {
        let parse = |text: &str| text.parse::<Address>();
        assert!(parse("127.0.0.1:9779").is_ok() && parse("[::1]:9779").is_ok());
        assert_eq!(parse("unix:/run/x"), Ok(Address::Unix("/run/x".into())));
        for wrong in ["0.0.0.0:1", "[::]:1", "192.168.0.1:80"] {
            assert!(parse(wrong).unwrap_err().contains("loopback"), "{wrong}");
        }
        for wrong in [
            "",
            "9779",
            "127.0.0.1",
            "127.0.0.1:0",
            "unix:x",
            "localhost:80",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
