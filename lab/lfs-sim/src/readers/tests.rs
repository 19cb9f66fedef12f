use flash_model::Profile;

use super::*;
use crate::{device, synthetic};

fn disk() -> Disk {
    let profile = Profile::builtin("indef-femu-16k").unwrap();
    Disk::new(device::full_zones(&profile, Bytes::mib(256)).unwrap(), 128)
}

/// A host that takes no time.
fn no_host() -> Parameters {
    let mut parameters = Parameters::default();
    let host = &mut parameters.host;
    (host.call, host.block, host.request) = Default::default();
    parameters
}

const REQUEST: Access = Access::Direct {
    call: Bytes::kib(256),
};

fn time(parameters: &Parameters, layout: &Layout, access: Access) -> u64 {
    let read = read(parameters, &mut disk(), [layout.clone()], access, 1).unwrap();
    assert_eq!(read.bytes, layout.allocated());
    assert_eq!(read.elapsed.stats.host_read_bytes, read.bytes.0);
    read.elapsed.time.0
}

fn contiguous(size: Bytes) -> Layout {
    synthetic::pieces(&[size], Bytes::ZERO, size)
}

#[test]
fn a_request_of_a_row_is_one_page_of_each_chip() {
    // Page read 80 µs, transfer 24 µs, two chips on each channel.
    let row = contiguous(Bytes::kib(256));
    assert_eq!(time(&no_host(), &row, REQUEST), 80_000 + 2 * 24_000);
    // Each call waits for the one before it.
    let rows = contiguous(Bytes::mib(1));
    assert_eq!(time(&no_host(), &rows, REQUEST), 4 * (80_000 + 2 * 24_000));
}

#[test]
fn the_host_takes_its_time_for_each_request() {
    let mut parameters = no_host();
    parameters.host.call.0 = 3_000;
    parameters.host.request.0 = 500_000;
    // Four pieces, one after the other as their submission takes longer than a page.
    let layout = synthetic::pieces(&[Bytes::kib(64)], Bytes::kib(192), Bytes::kib(256));
    let whole = contiguous(Bytes::kib(256));
    let pieces = time(&parameters, &layout, REQUEST);
    assert_eq!(pieces, 3_000 + 4 * 500_000);
    assert_eq!(time(&parameters, &whole, REQUEST), 3_000 + 500_000);
}

#[test]
fn a_buffered_reader_is_one_window_ahead() {
    let mut parameters = no_host();
    // Working on a window takes as long as fetching one.
    parameters.host.block.0 = 2_000;
    let file = contiguous(Bytes::mib(4));
    let buffered = Access::Buffered {
        call: Bytes::kib(128),
        readahead: Bytes::kib(128),
    };
    let blocks = file.allocated().div_ceil(BLOCK);
    let work = blocks * parameters.host.block.0;
    let fetch = time(
        &no_host(),
        &file,
        Access::Direct {
            call: Bytes::kib(128),
        },
    );
    let both = time(&parameters, &file, buffered);
    assert!(both < (work + fetch) * 3 / 4, "{both} {work} {fetch}");
    assert!(both > work.max(fetch));
}

#[test]
fn pages_on_few_chips_take_longer_and_threads_share_the_device() {
    let on = |chips: u32| {
        let layout = synthetic::on_chips((0..256).map(|block| block % chips), 16, Bytes::kib(16));
        time(&no_host(), &layout, REQUEST)
    };
    assert!(on(2) > 3 * on(16), "{} {}", on(2), on(16));
    let files = || {
        let file = |number: u64| {
            let extents = contiguous(Bytes::mib(1)).extents().to_vec();
            let moved = extents.into_iter().map(|mut extent| {
                extent.phys.0 += number << 20;
                extent
            });
            Layout::new(moved.collect())
        };
        (0..16).map(file)
    };
    let of = |threads| {
        let read = read(&no_host(), &mut disk(), files(), REQUEST, threads).unwrap();
        assert_eq!(read.bytes, Bytes::mib(16));
        read.elapsed.time.0
    };
    assert!(of(4) < of(1), "{} {}", of(4), of(1));
    assert_eq!(of(4), of(4));
}
