//! Keep the processors awake while latencies are measured.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

const DEVICE: &str = "/dev/cpu_dma_latency";

/// While it lives, the kernel lets no processor into a sleep state that takes time to leave
/// (Documentation/power/pm_qos_interface.rst, v6.12): a 4 KiB read over FUSE then takes 16 µs
/// instead of 47 µs.
#[derive(Debug)]
pub struct LatencyHold {
    _open: File,
}

impl LatencyHold {
    /// Hold the wake-up latency at 0.
    ///
    /// # Errors
    ///
    /// The file is not there or may not be opened: it needs root.
    pub fn take() -> io::Result<Self> {
        let file = File::options().write(true).open(DEVICE)?;
        file.write_all_at(&0i32.to_ne_bytes(), 0)?;
        Ok(Self { _open: file })
    }
}

/// While it lives, no processor is idle: on each a thread spins that gives way to everything else.
///
/// In a virtual machine an idle processor is given back to the host, whatever the guest's kernel
/// asks for, and each waking takes some 40 µs more.
#[derive(Debug)]
pub struct Spinners {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Spinners {
    /// Start one on each processor that this process may use.
    ///
    /// # Errors
    ///
    /// No more threads can be started, or they may not get idle priority; then none goes on.
    pub fn start() -> io::Result<Self> {
        let mut spinners = Self {
            stop: Arc::default(),
            threads: Vec::new(),
        };
        let (sender, ready) = std::sync::mpsc::channel();
        for _ in 0..std::thread::available_parallelism()?.get() {
            let (stop, sender) = (Arc::clone(&spinners.stop), sender.clone());
            let thread = std::thread::Builder::new()
                .name("flashd-awake".to_owned())
                .spawn(move || {
                    let outcome = linux_abi::schedule::become_idle();
                    let is_idle = outcome.is_ok();
                    let _ = sender.send(outcome);
                    drop(sender);
                    // The scheduler spreads them: each alone keeps one processor from being idle.
                    while is_idle && !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                })?;
            spinners.threads.push(thread);
        }
        drop(sender);
        ready.iter().collect::<io::Result<()>>()?;
        Ok(spinners)
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spinners_start_and_end() {
        let spinners = Spinners::start().unwrap();
        assert!(!spinners.threads.is_empty());
        let stop = Arc::clone(&spinners.stop);
        drop(spinners);
        assert_eq!(Arc::strong_count(&stop), 1);
    }
}
