//! Asynchronous events of a controller (Base §5.2): what has happened, and who waits to hear of it.

use std::collections::{BTreeSet, VecDeque};

use nvme_wire::{event::Event, log::LogPage};

use super::subsystem::EVENT_REQUESTS_MAX;

/// Events and requests that have not met yet.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// CIDs of Asynchronous Event Requests.
    requests: VecDeque<u16>,
    /// What nobody was told yet.
    waiting: VecDeque<Event>,
    /// What was told, and whose log page was not read since: another event of its kind waits for that.
    masked: Vec<Event>,
    /// Namespaces for the Changed Namespace List.
    changed_namespaces: BTreeSet<u32>,
}

impl Events {
    /// A request has come; false if there are too many.
    pub(super) fn request(&mut self, cid: u16) -> bool {
        if self.requests.len() >= EVENT_REQUESTS_MAX {
            return false;
        }
        self.requests.push_back(cid);
        true
    }

    /// A request that shall be aborted; false if it is none.
    pub(super) fn abort(&mut self, cid: u16) -> bool {
        let before = self.requests.len();
        self.requests.retain(|&request| request != cid);
        self.requests.len() < before
    }

    /// Something has happened.
    pub(super) fn raise(&mut self, event: Event) {
        if !self.waiting.contains(&event) {
            self.waiting.push_back(event);
        }
    }

    /// A namespace has changed.
    pub(super) fn namespace_changed(&mut self, nsid: u32) {
        self.changed_namespaces.insert(nsid);
        self.raise(Event::NamespaceChanged);
    }

    /// A request and what to answer it with, if there are both.
    pub(super) fn next(&mut self) -> Option<(u16, Event)> {
        if self.requests.is_empty() {
            return None;
        }
        let at = self
            .waiting
            .iter()
            .position(|event| !self.masked.contains(event))?;
        let event = self.waiting.remove(at)?;
        self.masked.push(event);
        Some((self.requests.pop_front()?, event))
    }

    /// A host has read a log page, and does not want to be told again.
    pub(super) fn read(&mut self, page: LogPage) {
        self.masked.retain(|event| event.log_page() != page);
        if page == LogPage::ChangedNamespaces {
            self.changed_namespaces.clear();
        }
    }

    pub(super) fn changed_namespaces(&self) -> impl Iterator<Item = u32> {
        self.changed_namespaces.iter().copied()
    }

    /// A reset: nobody waits any more, nothing is remembered.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_told_once_until_its_page_is_read() {
        let mut events = Events::default();
        events.namespace_changed(3);
        assert_eq!(events.next(), None);
        assert!(events.request(1) && events.request(2));
        assert_eq!(events.next(), Some((1, Event::NamespaceChanged)));
        events.namespace_changed(4);
        assert_eq!(events.next(), None);
        assert!(events.changed_namespaces().eq([3, 4]));
        events.read(LogPage::ChangedNamespaces);
        assert_eq!(events.changed_namespaces().count(), 0);
        assert_eq!(events.next(), Some((2, Event::NamespaceChanged)));
        assert!(events.request(5) && events.abort(5) && !events.abort(5));
        for cid in 0..EVENT_REQUESTS_MAX as u16 {
            assert!(events.request(cid));
        }
        assert!(!events.request(99));
    }
}
