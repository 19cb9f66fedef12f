//! The right, and the duty, to end one command.
//!
//! [`Permit::issue`] is the only source of permits, and a completion leaves this module only
//! through [`Permit::complete`], which consumes the permit. So no command ends twice. A permit that
//! is dropped on a living connection is a command that would never end: a debug build panics, and
//! every build ends the connection, so that the host does not wait for ever.

use std::sync::Arc;

use nvme_wire::{Status, Submission, log::ErrorEntry};
use zerocopy::little_endian::{U16, U32, U64};

use super::{
    Sender,
    reply::{Completed, Failed, Reply},
};
use crate::serve::backend::Backend;

/// The right to end one command of one queue.
#[must_use = "a command that is not completed leaves its host waiting"]
#[derive(Debug)]
pub(in crate::serve) struct Permit {
    cid: u16,
    queue: Arc<Sender>,
    nsid: u32,
    lba: u64,
    is_open: bool,
}

/// Why a command gets no permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::serve) enum NoPermit {
    /// Another command with its identifier is not done yet.
    IdentifierInUse,
    /// More commands than the queue has entries.
    QueueFull,
}

impl Permit {
    /// Take a command off a submission queue of `entries` entries.
    pub(in crate::serve) fn issue(
        queue: &Arc<Sender>,
        command: &Submission,
        entries: u32,
    ) -> Result<Self, NoPermit> {
        let cid = command.cid.get();
        if !queue.inflight.begin(cid) {
            return Err(NoPermit::IdentifierInUse);
        }
        if queue.inflight.count() > entries as usize {
            return Err(NoPermit::QueueFull);
        }
        queue.command_taken();
        tracing::trace!(
            queue = queue.queue_id(),
            cid,
            opcode = command.opcode,
            nsid = command.nsid.get(),
            dword10_11 = command.cdw10_11(),
            dword12 = command.cdw12.get(),
            "begun"
        );
        Ok(Self {
            cid,
            queue: Arc::clone(queue),
            nsid: command.nsid.get(),
            lba: command.cdw10_11(),
            is_open: true,
        })
    }

    /// The identifier of the command.
    pub(in crate::serve) fn cid(&self) -> u16 {
        self.cid
    }

    /// The device below the queue.
    pub(in crate::serve) fn backend(&self) -> &Backend {
        &self.queue.backend
    }

    /// End the command. A failure goes into the error log of the controller, once there is one.
    pub(in crate::serve) fn complete(mut self, end: Result<Completed, Failed>) {
        self.is_open = false;
        if let Err(failed) = &end
            && failed.is_logged
        {
            self.log(failed.status);
        }
        let cid = self.cid;
        self.queue.reply(Reply::Done { cid, end });
    }

    /// End the connection instead: the power was cut, and no answer may leave.
    pub(in crate::serve) fn cut_off(mut self) {
        self.is_open = false;
        self.queue.kill();
    }

    /// Forget the command, as a controller reset does with those that wait for an event. The host
    /// gets no answer, and its identifier stays in use for as long as the connection lives.
    pub(in crate::serve) fn forget(mut self) {
        self.is_open = false;
    }

