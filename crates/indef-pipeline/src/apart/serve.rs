//! The side that traces: one order, then its end.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use super::{
    here::here,
    order::{Answer, Findings, Halt, NotTraced, Order, PATIENCE, is_readable, line, stranger},
};

/// A longer order is none: thousands of the longest paths.
const LONGEST: usize = 64 << 20;

/// An order that is not carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// Somebody asks who may not.
    #[error("user {0} asks for a trace, and only root and the user who traces may")]
    Stranger(u32),
    /// It is no order, or one of another version of indef.
    #[error(
        "the order is not understood ({0}); after an update, indef watch has to be started anew"
    )]
    NotUnderstood(String),
    /// There is no connection, or it broke before there was an order.
    #[error("no order came over the connection that is stdin: {0}")]
    NoConnection(#[from] io::Error),
}

/// Make the trace that the other side asks for, until its time is over, `is_stopped` says so, or the other side does not wait
/// for more; and tell what was found.
///
/// # Errors
///
/// There is no order that may be carried out. That a trace fails is told to the other side alone.
pub fn serve(connection: &UnixStream, is_stopped: Halt<'_>) -> Result<(), Refused> {
    serve_with(connection, is_stopped, here)
}

/// [`serve`], with something that traces.
pub(super) fn serve_with(
    connection: &UnixStream,
    is_stopped: Halt<'_>,
    trace: impl FnOnce(&Order, Halt<'_>) -> Result<Findings, NotTraced>,
) -> Result<(), Refused> {
    if let Some(user) = stranger(connection)? {
        return Err(Refused::Stranger(user));
    }
    // Who lets answers wait, or is gone, will not hear them; what was counted is kept all the same.
    connection.set_write_timeout(Some(PATIENCE))?;
    let tell = |answer: &Answer| {
        if let Err(error) = line(answer).and_then(|line| { connection }.write_all(&line)) {
            tracing::debug!(%error, "nobody waits for the answer");
        }
    };
    let order = match take_order(connection, PATIENCE) {
        Ok(order) => order,
        Err(why) => {
            tell(&Answer::Failed(why.to_string()));
            return Err(why);
        }
    };
    tell(&Answer::Begins);
    let mut is_over = || is_stopped() || is_readable(connection, Duration::ZERO).unwrap_or(true);
    tell(&match trace(&order, &mut is_over) {
        Ok(findings) => Answer::Traced(findings),
        Err(NotTraced { why, may_pass }) => match may_pass {
            true => Answer::FailedForNow(why),
            false => Answer::Failed(why),
        },
    });
    Ok(())
}

/// The order, which has to be there within this time.
pub(super) fn take_order(mut connection: &UnixStream, within: Duration) -> Result<Order, Refused> {
    let not_understood = |why: &str| Refused::NotUnderstood(why.to_owned());
    let until = Instant::now() + within;
    let (mut text, mut chunk) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(not_understood("it does not come to an end"));
        }
        if !is_readable(connection, left)? {
            continue;
        }
        let read = connection.read(&mut chunk)?;
        if read == 0 {
            return Err(not_understood("it breaks off"));
        }
        text.extend_from_slice(&chunk[..read]);
        if text.len() > LONGEST {
            return Err(not_understood("it is too long"));
        }
        match chunk[..read].iter().position(|byte| *byte == b'\n') {
            None => {}
            Some(end) if end + 1 == read => break,
            Some(_) => return Err(not_understood("something follows it")),
        }
    }
    serde_json::from_slice(&text).map_err(|error| not_understood(&error.to_string()))
}