    fn log(&self, status: Status) {
        let Some(queue) = self.queue.queue.get() else {
            return;
        };
        let mut entry = ErrorEntry::zeroed();
        entry.queue = U16::new(queue.id);
        entry.cid = U16::new(self.cid);
        entry.status = U16::new(status.field());
        entry.location = U16::new(u16::MAX);
        entry.nsid = U32::new(self.nsid);
        if queue.id > 0 {
            entry.lba = U64::new(self.lba);
        }
        entry.transport = nvme_wire::discovery::TRANSPORT_TCP;
        queue.error_log.note(entry);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        // With the connection, its commands end without an answer.
        if !self.is_open || self.queue.is_dead() {
            return;
        }
        tracing::error!(
            cid = self.cid,
            "a command was not completed; its connection ends"
        );
        self.queue.kill();
        debug_assert!(
            std::thread::panicking(),
            "command {} was dropped without a completion",
            self.cid
        );
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::{
        io::Read,
        net::{Ipv4Addr, TcpListener, TcpStream},
        panic::{AssertUnwindSafe, catch_unwind},
        time::Duration,
    };

    use flash_model::{NamespaceKind, Profile};
    use nvme_wire::pdu::CapsuleResp;
    use units::Bytes;

    use super::*;
    use crate::device::{Device, DeviceOptions, NamespaceOptions};

    /// A connection's sending side, and the host at the other end.
    pub(in crate::serve) fn connected() -> (Arc<Sender>, TcpStream) {
        let namespace = NamespaceOptions {
            kind: NamespaceKind::Conventional,
            size: Bytes::mib(1),
        };
        let profile = Profile::builtin("zero").unwrap();
        let device = Device::open(&DeviceOptions::in_memory(profile, &[namespace])).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let host = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let backend = Arc::new(Backend::new(device));
        let sender = Sender::new(&stream, backend, Duration::from_secs(60)).unwrap();
        sender.receives_here();
        (Arc::new(sender), host)
    }

    fn command(cid: u16) -> Submission {
        let mut command = Submission::zeroed();
        command.cid = U16::new(cid);
        command
    }

    /// Completions that the host has got when the connection has ended.
    fn completions(sender: &Sender, mut host: TcpStream) -> Vec<u16> {
        sender.flush();
        sender.kill();
        let mut bytes = Vec::new();
        host.read_to_end(&mut bytes).unwrap();
        bytes
            .chunks_exact(CapsuleResp::LEN)
            .filter_map(CapsuleResp::first_of)
            .map(|response| response.completion.cid.get())
            .collect()
    }

    /// Two completions do not compile: `complete` consumes the permit, and a permit cannot be
    /// cloned. If it could, both implementations would fit here, and the call would be ambiguous.
    #[test]
    fn two_completions_are_impossible() {
        trait NotClone<Marker> {
            fn holds() {}
        }
        struct Cloned;
        impl<T> NotClone<()> for T {}
        impl<T: Clone> NotClone<Cloned> for T {}
        <Permit as NotClone<_>>::holds();

        let (sender, host) = connected();
        let permit = Permit::issue(&sender, &command(7), 4).unwrap();
        let again = Permit::issue(&sender, &command(7), 4);
        assert_eq!(again.unwrap_err(), NoPermit::IdentifierInUse);
        permit.complete(Ok(Completed::Result(0)));
        sender.flush();
        // Its identifier is free again.
        let next = Permit::issue(&sender, &command(7), 4).unwrap();
        next.complete(Err(Status::InvalidField.into()));
        assert_eq!(completions(&sender, host), [7, 7]);
    }

    /// And should two ends of a command get past the compiler, the second one does not leave.
    #[test]
    fn a_second_end_ends_the_connection() {
        let (sender, host) = connected();
        let permit = Permit::issue(&sender, &command(7), 4).unwrap();
        permit.complete(Ok(Completed::Result(0)));
        sender.flush();
        let end = Ok(Completed::Result(0));
        sender.reply(Reply::Done { cid: 7, end });
        sender.flush();
        assert!(sender.is_dead());
        assert_eq!(completions(&sender, host), [7]);
    }

    #[test]
    fn no_completion_is_caught() {
        let (sender, host) = connected();
        let permit = Permit::issue(&sender, &command(7), 4).unwrap();
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(permit)));
        assert_eq!(dropped.is_err(), cfg!(debug_assertions));
        assert!(sender.is_dead(), "the host would wait for ever");
        assert!(completions(&sender, host).is_empty());
    }

    #[test]
    fn a_dead_connection_owes_nothing() {
        let (sender, host) = connected();
        let waiting = Permit::issue(&sender, &command(1), 4).unwrap();
        let hit = Permit::issue(&sender, &command(2), 4).unwrap();
        hit.cut_off();
        drop(waiting);
        assert!(completions(&sender, host).is_empty());
    }

    #[test]
    fn a_connection_is_ended_once_nothing_of_it_is_carried_out() {
        let (sender, _host) = connected();
        let (tell, ended) = std::sync::mpsc::channel();
        std::thread::scope(|threads| {
            let held = sender.carry_out().unwrap();
            let sender = &sender;
            threads.spawn(move || {
                sender.kill_and_wait();
                tell.send(()).unwrap();
            });
            while !sender.is_dead() {
                std::thread::yield_now();
            }
            assert!(ended.recv_timeout(Duration::from_millis(50)).is_err());
            drop(held);
            ended.recv().unwrap();
        });
        assert!(sender.carry_out().is_none());
    }

    /// Else a host that connects again could have its new data overwritten by what it sent before.
    #[test]
    fn the_power_is_cut_once_nothing_is_carried_out() {
        let (sender, _host) = connected();
        let (tell, cut) = std::sync::mpsc::channel();
        std::thread::scope(|threads| {
            let held = sender.carry_out().unwrap();
            let device = &sender.backend.device;
            threads.spawn(move || {
                device.power_cut();
                tell.send(()).unwrap();
            });
            assert!(cut.recv_timeout(Duration::from_millis(50)).is_err());
            drop(held);
            cut.recv().unwrap();
        });
        assert!(sender.carry_out().is_none());
    }

    #[test]
    fn a_queue_takes_no_more_commands_than_it_has_entries() {
        let (sender, host) = connected();
        let one = Permit::issue(&sender, &command(1), 1).unwrap();
        let two = Permit::issue(&sender, &command(2), 1);
        assert_eq!(two.unwrap_err(), NoPermit::QueueFull);
        one.complete(Ok(Completed::Result(0)));
        assert_eq!(completions(&sender, host), [1]);
    }
}
